package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The key tables of docs/KINDS.md are made of the types.
func TestKeyTables(t *testing.T) {
	const file = "../../docs/KINDS.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for mark, ty := range map[string]reflect.Type{"kind": reflect.TypeFor[Kind](), "task": reflect.TypeFor[taskFile]()} {
		start := strings.Index(text, "<!-- "+mark+" keys")
		if start < 0 {
			t.Fatalf("no mark for %s", mark)
		}
		start += strings.Index(text[start:], "\n") + 1
		end := start + strings.Index(text[start:], "<!-- end -->")
		text = text[:start] + keyTable(ty) + text[end:]
	}
	golden(t, file, text)
}

// keyTable lists a type's keys, and those of the types in it, as Markdown.
func keyTable(t reflect.Type) string {
	var b strings.Builder
	b.WriteString("\n| key | value | meaning |\n|---|---|---|\n")
	once := map[reflect.Type]string{}
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for _, f := range fieldsOf(t) {
			ft := t.Field(f.index).Type
			key, form := path+f.key, formOf(ft, f)
			inner := ft
			for inner.Kind() == reflect.Slice && inner != rawType || inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner != ft && ft.Kind() == reflect.Slice {
				key += "[]"
			}
			nested := inner.Kind() == reflect.Struct && inner != reflect.TypeFor[Command]() && inner != reflect.TypeFor[ExitSet]()
			doc := f.doc
			if f.required {
				doc += " **Required.**"
			}
			seen := once[inner]
			if nested && seen != "" {
				doc += " Keys as of `" + seen + "`."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, form, strings.ReplaceAll(doc, "|", `\|`))
			if nested && seen == "" {
				once[inner] = key
				walk(inner, key+".")
			}
		}
	}
	walk(t, "")
	b.WriteString("\n")
	return b.String()
}

func formOf(t reflect.Type, f field) string {
	if len(f.enum) > 0 {
		one := "`" + strings.Join(f.enum, "`, `") + "`"
		if t.Kind() == reflect.Slice {
			return "list of " + one
		}
		return one
	}
	switch t {
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Command]():
		return "command"
	case reflect.TypeFor[ExitSet]():
		return "exit statuses"
	case reflect.TypeFor[HostPath](), reflect.TypeFor[BasePath]():
		return "path outside"
	case reflect.TypeFor[Date]():
		return "day"
	case reflect.TypeFor[Analysis](), reflect.TypeFor[taskSkill]():
		return "text or map"
	case rawType:
		return "anything"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + formOf(t.Elem(), f)
	case reflect.Pointer:
		return formOf(t.Elem(), f)
	case reflect.Map:
		return "map to " + formOf(t.Elem(), f)
	case reflect.Struct:
		return "map"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	}
	switch f.check {
	case "host", "user":
		return f.check
	case "glob", "abs":
		return "path in the box"
	}
	return "text"
}

// The examples in docs/KINDS.md are right.
func TestExamplesInDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/KINDS.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, part := range strings.Split(string(b), "```yaml\n")[1:] {
		example, _, _ := strings.Cut(part, "```")
		n++
		files := map[string]string{"rules/citations.yaml": "", "files/x": "", "skills/greet/SKILL.md": "", "tests/test.sh": ""}
		if strings.Contains(example, "instruction:") {
			files["task.yaml"] = example
			if _, err := LoadTask(writeTree(t, files)); err != nil {
				t.Error(err)
			}
			continue
		}
		files["k.yaml"] = example
		if _, err := Load(writeTree(t, files) + "/k.yaml"); err != nil {
			t.Error(err)
		}
	}
	if n != 2 {
		t.Errorf("%d examples", n)
	}
}

// What `kind show` prints is a kind that means the same.
func TestShownKindLoadsAgain(t *testing.T) {
	for _, ref := range append(Builtins(), "testdata/kinds/base.yaml") {
		k, err := Load(ref)
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.YAML()
		if err != nil {
			t.Fatal(err)
		}
		k.Extends = ""
		file := filepath.Join(t.TempDir(), "shown.yaml")
		lines := strings.Split(string(text), "\n")
		for i, l := range lines {
			if strings.HasPrefix(l, "extends:") {
				lines[i] = ""
			}
		}
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := Load(file)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		if again.Judge.TrustedDomains != nil && k.Judge.TrustedDomains == nil {
			again.Judge.TrustedDomains = nil // what null took away comes back from the base
		}
		for i := range again.Setup {
			again.Setup[i].at = k.Setup[i].at
		}
		for i := range again.Analyses {
			again.Analyses[i].dir = k.Analyses[i].dir
		}
		again.sources, again.tree = k.sources, k.tree
		if !reflect.DeepEqual(k, again) {
			t.Errorf("%s:\n%+v\n%+v", ref, k, again)
		}
	}
}
