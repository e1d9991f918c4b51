package bodycam

import (
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Escape turns raw bytes into UTF-8 without loss. Valid UTF-8 stays as it is; a byte that isn't part of valid
// UTF-8 becomes \xHH (two lower-case hexadecimal digits). So that the result is unambiguous, a backslash which
// already stands before xHH is itself written \x5c. [Unescape] undoes it. Control characters are left alone:
// JSON has its own escapes for them, terminals get [Printable].
func Escape(s string) string {
	clean := utf8.ValidString(s)
	if clean && !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		if s[i] == '\\' && looksEscaped(s[i:]) {
			b.WriteString(`\x5c`)
			i++
			continue
		}
		if s[i] < utf8.RuneSelf {
			b.WriteByte(s[i])
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			writeHex(&b, s[i])
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// EscapeAll is Escape of each string of a list.
func EscapeAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Escape(s)
	}
	return out
}

// Unescape undoes [Escape]. Text that Escape can't have written is returned as it is.
func Unescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == '\\' && looksEscaped(s[i:]) {
			b.WriteByte(unhex(s[i+2])<<4 | unhex(s[i+3]))
			i += 4
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// Printable makes bytes safe for a terminal: whatever isn't printable (control characters, bidirectional
// overrides, invalid UTF-8) becomes \n, \t, \xHH or \u{H…}. It is for people; it can't be undone.
func Printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			writeHex(&b, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			writeHex(&b, byte(r))
		case hidden(r):
			b.WriteString(`\u{`)
			for shift := 20; shift >= 0; shift -= 4 {
				if d := r >> shift; d != 0 || shift < 16 {
					b.WriteByte(hexDigits[d&15])
				}
			}
			b.WriteByte('}')
		default:
			b.WriteString(s[i : i+n])
		}
		if n == 0 {
			n = 1
		}
		i += n
	}
	return b.String()
}

// hidden tells of characters that are valid but change how a line reads: C1 controls, zero-width and
// bidirectional characters, the byte order mark, tags, private use.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f, r == 0xad, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e,
		r >= 0x2060 && r <= 0x206f, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000, r >= 0xe000 && r <= 0xf8ff:
		return true
	}
	return false
}

func looksEscaped(s string) bool {
	return len(s) >= 4 && s[1] == 'x' && isHex(s[2]) && isHex(s[3])
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'a' + 10
}

func writeHex(b *strings.Builder, c byte) {
	b.WriteString(`\x`)
	b.WriteByte(hexDigits[c>>4])
	b.WriteByte(hexDigits[c&15])
}
