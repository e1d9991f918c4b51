package rules

import (
	"strconv"
	"strings"
)

// template is an output text with its fields ready to be asked.
type template struct {
	pieces []piece
}

type piece struct {
	text  string
	show  *getter // nil: text as it is
	none  bool    // a field that is never supplied
	width int     // %20field: padded or cut to so many bytes; 0: as it is
}

// absent is what an output shows for a field that the event doesn't have.
const absent = "<NA>"

// output compiles a template: text with %field, %field[arg] and %transformer(field).
func (c *compiler) output(t text) template {
	var out template
	s := strings.TrimPrefix(t.s, "*") // Falco's "print also where fields are missing", which is always so here
	c.txt = t
	for s != "" {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			out.pieces = append(out.pieces, piece{text: s})
			break
		}
		if i > 0 {
			out.pieces = append(out.pieces, piece{text: s[:i]})
		}
		off := len(t.s) - len(s) + i
		s = s[i+1:]
		width := 0
		for s != "" && isDigit(s[0]) && width < 1000 {
			width = width*10 + int(s[0]-'0')
			s = s[1:]
		}
		p, n, e := c.outputField(s, off+1)
		if e != nil {
			c.hint(e.off, e.hint, "%s", e.msg)
			if n == 0 {
				continue
			}
		}
		p.width = width
		out.pieces = append(out.pieces, p)
		s = s[n:]
	}
	return out
}

// outputField reads the field that s begins with and tells how many bytes it takes.
func (c *compiler) outputField(s string, off int) (p piece, n int, err *syntax) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*syntax)
			if !ok {
				panic(r)
			}
			e.off += off
			err = e
		}
	}()
	cp := &condParser{s: s}
	t := cp.fieldOrCall()
	if t == nil {
		return p, 0, &syntax{off, "want a field after %, as in %proc.name", ""}
	}
	// Text may follow a field without a blank: "%user.name.log" is %user.name and ".log".
	if t.kind == fieldTerm && !t.hasArg {
		for name := t.name; ; {
			if _, ok := lookupField(name); ok {
				t.name, cp.i = name, len(name)
				break
			}
			cut := strings.LastIndexByte(name, '.')
			if cut < 0 {
				break
			}
			name = name[:cut]
		}
	}
	if t.kind == fieldTerm && t.name == "container.info" {
		return piece{none: true}, cp.i, nil
	}
	shiftTerm(t, off)
	gaps, unknown := len(c.gaps), len(c.unknown)
	g, ok := c.term(t, false)
	if len(c.unknown) > unknown {
		u := c.unknown[unknown]
		c.unknown = c.unknown[:unknown]
		return p, cp.i, &syntax{off, "there is no field " + strconv.Quote(u.what), u.reason}
	}
	c.gaps = c.gaps[:gaps]
	if !ok {
		return piece{none: true}, cp.i, nil
	}
	return piece{show: &g}, cp.i, nil
}

func shiftTerm(t *term, off int) {
	t.off += off
	for _, a := range t.args {
		shiftTerm(a, off)
	}
}

// print writes the template's text for the machine's event.
func (t template) print(dst []byte, m *machine) []byte {
	for _, p := range t.pieces {
		if p.show == nil && !p.none {
			dst = append(dst, p.text...)
			continue
		}
		start := len(dst)
		if p.none {
			dst = append(dst, absent...)
		} else {
			dst = p.show.print(dst, m)
		}
		if p.width > 0 {
			for len(dst)-start < p.width {
				dst = append(dst, ' ')
			}
			dst = dst[:start+p.width]
		}
	}
	return dst
}

// print writes a value; of several, all, in parentheses.
func (g *getter) print(dst []byte, m *machine) []byte {
	switch {
	case g.str != nil:
		if s, ok := g.str(m); ok {
			return append(dst, s...)
		}
	case g.int != nil:
		if n, ok := g.int(m); ok {
			if g.typ == "bool" {
				return strconv.AppendBool(dst, n != 0)
			}
			return strconv.AppendInt(dst, n, 10)
		}
	case g.list != nil:
		return g.printList(dst, func(i int) (string, bool) { return g.list(m, i) })
	case g.ints != nil:
		return g.printList(dst, func(i int) (string, bool) {
			n, ok := g.ints(m, i)
			return strconv.FormatInt(n, 10), ok
		})
	case g.addr != nil:
		return g.printList(dst, func(i int) (string, bool) {
			a, ok := g.addr(m, i)
			return a.Addr().Unmap().String(), ok
		})
	}
	return append(dst, absent...)
}

const maxPrinted = 32 // elements of a list

func (g *getter) printList(dst []byte, at func(int) (string, bool)) []byte {
	start := len(dst)
	n := 0
	for ; n < maxPrinted; n++ {
		s, ok := at(n)
		if !ok {
			break
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, s...)
	}
	switch n {
	case 0:
		return append(dst, absent...)
	case 1:
		return dst
	}
	dst = append(dst, ")("...)
	copy(dst[start+1:], dst[start:len(dst)-2])
	dst[start], dst[len(dst)-1] = '(', ')'
	return dst
}
