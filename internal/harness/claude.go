package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// ClaudeCodeVersion is the version of @anthropic-ai/claude-code that the tests run with.
const ClaudeCodeVersion = "2.1.332"

// claudeCode is Anthropic's Claude Code, npm package @anthropic-ai/claude-code (proprietary: installed by the user,
// never part of bodycam). The program is native, but needs the box's libc.
//
// Parameters: args (a list of further arguments).
type claudeCode struct{}

const boxClaude = "/opt/claude-code"

func (claudeCode) Name() string { return "claude-code" }
func (claudeCode) Summary() string {
	return "Anthropic Claude Code (npm @anthropic-ai/claude-code), non-interactive"
}

func (claudeCode) Detect(ctx context.Context) (Info, error) {
	in, err := findClaude(ctx)
	if err != nil {
		return Info{}, err
	}
	sum, err := digest(in.program)
	if err != nil {
		return Info{}, err
	}
	return Info{Version: in.version, Path: in.program, SHA256: sum}, nil
}

func findClaude(ctx context.Context) (installation, error) {
	dir, err := findPackage("@anthropic-ai/claude-code", "claude")
	if err != nil {
		if found, e := exec.LookPath("claude"); e == nil {
			if found, e = filepath.EvalSymlinks(found); e == nil && isELF(found) {
				return bareProgram(ctx, found, boxClaude)
			}
		}
		return installation{}, fmt.Errorf("claude-code is not installed: %w; install it with: npm install --prefix .harness @anthropic-ai/claude-code@%s", err, ClaudeCodeVersion)
	}
	pkg, err := readPackage(dir)
	if err != nil {
		return installation{}, fmt.Errorf("find claude-code: %w", err)
	}
	for _, libc := range []string{"", "-musl"} {
		if p, ok := platformPackage(dir, "@anthropic-ai/claude-code-linux-"+npmArch()+libc); ok {
			if program := filepath.Join(p, "claude"); isFile(program) {
				return installation{program: program, version: pkg.Version, dir: program, inBox: path.Join(boxClaude, "bin", "claude")}, nil
			}
		}
	}
	return installation{}, fmt.Errorf("the package @anthropic-ai/claude-code %s in %s has no native program: bodycam needs version 2.1.300 or later, with its optional dependencies", pkg.Version, dir)
}

func (claudeCode) Prepare(ctx context.Context, r Request) (*Invocation, error) {
	if err := r.check("claude-code", true); err != nil {
		return nil, err
	}
	p := newParams("claude-code", r)
	args := p.list("args")
	if err := p.done(); err != nil {
		return nil, err
	}
	in, err := findClaude(ctx)
	if err != nil {
		return nil, err
	}
	home := path.Join(r.Home, ".claude")
	argv := []string{in.inBox, "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions", "--model", r.Model}
	inv := &Invocation{
		Argv: append(argv, args...),
		Env: r.env(map[string]string{
			"ANTHROPIC_BASE_URL": r.root(), "ANTHROPIC_API_KEY": r.key(), "CLAUDE_CONFIG_DIR": home,
			"IS_SANDBOX": "1", // as root it refuses to skip its questions otherwise
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
			"DISABLE_TELEMETRY":                        "1",
			"DISABLE_ERROR_REPORTING":                  "1",
			"DISABLE_AUTOUPDATER":                      "1",
		}),
		Dir:          r.Workdir,
		Stdin:        []byte(r.Instruction), // of any length, and never taken for an option
		Binds:        []Bind{in.bind(boxClaude)},
		Format:       transcript.Claude,
		SessionGlobs: []string{path.Join(home, "projects", "**", "*.jsonl")},
		StatePaths:   []string{home, path.Join(r.Home, ".claude.json"), boxClaude},
	}
	if s := r.skills(path.Join(home, "skills"), path.Join(r.Workdir, ".claude/skills")); s != nil {
		inv.Files = append(inv.Files, File{Path: path.Join(home, "CLAUDE.md"), Mode: 0o644, Content: skillNote(s)})
	}
	if len(r.MCP) > 0 {
		config, err := mcpConfig(r.MCP)
		if err != nil {
			return nil, err
		}
		file := path.Join(home, "bodycam-mcp.json")
		inv.Files = append(inv.Files, File{Path: file, Mode: 0o600, Content: config})
		inv.Env["ENABLE_TOOL_SEARCH"] = "false" // the model is offered the tools themselves, not a search for them
		inv.Argv = append(inv.Argv, "--mcp-config", file, "--strict-mcp-config")
	}
	return inv, nil
}
