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

// eventFields are the members of an event's JSON, otherFields those of approvals and delegations; after each name its kinds of
// value, by their letters in [kindLetters].
var (
	eventFields = strings.Fields(`seq:n time:t boot:n type:t syscall:t abi:t flags:n pid:n pid_start:n tid:n ppid:n uid:n exe:t argv:t cwd:t path:t path_given:t
		dev_ino:t access:t bytes:n proto:t laddr:t addr:t port:n host:t host_source:t errno:n count:n window:t sensor:t error:t ppid_start:n gid:n session:n
		script:t argv_len:n argv_sha256:t path2:t path2_given:t bytes_read:n bytes_written:n mapped:b last_boot:n unix:t answers:t cookie:n child_pid:n
		child_start:n signal:n status:n exit_code:n marks:t detail:t`)
	otherFields = strings.Fields(`record:n digest:t approver:t prompt:t decision:t time:nt signature:t key:t
		role:t to:t scope:t nonce:t subject:t parent:nt log:t signer:t records:n raw:t`)
	kindLetters = map[rune]kind{'b': kindBool, 'n': kindNumber, 't': kindString}
)

// kindSet is a set of kinds of value; the empty one says that nothing is known.
type kindSet uint8

func setOf(kinds ...kind) (s kindSet) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// any is the first kind of the set.
func (s kindSet) any() kind {
	for k := kindBool; k <= kindObject; k++ {
		if s&setOf(k) != 0 {
			return k
		}
	}
	return kindNull
}

// named is what is known of a name.
type named struct {
	kinds kindSet // of its values
	open  bool    // any name may follow, of values of
	below kindSet
}

// spelt reads name:kinds.
func spelt(field string) (name string, s kindSet) {
	name, letters, _ := strings.Cut(field, ":")
	for _, l := range letters {
		s |= setOf(kindLetters[l])
	}
	return name, s
}

// vocabulary is every name, with dots, that a payload of bodycam's can have.
var vocabulary = sync.OnceValue(func() map[string]named {
	v := map[string]named{"tool": {kinds: setOf(kindString)}, "text": {kinds: setOf(kindString)}}
	add := func(prefix string, fields []string) {
		for _, f := range fields {
			name, s := spelt(f)
			v[prefix+name] = named{kinds: s | v[prefix+name].kinds}
		}
	}
	add("", eventFields)
	add("", otherFields)
	for _, side := range []string{"request", "accept"} {
		add(side+".", otherFields)
		v[side] = named{kinds: setOf(kindObject)}
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
func addFields(v map[string]named, prefix string, t reflect.Type) {
	for t != reflect.TypeFor[[]byte]() && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		if t == reflect.TypeFor[json.RawMessage]() {
			break
		}
		t = t.Elem()
	}
	name := strings.TrimSuffix(prefix, ".")
	known := func(name string, s kindSet) { v[name] = named{kinds: s | v[name].kinds, open: v[name].open} }
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		v[name] = named{open: true}
	case t.Kind() == reflect.Map:
		v[name] = named{kinds: setOf(kindObject), open: true, below: kindsOf(t.Elem())}
	case t.Kind() != reflect.Struct, t.Implements(jsonMarshaler), t.Implements(textMarshaler):
		known(name, kindsOf(t)) // a scalar: nothing follows
	default:
		if name != "" {
			known(name, setOf(kindObject))
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

// kindsOf are the kinds of value that a type's JSON form has.
func kindsOf(t reflect.Type) kindSet {
	if t == reflect.TypeFor[[]byte]() {
		return setOf(kindString)
	}
	b, err := json.Marshal(reflect.Zero(t).Interface())
	if v, ok := scalar(b); err == nil && ok && v.kind != kindNull {
		return setOf(v.kind)
	}
	return 0
}

// mayBe tells whether a payload of bodycam's can have a path, and with what kinds of value.
func mayBe(path []step) (kinds kindSet, ok bool) {
	v := vocabulary()
	text := pathText(path)
	if n, ok := v[text]; ok {
		return n.kinds, true
	}
	for i := len(text); i > 0; i = strings.LastIndexByte(text[:i], '.') {
		if n := v[text[:i]]; n.open {
			return n.below, true
		}
	}
	return 0, false
}

// checkFields makes sure that every field of an expression can be there: it is one of bodycam's, or some payload of the
// log has it. Where payloads are closed or erased, theirs can't be known, and nothing is wrong.
func (x *Expr) checkFields(ctx context.Context, lr *ledger.Reader) error {
	var unknown []*operand
	x.root.operands(func(o *operand) {
		if _, ok := mayBe(o.path); o.path[0].name != "record" && !ok {
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
