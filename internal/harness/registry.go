package harness

import (
	"fmt"
	"strings"
)

// all returns every harness, the default first.
func all() []Harness {
	return []Harness{codex{}, claudeCode{}, geminiCLI{}, builtinAgent{}, replay{}, command{}}
}

// Default is the harness where nothing is said.
const Default = "codex"

// Names lists the harnesses.
func Names() []string {
	var names []string
	for _, h := range all() {
		names = append(names, h.Name())
	}
	return names
}

// Get returns the harness of that name.
func Get(name string) (Harness, error) {
	best, distance := "", 4
	for _, h := range all() {
		if h.Name() == name {
			return h, nil
		}
		if d := edits(name, h.Name()); d < distance {
			best, distance = h.Name(), d
		}
	}
	hint := ""
	if best != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", best)
	}
	return nil, fmt.Errorf("unknown agent %q%s: there are %s", name, hint, strings.Join(Names(), ", "))
}

// edits counts the insertions, deletions and replacements that make a into b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(diagonal+cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
