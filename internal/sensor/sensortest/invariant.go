package sensortest

import (
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

func bootNow() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano())
}

// check asserts what must hold of every record. A case that is declared blind may be incomplete, nothing else.
func (o *Outcome) check(t testing.TB, before uint64, blind string) {
	t.Helper()
	h := o.Health
	if h.Failed != "" {
		t.Errorf("the sensor failed: %s", h.Failed)
	}
	if !h.Total.Balanced() || h.Total.Lost != 0 || h.Gaps != 0 {
		t.Errorf("counters %+v, gaps %d: want them balanced, nothing lost", h.Total, h.Gaps)
	}
	var sum bodycam.Counters
	for _, c := range h.Sources {
		if !c.Balanced() {
			t.Errorf("a source's counters do not balance: %+v", c)
		}
		sum.Add(c)
	}
	if len(h.Sources) > 0 && sum != h.Total {
		t.Errorf("the sources' counters sum to %+v, the total is %+v", sum, h.Total)
	}
	if c := bodycam.Assess([]bodycam.Health{h}); c.Complete != (blind == "") {
		t.Errorf("complete is %v (%q), declared blind %q", c.Complete, c.Reasons, blind)
	}
	var all, plain, folded uint64
	for i := range o.Events {
		e := &o.Events[i]
		all++
		if e.Type != bodycam.TypeMark && e.Marks&bodycam.MarkSynthesised == 0 {
			plain++
		}
		folded += e.N() - 1
	}
	if h.Total.Emitted < plain || h.Total.Emitted > all || h.Total.Folded != folded {
		t.Errorf("%d events (%d without marks) with %d folded were delivered, the counters say %+v", all, plain, folded, h.Total)
	}
	o.checkEvents(t, before)
	o.checkProcesses(t)
}

func (o *Outcome) checkEvents(t testing.TB, before uint64) {
	t.Helper()
	now, grain := bootNow(), uint64(o.suite.traits.StartGrain)
	bad := 0
	fail := func(e *bodycam.Event, why string) {
		if bad++; bad <= 5 {
			t.Errorf("%s: %s", why, line(e))
		}
	}
	for i := range o.Events {
		e := &o.Events[i]
		if e.Type == bodycam.TypeMark {
			continue
		}
		if e.Type == bodycam.TypeUnknown || e.Sensor == "" || e.Proc.PID <= 0 || e.TID <= 0 {
			fail(e, "an event without type, sensor, pid or tid")
		}
		if e.Boot < before || e.Boot > now || e.Time > time.Now().UnixNano() || e.Count > 1 && e.LastBoot < e.Boot {
			fail(e, "times are outside the run or backwards")
		}
		// The starter of the workload may appear as the parent in the first fork.
		if int(e.Child.PID) != o.PID && (e.Proc.Start+grain < before || e.Proc.Start > e.Boot) {
			fail(e, "a process's start lies outside the run or after its act")
		}
		if e.Type == bodycam.TypeExec && e.Errno == 0 && (e.Exe == "" || e.CWD == "") {
			fail(e, "an exec without program or working directory")
		}
	}
}

// checkProcesses asserts that the record's processes form one tree: a fork before the first act, an exit after the
// last, one of each, and the same parent everywhere.
func (o *Outcome) checkProcesses(t testing.TB) {
	t.Helper()
	type life struct {
		parent      bodycam.Proc
		born, ended uint64
		forks       int
		exits       int
	}
	procs := make(map[bodycam.Proc]*life)
	get := func(p bodycam.Proc) *life {
		if procs[p] == nil {
			procs[p] = &life{}
		}
		return procs[p]
	}
	for i := range o.Events {
		switch e := &o.Events[i]; e.Type {
		case bodycam.TypeFork:
			if e.Errno == 0 {
				l := get(e.Child)
				l.parent, l.born = e.Proc, e.Boot
				l.forks++
			}
		case bodycam.TypeExit:
			l := get(e.Proc)
			l.ended = e.Boot
			l.exits++
		}
	}
	var root bodycam.Proc
	for i := range o.Events {
		if e := &o.Events[i]; int(e.Proc.PID) == o.PID && e.Type != bodycam.TypeMark {
			root = e.Proc
			break
		}
	}
	if root.PID == 0 {
		t.Errorf("no event of the workload's first process %d", o.PID)
	}
	bad := 0
	for i := range o.Events {
		e := &o.Events[i]
		if e.Type == bodycam.TypeMark || int(e.Child.PID) == o.PID && e.Type == bodycam.TypeFork {
			continue
		}
		l := procs[e.Proc]
		wrong := ""
		switch {
		case l == nil:
			wrong = "no fork and no exit of this process"
		case e.Proc != root && l.forks == 0:
			wrong = "no fork of this process"
		case l.forks > 0 && e.Boot < l.born:
			wrong = "an act before the process's fork"
		case l.exits == 1 && e.Boot > l.ended && !comesLater(e):
			wrong = "an act after the process's exit"
		case e.Parent.PID != 0 && l.forks > 0 && e.Parent != l.parent:
			wrong = "another parent than at fork"
		case e.Parent.PID == 0 && l.forks > 0 && e.Type == bodycam.TypeExec:
			wrong = "an exec without its parent"
		}
		if wrong != "" {
			if bad++; bad <= 5 {
				t.Errorf("%s: %s", wrong, line(e))
			}
		}
	}
	for p, l := range procs {
		if l.exits != 1 || l.forks > 1 {
			if bad++; bad <= 5 {
				t.Errorf("process %+v has %d forks and %d exits", p, l.forks, l.exits)
			}
		}
	}
}

// comesLater tells what the world does about a process that has ended: the kernel closes what it left open, and TCP lingers; and an
// answer to what it asked arrives when it arrives, at a socket that is there until it is closed.
func comesLater(e *bodycam.Event) bool {
	return e.Type == bodycam.TypeFlow || e.Type == bodycam.TypeDNS && strings.HasPrefix(e.Detail, "answer ")
}
