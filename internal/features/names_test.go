package features

import (
	"os"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// Every rule does what its example says, alone and as part of all rules.
func TestNameRules(t *testing.T) {
	doc, err := os.ReadFile("../../docs/ANALYSES.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range NameRules {
		if seen[r.Name] {
			t.Errorf("two rules are called %s", r.Name)
		}
		seen[r.Name] = true
		if r.In != "file" && r.In != "text" && r.In != "both" {
			t.Errorf("%s: it is for %q", r.Name, r.In)
		}
		if got := CommonName(r.Example, r.In == "text"); got != r.Want {
			t.Errorf("%s: %s became %s, want %s", r.Name, r.Example, got, r.Want)
		}
		if again := CommonName(r.Want, false); again != r.Want {
			t.Errorf("%s: %s is not stable: it becomes %s", r.Name, r.Want, again)
		}
		if row := "| " + r.Name + " | `" + r.Example + "` | `" + r.Want + "` |"; !strings.Contains(string(doc), row) {
			t.Errorf("docs/ANALYSES.md lacks the row\n%s", row)
		}
	}
}

// What names a thing is no accident and stays.
func TestNamesThatStay(t *testing.T) {
	for _, name := range []string{"/app/refs.bib", "/etc/os-release", "/usr/bin/python3.11", "/app/chapter12.tex", "/app/v1.2.3/a.txt", "/tmp/answers", "/tmp/responses/out.txt",
		"/app/2026/report.md", "/app/data2024.csv", "/app/sedan.txt", "/app/sedentary", "/app/sedan1", "/app/deadbeef.txt", "/tmp/north.csv", "/app/a1b2c3", "/app/IMG_0042.png", "/app/test_stats.py", "/app/12345.txt",
		"/usr/lib/x86_64-linux-gnu/libc.so.6", "/app/port-8080.conf", "/app/.env", "/proc/self/status", "/tmp/pytest-of-root/x", "/app/base64", "/app/sha256sum.txt"} {
		if got := CommonName(name, false); got != name {
			t.Errorf("%s became %s", name, got)
		}
	}
}

// The same work of two runs has one name.
func TestNamesCompare(t *testing.T) {
	for _, pair := range [][2]string{
		{"/tmp/tmp.Ab12Cd34Ef", "/tmp/tmp.Zy98Xw76Vu"},
		{"/tmp/tmpab12cd_x/data", "/tmp/tmpzz99yy_q/data"},
		{"/root/.codex/shell_snapshots/3f2504e0-4f89-41d3-9a0c-0305e82c3301.1764516334970000000.sh", "/root/.codex/shell_snapshots/11111111-4f89-41d3-9a0c-0305e82c3301.1764516399000000001.sh"},
		{"/tmp/go-build1234567/b001/exe", "/tmp/go-build7654321/b001/exe"},
		{"/proc/17/stat", "/proc/99999/stat"},
		{"/var/tmp/#103", "/var/tmp/#2"},
		{"/app/sedAb12Cd", "/app/sedzZ9yY8"},
	} {
		if a, b := CommonName(pair[0], false), CommonName(pair[1], false); a != b {
			t.Errorf("%s and %s differ", a, b)
		}
	}
}

func TestCommandNames(t *testing.T) {
	plan := &Plan{Skills: []Skill{{Name: "cite", Roots: []string{"/root/.codex/skills/cite", "/root/.agents/skills/cite"}}}}
	x := NewExtractor(plan, nil)
	for _, c := range []struct {
		exe, argv, cwd, script string
		sub, full              string
	}{
		{"/usr/bin/git", "git|-C|/repo|commit|-m|x y", "", "", "/usr/bin/git commit", "/usr/bin/git -C /repo commit -m 'x y'"},
		{"/usr/bin/python3.11", "python3|-m|pip|install|x", "", "", "/usr/bin/python3.11 -m pip", "/usr/bin/python3.11 -m pip install x"},
		{"/usr/bin/python3.11", "python3|a.py|--fast", "/app", "", "/usr/bin/python3.11 /app/a.py", "/usr/bin/python3.11 a.py --fast"},
		{"/usr/bin/python3.11", "python3|-c|print(1)", "", "", "/usr/bin/python3.11 -c", "/usr/bin/python3.11 -c print(1)"},
		{"/usr/bin/python3.11", "python3", "", "", "/usr/bin/python3.11 -", "/usr/bin/python3.11"},
		{"/usr/bin/bash", "bash|-euo|pipefail|-c|ls", "", "", "/usr/bin/bash -c", "/usr/bin/bash -euo pipefail -c ls"},
		{"/usr/bin/bash", "bash|-s|x", "", "", "/usr/bin/bash -", "/usr/bin/bash -s x"},
		{"/usr/bin/bash", "bash|scripts/lookup.sh|f.bib", "/root/.agents/skills/cite", "", "/usr/bin/bash skill:cite/scripts/lookup.sh", "/usr/bin/bash skill:cite/scripts/lookup.sh f.bib"},
		{"/usr/bin/dash", "/bin/sh|/usr/bin/lsb_release|-a", "", "/usr/bin/lsb_release", "/usr/bin/dash /usr/bin/lsb_release", "/usr/bin/dash /usr/bin/lsb_release -a"},
		{"/usr/bin/grep", "grep|-r|x|.", "", "", "/usr/bin/grep", "/usr/bin/grep -r x ."},
		{"/root/.codex/skills/cite/bin/check", "./check", "", "", "skill:cite/bin/check", "skill:cite/bin/check"},
	} {
		e := &bodycam.Event{Type: bodycam.TypeExec, Exe: c.exe, Argv: strings.Split(c.argv, "|"), CWD: c.cwd, Script: c.script}
		if got := x.commandName(e, LevelSubcommand); got != c.sub {
			t.Errorf("%s: subcommand %q, want %q", c.argv, got, c.sub)
		}
		if got := x.commandName(e, LevelArgv); got != c.full {
			t.Errorf("%s: argv %q, want %q", c.argv, got, c.full)
		}
		if got := x.commandName(e, LevelExecutable); got != plan.CommonPath(c.exe) {
			t.Errorf("%s: executable %q", c.argv, got)
		}
	}
}

func FuzzCommonName(f *testing.F) {
	for _, r := range NameRules {
		f.Add(r.Example)
	}
	f.Add("/tmp/\xff\x00/tmp.A1b2C3d4E5/#9")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 4096 {
			return
		}
		CommonName(s, true)
		once := CommonName(s, false)
		if twice := CommonName(once, false); len(twice) > len(once)+64 {
			t.Errorf("%q grows: %q, %q", s, once, twice)
		}
	})
}
