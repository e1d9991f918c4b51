package session

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// A watcher is asked about every event in order, and not before it is ready. However long it takes nothing is lost, and what
// it does to an event isn't in the record.
func TestWatch(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"}, nil)
	ready := false
	o.Ready = func(r *bodycam.Run) error { time.Sleep(300 * time.Millisecond); ready = true; return nil }
	var seen []uint64
	o.Watch = func(e *bodycam.Event) string {
		if !ready {
			t.Error("it was asked before it was ready")
		}
		if len(seen)%1000 == 0 {
			time.Sleep(200 * time.Millisecond)
		}
		seen = append(seen, e.Seq)
		e.Path, e.Argv, e.Detail = "/its/own", nil, "its own"
		return ""
	}
	recorded := events(t, mustRun(t, o))
	if len(seen) != len(recorded) || len(seen) < 2000 {
		t.Fatalf("it was asked about %d of %d events", len(seen), len(recorded))
	}
	for i, e := range recorded {
		if e.Seq != seen[i] || e.Path == "/its/own" || e.Detail == "its own" {
			t.Fatalf("recorded event %d is %+v, it was asked about %d", i, e, seen[i])
		}
	}
}

// What can't be made ready keeps the agent from being started.
func TestNotReady(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"true"}, nil)
	o.Ready = func(*bodycam.Run) error { return errors.New("no rules today") }
	o.Watch = func(*bodycam.Event) string { t.Error("it was asked"); return "" }
	r, err := Run(t.Context(), o)
	if !errors.Is(err, ErrEnvironment) || !strings.Contains(err.Error(), "no rules today") {
		t.Error(err)
	}
	if r.Info.Counts.Events != 0 {
		t.Errorf("%d events were recorded", r.Info.Counts.Events)
	}
}

// The proxy asks before it passes anything on, and what it is told to refuse reaches nobody. What is set up before the agent
// starts isn't asked about.
func TestRefuse(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "curl -s -m 10 http://one.example/x; echo $?; curl -s -m 10 http://two.example/x; echo $?"}, func(p *kind.Plan) {
		p.Network.Mode = "sink"
		p.Setup = []kind.PlanStep{{Name: "fetch", Argv: []string{"curl", "-s", "-m", "10", "http://setup.example/"}, Workdir: "/", User: "root"}}
	})
	o.Refuse = func(e *bodycam.Event) string {
		if e.Host == "setup.example" || e.Host == "one.example" && e.Type == bodycam.TypeConnect {
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
