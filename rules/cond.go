package rules

import (
	"fmt"
	"strings"
)

// The grammar is Falco's (see doc.go). The parser works on bytes without a separate lexer, since what is a word
// depends on where it stands: "in" begins an operator after a field and is a value after "=".

type expr interface{ offset() int }

type (
	andExpr struct {
		off int
		xs  []expr
	}
	orExpr struct {
		off int
		xs  []expr
	}
	notExpr struct {
		off int
		x   expr
	}
	macroExpr struct {
		off  int
		name string
	}
	checkExpr struct {
		off   int
		left  *term
		op    string
		mod   string // oneof, anyof, allof
		opOff int
		// One of the three is the right side; none for exists.
		vals []value
		list bool // vals were written as a list
		// inline values came from an exception: all of them are values, none must be the name of a list.
		inline bool
		right  *term
	}
)

func (e *andExpr) offset() int   { return e.off }
func (e *orExpr) offset() int    { return e.off }
func (e *notExpr) offset() int   { return e.off }
func (e *macroExpr) offset() int { return e.off }
func (e *checkExpr) offset() int { return e.off }

// value is a literal. A bare one can be the name of a list.
type value struct {
	s      string
	bare   bool
	off    int
	number bool
}

type termKind uint8

const (
	fieldTerm termKind = iota
	callTerm           // a transformer
	literalTerm
	listTerm
)

// term is a field, a transformer with its arguments, or a literal among them.
type term struct {
	kind   termKind
	off    int
	name   string
	arg    string
	hasArg bool
	args   []*term
	lit    value
}

var (
	unaryOps     = []string{"exists"}
	orderOps     = []string{"<=", "<", ">=", ">"}
	stringOps    = []string{"==", "=", "!=", "glob", "iglob", "contains", "icontains", "bcontains", "startswith", "bstartswith", "endswith", "regex"}
	listOps      = []string{"intersects", "in", "pmatch"}
	modifiers    = []string{"oneof", "anyof", "allof"}
	transformers = []string{"tolower", "toupper", "b64", "basename", "len", "join", "concat", "getopt"}
)

func operators() []string {
	var out []string
	for _, ops := range [][]string{unaryOps, orderOps, stringOps, listOps} {
		out = append(out, ops...)
	}
	return out
}

// syntax is an error in a condition or an output template.
type syntax struct {
	off  int
	msg  string
	hint string
}

type condParser struct {
	s     string
	i     int
	depth int
}

// parseCondition reads a whole condition.
func parseCondition(s string) (x expr, err *syntax) {
	p := &condParser{s: s}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*syntax)
			if !ok {
				panic(r)
			}
			x, err = nil, e
		}
	}()
	p.blank()
	if p.i == len(p.s) {
		p.fail("the condition is empty")
	}
	x = p.or()
	p.blank()
	if p.i < len(p.s) {
		if p.s[p.i] == ')' {
			p.fail("')' without '('")
		}
		word := p.peekWord()
		if p.s[p.i] == '(' {
			if name := p.wordBefore(); name != "" {
				panic(&syntax{p.i - len(name), fmt.Sprintf("there is no transformer %q", name), nearest(name, transformers)})
			}
		}
		e := &syntax{p.i, fmt.Sprintf("unexpected %q: want \"and\" or \"or\"", word), ""}
		if h := nearest(word, []string{"and", "or"}); h != "" && len(word) <= 4 {
			e.hint = h
		} else if h := nearest(word, operators()); h != "" {
			e.hint = h
		}
		panic(e)
	}
	return x, nil
}

// wordBefore is the word that ends right before where the parser is.
func (p *condParser) wordBefore() string {
	from := p.i
	for from > 0 && (p.s[from-1] == '_' || p.s[from-1] >= 'a' && p.s[from-1] <= 'z' || p.s[from-1] >= '0' && p.s[from-1] <= '9') {
		from--
	}
	return p.s[from:p.i]
}

func (p *condParser) fail(format string, args ...any) {
	panic(&syntax{p.i, fmt.Sprintf(format, args...), ""})
}

func (p *condParser) enter() {
	if p.depth++; p.depth > 4*maxDepth {
		p.fail("the condition is nested too deeply")
	}
}
func (p *condParser) leave() { p.depth-- }

func (p *condParser) blank() bool {
	start := p.i
	for p.i < len(p.s) && isBlank(p.s[p.i]) {
		p.i++
	}
	return p.i > start
}

func (p *condParser) at(c byte) bool { return p.i < len(p.s) && p.s[p.i] == c }

func (p *condParser) take(c byte) bool {
	if p.at(c) {
		p.i++
		return true
	}
	return false
}

// keyword takes a word that is followed by a blank or a parenthesis.
func (p *condParser) keyword(w string) bool {
	if !strings.HasPrefix(p.s[p.i:], w) {
		return false
	}
	end := p.i + len(w)
	if end < len(p.s) && !isBlank(p.s[end]) && p.s[end] != '(' {
		return false
	}
	p.i = end
	return true
}

// peekWord is what stands here, for messages.
func (p *condParser) peekWord() string {
	end := p.i
	for end < len(p.s) && !isBlank(p.s[end]) && !strings.ContainsRune("(),", rune(p.s[end])) {
		end++
	}
	if end == p.i && end < len(p.s) {
		end++
	}
	if end == p.i {
		return "end of condition"
	}
	return p.s[p.i:min(end, p.i+40)]
}

func (p *condParser) or() expr {
	p.enter()
	defer p.leave()
	p.blank()
	off := p.i
	xs := []expr{p.and()}
	for {
		p.blank()
		if !p.keyword("or") {
			break
		}
		xs = append(xs, p.and())
	}
	if len(xs) == 1 {
		return xs[0]
	}
	return &orExpr{off, xs}
}

func (p *condParser) and() expr {
	p.blank()
	off := p.i
	xs := []expr{p.not()}
	for {
		p.blank()
		if !p.keyword("and") {
			break
		}
		xs = append(xs, p.not())
	}
	if len(xs) == 1 {
		return xs[0]
	}
	return &andExpr{off, xs}
}

func (p *condParser) not() expr {
	p.blank()
	off := p.i
	neg := false
	for p.keyword("not") {
		neg = !neg
		p.blank()
	}
	x := p.check()
	if neg {
		return &notExpr{off, x}
	}
	return x
}

func (p *condParser) check() expr {
	p.blank()
	off := p.i
	if p.take('(') {
		x := p.or()
		p.blank()
		if !p.take(')') {
			p.fail("want ')' here, found %q", p.peekWord())
		}
		return x
	}
	if t := p.fieldOrCall(); t != nil {
		return p.condition(off, t)
	}
	if id := p.identifier(); id != "" {
		return &macroExpr{off, id}
	}
	p.fail("want a field, a macro or '(' here, found %q", p.peekWord())
	return nil
}

func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isWord(c byte) bool  { return isAlpha(c) || isDigit(c) || c == '_' }

func (p *condParser) identifier() string {
	start := p.i
	if p.i < len(p.s) && isAlpha(p.s[p.i]) {
		for p.i < len(p.s) && isWord(p.s[p.i]) {
			p.i++
		}
	}
	return p.s[start:p.i]
}

// fieldName takes a dotted name, or nothing.
func (p *condParser) fieldName() string {
	start := p.i
	if p.identifier() == "" {
		return ""
	}
	dots := 0
	for p.i+1 < len(p.s) && p.s[p.i] == '.' && isAlpha(p.s[p.i+1]) {
		p.i++
		p.identifier()
		dots++
	}
	if dots == 0 {
		p.i = start
		return ""
	}
	return p.s[start:p.i]
}

// fieldOrCall takes a field or a transformer, or nothing.
func (p *condParser) fieldOrCall() *term {
	off := p.i
	if name := p.fieldName(); name != "" {
		t := &term{kind: fieldTerm, off: off, name: name}
		p.fieldArg(t)
		return t
	}
	if name := p.callName(transformers); name != "" {
		return p.call(off, name)
	}
	return nil
}

// callName takes one of the names and the parenthesis after it.
func (p *condParser) callName(names []string) string {
	for _, n := range names {
		if strings.HasPrefix(p.s[p.i:], n) && p.i+len(n) < len(p.s) && p.s[p.i+len(n)] == '(' {
			p.i += len(n) + 1
			return n
		}
	}
	return ""
}

func (p *condParser) fieldArg(t *term) {
	if !p.take('[') {
		return
	}
	t.hasArg = true
	if p.at('"') || p.at('\'') {
		t.arg = p.quoted()
	} else {
		start := p.i
		for p.i < len(p.s) && !isBlank(p.s[p.i]) && !strings.ContainsRune("[]\"'", rune(p.s[p.i])) {
			p.i++
		}
		t.arg = p.s[start:p.i]
	}
	if t.arg == "" {
		p.fail("want an argument between '[' and ']'")
	}
	if !p.take(']') {
		p.fail("want ']' here, found %q", p.peekWord())
	}
}

// call takes a transformer's arguments; its name and '(' are taken.
func (p *condParser) call(off int, name string) *term {
	p.enter()
	defer p.leave()
	t := &term{kind: callTerm, off: off, name: name}
	for {
		p.blank()
		t.args = append(t.args, p.callArg())
		p.blank()
		if !p.take(',') {
			break
		}
	}
	if !p.take(')') {
		p.fail("want ')' to end %s(…), found %q", name, p.peekWord())
	}
	p.fieldArg(t)
	return t
}

func (p *condParser) callArg() *term {
	off := p.i
	if p.take('(') {
		t := &term{kind: listTerm, off: off}
		p.blank()
		for !p.at(')') {
			p.blank()
			t.args = append(t.args, p.callArg())
			p.blank()
			if !p.take(',') {
				break
			}
		}
		if !p.take(')') {
			p.fail("want ')' to end the list, found %q", p.peekWord())
		}
		return t
	}
	if p.at('"') || p.at('\'') {
		return &term{kind: literalTerm, off: off, lit: value{s: p.quoted(), off: off}}
	}
	if n := p.number(); n != "" {
		return &term{kind: literalTerm, off: off, lit: value{s: n, off: off, number: true}}
	}
	if t := p.fieldOrCall(); t != nil {
		return t
	}
	p.fail("want a field, a transformer, a quoted string, a number or a list here, found %q", p.peekWord())
	return nil
}

func (p *condParser) number() string {
	start := p.i
	if p.at('+') || p.at('-') {
		p.i++
	}
	digits := p.i
	hex := strings.HasPrefix(p.s[p.i:], "0x") || strings.HasPrefix(p.s[p.i:], "0X")
	if hex {
		p.i += 2
	}
	for p.i < len(p.s) && (isDigit(p.s[p.i]) || p.s[p.i] == '.' || hex && isHexDigit(p.s[p.i])) {
		p.i++
	}
	if p.i == digits {
		p.i = start
	}
	return p.s[start:p.i]
}

func isHexDigit(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// operator takes an operator. Words need a blank after them, list operators may touch their parenthesis.
func (p *condParser) operator() string {
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">", "="} {
		if strings.HasPrefix(p.s[p.i:], op) {
			p.i += len(op)
			return op
		}
	}
	start := p.i
	w := p.identifier()
	for _, op := range operators() {
		if w != op {
			continue
		}
		if p.i == len(p.s) || isBlank(p.s[p.i]) || p.s[p.i] == '(' && contains(listOps, op) || op == "exists" {
			return op
		}
	}
	p.i = start
	return ""
}

func (p *condParser) condition(off int, left *term) expr {
	p.blank()
	c := &checkExpr{off: off, left: left, opOff: p.i}
	c.op = p.operator()
	switch {
	case c.op == "":
		word := p.peekWord()
		e := &syntax{p.i, fmt.Sprintf("want an operator after %s, found %q", left.name, word), nearest(word, operators())}
		panic(e)
	case c.op == "exists":
		return c
	case contains(orderOps, c.op):
		p.blank()
		if c.right = p.rightTerm(); c.right != nil {
			return c
		}
		at := p.i
		v := value{off: at, number: true}
		if p.at('"') || p.at('\'') {
			v.s = p.quoted()
		} else {
			v.s = p.number()
		}
		if v.s == "" {
			p.fail("want a number after %q, found %q", c.op, p.peekWord())
		}
		c.vals = []value{v}
	case contains(listOps, c.op):
		p.blank()
		p.listValue(c)
	default:
		p.stringValue(c)
	}
	if c.op == "==" {
		c.op = "="
	}
	return c
}

func (p *condParser) stringValue(c *checkExpr) {
	had := p.blank()
	start := p.i
	if had {
		if w := p.identifier(); contains(modifiers, w) && p.modifierList(w, c) {
			return
		}
		p.i = start
	}
	if c.right = p.rightTerm(); c.right != nil {
		return
	}
	c.vals = []value{p.value(c.op)}
}

// modifierList takes the list after a modifier. A value that merely looks like a modifier isn't one.
func (p *condParser) modifierList(mod string, c *checkExpr) bool {
	p.blank()
	if p.at('(') {
		c.mod = mod
		p.listValue(c)
		return true
	}
	off := p.i
	id := p.identifier()
	if id == "" || id == "and" || id == "or" || id == "not" {
		return false
	}
	c.mod, c.list = mod, true
	c.vals = []value{{s: id, bare: true, off: off}}
	return true
}

func (p *condParser) listValue(c *checkExpr) {
	c.list = true
	off := p.i
	if p.take('(') {
		p.blank()
		for !p.at(')') {
			p.blank()
			c.vals = append(c.vals, p.value(c.op))
			p.blank()
			if !p.take(',') {
				break
			}
		}
		if !p.take(')') {
			p.fail("want ',' or ')' in the list, found %q", p.peekWord())
		}
		return
	}
	if c.mod == "" {
		if c.right = p.rightTerm(); c.right != nil {
			c.list = false
			return
		}
	}
	id := p.identifier()
	if id == "" {
		p.fail("want a list in parentheses or the name of one after %q, found %q", c.op, p.peekWord())
	}
	c.vals = []value{{s: id, bare: true, off: off}}
}

// rightTerm takes val(field) or a transformer on the right side, or nothing.
func (p *condParser) rightTerm() *term {
	off := p.i
	if p.callName([]string{"val"}) != "" {
		p.blank()
		at := p.i
		name := p.fieldName()
		if name == "" {
			p.fail("want a field in val(…), found %q", p.peekWord())
		}
		t := &term{kind: fieldTerm, off: at, name: name}
		p.fieldArg(t)
		p.blank()
		if !p.take(')') {
			p.fail("want ')' to end val(…), found %q", p.peekWord())
		}
		return t
	}
	if name := p.callName(transformers); name != "" {
		return p.call(off, name)
	}
	return nil
}

func (p *condParser) value(op string) value {
	off := p.i
	if p.at('"') || p.at('\'') {
		return value{s: p.quoted(), off: off}
	}
	start := p.i
	for p.i < len(p.s) && !isBlank(p.s[p.i]) && !strings.ContainsRune("(),=\"'", rune(p.s[p.i])) {
		p.i++
	}
	if p.i == start {
		p.fail("want a value after %q, found %q", op, p.peekWord())
	}
	return value{s: p.s[start:p.i], bare: true, off: off}
}

// quoted takes a quoted string and undoes its escapes.
func (p *condParser) quoted() string {
	open := p.i
	s, n, e := unquote(p.s[p.i:])
	if e != nil {
		e.off += open
		panic(e)
	}
	p.i += n
	return s
}

// unquote reads the quoted string that s begins with and tells how many bytes it takes.
func unquote(s string) (string, int, *syntax) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		c := s[i]
		if c == quote {
			return b.String(), i + 1, nil
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch c = s[i]; c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case '\\', '/', '"', '\'':
			b.WriteByte(c)
		case ' ':
			b.WriteByte('\\') // an old mistake in public rules that Falco keeps reading this way
		case 'x':
			if i+2 >= len(s) || !isHexDigit(s[i+1]) || !isHexDigit(s[i+2]) {
				return "", 0, &syntax{i - 1, `\x wants two hexadecimal digits`, ""}
			}
			b.WriteByte(nibble(s[i+1])<<4 | nibble(s[i+2]))
			i += 2
		default:
			return "", 0, &syntax{i - 1, fmt.Sprintf(`unknown escape \%c`, c), `write \\ for a backslash`}
		}
	}
	return "", 0, &syntax{0, "this quote is never closed", ""}
}

func nibble(c byte) byte {
	switch {
	case isDigit(c):
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
