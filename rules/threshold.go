package rules

import (
	"time"

	"github.com/bodycam-dev/bodycam"
)

// threshold lets a rule match only when its condition was true often enough, or for enough bytes, within a time. The
// window slides: what the window before counted fades out evenly. Once over, every further event matches.
type threshold struct {
	by     string
	within int64
	over   int64
	sum    intGetter // nil: calls are counted
}

func (l *loader) threshold(c *compiler, r *ruleDef) *threshold {
	if r.sequence != nil {
		l.report(r.threshold.at, r.name, "a sequence can't have a threshold", "")
		return nil
	}
	t := &threshold{by: r.threshold.by, within: int64(r.threshold.within / time.Nanosecond), over: r.threshold.over}
	if r.threshold.sum.s == "" {
		return t
	}
	c.txt = r.threshold.sum
	field, e := parseTerm(r.threshold.sum.s)
	if e != nil {
		l.report(c.txt.mark(e.off), r.name, e.msg, e.hint)
		return nil
	}
	g, ok := c.term(field, true)
	if ok && g.int == nil {
		l.report(c.txt.mark(0), r.name, "sum wants a number, and "+g.name+" is none", "")
	}
	t.sum = g.int
	return t
}

// tally counts for one tree, process or run.
type tally struct {
	start    int64 // of the current window
	now, old int64
	first    uint64 // event that began the count
	calls    uint64
	over     bool
}

type counter struct {
	limit   *threshold
	tallies map[bodycam.Proc]*tally
	dropped uint64
}

// count adds an event. Where the limit is passed it returns how many calls that stands for, and the first of them.
func (c *counter) count(m *machine) (calls, first uint64) {
	e := m.ev
	n := int64(e.N())
	if c.limit.sum != nil {
		v, ok := c.limit.sum(m)
		if !ok || v <= 0 {
			return 0, 0
		}
		n = v
	}
	key := keyOf(m, c.limit.by)
	t := c.tallies[key]
	if t == nil {
		if len(c.tallies) >= maxChains {
			c.dropped++
			return 0, 0
		}
		t = &tally{start: e.Time, first: e.Seq}
		c.tallies[key] = t
	}
	switch passed := e.Time - t.start; {
	case passed >= 2*c.limit.within:
		*t = tally{start: e.Time, first: e.Seq}
	case passed >= c.limit.within:
		*t = tally{start: t.start + c.limit.within, old: t.now, first: t.first, calls: t.calls, over: t.over}
	}
	t.now = add(t.now, n)
	t.calls += e.N()
	fade := float64(c.limit.within-min(max(e.Time-t.start, 0), c.limit.within)) / float64(c.limit.within)
	if float64(t.now)+float64(t.old)*fade <= float64(c.limit.over) {
		t.over = false
		return 0, 0
	}
	if t.over {
		return e.N(), t.first
	}
	t.over = true
	return t.calls, t.first
}

// add is a+b, held at the largest number instead of wrapping.
func add(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}
