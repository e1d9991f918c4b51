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
	rest  []string
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
	for _, pattern := range g.rest {
		if beginsAlike(pattern, p) && bodycam.Glob(pattern, p) {
			return true
		}
	}
	return false
}

// beginsAlike refuses most paths without looking at the whole: what stands before a pattern's first wildcard must begin
// the path, and what stands between a leading "**/" and the next must be in it.
func beginsAlike(pattern, p string) bool {
	rest, deep := strings.CutPrefix(pattern, "**/")
	fixed := rest
	if i := strings.IndexAny(rest, "*?[\\"); i >= 0 {
		fixed = rest[:i]
	}
	if deep {
		return strings.Contains(p, fixed)
	}
	return strings.HasPrefix(p, fixed)
}
