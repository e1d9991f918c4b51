package cli

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// An agent that needs a key of its own. With --secret the service that it asks gets the key and the sandbox never does: not
// in the agent's environment, nor in what the service repeats, nor in any file of the audit or the run. With --env the
// agent has it, and the audit leaves it out of what the agent says.
func TestProbeSecret(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF and cgroups")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	const key = "k3y-of-the-agent-0815"
	t.Setenv("TEST_AGENT_KEY", key)
	var mu sync.Mutex
	var seen []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get("Authorization"))
		fmt.Fprintf(w, "It is sunny and 20 degrees there, said the service to %s.", r.Header.Get("Authorization"))
	}))
	defer api.Close()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "a2a"), "github.com/a2aproject/a2a-go/v2/cmd/a2a")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building a2a: %v\n%s", err, out)
	}
	const script = `read -r q
curl -sS --max-time 10 -H "Authorization: Bearer $API_KEY" https://api.internal/now 2>&1
echo " My key is $API_KEY."
`
	files := t.TempDir()
	decl, probes := filepath.Join(files, "weather.yaml"), filepath.Join(files, "p.jsonl")
	for name, text := range map[string]string{filepath.Join(dir, "agent.sh"): script, decl: weatherYAML, probes: `{"id":"p1","scope":"in","text":"What's the weather in Lima?"}` + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	probe := func(args ...string) (reply, out string) {
		t.Helper()
		out = t.TempDir()
		args = append([]string{"--json", "-q", "-o", out, "--probes-from", probes, "--settle", "30ms", "--idle", "300ms", "--port", "8080", "--workspace", dir, "--declaration", decl, "--network", "none"}, args...)
		status, stdout, stderr := probeAs(t, keyed{in: regexp.MustCompile(`weather`)}, append(args, "--", "./a2a", "serve", "--port", "8080", "--exec", "sh ./agent.sh")...)
		if stdout == "" {
			t.Fatalf("status %d: %s", status, stderr)
		}
		if strings.Contains(stdout+stderr, key) {
			t.Error("the key is printed")
		}
		return decode(t, stdout).Probes[0].Reply, out
	}
	reply, out := probe("--secret", "API_KEY=env:TEST_AGENT_KEY@api.internal="+api.URL)
	mu.Lock()
	if len(seen) != 1 || seen[0] != "Bearer "+key {
		t.Errorf("the service saw %q; the agent said %q", seen, reply)
	}
	mu.Unlock()
	if !strings.Contains(reply, "sunny") || !strings.Contains(reply, "My key is bodycam-") || !strings.Contains(reply, "service to Bearer bodycam-") {
		t.Errorf("the agent said %q", reply)
	}
	err := filepath.WalkDir(out, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(b), key) {
			t.Errorf("%s holds the key", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	reply, out = probe("--env", "API_KEY=env:TEST_AGENT_KEY")
	if !strings.Contains(reply, "My key is [secret].") {
		t.Errorf("the agent said %q", reply)
	}
	for _, name := range []string{"*/exchanges.jsonl", "*/audit.json", "*/report.json", "*/run.json"} {
		list, err := filepath.Glob(filepath.Join(out, name))
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %v %v", name, list, err)
		}
		for _, f := range list {
			if b, err := os.ReadFile(f); err != nil || strings.Contains(string(b), key) {
				t.Errorf("%s holds the key, or %v", f, err)
			}
		}
	}
	for _, bad := range []string{"API_KEY", "API_KEY=env:TEST_AGENT_KEY", "API_KEY=" + key + "@h", "API_KEY=env:TEST_AGENT_KEY@", "API_KEY=env:TEST_AGENT_KEY@h=ftp://x", "API_KEY=env:NOT_SET_ANYWHERE@h"} {
		status, _, errs := probeAs(t, keyed{}, "--port", "1", "--declaration", decl, "--secret", bad, "--", "true")
		if status != ExitUsage || strings.Contains(errs, key) {
			t.Errorf("%s: status %d: %s", bad, status, errs)
		}
	}
}
