package rules

import "strings"

// unnamed stands in a sentence where a field is needed that the event doesn't have.
const unnamed = "something unnamed"

// sentence prints the template for people: what an absent field would have said is left out, with the words that only
// introduce it, instead of shown as <NA>.
func (t template) sentence(m *machine) string {
	var out []byte
	said, drop := "", 0 // the text before, and how many bytes of the text after go with what was left out
	for i, p := range t.pieces {
		if p.show == nil && !p.none {
			said = p.text[min(drop, len(p.text)):]
			out, drop = append(out, said...), 0
			continue
		}
		at := len(out)
		if !p.none {
			// Where an event itself says "<NA>" the sentence is a word shorter, and no more.
			out = p.show.print(out, m)
		}
		if p.none || string(out[at:]) == absent {
			next := ""
			if i+1 < len(t.pieces) {
				next = t.pieces[i+1].text
			}
			out, drop = without(out[:at], said, next)
		}
		said = ""
	}
	return strings.TrimSpace(string(out))
}

// without ends a sentence's beginning where an absent field follows. said is the text right before the field, next the
// one right after it, of which drop bytes go too.
func without(out []byte, said, next string) (rest []byte, drop int) {
	bare := strings.TrimRight(said, " ")
	cut := len(out) - (len(said) - len(bare))
	open := strings.LastIndexByte(bare, '(')
	switch {
	case open > strings.LastIndexByte(bare, ')') && strings.HasPrefix(next, ")"): // (known by …)
		gone := len(said) - len(strings.TrimRight(said[:open], " "))
		return out[:len(out)-gone], 1
	case strings.HasSuffix(bare, ":"):
		return out[:cut-1], 0
	case bare == "" && len(out) > 0:
		return out[:cut], 0
	}
	return append(out, unnamed...), 0
}
