package query

import (
	"context"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
)

// A field's name with a slip of the pen would find nothing, and nothing would say why. So a name must be one that what
// bodycam records can have, or that something in the log has: other programs record what they like.

// eventFields are the members of an event's JSON, otherFields those of approvals and delegations.
var (
	eventFields = strings.Fields(`seq time boot type syscall abi flags pid pid_start tid ppid uid exe argv cwd path path_given dev_ino access bytes
		proto laddr addr port host host_source errno count window sensor error ppid_start gid session script argv_len argv_sha256 path2 path2_given
		bytes_read bytes_written mapped last_boot unix answers cookie child_pid child_start signal status exit_code marks detail`)
	otherFields = strings.Fields(`record digest approver prompt decision time signature key
		role to scope nonce subject parent log signer records raw`)
)

// vocabulary is every name, with dots, that a payload of bodycam's can have. The value tells that any name may follow.
var vocabulary = sync.OnceValue(func() map[string]bool {
	v := map[string]bool{"tool": false, "text": false}
	for _, name := range slices.Concat(eventFields, otherFields) {
		v[name] = false
	}
	for _, side := range []string{"request.", "accept."} {
		for _, name := range otherFields {
			v[side+name] = false
		}
		v[strings.TrimSuffix(side, ".")] = false
	}
	for _, t := range []any{bodycam.Action{}, bodycam.Finding{}, bodycam.Row{}, bodycam.Run{}, payload.FileHead{}} {
		addFields(v, "", reflect.TypeOf(t))
	}
	return v
})

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// addFields adds the members of a type's JSON form.
func addFields(v map[string]bool, prefix string, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		if t == reflect.TypeFor[json.RawMessage]() {
			break
		}
		t = t.Elem()
	}
	name := strings.TrimSuffix(prefix, ".")
	known := func(name string) {
		if _, ok := v[name]; !ok {
			v[name] = false
		}
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Map, t.Kind() == reflect.Interface:
		v[name] = true
	case t.Kind() != reflect.Struct, t.Implements(jsonMarshaler), t.Implements(textMarshaler):
		known(name) // a scalar: nothing follows
	default:
		if name != "" {
			known(name)
		}
		for i := range t.NumField() {
			f := t.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && tag == "":
				addFields(v, prefix, f.Type)
			case f.IsExported() && tag != "-":
				if tag == "" {
					tag = f.Name
				}
				addFields(v, prefix+tag+".", f.Type)
			}
		}
	}
}

// mayBe tells whether a payload of bodycam's can have a path.
func mayBe(path []step) bool {
	v := vocabulary()
	text := pathText(path)
	if _, ok := v[text]; ok {
		return true
	}
	for i := len(text); i > 0; i = strings.LastIndexByte(text[:i], '.') {
		if v[text[:i]] {
			return true
		}
	}
	return false
}

// checkFields makes sure that every field of an expression can be there: it is one of bodycam's, or some payload of the
// log has it. Where payloads are closed or erased, theirs can't be known, and nothing is wrong.
func (x *Expr) checkFields(ctx context.Context, lr *ledger.Reader) error {
	var unknown []*operand
	x.root.operands(func(o *operand) {
		if o.path[0].name != "record" && !mayBe(o.path) {
			unknown = append(unknown, o)
		}
	})
	if len(unknown) == 0 {
		return nil
	}
	whole, err := everyDoc(ctx, lr, func(d *Doc) bool {
		unknown = slices.DeleteFunc(unknown, func(o *operand) bool { return has(d.Body, o.path) })
		return len(unknown) > 0
	})
	if err != nil || !whole || len(unknown) == 0 {
		return err
	}
	o := unknown[0]
	name := pathText(o.path)
	hint := `"bodycam query --help" says which fields there are`
	if near := nearest(name); near != "" {
		hint = "did you mean " + near + "?"
	}
	return (&lexer{text: x.text}).fault(o.at, hint, "nothing that was recorded has a field %q", name)
}

// has tells whether something is at a path, through lists too.
func has(raw []byte, path []step) bool {
	raw = space(raw)
	switch {
	case len(raw) == 0:
		return false
	case len(path) == 0:
		return true
	case raw[0] == '[':
		rest, at := path, path[0].index
		if at >= 0 {
			rest = path[1:]
		}
		return elements(raw, func(i int, e []byte) bool { return (at < 0 || i == at) && has(e, rest) })
	case raw[0] == '{' && path[0].index < 0:
		return members(raw, func(key, v []byte) bool { return keyIs(key, path[0].name) && has(v, path[1:]) })
	}
	return false
}

// nearest is the name that was probably meant: one that ends with what was written, or the one with the fewest letters to
// change. It is "" where none is near.
func nearest(name string) string {
	names := slices.Sorted(maps.Keys(vocabulary()))
	for _, n := range names {
		if strings.HasSuffix(n, "."+name) {
			return n
		}
	}
	return nearestOf(name, names)
}

// nearestOf is the first of the names with the fewest letters to change, "" where half of them would have to be.
func nearestOf(name string, names []string) string {
	best, least := "", len(name)/2+1
	for _, n := range names {
		if d := distance(name, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is how many letters must be put in, left out, replaced or swapped with the next to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
