package proof

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Expression says which roots must vouch for a log before a verifier is content. Its grammar:
//
//	expression = term { "or" term }
//	term       = factor { "and" factor }
//	factor     = name | "(" expression ")" | count "of" "[" expression { "," expression } "]"
//	name       = letter or digit, then letters, digits, "." "-" "_"; not "and", "or", "of"
//	count      = decimal number from 1 to the number of expressions in the list, no two of which hold one name
//
// "and" binds more strongly than "or". For example: evm and (2 of [w1, w2, w3] or tsa).
type Expression struct {
	name  string
	at    int // column of the name
	need  int // of kids
	kids  []*Expression
	words string // as it was written
}

const (
	maxPolicy = 4 << 10
	maxNested = 32
)

// ParsePolicy reads an expression. An error names the column, in characters from 1.
func ParsePolicy(s string) (*Expression, error) {
	if len(s) > maxPolicy {
		return nil, fmt.Errorf("%w: a policy of %d bytes", ErrSyntax, len(s))
	}
	p := &policyParser{tokens: policyTokens(s)}
	e, err := p.expression(0)
	if err == nil && p.next() != "" {
		err = p.fails("%s is one word too many", p.shown())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: policy %.100q: %w", ErrSyntax, s, err)
	}
	e.words = s
	return e, nil
}

func (e *Expression) String() string { return e.words }

// Names are the roots that it names, each once, in order of their first mention.
func (e *Expression) Names() []string {
	var out []string
	e.walk(func(k *Expression) {
		if !slices.Contains(out, k.name) {
			out = append(out, k.name)
		}
	})
	return out
}

// walk calls f for every name.
func (e *Expression) walk(f func(*Expression)) {
	if e.name != "" {
		f(e)
	}
	for _, k := range e.kids {
		k.walk(f)
	}
}

// shares is a name that both expressions hold; "" where there is none.
func (e *Expression) shares(o *Expression) string {
	names := o.Names()
	for _, name := range e.Names() {
		if slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

// Met tells whether it is satisfied where the roots for which vouched returns true vouch, and by which time as much
// of it as is needed had vouched: the latest of those joined by "and", the earliest of those joined by "or", the k-th
// earliest of "k of". A root without a clock gives the zero time, which stands for "no time known" and is later than
// any other.
func (e *Expression) Met(vouched func(name string) (time.Time, bool)) (time.Time, bool) {
	if e.name != "" {
		return vouched(e.name)
	}
	var times []time.Time
	for _, k := range e.kids {
		if t, ok := k.Met(vouched); ok {
			times = append(times, t)
		}
	}
	if len(times) < e.need {
		return time.Time{}, false
	}
	slices.SortFunc(times, func(a, b time.Time) int {
		switch {
		case a.IsZero() && b.IsZero():
			return 0
		case a.IsZero():
			return 1
		case b.IsZero():
			return -1
		}
		return a.Compare(b)
	})
	return times[e.need-1], true
}

// policyToken is a word or sign of a policy with the column, from 1, where it stands.
type policyToken struct {
	text string
	at   int
}

// policyTokens cuts a policy into words and signs. The last one is empty and stands behind the end.
func policyTokens(s string) []policyToken {
	var out []policyToken
	word := func(from, to int) {
		if from < to {
			out = append(out, policyToken{s[from:to], utf8.RuneCountInString(s[:from]) + 1})
		}
	}
	from := 0
	for i, c := range s {
		switch {
		case unicode.IsSpace(c):
			word(from, i)
			from = i + utf8.RuneLen(c)
		case strings.ContainsRune("()[],", c):
			word(from, i)
			word(i, i+1)
			from = i + 1
		}
	}
	word(from, len(s))
	return append(out, policyToken{"", utf8.RuneCountInString(s) + 1})
}

// policyParser reads tokens; the last one stays.
type policyParser struct{ tokens []policyToken }

func (p *policyParser) next() string { return p.tokens[0].text }

// fails is an error at the next token.
func (p *policyParser) fails(format string, args ...any) error {
	return policyError(p.tokens[0].at, format, args...)
}

func policyError(at int, format string, args ...any) error {
	return fmt.Errorf("column %d: %s", at, fmt.Sprintf(format, args...))
}

// shown is the next token for a message.
func (p *policyParser) shown() string {
	if p.next() == "" {
		return "the end"
	}
	return strconv.Quote(p.next())
}

// take consumes the next word if it is the one given.
func (p *policyParser) take(word string) bool {
	if p.next() != word {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *policyParser) expression(depth int) (*Expression, error) {
	return p.joined("or", func() (*Expression, error) {
		return p.joined("and", func() (*Expression, error) { return p.factor(depth) })
	})
}

// joined reads one or more parts with a word between them.
func (p *policyParser) joined(word string, part func() (*Expression, error)) (*Expression, error) {
	first, err := part()
	if err != nil || p.next() != word {
		return first, err
	}
	e := &Expression{kids: []*Expression{first}}
	for p.take(word) {
		k, err := part()
		if err != nil {
			return nil, err
		}
		e.kids = append(e.kids, k)
	}
	e.need = 1
	if word == "and" {
		e.need = len(e.kids)
	}
	return e, nil
}

func (p *policyParser) factor(depth int) (*Expression, error) {
	if depth > maxNested {
		return nil, p.fails("it is nested more than %d deep", maxNested)
	}
	if p.take("(") {
		e, err := p.expression(depth + 1)
		if err == nil && !p.take(")") {
			err = p.fails("a closing parenthesis is missing before %s", p.shown())
		}
		return e, err
	}
	word, at := p.next(), p.tokens[0].at
	if len(p.tokens) > 1 && p.tokens[1].text == "of" {
		return p.quorum(word, depth)
	}
	if !validRootName(word) {
		return nil, p.fails("a name or a parenthesis should stand where %s stands", p.shown())
	}
	p.take(word)
	return &Expression{name: word, at: at}, nil
}

func (p *policyParser) quorum(count string, depth int) (*Expression, error) {
	at := p.tokens[0].at
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || strconv.Itoa(n) != count {
		return nil, p.fails("%q isn't a number of roots", count)
	}
	p.tokens = p.tokens[2:]
	if !p.take("[") {
		return nil, p.fails("a list in square brackets must follow %q", count+" of")
	}
	e := &Expression{need: n}
	for {
		k, err := p.expression(depth + 1)
		if err != nil {
			return nil, err
		}
		e.kids = append(e.kids, k)
		for _, before := range e.kids[:len(e.kids)-1] {
			if name := before.shares(k); name != "" {
				return nil, policyError(at, "%s stands twice in the list, and would count twice", name)
			}
		}
		if p.take("]") {
			break
		}
		if !p.take(",") {
			return nil, p.fails("a comma or a closing bracket is missing before %s", p.shown())
		}
	}
	if n > len(e.kids) {
		return nil, policyError(at, "%d of %d can never be", n, len(e.kids))
	}
	return e, nil
}

// validRootName tells whether a root may be called so.
func validRootName(s string) bool {
	if s == "" || len(s) > 64 || s == "and" || s == "or" || s == "of" {
		return false
	}
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return true
}
