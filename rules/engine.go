package rules

import (
	"fmt"
	"iter"
	"math/bits"

	"github.com/bodycam-dev/bodycam"
)

// Match is a rule that an event made true.
type Match struct {
	Rule  *Rule
	Event *bodycam.Event // the last one; valid as long as the caller keeps it so
	// Events are the sequence numbers of a sequence's steps, the last included. Nil for other rules.
	Events []uint64
	// Confidence is below 1 only for sequences whose steps are joined by data that may have been lost on its way.
	Confidence float64
	// Count is how many calls the match stands for.
	Count uint64

	rule  *rule
	steps []step
}

// Engine judges the events of one run, in order. It isn't safe for use by several goroutines.
type Engine struct {
	set     *Set
	m       machine
	states  []*progress // of the sequences
	counts  []*counter  // of the rules with a threshold
	matches []Match
	out     []byte
	sieve   sieve
	flows   int64 // sequences that follow data
}

// NewEngine makes an engine for one run. Disabled and unsupported rules are left out.
func (s *Set) NewEngine(ctx Context) *Engine {
	e := &Engine{set: s, states: make([]*progress, len(s.rules)), counts: make([]*counter, len(s.rules))}
	e.m.ctx = ctx
	e.m.memo = make([]uint32, s.slots)
	if t, ok := ctx.(interface{ itself() *Table }); ok {
		e.m.table = t.itself()
	}
	e.sieve = newSieve()
	for _, r := range s.rules {
		if !r.Enabled || len(r.Unsupported) > 0 {
			continue
		}
		if r.seq != nil {
			e.states[r.index] = newProgress(r.seq)
		}
		if r.limit != nil {
			e.counts[r.index] = &counter{limit: r.limit, tallies: map[bodycam.Proc]*tally{}}
		}
	}
	return e
}

// flowTypes are the events by which data moves.
var flowTypes = parseTypes("fork,exec,open,close,flow,mmap,rename,link,unlink")

// Event takes in an event and returns the rules that it makes true. The result is valid until the next call.
// Nothing is allocated where nothing matches, apart from what the context keeps of new processes and files.
func (e *Engine) Event(ev *bodycam.Event) []Match {
	e.m.ctx.Fold(ev)
	return e.judge(ev, false)
}

// Would returns the rules that an event would make true, without taking it in: for calls that wait to be allowed.
// Sequences and thresholds are left out.
func (e *Engine) Would(ev *bodycam.Event) []Match { return e.judge(ev, true) }

func (e *Engine) judge(ev *bodycam.Event, peek bool) []Match {
	p := &e.set.byType[ev.Type&63]
	e.matches = e.matches[:0]
	if len(p.asked) == 0 {
		return nil
	}
	e.m.reset(ev)
	may := p.may
	if p.sieved {
		may = e.sieve.may(&e.m, p)
	}
	also := p.heirs
	if e.flows > 0 {
		also |= p.flow
	}
	for left := may | also; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		e.ask(&p.asked[i], may>>i&1 != 0, peek)
	}
	for i := siftedRules; i < len(p.asked); i++ {
		e.ask(&p.asked[i], true, peek)
	}
	if len(e.matches) == 0 {
		return nil
	}
	return e.matches
}

// ask asks a rule about the event. may is false where its steps can't be true.
func (e *Engine) ask(r *asked, may, peek bool) {
	m := &e.m
	switch {
	case r.seq != nil:
		if !peek {
			e.sequence(r.rule, may)
		}
	case !r.ok(m):
	case r.limit != nil:
		if !peek {
			e.limit(r.rule)
		}
	default:
		e.matches = append(e.matches, Match{Rule: &r.Rule, Event: m.ev, Confidence: 1, Count: m.ev.N(), rule: r.rule})
	}
}

func (e *Engine) sequence(r *rule, may bool) {
	p := e.states[r.index]
	e.flows -= b2i(p.flow.active())
	c := p.event(&e.m, may)
	e.flows += b2i(p.flow.active())
	if c == nil {
		return
	}
	seqs := make([]uint64, len(c.steps))
	for i, s := range c.steps {
		seqs[i] = s.event
	}
	e.matches = append(e.matches, Match{Rule: &r.Rule, Event: e.m.ev, Events: seqs, Confidence: float64(c.sure),
		Count: e.m.ev.N(), rule: r, steps: c.steps})
}

func (e *Engine) limit(r *rule) {
	calls, first := e.counts[r.index].count(&e.m)
	if calls == 0 {
		return
	}
	x := Match{Rule: &r.Rule, Event: e.m.ev, Confidence: 1, Count: calls, rule: r}
	if first != e.m.ev.Seq {
		x.Events = []uint64{first, e.m.ev.Seq}
	}
	e.matches = append(e.matches, x)
}

// Output is the rule's output for a match of the newest event. Raw bytes of the run are in it as they are: escape
// it before it reaches a terminal.
func (e *Engine) Output(x Match) string {
	e.m.steps = x.steps
	e.out = x.rule.output.print(e.out[:0], &e.m)
	e.m.steps = nil
	return string(e.out)
}

// Sentence is Output for people: fields that the event doesn't have are left out, with the words that introduce them,
// where Output says <NA>.
func (e *Engine) Sentence(x Match) string {
	e.m.steps = x.steps
	defer func() { e.m.steps = nil }()
	return x.rule.output.sentence(&e.m)
}

// Row is the transcript row that the context gives for the newest event, nil where there is none.
func (e *Engine) Row() *bodycam.Row { return e.m.transcriptRow() }

// Process is the process of the newest event as the context knows it.
func (e *Engine) Process() *Process { return e.m.lastProc }

// Dropped counts beginnings of sequences and counts that were given up because there were too many at once.
func (e *Engine) Dropped() uint64 {
	var n uint64
	for _, p := range e.states {
		if p != nil {
			n += p.dropped
		}
	}
	for _, c := range e.counts {
		if c != nil {
			n += c.dropped
		}
	}
	return n
}

// Change is an alert that appears or vanishes when rules change.
type Change struct {
	Rule     string
	Event    uint64
	Output   string
	Appeared bool // false: it vanished
}

// Comparison is what two sets of rules say of the same events.
type Comparison struct {
	Events  uint64
	Old     uint64 // alerts by the old set
	New     uint64 // alerts by the new set
	Changes []Change
	Cut     bool // there are more changes than are listed
}

const maxChanges = 10000

// Compare runs two sets over one stream of events and lists the alerts that only one of them gives. Each set gets a
// context of its own. It ends at the stream's first error.
func Compare(older, newer *Set, context func() Context, events iter.Seq2[*bodycam.Event, error]) (Comparison, error) {
	a, b := older.NewEngine(context()), newer.NewEngine(context())
	var c Comparison
	for ev, err := range events {
		if err != nil {
			return c, fmt.Errorf("comparing rules at event %d: %w", c.Events+1, err)
		}
		c.Events++
		was, is := a.Event(ev), b.Event(ev)
		c.Old += uint64(len(was))
		c.New += uint64(len(is))
		c.only(a, was, is, false)
		c.only(b, is, was, true)
	}
	return c, nil
}

// only adds the matches of x whose rule isn't among those of y.
func (c *Comparison) only(e *Engine, x, y []Match, appeared bool) {
next:
	for _, m := range x {
		for _, o := range y {
			if o.Rule.Name == m.Rule.Name {
				continue next
			}
		}
		if len(c.Changes) >= maxChanges {
			c.Cut = true
			return
		}
		c.Changes = append(c.Changes, Change{m.Rule.Name, m.Event.Seq, e.Output(m), appeared})
	}
}
