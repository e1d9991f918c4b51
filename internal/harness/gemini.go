package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// GeminiVersion is the version of @google/gemini-cli that the tests run with.
const GeminiVersion = "0.61.0"

// geminiCLI is Google's Gemini CLI, npm package @google/gemini-cli. It is a Node.js program: the box must have node
// in its PATH.
//
// Parameters: args (a list of further arguments).
type geminiCLI struct{}

const boxGemini = "/opt/gemini-cli"

func (geminiCLI) Name() string { return "gemini-cli" }
func (geminiCLI) Summary() string {
	return "Google Gemini CLI (npm @google/gemini-cli), non-interactive; needs Node.js in the box"
}

func (geminiCLI) Detect(context.Context) (Info, error) {
	_, program, version, err := findGemini()
	if err != nil {
		return Info{}, err
	}
	sum, err := digest(program)
	if err != nil {
		return Info{}, err
	}
	return Info{Version: version, Path: program, SHA256: sum}, nil
}

// findGemini returns the package's directory and its entry script.
func findGemini() (dir, program, version string, err error) {
	dir, err = findPackage("@google/gemini-cli", "gemini")
	if err != nil {
		return "", "", "", fmt.Errorf("gemini-cli is not installed: %w; install it with: npm install --prefix .harness @google/gemini-cli@%s", err, GeminiVersion)
	}
	pkg, err := readPackage(dir)
	if err != nil {
		return "", "", "", fmt.Errorf("find gemini-cli: %w", err)
	}
	var bin map[string]string
	if json.Unmarshal(pkg.Bin, &bin) != nil || bin["gemini"] == "" {
		return "", "", "", fmt.Errorf("the package @google/gemini-cli in %s names no program gemini", dir)
	}
	program = filepath.Join(dir, filepath.FromSlash(bin["gemini"]))
	if !isFile(program) {
		return "", "", "", fmt.Errorf("the package @google/gemini-cli in %s lacks its program %s: install it anew", dir, bin["gemini"])
	}
	if _, err := exec.LookPath("node"); err != nil {
		return "", "", "", fmt.Errorf("gemini-cli needs Node.js 20 or later: %w", err)
	}
	return dir, program, pkg.Version, nil
}

func (geminiCLI) Prepare(_ context.Context, r Request) (*Invocation, error) {
	if err := r.check("gemini-cli", true); err != nil {
		return nil, err
	}
	p := newParams("gemini-cli", r)
	args := p.list("args")
	if err := p.done(); err != nil {
		return nil, err
	}
	dir, program, _, err := findGemini()
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(dir, program)
	if err != nil {
		return nil, fmt.Errorf("find gemini-cli: %w", err)
	}
	home := path.Join(r.Home, ".gemini")
	settings, err := geminiSettings(r.MCP)
	if err != nil {
		return nil, err
	}
	argv := []string{"node", "--no-warnings", path.Join(boxGemini, "node_modules/@google/gemini-cli", filepath.ToSlash(rel)),
		"--output-format", "stream-json", "--yolo", "--skip-trust", "--model", r.Model}
	inv := &Invocation{
		Argv: append(argv, args...),
		Env: r.env(map[string]string{
			"GEMINI_API_KEY": r.key(), "GOOGLE_GEMINI_BASE_URL": r.root(),
			"GEMINI_CLI_NO_RELAUNCH": "true", // it would start itself again for more memory
		}),
		Dir:          r.Workdir,
		Stdin:        []byte(r.Instruction),
		Files:        []File{{Path: path.Join(home, "settings.json"), Mode: 0o600, Content: settings}},
		Binds:        []Bind{{Host: nodeModules(dir), Box: path.Join(boxGemini, "node_modules")}},
		Format:       transcript.Gemini,
		SessionGlobs: []string{path.Join(home, "tmp", "**", "chats", "*.json*")},
		StatePaths:   []string{home, boxGemini},
	}
	if s := r.skills(path.Join(home, "skills"), path.Join(r.Home, ".agents/skills"), path.Join(r.Workdir, ".gemini/skills"), path.Join(r.Workdir, ".agents/skills")); s != nil {
		inv.Files = append(inv.Files, File{Path: path.Join(home, "GEMINI.md"), Mode: 0o644, Content: skillNote(s)})
	}
	return inv, nil
}

// nodeModules is the directory that holds the package and what it needs.
func nodeModules(dir string) string { return filepath.Dir(filepath.Dir(dir)) }

func geminiSettings(servers []MCPServer) ([]byte, error) {
	type object = map[string]any
	out, err := json.Marshal(object{
		"mcpServers": mcpServers(servers, func(m *MCPServer) object {
			switch m.Transport {
			case MCPSSE:
				return object{"url": m.URL, "trust": true}
			case MCPHTTP:
				return object{"httpUrl": m.URL, "trust": true}
			}
			return object{"trust": true}
		}),
		"security":  object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": false}},
		"privacy":   object{"usageStatisticsEnabled": false},
		"telemetry": object{"enabled": false},
		"general":   object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "disableAutoUpdate": true, "disableUpdateNag": true},
	})
	if err != nil {
		return nil, fmt.Errorf("write gemini-cli's settings.json: %w", err)
	}
	return out, nil
}
