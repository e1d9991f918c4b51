package link

import (
	"encoding/json"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Confidence of links by time.
const (
	timeNamed  = 0.7 // the program is named in the command
	timeAlone  = 0.4
	timeShared = 0.5 // factor: another row without a process has the same window
)

// byTime links rows whose command no argv shows. A harness that keeps one shell for all commands writes them to its
// input; what that shell starts in the row's window is the row's.
func (j *Joiner) byTime(roots []*proc, windows []window, res *Result) {
	var open []int // rows without a process
	for _, g := range j.groups {
		matched := g.matched()
		for _, r := range g.rows {
			if windows[r].timed && !j.rows[r].Ended.IsZero() && !matched[r] {
				open = append(open, r)
			}
		}
	}
	if len(open) == 0 {
		return
	}
	sort.Slice(open, func(a, b int) bool { return windows[open[a]].arrived < windows[open[b]].arrived })
	stack := slices.Clone(roots)
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if p.claim != nil {
			continue
		}
		if p.up != nil && !p.root && !p.claimedBelow {
			if l, ok := j.timeLink(p, open, windows); ok {
				p.take(claim{row: l.Row, method: l.Method, confidence: l.Confidence})
				res.Links = append(res.Links, l)
				continue
			}
		}
		stack = append(stack, p.children...)
	}
}

// timeLink finds the row in whose window a process began, of those that have none yet. Below the harness itself the
// command must name the program as well: what the harness starts for itself is no row's, whatever the time.
func (j *Joiner) timeLink(p *proc, open []int, windows []window) (bodycam.Link, bool) {
	var fits []int
	for _, r := range open {
		w := windows[r]
		if w.arrived > p.from+slackBefore/4 {
			break
		}
		// No slack for the end: the next command follows at once.
		if p.from+slackBefore/4 >= w.arrived && p.from <= w.ended && p.up.from < w.arrived {
			fits = append(fits, r)
		}
	}
	if len(fits) == 0 {
		return bodycam.Link{}, false
	}
	// The latest row that had arrived is the likeliest, unless another names the program.
	row, confidence, why := fits[len(fits)-1], timeAlone, "it began while the row's call was running"
	for _, r := range slices.Backward(fits) {
		if p.names(j.rows[r].Command) {
			row, confidence, why = r, timeNamed, "it began while the row's call was running, and the command names the program"
			break
		}
	}
	if confidence < timeNamed && !p.up.session() {
		return bodycam.Link{}, false
	}
	if len(fits) > 1 && confidence < timeNamed {
		confidence *= timeShared
		why += "; other calls were running too"
	}
	return bodycam.Link{Row: row, Root: p.id, Method: bodycam.LinkTime, Confidence: confidence, From: p.from, To: p.last, Why: why}, true
}

// session tells whether a process is a shell that takes commands from its input.
func (p *proc) session() bool {
	if len(p.execs) == 0 {
		return false
	}
	x := &p.execs[len(p.execs)-1]
	return !x.shell && len(x.argv) > 0 && bodycam.IsShell(x.argv[0]) && !slices.ContainsFunc(x.argv[1:], func(a string) bool { return !strings.HasPrefix(a, "-") })
}

// names tells whether a command names one of the programs that a process became.
func (p *proc) names(command string) bool {
	for i := range p.execs {
		if argv := p.execs[i].argv; len(argv) > 0 && standsIn(command, path.Base(argv[0])) {
			return true
		}
	}
	return false
}

// Confidence of links by path.
const (
	pathExact   = 0.9  // the whole path is the same, in the row's window
	pathSuffix  = 0.75 // the row gives a relative path that the event's ends with
	pathUntimed = 0.6  // factor: the rows have no times
	pathShared  = 0.8  // factor: several rows name the file at that time
)

// maxPathHits bounds what is kept of events on files that rows name.
const maxPathHits = 200_000

// paths are the files that rows name, and the events on them.
type paths struct {
	byBase map[string][]named // by the last element
	hits   []hit
}

// named is one file that a row names.
type named struct {
	row     int
	path    string // cleaned
	changed bool   // the row says that it changed the file
}

type hit struct {
	seq, boot uint64
	proc      bodycam.Proc
	named     []named // the rows it may belong to
	exact     bool
}

// pathKeys are arguments of tools that name a file.
var pathKeys = []string{"file_path", "path", "filePath", "absolute_path", "notebook_path", "dir_path", "filename", "file"}

func namedPaths(rows []bodycam.Row) paths {
	p := paths{byBase: map[string][]named{}}
	for i := range rows {
		r := &rows[i]
		if r.Kind != bodycam.RowTool || r.Command != "" {
			continue
		}
		files, changed := r.Files, true
		if len(files) == 0 {
			files, changed = argPaths(r.Args), false
		}
		for _, f := range files {
			clean := path.Clean(f)
			if f == "" || clean == "." || clean == "/" {
				continue
			}
			base := path.Base(clean)
			p.byBase[base] = append(p.byBase[base], named{row: i, path: clean, changed: changed})
		}
	}
	return p
}

func argPaths(args string) []string {
	if !strings.HasPrefix(strings.TrimSpace(args), "{") {
		return nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &m) != nil {
		return nil
	}
	var out []string
	for _, k := range pathKeys {
		var s string
		if json.Unmarshal(m[k], &s) == nil && s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (p *paths) observe(e *bodycam.Event) {
	if len(p.byBase) == 0 || len(p.hits) >= maxPathHits {
		return
	}
	for _, given := range [...]string{e.Path, e.Path2, e.PathGiven} {
		if given == "" {
			continue
		}
		list := p.byBase[path.Base(given)]
		if list == nil {
			continue
		}
		h := hit{seq: e.Seq, boot: e.Boot, proc: e.Proc}
		for _, n := range list {
			if n.changed && !changes(e) {
				continue
			}
			switch {
			case path.Clean(given) == n.path:
				h.exact = true
			case path.IsAbs(n.path) || !strings.HasSuffix(given, "/"+strings.TrimPrefix(n.path, "./")):
				continue
			}
			h.named = append(h.named, n)
		}
		if h.named != nil {
			p.hits = append(p.hits, h)
			return
		}
	}
}

// byPath links what the harness did itself to files that rows name.
func (j *Joiner) byPath(windows []window, res *Result) {
	links := map[int]*bodycam.Link{}
	var order []int
	for _, h := range j.paths.hits {
		p := j.tree.procs[h.proc]
		if p == nil || p.holds != nil || !p.inScope {
			continue
		}
		row, shared := -1, false
		for _, n := range h.named {
			if w := windows[n.row]; w.timed && !w.holds(h.boot) {
				continue
			}
			if row >= 0 {
				shared = true
			}
			if row < 0 || nearer(windows, n.row, row, h.boot) {
				row = n.row
			}
		}
		if row < 0 {
			continue
		}
		confidence, why := pathSuffix, "the harness touched a file whose path ends as the row says"
		if h.exact {
			confidence, why = pathExact, "the harness touched a file that the row names"
		}
		if !windows[row].timed {
			confidence *= pathUntimed
			why += "; the row has no time"
		}
		if shared {
			confidence *= pathShared
			why += "; other rows name it too"
		}
		l := links[row]
		if l == nil {
			l = &bodycam.Link{Row: row, Method: bodycam.LinkPath, Confidence: confidence, From: h.boot, To: h.boot, Why: why}
			links[row] = l
			order = append(order, row)
		}
		l.Events = append(l.Events, h.seq)
		l.From, l.To = min(l.From, h.boot), max(l.To, h.boot)
		if confidence < l.Confidence {
			l.Confidence, l.Why = confidence, why
		}
	}
	for _, row := range order {
		res.Links = append(res.Links, *links[row])
	}
}

// nearer tells whether row a arrived nearer to a moment than row b. Without times the earlier row wins.
func nearer(windows []window, a, b int, boot uint64) bool {
	if !windows[a].timed || !windows[b].timed {
		return windows[a].timed
	}
	return distance(windows[a], boot) < distance(windows[b], boot)
}
