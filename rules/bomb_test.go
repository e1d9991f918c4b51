package rules

import (
	"fmt"
	"strings"
	"testing"
)

// A few lines that name one another don't become a memory full of items: they are refused at their line, or cost nothing.
func TestBombs(t *testing.T) {
	var b strings.Builder
	b.WriteString("- list: l0\n  items: [a, b, c, d, e, f, g, h, i, j]\n")
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&b, "- list: l%d\n  items: [%s]\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("l%d, ", i-1), 10), ", "))
	}
	b.WriteString(ruleOf("proc.name in (l10)"))
	wantError(t, b.String(), ":9:", "more than 65536 items")

	b.Reset()
	b.WriteString("- list: l0\n  items: [" + strings.TrimSuffix(strings.Repeat("aaa, ", 60_000), ", ") + "]\n")
	b.WriteString(ruleOf(strings.TrimSuffix(strings.Repeat("proc.name in (l0) or ", 30), " or ")))
	wantError(t, b.String(), ":9:376: r:", "too many")

	b.Reset()
	for i := range maxListDepth + 10 {
		fmt.Fprintf(&b, "- list: l%03d\n  items: [l%03d]\n", i, i+1)
	}
	b.WriteString(ruleOf("proc.name in (l000)"))
	wantError(t, b.String(), "", "64 deep")

	b.Reset()
	b.WriteString("- macro: m0\n  condition: (proc.name = a or fd.name = b or proc.env = c)\n")
	for i := 1; i <= 40; i++ {
		fmt.Fprintf(&b, "- macro: m%d\n  condition: (%s)\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("m%d or not m%d or ", i-1, i-1), 5), " or "))
	}
	b.WriteString(ruleOf("m40"))
	set, err := LoadSources(Options{}, Source{Name: "bomb.yaml", Data: []byte(b.String())})
	if err != nil {
		t.Fatal(err)
	}
	if u := set.Unsupported(); len(u) != 1 || len(u[0].Unsupported) != 1 {
		t.Errorf("unsupported: %+v", u)
	}
	if f := set.List()[0].Fields; len(f) > 3 {
		t.Errorf("fields: %v", f)
	}
}

func wantError(t *testing.T, file, at, says string) {
	t.Helper()
	_, err := LoadSources(Options{}, Source{Name: "bomb.yaml", Data: []byte(file)})
	if err == nil || !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), says) {
		t.Errorf("want %q at %q: %.300v", says, at, err)
	}
}

// The name of a macro where a list is wanted is told.
func TestMacroForList(t *testing.T) {
	set, err := LoadSources(Options{}, Source{Name: "f.yaml", Data: []byte("- macro: shell_programs\n  condition: (proc.name = sh)\n" + ruleOf("evt.type = execve and proc.name in (shell_programs)"))})
	if err != nil {
		t.Fatal(err)
	}
	if w := fmt.Sprint(set.Warnings()); !strings.Contains(w, `"shell_programs" is a macro and no list`) {
		t.Error(w)
	}
}
