package kind

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestMerge(t *testing.T) {
	k, err := Load("testdata/kinds/child.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if k.Name != "child" || k.Description != "" {
		t.Errorf("name %q and description %q are a kind's own", k.Name, k.Description)
	}
	e := k.Environment
	want := map[string]string{"A": "a", "C": "3", "D": "4", "LANG": "C.UTF-8", "TERM": "dumb",
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if d := cmp.Diff(want, e.Env); d != "" {
		t.Errorf("maps merge key by key, and null takes away:\n%s", d)
	}
	if d := cmp.Diff([]string{"a.example.org", "b.example.org"}, e.Network.Allow); d != "" {
		t.Errorf("+allow adds:\n%s", d)
	}
	if e.Network.Mode != "allow" || e.Limits.Memory != 2<<30 || e.Limits.CPUs != 1.5 || e.Limits.PIDs != 4096 {
		t.Errorf("scalars: %+v %+v", e.Network, e.Limits)
	}
	if len(k.Setup) != 2 || k.Setup[0].Run.Shell != "echo one" || !reflect.DeepEqual(k.Setup[1].Run.Argv, []string{"echo", "two", "3"}) || !k.Setup[1].Exit.Has(2) || k.Setup[1].Exit.Has(1) {
		t.Errorf("setup: %+v", k.Setup)
	}
	if k.Setup[1].at != "testdata/kinds/child.yaml:9" || k.Setup[0].at != filepath.Join(wd, "testdata/kinds/base.yaml")+":9" {
		t.Errorf("steps know where they are written: %q, %q", k.Setup[0].at, k.Setup[1].at)
	}
	if k.Analyses != nil || !reflect.DeepEqual(k.Sensors, []string{"auto", "ptrace"}) {
		t.Errorf("analyses %v, sensors %v", k.Analyses, k.Sensors)
	}
	if len(k.Judge.Allow.Hosts) != 0 || !reflect.DeepEqual(k.Judge.Allow.Commands, []string{"make"}) {
		t.Errorf("a list replaces: %+v", k.Judge.Allow)
	}
	if k.Judge.Rules[0] != HostPath(filepath.Join(wd, "testdata/kinds/rules.yaml")) {
		t.Errorf("paths are relative to the file that names them: %q", k.Judge.Rules)
	}
	if string(k.Extra["owner"]) != `{"room":2,"team":"red"}` {
		t.Errorf("x: %s", k.Extra["owner"])
	}
	var names []string
	for _, s := range k.Sources() {
		names = append(names, strings.TrimPrefix(s.Path, wd+"/"))
	}
	if d := cmp.Diff([]string{"builtin:default", "builtin:command", "testdata/kinds/base.yaml", "testdata/kinds/child.yaml"}, names); d != "" {
		t.Errorf("sources:\n%s", d)
	}
}

func TestAnalysesOfOnesOwn(t *testing.T) {
	k, err := Load("testdata/kinds/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	task, err := CommandTask([]string{"make", "all"}, "testdata/kinds")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(k, task, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Analyses) != 2 || p.Analyses[1].Dir == "" || p.Analyses[1].Command[0] != "./mine.py" || p.Analyses[1].Timeout.D() != time.Minute {
		t.Errorf("analyses: %+v", p.Analyses)
	}
	if len(p.Judge.Rules) != 1 || p.Judge.Rules[0].Size != 14 {
		t.Errorf("rules: %+v", p.Judge.Rules)
	}
	if p.Setup[0].Name != "workspace" || p.Setup[0].Copies[0].To != "/workspace" || p.Setup[0].Copies[0].Files != 3 {
		t.Errorf("workspace: %+v", p.Setup[0])
	}
	p, err = Resolve(k, task, Overrides{Analyses: []string{"mine", "security"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Analyses) != 2 || p.Analyses[0].Command == nil || p.Analyses[1].Name != "security" {
		t.Errorf("chosen analyses: %+v", p.Analyses)
	}
}

func TestOverrides(t *testing.T) {
	k, err := Load("default")
	if err != nil {
		t.Fatal(err)
	}
	task := &Task{Name: "t", Form: FormBodycam, Instruction: "do", Agent: TaskAgent{Timeout: Duration(time.Minute)}, Environment: TaskEnvironment{Limits: Limits{Memory: 1 << 20}, Workdir: "/w"}}
	p, err := Resolve(k, task, Overrides{
		Model: "m", Parameters: map[string]json.RawMessage{"effort": json.RawMessage(`"high"`)}, Env: map[string]string{"E": "${not expanded}"},
		Limits: Limits{CPUs: 3}, Timeouts: Timeouts{Agent: Duration(time.Second), Total: Duration(time.Hour)}, Sensors: []string{"ptrace"}, Allow: []string{"h"},
		Forward: []Forward{{"model", 80, "127.0.0.1:1"}}, User: "u", Seccomp: "observe",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.Agent.Harness != "codex" || p.Agent.Model != "m" || string(p.Agent.Parameters["effort"]) != `"high"` || p.Agent.Timeout.D() != time.Second {
		t.Errorf("agent: %+v", p.Agent)
	}
	if p.Limits.CPUs != 3 || p.Limits.Memory != 1<<20 || p.Timeouts.Total.D() != time.Hour || p.Timeouts.Agent.D() != time.Second {
		t.Errorf("limits %+v, timeouts %+v", p.Limits, p.Timeouts)
	}
	if p.User != "u" || p.Workdir != "/w" || p.Judge.Workspace[0] != "/w" || p.Seccomp != "observe" || p.Network.Forward[0].Host != "model" {
		t.Errorf("plan: %+v", p)
	}
	if p.Env[0] != (EnvVar{Name: "E", Value: "${not expanded}", From: "command line"}) {
		t.Errorf("env: %+v", p.Env)
	}
}

func TestValues(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"600": 10 * time.Minute, "2.5": 2500 * time.Millisecond, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour,
		"1d2h": 26 * time.Hour, "0": 0, "250ms": 250 * time.Millisecond, " 5s ": 5 * time.Second, "0d": 0,
	} {
		if got, err := ParseDuration(in); err != nil || got.D() != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "-1", "-1s", "1e99", "NaN", "inf", "d", "10 minutes", "366d", "9999999h", "1d-2h", "5m1d"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
	for in, want := range map[string]Size{
		"2G": 2 << 30, "512M": 512 << 20, "256K": 256 << 10, "10 MiB": 10 << 20, "1048576": 1 << 20, "1.5g": 3 << 29, "7b": 7, "1kb": 1024, "2GB": 2 << 30, "0": 0,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "G", "-1", "1X", "1 G B", "1e3", "99999999T", "i", "1i", "..", "1.2.3"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", in, got)
		}
	}
	day, err := ParseDate("2027-01-31")
	if err != nil {
		t.Fatal(err)
	}
	if day.Passed(time.Date(2027, 1, 31, 23, 59, 59, 0, time.UTC)) || !day.Passed(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)) {
		t.Error("a day counts until its end")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"network", "limits", "env", "user", "record", "allow", "sink", "none"}
	for in, want := range map[string]string{
		"netwrok": "network", "netwok": "network", "Network": "network", "limit": "limits", "usr": "user", "enviroment": "", "zzz": "", "x": "", "recrod": "record", "nome": "none",
	} {
		if got := Nearest(in, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSchemaIsTheOneInDocs(t *testing.T) {
	for file, got := range map[string][]byte{"../../docs/kind.schema.json": Schema(), "../../docs/task.schema.json": TaskSchema()} {
		golden(t, file, string(got))
	}
}

// Editors must not complain of what the program accepts.
func TestSchemaAcceptsWhatTheReaderAccepts(t *testing.T) {
	kinds, err := filepath.Glob("testdata/kinds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	builtins, err := filepath.Glob("builtin/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, Schema())
	n := 0
	for _, f := range append(kinds, builtins...) {
		if filepath.Base(f) == "rules.yaml" {
			continue
		}
		n++
		if err := s.Validate(asJSON(t, f)); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	if n < 7 {
		t.Errorf("only %d kinds", n)
	}
	if err := compile(t, TaskSchema()).Validate(asJSON(t, "testdata/tasks/own/task.yaml")); err != nil {
		t.Error(err)
	}
}

// What is wrong in form, editors must show; what only files or meaning tell, only the program can.
func TestSchemaRefusesWhatIsWrongInForm(t *testing.T) {
	s := compile(t, Schema())
	for _, f := range []string{"many", "append", "list", "many-base"} {
		if err := s.Validate(asJSON(t, "testdata/broken/"+f+".yaml")); err == nil {
			t.Errorf("%s: the schema accepts it", f)
		}
	}
	for _, doc := range []string{`{"name":"x","setup":[{"name":"n"}]}`, `{"name":"x","timeouts":{"total":"soon"}}`, `{"name":"x","environment":{"limits":{"memory":"2 gigs"}}}`, `{}`} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err == nil {
			t.Errorf("%s: the schema accepts it", doc)
		}
	}
}

func compile(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asJSON(t *testing.T, file string) any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, probs := parseYAML(data, &source{name: file})
	if err := probs.Err(); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(n.json()))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Every field of a file has a description: docs/KINDS.md and the schemas are made of them.
func TestEveryKeyIsDescribed(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(ty reflect.Type) {
		for ty.Kind() == reflect.Slice || ty.Kind() == reflect.Pointer || ty.Kind() == reflect.Map {
			ty = ty.Elem()
		}
		if ty.Kind() != reflect.Struct || seen[ty] {
			return
		}
		seen[ty] = true
		for _, f := range fieldsOf(ty) {
			if f.doc == "" || !strings.HasSuffix(f.doc, ".") {
				t.Errorf("%s.%s: description %q", ty.Name(), f.key, f.doc)
			}
			walk(ty.Field(f.index).Type)
		}
	}
	walk(reflect.TypeFor[Kind]())
	walk(reflect.TypeFor[taskFile]())
	if len(seen) < 15 {
		t.Errorf("only %d types", len(seen))
	}
}
