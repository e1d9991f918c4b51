// Package builtin holds the agents that live in bodycam itself and run inside the box: a small agent loop with one
// shell tool, and the replay of a transcript's commands. The bodycam binary is started again in the box as
//
//	bodycam internal-agent agent|replay CONFIG
//
// and prints its transcript (transcript.RowLine, one JSON object a line) on standard output. Both need nothing in
// the box but /bin/sh.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// Command is the hidden command of the bodycam binary that runs Main with the arguments after it.
const Command = "internal-agent"

// KeyEnv is the environment variable that holds the model's credential. Commands of the agent don't get it.
const KeyEnv = "BODYCAM_MODEL_KEY"

// Exit statuses of Main.
const (
	ExitOK      = 0   // the agent said that it is done, or the transcript was replayed
	ExitFailed  = 1   // the model could not be reached or used, or the turns ran out
	ExitUsage   = 2   // wrong arguments or configuration
	ExitTimeout = 124 // the time ran out
)

// Config is what an agent in the box is given, as a JSON file.
type Config struct {
	Instruction   string       `json:"instruction,omitempty"`
	Model         string       `json:"model,omitempty"`
	ModelURL      string       `json:"model_url,omitempty"` // with /v1
	System        string       `json:"system,omitempty"`    // the system prompt; "" means the default
	Workdir       string       `json:"workdir"`
	Skills        []string     `json:"skills,omitempty"`
	MCP           []ToolServer `json:"mcp,omitempty"`
	MaxTurns      int          `json:"max_turns,omitempty"`
	KeepReasoning bool         `json:"keep_reasoning,omitempty"`

	Shell          []string `json:"shell"`                     // the command line before each command: /bin/sh -c
	CommandSeconds float64  `json:"command_seconds"`           // most time for one command
	Seconds        float64  `json:"seconds,omitempty"`         // most time for everything; 0: no limit
	OutputBytes    int      `json:"output_bytes"`              // most of a command's output that is kept
	Transcript     string   `json:"transcript,omitempty"`      // replay: the file
	Format         string   `json:"format,omitempty"`          // replay: its format; "" means by content
	KeepDir        *bool    `json:"keep_directory,omitempty"`  // replay: a cd lasts; nil: as the original harness did
	MaxCommands    int      `json:"max_commands,omitempty"`    // replay: stop after so many; 0: all
	RequestSeconds float64  `json:"request_seconds,omitempty"` // most time for one model request
}

// Main runs an agent and returns its exit status. args are the name and the configuration file. Standard input isn't
// read: it belongs to nobody.
func Main(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, args, stdout, stderr, os.Getenv(KeyEnv))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, key string) int {
	if len(args) != 2 || args[0] != "agent" && args[0] != "replay" {
		fmt.Fprintf(stderr, "usage: bodycam %s agent|replay CONFIG (this command is started by bodycam itself, inside the box)\n", Command)
		return ExitUsage
	}
	cfg, err := readConfig(args[1])
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", args[0], err)
		return ExitUsage
	}
	if cfg.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seconds(cfg.Seconds))
		defer cancel()
	}
	out := &printer{w: stdout}
	if args[0] == "agent" {
		err = (&agent{cfg: cfg, key: key, out: out}).run(ctx)
	} else {
		err = (&replay{cfg: cfg, out: out}).run(ctx)
	}
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		out.row(bodycam.RowError, fmt.Sprintf("the time of %v ran out", seconds(cfg.Seconds)))
		return ExitTimeout
	}
	out.row(bodycam.RowError, err.Error())
	fmt.Fprintf(stderr, "%s: %v\n", args[0], err)
	return ExitFailed
}

func readConfig(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	cfg := &Config{Shell: []string{"/bin/sh", "-c"}, CommandSeconds: 120, OutputBytes: 32 << 10, MaxTurns: 100, RequestSeconds: 300}
	if err := json.Unmarshal(data, cfg); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	if cfg.CommandSeconds <= 0 || cfg.OutputBytes <= 0 || len(cfg.Shell) == 0 {
		return nil, fmt.Errorf("configuration %s: shell, command_seconds and output_bytes must be set", path)
	}
	return cfg, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// printer writes the transcript, a whole line with one write.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) print(l transcript.RowLine) {
	for _, s := range []*string{&l.Command, &l.Args, &l.Text, &l.Output, &l.Reason} {
		*s = bodycam.Escape(*s)
	}
	b, err := json.Marshal(l)
	if err != nil {
		return // strings and numbers only: can't happen
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(append(b, '\n')) // nobody is left to tell when standard output is gone
}

func (p *printer) row(kind bodycam.RowKind, text string) {
	p.print(transcript.RowLine{Event: "row", Kind: kind, Text: text, Failed: kind == bodycam.RowError})
}
