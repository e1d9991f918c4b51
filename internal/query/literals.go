package query

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
)

// A value that a field can't have finds nothing too, and says as little of why: a type with a slip of the pen, a number in
// quotes; and asked for its opposite, everything answers. A type must be one that bodycam records, or one that something in the
// log has. A field must be compared with its own kind of value (number, text, truth): that is known of bodycam's own, and of
// others held against the log.

// literals calls f with each field that an expression compares with a value.
func (x *Expr) literals(f func(field *operand, lit *value)) {
	x.root.tests(func(t *test) {
		for i := range t.right {
			switch a, b := &t.left, &t.right[i]; {
			case a.path != nil && b.lit != nil:
				f(a, b.lit)
			case a.lit != nil && b.path != nil:
				f(b, a.lit)
			}
		}
	})
}

// recordTypes are the names of the types that records have.
func recordTypes() []string {
	var out []string
	for t := ledger.Type(1); t < 4*ledger.TypeUser; t++ {
		if name := store.TypeName(t); !strings.Contains(name, " ") {
			out = append(out, name)
		}
	}
	return out
}

// checkTypes makes sure that the types that an expression names are there.
func (x *Expr) checkTypes(ctx context.Context, lr *ledger.Reader) error {
	type named struct {
		field *operand
		lit   *value
	}
	var unknown []named
	var fault error
	x.root.tests(func(t *test) {
		if t.op != "==" && t.op != "in" {
			return // a pattern may be of any part
		}
		(&Expr{root: t}).literals(func(field *operand, lit *value) {
			switch name := pathText(field.path); {
			case lit.kind != kindString:
			case name == "record.type" && !slices.Contains(recordTypes(), lit.str) && !strings.HasPrefix(lit.str, "type "):
				if fault == nil {
					fault = x.noSuch(field, "no record is of type", lit.str, recordTypes())
				}
			case name == "type" && !slices.Contains(bodycam.Types(), lit.str):
				unknown = append(unknown, named{field, lit})
			}
		})
	})
	if fault != nil || len(unknown) == 0 {
		return fault
	}
	whole, err := everyDoc(ctx, lr, func(d *Doc) bool {
		unknown = slices.DeleteFunc(unknown, func(n named) bool {
			return find(d.Body, n.field.path, func(v *value) bool { return equal(v, n.lit) })
		})
		return len(unknown) > 0
	})
	if err != nil || !whole || len(unknown) == 0 {
		return err
	}
	return x.noSuch(unknown[0].field, "nothing that was recorded is of type", unknown[0].lit.str, bodycam.Types()[1:])
}

func (x *Expr) noSuch(field *operand, what, name string, known []string) error {
	hint := "there are " + strings.Join(known, ", ")
	if near := nearestOf(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return (&lexer{text: x.text}).fault(field.at, hint, "%s %q", what, name)
}

// kindNames are what the kinds of value are called.
var kindNames = map[kind]string{kindBool: "true or false", kindNumber: "a number", kindString: "a text", kindObject: "an object"}

// known are the kinds of value that an operand can have; none where nothing is known.
func (o *operand) known() kindSet {
	switch {
	case o.lit != nil:
		return setOf(o.lit.kind)
	case o.path[0].name == "record" && len(o.path) == 2:
		if slices.Contains([]string{"type", "kind", "time", "digest"}, o.path[1].name) {
			return setOf(kindString)
		}
		return setOf(kindNumber)
	}
	kinds, _ := mayBe(o.path)
	return kinds
}

// unlike is a comparison of what can't be equal.
type unlike struct {
	a, b   *operand
	ka, kb kindSet // kinds of a, which is a field, and of b
}

// pairs calls f with each field of an expression, and what it is compared with. not tells that the opposite is asked for.
func pairs(n node, not bool, f func(a, b *operand, not bool)) {
	switch n := n.(type) {
	case *group:
		for _, k := range n.of {
			pairs(k, not, f)
		}
	case *negation:
		pairs(n.of, true, f)
	case *test:
		for i := range n.right {
			switch a, b := &n.left, &n.right[i]; {
			case a.lit != nil && a.lit.kind == kindNull, b.lit != nil && b.lit.kind == kindNull:
			case a.path != nil:
				f(a, b, not)
			case b.path != nil:
				f(b, a, not)
			}
		}
	}
}

// checkKnown makes sure that no field is compared with what it can't be: the opposite of such a comparison holds for all there
// is. Fields of no known kind are held against the log, where their comparison's opposite is asked for. What other programs
// recorded under a name of ours is up to them.
func (x *Expr) checkKnown(ctx context.Context, lr *ledger.Reader) error {
	var all []unlike
	pairs(x.root, false, func(a, b *operand, not bool) {
		u := unlike{a, b, a.known(), b.known()}
		if (u.ka == 0 || u.kb == 0) && not || u.ka != 0 && u.kb != 0 && u.ka&u.kb == 0 {
			all = append(all, u)
		}
	})
	return x.refuse(ctx, lr, all)
}

// checkKinds makes sure, of an expression that found nothing, that its fields aren't compared with values of a kind that
// they never have.
func (x *Expr) checkKinds(ctx context.Context, lr *ledger.Reader) error {
	var all []unlike
	pairs(x.root, false, func(a, b *operand, _ bool) { all = append(all, unlike{a: a, b: b}) })
	return x.refuse(ctx, lr, all)
}

// refuse is the error for the first of the comparisons that nothing in the log bears out. Where payloads are closed only what
// is known beforehand is refused.
func (x *Expr) refuse(ctx context.Context, lr *ledger.Reader, all []unlike) error {
	if len(all) == 0 {
		return nil
	}
	seen := make([][2]kindSet, len(all))
	whole, err := everyDoc(ctx, lr, func(d *Doc) bool {
		for i := range all {
			for k, o := range [2]*operand{all[i].a, all[i].b} {
				o.each(d, func(v *value) bool {
					seen[i][k] |= setOf(v.kind)
					return false
				})
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for i := range all {
		u := &all[i]
		ka, kb, where := seen[i][0]&^setOf(kindNull), seen[i][1]&^setOf(kindNull), " in all that was recorded"
		switch {
		case ka&kb != 0:
			continue
		case (ka == 0 || kb == 0 || !whole) && u.ka&u.kb == 0 && u.ka != 0 && u.kb != 0:
			ka, kb, where = u.ka, u.kb, ""
		case ka == 0 || kb == 0 || !whole:
			continue
		}
		return x.mismatch(u, ka.any(), kb.any(), where)
	}
	return nil
}

// mismatch says that a field is of one kind and what it is compared with of another.
func (x *Expr) mismatch(u *unlike, is, with kind, where string) error {
	hint := ""
	switch lit := u.b.lit; {
	case is == kindObject:
		hint = "compare a member of it: " + pathText(u.a.path) + ".NAME"
	case lit == nil:
	case is == kindNumber && with == kindString:
		if _, ok := parseNumber(lit.str); ok {
			hint = "write " + lit.str + " without quotes"
		}
	case is == kindBool && (lit.str == "true" || lit.str == "false"):
		hint = "write " + lit.str + " without quotes"
	case is == kindString && with == kindNumber:
		hint = "write it in quotes"
	case is == kindString && with == kindBool && lit.yes:
		hint = "compare it with something, as " + pathText(u.a.path) + ` == "…"`
	}
	what := kindNames[with]
	if u.b.path != nil {
		what = pathText(u.b.path) + ", " + what
	}
	return (&lexer{text: x.text}).fault(u.a.at, hint, "%s is compared with %s, and is %s%s", pathText(u.a.path), what, kindNames[is], where)
}

// everyDoc goes through what was recorded until f returns false. whole tells that every payload could be opened.
func everyDoc(ctx context.Context, lr *ledger.Reader, f func(*Doc) bool) (whole bool, err error) {
	open := newOpener(lr)
	for rec, err := range lr.Records(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return false, err
		}
		more := true
		acc, err := open.each(rec, true, func(_ int, d *Doc) error {
			more = more && f(d)
			return nil
		})
		switch {
		case err != nil:
			return false, err
		case acc != opened:
			return false, nil
		case !more:
			return true, nil
		}
	}
	return true, nil
}
