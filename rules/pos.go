package rules

import (
	"fmt"
	"sort"
	"strings"
)

// Pos is a place in a rule file. Line and Column count from 1; Column counts bytes.
type Pos struct {
	File   string
	Line   int
	Column int
}

func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Problem is one thing that is wrong, or worth knowing, in a rule file.
type Problem struct {
	Pos
	Rule string // the rule, macro or list it is about; "" for the file itself
	Msg  string
	Hint string // what may have been meant; "" where nothing is near
}

func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Pos.String())
	b.WriteString(": ")
	if p.Rule != "" {
		fmt.Fprintf(&b, "%s: ", p.Rule)
	}
	b.WriteString(p.Msg)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Errors is every problem that kept a set of files from loading, in the order of the files.
type Errors []*Problem

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single problems to errors.As.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, p := range e {
		out[i] = p
	}
	return out
}

// mark is a Pos in little space: every byte of a condition has one.
type mark struct {
	file      int32
	line, col int32
}

// text is a string that knows where each of its bytes was written, also after files have appended to it.
type text struct {
	s  string
	at []mark
}

// pos is the place of byte off; past the end it is that of the last byte.
func (t text) mark(off int) mark {
	if len(t.at) == 0 {
		return mark{}
	}
	return t.at[min(max(off, 0), len(t.at)-1)]
}

func (t text) join(sep string, u text) text {
	out := text{s: t.s + sep + u.s, at: make([]mark, 0, len(t.at)+len(sep)+len(u.at))}
	out.at = append(out.at, t.at...)
	for range len(sep) {
		out.at = append(out.at, u.mark(0))
	}
	out.at = append(out.at, u.at...)
	return out
}

// align finds where the bytes of a scalar's value stand in the file. YAML's folding and quoting change white space
// and add quotes and escapes, but keep the other bytes in order; what can't be found gets the place before it.
func align(value string, src []byte, file int32, line, col int) text {
	t := text{s: value, at: make([]mark, len(value))}
	off := lineStart(src, line) + col - 1
	cur := mark{file, int32(line), int32(col)}
	advance := func() {
		if src[off] == '\n' {
			cur.line++
			cur.col = 1
		} else {
			cur.col++
		}
		off++
	}
	const far = 400 // a comment, or the indicator and indentation of a block, may stand between two bytes
	for i := range len(value) {
		c := value[i]
		if isBlank(c) {
			t.at[i] = cur
			continue
		}
		save, saveOff := cur, off
		for n := 0; off < len(src) && src[off] != c && n < far; n++ {
			advance()
		}
		if off >= len(src) || src[off] != c {
			cur, off = save, saveOff
			t.at[i] = cur
			continue
		}
		t.at[i] = cur
		advance()
	}
	return t
}

func lineStart(src []byte, line int) int {
	off := 0
	for n := 1; n < line && off < len(src); off++ {
		if src[off] == '\n' {
			n++
		}
	}
	return min(off, len(src))
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\b' }

// nearest gives the hint for a name that isn't known: the known one with the fewest edits, if few enough.
func nearest(name string, known []string) string {
	best, bestDist := "", len(name)/3+2
	sorted := append([]string(nil), known...)
	sort.Strings(sorted)
	for _, k := range sorted {
		if d := distance(name, k, bestDist); d < bestDist {
			best, bestDist = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// distance is the edit distance of a and b, or limit where it is at least that.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur[0] = i + 1
		low := cur[0]
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j]+cost, prev[j+1]+1, cur[j]+1)
			low = min(low, cur[j+1])
		}
		if low >= limit {
			return limit
		}
		prev, cur = cur, prev
	}
	return min(prev[len(b)], limit)
}
