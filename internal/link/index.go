package link

import (
	"slices"
	"sort"

	"github.com/bodycam-dev/bodycam"
)

// Index finds the row of any event of the run. Making it costs little; a look-up is one map access. It is safe for
// concurrent readers.
type Index struct {
	procs   map[bodycam.Proc]answer
	events  map[uint64]answer
	windows []rowWindow // of rows that no process was found for: what a long-lived shell does itself is theirs
	shells  map[bodycam.Proc]bool
}

type answer struct {
	row        int
	method     bodycam.LinkMethod
	confidence float64
}

type rowWindow struct {
	row      int
	from, to uint64
	before   uint64 // latest end of the windows that begin earlier
}

// shellAlone is the confidence of what a long-lived shell did itself while exactly one row's call was running.
const shellAlone = 0.3

// Index returns the index of the joined run.
func (r *Result) Index() *Index { return r.index }

func newIndex(j *Joiner, links []bodycam.Link, windows []window) *Index {
	x := &Index{procs: make(map[bodycam.Proc]answer, len(j.tree.order)), events: map[uint64]answer{}, shells: map[bodycam.Proc]bool{}}
	has := map[int]bool{}
	for _, l := range links {
		if l.Method == bodycam.LinkArgv || l.Method == bodycam.LinkPath {
			has[l.Row] = true
		}
		for _, seq := range l.Events {
			x.events[seq] = answer{l.Row, l.Method, l.Confidence}
		}
	}
	for _, g := range j.groups {
		for _, r := range g.rows {
			if w := windows[r]; w.timed && !has[r] && w.ended != ^uint64(0) {
				x.windows = append(x.windows, rowWindow{row: r, from: w.arrived, to: w.ended})
			}
		}
	}
	slices.SortStableFunc(x.windows, func(a, b rowWindow) int { return compare(a.from, b.from) })
	for i := 1; i < len(x.windows); i++ {
		x.windows[i].before = max(x.windows[i-1].before, x.windows[i-1].to)
	}
	for _, p := range j.tree.order {
		if p.up == nil {
			x.fill(p)
		}
	}
	if j.tree.joined {
		for id, p := range j.tree.procs {
			if a, ok := x.procs[p.id]; ok && id != p.id {
				x.procs[id] = a
			}
		}
	}
	return x
}

// fill gives every process of a tree its answer: its own claim, or its parent's.
func (x *Index) fill(root *proc) {
	type visit struct {
		p     *proc
		above *answer
	}
	stack := []visit{{root, nil}}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		a := v.above
		switch {
		case v.p.claim != nil:
			a = &answer{v.p.claim.row, v.p.claim.method, v.p.claim.confidence}
		case v.p.own:
			x.procs[v.p.id] = answer{HarnessRow, bodycam.LinkHarness, 1}
		}
		if a != nil {
			x.procs[v.p.id] = *a
		} else if bodycam.IsShell(v.p.exe) && len(v.p.execs) > 0 && !v.p.execs[len(v.p.execs)-1].shell {
			x.shells[v.p.id] = true
		}
		for _, c := range v.p.children {
			stack = append(stack, visit{c, a})
		}
	}
}

// RowOf returns the row that a process belonged to at a moment of boot time. The row is HarnessRow for the harness
// itself. ok is false where no row explains the process.
func (x *Index) RowOf(p bodycam.Proc, boot uint64) (row int, method bodycam.LinkMethod, confidence float64, ok bool) {
	a, found := x.procs[p]
	if found && a.row != HarnessRow || !x.shells[p] {
		return a.row, a.method, a.confidence, found
	}
	if in := x.during(boot); in >= 0 {
		return in, bodycam.LinkTime, shellAlone, true
	}
	return a.row, a.method, a.confidence, found
}

// during returns the one row whose call was running at a moment, or -1 where there was none, or more than one.
func (x *Index) during(boot uint64) int {
	i := sort.Search(len(x.windows), func(i int) bool { return x.windows[i].from > boot }) - 1
	if i < 0 || boot > x.windows[i].to || boot <= x.windows[i].before {
		return -1
	}
	return x.windows[i].row
}

// Row returns the row of one event: that of a link that names the event, or that of its process.
func (x *Index) Row(e *bodycam.Event) (row int, method bodycam.LinkMethod, confidence float64, ok bool) {
	if a, found := x.events[e.Seq]; found {
		return a.row, a.method, a.confidence, true
	}
	return x.RowOf(e.Proc, e.Boot)
}
