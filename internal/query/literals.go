package query

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
)

// A value that a field can't have finds nothing too, and says as little of why: a type with a slip of the pen, a number in
// quotes. A type must be one that bodycam records, or one that something in the log has; of other fields, what finds
// nothing is held against the kinds of value (number, text, truth) that the field has in the log.

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
var kindNames = map[kind]string{kindBool: "true or false", kindNumber: "a number", kindString: "a text"}

// checkKinds makes sure, of an expression that found nothing, that its fields aren't compared with values of a kind that
// they never have.
func (x *Expr) checkKinds(ctx context.Context, lr *ledger.Reader) error {
	type compared struct {
		field *operand
		lit   *value
		seen  map[kind]bool
	}
	var all []*compared
	x.literals(func(field *operand, lit *value) {
		if lit.kind != kindNull {
			all = append(all, &compared{field, lit, map[kind]bool{}})
		}
	})
	if len(all) == 0 {
		return nil
	}
	whole, err := everyDoc(ctx, lr, func(d *Doc) bool {
		for _, c := range all {
			c.field.each(d, func(v *value) bool {
				c.seen[v.kind] = true
				return false
			})
		}
		return true
	})
	if err != nil || !whole {
		return err
	}
	for _, c := range all {
		delete(c.seen, kindNull)
		if len(c.seen) == 0 || c.seen[c.lit.kind] {
			continue
		}
		is, hint := slices.Sorted(maps.Keys(c.seen))[0], ""
		if _, ok := parseNumber(c.lit.str); ok && is == kindNumber {
			hint = "write " + c.lit.str + " without quotes"
		}
		return (&lexer{text: x.text}).fault(c.field.at, hint, "%s is compared with %s, and is %s in all that was recorded",
			pathText(c.field.path), kindNames[c.lit.kind], kindNames[is])
	}
	return nil
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
