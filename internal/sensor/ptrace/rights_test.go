//go:build linux && amd64

package ptrace

import (
	"slices"
	"testing"
)

func TestRights(t *testing.T) {
	two := "\x18\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00"
	creds := "\x1c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00" + "abcdefghijkl" + "pad."
	compat := "\x10\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x07\x00\x00\x00"
	for _, c := range []struct {
		b    string
		word int
		want []int
	}{
		{two, 8, []int{3, 4}},
		{creds + two, 8, []int{3, 4}},
		{two + creds, 8, []int{3, 4}},
		{compat, 4, []int{7}},
		{two[:20], 8, nil}, // says that it is longer than it is
		{"\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00", 8, nil}, // says that it is shorter
		{"", 8, nil},
	} {
		if got := rights([]byte(c.b), c.word); !slices.Equal(got, c.want) {
			t.Errorf("rights(%q) = %v, want %v", c.b, got, c.want)
		}
	}
}

func FuzzRights(f *testing.F) {
	f.Add([]byte("\x18\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00"), true)
	f.Add([]byte("\x10\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x07\x00\x00\x00"), false)
	f.Fuzz(func(t *testing.T, b []byte, long bool) {
		word := 4
		if long {
			word = 8
		}
		if n := len(rights(b, word)); n > len(b)/4 {
			t.Errorf("%d descriptors in %d bytes", n, len(b))
		}
	})
}
