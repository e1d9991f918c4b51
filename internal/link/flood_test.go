package link

import (
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// A row that starts half a million processes doesn't take the rows after it along, and what is kept of it is bounded.
func TestFloodOfProcesses(t *testing.T) {
	rows := []bodycam.Row{row(1000, 2000, "make flood"), row(3000, 3100, "cat /root/.ssh/id_rsa")}
	j := New(rows)
	seq := uint64(0)
	add := func(ms int, e bodycam.Event) {
		seq++
		e.Seq, e.Boot, e.Time = seq, bootAt(ms), wall.UnixNano()+int64(ms)*1e6
		j.Observe(&e)
	}
	add(0, bodycam.Event{Type: bodycam.TypeExec, Proc: harness, Exe: "/usr/bin/agent", Argv: []string{"agent"}})
	add(1010, bodycam.Event{Type: bodycam.TypeFork, Proc: harness, Child: id(200)})
	add(1011, bodycam.Event{Type: bodycam.TypeExec, Proc: id(200), Exe: "/bin/sh", Argv: []string{"sh", "-c", "make flood"}})
	const n = 500_000
	for i := int32(0); i < n; i++ {
		child := bodycam.Proc{PID: 1000 + i, Start: uint64(i) + 5}
		add(1100, bodycam.Event{Type: bodycam.TypeFork, Proc: id(200), Child: child})
		add(1100, bodycam.Event{Type: bodycam.TypeExec, Proc: child, Parent: id(200), Exe: "/usr/bin/true", Argv: []string{"true", "of", "many"}})
		add(1100, bodycam.Event{Type: bodycam.TypeExit, Proc: child, Parent: id(200)})
	}
	add(3010, bodycam.Event{Type: bodycam.TypeFork, Proc: harness, Child: id(300)})
	add(3011, bodycam.Event{Type: bodycam.TypeExec, Proc: id(300), Exe: "/bin/sh", Argv: []string{"sh", "-c", "cat /root/.ssh/id_rsa"}})
	if len(j.tree.order) > mostProcs+mostKids {
		t.Errorf("%d processes are kept", len(j.tree.order))
	}
	x := j.Result(harness).Index()
	for _, c := range []struct {
		p   bodycam.Proc
		row int
	}{{id(200), 0}, {bodycam.Proc{PID: 1000, Start: 5}, 0}, {bodycam.Proc{PID: 1000 + n - 1, Start: n + 4}, 0}, {id(300), 1}, {harness, HarnessRow}} {
		if row, _, _, ok := x.RowOf(c.p, bootAt(1100)); !ok || row != c.row {
			t.Errorf("process %v belongs to row %d (%v), want %d", c.p, row, ok, c.row)
		}
	}
}
