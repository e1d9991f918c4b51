package rules

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// matcher compares a string with what the right side of a check says.
type matcher func(string) bool

// stringMatcher makes the matcher of an operator without modifier for one value.
func stringMatcher(op, want string) (matcher, error) {
	switch op {
	case "=":
		return func(s string) bool { return s == want }, nil
	case "!=":
		return func(s string) bool { return s != want }, nil
	case "contains":
		return func(s string) bool { return strings.Contains(s, want) }, nil
	case "icontains":
		return containsFold(want), nil
	case "startswith":
		return func(s string) bool { return strings.HasPrefix(s, want) }, nil
	case "endswith":
		return func(s string) bool { return strings.HasSuffix(s, want) }, nil
	case "bcontains", "bstartswith":
		raw, err := hex.DecodeString(want)
		if err != nil {
			return nil, fmt.Errorf("%s wants hexadecimal digits: %q", op, want)
		}
		if op == "bcontains" {
			return func(s string) bool { return strings.Contains(s, string(raw)) }, nil
		}
		return func(s string) bool { return strings.HasPrefix(s, string(raw)) }, nil
	case "glob":
		return globMatcher(want, false)
	case "iglob":
		return globMatcher(want, true)
	case "regex":
		re, err := regexp.Compile(`\A(?s:` + want + `)\z`)
		if err != nil {
			return nil, fmt.Errorf("this regular expression can't be read: %w", err)
		}
		re.Longest()
		return re.MatchString, nil
	}
	return nil, fmt.Errorf("%s can't be used with text", op)
}

// containsFold is strings.Contains without regard to the case of ASCII letters.
func containsFold(want string) matcher {
	w := strings.ToLower(want)
	if w == "" {
		return func(string) bool { return true }
	}
	lo, up := w[0], upperByte(w[0])
	return func(s string) bool {
		for i := 0; i+len(w) <= len(s); i++ {
			if s[i] != lo && s[i] != up {
				continue
			}
			j := 1
			for j < len(w) && lowerByte(s[i+j]) == w[j] {
				j++
			}
			if j == len(w) {
				return true
			}
		}
		return false
	}
}

// setMatcher tells whether a string is one of the values.
func setMatcher(vals []string) matcher {
	if len(vals) <= 3 {
		return func(s string) bool {
			for _, v := range vals {
				if s == v {
					return true
				}
			}
			return false
		}
	}
	set := make(map[string]struct{}, len(vals))
	var lengths uint64 // a string of another length needs no hashing
	for _, v := range vals {
		set[v] = struct{}{}
		lengths |= 1 << (len(v) & 63)
	}
	return func(s string) bool {
		if lengths>>(len(s)&63)&1 == 0 {
			return false
		}
		_, ok := set[s]
		return ok
	}
}

// endsWithAny looks at the last byte before it compares.
func endsWithAny(vals []string) matcher {
	var last [256]bool
	for _, v := range vals {
		if v == "" {
			return func(string) bool { return true }
		}
		last[v[len(v)-1]] = true
	}
	return func(s string) bool {
		if s == "" || !last[s[len(s)-1]] {
			return false
		}
		for _, v := range vals {
			if strings.HasSuffix(s, v) {
				return true
			}
		}
		return false
	}
}

// modified combines one matcher per value: any of them, all of them, or exactly one.
func modified(mod string, ms []matcher) matcher {
	switch mod {
	case "allof":
		return func(s string) bool {
			for _, m := range ms {
				if !m(s) {
					return false
				}
			}
			return len(ms) > 0
		}
	case "oneof":
		return func(s string) bool {
			n := 0
			for _, m := range ms {
				if m(s) {
					n++
				}
			}
			return n == 1
		}
	}
	return func(s string) bool {
		for _, m := range ms {
			if m(s) {
				return true
			}
		}
		return false
	}
}

// globMatcher follows fnmatch(3) with FNM_EXTMATCH: "*" and "?" match "/" too.
func globMatcher(pattern string, fold bool) (matcher, error) {
	if i := strings.IndexByte(pattern, '('); i > 0 && strings.IndexByte("?*+@!", pattern[i-1]) >= 0 {
		return extendedGlob(pattern, fold)
	}
	return plainGlob(pattern, fold)
}

func plainGlob(pattern string, fold bool) (matcher, error) {
	if fold {
		pattern = strings.ToLower(pattern)
	}
	// The common shapes don't need the general matcher.
	if plain := strings.Trim(pattern, "*"); !fold && !strings.ContainsAny(plain, `*?[\`) && !strings.Contains(pattern, "**") {
		switch {
		case plain == pattern:
			return func(s string) bool { return s == plain }, nil
		case plain == "":
			return func(string) bool { return true }, nil
		case pattern == plain+"*":
			return func(s string) bool { return strings.HasPrefix(s, plain) }, nil
		case pattern == "*"+plain:
			return func(s string) bool { return strings.HasSuffix(s, plain) }, nil
		case pattern == "*"+plain+"*":
			return func(s string) bool { return strings.Contains(s, plain) }, nil
		}
	}
	return func(s string) bool { return glob(pattern, s, fold) }, nil
}

// glob matches without recursion: on a mismatch it goes back to the last star only, so time is at most the product
// of the lengths.
func glob(p, s string, fold bool) bool {
	pi, si := 0, 0
	star, starS := -1, 0
	for si < len(s) {
		if pi < len(p) {
			if p[pi] == '*' {
				star, starS = pi, si
				pi++
				continue
			}
			if n, ok := globOne(p[pi:], s[si], fold); ok {
				pi += n
				si++
				continue
			}
		}
		if star < 0 {
			return false
		}
		starS++
		pi, si = star+1, starS
	}
	for pi < len(p) && p[pi] == '*' {
		pi++
	}
	return pi == len(p)
}

// globOne matches one byte with the start of a pattern and tells how much of the pattern that took.
func globOne(p string, c byte, fold bool) (int, bool) {
	if fold {
		c = lowerByte(c)
	}
	switch p[0] {
	case '?':
		return 1, true
	case '\\':
		if len(p) > 1 {
			return 2, p[1] == c
		}
	case '[':
		if n, ok, valid := globClass(p, c); valid {
			return n, ok
		}
	}
	return 1, p[0] == c
}

// globClass matches a class such as [a-z] or [!0-9]. An unclosed one is a plain bracket.
func globClass(p string, c byte) (n int, ok, valid bool) {
	i := 1
	neg := i < len(p) && (p[i] == '!' || p[i] == '^')
	if neg {
		i++
	}
	for start := i; i < len(p); i++ {
		if p[i] == ']' && i > start {
			return i + 1, ok != neg, true
		}
		lo := p[i]
		if lo == '\\' && i+1 < len(p) {
			i++
			lo = p[i]
		}
		hi := lo
		if i+2 < len(p) && p[i+1] == '-' && p[i+2] != ']' {
			hi = p[i+2]
			i += 2
		}
		if lo <= c && c <= hi {
			ok = true
		}
	}
	return 0, false, false
}

// extendedGlob handles ?(…), *(…), +(…) and @(…) by way of a regular expression.
func extendedGlob(p string, fold bool) (matcher, error) {
	var b strings.Builder
	b.WriteString(`\A(?s`)
	if fold {
		b.WriteString("i")
	}
	b.WriteString(":")
	var closing []string
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case i+1 < len(p) && p[i+1] == '(' && strings.IndexByte("?*+@", c) >= 0:
			b.WriteString("(?:")
			end := ")"
			if c != '@' {
				end += string(c)
			}
			closing = append(closing, end)
			i++
		case i+1 < len(p) && p[i+1] == '(' && c == '!':
			return nil, fmt.Errorf("!(…) in a glob isn't supported: write it as \"not\"")
		case c == '|' && len(closing) > 0:
			b.WriteByte('|')
		case c == ')' && len(closing) > 0:
			b.WriteString(closing[len(closing)-1])
			closing = closing[:len(closing)-1]
		case c == '*':
			b.WriteString(".*")
		case c == '?':
			b.WriteByte('.')
		case c == '[' && strings.IndexByte(p[i:], ']') > 1:
			end := i + strings.IndexByte(p[i:], ']')
			class := p[i+1 : end]
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			b.WriteString("[" + strings.ReplaceAll(class, `\`, `\\`) + "]")
			i = end
		case c == '\\' && i+1 < len(p):
			i++
			b.WriteString(regexp.QuoteMeta(string(p[i])))
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	b.WriteString(`)\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, fmt.Errorf("this glob can't be read: %w", err)
	}
	return re.MatchString, nil
}

// pathTree answers pmatch: is one of the paths the string, or a directory above it? Parts with wildcards are kept
// apart from plain ones; a wildcard never crosses "/", but a part "**" stands for any number of parts (Falco has no
// such thing).
type pathTree struct {
	leaf  bool
	names map[string]*pathTree
	first [4]uint64 // first bytes of names: another one needs no look-up
	globs []globBranch
}

type globBranch struct {
	pattern string
	match   matcher // nil: "**"
	next    *pathTree
}

func newPathTree(paths []string) *pathTree {
	root := &pathTree{}
	for _, p := range paths {
		root.add(p)
	}
	return root
}

func (t *pathTree) add(p string) {
	for part := range strings.SplitSeq(p, "/") {
		if part == "" {
			continue
		}
		if strings.ContainsAny(part, `*?[`) {
			t = t.globBranch(part)
			continue
		}
		part = strings.ReplaceAll(part, `\`, "")
		if t.names == nil {
			t.names = map[string]*pathTree{}
		}
		next := t.names[part]
		if next == nil {
			next = &pathTree{}
			t.names[part] = next
			if part != "" {
				t.first[part[0]>>6] |= 1 << (part[0] & 63)
			}
		}
		t = next
	}
	t.leaf = true
}

func (t *pathTree) globBranch(part string) *pathTree {
	for _, g := range t.globs {
		if g.pattern == part {
			return g.next
		}
	}
	g := globBranch{pattern: part, next: &pathTree{}}
	if part != "**" {
		g.match, _ = plainGlob(part, false)
	}
	t.globs = append(t.globs, g)
	return g.next
}

// below is match for any number of parts left out ("**").
func (t *pathTree) below(p string) bool {
	for {
		if t.match(p) {
			return true
		}
		i := strings.IndexByte(p, '/')
		if i < 0 {
			return false
		}
		p = p[i+1:]
	}
}

func (t *pathTree) match(p string) bool {
	for {
		if t.leaf {
			return true
		}
		for len(p) > 0 && p[0] == '/' {
			p = p[1:]
		}
		if p == "" {
			return false
		}
		part, rest := p, ""
		if i := strings.IndexByte(p, '/'); i >= 0 {
			part, rest = p[:i], p[i:]
		}
		for _, g := range t.globs {
			if g.match == nil {
				if g.next.below(p) {
					return true
				}
				continue
			}
			if g.match(part) && g.next.match(rest) {
				return true
			}
		}
		if t.first[part[0]>>6]>>(part[0]&63)&1 == 0 {
			return false
		}
		next := t.names[part]
		if next == nil {
			return false
		}
		t, p = next, rest
	}
}
