package link

import (
	"math"
	"slices"

	"github.com/bodycam-dev/bodycam"
)

// proc is one process with what it ran.
type proc struct {
	id       bodycam.Proc
	parent   bodycam.Proc
	up       *proc
	children []*proc
	seq      uint64 // of the first event that shows it
	from, to uint64 // boot times of its first and last event
	exe      string // of the last exec
	argv     []string
	execs    []execution

	candidate *candidate
	nested    bool // it runs below a candidate
	claim     *claim
	own       bool // of the harness itself

	claimedBelow bool // a descendant has a claim
}

// execution is one program that a process became.
type execution struct {
	boot   uint64
	argv   []string
	script string // of a shell with -c
	shell  bool
}

// claim says which row a process belongs to.
type claim struct {
	row        int
	method     bodycam.LinkMethod
	confidence float64
}

// tree is the process tree, as events build it.
type tree struct {
	procs map[bodycam.Proc]*proc
	order []*proc
}

func (t *tree) get(id bodycam.Proc, e *bodycam.Event) *proc {
	p := t.procs[id]
	if p == nil {
		p = &proc{id: id, seq: e.Seq, from: e.Boot, to: e.Boot}
		t.procs[id] = p
		t.order = append(t.order, p)
	}
	return p
}

func (t *tree) observe(e *bodycam.Event) {
	p := t.get(e.Proc, e)
	p.to = max(p.to, e.Boot, e.LastBoot)
	if p.parent.PID == 0 && e.Parent.PID != 0 {
		p.parent = e.Parent
	}
	switch e.Type {
	case bodycam.TypeFork:
		if e.Child.PID != 0 && e.Child != e.Proc {
			c := t.get(e.Child, e)
			c.parent = e.Proc // the fork itself outranks what later events say of a parent
		}
	case bodycam.TypeExec:
		if e.Failed() {
			return
		}
		x := execution{boot: e.Boot, argv: slices.Clone(e.Argv)}
		x.script, x.shell = bodycam.ShellScript(x.argv)
		p.execs = append(p.execs, x)
		p.exe, p.argv = e.Exe, x.argv
	}
}

// link ties children to parents and returns the roots: the harness, or where it isn't known (or was never seen) the
// processes without a known parent.
func (t *tree) link(harness bodycam.Proc) []*proc {
	for _, p := range t.order {
		up := t.procs[p.parent]
		if up == nil || up == p || up.below(p) {
			continue
		}
		p.up = up
		up.children = append(up.children, p)
	}
	if p := t.procs[harness]; p != nil && harness.PID != 0 {
		return []*proc{p}
	}
	var roots []*proc
	for _, p := range t.order {
		if p.up == nil {
			roots = append(roots, p)
		}
	}
	return roots
}

// below tells whether p is a, or a descendant of a. It is asked before a tie is made, so that the tree has no loop
// even where events contradict each other.
func (p *proc) below(a *proc) bool {
	for ; p != nil; p = p.up {
		if p == a {
			return true
		}
	}
	return false
}

// each calls f for p and its descendants, without recursion: trees are as deep as an agent wants.
func (p *proc) each(f func(*proc)) {
	stack := []*proc{p}
	for len(stack) > 0 {
		q := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		f(q)
		stack = append(stack, q.children...)
	}
}

func (p *proc) size() (n int) {
	p.each(func(*proc) { n++ })
	return n
}

func (p *proc) lastBelow() (to uint64) {
	p.each(func(q *proc) { to = max(to, q.to) })
	return to
}

// take claims a process for a row.
func (p *proc) take(c claim) {
	p.claim = &c
	for a := p.up; a != nil && !a.claimedBelow; a = a.up {
		a.claimedBelow = true
	}
}

// claimed returns the claim that holds for a process: its own, or that of the nearest ancestor.
func (p *proc) claimed() *claim {
	for ; p != nil; p = p.up {
		if p.claim != nil {
			return p.claim
		}
	}
	return nil
}

// clock turns the recorder's wall clock into boot time, by what events say of both. The wall clock may be set during
// a run, back or forth: every change of the difference is kept, with the times between which it held.
type clock struct {
	steps []step
}

type step struct {
	from, to int64 // wall clock
	offset   int64 // boot minus wall
}

// jitter is how far two readings of the clocks may lie apart without one having been set.
const jitter = 5e6

func (c *clock) observe(e *bodycam.Event) {
	if e.Time == 0 || e.Boot == 0 {
		return
	}
	off := int64(e.Boot) - e.Time
	if n := len(c.steps); n > 0 {
		last := &c.steps[n-1]
		if d := off - last.offset; d < jitter && d > -jitter {
			last.to = max(last.to, e.Time)
			return
		}
		if n >= 1000 {
			return // a clock that never holds still says nothing
		}
	}
	c.steps = append(c.steps, step{from: e.Time, to: e.Time, offset: off})
}

// boot converts; ok is false where no event has told both clocks. A moment that several steps know goes by the last.
func (c *clock) boot(wall int64) (boot uint64, ok bool) {
	if len(c.steps) == 0 {
		return 0, false
	}
	best, away := 0, int64(math.MaxInt64)
	for i, s := range c.steps {
		d := max(s.from-wall, wall-s.to, 0)
		if d <= away {
			best, away = i, d
		}
	}
	return uint64(max(0, wall+c.steps[best].offset)), true
}

// window is when a row's events may lie, in boot time.
type window struct {
	timed          bool
	arrived, ended uint64 // as the recorder saw the lines
	from, to       uint64 // with slack
}

// The slack around a row. A harness may print a call's line some time after it has started the process (lines go
// through a pipe and a scheduler), and its result some time after the process has ended; it may also print the call
// well before the process starts, but then the result's line bounds the window.
const (
	slackBefore = 2e9
	slackAfter  = 2e9
)

// windows gives every row its window. Rows of a file that was read afterwards all arrived at once: no times then.
func (j *Joiner) windows() []window {
	out := make([]window, len(j.rows))
	for i := range j.rows {
		r := &j.rows[i]
		if r.Source == "session file" || r.Arrived.IsZero() {
			continue
		}
		arrived, ok := j.clock.boot(r.Arrived.UnixNano())
		if !ok {
			continue
		}
		w := window{timed: true, arrived: arrived, ended: ^uint64(0), to: ^uint64(0)}
		w.from = arrived - min(arrived, slackBefore)
		if !r.Ended.IsZero() {
			w.ended, _ = j.clock.boot(r.Ended.UnixNano())
			w.to = w.ended + slackAfter
		}
		out[i] = w
	}
	return out
}

func (w window) holds(boot uint64) bool { return w.timed && boot >= w.from && boot <= w.to }
