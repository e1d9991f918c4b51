package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// A watcher stops the run: nothing goes on, the processes are written down as they stood, and what was recorded and
// made until then is kept.
func TestStop(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "echo begun > /workspace/begun; sh -c 'cat /etc/hostname; sleep 600' & sleep 3; echo over > /workspace/over; sleep 600"}, func(p *kind.Plan) {
		p.Artifacts = []string{"/workspace/*"}
		p.Judge.Workspace = []string{"/workspace"}
	})
	ready := 0
	o.Ready = func(r *bodycam.Run) error { ready++; return nil }
	o.Watch = func(e *bodycam.Event) string {
		if e.Type == bodycam.TypeOpen && e.Path == "/etc/hostname" {
			return "it read the host's name"
		}
		return ""
	}
	r := mustRun(t, o)
	if ready != 1 {
		t.Errorf("Ready was called %d times", ready)
	}
	if _, err := os.Stat(r.Path("artifacts/workspace/begun")); err != nil {
		t.Errorf("what was made before the stop: %v", err)
	}
	if _, err := os.Stat(r.Path("artifacts/workspace/over")); err == nil {
		t.Error("it went on after the stop")
	}
	if _, err := os.Stat(filepath.Join(r.Dir, store.WorkspaceDir, "after/workspace/begun")); err != nil {
		t.Errorf("the workspace as it was: %v", err)
	}
	var s Stopped
	b, err := os.ReadFile(r.Path(store.StoppedFile))
	if err != nil || json.Unmarshal(b, &s) != nil {
		t.Fatalf("stopped.json: %v", err)
	}
	if s.Reason != "it read the host's name" || !slices.ContainsFunc(s.Processes, func(f Frozen) bool { return slices.Contains(f.Argv, "-c") && f.CWD == "/workspace" }) {
		t.Errorf("stopped.json says %+v", s)
	}
	if r.Info.Outcome.Status != bodycam.OutcomeError || !strings.Contains(r.Info.Outcome.Error, "stopped: it read the host's name, so the tests") || !strings.Contains(strings.Join(r.Info.Notes, " "), "stopped: it read") {
		t.Errorf("run.json says %+v, %q", r.Info.Outcome, r.Info.Notes)
	}
	if a := phaseNamed(t, r, "agent"); a.Signal == "" {
		t.Errorf("the agent's phase says %+v", a)
	}
}

// The proxy asks before it passes anything on, and what it is told to refuse reaches nobody.
func TestRefuse(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "curl -s -m 10 http://one.example/x; echo $?; curl -s -m 10 http://two.example/x; echo $?"}, func(p *kind.Plan) { p.Network.Mode = "sink" })
	o.Refuse = func(e *bodycam.Event) string {
		if e.Host == "one.example" && e.Type == bodycam.TypeConnect {
			return "because"
		}
		return ""
	}
	r := mustRun(t, o)
	out, err := os.ReadFile(r.Path("agent/stdout"))
	if err != nil || strings.HasPrefix(string(out), "0") || !strings.HasSuffix(string(out), "ok\n0\n") {
		t.Errorf("it printed %q, %v", out, err)
	}
	b, err := os.ReadFile(r.Path(store.ExchangesFile))
	if err != nil || strings.Contains(string(b), "one.example") || !strings.Contains(string(b), "two.example") {
		t.Errorf("the stand-in got %s, %v", b, err)
	}
	if find(events(t, r), func(e *bodycam.Event) bool {
		return e.Type == bodycam.TypeFlow && e.Host == "one.example" && strings.Contains(e.Detail, "why=because")
	}) == nil {
		t.Error("the refusal isn't in the record")
	}
}

// Decoys lie where nothing lay, never in the workspace, readable by the agent alone, and are written down.
func TestDecoys(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "cat /root/.aws/credentials; stat -c %a /root/.aws /root/.aws/credentials; cat /etc/hostname; ls -A /workspace"}, nil)
	for _, p := range []string{"/root/.aws/credentials", "/etc/hostname", "/workspace/key"} {
		o.Decoys = append(o.Decoys, Decoy{bodycam.Decoy{Name: "d", Path: p, Value: "value-" + p}, []byte("value-" + p + "\n")})
	}
	r := mustRun(t, o)
	out, err := os.ReadFile(r.Path("agent/stdout"))
	if err != nil || !strings.HasPrefix(string(out), "value-/root/.aws/credentials\n700\n600\n") || strings.Contains(string(out), "value-/etc") || strings.HasSuffix(string(out), "key\n") {
		t.Errorf("inside it shows as %q, %v", out, err)
	}
	var planted []bodycam.Decoy
	b, err := os.ReadFile(r.Path(store.DecoysFile))
	if err != nil || json.Unmarshal(b, &planted) != nil || len(planted) != 1 || planted[0].Path != "/root/.aws/credentials" {
		t.Errorf("decoys.json says %s, %v", b, err)
	}
}
