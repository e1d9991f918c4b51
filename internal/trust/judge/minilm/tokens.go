package minilm

import (
	"strings"
	"unicode"

	unorm "golang.org/x/text/unicode/norm"
)

const (
	unknown = "[UNK]"
	first   = "[CLS]"
	last    = "[SEP]"

	longestWord = 100 // letters; longer words are unknown, as BERT has it
)

// Tokens returns the token ids of text, with the two that BERT puts around it. Texts that are too long for the model are
// cut at the end.
func (m *Model) Tokens(text string) []int32 {
	room := m.Header.Positions
	ids := append(make([]int32, 0, 32), m.vocab[first])
	for word := range words(text) {
		ids = m.pieces(ids, word)
		if len(ids) >= room {
			ids = ids[:room-1]
			break
		}
	}
	return append(ids, m.vocab[last])
}

// pieces appends a word's longest pieces from left to right, or the unknown token where it can't be spelt.
func (m *Model) pieces(ids []int32, word string) []int32 {
	start := len(ids)
	if letters := []rune(word); len(letters) > longestWord {
		return append(ids, m.vocab[unknown])
	}
	prefix := ""
	for word != "" {
		end := len(word)
		for end > 0 {
			if id, ok := m.vocab[prefix+word[:end]]; ok {
				ids = append(ids, id)
				break
			}
			for end--; end > 0 && !isRuneStart(word[end]); end-- {
			}
		}
		if end == 0 {
			return append(ids[:start], m.vocab[unknown])
		}
		word, prefix = word[end:], "##"
	}
	return ids
}

func isRuneStart(b byte) bool { return b&0xC0 != 0x80 }

// words yields the words and punctuation marks of text after BERT's clean-up: control characters go, white space is
// alike, Chinese characters stand alone, accents are stripped, letters are lowered.
func words(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var word strings.Builder
		flush := func() bool {
			if word.Len() == 0 {
				return true
			}
			w := word.String()
			word.Reset()
			return yield(w)
		}
		var it unorm.Iter
		it.InitString(unorm.NFD, clean(text))
		for !it.Done() {
			for _, r := range string(it.Next()) {
				if unicode.Is(unicode.Mn, r) {
					continue
				}
				for _, r := range lower(r) {
					alone := isPunct(r) || isHan(r)
					if (unicode.IsSpace(r) || alone) && !flush() {
						return
					}
					if alone && !yield(string(r)) {
						return
					}
					if !alone && !unicode.IsSpace(r) {
						word.WriteRune(r)
					}
				}
			}
		}
		flush()
	}
}

func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == 0 || r == unicode.ReplacementChar || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co):
			return -1
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, text)
}

// lower is the full lower-case mapping, which unicode.ToLower isn't for one letter: İ becomes two.
func lower(r rune) string {
	if r == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(r))
}

func isPunct(r rune) bool {
	return r >= 33 && r <= 47 || r >= 58 && r <= 64 || r >= 91 && r <= 96 || r >= 123 && r <= 126 || unicode.IsPunct(r)
}

func isHan(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF || r >= 0x2A700 && r <= 0x2B73F ||
		r >= 0x2B740 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF || r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}
