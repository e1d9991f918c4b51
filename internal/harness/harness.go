// Package harness knows how each agent program is started and how its transcript is read.
//
// A [Harness] turns a [Request] (an instruction, a model, a working directory) into an [Invocation]: the program,
// its environment, the files it needs and where its transcript will be. It starts nothing itself and knows nothing
// of sandboxes: whoever runs the invocation writes Files, mounts Binds and collects what SessionGlobs match.
//
// An invocation's environment is complete. A harness is run with an empty environment and a scratch home; no
// variable of the outside reaches it unless the kind's environment allow-list adds one.
package harness

import (
	"context"
	"io/fs"
	"time"

	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// Request is what an agent is asked to do, and with what.
type Request struct {
	Instruction string // the task's text, given to the agent unchanged
	Model       string // the model's name as the endpoint knows it
	// ModelURL is the endpoint as seen inside the box, with the version part that OpenAI-compatible clients expect:
	// http://model.bodycam.internal/v1. Harnesses whose API has another root strip "/v1" themselves.
	ModelURL string
	// APIKey is the credential for ModelURL. A box that goes through a gateway gets a placeholder, and the gateway
	// holds the real one. Empty means "bodycam": clients insist on some value.
	APIKey string

	Workdir string // absolute path inside the box: where the agent starts
	Home    string // absolute path inside the box: HOME, and the place of the harness's state
	Path    string // PATH inside the box; empty means DefaultPath

	// Params are the kind's or the command line's parameters for this harness. Prepare refuses one it doesn't know.
	Params map[string]any
	// KeepReasoning asks the harness to write reasoning text to its transcript, where it can be told to.
	// Whether the parser keeps it is the parser's own option (transcript.Options).
	KeepReasoning bool
	// Skills are directories inside the box, each holding a SKILL.md, that the agent should know of. Several may be
	// copies of one skill: they end in the same name.
	Skills []string
	// MCP are the tool servers that the agent shall have.
	MCP []MCPServer
	// Timeout is how long the agent has, for harnesses that can end by themselves. 0: no limit of their own.
	Timeout time.Duration
}

// DefaultPath is PATH inside the box where a request names none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Invocation is how an agent is started inside the box.
type Invocation struct {
	Argv  []string          // Argv[0] is an absolute path inside the box, or a name to be found in its PATH
	Env   map[string]string // the whole environment
	Dir   string            // working directory inside the box
	Stdin []byte            // nil: /dev/null
	Files []File            // written inside the box before the start, outside the observed window
	Binds []Bind            // read-only mounts of the harness's program files
	// Format is that of the transcript on standard output; "" means that it is none: see NewParser.
	Format transcript.Format
	// SessionGlobs match the transcript files inside the box, to be collected afterwards. "**" matches any number
	// of directories.
	SessionGlobs []string
	// StatePaths are directories and files inside the box that hold the harness's own state. What happens below
	// them is noise for comparisons; it is shown apart and never dropped.
	StatePaths []string
	// Unserved are the request's tool servers that this harness can't have.
	Unserved []Unserved
}

// NewParser reads what the invocation prints on standard output. A program that prints no transcript gets one row of
// kind tool, which stands for the program as a whole, with what it printed as its output.
func (inv *Invocation) NewParser(o transcript.Options) Parser {
	if inv.Format == "" {
		return newOneRow(inv.Argv, o)
	}
	p, err := transcript.New(inv.Format, o)
	if err != nil { // Prepare has checked the format; whatever else was put there is kept line by line
		p, _ = transcript.New(transcript.Lines, o)
	}
	return p
}

// File is a file to be written inside the box. Missing directories above it are made with mode 0755.
type File struct {
	Path    string // absolute, inside the box
	Mode    fs.FileMode
	Content []byte
}

// Bind is a read-only mount of one file or directory of the host inside the box.
type Bind struct {
	Host string // absolute path on the host
	Box  string // absolute path inside the box
}

// Info tells which program was found on the host.
type Info struct {
	Version string `json:"version"`
	Path    string `json:"path"`   // the real program, after symbolic links and launchers
	SHA256  string `json:"sha256"` // of that file, hex
}

// Parser reads one transcript, line by line. See [transcript.Parser].
type Parser = transcript.Parser

// Harness is one kind of agent program.
type Harness interface {
	// Name is what users write: "codex".
	Name() string
	// Summary is one line for lists.
	Summary() string
	// Detect finds the program on the host. Its error says how to install it.
	Detect(ctx context.Context) (Info, error)
	// Prepare makes the invocation. It calls Detect where it needs the program's path, and refuses a request that
	// the harness can't honour (an unknown parameter, a missing model URL).
	Prepare(ctx context.Context, r Request) (*Invocation, error)
}
