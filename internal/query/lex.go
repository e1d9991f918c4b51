// Package query finds records and events of a run's ledger by their fields, exactly.
//
// An expression compares fields, named by their path, with strings, numbers, true, false and null:
//
//	tool == "deploy" && policy.verdict == "deny"
//	type == "connect" && host in ["a.example", "b.example"] && !(port == 443)
//	argv[0] matches "(^|/)git$" || path startsWith "/etc/"
//
// Operators, from what binds least: || && ! and the comparisons == != < <= > >= in contains startsWith matches. A path
// that leads through a list means each of its elements, and a comparison holds where it holds for one of them; != is
// the opposite of ==. A field that isn't there is null. Strings compare byte by byte, "matches" takes a regular
// expression (RE2) and looks for it anywhere, "contains" looks for a string within a string. A path alone holds where
// it is true.
//
// What has fields: every event (docs/EVENTS.md), action (with tool for intent.tool), finding and run.json; a file has
// name, size, sha256 and, up to a megabyte, text. Each of them has besides, under record, what its ledger record says:
// seq, index (within a batch), type, kind, epoch, time, wall, group and digest. Records whose payload isn't at hand
// have these only.
package query

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError is a fault in an expression.
type SyntaxError struct {
	Column int // of the first byte, from 1
	What   string
	Hint   string // what to do about it; may be empty
	Text   string // the expression
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.What) }

// Mark shows the place under the expression.
func (e *SyntaxError) Mark() string {
	n := utf8.RuneCountInString(e.Text[:min(e.Column-1, len(e.Text))])
	return e.Text + "\n" + strings.Repeat(" ", n) + "^"
}

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokName
	tokString
	tokNumber
	tokOp // operators and brackets
)

type token struct {
	kind tokenKind
	text string // of a string: its value
	at   int    // column
}

type lexer struct {
	text string
	pos  int
}

func (l *lexer) fault(at int, hint, format string, args ...any) *SyntaxError {
	return &SyntaxError{Column: at, What: fmt.Sprintf(format, args...), Hint: hint, Text: l.text}
}

var operators = []string{"==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", "[", "]", ",", "."}

// next reads the next token.
func (l *lexer) next() (token, error) {
	for l.pos < len(l.text) && strings.IndexByte(" \t\r\n", l.text[l.pos]) >= 0 {
		l.pos++
	}
	at := l.pos + 1
	if l.pos == len(l.text) {
		return token{tokEnd, "", at}, nil
	}
	switch c := l.text[l.pos]; {
	case c == '"' || c == '\'':
		return l.str(c)
	case c >= '0' && c <= '9' || c == '-':
		return l.number()
	case nameByte(c):
		start := l.pos
		for l.pos < len(l.text) && (nameByte(l.text[l.pos]) || l.text[l.pos] >= '0' && l.text[l.pos] <= '9' || l.text[l.pos] == '-') {
			l.pos++
		}
		return token{tokName, l.text[start:l.pos], at}, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(l.text[l.pos:], op) {
			l.pos += len(op)
			return token{tokOp, op, at}, nil
		}
	}
	hints := map[byte]string{'=': "write == to compare", '&': "write && for and", '|': "write || for or"}
	r, _ := utf8.DecodeRuneInString(l.text[l.pos:])
	return token{}, l.fault(at, hints[l.text[l.pos]], "unexpected %q", r)
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

// str reads a string in double quotes, with Go's escapes, or in single quotes, as it stands.
func (l *lexer) str(quote byte) (token, error) {
	at := l.pos + 1
	for i := l.pos + 1; i < len(l.text); i++ {
		switch {
		case l.text[i] == '\\' && quote == '"':
			i++
		case l.text[i] == quote:
			raw := l.text[l.pos : i+1]
			l.pos = i + 1
			if quote == '\'' {
				return token{tokString, raw[1 : len(raw)-1], at}, nil
			}
			v, err := strconv.Unquote(raw)
			if err != nil {
				return token{}, l.fault(at, "a backslash in double quotes begins an escape: \\\\ is a backslash; single quotes take it as it stands", "the string isn't well formed")
			}
			return token{tokString, v, at}, nil
		}
	}
	return token{}, l.fault(at, "end it with "+string(quote), "the string has no end")
}

func (l *lexer) number() (token, error) {
	start := l.pos
	l.pos++
	for l.pos < len(l.text) && strings.IndexByte("0123456789.eE_xXabcdefABCDEF+-", l.text[l.pos]) >= 0 {
		if c := l.text[l.pos]; (c == '+' || c == '-') && l.text[l.pos-1]|0x20 != 'e' {
			break
		}
		l.pos++
	}
	text := l.text[start:l.pos]
	if _, ok := parseNumber(text); !ok {
		return token{}, l.fault(start+1, "", "%q is no number", text)
	}
	return token{tokNumber, text, start + 1}, nil
}
