package harness

import (
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/bodycam-dev/bodycam/internal/harness/builtin"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// boxBinary is where the bodycam binary lies inside the box.
const boxBinary = "/opt/bodycam/bin/bodycam"

// stateDir is where the agents of bodycam itself keep their configuration, below the box's home.
const stateDir = ".bodycam"

// self is the running binary, which is started again inside the box.
type self struct {
	dynamic bool // only in tests, which have no box: it may be linked dynamically
}

// detect describes the binary.
func (s self) detect() (Info, error) {
	exe, err := os.Executable()
	if err != nil {
		return Info{}, fmt.Errorf("find the bodycam binary: %w", err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return Info{}, fmt.Errorf("find the bodycam binary: %w", err)
	}
	if err := static(exe); err != nil && !s.dynamic {
		return Info{}, err
	}
	sum, err := digest(exe)
	if err != nil {
		return Info{}, err
	}
	version := "unknown"
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" {
		version = bi.Main.Version
	}
	return Info{Version: version, Path: exe, SHA256: sum}, nil
}

// static refuses a binary that needs a dynamic linker: the box may have another libc, or none.
func static(exe string) error {
	f, err := elf.Open(exe)
	if err != nil {
		return fmt.Errorf("read %s: %w", exe, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked, so it can't run inside the box: build it with CGO_ENABLED=0", exe)
		}
	}
	return nil
}

// invoke makes the invocation of an agent of bodycam itself.
func (s self) invoke(r Request, agent string, cfg builtin.Config, env map[string]string, more ...File) (*Invocation, error) {
	info, err := s.detect()
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the configuration of agent %s: %w", agent, err)
	}
	state := path.Join(r.Home, stateDir)
	file := path.Join(state, agent+".json")
	return &Invocation{
		Argv:       []string{boxBinary, builtin.Command, agent, file},
		Env:        r.env(env),
		Dir:        r.Workdir,
		Files:      append([]File{{Path: file, Mode: 0o644, Content: data}}, more...),
		Binds:      []Bind{{Host: info.Path, Box: boxBinary}},
		Format:     transcript.Rows,
		StatePaths: []string{state, boxBinary},
	}, nil
}

// builtinAgent is bodycam's own small agent: one shell tool, any OpenAI-compatible Chat Completions endpoint.
//
// Parameters: system (text), max_turns, command_timeout, output_bytes.
type builtinAgent struct{ self }

func (builtinAgent) Name() string { return "builtin" }
func (builtinAgent) Summary() string {
	return "a small agent loop with a shell tool, for any OpenAI-compatible endpoint; nothing to install"
}
func (b builtinAgent) Detect(context.Context) (Info, error) { return b.detect() }

func (b builtinAgent) Prepare(_ context.Context, r Request) (*Invocation, error) {
	if err := r.check("builtin", true); err != nil {
		return nil, err
	}
	p := newParams("builtin", r)
	cfg := builtin.Config{
		Instruction: r.Instruction, Model: r.Model, ModelURL: r.ModelURL, Workdir: r.Workdir, Skills: r.skills(),
		KeepReasoning: r.KeepReasoning, Seconds: r.Timeout.Seconds(), MCP: toolServers(r.MCP),
		System:   p.text("system", ""),
		MaxTurns: p.number("max_turns", 100),
	}
	shellParams(p, &cfg)
	if err := p.done(); err != nil {
		return nil, err
	}
	if cfg.MaxTurns < 1 {
		return nil, fmt.Errorf("agent builtin: max_turns must be at least 1")
	}
	cfg.RequestSeconds = 300
	return b.invoke(r, "agent", cfg, map[string]string{builtin.KeyEnv: r.key()})
}

func toolServers(list []MCPServer) []builtin.ToolServer {
	var out []builtin.ToolServer
	for i := range list {
		m := &list[i]
		s := builtin.ToolServer{Name: m.key(), URL: m.URL, SSE: m.Transport == MCPSSE}
		if m.Transport == MCPStdio {
			s.Command = append([]string{m.Command}, m.Args...)
		}
		out = append(out, s)
	}
	return out
}

// shellParams reads what the agents that run commands themselves have in common.
func shellParams(p *params, cfg *builtin.Config) {
	cfg.CommandSeconds = p.duration("command_timeout", 2*time.Minute).Seconds()
	cfg.OutputBytes = p.number("output_bytes", 32<<10)
	if cfg.OutputBytes < 1<<10 || cfg.OutputBytes > 16<<20 {
		p.wrong("output_bytes", "from 1024 to 16777216", cfg.OutputBytes)
	}
	if cfg.Shell == nil {
		cfg.Shell = []string{"/bin/sh", "-c"}
	}
}

// replay runs the commands of a transcript again.
//
// Parameters: transcript (a file on the host, required), format, shell (a list: the command line before each
// command), keep_directory, command_timeout, output_bytes, max_commands.
type replay struct{ self }

func (replay) Name() string { return "replay" }
func (replay) Summary() string {
	return "runs the commands of a transcript again, in order (any supported format)"
}
func (a replay) Detect(context.Context) (Info, error) { return a.detect() }

func (a replay) Prepare(_ context.Context, r Request) (*Invocation, error) {
	if err := r.check("replay", false); err != nil {
		return nil, err
	}
	p := newParams("replay", r)
	cfg := builtin.Config{Workdir: r.Workdir, Seconds: r.Timeout.Seconds(), Shell: p.list("shell"), MaxCommands: p.number("max_commands", 0)}
	file, format := p.text("transcript", ""), p.text("format", "")
	if keep, set := p.boolean("keep_directory"); set {
		cfg.KeepDir = &keep
	}
	shellParams(p, &cfg)
	if err := p.done(); err != nil {
		return nil, err
	}
	if file == "" {
		return nil, fmt.Errorf("agent replay needs the parameter transcript: the file whose commands shall run again")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("agent replay: read transcript: %w", err)
	}
	f, rows, err := transcript.Parse(data, transcript.Format(format), time.Now(), transcript.Options{MaxText: 1 << 10})
	if err != nil {
		return nil, fmt.Errorf("agent replay: read transcript %s: %w", file, err)
	}
	commands := 0
	for i := range rows {
		if rows[i].Command != "" || len(rows[i].Files) > 0 {
			commands++
		}
	}
	if commands == 0 {
		return nil, fmt.Errorf("agent replay: the transcript %s (format %s) has no command to run", file, f)
	}
	cfg.Format, cfg.Transcript = string(f), path.Join(r.Home, stateDir, "transcript")
	inv, err := a.invoke(r, "replay", cfg, nil, File{Path: cfg.Transcript, Mode: 0o644, Content: data})
	if err != nil {
		return nil, err
	}
	inv.without(r.MCP, func(*MCPServer) string { return "a replay calls no tool servers" })
	return inv, nil
}
