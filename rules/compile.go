package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// pred is a compiled condition.
type pred func(*machine) bool

func never(*machine) bool { return false }

// compiled is a condition as a tree whose leaves are ready to run, with the event types for which it can be true, and
// those for which it can be false. A builder makes one closure of it for each event type.
type compiled struct {
	op          compiledOp
	ok          pred        // of a leaf
	kids        []*compiled // of the others
	slot        int         // of a macro that keeps its answer for the rest of the event
	may, mayNot typeSet
	from        origins
	checks      int // how much work it is
}

type compiledOp uint8

const (
	opLeaf compiledOp = iota
	opAnd
	opOr
	opNot
	opMemo
)

func leaf(ok pred, may, mayNot typeSet, from origins) *compiled {
	return &compiled{ok: ok, may: may, mayNot: mayNot, from: from, checks: 1}
}

// broken stands for what couldn't be compiled; the set won't be loaded.
func broken() *compiled { return leaf(never, allTypes, allTypes, 0) }

// gap is something that a condition needs and our events don't have.
type gap struct {
	what   string // name of the field or event type
	reason string
	at     mark
	// partial gaps leave the rule something to match: a list of event types of which one isn't recorded.
	partial bool
}

// compiler turns parsed conditions into closures. It goes on after an error, so that all are reported at once.
type compiler struct {
	set    *Set
	macros map[string]*macroDef
	lists  map[string]*listDef
	report func(at mark, rule, msg, hint string)
	warn   func(at mark, rule, msg, hint string)

	// of the condition at work
	rule    string
	txt     text
	gaps    []gap
	unknown []gap    // fields that nobody knows
	uses    []string // fields that it asks for
	items   int      // of lists, put into all checks up to now
	stack   []string
	done    map[macroKey]*macroDone
	slots   int
	// unguarded asks for the next field without the guard that keeps it to its event types.
	unguarded bool
}

type macroKey struct {
	name     string
	positive bool
}

type macroDone struct {
	*compiled
	gaps    []gap
	unknown []gap
	uses    []string
}

func (c *compiler) errorf(off int, format string, args ...any) {
	c.report(c.txt.mark(off), c.rule, fmt.Sprintf(format, args...), "")
}

func (c *compiler) hint(off int, hint, format string, args ...any) {
	c.report(c.txt.mark(off), c.rule, fmt.Sprintf(format, args...), hint)
}

// condition compiles x. positive tells whether x being true helps to raise an alert (it doesn't below a "not").
func (c *compiler) condition(x expr, positive bool) *compiled {
	switch v := x.(type) {
	case *andExpr:
		out := &compiled{op: opAnd, may: allTypes}
		for _, y := range v.xs {
			k := c.condition(y, positive)
			out.kids = append(out.kids, k)
			out.may &= k.may
			out.from |= k.from
			out.mayNot |= k.mayNot
			out.checks += k.checks
		}
		return out
	case *orExpr:
		out := &compiled{op: opOr, mayNot: allTypes}
		for _, y := range v.xs {
			k := c.condition(y, positive)
			out.kids = append(out.kids, k)
			out.may |= k.may
			out.from |= k.from
			out.mayNot &= k.mayNot
			out.checks += k.checks
		}
		return out
	case *notExpr:
		k := c.condition(v.x, !positive)
		return &compiled{op: opNot, kids: []*compiled{k}, may: k.mayNot, mayNot: k.may, from: k.from, checks: k.checks}
	case *macroExpr:
		return c.macro(v, positive)
	case *checkExpr:
		return c.check(v, positive)
	}
	return broken()
}

// macro compiles a macro once and lets all its uses share the answer for an event.
func (c *compiler) macro(v *macroExpr, positive bool) *compiled {
	def := c.macros[v.name]
	if def == nil {
		names := make([]string, 0, len(c.macros))
		for n := range c.macros {
			names = append(names, n)
		}
		h := nearest(v.name, names)
		if _, ok := c.lists[v.name]; ok {
			h = "it is a list: write FIELD in (" + v.name + ")"
		}
		c.hint(v.off, h, "there is no macro %q", v.name)
		return broken()
	}
	key := macroKey{v.name, positive}
	d := c.done[key]
	if d == nil {
		for _, s := range c.stack {
			if s == v.name {
				c.errorf(v.off, "macro %q leads back to itself: %s", v.name, strings.Join(append(c.stack, v.name), " → "))
				return broken()
			}
		}
		d = c.compileMacro(def, positive)
		c.done[key] = d
	}
	c.gaps = append(c.gaps, d.gaps...)
	c.unknown = append(c.unknown, d.unknown...)
	c.uses = append(c.uses, d.uses...)
	return d.compiled
}

func (c *compiler) compileMacro(def *macroDef, positive bool) *macroDone {
	rule, txt, gaps, unknown, uses := c.rule, c.txt, c.gaps, c.unknown, c.uses
	c.stack = append(c.stack, def.name)
	c.rule, c.txt, c.gaps, c.unknown, c.uses = "macro "+def.name, def.cond, nil, nil, nil
	d := &macroDone{compiled: broken()}
	if def.ast != nil {
		d.compiled = c.condition(def.ast, positive)
	}
	// Each once: a macro that names another often, which does the same, would have them without end.
	slices.Sort(c.uses)
	d.gaps, d.unknown, d.uses = once(c.gaps), once(c.unknown), slices.Compact(c.uses)
	d.compiled.checks = min(d.compiled.checks, math.MaxInt32)
	c.stack = c.stack[:len(c.stack)-1]
	c.rule, c.txt, c.gaps, c.unknown, c.uses = rule, txt, gaps, unknown, uses
	if d.checks > 1 {
		d.compiled = &compiled{op: opMemo, kids: []*compiled{d.compiled}, slot: c.slots, may: d.may, mayNot: d.mayNot, from: d.from, checks: d.checks}
		c.slots++
	}
	return d
}

func once(gaps []gap) []gap {
	seen := map[gap]bool{}
	var out []gap
	for _, g := range gaps {
		if !seen[g] {
			seen[g] = true
			out = append(out, g)
		}
	}
	return out
}

// check compiles one comparison.
func (c *compiler) check(k *checkExpr, positive bool) *compiled {
	if k.op == "!=" {
		positive = !positive
	}
	c.unguarded = k.left.kind == fieldTerm
	left, ok := c.term(k.left, positive)
	c.unguarded = false
	if !ok {
		if k.right != nil {
			c.term(k.right, positive)
		}
		return broken()
	}
	p, ok := pred(nil), false
	from := left.from
	switch {
	case k.op == "exists":
		p, ok = left.exists(), true
	case k.right != nil:
		p, from, ok = c.compareTerms(k, left, positive)
	default:
		vals := c.values(k)
		switch left.typ {
		case "type":
			return c.checkType(k, vals, left)
		case "kind":
			return c.checkKind(k, vals)
		}
		p, ok = c.compareValues(k, left, vals)
	}
	if !ok {
		return broken()
	}
	return leaf(p, left.types, allTypes, from)
}

// checkType compiles evt.type = … into a set of calls and finds the event types that can be meant.
func (c *compiler) checkType(k *checkExpr, vals []value, left getter) *compiled {
	names := make([]string, 0, len(vals))
	for _, v := range vals {
		names = append(names, v.s)
	}
	facts := linux()
	if k.mod != "" && k.op != "=" && k.op != "!=" || k.mod == "" && !contains([]string{"=", "!=", "in", "intersects"}, k.op) {
		left.typ = "string"
		p, ok := c.compareValues(k, left, vals)
		if !ok {
			p = never
		}
		return leaf(p, allTypes, allTypes, left.from)
	}
	set := make([]bool, len(facts.calls))
	var may typeSet
	for i, n := range names {
		id, ok := facts.byName[n]
		if !ok {
			known := make([]string, len(facts.calls))
			for i, f := range facts.calls {
				known[i] = f.name
			}
			c.hint(vals[i].off, nearest(n, known), "there is no event type %q", n)
			continue
		}
		set[id] = true
		may |= facts.calls[id].types
		if facts.calls[id].real {
			may |= 1 << bodycam.TypeDenied
		}
		if facts.calls[id].types == 0 {
			c.gaps = append(c.gaps, gap{"evt.type " + n, "this call is not recorded", c.txt.mark(vals[i].off), true})
		}
	}
	other := facts.otherTypes(set)
	p := func(m *machine) bool { return set[m.call] }
	if k.op == "!=" {
		return leaf(func(m *machine) bool { return !set[m.call] }, other, may, fromEvent)
	}
	return leaf(p, may, other, fromEvent)
}

// otherTypes are the event types that can be called something outside the set.
func (f *linuxFacts) otherTypes(set []bool) typeSet {
	var out typeSet
	for id, k := range f.calls {
		if set[id] {
			continue
		}
		out |= k.types
		if k.real {
			out |= 1 << bodycam.TypeDenied
		}
	}
	for t, id := range f.ofType {
		if !set[id] {
			out |= 1 << t
		}
	}
	return out
}

// checkKind compiles body.type = …, which says exactly which event types are meant.
func (c *compiler) checkKind(k *checkExpr, vals []value) *compiled {
	if k.mod != "" || !contains([]string{"=", "!=", "in", "intersects"}, k.op) {
		c.errorf(k.opOff, "body.type wants =, != or in")
		return broken()
	}
	var set typeSet
	for _, v := range vals {
		t, ok := bodycam.ParseType(v.s)
		if !ok {
			c.hint(v.off, nearest(v.s, bodycam.Types()), "there is no event type %q", v.s)
			continue
		}
		set |= 1 << t
	}
	if k.op == "!=" {
		set = ^set
	}
	return leaf(func(m *machine) bool { return set.has(m.ev.Type) }, set, ^set, fromEvent)
}
