package rules

import (
	"errors"
	"strings"
	"testing"
)

func TestErrors(t *testing.T) {
	yaml := `- list: shells
  items: [bash, sh]
- macro: opened
  condition: evt.typ = open
- rule: one
  desc: d
  condition: >
    opened and proc.nam = x
    and shels
  output: "%proc.nme"
  priority: LOUD
- rule: two
  desc: d
  condition: evt.type = opne and fd.name startwith /etc
  output: o
  priority: INFO
- rule: three
  desc: d
  condition: fd.sport = http and proc.name in (shells) and (fd.ip = 10.0.0.0/8
  output: o
  priority: INFO
- rule: four
  desc: d
  condition: "proc.name regex '(' or proc.name in shels or fd.ip = 10.0.0.0/8"
  output: o
  priority: INFO
- rule: five
  condition: evt.type = open
  output: o
- macro: loop
  condition: loop
- rule: none
  append: true
  condition: and evt.type = open
- rule: four
  condition: and x.y = 1
  override: {condition: prepend}
`
	_, err := LoadSources(Options{}, Source{Name: "bad.yaml", Data: []byte(yaml)})
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("want Errors, got %v", err)
	}
	want := []string{
		`bad.yaml:4:14: one: there is no field "evt.typ"; did you mean "evt.type"?`,
		`bad.yaml:8:16: one: there is no field "proc.nam"; did you mean "proc.name"?`,
		`bad.yaml:9:9: one: there is no macro "shels"`,
		`bad.yaml:10:13: one: there is no field "proc.nme"; did you mean`,
		`bad.yaml:11:13: one: unknown priority "LOUD"`,
		`bad.yaml:14:42: two: want an operator after fd.name, found "startwith"; did you mean "startswith"?`,
		`bad.yaml:19:78: three: want ')' here`,
		`bad.yaml:24:31: four: this regular expression can't be read`,
		`bad.yaml:24:51: four: there is no list "shels"; did you mean "shells"?`,
		`bad.yaml:24:68: four: fd.ip wants an address, not "10.0.0.0/8"; for networks use fd.net`,
		`bad.yaml:27:9: five: a rule wants desc`,
		`bad.yaml:27:9: five: a rule wants priority`,
		`bad.yaml:31:14: macro loop: macro "loop" leads back to itself`,
		`bad.yaml:32:9: none: there is no rule of that name before it to change`,
		`bad.yaml:37:25: four: override of condition wants append or replace, not "prepend"`,
	}
	got := strings.Split(err.Error(), "\n")
	for i, w := range want {
		if i >= len(got) {
			t.Errorf("missing: %s", w)
		} else if !strings.HasPrefix(got[i], w) {
			t.Errorf("error %d\n got %s\nwant %s", i, got[i], w)
		}
	}
	if len(got) > len(want) {
		t.Errorf("more: %q", got[len(want):])
	}
}

func TestYAMLErrors(t *testing.T) {
	for _, tc := range []struct{ yaml, want string }{
		{"rule: x\n", "a rule file is a list"},
		{"- rule: [\n", "x.yaml:"},
		{"- rule: a\n  rule: b\n", "x.yaml:2:"},
		{"- 7\n", "each element is a mapping"},
		{"- *a\n", "no anchor"},
		{"- list: l\n  items: x\n", "items wants a list"},
		{"- rule: [a]\n", "wants a text"},
	} {
		_, err := LoadSources(Options{}, Source{Name: "x.yaml", Data: []byte(tc.yaml)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", tc.yaml, err, tc.want)
		}
	}
}

const base = `
- required_engine_version: 0.31.0
- required_plugin_versions:
  - name: container
    version: 0.4.0
- list: editors
  items: [vi, '"(ed)"']
- list: tools
  items: [editors, make]
- macro: opens
  condition: evt.type in (open, openat)
- macro: never_true
  condition: (evt.num=0)
- rule: R
  desc: d
  condition: opens and proc.name in (tools) and not never_true
  output: file %fd.name by %proc.name
  priority: WARNING
  tags: [a]
  exceptions:
  - name: proc_file
    fields: [proc.name, fd.name]
    comps: [=, startswith]
    values:
    - [make, /ok]
  - name: names
    fields: fd.filename
  - name: in_list
    fields: [proc.name, fd.directory]
    comps: [in, =]
    values:
    - [[editors, other], /listed]
  - name: mod
    fields: fd.name
    comps: startswith oneof
`

// A key or transformer that is nearly right is named beside what is missing.
func TestNearMisses(t *testing.T) {
	_, err := LoadSources(Options{}, Source{Name: "bad.yaml", Data: []byte(`- rule: one
  desc: d
  condtion: evt.type = open
  output: x
  prioritty: INFO
- macro: q
  conditon: evt.type = open
- rule: two
  desc: d
  condition: evt.type = open and tolowr(fd.name) = x
  output: x
  priority: INFO
`)})
	for _, want := range []string{
		`one: a rule wants priority; "prioritty" is no key: did you mean "priority"?`,
		`one: a rule wants a condition or a sequence; "condtion" is no key: did you mean "condition"?`,
		`macro q: a macro wants a condition; "conditon" is no key: did you mean "condition"?`,
		`bad.yaml:10:34: two: there is no transformer "tolowr"; did you mean "tolower"?`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

// The parts of a rule name what was nearly right as well.
func TestNearMissesInParts(t *testing.T) {
	_, err := LoadSources(Options{}, Source{Name: "bad.yaml", Data: []byte(`- rule: one
  desc: d
  output: x
  priority: HIGHEST
  sequence:
    within: 3s
    steps: [{condtion: evt.type = open}, {condition: evt.type = open}]
- rule: two
  desc: d
  output: x
  priority: INFO
  sequence: {within: 3s, stepz: []}
- rule: three
  desc: d
  condition: evt.type = open
  output: x
  priority: INFO
  threshold: {ovr: 3, wihtin: 3s}
- rule: four
  desc: d
  condition: evt.type = open
  output: x
  priority: INFO
  exceptions: [{name: a, feilds: proc.name, values: [x]}]
`)})
	for _, want := range []string{
		`bad.yaml:4:13: one: unknown priority "HIGHEST": want emergency, alert, critical,`,
		`one: a step wants a condition; "condtion" is no key: did you mean "condition"?`,
		`two: a sequence wants steps; "stepz" is no key: did you mean "steps"?`,
		`three: a threshold wants over (a number); "ovr" is no key: did you mean "over"?`,
		`three: a threshold wants within (a duration); "wihtin" is no key: did you mean "within"?`,
		`four: exception a wants fields; "feilds" is no key: did you mean "fields"?`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	// A list's name that is mistyped in parentheses is a value, and told of.
	s, err := LoadSources(Options{}, Source{Name: "near.yaml", Data: []byte(`- list: shell_programs
  items: [sh, bash]
- rule: one
  desc: d
  condition: evt.type = open and proc.name in (shell_program, bash, python3)
  output: x
  priority: INFO
`)})
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0].Error(), `near.yaml:5:48: one: "shell_program" is no list and stands for itself; did you mean "shell_programs"?`) {
		t.Errorf("warnings: %v", w)
	}
}
