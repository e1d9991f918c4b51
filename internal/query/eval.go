package query

import (
	"regexp"
	"strings"
)

// Doc is what an expression is evaluated over.
type Doc struct {
	Record []byte // JSON of what the ledger's record says
	Body   []byte // JSON of the payload; nil where it isn't at hand
}

// Match tells whether an expression holds.
func (x *Expr) Match(d *Doc) bool { return x.root.holds(d) }

// NeedsBody tells whether the expression looks at payloads, or at records only.
func (x *Expr) NeedsBody() bool {
	found := false
	x.root.operands(func(o *operand) { found = found || o.path[0].name != "record" })
	return found
}

type node interface {
	holds(*Doc) bool
	operands(func(*operand)) // those that are paths
	tests(func(*test))
}

type group struct {
	all bool
	of  []node
}

func (g *group) holds(d *Doc) bool {
	for _, n := range g.of {
		if n.holds(d) != g.all {
			return !g.all
		}
	}
	return g.all
}

func (g *group) operands(f func(*operand)) {
	for _, n := range g.of {
		n.operands(f)
	}
}

func (g *group) tests(f func(*test)) {
	for _, n := range g.of {
		n.tests(f)
	}
}

type negation struct{ of node }

func (n *negation) holds(d *Doc) bool         { return !n.of.holds(d) }
func (n *negation) operands(f func(*operand)) { n.of.operands(f) }
func (n *negation) tests(f func(*test))       { n.of.tests(f) }

// operand is a literal or a path.
type operand struct {
	lit  *value
	path []step
	at   int // where a path stands in the expression
}

// each calls f with the operand's values until it returns true. A field that isn't there is null.
func (o *operand) each(d *Doc, f func(*value) bool) bool {
	if o.lit != nil {
		return f(o.lit)
	}
	raw, path := d.Body, o.path
	if path[0].name == "record" && path[0].index < 0 {
		raw, path = d.Record, path[1:]
	}
	there := false
	if find(raw, path, func(v *value) bool { there = true; return f(v) }) {
		return true
	}
	return !there && f(&value{})
}

type test struct {
	op    string
	left  operand
	right []operand
	re    *regexp.Regexp
}

func (t *test) holds(d *Doc) bool {
	return t.left.each(d, func(a *value) bool {
		for i := range t.right {
			if t.right[i].each(d, func(b *value) bool { return t.compare(a, b) }) {
				return true
			}
		}
		return false
	})
}

func (t *test) compare(a, b *value) bool {
	switch t.op {
	case "==", "in":
		return equal(a, b)
	case "contains":
		return a.kind == kindString && strings.Contains(a.str, b.str)
	case "startsWith":
		return a.kind == kindString && strings.HasPrefix(a.str, b.str)
	case "matches":
		return a.kind == kindString && t.re.MatchString(a.str)
	}
	order, ok := compare(a, b)
	if !ok {
		return false
	}
	switch t.op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

func (t *test) tests(f func(*test)) { f(t) }

func (t *test) operands(f func(*operand)) {
	if t.left.path != nil {
		f(&t.left)
	}
	for i := range t.right {
		if t.right[i].path != nil {
			f(&t.right[i])
		}
	}
}
