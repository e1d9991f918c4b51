// Package link joins the rows of a transcript with the events that a sensor saw.
//
// A row says "I ran this command"; events say which process ran what. The two are joined by the text of the
// command in a process's argv, by the process tree below it, by the time the row arrived, and for files that the
// harness touched itself by path. Each [bodycam.Link] carries its method, a confidence from 0 to 1, and a reason in
// words. What stays over on either side is reported too: a claimed call that no process bears out ([Missing]), and
// a process that no row explains ([Subtree]).
//
// # How
//
// Rows with the same command form a group. Walking down the process tree from the harness, a process is a candidate
// for a group where the script of its shell is the command (or its argv is), or where its script holds the command,
// quoted or not, as wrappers do. What runs below a candidate is the candidate's, whatever it is called. Within a
// group rows and candidates are matched in order, so that the sum of the distances between a row's time and its
// process's start is least; the same text five times gives five links.
//
// A command row that finds no process this way, and whose window no other row shares, gets the processes that a
// long-lived shell or the harness started in its window, by time alone. A row that names files gets the events of
// the harness's own processes on those files in its window.
//
// Times of rows are the recorder's ([bodycam.Row.Arrived]); where they say nothing, because the transcript was read
// as a file afterwards, order alone is used and confidence is less. A row's line may be printed before or after its
// process starts: windows have slack.
package link

import (
	"iter"
	"slices"

	"github.com/bodycam-dev/bodycam"
)

// HarnessRow is Link.Row of what belongs to the harness itself.
const HarnessRow = -1

// Result is how rows and events fit together.
type Result struct {
	Links    []bodycam.Link // in the order of rows; those of the harness itself (HarnessRow) first
	Unlinked []Subtree      // process subtrees that the harness started and no row explains, in the order of time
	Missing  []Missing      // tool rows that claim an effect on the box but have no event

	index *Index
}

// Subtree is a process that the harness started, with all its descendants.
type Subtree struct {
	Root      bodycam.Proc `json:"root"`
	Seq       uint64       `json:"seq"` // the first event that shows the root: its fork, or its exec
	Exe       string       `json:"exe,omitempty"`
	Argv      []string     `json:"argv,omitempty"` // of the root's last exec
	From      uint64       `json:"from"`           // boot time of its start
	To        uint64       `json:"to"`             // boot time of the last event of a process in it
	Processes int          `json:"processes"`
	Startup   bool         `json:"startup,omitempty"` // it began before the transcript's first tool row arrived
}

// Missing is a row without events.
type Missing struct {
	Row int    `json:"row"`
	Why string `json:"why"`
}

// Join joins rows with events. harness is the process that the recorder started; the zero value takes every process
// whose parent is unknown for one of the harness. The events come in the order of their sequence numbers; those that
// [Needs] refuses make no difference.
func Join(rows []bodycam.Row, events []bodycam.Event, harness bodycam.Proc) *Result {
	return JoinSeq(rows, func(yield func(*bodycam.Event) bool) {
		for i := range events {
			if !yield(&events[i]) {
				return
			}
		}
	}, harness)
}

// JoinSeq is Join for events that are read one by one. An event is used only until the next is asked for.
func JoinSeq(rows []bodycam.Row, events iter.Seq[*bodycam.Event], harness bodycam.Proc) *Result {
	j := New(rows)
	for e := range events {
		j.Observe(e)
	}
	return j.Result(harness)
}

// Needs tells whether Join looks at an event of that type: process starts and ends, and what happens to files.
func Needs(e *bodycam.Event) bool {
	switch e.Type {
	case bodycam.TypeFork, bodycam.TypeExec, bodycam.TypeExit, bodycam.TypeOpen:
		return true
	}
	return changes(e)
}

// changes tells whether an event changes what is under a path.
func changes(e *bodycam.Event) bool {
	switch e.Type {
	case bodycam.TypeOpen:
		return e.Access&(bodycam.Write|bodycam.Create|bodycam.Trunc|bodycam.Append) != 0
	case bodycam.TypeCreate, bodycam.TypeTruncate, bodycam.TypeRename, bodycam.TypeLink, bodycam.TypeSymlink, bodycam.TypeUnlink,
		bodycam.TypeMkdir, bodycam.TypeRmdir, bodycam.TypeChmod:
		return true
	}
	return false
}

// Joiner takes events one by one and keeps only what it needs of them: the process tree and the events on files that
// a row names.
type Joiner struct {
	rows   []bodycam.Row
	clock  clock
	tree   tree
	groups []*group
	byKey  map[string]*group
	paths  paths
}

// New begins a join. The rows must be complete.
func New(rows []bodycam.Row) *Joiner {
	j := &Joiner{rows: rows, tree: tree{procs: map[bodycam.Proc]*proc{}}}
	j.groupRows()
	j.paths = namedPaths(rows)
	return j
}

// Observe takes the next event.
func (j *Joiner) Observe(e *bodycam.Event) {
	if e.Proc.PID == 0 {
		return
	}
	j.clock.observe(e)
	j.tree.observe(e)
	if e.Type != bodycam.TypeFork && e.Type != bodycam.TypeExec && e.Type != bodycam.TypeExit {
		j.paths.observe(e)
	}
}

// Result joins. It is called once, after the last event. See [Join] for harness.
func (j *Joiner) Result(harness bodycam.Proc) *Result {
	res := &Result{}
	roots := j.tree.link(harness)
	windows := j.windows()
	j.candidates()
	for _, g := range j.groups {
		g.match(windows)
	}
	for _, g := range j.groups {
		g.matchNested(windows)
	}
	for _, g := range j.groups {
		for _, m := range g.matches {
			m.proc.take(claim{row: m.row, method: bodycam.LinkArgv, confidence: m.confidence})
			res.Links = append(res.Links, bodycam.Link{Row: m.row, Root: m.proc.id, Method: bodycam.LinkArgv,
				Confidence: m.confidence, From: m.proc.from, To: m.proc.last, Why: m.why})
		}
	}
	j.byTime(roots, windows, res)
	j.tree.spread()
	j.byPath(windows, res)
	j.rest(roots, windows, res)
	slices.SortStableFunc(res.Links, func(a, b bodycam.Link) int {
		if a.Row != b.Row {
			return a.Row - b.Row
		}
		return compare(a.From, b.From)
	})
	res.index = newIndex(j, res.Links, windows)
	return res
}

// rest reports what was left over.
func (j *Joiner) rest(roots []*proc, windows []window, res *Result) {
	first := ^uint64(0)
	for i := range j.rows {
		if j.rows[i].Kind == bodycam.RowTool && windows[i].timed {
			first = min(first, windows[i].arrived)
		}
	}
	stack := slices.Clone(roots)
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch {
		case p.claim != nil:
		case p.root || p.claimedBelow || len(p.execs) == 0:
			// A process that became no other program runs the harness's own code.
			conf, why := 1.0, "the harness itself"
			switch {
			case p.root:
			case len(p.execs) == 0:
				conf, why = 0.9, "a process of the harness that ran no other program"
			default:
				conf, why = 0.5, "no row names it, but processes of rows are below it: a helper of the harness"
			}
			p.own = true
			res.Links = append(res.Links, bodycam.Link{Row: HarnessRow, Root: p.id, Method: bodycam.LinkHarness, Confidence: conf, From: p.from, To: p.to, Why: why})
			stack = append(stack, p.children...)
		default:
			res.Unlinked = append(res.Unlinked, Subtree{Root: p.id, Seq: p.seq, Exe: p.exe, Argv: p.argv, From: p.from,
				To: p.last, Processes: p.size, Startup: p.from < first && first != ^uint64(0)})
		}
	}
	slices.SortStableFunc(res.Unlinked, func(a, b Subtree) int { return compare(a.From, b.From) })

	has := make([]bool, len(j.rows))
	for _, l := range res.Links {
		if l.Row >= 0 {
			has[l.Row] = true
		}
	}
	for i := range j.rows {
		r := &j.rows[i]
		if has[i] || r.Kind != bodycam.RowTool {
			continue
		}
		switch {
		case r.Command != "":
			why := "no process was started with this command"
			if r.Failed {
				why += "; the row says that the call failed or was refused"
			}
			res.Missing = append(res.Missing, Missing{Row: i, Why: why})
		case len(r.Files) > 0:
			why := "no process of the harness changed a file that the row names"
			if r.Failed {
				why += "; the row says that the call failed or was refused"
			}
			res.Missing = append(res.Missing, Missing{Row: i, Why: why})
		}
	}
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
