package judge

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"
)

//go:embed data/languages.txt
var languagesText string

type language struct {
	code  string
	words map[string]bool
}

var languages = sync.OnceValue(func() []language {
	var out []language
	for line := range strings.Lines(languagesText) {
		code, list, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		l := language{code, map[string]bool{}}
		for _, w := range strings.Fields(list) {
			l.words[w] = true
		}
		out = append(out, l)
	}
	return out
})

// Language guesses the language of a text: a code such as "en" or "de", "other" for other scripts than the Latin one, and
// "" where the text says too little. Latin text that shows no language is taken for English by the judges.
func Language(text string) string {
	var latin, other, marks int
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Latin, r):
			latin++
			if r > unicode.MaxASCII {
				marks++
			}
		case unicode.IsLetter(r):
			other++
		}
	}
	if other > 3 && other*2 > latin {
		return "other"
	}
	words := plainWords(text)
	best, most, english := "", 0, 0
	for _, l := range languages() {
		hits := 0
		for _, w := range words {
			if l.words[w] {
				hits++
			}
		}
		if l.code == "en" {
			english = hits
		} else if marks > 0 && hits > 0 {
			hits++
		}
		if hits > most {
			best, most = l.code, hits
		}
	}
	if most == 0 || best != "en" && (most < 2 || most <= english) {
		if english > 0 {
			return "en"
		}
		return ""
	}
	return best
}
