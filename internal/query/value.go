package query

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindObject
)

// value is a scalar. Numbers that are whole and fit stay exact.
type value struct {
	kind  kind
	str   string
	i     int64
	f     float64
	whole bool
	yes   bool
}

func parseNumber(s string) (value, bool) {
	if i, err := strconv.ParseInt(s, 0, 64); err == nil {
		return value{kind: kindNumber, i: i, f: float64(i), whole: true}, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return value{}, false
	}
	return value{kind: kindNumber, f: f}, true
}

// compare orders two values of one kind. ok is false where they can't be ordered.
func compare(a, b *value) (order int, ok bool) {
	if a.kind != b.kind {
		return 0, false
	}
	switch a.kind {
	case kindString:
		return strings.Compare(a.str, b.str), true
	case kindNumber:
		if a.whole && b.whole {
			switch {
			case a.i < b.i:
				return -1, true
			case a.i > b.i:
				return 1, true
			}
			return 0, true
		}
		switch {
		case a.f < b.f:
			return -1, true
		case a.f > b.f:
			return 1, true
		}
		return 0, a.f == b.f
	}
	return 0, false
}

func equal(a, b *value) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case kindNull:
		return true
	case kindBool:
		return a.yes == b.yes
	}
	order, ok := compare(a, b)
	return ok && order == 0
}

// Finding a path in JSON goes over the bytes once and decodes nothing else. The bytes must be valid JSON.

// step is one part of a path: a member's name or an element's index.
type step struct {
	name  string
	index int // -1: by name
}

// find calls f with every value that a path leads to, through lists too, until f returns true.
func find(raw []byte, path []step, f func(*value) bool) bool {
	raw = space(raw)
	if len(raw) == 0 {
		return false
	}
	if raw[0] == '[' && (len(path) == 0 || path[0].index < 0) {
		return elements(raw, func(_ int, e []byte) bool { return find(e, path, f) })
	}
	if len(path) == 0 {
		if raw[0] == '{' {
			return f(&value{kind: kindObject}) // equal to nothing, but there
		}
		v, ok := scalar(raw)
		return ok && f(&v)
	}
	s := path[0]
	switch {
	case raw[0] == '[':
		return elements(raw, func(i int, e []byte) bool { return i == s.index && find(e, path[1:], f) })
	case raw[0] == '{' && s.index < 0:
		return members(raw, func(key, v []byte) bool { return keyIs(key, s.name) && find(v, path[1:], f) })
	}
	return false
}

// keyIs compares a member's quoted name.
func keyIs(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == name
	}
	var s string
	return json.Unmarshal(quoted, &s) == nil && s == name
}

func space(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// scalar decodes the string, number or word that b begins with.
func scalar(b []byte) (value, bool) {
	raw := b[:len(b)-len(skip(b))]
	switch {
	case len(raw) == 0:
		return value{}, false
	case raw[0] == '"':
		if bytes.IndexByte(raw, '\\') < 0 && len(raw) >= 2 {
			return value{kind: kindString, str: string(raw[1 : len(raw)-1])}, true
		}
		var s string
		err := json.Unmarshal(raw, &s)
		return value{kind: kindString, str: s}, err == nil
	case raw[0] == 't', raw[0] == 'f':
		return value{kind: kindBool, yes: raw[0] == 't'}, true
	case raw[0] == 'n':
		return value{}, true
	}
	return parseNumber(string(raw))
}

// skip returns what follows the value that b begins with.
func skip(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	switch b[0] {
	case '"':
		for i := 1; i < len(b); i++ {
			switch b[i] {
			case '\\':
				i++
			case '"':
				return b[i+1:]
			}
		}
		return nil
	case '{', '[':
		depth := 0
		for i := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				rest := skip(b[i:])
				i = len(b) - len(rest) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return b[i+1:]
				}
			}
		}
		return nil
	}
	for i, c := range b {
		switch c {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			return b[i:]
		}
	}
	return nil
}

// elements calls f with each element of a list until it returns true.
func elements(b []byte, f func(int, []byte) bool) bool {
	b = space(b[1:])
	for i := 0; len(b) > 0 && b[0] != ']'; i++ {
		rest := skip(b)
		if f(i, b[:len(b)-len(rest)]) {
			return true
		}
		b = space(rest)
		if len(b) > 0 && b[0] == ',' {
			b = space(b[1:])
		}
	}
	return false
}

// members calls f with each member of an object until it returns true.
func members(b []byte, f func(key, v []byte) bool) bool {
	b = space(b[1:])
	for len(b) > 0 && b[0] == '"' {
		rest := skip(b)
		key := b[:len(b)-len(rest)]
		b = space(rest)
		if len(b) == 0 || b[0] != ':' || len(key) < 2 {
			return false
		}
		b = space(b[1:])
		rest = skip(b)
		if f(key, b[:len(b)-len(rest)]) {
			return true
		}
		b = space(rest)
		if len(b) > 0 && b[0] == ',' {
			b = space(b[1:])
		}
	}
	return false
}
