package kind

import (
	"fmt"
	"sort"
	"strings"
)

// Problem is one fault in a file.
type Problem struct {
	File   string `json:"file"` // as the caller named it
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Msg    string `json:"message"`
}

func (p Problem) Error() string {
	switch {
	case p.Line == 0:
		return p.File + ": " + p.Msg
	case p.Column == 0:
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Msg)
}

// Problems are all the faults of a file and of the files that it extends, in the order of the lines. It is the
// error of every reader in this package that found faults in what a file says; use errors.As to get at it.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Err sorts the problems and drops repeated ones. It is nil where there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i], ps[j]
		if a.File != b.File {
			return false // files keep the order in which they were read
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	out := ps[:0]
	seen := map[Problem]bool{}
	for _, p := range ps {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// Nearest returns the candidate that is likeliest meant by a mistyped name, or "" where none is near.
func Nearest(name string, candidates []string) string {
	best, bestDist := "", 1<<30
	low := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	for _, c := range candidates {
		d := distance(low, strings.ToLower(strings.ReplaceAll(c, "-", "_")))
		if d < bestDist {
			best, bestDist = c, d
		}
	}
	limit := len(name)/3 + 1
	if limit > 3 {
		limit = 3
	}
	if bestDist > limit || bestDist >= len(name) && bestDist > 0 {
		return ""
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 1 << 20
	}
	var prev2, prev, cur [66]int
	for j := 0; j <= len(b); j++ {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, cur
	}
	return prev[len(b)]
}
