package security

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/rules"
)

var update = flag.Bool("update", false, "write docs/RULES.md")

const docFile = "../../docs/RULES.md"

var classes = []struct{ name, title string }{
	{"credentials", "Credentials and secrets"},
	{"workspace", "Changes outside the workspace"},
	{"programs", "Programs from untrusted places, gains of privilege"},
	{"network", "Network to untrusted hosts"},
	{"destruction", "Destruction"},
	{"disruption", "Disruption"},
	{"persistence", "Persistence and back doors"},
	{"recorder", "Tampering with the recorder, or probing for it"},
	{"grading", "Grading material"},
}

// TestDocs holds docs/RULES.md to the rules and the field table.
func TestDocs(t *testing.T) {
	want := document(t)
	if *update {
		if err := os.WriteFile(docFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/RULES.md isn't what the rules say: run go test ./internal/security -run TestDocs -update")
	}
}

func document(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	part := func(name string) {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
	}
	part("RULES.head.md")
	list := testSet().List()
	fmt.Fprintf(&b, "## The built-in rules\n\nVersion %s, %d rules. Severities are those of findings.\n", Version, len(list))
	seen := 0
	for _, c := range classes {
		fmt.Fprintf(&b, "\n### %s\n\n| rule | severity | finds | for example |\n|---|---|---|---|\n", c.title)
		for _, r := range list {
			if r.Class != c.name {
				continue
			}
			seen++
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Name, r.Priority.Severity(), cell(r.Desc), "`` "+cell(r.Example)+" ``")
		}
		if c.name == "credentials" {
			fmt.Fprintf(&b, "| %s | %s | %s | see [decoys](#decoys) |\n", decoyRule.Name, decoyRule.Priority.Severity(), cell(decoyRule.Desc))
		}
	}
	if seen != len(list) {
		t.Errorf("%d of %d rules have a class that the page knows", seen, len(list))
	}
	b.WriteString("\n")
	part("RULES.tail.md")
	b.WriteString("## Fields\n\nAn argument stands in brackets: `proc.aname[2]`. *sign*: of a call that worked only that the value is not negative is\nknown. *list*: a set. *path*, *names*: any of a file's names where a match raises an alert.\n\n| field | type | argument | meaning | events |\n|---|---|---|---|---|\n")
	var missing []rules.Field
	for _, f := range rules.Fields() {
		if !f.Supplied {
			missing = append(missing, f)
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, f.Arg, cell(f.Meaning), f.Events)
	}
	b.WriteString("\n### Falco's fields that are not supplied\n\nA condition that needs one makes its rule unsupported; in an output it prints `<NA>`.\n\n| field | why |\n|---|---|\n")
	for _, f := range missing {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.Name, cell(f.Meaning))
	}
	return b.String()
}

func cell(s string) string {
	s = strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
	return s
}
