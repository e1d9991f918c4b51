package rules

import (
	"encoding/base64"
	"fmt"
)

// transform compiles a transformer. The results live in the machine's arena.
func (c *compiler) transform(t *term, positive bool) (getter, bool) {
	args := make([]getter, len(t.args))
	ok := true
	for i, a := range t.args {
		g, good := c.term(a, positive)
		args[i], ok = g, ok && good
	}
	if !ok {
		return getter{}, false
	}
	if t.hasArg && t.name != "getopt" {
		c.errorf(t.off, "%s(…) takes no argument in brackets", t.name)
		return getter{}, false
	}
	var g getter
	var msg string
	switch t.name {
	case "join", "concat", "getopt":
		g, msg = multiTransform(t, args)
	default:
		if len(args) != 1 {
			msg = "wants one argument"
			break
		}
		g, msg = simpleTransform(t.name, args[0])
	}
	if msg != "" {
		c.errorf(t.off, "%s(…) %s", t.name, msg)
		return getter{}, false
	}
	g.name = t.name + "(…)"
	g.types = allTypes
	g.from = 0
	for _, a := range args {
		g.types &= a.types
		g.from |= a.from
	}
	return g, true
}

// listTerm compiles a list of terms in parentheses.
func (c *compiler) listTerm(t *term, positive bool) (getter, bool) {
	parts := make([]listGetter, 0, len(t.args))
	types, from := allTypes, origins(0)
	for _, a := range t.args {
		g, ok := c.term(a, positive)
		if !ok {
			return getter{}, false
		}
		if !g.text() {
			c.errorf(a.off, "%s is not text", g.name)
			return getter{}, false
		}
		parts = append(parts, g.each())
		types &= g.types
		from |= g.from
	}
	return getter{typ: "list", name: "(…)", types: types, from: from, list: func(m *machine, i int) (string, bool) {
		if i >= len(parts) {
			return "", false
		}
		return parts[i](m, 0)
	}}, true
}

func simpleTransform(name string, a getter) (getter, string) {
	if name == "len" {
		return lengthOf(a)
	}
	if !a.text() {
		return getter{}, "wants text, and " + a.name + " is not"
	}
	var f func(*machine, string) (string, bool)
	switch name {
	case "tolower":
		f = func(m *machine, s string) (string, bool) { return m.lower(s), true }
	case "toupper":
		f = func(m *machine, s string) (string, bool) { return m.mapped(s, upperByte), true }
	case "basename":
		f = func(_ *machine, s string) (string, bool) { return baseOf(s), true }
	case "b64":
		f = (*machine).decodeBase64
	}
	g := a
	if a.str != nil {
		get := a.str
		g.typ = "string"
		g.str = func(m *machine) (string, bool) {
			s, ok := get(m)
			if !ok {
				return "", false
			}
			return f(m, s)
		}
		return g, ""
	}
	get := a.list
	g.paths = nil
	g.list = func(m *machine, i int) (string, bool) {
		s, ok := get(m, i)
		if !ok {
			return "", false
		}
		if s, ok = f(m, s); !ok {
			return "", true // an element that can't be transformed must not end the list
		}
		return s, true
	}
	return g, ""
}

func lengthOf(a getter) (getter, string) {
	switch {
	case a.typ == "list":
		get := a.list
		return getter{typ: "int", int: func(m *machine) (int64, bool) {
			n := 0
			for ; ; n++ {
				if _, ok := get(m, n); !ok {
					return int64(n), true
				}
			}
		}}, ""
	case a.str != nil:
		get := a.str
		return getter{typ: "int", int: func(m *machine) (int64, bool) { s, ok := get(m); return int64(len(s)), ok }}, ""
	case a.list != nil:
		get := a.list
		return getter{typ: "int", ints: func(m *machine, i int) (int64, bool) { s, ok := get(m, i); return int64(len(s)), ok }}, ""
	}
	return getter{}, "wants text or a list, and " + a.name + " is neither"
}

func (m *machine) mapped(s string, f func(byte) byte) string {
	start := len(m.arena)
	for i := range len(s) {
		m.arena = append(m.arena, f(s[i]))
	}
	return m.keep(start)
}

// decodeBase64 accepts the standard and the URL alphabet, with and without padding.
func (m *machine) decodeBase64(s string) (string, bool) {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	start := len(m.arena)
	for i := range len(s) {
		c := s[i]
		switch c {
		case '-':
			c = '+'
		case '_':
			c = '/'
		}
		m.arena = append(m.arena, c)
	}
	enc := m.arena[start:]
	out := len(m.arena)
	for range base64.RawStdEncoding.DecodedLen(len(enc)) {
		m.arena = append(m.arena, 0)
	}
	n, err := base64.RawStdEncoding.Decode(m.arena[out:], m.arena[start:out])
	if err != nil {
		m.arena = m.arena[:start]
		return "", false
	}
	m.arena = m.arena[:out+n]
	return m.keep(out), true
}

func multiTransform(t *term, args []getter) (getter, string) {
	for _, a := range args {
		if !a.text() {
			return getter{}, "wants text, and " + a.name + " is not"
		}
	}
	switch t.name {
	case "concat":
		if len(args) < 2 || len(args) > maxConcat {
			return getter{}, fmt.Sprintf("wants 2 to %d arguments", maxConcat)
		}
		gets := make([]strGetter, len(args))
		for i, a := range args {
			if a.str == nil {
				return getter{}, "wants single texts, and " + a.name + " is a list"
			}
			gets[i] = a.str
		}
		return getter{typ: "string", str: func(m *machine) (string, bool) { return m.concat(gets) }}, ""
	case "join":
		if len(args) != 2 || args[0].str == nil || args[1].list == nil {
			return getter{}, "wants a separator and a list"
		}
		sep, list := args[0].str, args[1].list
		return getter{typ: "string", str: func(m *machine) (string, bool) { return m.join(sep, list) }}, ""
	}
	if len(args) != 2 || args[0].list == nil || args[1].str == nil {
		return getter{}, "wants a list of arguments and the options as one text, as getopt(3) does"
	}
	if t.hasArg && len(t.arg) != 1 {
		return getter{}, "wants one option letter in brackets"
	}
	o := getopt{args: args[0].list, spec: args[1].str}
	if t.hasArg {
		o.only = t.arg[0]
		return getter{typ: "string", str: o.selected}, ""
	}
	return getter{typ: "list", list: o.element}, ""
}

const maxConcat = 16

func (m *machine) concat(gets []strGetter) (string, bool) {
	// Arguments may use the arena themselves: work them all out first, into places that the joined text can't move.
	var parts [maxConcat]string
	for i, g := range gets {
		s, ok := g(m)
		if !ok {
			return "", false
		}
		parts[i] = s
	}
	start := len(m.arena)
	for _, s := range parts[:len(gets)] {
		m.arena = append(m.arena, s...)
	}
	return m.keep(start), true
}

// join puts a separator between the elements. They are worked out first, since they may use the arena themselves.
func (m *machine) join(sep strGetter, list listGetter) (string, bool) {
	between, ok := sep(m)
	if !ok {
		return "", false
	}
	base := len(m.parts)
	for i := 0; ; i++ {
		s, ok := list(m, i)
		if !ok {
			break
		}
		m.parts = append(m.parts, s)
	}
	parts := m.parts[base:]
	start := len(m.arena)
	for i, s := range parts {
		if i > 0 {
			m.arena = append(m.arena, between...)
		}
		m.arena = append(m.arena, s...)
	}
	m.parts = m.parts[:base]
	return m.keep(start), len(parts) > 0
}

// getopt reads short options as getopt(3) does. Without a letter its elements are every option found, each followed
// by its value where it takes one ("?" for an option that isn't known); with a letter it is the last value of that
// option, or the letter where the option takes none.
type getopt struct {
	args listGetter
	spec strGetter
	only byte
}

// takes tells whether the option is known and whether it takes a value.
func takes(spec string, opt byte) (known, value bool) {
	for i := range len(spec) {
		if spec[i] == opt && opt != ':' {
			return true, i+1 < len(spec) && spec[i+1] == ':'
		}
	}
	return false, false
}

// maxOptions bounds how many arguments getopt looks at: elements are found by scanning from the start.
const maxOptions = 256

// scan calls f for each option until f returns false.
func (o getopt) scan(m *machine, f func(opt byte, known bool, value string, has bool) bool) {
	spec, ok := o.spec(m)
	if !ok {
		return
	}
	for i := 0; i < maxOptions; i++ {
		arg, ok := o.args(m, i)
		if !ok || arg == "--" {
			return
		}
		if len(arg) > 2 && arg[0] == '-' && arg[1] == '-' {
			continue
		}
		if len(arg) < 2 || arg[0] != '-' {
			return
		}
		for j := 1; j < len(arg); j++ {
			known, value := takes(spec, arg[j])
			if !value {
				if !f(arg[j], known, "", false) {
					return
				}
				continue
			}
			v := arg[j+1:]
			if v == "" {
				i++
				v, _ = o.args(m, i)
			}
			if !f(arg[j], true, v, true) {
				return
			}
			break
		}
	}
}

const letters = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\x7f"

func letter(c byte) string {
	if int(c) < len(letters) {
		return letters[c : c+1]
	}
	return "?"
}

func (o getopt) element(m *machine, want int) (text string, found bool) {
	n := 0
	o.scan(m, func(opt byte, known bool, value string, has bool) bool {
		name := "?"
		if known {
			name = letter(opt)
		}
		if n == want {
			text, found = name, true
			return false
		}
		n++
		if has {
			if n == want {
				text, found = value, true
				return false
			}
			n++
		}
		return true
	})
	return text, found
}

func (o getopt) selected(m *machine) (text string, found bool) {
	o.scan(m, func(opt byte, known bool, value string, has bool) bool {
		if known && opt == o.only {
			text, found = letter(opt), true
			if has {
				text = value
			}
		}
		return true
	})
	return text, found
}
