package sensortest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// blindfold runs workloads without any sensor.
type blindfold struct{}

func (blindfold) Traits() Traits { return Traits{} }

func (blindfold) Start(t testing.TB, w Workload) Record {
	cmd := exec.Command(w.Argv[0], w.Argv[1:]...)
	var out bytes.Buffer
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stdout = w.Argv, w.Env, w.Dir, &out
	_ = cmd.Run()
	return Record{Stdout: out.Bytes(), PID: cmd.Process.Pid, Status: cmd.ProcessState.ExitCode()}
}

// TestTriggers runs each trigger unobserved: it must do its act on this machine, so that a failure under a sensor
// is the sensor's.
func TestTriggers(t *testing.T) {
	s := newSuite(t, blindfold{})
	for _, c := range Cases() {
		if strings.HasPrefix(c.Name, "18-floods") || strings.HasPrefix(c.Name, "09-many") {
			continue
		}
		c.Check = func(*testing.T, *Outcome) {}
		t.Run(c.Name, func(t *testing.T) {
			o := s.play(t, c)
			if why := o.fact("broken"); why != "" || o.Status != 0 {
				t.Errorf("status %d, broken %q, stdout %q", o.Status, why, o.Stdout)
			}
		})
	}
}

// reports catches what a check says.
type reports struct {
	testing.TB
	n int
}

func (r *reports) Helper()               {}
func (r *reports) Errorf(string, ...any) { r.n++ }

// TestChecksBite holds the suite's own checks against records that are wrong in one way each.
func TestChecksBite(t *testing.T) {
	s := &Suite{Dir: filepath.Dir(t.TempDir())}
	root, kid := bodycam.Proc{PID: 10, Start: 1000}, bodycam.Proc{PID: 11, Start: 2000}
	good := func() (*Outcome, []bodycam.Event) {
		ev := []bodycam.Event{
			{Type: bodycam.TypeExec, Sensor: "x", Proc: root, TID: 10, Boot: 1500, Exe: "/bin/a", CWD: "/", Argv: []string{"a"}},
			{Type: bodycam.TypeFork, Sensor: "x", Proc: root, TID: 10, Boot: 2000, Child: kid},
			{Type: bodycam.TypeOpen, Sensor: "x", Proc: kid, Parent: root, TID: 11, Boot: 2500, Path: "/f", Count: 3, LastBoot: 2600},
			{Type: bodycam.TypeExit, Sensor: "x", Proc: kid, Parent: root, TID: 11, Boot: 2700},
			{Type: bodycam.TypeExit, Sensor: "x", Proc: root, TID: 10, Boot: 2800},
		}
		h := bodycam.Health{Sensor: "x", Total: bodycam.Counters{Seen: 7, Emitted: 5, Folded: 2}}
		return &Outcome{Record: Record{Events: ev, Health: h, PID: 10}, suite: s}, ev
	}
	for _, c := range []struct {
		name  string
		spoil func(o *Outcome, e []bodycam.Event)
		bad   bool
	}{
		{"nothing", func(*Outcome, []bodycam.Event) {}, false},
		{"lost", func(o *Outcome, _ []bodycam.Event) { o.Health.Total.Lost++; o.Health.Total.Seen++ }, true},
		{"unbalanced", func(o *Outcome, _ []bodycam.Event) { o.Health.Total.Seen++ }, true},
		{"more emitted than delivered", func(o *Outcome, _ []bodycam.Event) { o.Health.Total.Emitted++; o.Health.Total.Seen++ }, true},
		{"a hidden hole", func(o *Outcome, _ []bodycam.Event) {
			o.Health.Blind = []bodycam.Blind{{What: "w", Why: "y"}}
		}, true},
		{"no fork", func(o *Outcome, e []bodycam.Event) { e[1].Errno = 1 }, true},
		{"no exit", func(o *Outcome, e []bodycam.Event) { e[3].Type = bodycam.TypeChdir }, true},
		{"two exits", func(o *Outcome, e []bodycam.Event) { e[2].Type = bodycam.TypeExit }, true},
		{"act after exit", func(o *Outcome, e []bodycam.Event) { e[2].Boot, e[2].LastBoot = 2750, 2760 }, true},
		{"act before fork", func(o *Outcome, e []bodycam.Event) { e[2].Boot = 1999 }, true},
		{"wrong parent", func(o *Outcome, e []bodycam.Event) { e[2].Parent = kid }, true},
		{"same identity", func(o *Outcome, e []bodycam.Event) { e[1].Child = root }, true},
		{"no program", func(o *Outcome, e []bodycam.Event) { e[0].Exe = "" }, true},
	} {
		o, e := good()
		c.spoil(o, e)
		r := &reports{TB: t}
		o.check(r, 900, "")
		if (r.n > 0) != c.bad {
			t.Errorf("%s: %d complaints", c.name, r.n)
		}
	}
	o, _ := good()
	r := &reports{TB: t}
	o.one(r, typ(bodycam.TypeOpen), path("/f"))
	o.one(r, typ(bodycam.TypeOpen), path("/g"))
	o.count(r, 2, typ(bodycam.TypeOpen))
	o.count(r, 3, typ(bodycam.TypeOpen))
	if r.n != 3 {
		t.Errorf("%d complaints of one and count, want 3", r.n)
	}
}
