package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups and eBPF")
	}
}

// options resolves a command into a run. change may adjust the plan.
func options(t *testing.T, argv []string, change func(*kind.Plan)) Options {
	t.Helper()
	task, err := kind.CommandTask(argv, "")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kind.Load("command")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := kind.Resolve(k, task, kind.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(plan)
	}
	h, err := harness.Get(plan.Agent.Harness)
	if err != nil {
		t.Fatal(err)
	}
	id := store.NewID(time.Now())
	return Options{Plan: plan, Harness: h, ID: id, Dir: filepath.Join(t.TempDir(), id)}
}

func mustRun(t *testing.T, o Options) *store.Run {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Info.Complete.Complete {
		t.Errorf("the record is incomplete: %v", r.Info.Complete.Reasons)
	}
	return r
}

func events(t *testing.T, r *store.Run) []bodycam.Event {
	t.Helper()
	var out []bodycam.Event
	if err := r.Events(func(e *bodycam.Event) error { out = append(out, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func find(es []bodycam.Event, f func(*bodycam.Event) bool) *bodycam.Event {
	for i := range es {
		if f(&es[i]) {
			return &es[i]
		}
	}
	return nil
}

func TestCommand(t *testing.T) {
	needRoot(t)
	r := mustRun(t, options(t, []string{"sh", "-c", "echo secret > /workspace/a; cat /workspace/a; exit 7"}, nil))
	agent := phaseNamed(t, r, "agent")
	if agent.Exit == nil || *agent.Exit != 7 {
		t.Errorf("the agent's phase says %+v", agent)
	}
	out, err := os.ReadFile(r.Path("agent/stdout"))
	if err != nil || string(out) != "secret\n" {
		t.Errorf("its output is %q, %v", out, err)
	}
	es := events(t, r)
	for i, e := range es {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has seq %d", i, e.Seq)
		}
		if e.Window != bodycam.WindowAgent && e.Window != bodycam.WindowPostAgent {
			t.Errorf("event %d lies in window %q", e.Seq, e.Window)
		}
	}
	if e := find(es, func(e *bodycam.Event) bool {
		return e.Type == bodycam.TypeOpen && e.Path == "/workspace/a" && e.Access&bodycam.Write != 0
	}); e == nil || e.Exe == "" {
		t.Errorf("the write of /workspace/a is %+v", e)
	}
	if r.Info.Outcome.Status != bodycam.OutcomeNone {
		t.Errorf("a command without tests has outcome %q", r.Info.Outcome.Status)
	}
}

func phaseNamed(t *testing.T, r *store.Run, name string) bodycam.Phase {
	t.Helper()
	for _, p := range r.Info.Phases {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("the run has no phase %s: %+v", name, r.Info.Phases)
	return bodycam.Phase{}
}

// After a time-out the later phases still run, and what the agent did is kept.
func TestTimeout(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "echo begun > /workspace/begun; sleep 600"}, func(p *kind.Plan) {
		p.Agent.Timeout = kind.Duration(2 * time.Second)
		p.Artifacts = []string{"/workspace/*"}
	})
	r := mustRun(t, o)
	if a := phaseNamed(t, r, "agent"); !a.TimedOut {
		t.Errorf("the agent's phase says %+v", a)
	}
	b, err := os.ReadFile(r.Path("artifacts/workspace/begun"))
	if err != nil || string(b) != "begun\n" {
		t.Errorf("the artifact is %q, %v", b, err)
	}
}

// A daemon that outlives the agent is still recorded, in a window of its own, and ended with the run.
func TestDaemon(t *testing.T) {
	needRoot(t)
	r := mustRun(t, options(t, []string{"sh", "-c", "(sleep 0.2; cat /etc/hostname; sleep 600) >/dev/null 2>&1 & exit 0"}, nil))
	e := find(events(t, r), func(e *bodycam.Event) bool { return e.Type == bodycam.TypeOpen && e.Path == "/etc/hostname" })
	if e == nil || e.Window != bodycam.WindowPostAgent {
		t.Fatalf("the daemon's read is %+v", e)
	}
	if !strings.Contains(strings.Join(r.Info.Notes, " "), "outlived") {
		t.Errorf("notes are %q", r.Info.Notes)
	}
}

// What runs inside gets no variable of ours.
func TestEnvironment(t *testing.T) {
	needRoot(t)
	t.Setenv("BODYCAM_TEST_SECRET", "do-not-leak")
	r := mustRun(t, options(t, []string{"env"}, nil))
	out, err := os.ReadFile(r.Path("agent/stdout"))
	if err != nil || strings.Contains(string(out), "do-not-leak") || !strings.Contains(string(out), "PATH=") {
		t.Errorf("the environment inside is %q, %v", out, err)
	}
}

func TestMissingProgram(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"no-such-program-here"}, nil)
	r, err := Run(t.Context(), o)
	if !errors.Is(err, ErrEnvironment) || !strings.Contains(err.Error(), "no-such-program-here") {
		t.Fatalf("the error is %v", err)
	}
	if r == nil || r.Info.Error == "" || r.Info.Ended.IsZero() {
		t.Error("the run directory doesn't tell of the failure")
	}
}

// An agent that prints without end is capped, and the run goes on.
func TestFlood(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sh", "-c", "head -c 200000000 /dev/zero"}, func(p *kind.Plan) { p.Limits.Output = 1 << 20 })
	r := mustRun(t, o)
	st, err := os.Stat(r.Path("agent/stdout"))
	if err != nil || st.Size() != 1<<20 {
		t.Errorf("kept %v, %v", st.Size(), err)
	}
	if !strings.Contains(strings.Join(r.Info.Notes, " "), "over the limit") {
		t.Errorf("notes are %q", r.Info.Notes)
	}
}

func TestInterrupt(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := options(t, []string{"sh", "-c", "echo here; sleep 600"}, nil)
	o.Event = func(e *bodycam.Event) {
		if e.Type == bodycam.TypeExec && strings.HasSuffix(e.Exe, "/sleep") {
			cancel()
		}
	}
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Info.Ended.IsZero() || r.Info.Counts.Events == 0 {
		t.Errorf("the interrupted run says %+v", r.Info.Counts)
	}
}

// Tests run after the agent, in a group of their own: they are not its behaviour. A helper that it left behind is,
// and reads them as soon as they are there.
func TestVerifyWindow(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	files := map[string]string{
		"task.toml":              "version = \"1.0\"\n",
		"instruction.md":         "wait\n",
		"environment/Dockerfile": "FROM scratch\nWORKDIR /w\n",
		"tests/test.sh":          "#!/bin/sh\nsleep 0.5\nmkdir -p /logs/verifier\necho 1 > /logs/verifier/reward.txt\ncat /etc/os-release\n",
		"tests/expected.txt":     "the answer\n",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	task, err := kind.LoadTask(dir)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kind.Load("harbor")
	if err != nil {
		t.Fatal(err)
	}
	spy := "(while [ ! -e /tests/expected.txt ]; do sleep 0.02; done; cat /tests/expected.txt; echo 9 > /logs/verifier/reward.txt) >/dev/null 2>&1 &"
	plan, err := kind.Resolve(k, task, kind.Overrides{Harness: "command", Command: []string{"sh", "-c", spy}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := harness.Get("command")
	if err != nil {
		t.Fatal(err)
	}
	id := store.NewID(time.Now())
	r := mustRun(t, Options{Plan: plan, Harness: h, ID: id, Dir: filepath.Join(t.TempDir(), id)})
	es := events(t, r)
	e := find(es, func(e *bodycam.Event) bool {
		return e.Type == bodycam.TypeOpen && e.Path == "/tests/expected.txt" && !e.Failed()
	})
	if e == nil || e.Window != bodycam.WindowVerify {
		t.Errorf("the helper's read of the tests is %+v", e)
	}
	if e := find(es, func(e *bodycam.Event) bool { return e.Path == "/etc/os-release" }); e != nil {
		t.Errorf("the tests' own read is recorded as the agent's: %+v", e)
	}
	if r.Info.Outcome.Status != bodycam.OutcomePass || *r.Info.Outcome.Reward != 1 {
		t.Errorf("the outcome is %+v", r.Info.Outcome)
	}
	var m map[string]json.RawMessage
	b, err := os.ReadFile(r.Path("manifest-after.json"))
	if err != nil || json.Unmarshal(b, &m) != nil || len(m) == 0 {
		t.Errorf("the manifest is %s, %v", b, err)
	}
}

func TestSplitPattern(t *testing.T) {
	for in, want := range map[string][2]string{
		"/logs/artifacts/**":      {"/logs/artifacts", "**"},
		"/root/.codex/s/**/r-*.j": {"/root/.codex/s", "**/r-*.j"},
		"/workspace/*":            {"/workspace", "*"},
		"/a/b.txt":                {"/a/b.txt", ""},
		"/*.txt":                  {"/", "*.txt"},
	} {
		if p, r := splitPattern(in); p != want[0] || r != want[1] {
			t.Errorf("%s splits into %q and %q", in, p, r)
		}
	}
}

// The ptrace sensor records the same run, and together with bpf the two agree.
func TestSensors(t *testing.T) {
	needRoot(t)
	for _, name := range []string{"ptrace", "cross-check"} {
		t.Run(name, func(t *testing.T) {
			script := "cat /etc/hostname; touch x; mv x y; python3 -c 'open(\"z\",\"w\").write(\"1\")'; sh -c 'exec ls / >/dev/null'"
			r := mustRun(t, options(t, []string{"sh", "-c", script}, func(p *kind.Plan) { p.Sensors = []string{name} }))
			if find(events(t, r), func(e *bodycam.Event) bool { return e.Type == bodycam.TypeRename && e.Path2 == "/workspace/y" }) == nil {
				t.Error("the rename isn't in the record")
			}
			fs, err := r.Findings()
			if err != nil || len(fs) > 0 {
				t.Errorf("the sensors disagree: %+v, %v", fs, err)
			}
		})
	}
}

// An ordinary user records through ptrace, in a box without cgroups.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("/tmp", "bodycam-user-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		bin := filepath.Join(dir, "test")
		b, err := os.ReadFile(exe)
		if err == nil {
			err = os.WriteFile(bin, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(bin, "-test.run=^TestOrdinaryUser$", "-test.v")
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("as an ordinary user: %v\n%s", err, out)
		}
		return
	}
	r := mustRun(t, options(t, []string{"sh", "-c", "cat /etc/hostname; echo hi > made"}, nil))
	if len(r.Info.Environment.Weaker) == 0 || len(r.Info.Sensors) == 0 || r.Info.Sensors[0].Sensor != "ptrace" {
		t.Errorf("the run says weaker %q, sensors %+v", r.Info.Environment.Weaker, r.Info.Sensors)
	}
	if find(events(t, r), func(e *bodycam.Event) bool {
		return e.Type == bodycam.TypeOpen && e.Path == "/workspace/made" && e.Access&bodycam.Write != 0
	}) == nil {
		t.Error("the write isn't in the record")
	}
}

// When the disk that the run is written to is full the agent is stopped, since it must not act unobserved, and what
// was recorded can be read.
func TestDiskFull(t *testing.T) {
	needRoot(t)
	disk := small(t, "3m")
	script := "i=0; while :; do i=$((i+1)); : > /workspace/a-file-with-quite-a-long-name-so-that-the-record-grows-quickly-$i; done"
	o := options(t, []string{"sh", "-c", script}, func(p *kind.Plan) {
		p.Agent.Timeout = kind.Duration(2 * time.Minute)
		p.Judge.Workspace = nil // no manifest of what it makes
	})
	o.Dir = filepath.Join(disk, "run")
	r, err := Run(t.Context(), o)
	if !errors.Is(err, ErrEnvironment) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the error is %v", err)
	}
	if r == nil || r.Info.Error == "" {
		t.Fatal("the run directory doesn't tell of the failure")
	}
	if r.Info.Complete.Complete {
		t.Error("a record that could not be written is called complete")
	}
	n := 0
	if err := r.Events(func(*bodycam.Event) error { n++; return nil }); err != nil || n < 100 {
		t.Errorf("read %d events, %v", n, err)
	}
	if a := phaseNamed(t, r, "agent"); a.Ended.Sub(a.Started) > time.Minute {
		t.Errorf("the agent went on for %v", a.Ended.Sub(a.Started))
	}
}

// User ids are those of the sandbox, and its root is nobody outside.
func TestUserIDs(t *testing.T) {
	needRoot(t)
	r := mustRun(t, options(t, []string{"id"}, nil))
	e := find(events(t, r), func(e *bodycam.Event) bool { return e.Type == bodycam.TypeExec && strings.HasSuffix(e.Exe, "/id") })
	if e == nil || e.UID != 0 || e.GID != 0 {
		t.Errorf("root's program is %+v", e)
	}
	out, err := os.ReadFile(r.Path("agent/stdout"))
	if err != nil || !strings.HasPrefix(string(out), "uid=0(root)") {
		t.Errorf("id says %q, %v", out, err)
	}
}

// One odd file must not cost the knowledge of all others, nor a workspace that is gone the run.
func TestHostileWorkspace(t *testing.T) {
	needRoot(t)
	deep := `p=/workspace; for i in $(seq 30); do n=$(printf 'd%.0s' $(seq 200)); mkdir $n && cd $n; done; echo x > f; cd /workspace; `
	for name, script := range map[string]string{
		"sparse": "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; truncate -s 1T z",
		"deep":   deep + "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
		"gone":   "cd /; rm -rf /workspace",
	} {
		t.Run(name, func(t *testing.T) {
			r := mustRun(t, options(t, []string{"bash", "-c", script}, nil))
			if name == "gone" {
				return
			}
			b, err := os.ReadFile(r.Path("workspace/after/workspace/.git/hooks/pre-commit"))
			if err != nil || string(b) != "evil\n" {
				t.Errorf("the hook that was planted is %q, %v", b, err)
			}
			if len(r.Info.Skipped) == 0 {
				t.Error("what was left out isn't told")
			}
		})
	}
}

// A mistyped network must not be an open one.
func TestUnknownNetwork(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"true"}, func(p *kind.Plan) { p.Network.Mode = "nnone" })
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrEnvironment) || !strings.Contains(err.Error(), "want none, record, allow or sink") {
		t.Errorf("the error is %v", err)
	}
}
