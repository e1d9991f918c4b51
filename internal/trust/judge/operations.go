package judge

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"
)

//go:embed data/operations.txt
var operationsText string

// operationWords maps a word, or two with a space between, to bits of the operations it stands for.
var operationWords = sync.OnceValue(func() map[string]uint64 {
	words, bit := map[string]uint64{}, uint64(1)
	for line := range strings.Lines(operationsText) {
		_, list, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		for _, w := range strings.Fields(list) {
			words[strings.ReplaceAll(w, "-", " ")] |= bit
		}
		bit <<= 1
	}
	return words
})

// operations returns the operations that a text names, one bit each.
func operations(text string) uint64 {
	words := plainWords(text)
	table, set := operationWords(), uint64(0)
	for i, w := range words {
		set |= table[w] | table[strings.TrimSuffix(w, "s")]
		if i+1 < len(words) {
			set |= table[w+" "+words[i+1]]
		}
	}
	return set
}

// plainWords returns the lower-cased words of a text, without punctuation.
func plainWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
