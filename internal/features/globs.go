package features

import (
	"path"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// globs is a set of patterns over paths, made ready: most paths are told apart by a look at their last name.
type globs struct {
	exact map[string]bool     // without a wildcard
	base  map[string][]string // by a last name without a wildcard
	ends  []string            // of "**/*END"
	rest  []string
	dot   []string // those of rest that only match what lies in, or is, a name with a leading dot
}

func newGlobs(patterns []string) *globs {
	g := &globs{exact: map[string]bool{}, base: map[string][]string{}}
	for _, p := range patterns {
		base := path.Base(p)
		switch {
		case !strings.ContainsAny(p, "*?[\\"):
			g.exact[p] = true
		case !strings.ContainsAny(base, "*?[\\"):
			g.base[base] = append(g.base[base], p)
		case strings.HasPrefix(p, "**/*") && !strings.ContainsAny(p[4:], "*?[\\/"):
			g.ends = append(g.ends, p[4:])
		case strings.HasPrefix(p, "**/.") || strings.Contains(fixedPart(p), "/."):
			g.dot = append(g.dot, p)
		default:
			g.rest = append(g.rest, p)
		}
	}
	return g
}

// match tells whether one of the patterns matches.
func (g *globs) match(p string) bool {
	if g.exact[p] {
		return true
	}
	for _, pattern := range g.base[path.Base(p)] {
		if strings.HasPrefix(pattern, "**/") && strings.Count(pattern, "*") == 2 {
			if p == pattern[3:] || strings.HasSuffix(p, pattern[2:]) {
				return true
			}
			continue
		}
		if bodycam.Glob(pattern, p) {
			return true
		}
	}
	for _, end := range g.ends {
		if strings.HasSuffix(p, end) {
			return true
		}
	}
	if matchesOne(g.rest, p) {
		return true
	}
	return (strings.HasPrefix(p, ".") || strings.Contains(p, "/.")) && matchesOne(g.dot, p)
}

func matchesOne(patterns []string, p string) bool {
	for _, pattern := range patterns {
		if beginsAlike(pattern, p) && bodycam.Glob(pattern, p) {
			return true
		}
	}
	return false
}

// fixedPart is what stands before a pattern's first wildcard, a leading "**/" left out.
func fixedPart(pattern string) string {
	rest := strings.TrimPrefix(pattern, "**/")
	if i := strings.IndexAny(rest, "*?[\\"); i >= 0 {
		return rest[:i]
	}
	return rest
}

// beginsAlike refuses most paths without looking at the whole: what stands before a pattern's first wildcard must begin
// the path, and what stands between a leading "**/" and the next must be in it.
func beginsAlike(pattern, p string) bool {
	fixed := fixedPart(pattern)
	if strings.HasPrefix(pattern, "**/") {
		return strings.Contains(p, fixed)
	}
	return strings.HasPrefix(p, fixed)
}
