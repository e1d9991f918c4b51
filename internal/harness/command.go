package harness

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// command runs any program as the agent.
//
// Parameters: command, required: an argv (a list) or a shell command (a text, run with /bin/sh -c). As an argument of the
// list {instruction} is replaced by the instruction, {instruction_file} by the path of a file with it. env (NAME=VALUE
// list). format: that of its standard output where it is a transcript. stdin: true gives the instruction on standard
// input.
type command struct{}

// The arguments that stand for the instruction.
const (
	argInstruction     = "{instruction}"
	argInstructionFile = "{instruction_file}"
)

func (command) Name() string { return "command" }
func (command) Summary() string {
	return "any program: bodycam run TASK -- PROGRAM ARG…"
}

// Detect finds nothing on the host: the program is in the box.
func (command) Detect(context.Context) (Info, error) { return Info{Version: "1"}, nil }

func (command) Prepare(_ context.Context, r Request) (*Invocation, error) {
	if err := r.check("command", false); err != nil {
		return nil, err
	}
	p := newParams("command", r)
	argv, script := p.command()
	format := transcript.Format(p.text("format", ""))
	stdin, _ := p.boolean("stdin")
	env, err := environment(p.list("env"))
	if e := p.done(); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	switch {
	case len(argv) > 0 && argv[0] != "":
	case argv != nil:
		return nil, fmt.Errorf("agent command: command is empty")
	case script == "":
		return nil, fmt.Errorf("agent command: there is nothing to run: give the parameter command")
	default:
		argv = []string{"/bin/sh", "-c", script}
	}
	if r.Model != "" {
		env["BODYCAM_MODEL"] = r.Model
	}
	if r.ModelURL != "" {
		env["BODYCAM_MODEL_URL"] = r.ModelURL
		env["BODYCAM_MODEL_KEY"] = r.key()
	}
	if r.Instruction != "" {
		env["BODYCAM_INSTRUCTION"] = r.Instruction
	}
	var servers []byte
	serversFile := path.Join(r.Home, stateDir, "mcp.json")
	if len(r.MCP) > 0 {
		if servers, err = mcpConfig(r.MCP); err != nil {
			return nil, err
		}
		env["BODYCAM_MCP_CONFIG"] = serversFile
	}
	if format != "" {
		if _, err := transcript.New(format, transcript.Options{}); err != nil {
			return nil, fmt.Errorf("agent command: %w", err)
		}
	}
	inv := &Invocation{Argv: slices.Clone(argv), Env: r.env(env), Dir: r.Workdir, Format: format}
	for i, a := range argv {
		switch a {
		case argInstruction:
			inv.Argv[i] = r.Instruction
		case argInstructionFile:
			file := path.Join(r.Home, stateDir, "instruction")
			inv.Argv[i], inv.StatePaths = file, []string{path.Dir(file)}
			inv.Files = []File{{Path: file, Mode: 0o644, Content: []byte(r.Instruction)}}
		}
	}
	if servers != nil {
		inv.Files = append(inv.Files, File{Path: serversFile, Mode: 0o644, Content: servers})
		inv.StatePaths = []string{path.Dir(serversFile)}
	}
	if stdin {
		inv.Stdin = []byte(r.Instruction)
	}
	return inv, nil
}

// command reads the parameter of that name: a list is an argv, a text a shell command.
func (p *params) command() (argv []string, script string) {
	if v, ok := p.m["command"].(string); ok {
		p.get("command")
		return nil, v
	}
	return p.list("command"), ""
}

func environment(list []string) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range list {
		name, value, ok := cutEnv(e)
		if !ok {
			return nil, fmt.Errorf("agent command: env has %q: entries are NAME=VALUE", e)
		}
		env[name] = value
	}
	return env, nil
}

func cutEnv(e string) (name, value string, ok bool) {
	for i := range len(e) {
		if e[i] == '=' {
			return e[:i], e[i+1:], i > 0
		}
	}
	return "", "", false
}

// newOneRow makes the parser for a program that prints no transcript. The row begins when the program was started;
// where nobody said when that was, it is now, since a parser is made for a program that is about to start.
func newOneRow(argv []string, o transcript.Options) Parser {
	if o.MaxText <= 0 {
		o.MaxText = transcript.DefaultMaxText
	}
	if o.Source == "" {
		o.Source = "stdout"
	}
	text, ok := bodycam.ShellScript(argv)
	if !ok {
		text = transcript.Quote(argv)
	}
	at := o.Started
	if at.IsZero() {
		at = time.Now()
	}
	return &oneRow{o: o, text: text, at: at}
}

// oneRow gathers all output in one row.
type oneRow struct {
	o    transcript.Options
	text string
	at   time.Time // when the program started
	rows []bodycam.Row
	out  []byte
	cut  bool
}

func (p *oneRow) begin() {
	if p.rows == nil {
		p.rows = []bodycam.Row{{Kind: bodycam.RowTool, Tool: "command", Command: p.text, Arrived: p.at, Source: p.o.Source}}
	}
}

func (p *oneRow) Line(_ time.Time, line []byte) error {
	p.begin()
	if room := p.o.MaxText - len(p.out) - 1; len(line) > room {
		line, p.cut = line[:max(room, 0)], true
		if room < 0 {
			return nil
		}
	}
	p.out = append(append(p.out, line...), '\n')
	return nil
}

func (p *oneRow) Rows() []bodycam.Row { return p.rows }

func (p *oneRow) Finish(at time.Time) []bodycam.Row {
	p.begin()
	r := &p.rows[0]
	r.Output, r.Cut, r.Ended = string(p.out), p.cut, at
	return p.rows
}
