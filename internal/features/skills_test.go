package features

import (
	"testing"

	"github.com/bodycam-dev/bodycam"
)

const skillRoot = "/root/.codex/skills/cite"

var skillPlan = Plan{Skills: []Skill{{Name: "cite", Roots: []string{skillRoot, "/root/.agents/skills/cite"},
	Document: "---\nname: cite\ndescription: x\n---\n\nBody.\n",
	Files:    []PlanFile{{Path: "SKILL.md"}, {Path: "references/a.md"}, {Path: "scripts/x.sh"}, {Path: "scripts/lib.py"}, {Path: "bin/tool", Mode: "-rwxr-xr-x"}}}}}

var (
	shell  = bodycam.Proc{PID: 10, Start: 1}
	child  = bodycam.Proc{PID: 11, Start: 2}
	second = bodycam.Proc{PID: 12, Start: 3}
	agent  = bodycam.Proc{PID: 2, Start: 0}
)

func ex(p, parent bodycam.Proc, exe string, argv ...string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeExec, Proc: p, Parent: parent, Exe: exe, Argv: argv, CWD: "/app"}
}

func op(p bodycam.Proc, path string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeOpen, Proc: p, Path: path, Access: bodycam.Read}
}

func cl(p bodycam.Proc, path string, n uint64) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeClose, Proc: p, Path: path, Access: bodycam.Read, BytesRead: n}
}

func ls(p bodycam.Proc, path string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeOpen, Proc: p, Path: path, Access: bodycam.Read | bodycam.Dir}
}

func fork(p, c bodycam.Proc) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeFork, Proc: p, Child: c}
}

// extract runs events through an extractor. The processes of own are the harness; everything else is row 3's.
func extract(plan Plan, own bodycam.Proc, events ...bodycam.Event) *Features {
	x := NewExtractor(&plan, []bodycam.Row{{Index: 3, Kind: bodycam.RowTool, Command: "x"}})
	x.rowOf = func(e *bodycam.Event) (int, bodycam.LinkMethod, float64, bool) {
		if e.Proc == own {
			return -1, bodycam.LinkHarness, 1, true
		}
		return 3, bodycam.LinkArgv, 1, true
	}
	var procs bodycam.Processes
	for i := range events {
		e := &events[i]
		e.Seq, e.NR = uint64(i+1), -1
		if e.Boot == 0 {
			e.Boot = uint64(i+1) * 1e6
		}
		procs.Observe(e)
		x.Add(e)
	}
	return x.Finish()
}

func TestSkillUse(t *testing.T) {
	script, other := skillRoot+"/scripts/x.sh", "/root/.agents/skills/cite/scripts/x.sh"
	late := ex(second, shell, "/usr/bin/bash", "bash")
	late.Boot = 10e9
	for _, c := range []struct {
		name   string
		file   string
		events []bodycam.Event
		want   Degree
	}{
		{"nothing", "scripts/x.sh", nil, Never},
		{"a directory is listed", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/ls", "ls"), ls(child, skillRoot+"/scripts")}, InListing},
		{"another directory is listed", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/ls", "ls"), ls(child, skillRoot)}, Never},
		{"searched", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/grep", "grep", "-r", "y"), op(child, script)}, Scanned},
		{"printed", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat", script), op(child, script)}, FileRead},
		{"run by bash", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/bash", "bash", script), op(child, script)}, Run},
		{"run by bash with options, relative, another copy", "scripts/x.sh", []bodycam.Event{
			{Type: bodycam.TypeExec, Proc: child, Parent: shell, Exe: "/usr/bin/bash", Argv: []string{"bash", "-eu", "./x.sh"}, CWD: "/root/.agents/skills/cite/scripts"}}, Run},
		{"run by its first line", "scripts/x.sh", []bodycam.Event{{Type: bodycam.TypeExec, Proc: child, Parent: shell, Exe: "/usr/bin/dash", Script: other, Argv: []string{"./x.sh"}}}, Run},
		{"run as a program", "bin/tool", []bodycam.Event{ex(child, shell, skillRoot+"/bin/tool", "tool")}, Run},
		{"sourced", "scripts/x.sh", []bodycam.Event{ex(shell, agent, "/usr/bin/bash", "bash", "-c", ". "+script), op(shell, script)}, Run},
		{"sourced by a script", "scripts/x.sh", []bodycam.Event{ex(shell, agent, "/usr/bin/bash", "bash", "/app/run.sh"), op(shell, script)}, Run},
		{"fed to bash", "scripts/x.sh", []bodycam.Event{ex(shell, agent, "/usr/bin/dash", "sh", "-c", "bash < "+script), fork(shell, child), op(child, script), ex(child, shell, "/usr/bin/bash", "bash")}, Run},
		{"fed to cat", "scripts/x.sh", []bodycam.Event{ex(shell, agent, "/usr/bin/dash", "sh", "-c", "cat < "+script), fork(shell, child), op(child, script), ex(child, shell, "/usr/bin/cat", "cat")}, FileRead},
		{"fed to wc", "scripts/x.sh", []bodycam.Event{ex(shell, agent, "/usr/bin/dash", "sh", "-c", "wc < "+script), fork(shell, child), op(child, script), ex(child, shell, "/usr/bin/wc", "wc")}, Scanned},
		{"read by a loop of the shell", "scripts/x.sh", []bodycam.Event{ex(shell, agent, "/usr/bin/dash", "sh", "-c", "while read l; do :; done < "+script), op(shell, script)}, FileRead},
		{"piped into bash", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat", script), op(child, script), ex(second, shell, "/usr/bin/bash", "bash", "-s", "a")}, Run},
		{"piped into python", "scripts/lib.py", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat"), op(child, skillRoot+"/scripts/lib.py"), ex(second, shell, "/usr/bin/python3.11", "python3", "-")}, Run},
		{"piped into another language", "scripts/lib.py", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat"), op(child, skillRoot+"/scripts/lib.py"), ex(second, shell, "/usr/bin/bash", "bash")}, FileRead},
		{"bash at another time", "scripts/x.sh", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat", script), op(child, script), late}, FileRead},
		{"imported", "scripts/lib.py", []bodycam.Event{ex(child, shell, "/usr/bin/python3.11", "python3", "/app/a.py"), op(child, skillRoot+"/scripts/lib.py")}, Run},
		{"imported in compiled form", "scripts/lib.py", []bodycam.Event{ex(child, shell, "/usr/bin/python3.11", "python3", "/app/a.py"), op(child, skillRoot+"/scripts/__pycache__/lib.cpython-311.pyc")}, Run},
		{"a reference is opened", "references/a.md", []bodycam.Event{ex(child, shell, "/usr/bin/head", "head"), op(child, skillRoot+"/references/a.md")}, FileRead},
		{"a reference fed to a program", "references/a.md", []bodycam.Event{ex(shell, agent, "/usr/bin/dash", "sh", "-c", "cat < a.md"), op(shell, skillRoot+"/references/a.md")}, FileRead},
		{"the head alone", "SKILL.md", []bodycam.Event{ex(child, shell, "/usr/bin/head", "head", "-3"), op(child, skillRoot+"/SKILL.md"), cl(child, skillRoot+"/SKILL.md", 20)}, InListing},
		{"beyond the head", "SKILL.md", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat"), op(child, skillRoot+"/SKILL.md"), cl(child, skillRoot+"/SKILL.md", 60)}, FileRead},
		{"searched with grep", "SKILL.md", []bodycam.Event{ex(child, shell, "/usr/bin/grep", "grep"), op(child, skillRoot+"/SKILL.md"), cl(child, skillRoot+"/SKILL.md", 60)}, Scanned},
		{"read by the harness itself", "SKILL.md", []bodycam.Event{ex(agent, bodycam.Proc{}, "/opt/codex/bin/codex", "codex"), op(agent, skillRoot+"/SKILL.md"), cl(agent, skillRoot+"/SKILL.md", 60)}, Never},
		{"could not be opened", "references/a.md", []bodycam.Event{ex(child, shell, "/usr/bin/cat", "cat"), {Type: bodycam.TypeOpen, Proc: child, Path: skillRoot + "/references/a.md", Access: bodycam.Read, Errno: 13}}, Never},
		{"could not be executed", "bin/tool", []bodycam.Event{{Type: bodycam.TypeExec, Proc: child, Exe: skillRoot + "/bin/tool", Path: skillRoot + "/bin/tool", Errno: 13}}, Never},
	} {
		f := extract(skillPlan, agent, c.events...)
		for _, use := range f.Skills[0].Files {
			if use.Path != c.file {
				continue
			}
			if use.Degree != c.want {
				t.Errorf("%s: %s is %s (%s), want %s", c.name, c.file, use.Degree, use.How, c.want)
			}
			if want := use.Degree != Never; want && use.Row != 3 {
				t.Errorf("%s: row %d, want 3", c.name, use.Row)
			}
			if c.name == "read by the harness itself" && !use.ByHarness {
				t.Errorf("%s isn't told", c.name)
			}
		}
	}
}

func TestCoverage(t *testing.T) {
	f := extract(skillPlan, agent,
		ex(child, shell, "/usr/bin/cat", "cat"), op(child, skillRoot+"/SKILL.md"), cl(child, skillRoot+"/SKILL.md", 60), op(child, skillRoot+"/scripts/lib.py"),
		ex(second, shell, "/usr/bin/bash", "bash", skillRoot+"/scripts/x.sh"))
	if got := f.Skills[0].Coverage(); got != 0.4 {
		t.Errorf("SKILL.md read, one of three scripts executed, one only printed: coverage %v, want 2/5", got)
	}
}

// A skill tool of the harness's own: the harness reads the file, the row says for whom.
func TestSkillTool(t *testing.T) {
	plan := skillPlan
	x := NewExtractor(&plan, []bodycam.Row{{Index: 0, Kind: bodycam.RowTool, Tool: "Skill", Args: `{"skill":"cite"}`}})
	x.rowOf = func(*bodycam.Event) (int, bodycam.LinkMethod, float64, bool) { return -1, bodycam.LinkHarness, 1, true }
	e := op(agent, skillRoot+"/SKILL.md")
	e.Seq, e.NR, e.Exe = 1, -1, "/opt/claude-code/claude"
	x.Add(&e)
	c := cl(agent, skillRoot+"/SKILL.md", 60)
	c.Seq, c.NR = 2, -1
	x.Add(&c)
	if u := x.Finish().Skills[0].Files[0]; u.Degree != FileRead || u.Row != 0 {
		t.Errorf("%+v, want read by row 0", u)
	}
}
