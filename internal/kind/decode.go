package kind

import (
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// decoder fills Go values from nodes. It goes on after a fault, so that a file's faults are told together.
type decoder struct {
	probs Problems
	// unknown is called for a key that the type doesn't have; nil makes it a problem.
	unknown func(path string, e entry, n *node)
	path    []string
	ofTask  bool // the file is a task.yaml
}

// A nodeReader reads itself from a node.
type nodeReader interface {
	readNode(d *decoder, n *node)
}

// A nodeChecker checks what the fields alone can't show, after they were read.
type nodeChecker interface {
	checkNode(d *decoder, n *node)
}

func (d *decoder) fail(n *node, format string, args ...any) {
	d.probs = append(d.probs, n.problem(format, args...))
}

func (d *decoder) wrongType(n *node, want string) {
	name := "the file"
	if len(d.path) > 0 {
		name = strings.Join(d.path, ".")
	}
	d.fail(n, "%s: want %s, got %s", name, want, n.show())
}

// field is a struct field as files know it.
type field struct {
	key      string
	index    int
	doc      string
	enum     []string
	check    string
	required bool
	number   bool // text that may be written as a number
}

func fieldsOf(t reflect.Type) []field {
	var fs []field
	for i := range t.NumField() {
		sf := t.Field(i)
		key, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if key == "" || key == "-" {
			continue
		}
		f := field{key: key, index: i, doc: sf.Tag.Get("doc"), check: sf.Tag.Get("check"), required: sf.Tag.Get("required") == "true",
			number: sf.Tag.Get("number") == "true"}
		if e := sf.Tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, ",")
		}
		fs = append(fs, f)
	}
	return fs
}

var (
	rawType    = reflect.TypeFor[json.RawMessage]()
	readerType = reflect.TypeFor[nodeReader]()
)

// decode reads n into v, which can be set. f describes the struct field that v belongs to.
func (d *decoder) decode(n *node, v reflect.Value, f field) {
	if n.kind == nullNode {
		return
	}
	if v.Addr().Type().Implements(readerType) {
		before := len(d.probs)
		v.Addr().Interface().(nodeReader).readNode(d, n)
		if len(d.probs) == before {
			d.check(n, f)
		}
		return
	}
	if v.Type() == rawType {
		v.SetBytes(n.json())
		return
	}
	switch v.Kind() {
	case reflect.String:
		if n.kind != textNode && !(f.number && (n.kind == intNode || n.kind == floatNode)) {
			d.wrongType(n, "text")
			return
		}
		v.SetString(n.text)
		d.enum(n, f)
		d.check(n, f)
	case reflect.Bool:
		if n.kind != boolNode {
			d.wrongType(n, "true or false")
			return
		}
		v.SetBool(n.text == "true")
	case reflect.Int, reflect.Int64:
		i, ok := n.integer()
		if !ok {
			d.wrongType(n, "a whole number")
			return
		}
		v.SetInt(i)
		d.check(n, f)
	case reflect.Float64:
		x, ok := n.float()
		if !ok || x < 0 || math.IsInf(x, 0) || math.IsNaN(x) {
			d.wrongType(n, "a number, at least 0, as 1.5")
			return
		}
		v.SetFloat(x)
		d.check(n, f)
	case reflect.Slice:
		d.decodeList(n, v, f)
	case reflect.Map:
		d.decodeMap(n, v, f)
	case reflect.Struct:
		d.decodeStruct(n, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), f)
	default:
		panic("kind: type without a reader: " + v.Type().String()) // a fault in this package, found by its tests
	}
}

func (d *decoder) decodeList(n *node, v reflect.Value, f field) {
	if n.kind != listNode {
		d.wrongType(n, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.path = append(d.path, strconv.Itoa(i))
		if item.kind == nullNode {
			d.wrongType(item, "a value")
		} else {
			d.decode(item, out.Index(i), f)
		}
		d.path = d.path[:len(d.path)-1]
	}
	v.Set(out)
}

func (d *decoder) decodeMap(n *node, v reflect.Value, f field) {
	if n.kind != mapNode {
		d.wrongType(n, "a map")
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.entries))
	for _, e := range n.entries {
		if e.val.kind == nullNode && v.Type().Elem() != rawType {
			continue
		}
		if f.check == "env" && !envName(e.key) {
			d.probs = append(d.probs, Problem{n.src.name, e.line, e.col, quote(e.key) + " can't be the name of an environment variable"})
		}
		d.path = append(d.path, e.key)
		el := reflect.New(v.Type().Elem()).Elem()
		d.decode(e.val, el, f)
		d.path = d.path[:len(d.path)-1]
		out.SetMapIndex(reflect.ValueOf(e.key), el)
	}
	v.Set(out)
}

func (d *decoder) decodeStruct(n *node, v reflect.Value) {
	if n.kind != mapNode {
		d.wrongType(n, "a map")
		return
	}
	fields := fieldsOf(v.Type())
	have := map[string]bool{}
	for _, e := range n.entries {
		key, appends := strings.CutPrefix(e.key, "+")
		f, ok := findField(fields, key)
		if ok && appends && v.Field(f.index).Kind() != reflect.Slice {
			d.probs = append(d.probs, Problem{n.src.name, e.line, e.col, "+" + key + ": only a list can be added to; write " + key})
			continue
		}
		if !ok {
			d.unknownKey(n, e, fields)
			continue
		}
		have[key] = have[key] || e.val.kind != nullNode
		d.path = append(d.path, key)
		target := v.Field(f.index)
		if appends && n.get(key) != nil {
			d.probs = append(d.probs, Problem{n.src.name, e.line, e.col, "both " + key + " and +" + key + ": one replaces, the other adds; write one"})
		}
		d.decode(e.val, target, f)
		d.path = d.path[:len(d.path)-1]
	}
	for _, f := range fields {
		if f.required && !have[f.key] {
			d.fail(n, "%s is missing: %s", strings.Join(append(d.path[:len(d.path):len(d.path)], f.key), "."), f.doc)
		}
	}
	if c, ok := v.Addr().Interface().(nodeChecker); ok {
		c.checkNode(d, n)
	}
}

func findField(fs []field, key string) (field, bool) {
	for _, f := range fs {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}

func (d *decoder) unknownKey(n *node, e entry, fields []field) {
	if d.unknown != nil {
		d.unknown(strings.Join(d.path, "."), e, n)
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	msg := "unknown key " + e.key
	if len(d.path) > 0 {
		msg += " in " + strings.Join(d.path, ".")
	}
	bare := strings.TrimPrefix(e.key, "+")
	if near := Nearest(bare, names); near != "" {
		msg += ": did you mean " + near + "?"
	} else if paths := keyPaths(bare); len(paths) > 0 && d.ofTask {
		msg += ": a task can't set it; a kind can, as " + strings.Join(paths, " or ")
	} else if len(paths) == 1 && paths[0] == bare {
		msg += ": it stands by itself, at the top of the file"
	} else if len(paths) > 0 {
		msg += ": did you mean " + strings.Join(paths, " or ") + "?"
	} else {
		msg += ": known are " + strings.Join(names, ", ")
	}
	d.probs = append(d.probs, Problem{n.src.name, e.line, e.col, msg})
}

func (d *decoder) enum(n *node, f field) {
	if len(f.enum) == 0 {
		return
	}
	for _, e := range f.enum {
		if n.text == e {
			return
		}
	}
	msg := "want " + strings.Join(f.enum, ", ")
	if near := Nearest(n.text, f.enum); near != "" {
		msg = "did you mean " + near + "? (" + msg + ")"
	}
	d.fail(n, "%s: unknown value %s: %s", strings.Join(d.path, "."), quote(n.text), msg)
}

func (n *node) integer() (int64, bool) {
	if n.kind != intNode {
		return 0, false
	}
	i, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
	return i, err == nil
}

func (n *node) float() (float64, bool) {
	switch n.kind {
	case intNode:
		i, ok := n.integer()
		return float64(i), ok
	case floatNode:
		x, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
		return x, err == nil
	}
	return 0, false
}

// json is the node as JSON, for parts that others read.
func (n *node) json() []byte {
	b, err := json.Marshal(n.value())
	if err != nil { // only numbers that JSON has no form for; value turns those into text
		panic("kind: " + err.Error())
	}
	return b
}

func (n *node) value() any {
	switch n.kind {
	case boolNode:
		return n.text == "true"
	case intNode:
		if i, ok := n.integer(); ok {
			return i
		}
		return n.text
	case floatNode:
		if x, ok := n.float(); ok && !math.IsInf(x, 0) && !math.IsNaN(x) {
			return x
		}
		return n.text
	case textNode:
		return n.text
	case listNode:
		out := make([]any, len(n.items))
		for i, it := range n.items {
			out[i] = it.value()
		}
		return out
	case mapNode:
		out := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			out[e.key] = e.val.value()
		}
		return out
	}
	return nil
}

// The types that read themselves.

func (v *Duration) readNode(d *decoder, n *node) {
	if n.kind != intNode && n.kind != floatNode && n.kind != textNode {
		d.wrongType(n, "a duration (600, 10m)")
		return
	}
	got, err := ParseDuration(n.text)
	if err != nil {
		d.fail(n, "%s: %v", strings.Join(d.path, "."), err)
	}
	*v = got
}

func (v *Size) readNode(d *decoder, n *node) {
	if n.kind != intNode && n.kind != floatNode && n.kind != textNode {
		d.wrongType(n, "a size (1048576, 512M)")
		return
	}
	got, err := ParseSize(n.text)
	if err != nil {
		d.fail(n, "%s: %v", strings.Join(d.path, "."), err)
	}
	*v = got
}

func (v *Date) readNode(d *decoder, n *node) {
	if n.kind != textNode {
		d.wrongType(n, "a day (2027-01-31)")
		return
	}
	got, err := ParseDate(n.text)
	if err != nil {
		d.fail(n, "%s: %v", strings.Join(d.path, "."), err)
	}
	*v = got
}

func (v *Command) readNode(d *decoder, n *node) {
	switch {
	case n.kind == textNode && strings.TrimSpace(n.text) != "" && !strings.Contains(n.text, "\x00"):
		*v = Command{Shell: n.text}
		return
	case n.kind == listNode && len(n.items) == 0:
		d.fail(n, "%s: the list is empty: want at least the program", strings.Join(d.path, "."))
		return
	case n.kind != listNode:
		d.wrongType(n, "a command (text for the shell, or a list of arguments)")
		return
	}
	args := make([]string, len(n.items))
	for i, it := range n.items {
		if it.kind == listNode || it.kind == mapNode || it.kind == nullNode || strings.Contains(it.text, "\x00") {
			d.wrongType(it, "an argument")
			return
		}
		args[i] = it.text
	}
	if args[0] == "" {
		d.fail(n.items[0], "%s: the program's name is empty", strings.Join(d.path, "."))
	}
	*v = Command{Argv: args}
}

func (v *ExitSet) readNode(d *decoder, n *node) {
	if n.kind == textNode && n.text == "any" {
		*v = ExitSet{Any: true}
		return
	}
	items := n.items
	if n.kind != listNode {
		items = []*node{n}
	}
	var codes []int
	for _, it := range items {
		i, ok := it.integer()
		if !ok || i < 0 || i > 255 {
			d.wrongType(it, "an exit status (0 to 255, a list of them, or any)")
			return
		}
		codes = append(codes, int(i))
	}
	*v = ExitSet{Codes: codes}
}

func (v *HostPath) readNode(d *decoder, n *node) {
	if n.kind != textNode || n.text == "" || strings.Contains(n.text, "\x00") {
		d.wrongType(n, "a path")
		return
	}
	p, ok := n.src.abs(n.text)
	if !ok {
		d.fail(n, "%s: %s is relative, but a built-in kind has no directory", strings.Join(d.path, "."), quote(n.text))
		return
	}
	if n.src.confined && !isUnder(p, n.src.dir) {
		d.fail(n, "%s: %s lies outside the task's directory", strings.Join(d.path, "."), quote(n.text))
		return
	}
	*v = HostPath(p)
}

// abs makes a path absolute as the file that names it means it.
func (s *source) abs(p string) (string, bool) {
	if filepath.IsAbs(p) {
		return filepath.Clean(p), true
	}
	if s.dir == "" {
		return "", false
	}
	return filepath.Join(s.dir, p), true
}

func (v *Analysis) readNode(d *decoder, n *node) {
	if n.kind == textNode {
		*v = Analysis{Name: n.text, dir: n.src.dir}
		return
	}
	if n.kind != mapNode {
		d.wrongType(n, "an analysis (its name, or a map)")
		return
	}
	type plain Analysis // without this method
	var p plain
	d.decodeStruct(n, reflect.ValueOf(&p).Elem())
	*v = Analysis(p)
	v.dir = n.src.dir
}
