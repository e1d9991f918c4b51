package rules

import (
	_ "embed"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
)

//go:embed fields.tsv
var fieldsTSV string

// Field describes a field of the language, as `bodycam rules fields` prints it.
type Field struct {
	Name     string
	Type     string // string, int, bool, ip, net, type, kind, sign, list, names, path, path2, dir, base
	Arg      string // "", "index", "index?", "key", "key?"
	Supplied bool   // our events can supply it; where not, a rule whose condition needs it is unsupported
	Const    bool   // the same for all events of a run
	Events   string // event types that can have it
	Meaning  string // or, where it is not supplied, the reason

	types typeSet
}

var fieldTable = sync.OnceValue(readFields)

type fieldIndex struct {
	list   []*Field
	byName map[string]*Field
	names  []string
}

var typeGroups = map[string][]bodycam.Type{
	"@file": {bodycam.TypeOpen, bodycam.TypeClose, bodycam.TypeCreate, bodycam.TypeTruncate, bodycam.TypeRename,
		bodycam.TypeLink, bodycam.TypeSymlink, bodycam.TypeUnlink, bodycam.TypeMkdir, bodycam.TypeRmdir,
		bodycam.TypeChmod, bodycam.TypeChown, bodycam.TypeXattr, bodycam.TypeUtime, bodycam.TypeChdir,
		bodycam.TypeMount, bodycam.TypeMmap, bodycam.TypeUring},
	"@net": {bodycam.TypeConnect, bodycam.TypeBind, bodycam.TypeListen, bodycam.TypeAccept, bodycam.TypeSend,
		bodycam.TypeFlow},
}

func readFields() *fieldIndex {
	x := &fieldIndex{byName: map[string]*Field{}}
	for line := range strings.Lines(fieldsTSV) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		c := strings.Split(line, "\t")
		if len(c) != 6 {
			panic("rules: fields.tsv: want six columns: " + line)
		}
		f := &Field{Name: c[0], Type: c[1], Supplied: c[3] != "no", Const: c[3] == "const", Meaning: c[5]}
		if c[2] != "-" {
			f.Arg = c[2]
		}
		f.types = parseTypes(c[4])
		f.Events = f.types.String()
		x.list = append(x.list, f)
		x.byName[f.Name] = f
		x.names = append(x.names, f.Name)
	}
	return x
}

func parseTypes(s string) typeSet {
	if s == "all" {
		return allTypes
	}
	var set typeSet
	for _, n := range strings.Split(s, ",") {
		if n == "none" {
			continue
		}
		if g, ok := typeGroups[n]; ok {
			for _, t := range g {
				set |= 1 << t
			}
			continue
		}
		t, ok := bodycam.ParseType(n)
		if !ok {
			panic("rules: fields.tsv: unknown event type " + n)
		}
		set |= 1 << t
	}
	return set
}

// Fields lists the fields of the language by name.
func Fields() []Field {
	var out []Field
	for _, f := range fieldTable().list {
		out = append(out, *f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// lookupField finds a field by name. A name below a field that isn't supplied (k8s.ns.label.app) is that field.
// ok is false where nothing of the kind is known.
func lookupField(name string) (f *Field, ok bool) {
	x := fieldTable()
	if f, ok = x.byName[name]; ok {
		return f, true
	}
	for _, p := range []string{"evt.arg.", "evt.rawarg."} {
		if strings.HasPrefix(name, p) {
			return &Field{Name: name, Type: "string", Meaning: "this argument is not recorded"}, true
		}
	}
	for cut := strings.LastIndexByte(name, '.'); cut > 0; cut = strings.LastIndexByte(name[:cut], '.') {
		if f, ok = x.byName[name[:cut]]; ok && (!f.Supplied || f.Const && f.Arg != "") {
			return f, true
		}
	}
	return nil, false
}

// checkArg tells whether the argument of a field is as the field wants it.
func (f *Field) checkArg(arg string, has bool) error {
	kind, optional := strings.CutSuffix(f.Arg, "?")
	switch {
	case f.Arg == "" && has:
		return fmt.Errorf("%s takes no argument", f.Name)
	case kind != "" && !optional && !has:
		return fmt.Errorf("%s wants an argument: %s[…]", f.Name, f.Name)
	case kind == "index" && has:
		if n := parseIndex(arg); n < 0 {
			return fmt.Errorf("%s wants a number from 0 to %d in brackets, not %q", f.Name, maxIndex, arg)
		}
	}
	return nil
}

const maxIndex = 1000

func parseIndex(s string) int {
	n := 0
	if s == "" || len(s) > 4 {
		return -1
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	if n > maxIndex {
		return -1
	}
	return n
}
