package rules

import (
	"strings"
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
	unique strGetter // not nil: different values are counted
}

// maxDistinct bounds how many values are told apart; what comes after counts as new.
const maxDistinct = 1 << 12

func (l *loader) threshold(c *compiler, r *ruleDef) *threshold {
	if r.sequence != nil {
		l.report(r.threshold.at, r.name, "a sequence can't have a threshold", "")
		return nil
	}
	t := &threshold{by: r.threshold.by, within: int64(r.threshold.within / time.Nanosecond), over: r.threshold.over}
	if g := l.thresholdField(c, r, r.threshold.sum); g != nil {
		if t.sum = g.int; t.sum == nil {
			l.report(r.threshold.sum.mark(0), r.name, "sum wants a number, and "+g.name+" is none", "")
		}
	}
	if g := l.thresholdField(c, r, r.threshold.unique); g != nil {
		if t.unique = g.str; t.unique == nil {
			l.report(r.threshold.unique.mark(0), r.name, "distinct wants a single text, and "+g.name+" is none", "")
		}
	}
	return t
}

func (l *loader) thresholdField(c *compiler, r *ruleDef, t text) *getter {
	if t.s == "" {
		return nil
	}
	c.txt = t
	field, e := parseTerm(t.s)
	if e != nil {
		l.report(t.mark(e.off), r.name, e.msg, e.hint)
		return nil
	}
	g, ok := c.term(field, false)
	if !ok {
		return nil
	}
	return &g
}

// tally counts for one tree, process or run.
type tally struct {
	start    int64 // of the current window
	now, old int64
	first    uint64 // event that began the count
	calls    uint64
	over     bool
	seen     map[string]struct{} // different values of the current window
}

type counter struct {
	limit   *threshold
	tallies map[bodycam.Proc]*tally
	dropped uint64
	sweep   int64 // time before which expire doesn't look again
}

// expire forgets counts whose time is over, and tells whether there were any.
func (c *counter) expire(now int64) bool {
	if now < c.sweep {
		return false
	}
	c.sweep = now + c.limit.within/10
	n := len(c.tallies)
	for key, t := range c.tallies {
		if now-t.start >= 2*c.limit.within {
			delete(c.tallies, key)
		}
	}
	return len(c.tallies) < n
}

// count adds an event. Where the limit is passed it returns how many calls that stands for, and the first of them.
func (c *counter) count(m *machine) (calls, first uint64) {
	e := m.ev
	n := int64(e.N())
	if c.limit.unique != nil {
		n = 1
	}
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
		if len(c.tallies) >= maxChains && !c.expire(e.Time) {
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
	if c.limit.unique != nil && !t.isNew(c.limit.unique, m) {
		n = 0
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

// isNew tells whether the event's value hasn't been seen in this window.
func (t *tally) isNew(get strGetter, m *machine) bool {
	v, ok := get(m)
	if _, seen := t.seen[v]; seen || !ok {
		return false
	}
	if t.seen == nil {
		t.seen = map[string]struct{}{}
	}
	if len(t.seen) < maxDistinct {
		t.seen[strings.Clone(v)] = struct{}{}
	}
	return true
}

// add is a+b, held at the largest number instead of wrapping.
func add(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}
