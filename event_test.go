package bodycam

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

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

// docs/EVENTS.md names whatever an event can say.
func TestEventsDoc(t *testing.T) {
	text, err := os.ReadFile("docs/EVENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	has := func(what string, names []string) {
		for _, n := range names {
			if n != "" && !regexp.MustCompile("`([^`]* )?"+regexp.QuoteMeta(n)+"( [^`]*)?`").Match(text) {
				t.Errorf("docs/EVENTS.md doesn't name the %s %q", what, n)
			}
		}
	}
	has("type", typeNames[1:])
	has("mark", markNames)
	has("source of a host's name", hostSourceNames)
	has("window", windowNames)
	has("transport", protoNames)
	has("access", accessNames)
	var members map[string]any
	e := full(t)
	exit := *e
	exit.Type = TypeExit
	for _, e := range []*Event{e, &exit} {
		if err := json.Unmarshal(e.AppendJSON(nil), &members); err != nil {
			t.Fatal(err)
		}
		has("member", slices.Collect(maps.Keys(members)))
	}
}
