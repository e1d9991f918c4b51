package rules

import "github.com/bodycam-dev/bodycam"

// builder makes closures of compiled conditions. For a given event type much of a condition is settled beforehand
// (what evt.type asks, fields that the type doesn't have): that part is left out.
type builder struct {
	done   map[builtMacro]built
	bounds map[builtBound]built
	slots  int               // for answers that are kept for an event
	asked  map[*compiled]int // questions whose answers are kept for a process
}

type builtBound struct {
	node  *compiled
	typ   int
	upper bool
}

type builtMacro struct {
	node *compiled
	typ  int
}

// built is a condition for one event type: settled, or to be asked.
type built struct {
	ok    pred // nil: settled
	value bool
}

// anyType builds a condition for events of whatever type.
const anyType = -1

func newBuilder(slots int) *builder {
	return &builder{map[builtMacro]built{}, map[builtBound]built{}, slots, map[*compiled]int{}}
}

// pred is the condition for events of type t, nil where it can't be true.
func (b *builder) pred(c *compiled, t int) pred {
	x := b.build(c, t)
	switch {
	case x.ok != nil:
		return x.ok
	case x.value:
		return func(*machine) bool { return true }
	}
	return nil
}

func (b *builder) build(c *compiled, t int) built {
	if t != anyType {
		if !c.may.has(bodycam.Type(t)) {
			return built{}
		}
		if !c.mayNot.has(bodycam.Type(t)) {
			return built{value: true}
		}
	}
	switch c.op {
	case opAnd, opOr:
		return b.join(c, func(k *compiled) built {
			x := b.build(k, t)
			if k.op == opMemo || c.standing() { // it, or the whole, is kept
				return x
			}
			return b.stand(k, x, t)
		})
	case opNot:
		return b.build(c.kids[0], t).not()
	case opMemo:
		key := builtMacro{c, t}
		x, ok := b.done[key]
		if !ok {
			if x = b.build(c.kids[0], t); x.ok != nil {
				x.ok = remember(c.slot, x.ok)
			}
			x = b.stand(c, x, t)
			b.done[key] = x
		}
		return x
	}
	if t == anyType && c.may != allTypes {
		ok, may := c.ok, c.may
		return built{ok: func(m *machine) bool { return may.has(m.ev.Type) && ok(m) }}
	}
	return built{ok: c.ok}
}

func (x built) not() built {
	if x.ok == nil {
		return built{value: !x.value}
	}
	inner := x.ok
	return built{ok: func(m *machine) bool { return !inner(m) }}
}

// join makes "and" or "or" of what isn't settled.
func (b *builder) join(c *compiled, build func(*compiled) built) built {
	decides := c.op == opOr // the value of a part that settles the whole
	var ps []pred
	for _, k := range c.kids {
		x := build(k)
		switch {
		case x.ok != nil:
			ps = append(ps, x.ok)
		case x.value == decides:
			return built{value: decides}
		}
	}
	switch {
	case len(ps) == 0:
		return built{value: !decides}
	case len(ps) == 1:
		return built{ok: ps[0]}
	case c.op == opAnd:
		return built{ok: allOf(ps)}
	}
	return built{ok: anyOf(ps)}
}

// standing tells whether a condition has the same answer until a program changes.
func (c *compiled) standing() bool {
	return c.from != 0 && c.from&^(fromProgram|fromFamily) == 0
}

// stand keeps the answer of a standing condition with the process.
func (b *builder) stand(c *compiled, x built, t int) built {
	if x.ok == nil || !c.standing() || t == anyType || t == int(bodycam.TypeExec) {
		return x
	}
	q, ok := b.asked[c]
	if !ok {
		if q = len(b.asked); q >= standingQuestions {
			return x
		}
		b.asked[c] = q
	}
	word, bit, body := q/64, uint64(1)<<(q%64), x.ok
	return built{ok: func(m *machine) bool {
		s := m.standing
		switch {
		case s == nil:
			return body(m)
		case s.asked[word]&bit == 0:
			s.asked[word] |= bit
			if body(m) {
				s.holds[word] |= bit
			}
		}
		return s.holds[word]&bit != 0
	}}
}

const standingQuestions = 128

// standing is what was worked out about a process, as long as no program changes.
type standing struct {
	of           *machine
	at           uint64 // of the table's changes
	asked, holds [standingQuestions / 64]uint64
}

// remember keeps a macro's answer for the rest of the event.
func remember(slot int, body pred) pred {
	return func(m *machine) bool {
		if e := m.memo[slot]; e>>1 == m.gen {
			return e&1 != 0
		}
		r := body(m)
		m.memo[slot] = m.gen<<1 | uint32(b2i(r))
		return r
	}
}

func allOf(ps []pred) pred {
	switch len(ps) {
	case 2:
		a, b := ps[0], ps[1]
		return func(m *machine) bool { return a(m) && b(m) }
	case 3:
		a, b, c := ps[0], ps[1], ps[2]
		return func(m *machine) bool { return a(m) && b(m) && c(m) }
	}
	return func(m *machine) bool {
		for _, p := range ps {
			if !p(m) {
				return false
			}
		}
		return true
	}
}

func anyOf(ps []pred) pred {
	if len(ps) == 2 {
		a, b := ps[0], ps[1]
		return func(m *machine) bool { return a(m) || b(m) }
	}
	return func(m *machine) bool {
		for _, p := range ps {
			if p(m) {
				return true
			}
		}
		return false
	}
}
