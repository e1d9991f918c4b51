package session

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// boxed runs the sensors' shared cases as agents of whole runs: in a box, recorded, stored, and read back.
type boxed struct {
	sensor  string // bpf or ptrace
	seccomp string
	blind   map[string]string
	refused map[string]bodycam.Type
}

func (b boxed) Traits() sensortest.Traits {
	if b.sensor == "ptrace" {
		return sensortest.Traits{OwnPIDs: true, StartGrain: 10 * time.Millisecond, Blind: b.blind, Refused: b.refused}
	}
	return sensortest.Traits{Bytes: true, Walks: true, OwnPIDs: true, Blind: b.blind, Refused: b.refused}
}

// Start runs a workload as the agent of a run of its own. The record that it returns is the workload's part of the run's.
func (b boxed) Start(t testing.TB, w sensortest.Workload) sensortest.Record {
	o := options(t.(*testing.T), w.Argv, func(p *kind.Plan) {
		p.Sensors = []string{b.sensor}
		p.Seccomp, p.Workdir, p.Network = b.seccomp, w.Dir, kind.Network{Mode: "none"}
		p.Judge.Workspace = nil
		for _, v := range w.Env {
			name, value, _ := strings.Cut(v, "=")
			p.Agent.Env = append(p.Agent.Env, kind.EnvVar{Name: name, Value: value})
		}
		slices.SortFunc(p.Agent.Env, func(a, b kind.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		bin := filepath.Join(filepath.Dir(w.Dir), "bin")
		p.Binds = []kind.Bind{{From: kind.HostPath(bin), To: bin}, {From: kind.HostPath(w.Dir), To: w.Dir, Writable: true}}
	})
	// What is shown writable belongs to an ordinary user outside, whom the box shows as its agent.
	if err := filepath.WalkDir(w.Dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, 1000, 1000)
	}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var all []bodycam.Event
	if err := r.Raw(func(e *bodycam.Event) error { all = append(all, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	rec := sensortest.Record{Events: all, Status: -1}
	if a := phaseNamed(t.(*testing.T), r, "agent"); a.Exit != nil {
		rec.Status = *a.Exit
	}
	if rec.Stdout, err = os.ReadFile(r.Path("agent/stdout")); err != nil {
		t.Fatal(err)
	}
	h := findHealth(t, r.Info.Sensors, b.sensor)
	if !h.Total.Balanced() || h.Total.Lost != 0 || h.Gaps != 0 {
		t.Errorf("the run's counters are %+v, gaps %d", h.Total, h.Gaps)
	}
	incomplete := slices.ContainsFunc(h.Blind, func(b bodycam.Blind) bool { return !b.Inherent })
	if r.Info.Complete.Complete == incomplete {
		t.Errorf("the sensor names the holes %+v, the run says %+v", h.Blind, r.Info.Complete)
	}
	return cut(t, rec, h, w.Argv, b.sensor)
}

func findHealth(t testing.TB, hs []bodycam.Health, sensor string) bodycam.Health {
	t.Helper()
	for _, h := range hs {
		if h.Sensor == sensor {
			return h
		}
	}
	t.Fatalf("the run has no sensor %s: %+v", sensor, hs)
	return bodycam.Health{}
}

// cut leaves of a run's record what the workload did: the process that runs argv, and all that came of it. The counters are
// made to match, since those of the whole were checked.
func cut(t testing.TB, rec sensortest.Record, h bodycam.Health, argv []string, sensor string) sensortest.Record {
	t.Helper()
	var root bodycam.Proc
	for i := range rec.Events {
		if e := &rec.Events[i]; e.Type == bodycam.TypeExec && !e.Failed() && e.Argv != nil && slices.Equal(e.Argv, argv) {
			root = e.Proc
			break
		}
	}
	if root.PID == 0 {
		t.Fatalf("no exec of %q is in the run's %d events", argv, len(rec.Events))
	}
	began := false
	family := map[bodycam.Proc]bool{root: true}
	h.Total, h.Sources = bodycam.Counters{}, nil
	var kept []bodycam.Event
	for _, e := range rec.Events {
		if e.Type == bodycam.TypeFork && family[e.Proc] {
			family[e.Child] = true
		}
		began = began || e.Type == bodycam.TypeExec && e.Proc == root && slices.Equal(e.Argv, argv)
		if !family[e.Proc] || !began || e.Sensor != sensor {
			continue
		}
		h.Total.Add(bodycam.Counters{Seen: e.N(), Emitted: 1, Folded: e.N() - 1})
		kept = append(kept, e)
	}
	rec.Events, rec.Health, rec.PID = kept, h, int(root.PID)
	return rec
}

// The cases that fooled other tools, at least one of each group, inside the sandbox: one true record each, or a run
// that says that it is incomplete.
func TestTrickyCases(t *testing.T) {
	needRoot(t)
	t.Run("strict", func(t *testing.T) {
		sensortest.RunNamed(t, boxed{sensor: "bpf", seccomp: "strict", refused: map[string]bodycam.Type{"01-uring/open": bodycam.TypeUring, "01-uring/connect": bodycam.TypeUring}},
			"01-uring/open", "01-uring/connect",
			"02-dirfd/openat", "02-dirfd/up", "02-dirfd/moved", "02-dirfd/chdir",
			"03-alias/proc-self-root", "03-alias/dotdot-after-symlink", "03-alias/symlinks", "03-alias/proc-self-fd", "03-alias/names-through-links",
			"04-exec/symlink", "04-exec/argv0", "04-exec/bash-exec-a", "04-exec/execveat",
			"05-nameless/memfd-exec", "05-nameless/deleted-exec", "05-nameless/deleted-file", "05-nameless/memfd",
			"06-scripts/shebang", "06-scripts/python-file", "06-scripts/sh-dot", "06-scripts/python-stdin",
			"07-arguments/empty-and-odd", "07-arguments/none", "07-arguments/100000",
			"08-names/odd", "08-names/deeper-than-a-path",
			"09-many/fork-tree-200",
			"10-identity/one-process-many-programs", "10-identity/vfork", "10-identity/comm",
			"10-identity/same-files-before-and-after", "10-identity/same-files-exec-from-thread", "10-identity/connects-before-exec", "10-identity/interrupted-before-exec",
			"11-race/open-by-thread", "11-race/rename-by-thread", "11-race/ways-by-thread", "11-race/names-in-memory",
			"12-writes/rename-over-bashrc", "12-writes/exchange", "12-writes/copy-file-range", "12-writes/truncate", "12-writes/truncate-after-open", "12-writes/map-shared-store",
			"13-net/server", "13-net/udp-sendmmsg", "13-net/passed-descriptor", "13-net/tcp-fast-open",
			"15-unix/path",
			"16-outcomes/errno", "16-outcomes/exec", "16-outcomes/refused",
			"17-intrusion/preload",
			"18-hiding/dumpable", "18-floods/8-openers-one-file",
		)
	})
	t.Run("strict, traced", func(t *testing.T) {
		sensortest.RunNamed(t, boxed{sensor: "ptrace", seccomp: "strict", refused: map[string]bodycam.Type{"01-uring/open": bodycam.TypeUring, "01-uring/connect": bodycam.TypeUring}},
			"01-uring/open", "01-uring/connect",
			"02-dirfd/openat", "03-alias/proc-self-root", "04-exec/execveat", "06-scripts/shebang", "08-names/odd", "09-many/fork-tree-200",
			"10-identity/vfork", "10-identity/same-files-before-and-after", "10-identity/same-files-exec-from-thread", "10-identity/interrupted-before-exec",
			"11-race/open-by-thread", "12-writes/exchange", "12-writes/truncate-after-open", "13-net/server", "15-unix/path",
			"16-outcomes/errno", "16-outcomes/exec", "16-outcomes/refused", "18-hiding/seccomp-listener", "20-kin/ipc",
		)
	})
	t.Run("observe", func(t *testing.T) {
		sensortest.RunNamed(t, boxed{sensor: "bpf", seccomp: "observe", blind: map[string]string{"01-uring/open": "io_uring", "01-uring/unlink": "io_uring"}},
			"01-uring/open", "01-uring/unlink",
			"17-intrusion/ptrace", "17-intrusion/traceme", "17-intrusion/setuid", "17-intrusion/opens-before-setuid", "18-hiding/seccomp-listener", "20-kin/pidfd-getfd",
			"19-mounts/bind", "19-mounts/tmpfs", "19-mounts/chroot", "19-mounts/names", "19-mounts/detached",
		)
	})
}

// Names (group 14): two names behind one stand-in. Each is asked for once, and each connection has the name that
// was meant, though the program only shows an address to the kernel.
func TestTrickyNames(t *testing.T) {
	needRoot(t)
	script := `import socket
for n in ("one.example.test", "two.example.test"):
    try: socket.create_connection((n, 80), 5).close()
    except OSError: pass
try: socket.create_connection(("203.0.113.9", 81), 5).close()
except OSError: pass`
	r := mustRun(t, options(t, []string{"/usr/bin/python3", "-c", script}, func(p *kind.Plan) { p.Network = kind.Network{Mode: "sink"} }))
	es := events(t, r)
	for _, name := range []string{"one.example.test", "two.example.test"} {
		asked, connected := 0, 0
		for _, e := range es {
			switch {
			case e.Host != name:
			case e.Type == bodycam.TypeDNS && e.Sensor == "names" && strings.HasPrefix(e.Detail, "A "): // the proxy, which answers itself
				asked++
			case e.Type == bodycam.TypeConnect && e.Proto == bodycam.ProtoTCP:
				connected++
				if e.HostSource != bodycam.HostDNS || e.Remote.Port() != 80 {
					t.Errorf("%s: connect to %v, known by %v", name, e.Remote, e.HostSource)
				}
			}
		}
		if asked != 1 || connected != 1 {
			t.Errorf("%s was asked for %d times and connected to %d times, want once", name, asked, connected)
		}
	}
	e := find(es, func(e *bodycam.Event) bool { return e.Type == bodycam.TypeConnect && e.Remote.Port() == 81 })
	if e == nil || e.Remote.Addr().String() != "203.0.113.9" || e.HostSource != bodycam.HostLiteral {
		t.Errorf("the connection to an address is %+v", e)
	}
}
