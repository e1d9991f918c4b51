package rules

import (
	"fmt"
	"strings"
	"time"
)

// rule takes in a rule, or a change to one.
func (d *definitions) rule(n *node) {
	name := d.scalar(n, "", "rule")
	if name == nil || name.s == "" {
		d.fail(n, "", "a rule wants a name")
		return
	}
	about := name.s
	d.unknownKeys(n, about, ruleKeys)
	add, replace, ok := d.override(n, about, appendable, replaceable)
	if !ok {
		return
	}
	prev := d.rules[name.s]
	switch {
	case d.boolean(n, about, "append", false):
		if prev == nil {
			d.noSuch(name, about, "rule", keysOf(d.rules))
			return
		}
		if n.get("condition") == nil && n.get("exceptions") == nil {
			d.fail(n, about, "append: true wants a condition or exceptions to append")
			return
		}
		d.change(prev, n, about, map[string]bool{"condition": n.get("condition") != nil, "exceptions": n.get("exceptions") != nil}, nil)
	case len(add)+len(replace) > 0:
		if prev == nil {
			d.noSuch(name, about, "rule", keysOf(d.rules))
			return
		}
		for _, k := range n.keys {
			if k.s != "rule" && k.s != "override" && k.s != "source" && contains(ruleKeys, k.s) && !add[k.s] && !replace[k.s] {
				d.fail(k, about, "%s is given, but override doesn't say what to do with it", k.s)
				return
			}
		}
		d.change(prev, n, about, add, replace)
	case n.get("enabled") != nil && n.get("condition") == nil && n.get("sequence") == nil && n.get("desc") == nil && n.get("output") == nil:
		if prev == nil {
			d.noSuch(name, about, "rule", keysOf(d.rules))
			return
		}
		prev.enabled = d.boolean(n, about, "enabled", prev.enabled)
	default:
		d.newRule(n, name, about)
	}
}

func (d *definitions) newRule(n, name *node, about string) {
	r := &ruleDef{name: name.s, at: d.mark(name), enabled: true, warnTypes: true, source: "syscall", order: d.count}
	d.count++
	if old := d.rules[name.s]; old != nil {
		r.order = old.order
	}
	for _, key := range []string{"desc", "output", "priority"} {
		if n.get(key) == nil {
			d.missing(name, n, about, key, ruleKeys, "a rule wants "+key)
		}
	}
	switch c, s := n.get("condition"), n.get("sequence"); {
	case c == nil && s == nil:
		d.missing(name, n, about, "condition", ruleKeys, "a rule wants a condition or a sequence")
	case c != nil && s != nil:
		d.fail(name, about, "a rule wants a condition or a sequence, and not both")
	}
	if s := d.scalar(n, about, "source"); s != nil {
		r.source = s.s
	}
	all := map[string]bool{}
	for _, k := range replaceable {
		all[k] = n.get(k) != nil
	}
	d.change(r, n, about, nil, all)
	d.rules[name.s] = r
}

// change appends to and replaces parts of a rule.
func (d *definitions) change(r *ruleDef, n *node, about string, add, replace map[string]bool) {
	for _, key := range appendable {
		if !add[key] {
			continue
		}
		switch key {
		case "condition":
			if v := d.scalar(n, about, key); v != nil {
				r.cond, r.hasCond = r.cond.join(" ", d.text(v)), true
			}
		case "output":
			if v := d.scalar(n, about, key); v != nil {
				r.output = r.output.join(" ", d.text(v))
			}
		case "desc":
			if v := d.scalar(n, about, key); v != nil {
				r.desc = strings.TrimSpace(r.desc) + " " + strings.TrimSpace(v.s)
			}
		case "tags":
			r.tags = append(r.tags, d.tags(n.get(key), about)...)
		case "exceptions":
			d.addExceptions(r, n.get(key), about)
		}
	}
	for _, key := range replaceable {
		if replace[key] {
			d.replace(r, n, about, key)
		}
	}
}

func (d *definitions) replace(r *ruleDef, n *node, about, key string) {
	v := n.get(key)
	switch key {
	case "tags":
		r.tags = d.tags(v, about)
		return
	case "exceptions":
		r.exceptions = nil
		d.addExceptions(r, v, about)
		return
	case "sequence":
		r.sequence = d.sequence(v, about)
		return
	case "threshold":
		r.threshold = d.threshold(v, about)
		return
	case "enabled":
		r.enabled = d.boolean(n, about, key, true)
		return
	case "warn_evttypes":
		r.warnTypes = d.boolean(n, about, key, true)
		return
	case "skip-if-unknown-filter":
		r.skip = d.boolean(n, about, key, false)
		return
	}
	if v = d.scalar(n, about, key); v == nil {
		return
	}
	switch key {
	case "condition":
		r.cond, r.hasCond = d.text(v), true
	case "output":
		t := d.text(v)
		end := len(strings.TrimRight(t.s, " \n"))
		r.output = text{t.s[:end], t.at[:end]}
	case "desc":
		r.desc = strings.TrimSpace(v.s)
	case "class":
		r.class = v.s
	case "example":
		r.example = strings.TrimSpace(v.s)
	case "priority":
		p, ok := ParsePriority(v.s)
		if !ok {
			d.loader.report(d.mark(v), about, fmt.Sprintf("unknown priority %q: want %s", v.s, strings.Join(priorityNames, ", ")), nearest(strings.ToLower(v.s), priorityNames))
		}
		r.priority = p
	case "mode":
		m, ok := parseMode(v.s)
		if !ok {
			d.loader.report(d.mark(v), about, fmt.Sprintf("unknown mode %q: want alert, stop or deny", v.s), nearest(v.s, modeNames))
		}
		r.mode = m
	}
}

func (d *definitions) tags(n *node, about string) []string {
	if n == nil || n.kind == nullNode {
		return nil
	}
	if n.kind != listNode {
		d.fail(n, about, "tags wants a list")
		return nil
	}
	var out []string
	for _, t := range n.list {
		if t.kind != scalarNode {
			d.fail(t, about, "a tag is a word")
			continue
		}
		out = append(out, t.s)
	}
	return out
}

// addExceptions adds exceptions, and values to those that the rule already has.
func (d *definitions) addExceptions(r *ruleDef, n *node, about string) {
	if n == nil || n.kind == nullNode {
		return
	}
	if n.kind != listNode {
		d.fail(n, about, "exceptions wants a list")
		return
	}
	for _, x := range n.list {
		name := d.scalar(x, about, "name")
		if x.kind != mapNode || name == nil {
			d.fail(x, about, "an exception wants a name")
			continue
		}
		d.unknownKeys(x, about, exceptionKeys)
		ex := &exception{name: name.s, at: d.mark(name), file: d.file}
		if v := x.get("values"); v != nil && v.kind != nullNode {
			if v.kind != listNode {
				d.fail(v, about, "values of exception %s wants a list", ex.name)
				continue
			}
			ex.values = v.list
		}
		var prev *exception
		for _, p := range r.exceptions {
			if p.name == ex.name {
				prev = p
			}
		}
		switch {
		case x.get("fields") == nil && prev != nil:
			if x.get("comps") != nil {
				d.fail(x.get("comps"), about, "exception %s exists: only values can be added", ex.name)
				continue
			}
			prev.values = append(prev.values, ex.values...)
		case x.get("fields") == nil:
			d.missing(x, x, about, "fields", exceptionKeys, fmt.Sprintf("exception %s wants fields", ex.name))
		case prev != nil && d.exceptionFields(ex, x, about):
			d.fail(x.get("fields"), about, "exception %s exists: only values can be added", ex.name)
		case prev == nil && d.exceptionFields(ex, x, about):
			r.exceptions = append(r.exceptions, ex)
		}
	}
}

// exceptionFields reads fields and comps of an exception.
func (d *definitions) exceptionFields(ex *exception, x *node, about string) bool {
	fields, comps := x.get("fields"), x.get("comps")
	if fields.kind == scalarNode {
		ex.single = true
		op := "in"
		if comps != nil {
			if comps.kind != scalarNode {
				d.fail(comps, about, "comps of exception %s wants one operator, as fields is one field", ex.name)
				return false
			}
			op = comps.s
		}
		f, ok := d.exceptionField(fields, comps, op, about)
		if !ok {
			return false
		}
		if !contains(listOps, f.op) && f.mod == "" {
			d.fail(comps, about, "comps of exception %s wants in, pmatch, intersects or an operator with oneof, anyof or allof, as fields is one field", ex.name)
			return false
		}
		ex.fields = []exceptionField{f}
		return true
	}
	if fields.kind != listNode || len(fields.list) == 0 {
		d.fail(fields, about, "fields of exception %s wants a field or a list of fields", ex.name)
		return false
	}
	if comps != nil && (comps.kind != listNode || len(comps.list) != len(fields.list)) {
		d.fail(comps, about, "comps of exception %s wants as many operators as there are fields (%d)", ex.name, len(fields.list))
		return false
	}
	for i, fn := range fields.list {
		op, at := "=", fn
		if comps != nil {
			op, at = comps.list[i].s, comps.list[i]
		}
		f, ok := d.exceptionField(fn, at, op, about)
		if !ok {
			return false
		}
		ex.fields = append(ex.fields, f)
	}
	return true
}

func (d *definitions) exceptionField(n, opAt *node, op, about string) (exceptionField, bool) {
	f := exceptionField{field: n.s, at: d.mark(n)}
	if n.kind != scalarNode {
		d.fail(n, about, "a field is a text")
		return f, false
	}
	parts := strings.Fields(op)
	if len(parts) == 2 && contains(modifiers, parts[1]) {
		f.mod = parts[1]
		parts = parts[:1]
	}
	if len(parts) != 1 || !contains(operators(), parts[0]) {
		if opAt == nil {
			opAt = n
		}
		d.loader.report(d.mark(opAt), about, fmt.Sprintf("there is no operator %q", op), nearest(op, operators()))
		return f, false
	}
	if f.op = parts[0]; f.op == "==" {
		f.op = "="
	}
	return f, true
}

// withExceptions is the rule's condition and, for each exception that has values, "and not" its conditions.
func (d *definitions) withExceptions(r *ruleDef, cond expr) expr {
	xs := []expr{cond}
	for _, ex := range r.exceptions {
		if x := d.exceptionExpr(r, ex); x != nil {
			xs = append(xs, &notExpr{x.offset(), x})
		}
	}
	if len(xs) == 1 {
		return cond
	}
	return &andExpr{cond.offset(), xs}
}

// place makes an offset of the rule's text that stands for a place elsewhere.
func (r *ruleDef) place(at mark) int {
	r.cond.s += " "
	r.cond.at = append(r.cond.at[:len(r.cond.at):len(r.cond.at)], at)
	return len(r.cond.at) - 1
}

func (d *definitions) exceptionExpr(r *ruleDef, ex *exception) expr {
	d.file = ex.file
	if len(ex.values) == 0 {
		return nil
	}
	if ex.single {
		var vals []value
		for _, v := range ex.values {
			if v.kind != scalarNode {
				d.fail(v, r.name, "values of exception %s wants texts, as fields is one field", ex.name)
				return nil
			}
			vals = append(vals, d.exceptionValue(r, v))
		}
		return d.exceptionCheck(r, ex.fields[0], vals, true)
	}
	var rows []expr
	for _, row := range ex.values {
		if row.kind != listNode || len(row.list) != len(ex.fields) {
			d.fail(row, r.name, "each of the values of exception %s wants a list of %d, one for each field", ex.name, len(ex.fields))
			return nil
		}
		var xs []expr
		for i, cell := range row.list {
			f := ex.fields[i]
			list := contains(listOps, f.op) || f.mod != ""
			var vals []value
			switch {
			case cell.kind == scalarNode && list:
				// "(a, b)" in one text is a list too
				if s := strings.TrimSpace(cell.s); strings.HasPrefix(s, "(") && strings.HasSuffix(s, ")") {
					for part := range strings.SplitSeq(s[1:len(s)-1], ",") {
						vals = append(vals, d.exceptionValue(r, &node{s: strings.TrimSpace(part), line: cell.line, col: cell.col}))
					}
					break
				}
				vals = []value{d.exceptionValue(r, cell)}
			case cell.kind == scalarNode:
				vals = []value{d.exceptionValue(r, cell)}
			case cell.kind == listNode && list:
				for _, v := range cell.list {
					if v.kind != scalarNode {
						d.fail(v, r.name, "a value is a text")
						return nil
					}
					vals = append(vals, d.exceptionValue(r, v))
				}
			default:
				d.fail(cell, r.name, "operator %s of exception %s wants one value, not a list", f.op, ex.name)
				return nil
			}
			x := d.exceptionCheck(r, f, vals, list)
			if x == nil {
				return nil
			}
			xs = append(xs, x)
		}
		rows = append(rows, &andExpr{xs[0].offset(), xs})
	}
	return &orExpr{rows[0].offset(), rows}
}

func (d *definitions) exceptionValue(r *ruleDef, n *node) value {
	v := d.item1(n, r.name)
	v.off = r.place(d.mark(n))
	return v
}

func (d *definitions) exceptionCheck(r *ruleDef, f exceptionField, vals []value, list bool) expr {
	off := r.place(f.at)
	t, err := parseTerm(f.field)
	if err != nil {
		d.loader.report(f.at, r.name, err.msg, err.hint)
		return nil
	}
	moveTerm(t, off)
	// The values stand as if written in parentheses.
	return &checkExpr{off: off, opOff: off, left: t, op: f.op, mod: f.mod, vals: vals, list: list, inline: true}
}

func moveTerm(t *term, off int) {
	t.off = off
	for _, a := range t.args {
		moveTerm(a, off)
	}
}

// parseTerm reads a field or transformer that stands alone.
func parseTerm(s string) (t *term, err *syntax) {
	p := &condParser{s: s}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*syntax)
			if !ok {
				panic(r)
			}
			t, err = nil, e
		}
	}()
	t = p.fieldOrCall()
	if t == nil || p.i != len(s) {
		p.fail("want a field, found %q", s)
	}
	return t, nil
}

// sequenceDef is a sequence as the file gives it.
type sequenceDef struct {
	at     mark
	by     string
	within time.Duration
	taint  bool
	steps  []text
}

func (d *definitions) sequence(n *node, about string) *sequenceDef {
	if n.kind != mapNode {
		d.fail(n, about, "a sequence wants steps, by and within")
		return nil
	}
	d.unknownKeys(n, about, sequenceKeys)
	s := &sequenceDef{at: d.mark(n), by: byTree}
	if v := d.scalar(n, about, "by"); v != nil {
		s.by = v.s
		if !contains(byNames, s.by) {
			d.loader.report(d.mark(v), about, fmt.Sprintf("by wants %s, not %q", strings.Join(byNames, ", "), s.by), nearest(s.by, byNames))
		}
	}
	if v := d.scalar(n, about, "within"); v != nil {
		dur, err := time.ParseDuration(v.s)
		if err != nil || dur <= 0 {
			d.fail(v, about, "within wants a duration such as 30s or 10m, not %q", v.s)
		}
		s.within = dur
	}
	s.taint = d.boolean(n, about, "taint", false)
	steps := n.get("steps")
	if steps == nil {
		d.missing(n, n, about, "steps", sequenceKeys, "a sequence wants steps")
		return nil
	}
	if steps.kind != listNode || len(steps.list) < 2 || len(steps.list) > maxSteps {
		d.fail(n, about, "a sequence wants 2 to %d steps", maxSteps)
		return nil
	}
	for _, st := range steps.list {
		cond := st
		if st.kind == mapNode {
			d.unknownKeys(st, about, []string{"condition"})
			if cond = d.scalar(st, about, "condition"); cond == nil {
				d.missing(st, st, about, "condition", []string{"condition"}, "a step wants a condition")
				return nil
			}
		}
		if cond == nil || cond.kind != scalarNode {
			d.fail(st, about, "a step is a condition")
			return nil
		}
		s.steps = append(s.steps, d.text(cond))
	}
	return s
}

// thresholdDef is a threshold as the file gives it.
type thresholdDef struct {
	at     mark
	sum    text // field whose values are added up; empty: calls are counted
	unique text // field of which different values are counted
	over   int64
	by     string
	within time.Duration
}

func (d *definitions) threshold(n *node, about string) *thresholdDef {
	if n.kind != mapNode {
		d.fail(n, about, "a threshold wants over, within and by")
		return nil
	}
	d.unknownKeys(n, about, thresholdKeys)
	t := &thresholdDef{at: d.mark(n), by: byTree}
	if v := d.scalar(n, about, "sum"); v != nil {
		t.sum = d.text(v)
	}
	if v := d.scalar(n, about, "distinct"); v != nil {
		if t.unique = d.text(v); t.sum.s != "" {
			d.fail(v, about, "a threshold has sum or distinct, not both")
		}
	}
	if v := d.scalar(n, about, "by"); v != nil {
		t.by = v.s
		if !contains(byNames, t.by) {
			d.loader.report(d.mark(v), about, fmt.Sprintf("by wants %s, not %q", strings.Join(byNames, ", "), t.by), nearest(t.by, byNames))
		}
	}
	over, within := d.scalar(n, about, "over"), d.scalar(n, about, "within")
	if over == nil {
		d.missing(n, n, about, "over", thresholdKeys, "a threshold wants over (a number)")
	}
	if within == nil {
		d.missing(n, n, about, "within", thresholdKeys, "a threshold wants within (a duration)")
	}
	if over == nil || within == nil {
		return nil
	}
	var err error
	if t.over, err = parseNumber(over.s, false); err != nil || t.over <= 0 {
		d.fail(over, about, "over wants a number above 0, not %q", over.s)
	}
	if t.within, err = time.ParseDuration(within.s); err != nil || t.within <= 0 {
		d.fail(within, about, "within wants a duration such as 30s or 10m, not %q", within.s)
	}
	return t
}
