package query

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Expr is an expression that was understood.
type Expr struct {
	text string
	root node
}

func (x *Expr) String() string { return x.text }

// The bounds of an expression.
const (
	maxText  = 64 << 10
	maxDepth = 200
)

// Parse reads an expression. Its errors are [*SyntaxError].
func Parse(text string) (*Expr, error) {
	p := &parser{lex: lexer{text: text}}
	if len(text) > maxText {
		return nil, p.lex.fault(1, "", "the expression has %d bytes: at most %d", len(text), maxText)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	n, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokEnd {
		return nil, p.unexpected("put && or || between two comparisons")
	}
	return &Expr{text, n}, nil
}

type parser struct {
	lex lexer
	tok token
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lex.next()
	return err
}

func (p *parser) is(op string) bool { return p.tok.kind == tokOp && p.tok.text == op }

func (p *parser) unexpected(hint string) error {
	switch p.tok.kind {
	case tokEnd:
		return p.lex.fault(p.tok.at, hint, "the expression ends too early")
	case tokString:
		return p.lex.fault(p.tok.at, hint, "unexpected string")
	}
	return p.lex.fault(p.tok.at, hint, "unexpected %q", p.tok.text)
}

func (p *parser) or(depth int) (node, error) { return p.list("||", depth, p.and) }

func (p *parser) and(depth int) (node, error) { return p.list("&&", depth, p.not) }

// list parses operands with one operator between them.
func (p *parser) list(op string, depth int, operand func(int) (node, error)) (node, error) {
	n, err := operand(depth)
	if err != nil || !p.is(op) {
		return n, err
	}
	out := &group{all: op == "&&", of: []node{n}}
	for p.is(op) {
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := operand(depth)
		if err != nil {
			return nil, err
		}
		out.of = append(out.of, n)
	}
	return out, nil
}

func (p *parser) not(depth int) (node, error) {
	if depth > maxDepth {
		return nil, p.lex.fault(p.tok.at, "", "the expression is nested too deeply")
	}
	switch {
	case p.is("!"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.not(depth + 1)
		return &negation{n}, err
	case p.is("("):
		open := p.tok.at
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		if !p.is(")") {
			return nil, p.lex.fault(open, "close it with )", "the parenthesis has no end")
		}
		return n, p.advance()
	}
	return p.comparison()
}

var words = []string{"in", "contains", "startsWith", "matches"}

func (p *parser) comparison() (node, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	op, at := "", p.tok.at
	switch {
	case p.tok.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, p.tok.text),
		p.tok.kind == tokName && slices.Contains(words, p.tok.text):
		op = p.tok.text
	case p.tok.kind == tokName:
		return nil, p.unexpected("operators are == != < <= > >= " + strings.Join(words, " "))
	case left.path == nil:
		return nil, p.unexpected("compare it with a field")
	default:
		yes := value{kind: kindBool, yes: true}
		return &test{op: "==", left: left, right: []operand{{lit: &yes}}}, nil
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	t := &test{op: op, left: left}
	if op == "in" {
		t.right, err = p.set()
	} else {
		var right operand
		right, err = p.operand()
		t.right = []operand{right}
	}
	if err != nil {
		return nil, err
	}
	if left.lit != nil && !slices.ContainsFunc(t.right, func(o operand) bool { return o.path != nil }) {
		return nil, p.lex.fault(at, "compare a field with a value", "neither side of %s is a field", t.op)
	}
	return p.finish(t, at)
}

// finish checks what an operator takes.
func (p *parser) finish(t *test, at int) (node, error) {
	switch t.op {
	case "!=":
		t.op = "=="
		return &negation{t}, nil
	case "contains", "startsWith", "matches":
		lit := t.right[0].lit
		if lit == nil || lit.kind != kindString {
			return nil, p.lex.fault(at, "", "%s takes a string", t.op)
		}
		if t.op == "matches" {
			re, err := regexp.Compile(lit.str)
			if err != nil {
				return nil, p.lex.fault(at, "regular expressions are those of RE2", "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			}
			t.re = re
		}
	case "<", "<=", ">", ">=":
		for _, lit := range []*value{t.left.lit, t.right[0].lit} {
			if lit != nil && (lit.kind == kindBool || lit.kind == kindNull) {
				return nil, p.lex.fault(at, "only numbers and strings have an order", "%s doesn't take true, false or null", t.op)
			}
		}
	}
	return t, nil
}

func (p *parser) set() ([]operand, error) {
	if !p.is("[") {
		return nil, p.unexpected(`"in" takes a list: in ["a", "b"]`)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	var out []operand
	for !p.is("]") {
		o, err := p.operand()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
		if p.is(",") {
			if err := p.advance(); err != nil {
				return nil, err
			}
		} else if !p.is("]") {
			return nil, p.unexpected("put a comma between the list's elements")
		}
	}
	return out, p.advance()
}

// operand reads a literal or a path.
func (p *parser) operand() (operand, error) {
	var o operand
	switch p.tok.kind {
	case tokString:
		o.lit = &value{kind: kindString, str: p.tok.text}
	case tokNumber:
		v, _ := parseNumber(p.tok.text) // the lexer made sure
		o.lit = &v
	case tokName:
		switch p.tok.text {
		case "true", "false":
			o.lit = &value{kind: kindBool, yes: p.tok.text == "true"}
		case "null":
			o.lit = &value{}
		default:
			if slices.Contains(words, p.tok.text) {
				return o, p.unexpected("a field's name comes first")
			}
			return p.path()
		}
	default:
		return o, p.unexpected("want a field, a string, a number, true, false or null")
	}
	return o, p.advance()
}

// recordFields are the members of what opener.record writes. What payloads hold is up to who recorded them.
var recordFields = []string{"seq", "index", "type", "kind", "epoch", "time", "wall", "group", "digest"}

// path reads name.name[3].name; a name may be quoted after a dot: args."content-type".
func (p *parser) path() (operand, error) {
	at := p.tok.at
	o := operand{path: []step{{name: p.tok.text, index: -1}}, at: at}
	if err := p.advance(); err != nil {
		return o, err
	}
	for {
		switch {
		case p.is("."):
			if err := p.advance(); err != nil {
				return o, err
			}
			if p.tok.kind != tokName && p.tok.kind != tokString {
				return o, p.unexpected("a name follows the dot")
			}
			o.path = append(o.path, step{name: p.tok.text, index: -1})
		case p.is("["):
			if err := p.advance(); err != nil {
				return o, err
			}
			n, err := strconv.Atoi(p.tok.text)
			if p.tok.kind != tokNumber || err != nil || n < 0 {
				return o, p.unexpected("an element's number follows [")
			}
			if err := p.advance(); err != nil {
				return o, err
			}
			if !p.is("]") {
				return o, p.unexpected("close it with ]")
			}
			o.path = append(o.path, step{index: n})
		default:
			if len(o.path) > 1 && o.path[0].name == "record" && !slices.Contains(recordFields, o.path[1].name) {
				return o, p.lex.fault(at, "a record has "+strings.Join(recordFields, ", "), "a record has no field %q", o.path[1].name)
			}
			return o, nil
		}
		if err := p.advance(); err != nil {
			return o, err
		}
	}
}
