package bodycam_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/bodycam-dev/bodycam"

// layers says which packages of ours each room may import (docs/DESIGN.md). A room covers the packages below it, and
// these may import each other. Anything that isn't listed may import nothing of ours.
var layers = map[string][]string{
	"":                   {},
	"ledger":             {},
	"ledger/proof":       {"ledger"},
	"rules":              {""},
	"internal/kind":      {""},
	"internal/sandbox":   {},
	"internal/guard":     {""},
	"internal/harness":   {"", "internal/mcp"},
	"internal/model":     {""},
	"internal/sensor":    {""},
	"internal/link":      {""},
	"internal/store":     {"", "ledger"},
	"internal/approval":  {"", "ledger", "internal/store"},
	"internal/features":  {"", "internal/store"},
	"internal/conduct":   {"", "internal/features", "internal/store"},
	"internal/security":  {"", "rules", "internal/features"},
	"internal/analysis":  {"", "internal/store", "internal/features"},
	"internal/a2a":       {""},
	"internal/mcp":       {""},
	"internal/otlp":      {""},
	"internal/trust":     {"", "internal/a2a", "internal/mcp", "internal/otlp"},
	"internal/gateway":   {"", "ledger", "rules", "internal/a2a", "internal/mcp", "internal/otlp"},
	"internal/anchor":    {"ledger", "ledger/proof"},
	"internal/fleet":     {""},
	"internal/report":    {""},
	"internal/keyring":   {"ledger"},
	"internal/hostlog":   {"ledger"},
	"internal/mirror":    {"ledger"},
	"internal/query":     {"", "ledger", "internal/store"},
	"internal/export":    {"", "ledger", "internal/store"},
	"internal/session":   {"", "ledger", "internal/kind", "internal/sandbox", "internal/guard", "internal/harness", "internal/sensor", "internal/link", "internal/store"},
	"internal/bench":     {"*"},
	"internal/cli":       {"*"},
	"cmd/bodycam":        {"internal/cli"},
	"cmd/bodycam-verify": {"", "ledger", "ledger/proof"},
	"demo":               {},
}

// room finds the listed room that a package belongs to: the longest prefix.
func room(pkg string) (string, bool) {
	for r := pkg; r != ""; {
		if _, ok := layers[r]; ok {
			return r, true
		}
		i := strings.LastIndexByte(r, '/')
		if i < 0 {
			break
		}
		r = r[:i]
	}
	return "", pkg == ""
}

func relative(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, module)
	return strings.TrimPrefix(rest, "/"), ok && (rest == "" || rest[0] == '/')
}

// Prose about layers decays; this doesn't.
func TestLayers(t *testing.T) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pkg, _ := relative(f[0])
		from, ok := room(pkg)
		if !ok {
			t.Errorf("%s belongs to no room of the design: give it one in layers_test.go and docs/DESIGN.md", f[0])
			continue
		}
		for _, imp := range f[1:] {
			dep, ours := relative(imp)
			if !ours {
				continue
			}
			to, ok := room(dep)
			if ok && to == from || slices.Contains(layers[from], "*") || slices.Contains(layers[from], to) && ok {
				continue
			}
			t.Errorf("%s imports %s: %q may import only %q", f[0], imp, from, layers[from])
		}
	}
}

// What a stranger must read and build stays small: the verifier needs no network, no kernel interface and no SQL.
func TestVerifierIsSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/bodycam-verify").Output()
	if err != nil {
		t.Skipf("cmd/bodycam-verify isn't there: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, banned := range []string{"net/http", "github.com/cilium/ebpf", "modernc.org/sqlite", "github.com/ethereum/"} {
			if strings.HasPrefix(dep, banned) {
				t.Errorf("the verifier depends on %s", dep)
			}
		}
	}
}

// The binary also runs as an agent inside sandboxes, where its own start must not look like an attack.
func TestNoPackageThatActsAtStart(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/bodycam").Output()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(out)), "github.com/cilium/ebpf/rlimit") {
		t.Error("cilium/ebpf/rlimit is linked: its init calls bpf() in every process")
	}
}

// A library under another licence than ours is used where docs/DEPENDENCIES.md says, and nowhere else.
func TestEthereumHasItsPlace(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(line, " ")
		rest, _ := relative(pkg)
		in, _, _ := strings.Cut(strings.TrimPrefix(rest, "internal/anchor/evm"), "/")
		if strings.Contains(imports, "github.com/ethereum/") && in != "" && !slices.Contains([]string{"internal/anchor/config", "internal/bench/anchors", "internal/cli"}, rest) {
			t.Errorf("%s imports go-ethereum", pkg)
		}
	}
}
