package bodycam

import "testing"

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain", "caf\xc3\xa9", "\xff", `\xff`, `\\xff`, "\\\xff", `\x4`, "a\\x5cx41", "\n\t\x00", `\x5c`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := Escape(s)
		if got := Unescape(e); got != s {
			t.Fatalf("Unescape(Escape(%q)) = %q (escaped %q)", s, got, e)
		}
	})
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31mred")
	f.Add("\u202eevil")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Printable(s) {
			if r < 0x20 || r == 0x7f || r >= 0x80 && r <= 0x9f || r == 0x202e {
				t.Fatalf("Printable(%q) holds %q", s, r)
			}
		}
	})
}

func TestNames(t *testing.T) {
	if len(typeNames) != int(typeCount) {
		t.Fatal("a type lacks its name")
	}
	for i := Type(0); i < typeCount; i++ {
		got, ok := ParseType(i.String())
		if !ok || got != i {
			t.Errorf("type %d: %q reads back as %d", i, i, got)
		}
	}
	for a := Access(0); a < 1<<len(accessNames); a++ {
		if got := ParseAccess(a.String()); got != a {
			t.Fatalf("access %#x reads back as %#x", a, got)
		}
	}
}
