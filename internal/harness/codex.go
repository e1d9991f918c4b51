package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// CodexVersion is the version of @openai/codex that the tests run with.
const CodexVersion = "0.171.0"

// codex is OpenAI's Codex CLI, npm package @openai/codex. The package's launcher needs Node.js, but the program
// itself is a static binary, and only that goes into the box.
//
// Parameters: config (a list of key=value, given with -c), args (a list of further arguments).
type codex struct{}

// boxCodex is where the package's program files lie inside the box.
const boxCodex = "/opt/codex"

func (codex) Name() string    { return "codex" }
func (codex) Summary() string { return "OpenAI Codex CLI (npm @openai/codex), non-interactive" }

func (codex) Detect(ctx context.Context) (Info, error) {
	p, err := findCodex(ctx)
	if err != nil {
		return Info{}, err
	}
	sum, err := digest(p.program)
	if err != nil {
		return Info{}, err
	}
	return Info{Version: p.version, Path: p.program, SHA256: sum}, nil
}

// installation is a native program with the directory that goes into the box.
type installation struct {
	program string
	version string
	dir     string // mounted in the box
	inBox   string // the program's path inside the box
}

func codexTriple() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-unknown-linux-musl"
	}
	return "x86_64-unknown-linux-musl"
}

func findCodex(ctx context.Context) (installation, error) {
	dir, err := findPackage("@openai/codex", "codex")
	if err != nil {
		// A codex in PATH that npm didn't bring: the bare binary of a release.
		if found, e := exec.LookPath("codex"); e == nil {
			if found, e = filepath.EvalSymlinks(found); e == nil && isELF(found) {
				return bareProgram(ctx, found, boxCodex)
			}
		}
		return installation{}, fmt.Errorf("codex is not installed: %w; install it with: npm install --prefix .harness @openai/codex@%s", err, CodexVersion)
	}
	pkg, err := readPackage(dir)
	if err != nil {
		return installation{}, fmt.Errorf("find codex: %w", err)
	}
	roots := []string{filepath.Join(dir, "vendor")}
	if p, ok := platformPackage(dir, "@openai/codex-linux-"+npmArch()); ok {
		roots = append([]string{filepath.Join(p, "vendor")}, roots...)
	}
	for _, root := range roots {
		vendor := filepath.Join(root, codexTriple())
		for _, name := range []string{"bin/codex", "codex/codex"} {
			if program := filepath.Join(vendor, name); isFile(program) {
				return installation{program: program, version: pkg.Version, dir: vendor, inBox: path.Join(boxCodex, name)}, nil
			}
		}
	}
	return installation{}, fmt.Errorf("the package @openai/codex in %s has no program for %s: install it anew with: npm install --prefix .harness @openai/codex@%s", dir, codexTriple(), CodexVersion)
}

// bareProgram is a native program that stands alone.
func bareProgram(ctx context.Context, program, box string) (installation, error) {
	version, err := versionOf(ctx, program)
	if err != nil {
		return installation{}, err
	}
	inBox := path.Join(box, "bin", filepath.Base(program))
	return installation{program: program, version: version, dir: program, inBox: inBox}, nil
}

func (i installation) bind(box string) Bind {
	if i.dir == i.program {
		return Bind{Host: i.program, Box: i.inBox}
	}
	return Bind{Host: i.dir, Box: box}
}

// maxArg is the longest instruction that is given as an argument; a longer one goes to standard input. Linux takes
// 128 KiB in one argument.
const maxArg = 100 << 10

func (codex) Prepare(ctx context.Context, r Request) (*Invocation, error) {
	if err := r.check("codex", true); err != nil {
		return nil, err
	}
	p := newParams("codex", r)
	overrides, args := p.list("config"), p.list("args")
	if err := p.done(); err != nil {
		return nil, err
	}
	for _, o := range overrides {
		if !strings.Contains(o, "=") {
			return nil, fmt.Errorf("agent codex: config has %q: entries are key=value", o)
		}
	}
	in, err := findCodex(ctx)
	if err != nil {
		return nil, err
	}
	home := path.Join(r.Home, ".codex")
	inv := &Invocation{}
	r.MCP = inv.without(r.MCP, func(m *MCPServer) string {
		if m.Transport == MCPSSE {
			return "codex doesn't speak the transport sse"
		}
		return ""
	})
	config, err := codexConfig(r)
	if err != nil {
		return nil, err
	}
	argv := []string{in.inBox, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}
	for _, o := range overrides {
		argv = append(argv, "-c", o)
	}
	argv = append(argv, args...)
	*inv = Invocation{
		Unserved:     inv.Unserved,
		Env:          r.env(map[string]string{"CODEX_HOME": home, "BODYCAM_MODEL_KEY": r.key()}),
		Dir:          r.Workdir,
		Files:        []File{{Path: path.Join(home, "config.toml"), Mode: 0o600, Content: config}},
		Binds:        []Bind{in.bind(boxCodex)},
		Format:       transcript.CodexExec,
		SessionGlobs: []string{path.Join(home, "sessions", "**", "rollout-*.jsonl")},
		StatePaths:   []string{home, boxCodex},
	}
	if s := r.skills(path.Join(home, "skills"), path.Join(r.Home, ".agents/skills"), path.Join(r.Workdir, ".agents/skills"), path.Join(r.Workdir, ".codex/skills")); s != nil {
		inv.Files = append(inv.Files, File{Path: path.Join(home, "AGENTS.md"), Mode: 0o644, Content: skillNote(s)})
	}
	if len(r.Instruction) > maxArg {
		inv.Argv, inv.Stdin = append(argv, "-"), []byte(r.Instruction)
	} else {
		inv.Argv = append(argv, "--", r.Instruction)
	}
	return inv, nil
}

// codexConfig is config.toml: our endpoint, no questions, and nothing that would call other hosts.
func codexConfig(r Request) ([]byte, error) {
	type table = map[string]any
	out, err := toml.Marshal(table{
		"mcp_servers": mcpServers(r.MCP, func(m *MCPServer) table {
			t := table{"startup_timeout_sec": 60, "tool_timeout_sec": 300}
			if m.Transport == MCPStdio {
				t["required"] = true // else it asks the model before a slow server is there
			} else {
				t["url"] = m.URL
			}
			return t
		}),
		"model":                       r.Model,
		"model_provider":              "bodycam",
		"approval_policy":             "never",
		"sandbox_mode":                "danger-full-access",
		"check_for_update_on_startup": false,
		"hide_agent_reasoning":        !r.KeepReasoning,
		"show_raw_agent_reasoning":    r.KeepReasoning,
		"analytics":                   table{"enabled": false},
		"feedback":                    table{"enabled": false},
		"features":                    table{"plugins": false, "apps": false},
		"shell_environment_policy":    table{"exclude": []string{"BODYCAM_MODEL_KEY"}},
		"model_providers": table{"bodycam": table{
			"name": "bodycam", "base_url": r.ModelURL, "wire_api": "responses", "env_key": "BODYCAM_MODEL_KEY",
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("write codex's config.toml: %w", err)
	}
	return out, nil
}
