package judge

import (
	"strings"
	"unicode"
)

// Declaration is what an agent says it can do, as far as judges read it.
type Declaration struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Skills      []Skill `json:"skills"`
}

// Skill is one thing that a declaration offers. Everything but the name may be missing; many real cards have no examples.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples"`
}

// label is the skill's name in words, or its id's.
func (s *Skill) label() string {
	if l := spell(s.Name); l != "" {
		return l
	}
	return spell(s.ID)
}

// about is the skill's description, or its tags where it has none; "" if that says no more than the name.
func (s *Skill) about() string {
	d := strings.TrimSpace(s.Description)
	if d == "" {
		d = strings.Join(s.Tags, ", ")
	}
	if strings.EqualFold(spell(d), s.label()) {
		return ""
	}
	return d
}

// spell turns an identifier into words: bookHotel, book_hotel and book-hotel become "book hotel". Text with spaces is
// left as it is.
func spell(s string) string {
	s = strings.TrimSpace(s)
	if strings.ContainsFunc(s, unicode.IsSpace) {
		return s
	}
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		switch {
		case r == '_' || r == '-' || r == '.' || r == '/' || r == ':':
			b.WriteByte(' ')
			continue
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1]) ||
			unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
