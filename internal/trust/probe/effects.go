package probe

import (
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

// changing are verbs of skills whose use could change something in the world.
var changing = strings.Fields(`book buy order purchase pay transfer send email post publish tweet delete remove cancel create update change modify write
	execute run deploy install start stop restart schedule reserve submit sign approve refund issue move rename upload share invite call message
	commit merge push reset revoke grant close open lock unlock control command shell`)

// SideEffects lists the skills whose use could change something outside a sandbox, by what they say of themselves: their
// names and descriptions, and for tool servers the annotations. That a skill isn't listed is no promise.
func SideEffects(d *trust.Declaration) []string {
	var out []string
	readOnly := map[string]bool{}
	for _, t := range d.Tools {
		readOnly[t.Name] = t.ReadOnly != nil && *t.ReadOnly
		if !readOnly[t.Name] {
			out = append(out, t.Name)
		}
	}
	for _, s := range d.Skills {
		if len(s.Tools) == 1 && d.Kind == "mcp" {
			continue // told by its tool
		}
		for _, w := range words(s.Name + " " + s.Description) {
			if slices.Contains(changing, w) || slices.Contains(changing, strings.TrimSuffix(w, "s")) || slices.Contains(changing, strings.TrimSuffix(w, "es")) ||
				slices.Contains(changing, stem(w)) || slices.Contains(changing, stem(w)+"e") || slices.Contains(changing, undouble(stem(w))) {
				out = append(out, s.ID)
				break
			}
		}
	}
	return out
}

// undouble turns cancell into cancel.
func undouble(w string) string {
	if n := len(w); n > 2 && w[n-1] == w[n-2] {
		return w[:n-1]
	}
	return w
}
