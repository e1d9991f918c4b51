package link

import (
	"math"
	"slices"
	"strings"

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

	depth   int    // generations above it when it was first seen
	kids    int    // that were then seen to come from it
	root    bool   // where the walk begins: the harness
	inScope bool   // the harness or a descendant
	last    uint64 // boot time of the last event in the subtree
	size    int    // processes in the subtree

	candidate    *candidate
	above        *candidate // the nearest ancestor's
	claim        *claim
	holds        *claim // its own, or that of the nearest ancestor
	claimedBelow bool   // a descendant has a claim
	own          bool   // of the harness itself
}

// execution is one program that a process became.
type execution struct {
	boot   uint64
	argv   []string
	script string // of a shell with -c
	shell  bool
	cut    bool // argv was longer than what was kept
	size   uint64
	hash   [32]byte // of the whole argv, where it was cut
}

// claim says which row a process belongs to.
type claim struct {
	row        int
	method     bodycam.LinkMethod
	confidence float64
}

// tree is the process tree, as events build it.
type tree struct {
	procs    map[bodycam.Proc]*proc
	order    []*proc // as they were first seen
	preorder []*proc // parents before children
	joined   bool    // some processes count as part of others
	argv     int     // bytes of arguments kept
}

// Bounds of what is kept of a run's processes. Beyond them a process counts as part of the one that made it, which has
// the same row, and arguments are cut. What the harness itself starts, and what those start, is kept apart further on: a
// later row's process must not be taken for the harness.
const (
	mostProcs = 1 << 17
	nearRoot  = 3        // generations
	mostKids  = 1 << 13  // of one process near the root
	mostExecs = 256      // of one process
	mostArgv  = 64 << 20 // bytes of arguments kept whole
	keptArgs  = 8        // of those that are cut
	keptArg   = 256      // bytes of each
)

func (t *tree) get(id bodycam.Proc, e *bodycam.Event) *proc {
	p := t.procs[id]
	if p != nil {
		return p
	}
	maker := e.Parent
	if id == e.Child && e.Type == bodycam.TypeFork {
		maker = e.Proc
	}
	up := t.procs[maker]
	if up != nil && len(t.order) >= mostProcs && (up.depth >= nearRoot || up.kids >= mostKids) {
		t.procs[id], t.joined = up, true
		return up
	}
	p = &proc{id: id, seq: e.Seq, from: e.Boot, to: e.Boot}
	if up != nil {
		up.kids++
		p.depth = up.depth + 1
	}
	t.procs[id] = p
	t.order = append(t.order, p)
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
			if c == p {
				return
			}
			c.parent = p.id // the fork itself outranks what later events say of a parent
		}
	case bodycam.TypeExec:
		if e.Failed() {
			return
		}
		if p.id != e.Proc {
			return // what it becomes says nothing of the process that it is counted with
		}
		x := execution{boot: e.Boot, argv: t.keepArgv(e.Argv), cut: e.Marks&bodycam.MarkArgvCut != 0, size: e.ArgvLen, hash: e.ArgvHash}
		x.script, x.shell = bodycam.ShellScript(x.argv)
		if len(p.execs) >= mostExecs {
			p.execs = p.execs[:mostExecs-1]
		}
		p.execs = append(p.execs, x)
		p.exe, p.argv = e.Exe, x.argv
	}
}

func (t *tree) keepArgv(argv []string) []string {
	n := 0
	for _, a := range argv {
		n += len(a) + 16
	}
	if t.argv+n <= mostArgv {
		t.argv += n
		return slices.Clone(argv)
	}
	out := make([]string, 0, keptArgs)
	for _, a := range argv[:min(len(argv), keptArgs)] {
		out = append(out, strings.Clone(a[:min(len(a), keptArg)]))
	}
	return out
}

// link ties children to parents and returns the roots: the harness, or where it isn't known (or was never seen) the
// processes without a known parent. Nothing here may take more than linear time: an agent makes the tree as deep and
// as wide as it wants.
func (t *tree) link(harness bodycam.Proc) []*proc {
	for _, p := range t.order {
		if up := t.procs[p.parent]; up != nil && up != p {
			p.up = up
		}
	}
	t.breakLoops()
	for _, p := range t.order {
		if p.up != nil {
			p.up.children = append(p.up.children, p)
		}
	}
	t.preorder = make([]*proc, 0, len(t.order))
	for _, p := range t.order {
		if p.up == nil {
			p.each(func(q *proc) { t.preorder = append(t.preorder, q) })
		}
	}
	for _, p := range slices.Backward(t.preorder) { // children before their parents
		p.last, p.size = max(p.last, p.to), p.size+1
		if p.up != nil {
			p.up.last, p.up.size = max(p.up.last, p.last), p.up.size+p.size
		}
	}
	var roots []*proc
	if p := t.procs[harness]; p != nil && harness.PID != 0 {
		roots = []*proc{p}
	} else {
		for _, p := range t.order {
			if p.up == nil {
				roots = append(roots, p)
			}
		}
	}
	for _, r := range roots {
		r.root = true
		r.each(func(q *proc) { q.inScope = true })
	}
	return roots
}

// breakLoops unties a process from its parent where events that contradict each other make a loop.
func (t *tree) breakLoops() {
	state := make(map[*proc]int, len(t.order)) // number of the walk that first came by
	for i, p := range t.order {
		for q := p; q != nil; q = q.up {
			if n, seen := state[q]; seen {
				if n == i {
					q.up = nil
				}
				break
			}
			state[q] = i
		}
	}
}

// each calls f for p and its descendants, parents first, without recursion.
func (p *proc) each(f func(*proc)) {
	stack := []*proc{p}
	for len(stack) > 0 {
		q := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		f(q)
		stack = append(stack, q.children...)
	}
}

// spread gives every process the claim that holds for it: its own, or that of the nearest ancestor.
func (t *tree) spread() {
	for _, p := range t.preorder {
		p.holds = p.claim
		if p.claim == nil && p.up != nil {
			p.holds = p.up.holds
		}
	}
}

// take claims a process for a row.
func (p *proc) take(c claim) {
	p.claim = &c
	for a := p.up; a != nil && !a.claimedBelow; a = a.up {
		a.claimedBelow = true
	}
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
