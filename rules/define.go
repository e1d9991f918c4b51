package rules

import (
	"fmt"
	"strings"
)

// Definitions as the files give them, after all appending and replacing, before anything is compiled.

type listDef struct {
	name  string
	at    mark
	items []value
	flat  []string // with the lists that it names put in, once worked out
}

type macroDef struct {
	name string
	at   mark
	cond text
	ast  expr
}

type ruleDef struct {
	name       string
	at         mark
	cond       text
	hasCond    bool
	output     text
	desc       string
	priority   Priority
	tags       []string
	exceptions []*exception
	enabled    bool
	warnTypes  bool
	skip       bool // skip-if-unknown-filter
	source     string
	mode       Mode
	class      string
	example    string
	sequence   *sequenceDef
	threshold  *thresholdDef
	order      int
}

// exception is a named set of conditions under which a rule stays silent.
type exception struct {
	name   string
	at     mark
	single bool // fields is one field, values a list of texts
	fields []exceptionField
	values []*node
	file   int32
}

type exceptionField struct {
	field string
	at    mark
	op    string
	mod   string
}

// definitions collects what the files say.
type definitions struct {
	loader *loader
	file   int32
	lists  map[string]*listDef
	macros map[string]*macroDef
	rules  map[string]*ruleDef
	count  int
}

func (d *definitions) mark(n *node) mark { return mark{d.file, int32(n.line), int32(n.col)} }

func (d *definitions) fail(n *node, about, format string, args ...any) {
	d.loader.report(d.mark(n), about, fmt.Sprintf(format, args...), "")
}

// missing reports a key that isn't there, and the one that may have been meant for it.
func (d *definitions) missing(at, n *node, about, key string, known []string, what string) {
	var other []string
	for _, k := range n.keys {
		if !contains(known, k.s) {
			other = append(other, k.s)
		}
	}
	hint := ""
	for _, k := range other {
		if nearest(k, []string{key}) != "" {
			hint = fmt.Sprintf("%q is no key: did you mean %q?", k, key)
		}
	}
	d.loader.report(d.mark(at), about, what, hint)
}

func (d *definitions) warn(n *node, about, hint, format string, args ...any) {
	d.loader.warn(d.mark(n), about, fmt.Sprintf(format, args...), hint)
}

var (
	listKeys  = []string{"list", "items", "append", "override"}
	macroKeys = []string{"macro", "condition", "append", "override"}
	ruleKeys  = []string{"rule", "condition", "desc", "output", "priority", "tags", "exceptions", "enabled", "warn_evttypes",
		"skip-if-unknown-filter", "source", "append", "override", "capture", "capture_duration", "mode", "class", "example", "sequence", "threshold"}
	exceptionKeys = []string{"name", "fields", "comps", "values"}
	sequenceKeys  = []string{"by", "within", "taint", "steps"}
	thresholdKeys = []string{"sum", "distinct", "over", "within", "by"}
	appendable    = []string{"condition", "output", "desc", "tags", "exceptions"}
	replaceable   = []string{"condition", "output", "desc", "priority", "tags", "exceptions", "enabled", "warn_evttypes",
		"skip-if-unknown-filter", "capture", "capture_duration", "mode", "class", "example", "sequence", "threshold"}
)

// item takes in one element of a file.
func (d *definitions) item(n *node) {
	if n.kind != mapNode {
		d.fail(n, "", "each element is a mapping that begins with rule, macro, list, required_engine_version or required_plugin_versions")
		return
	}
	switch {
	case n.get("required_engine_version") != nil:
		d.engineVersion(n.get("required_engine_version"))
	case n.get("required_plugin_versions") != nil:
		d.plugins(n.get("required_plugin_versions"))
	case n.get("list") != nil:
		d.list(n)
	case n.get("macro") != nil:
		d.macro(n)
	case n.get("rule") != nil:
		d.rule(n)
	default:
		hint := ""
		if len(n.keys) > 0 {
			hint = nearest(n.keys[0].s, []string{"rule", "macro", "list", "required_engine_version", "required_plugin_versions"})
		}
		d.warn(n, "", hint, "this element is none of rule, macro and list: it is ignored")
	}
}

// engineVersion is Falco's engine of which the language is followed.
const engineVersion = "0.60.0"

func (d *definitions) engineVersion(n *node) {
	var have, want [3]int
	fmt.Sscanf(engineVersion, "%d.%d.%d", &have[0], &have[1], &have[2])
	if k, _ := fmt.Sscanf(n.s, "%d.%d.%d", &want[0], &want[1], &want[2]); k != 3 {
		var minor int
		if k, err := fmt.Sscanf(n.s, "%d", &minor); k != 1 || err != nil || strings.Contains(n.s, ".") {
			d.fail(n, "", "required_engine_version wants a number or x.y.z, not %q", n.s)
			return
		}
		want = [3]int{0, minor, 0}
	}
	for i := range have {
		if want[i] != have[i] {
			if want[i] > have[i] {
				d.warn(n, "", "", "the file was written for engine %s; %s is followed here, so it may use what is not known", n.s, engineVersion)
			}
			return
		}
	}
}

func (d *definitions) plugins(n *node) {
	if n.kind != listNode {
		d.fail(n, "", "required_plugin_versions wants a list of name and version")
		return
	}
	for _, p := range n.list {
		name := p.get("name")
		if name == nil || p.get("version") == nil {
			d.fail(p, "", "a required plugin wants name and version")
			continue
		}
		if name.s != "container" { // its fields are supplied as constants of the sandbox
			d.warn(p, "", "", "plugin %s: there are no plugins here; rules that need its fields are unsupported", name.s)
		}
	}
}

// text of a scalar, with the places of its bytes.
func (d *definitions) text(n *node) text {
	return align(n.s, d.loader.files[d.file].data, d.file, n.line, n.col)
}

// scalar gets a key that must be a text; nil and a report where it isn't.
func (d *definitions) scalar(n *node, about, key string) *node {
	v := n.get(key)
	if v == nil || v.kind == scalarNode {
		return v
	}
	d.fail(v, about, "%s wants a text", key)
	return nil
}

func (d *definitions) boolean(n *node, about, key string, fallback bool) bool {
	v := d.scalar(n, about, key)
	if v == nil {
		return fallback
	}
	switch strings.ToLower(v.s) {
	case "true", "yes", "on":
		return true
	case "false", "no", "off":
		return false
	}
	d.fail(v, about, "%s wants true or false, not %q", key, v.s)
	return fallback
}

func (d *definitions) unknownKeys(n *node, about string, known []string) {
	for _, k := range n.keys {
		if !contains(known, k.s) {
			d.warn(k, about, nearest(k.s, known), "unknown key %q is ignored", k.s)
		}
	}
}

// override reads the override section: which keys are appended and which replaced.
func (d *definitions) override(n *node, about string, canAppend, canReplace []string) (add, replace map[string]bool, ok bool) {
	o := n.get("override")
	if o == nil {
		return nil, nil, true
	}
	if o.kind != mapNode {
		d.fail(o, about, "override wants a mapping of keys to append or replace")
		return nil, nil, false
	}
	add, replace, ok = map[string]bool{}, map[string]bool{}, true
	for i, k := range o.keys {
		v := o.values[i]
		allowed, into := canAppend, add
		switch v.s {
		case "append":
		case "replace":
			allowed, into = canReplace, replace
		default:
			d.fail(v, about, "override of %s wants append or replace, not %q", k.s, v.s)
			ok = false
			continue
		}
		switch {
		case !contains(allowed, k.s):
			d.loader.report(d.mark(k), about, fmt.Sprintf("%s can't be overridden with %s", k.s, v.s), nearest(k.s, allowed))
			ok = false
		case n.get(k.s) == nil:
			d.fail(k, about, "override names %s, but there is no %s here", k.s, k.s)
			ok = false
		}
		into[k.s] = true
	}
	if d.boolean(n, about, "append", false) {
		d.fail(o, about, "append: true and override can't be used together")
		ok = false
	}
	return add, replace, ok
}

// items reads list items. One that carries its own quotes is a literal, never the name of a list.
func (d *definitions) items(n *node, about string) []value {
	if n.kind == nullNode {
		return nil
	}
	if n.kind != listNode {
		d.fail(n, about, "items wants a list")
		return nil
	}
	out := make([]value, 0, len(n.list))
	for _, it := range n.list {
		if it.kind != scalarNode {
			d.fail(it, about, "an item wants a text or a number")
			continue
		}
		out = append(out, d.item1(it, about))
	}
	return out
}

func (d *definitions) item1(it *node, about string) value {
	s := it.s
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		lit, n, e := unquote(s)
		if e == nil && n == len(s) {
			return value{s: lit}
		}
		if e != nil {
			d.fail(it, about, "%s", e.msg)
		}
	}
	return value{s: s, bare: true}
}

func (d *definitions) list(n *node) {
	name := d.scalar(n, "", "list")
	if name == nil || name.s == "" {
		d.fail(n, "", "a list wants a name")
		return
	}
	about := "list " + name.s
	d.unknownKeys(n, about, listKeys)
	add, _, ok := d.override(n, about, []string{"items"}, []string{"items"})
	if !ok {
		return
	}
	items := n.get("items")
	if items == nil {
		d.fail(n, about, "a list wants items")
		return
	}
	vals := d.items(items, about)
	if d.boolean(n, about, "append", false) || add["items"] {
		prev := d.lists[name.s]
		if prev == nil {
			d.noSuch(name, about, "list", keysOf(d.lists))
			return
		}
		prev.items = append(prev.items, vals...)
		return
	}
	d.lists[name.s] = &listDef{name: name.s, at: d.mark(name), items: vals}
}

func keysOf[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

func (d *definitions) noSuch(n *node, about, what string, known []string) {
	d.loader.report(d.mark(n), about, "there is no "+what+" of that name before it to change", nearest(n.s, known))
}

func (d *definitions) macro(n *node) {
	name := d.scalar(n, "", "macro")
	if name == nil || name.s == "" {
		d.fail(n, "", "a macro wants a name")
		return
	}
	about := "macro " + name.s
	d.unknownKeys(n, about, macroKeys)
	add, _, ok := d.override(n, about, []string{"condition"}, []string{"condition"})
	cond := d.scalar(n, about, "condition")
	if cond == nil {
		d.missing(n, n, about, "condition", macroKeys, "a macro wants a condition")
		return
	}
	if !ok {
		return
	}
	t := d.text(cond)
	if d.boolean(n, about, "append", false) || add["condition"] {
		prev := d.macros[name.s]
		if prev == nil {
			d.noSuch(name, about, "macro", keysOf(d.macros))
			return
		}
		prev.cond = prev.cond.join(" ", t)
		return
	}
	d.macros[name.s] = &macroDef{name: name.s, at: d.mark(name), cond: t}
}
