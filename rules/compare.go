package rules

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// getter is a field or transformer ready to be asked. Exactly one of the functions is set.
type getter struct {
	typ   string // string, int, bool, sign, ip, net, type, kind, list, names
	name  string // for messages
	str   strGetter
	int   intGetter
	list  listGetter // list: a set of strings; names: any of them
	addr  addrGetter
	paths func(*machine) []string           // where set, list gives part of each of these
	part  func(string) string               // nil: all of it
	ints  func(*machine, int) (int64, bool) // ports: either end
	types typeSet
	from  origins
}

func (g *getter) text() bool {
	return g.typ == "string" || g.typ == "list" || g.typ == "names" || g.typ == "type" || g.typ == "kind"
}

func (g *getter) exists() pred {
	switch {
	case g.str != nil:
		f := g.str
		return func(m *machine) bool { _, ok := f(m); return ok }
	case g.int != nil:
		f := g.int
		return func(m *machine) bool { _, ok := f(m); return ok }
	case g.list != nil:
		f := g.list
		return func(m *machine) bool { _, ok := f(m, 0); return ok }
	case g.ints != nil:
		f := g.ints
		return func(m *machine) bool { _, ok := f(m, 0); return ok }
	}
	f := g.addr
	return func(m *machine) bool { _, ok := f(m, 0); return ok }
}

// term makes the getter of a field or transformer. It reports what is wrong and returns false, or notes a gap and
// returns false.
func (c *compiler) term(t *term, positive bool) (getter, bool) {
	switch t.kind {
	case fieldTerm:
		return c.field(t, positive)
	case callTerm:
		return c.transform(t, positive)
	case literalTerm:
		s := t.lit.s
		if t.lit.number {
			n, err := strconv.ParseInt(s, 0, 64)
			if err != nil {
				c.errorf(t.off, "%q is not a whole number", s)
				return getter{}, false
			}
			return getter{typ: "int", name: s, types: allTypes, int: func(*machine) (int64, bool) { return n, true }}, true
		}
		return getter{typ: "string", name: strconv.Quote(s), types: allTypes, str: func(*machine) (string, bool) { return s, true }}, true
	}
	return c.listTerm(t, positive)
}

func (c *compiler) field(t *term, positive bool) (getter, bool) {
	name := t.name
	if (name == "evt.arg" || name == "evt.rawarg") && t.hasArg {
		name, t = name+"."+t.arg, &term{kind: fieldTerm, off: t.off, name: name + "." + t.arg}
	}
	f, ok := lookupField(name)
	if !ok {
		c.unknown = append(c.unknown, gap{name, nearest(name, fieldTable().names), c.txt.mark(t.off), false})
		return getter{}, false
	}
	if !f.Supplied {
		c.gaps = append(c.gaps, gap{name, f.Meaning, c.txt.mark(t.off), false})
		return getter{}, false
	}
	if err := f.checkArg(t.arg, t.hasArg); err != nil {
		c.errorf(t.off, "%v", err)
		return getter{}, false
	}
	c.uses = append(c.uses, name)
	if c.unguarded {
		// The check is asked about the field's event types only.
		c.unguarded = false
		return findGetter(f, name, t, positive, c.set), true
	}
	return makeGetter(f, name, t, positive, c.set), true
}

// makeGetter makes the getter of a supplied field. It gives a value for the event types of the field's table only.
func makeGetter(f *Field, name string, t *term, positive bool, set *Set) getter {
	g := findGetter(f, name, t, positive, set)
	if f.types != allTypes {
		g.guard()
	}
	return g
}

func (g *getter) guard() {
	types := g.types
	switch {
	case g.str != nil:
		f := g.str
		g.str = func(m *machine) (string, bool) {
			if !types.has(m.ev.Type) {
				return "", false
			}
			return f(m)
		}
	case g.int != nil:
		f := g.int
		g.int = func(m *machine) (int64, bool) {
			if !types.has(m.ev.Type) {
				return 0, false
			}
			return f(m)
		}
	case g.list != nil:
		f := g.list
		g.paths = nil
		g.list = func(m *machine, i int) (string, bool) {
			if !types.has(m.ev.Type) {
				return "", false
			}
			return f(m, i)
		}
	case g.ints != nil:
		f := g.ints
		g.ints = func(m *machine, i int) (int64, bool) {
			if !types.has(m.ev.Type) {
				return 0, false
			}
			return f(m, i)
		}
	case g.addr != nil:
		f := g.addr
		g.addr = func(m *machine, i int) (netip.AddrPort, bool) {
			if !types.has(m.ev.Type) {
				return netip.AddrPort{}, false
			}
			return f(m, i)
		}
	}
}

// findGetter finds the functions behind a field.
func findGetter(f *Field, name string, t *term, positive bool, set *Set) getter {
	g := getter{typ: f.Type, name: name, types: f.types, from: originOf(f, name)}
	if f.Const {
		g.constant(set, name, t)
		return g
	}
	if names, ok := pathGetters[name]; ok {
		g.path(f.Type, names, positive)
		if name == "fd.name" {
			g.orEnds()
		}
		return g
	}
	if step, ok := ancestorGetters[name]; ok {
		g.ancestor(step, t)
		return g
	}
	if name == "proc.apid" {
		pid := func(m *machine, i int) (int64, bool) {
			if p := m.ancestor(i); p != nil && p.ID.PID != 0 {
				return int64(p.ID.PID), true
			}
			return 0, false
		}
		if t.hasArg {
			n := parseIndex(t.arg)
			g.int = func(m *machine) (int64, bool) { return pid(m, n) }
		} else {
			g.ints = func(m *machine, i int) (int64, bool) { return pid(m, i+1) }
		}
		return g
	}
	if strings.HasPrefix(name, "sequence.") {
		g.step(name, parseIndex(t.arg))
		return g
	}
	if g.str, _ = strGetters[name]; g.str != nil {
		return g
	}
	if g.int, _ = intGetters[name]; g.int != nil {
		return g
	}
	if g.list, _ = listGetters[name]; g.list != nil {
		return g
	}
	g.ends(name)
	return g
}

func (g *getter) constant(set *Set, name string, t *term) {
	key := name
	if t.hasArg {
		key += "[" + t.arg + "]"
	}
	fallback, known := constantDefaults[name]
	text := func(m *machine) (string, bool) {
		if v, ok := m.ctx.Sandbox().Constants[key]; ok {
			return v, true
		}
		return fallback, known
	}
	if g.typ == "bool" {
		g.int = func(m *machine) (int64, bool) { s, ok := text(m); return is(s == "true", ok) }
		return
	}
	g.str = text
}

// constantDefaults are the constants that need no word from the run.
var constantDefaults = map[string]string{"container.id": "sandbox", "container.full_id": "sandbox", "container.name": "sandbox",
	"container.type": "bodycam", "container.privileged": "false"}

// path gives all names of a file to a check that raises an alert, and only the canonical one to a check that
// excuses: a second name must neither hide a file nor clear it.
func (g *getter) path(typ string, names func(*machine) []string, positive bool) {
	var part func(string) string
	switch typ {
	case "dir":
		part = dirOf
	case "base":
		part = baseOf
	}
	if positive {
		g.typ, g.paths, g.part = "names", names, part
		g.list = func(m *machine, i int) (string, bool) {
			l := names(m)
			if i >= len(l) {
				return "", false
			}
			if part != nil {
				return part(l[i]), true
			}
			return l[i], true
		}
		return
	}
	g.typ = "string"
	g.str = func(m *machine) (string, bool) {
		l := names(m)
		if len(l) == 0 {
			return "", false
		}
		if part != nil {
			return part(l[0]), true
		}
		return l[0], true
	}
}

// orEnds lets fd.name be the ends of a connection.
func (g *getter) orEnds() {
	if str := g.str; str != nil {
		g.str = func(m *machine) (string, bool) {
			if netTypes.has(m.ev.Type) {
				return some(m.ends())
			}
			return str(m)
		}
		return
	}
	list := g.list
	g.paths = nil
	g.list = func(m *machine, i int) (string, bool) {
		if netTypes.has(m.ev.Type) {
			if i > 0 {
				return "", false
			}
			return some(m.ends())
		}
		return list(m, i)
	}
}

func (g *getter) ancestor(step func(*Process) (string, bool), t *term) {
	if t.hasArg {
		n := parseIndex(t.arg)
		g.str = func(m *machine) (string, bool) { return step(m.ancestor(n)) }
		return
	}
	g.typ = "names"
	g.list = func(m *machine, i int) (string, bool) { return step(m.ancestor(i + 1)) }
}

// step is a field of an earlier step, for the output of sequences.
func (g *getter) step(name string, n int) {
	if name == "sequence.event" {
		g.int = func(m *machine) (int64, bool) {
			if n < 1 || n > len(m.steps) {
				return 0, false
			}
			return int64(m.steps[n-1].event), true
		}
		return
	}
	g.str = func(m *machine) (string, bool) {
		if n < 1 || n > len(m.steps) {
			return "", false
		}
		return some(m.steps[n-1].resource)
	}
}

// ends finds the address and port fields: fd.sip, fd.snet, fd.sport …
func (g *getter) ends(name string) {
	if name == "host.addr" {
		g.addr = addrGetters["r"]
		return
	}
	side := strings.TrimPrefix(name, "fd.")
	for _, suffix := range []string{"ip", "net", "port"} {
		if s, ok := strings.CutSuffix(side, suffix); ok {
			end := addrGetters[s]
			if suffix == "port" {
				g.ints = func(m *machine, i int) (int64, bool) { a, ok := end(m, i); return int64(a.Port()), ok }
				return
			}
			g.addr = end
			return
		}
	}
	panic("rules: fields.tsv names a field without a getter: " + name)
}

// compareValues compiles a comparison with literals.
func (c *compiler) compareValues(k *checkExpr, left getter, vals []value) (pred, bool) {
	op := k.op
	if op == "in" && len(vals) == 0 || k.mod != "" && len(vals) == 0 {
		return never, true
	}
	switch left.typ {
	case "int", "bool", "sign":
		return c.compareInts(k, left, vals)
	case "ip", "net":
		return c.compareAddrs(k, left, vals)
	}
	var m matcher
	switch op {
	case "<", "<=", ">", ">=":
		c.errorf(k.opOff, "%s is text: %s compares numbers", left.name, op)
		return nil, false
	case "in", "intersects":
		m = setMatcher(texts(vals))
	case "pmatch":
		m = newPathTree(texts(vals)).match
	default:
		ms := make([]matcher, 0, len(vals))
		for _, v := range vals {
			one, err := stringMatcher(op, v.s)
			if err != nil {
				c.errorf(v.off, "%v", err)
				return nil, false
			}
			ms = append(ms, one)
		}
		switch {
		case k.mod == "" && len(ms) == 1:
			m = ms[0]
		case op == "=" && k.mod == "anyof":
			m = setMatcher(texts(vals))
		case op == "endswith" && k.mod == "anyof":
			m = endsWithAny(texts(vals))
		default:
			m = modified(k.mod, ms)
		}
	}
	return textPred(op, left, m), true
}

func texts(vals []value) []string {
	out := make([]string, len(vals))
	for i, v := range vals {
		out[i] = v.s
	}
	return out
}

// textPred asks a matcher about one text, about any of several, or, for != and for a set with in, about all.
func textPred(op string, left getter, match matcher) pred {
	if left.str != nil {
		get := left.str
		return func(m *machine) bool {
			s, ok := get(m)
			return ok && match(s)
		}
	}
	if left.paths != nil && left.part == nil && op != "!=" {
		paths := left.paths
		return func(m *machine) bool {
			for _, s := range paths(m) {
				if match(s) {
					return true
				}
			}
			return false
		}
	}
	get := left.list
	if op == "!=" || op == "in" && left.typ == "list" {
		return func(m *machine) bool {
			for i := 0; ; i++ {
				s, ok := get(m, i)
				if !ok {
					return i > 0
				}
				if !match(s) {
					return false
				}
			}
		}
	}
	return func(m *machine) bool {
		for i := 0; ; i++ {
			s, ok := get(m, i)
			if !ok {
				return false
			}
			if match(s) {
				return true
			}
		}
	}
}

func (c *compiler) compareInts(k *checkExpr, left getter, vals []value) (pred, bool) {
	nums := make([]int64, 0, len(vals))
	for _, v := range vals {
		n, err := parseNumber(v.s, left.typ == "bool")
		if err != nil {
			c.errorf(v.off, "%s wants a %s, not %q", left.name, map[bool]string{true: "true or false", false: "number"}[left.typ == "bool"], v.s)
			return nil, false
		}
		nums = append(nums, n)
	}
	if left.typ == "sign" {
		for i, n := range nums {
			if !signTells(k.op, n) {
				c.gaps = append(c.gaps, gap{left.name, fmt.Sprintf("of a call that worked only that the result is not negative is recorded: %s %d can't be told", k.op, n), c.txt.mark(vals[i].off), false})
				return nil, false
			}
		}
	}
	var match func(int64) bool
	switch {
	case k.op == "=" && k.mod == "", k.op == "in", k.op == "intersects", k.op == "=" && k.mod != "allof":
		match = intSet(nums)
	case k.op == "=" && k.mod == "allof":
		match = func(n int64) bool { return intSet(nums)(n) && len(nums) == 1 }
	case k.op == "!=" && (k.mod == "" || k.mod == "allof"):
		in := intSet(nums)
		match = func(n int64) bool { return !in(n) }
	case k.op == "!=" && k.mod == "anyof":
		in := intSet(nums)
		match = func(n int64) bool { return len(nums) > 1 || !in(n) }
	case left.typ == "bool":
		c.errorf(k.opOff, "%s is true or false: only = and != make sense", left.name)
		return nil, false
	case contains(orderOps, k.op):
		match = ordered(k.op, nums[0])
	default:
		c.errorf(k.opOff, "%s is a number: %s can't be used with it", left.name, strings.TrimSpace(k.op+" "+k.mod))
		return nil, false
	}
	return intPred(k.op, left, match), true
}

func intPred(op string, left getter, match func(int64) bool) pred {
	if left.int != nil {
		get := left.int
		return func(m *machine) bool {
			n, ok := get(m)
			return ok && match(n)
		}
	}
	get := left.ints
	return func(m *machine) bool {
		for i := 0; ; i++ {
			n, ok := get(m, i)
			if !ok {
				return op == "!=" && i > 0
			}
			if match(n) != (op == "!=") {
				return op != "!="
			}
		}
	}
}

func ordered(op string, want int64) func(int64) bool {
	switch op {
	case "<":
		return func(n int64) bool { return n < want }
	case "<=":
		return func(n int64) bool { return n <= want }
	case ">":
		return func(n int64) bool { return n > want }
	}
	return func(n int64) bool { return n >= want }
}

func intSet(nums []int64) func(int64) bool {
	if len(nums) == 1 {
		want := nums[0]
		return func(n int64) bool { return n == want }
	}
	return func(n int64) bool {
		for _, v := range nums {
			if v == n {
				return true
			}
		}
		return false
	}
}

// signTells is whether a comparison has the same answer for every result that isn't negative.
func signTells(op string, n int64) bool {
	switch op {
	case ">=", "<":
		return n <= 0
	}
	return n < 0
}

func parseNumber(s string, boolean bool) (int64, error) {
	if boolean {
		switch strings.ToLower(s) {
		case "true", "1":
			return 1, nil
		case "false", "0":
			return 0, nil
		}
		return 0, strconv.ErrSyntax
	}
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		n, err := strconv.ParseUint(s[2:], 16, 64)
		return int64(n), err
	}
	return strconv.ParseInt(strings.TrimPrefix(s, "+"), 10, 64)
}

func (c *compiler) compareAddrs(k *checkExpr, left getter, vals []value) (pred, bool) {
	if !contains([]string{"=", "!=", "in", "intersects"}, k.op) {
		c.errorf(k.opOff, "%s is an address: only =, !=, in and intersects make sense", left.name)
		return nil, false
	}
	var nets []netip.Prefix
	for _, v := range vals {
		p, err := parsePrefix(v.s)
		if err != nil || left.typ == "ip" && !p.IsSingleIP() {
			hint := ""
			if err == nil {
				hint = "for networks use " + strings.Replace(left.name, "ip", "net", 1)
			}
			c.hint(v.off, hint, "%s wants an address, not %q", left.name, v.s)
			return nil, false
		}
		nets = append(nets, p)
	}
	get := left.addr
	want := k.op != "!="
	return func(m *machine) bool {
		for i := 0; ; i++ {
			a, ok := get(m, i)
			if !ok {
				return !want && i > 0
			}
			if inNets(nets, a.Addr().Unmap()) {
				return want
			}
		}
	}, true
}

func inNets(nets []netip.Prefix, a netip.Addr) bool {
	for _, n := range nets {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		return p.Masked(), err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// compareTerms compiles a comparison of two fields.
func (c *compiler) compareTerms(k *checkExpr, left getter, positive bool) (p pred, from origins, ok bool) {
	right, ok := c.term(k.right, positive)
	if !ok {
		return nil, 0, false
	}
	from = left.from | right.from
	if left.text() && right.text() {
		p, ok = c.compareTexts(k, left, right)
		return p, from, ok
	}
	if left.typ == "sign" || right.typ == "sign" {
		c.gaps = append(c.gaps, gap{left.name, "only the sign of a successful result is recorded: it can't be compared with a field", c.txt.mark(k.off), false})
		return nil, 0, false
	}
	if left.int != nil && right.int != nil {
		var cmp func(a, b int64) bool
		switch k.op {
		case "=":
			cmp = func(a, b int64) bool { return a == b }
		case "!=":
			cmp = func(a, b int64) bool { return a != b }
		case "<", "<=", ">", ">=":
			op := k.op
			cmp = func(a, b int64) bool {
				return op == "<" && a < b || op == "<=" && a <= b || op == ">" && a > b || op == ">=" && a >= b
			}
		default:
			c.errorf(k.opOff, "%s is a number: %s can't be used with it", left.name, k.op)
			return nil, 0, false
		}
		a, b := left.int, right.int
		return func(m *machine) bool {
			x, ok1 := a(m)
			y, ok2 := b(m)
			return ok1 && ok2 && cmp(x, y)
		}, from, true
	}
	c.errorf(k.opOff, "%s and %s can't be compared: one is %s, the other %s", left.name, right.name, left.typ, right.typ)
	return nil, 0, false
}

func (c *compiler) compareTexts(k *checkExpr, left, right getter) (pred, bool) {
	var cmp func(a, b string) bool
	switch k.op {
	case "=", "in", "intersects":
		cmp = func(a, b string) bool { return a == b }
	case "!=":
		cmp = func(a, b string) bool { return a != b }
	case "contains":
		cmp = strings.Contains
	case "icontains":
		cmp = func(a, b string) bool { return containsFold(b)(a) }
	case "startswith":
		cmp = strings.HasPrefix
	case "endswith":
		cmp = strings.HasSuffix
	case "glob":
		cmp = func(a, b string) bool { return glob(b, a, false) }
	case "pmatch":
		cmp = func(a, b string) bool { _, ok := below(a, strings.TrimSuffix(b, "/")); return ok }
	default:
		c.errorf(k.opOff, "%s wants a literal on its right side", k.op)
		return nil, false
	}
	a, b := left.each(), right.each()
	all := k.op == "!=" || k.op == "in" && left.typ == "list"
	return func(m *machine) bool {
		for i := 0; ; i++ {
			x, ok := a(m, i)
			if !ok {
				return all && i > 0
			}
			hit := false
			for j := 0; ; j++ {
				y, ok := b(m, j)
				if !ok {
					if j == 0 {
						return false
					}
					break
				}
				if cmp(x, y) {
					hit = true
				} else if k.op == "!=" {
					return false
				}
			}
			if hit != all {
				return hit
			}
		}
	}, true
}

// each gives the texts one by one, also where there is only one.
func (g *getter) each() listGetter {
	if g.list != nil {
		return g.list
	}
	get := g.str
	return func(m *machine, i int) (string, bool) {
		if i > 0 {
			return "", false
		}
		return get(m)
	}
}
