package kind

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func mustPlan(t *testing.T, kindName, task string, o Overrides) *Plan {
	t.Helper()
	k, err := Load(kindName)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := LoadTask(task)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(k, tk, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planText is a plan without this checkout's path and what differs with the machine.
func planText(t *testing.T, p *Plan) string {
	t.Helper()
	b, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := strings.ReplaceAll(string(b), wd, "DIR")
	s = regexp.MustCompile(`"-rw-[r-][w-]-[r-][w-]-"`).ReplaceAllString(s, `"-rw-r--r--"`) // the umask of the checkout
	s = strings.ReplaceAll(s, `"value": "`+runtime.GOARCH+`"`, `"value": "ARCH"`)
	return strings.ReplaceAll(s, p.Digests.Plan, "PLAN") + "\n"
}

func TestPlansOfTasks(t *testing.T) {
	env := map[string]string{"QUIRK_KEY": "k", "QUIRK_TOKEN": "t", "GREET_SECRET": "s"}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	for _, c := range []struct{ name, kind string }{{"quirks", "harbor"}, {"compose", "harbor"}, {"own", "command"}} {
		t.Run(c.name, func(t *testing.T) {
			o := Overrides{LookupEnv: lookup, TaskEnv: []string{"GREET_SECRET"}, Command: []string{"agent"}}
			p := mustPlan(t, c.kind, "testdata/tasks/"+c.name, o)
			golden(t, "testdata/tasks/"+c.name+".plan.json", planText(t, p))
			again := mustPlan(t, c.kind, "testdata/tasks/"+c.name, o)
			if p.Digests != again.Digests {
				t.Errorf("two plans of the same differ: %+v, %+v", p.Digests, again.Digests)
			}
			var back Plan
			b, _ := json.Marshal(p)
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			if c, _ := json.Marshal(back); string(c) != string(b) {
				t.Errorf("the plan changes when it is read back:\n%s\n%s", b, c)
			}
		})
	}
}

func TestSkillCopiedToEightPlacesIsOneSkill(t *testing.T) {
	p := mustPlan(t, "harbor", "testdata/tasks/quirks", Overrides{})
	if len(p.Skills) != 1 {
		t.Fatalf("skills: %+v", p.Skills)
	}
	s := p.Skills[0]
	if len(s.Roots) != 8 || !slices.Contains(s.Roots, "/root/.goose/skills/cite") {
		t.Errorf("roots: %q", s.Roots)
	}
	var files []string
	for _, f := range s.Files {
		files = append(files, f.Path)
	}
	if want := []string{"SKILL.md", "references/how.md", "scripts/check.py"}; !slices.Equal(files, want) {
		t.Errorf("files: %q, want %q", files, want)
	}
}

func TestValuesFromOutsideStayOutOfThePlan(t *testing.T) {
	k, err := Load("default")
	if err != nil {
		t.Fatal(err)
	}
	k.Agent.Env = map[string]string{"API_KEY": "${OUTER_KEY}", "URL": "http://x/${OUTER_KEY}", "PLAIN": "p"}
	task, err := CommandTask([]string{"true"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(k, task, Overrides{}); err == nil || !strings.Contains(err.Error(), "${OUTER_KEY} is not set") {
		t.Errorf("a variable that isn't set: %v", err)
	}
	p, err := Resolve(k, task, Overrides{LookupEnv: func(string) (string, bool) { return "tell-nobody", true }})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "tell-nobody") {
		t.Errorf("the secret is in the plan: %s", b)
	}
	if got := fmt.Sprint(p.Agent.Env); !strings.Contains(got, "http://x/tell-nobody") {
		t.Errorf("the session doesn't get the value: %s", got)
	}
}

func TestTaskGetsOnlyTheVariablesGranted(t *testing.T) {
	o := Overrides{Harness: "codex", LookupEnv: func(string) (string, bool) { return "value", true }}
	p := mustPlan(t, "command", "testdata/tasks/own", o)
	for _, v := range p.Env {
		if v.Name == "SECRET" {
			t.Errorf("a task got a variable that it wasn't granted: %+v", v)
		}
	}
	if len(p.Strict()) != 1 || p.Strict()[0].Instruction != `SECRET = "${GREET_SECRET}"` {
		t.Errorf("not listed: %+v", p.Unhonoured)
	}
	o.TaskEnv = []string{"GREET_SECRET"}
	p = mustPlan(t, "command", "testdata/tasks/own", o)
	if !slices.Contains(p.Env, EnvVar{Name: "SECRET", Value: "value", From: "GREET_SECRET"}) {
		t.Errorf("granted, and not there: %+v", p.Env)
	}
}

func TestTaskCanOnlyTightenTheNetwork(t *testing.T) {
	for _, c := range []struct {
		kindMode string
		task     TaskEnvironment
		override string
		mode     string
		allow    int
	}{
		{"record", TaskEnvironment{}, "", "record", 0},
		{"record", TaskEnvironment{Offline: true}, "", "allow", 0},
		{"record", TaskEnvironment{Network: TaskNetwork{Mode: "allow", Allow: []string{"a.org"}}}, "", "allow", 1},
		{"allow", TaskEnvironment{Network: TaskNetwork{Mode: "record", Allow: []string{"a.org"}}}, "", "allow", 0},
		{"sink", TaskEnvironment{Network: TaskNetwork{Mode: "record", Allow: []string{"a.org"}}}, "", "sink", 0},
		{"sink", TaskEnvironment{Offline: true}, "", "sink", 0},
		{"none", TaskEnvironment{Network: TaskNetwork{Mode: "record"}}, "", "none", 0},
		{"none", TaskEnvironment{}, "record", "record", 0},
	} {
		k, err := Load("default")
		if err != nil {
			t.Fatal(err)
		}
		k.Environment.Network.Mode = c.kindMode
		task := &Task{Name: "t", Form: FormCommand, Environment: c.task, Agent: TaskAgent{Command: []string{"x"}}}
		p, err := Resolve(k, task, Overrides{Network: c.override})
		if err != nil {
			t.Fatal(err)
		}
		if p.Network.Mode != c.mode || len(p.Network.Allow) != c.allow {
			t.Errorf("%+v: got %+v", c, p.Network)
		}
	}
}

// writeTree makes files below a new directory; a value that begins with "-> " is a symbolic link.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if link, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(link, p)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTaskCantReachOutOfItsDirectory(t *testing.T) {
	outside := writeTree(t, map[string]string{"secret.txt": "the secret", "dir/f": "f"})
	base := map[string]string{"task.toml": "version = \"1.0\"\n", "instruction.md": "do", "environment/Dockerfile": "FROM x\n"}
	for name, over := range map[string]map[string]string{
		"instruction is a link":   {"instruction.md": "-> " + outside + "/secret.txt"},
		"task.toml is a link":     {"task.toml": "-> " + outside + "/secret.txt"},
		"tests are a link":        {"tests": "-> " + outside + "/dir"},
		"solution is a link":      {"solution": "-> " + outside + "/dir"},
		"dockerfile is a link":    {"environment/Dockerfile": "-> " + outside + "/secret.txt"},
		"copy climbs":             {"environment/Dockerfile": "FROM x\nCOPY ../../secret.txt /\n"},
		"copy of a link":          {"environment/Dockerfile": "FROM x\nCOPY s /\n", "environment/s": "-> " + outside + "/secret.txt"},
		"copy of a relative link": {"environment/Dockerfile": "FROM x\nCOPY s /\n", "environment/s": "-> ../../" + filepath.Base(outside) + "/secret.txt"},
		"copy through a link":     {"environment/Dockerfile": "FROM x\nCOPY d/f /\n", "environment/d": "-> " + outside + "/dir"},
		"glob through a link":     {"environment/Dockerfile": "FROM x\nCOPY d/* /\n", "environment/d": "-> " + outside + "/dir"},
		"ignore file is a link":   {"environment/.dockerignore": "-> " + outside + "/secret.txt"},
		"compose context climbs":  {"environment/docker-compose.yaml": "services:\n  main:\n    build: ../../\n"},
		"compose file climbs":     {"environment/docker-compose.yaml": "services:\n  main:\n    build: {dockerfile: ../../x}\n"},
		"own: from climbs":        {"task.yaml": "name: x\ninstruction: y\nenvironment:\n  files: [{from: ../secret.txt, to: /x}]\n"},
		"own: from is absolute":   {"task.yaml": "name: x\ninstruction: y\nenvironment:\n  files: [{from: " + outside + "/secret.txt, to: /x}]\n"},
		"own: from is a link":     {"task.yaml": "name: x\ninstruction: y\nenvironment:\n  files: [{from: s, to: /x}]\n", "s": "-> " + outside + "/secret.txt"},
		"own: instruction a link": {"task.yaml": "name: x\ninstruction_file: s\n", "s": "-> " + outside + "/secret.txt"},
		"own: a kind file":        {"task.yaml": "name: x\ninstruction: y\nkind: ./k.yaml\n", "k.yaml": "name: k\n"},
		"own: forwards":           {"task.yaml": "name: x\ninstruction: y\nenvironment: {network: {forward: [{host: a, port: 1, to: \"127.0.0.1:22\"}]}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for k, v := range base {
				files[k] = v
			}
			for k, v := range over {
				files[k] = v
			}
			task, err := LoadTask(writeTree(t, files))
			if err == nil {
				k, lerr := Load("harbor")
				if lerr != nil {
					t.Fatal(lerr)
				}
				var p *Plan
				if p, err = Resolve(k, task, Overrides{}); err == nil {
					b, _ := json.Marshal(p)
					t.Fatalf("it got out: %s", b)
				}
			}
			if strings.Contains(err.Error(), "the secret") {
				t.Errorf("the error tells the secret: %v", err)
			}
		})
	}
}

func TestHarborTaskOfLeastSize(t *testing.T) {
	p := mustPlan(t, "harbor", writeTree(t, map[string]string{"task.toml": "", "instruction.md": "do", "environment/Dockerfile": "FROM ubuntu:24.04\n"}), Overrides{})
	if p.Tests != nil || p.Workdir != "/app" || p.Limits.Memory != 4<<30 || p.Task.Instruction != "do" {
		t.Errorf("plan: %+v", p)
	}
}

func TestTestsWithoutScriptAreStillGradingMaterial(t *testing.T) {
	p := mustPlan(t, "harbor", writeTree(t, map[string]string{"task.toml": "", "instruction.md": "do", "environment/Dockerfile": "FROM x\n", "tests/answers.txt": "42"}), Overrides{})
	if p.Tests != nil || len(p.Grading) != 1 || p.Grading[0].Files[0].Path != "answers.txt" {
		t.Errorf("tests %+v, grading %+v", p.Tests, p.Grading)
	}
}

func TestHomeFollowsTheUser(t *testing.T) {
	docker := "FROM x\nRUN one\nUSER app\nRUN two\n"
	files := map[string]string{"task.toml": "[agent]\nuser = 7\n[verifier]\nuser = \"root\"\n", "instruction.md": "do", "environment/Dockerfile": docker, "tests/test.sh": ""}
	home := func(env []EnvVar) string {
		for _, v := range env {
			if v.Name == "HOME" {
				return v.Value
			}
		}
		return ""
	}
	p := mustPlan(t, "harbor", writeTree(t, files), Overrides{})
	got := []string{home(p.Setup[0].Env), home(p.Setup[1].Env), home(p.Env), home(p.Agent.Env), p.Agent.Home, home(p.Tests.Env)}
	if want := []string{"/root", "/home/app", "/home/app", "/home/user7", "/home/user7", "/root"}; !slices.Equal(got, want) {
		t.Errorf("homes %q, want %q", got, want)
	}
	if !slices.Contains(p.Judge.HarnessState, "/home/user7/.codex/**") {
		t.Errorf("harness state: %q", p.Judge.HarnessState)
	}
	files["environment/Dockerfile"] = "FROM x\nENV HOME=/srv/home\nRUN one\nUSER app\n"
	p = mustPlan(t, "harbor", writeTree(t, files), Overrides{})
	got = []string{home(p.Setup[0].Env), home(p.Env), home(p.Agent.Env), p.Agent.Home, home(p.Tests.Env)}
	if want := []string{"/srv/home", "/srv/home", "", "/srv/home", "/srv/home"}; !slices.Equal(got, want) {
		t.Errorf("homes %q, want %q", got, want)
	}
}

func TestValuesOfTheCallerStayOutOfThePlan(t *testing.T) {
	k, err := Load("default")
	if err != nil {
		t.Fatal(err)
	}
	task, err := CommandTask([]string{"true"}, "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(k, task, Overrides{Env: map[string]string{"A": "tell-nobody-a"}, AgentEnv: map[string]string{"B": "tell-nobody-b"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "tell-nobody") {
		t.Errorf("a value of the caller is in the plan: %s", b)
	}
}

// Keys that newer public tasks have.
func TestHarborKeysOfNewerTasks(t *testing.T) {
	const file = `schema_version = "1.1"
artifacts = ["/app/out.json", {source = "/data/x", destination = "x"}]

[[task.authors]]
name = "a"

[environment]
workdir = "/data"
network_mode = "no-network"
os = "windows"
docker_image = "x:1"
mcp_servers = []

[environment.healthcheck]
command = "true"

[verifier]
environment_mode = "separate"

[[verifier.collect]]
command = "cp"

[[steps]]
name = "one"

[verifier.env]
[solution.env]
`
	p := mustPlan(t, "harbor", writeTree(t, map[string]string{"task.toml": file, "instruction.md": "do", "environment/x": ""}), Overrides{})
	if p.Workdir != "/data" || p.Network.Mode != "allow" || !slices.Equal(p.Artifacts, []string{"/logs/artifacts/**", "/app/out.json", "/data/x"}) {
		t.Errorf("plan: %+v", p)
	}
	var got []string
	for _, u := range p.Unhonoured {
		got = append(got, fmt.Sprintf("%d %s %s", u.Line, u.Severity, u.Instruction))
	}
	want := []string{`10 high os = "windows"`, "14 info [environment.healthcheck]", "23 high [[steps]]", "17 medium [verifier] environment", "20 medium [[verifier.collect]]", `11 medium docker_image = "x:1"`}
	if !slices.Equal(got, want) {
		t.Errorf("unhonoured %q, want %q", got, want)
	}
	for _, n := range p.Notes {
		if strings.Contains(n.Text, "unknown key") {
			t.Errorf("note: %+v", n)
		}
	}
}

// Tool servers of the kind and the task come together; a task's replaces the kind's of the same name.
func TestToolServers(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"k.yaml": "name: k\nextends: harbor\nagent:\n  mcp_servers:\n    - {name: a, transport: stdio, command: kind-a, args: [x, \"1\"]}\n    - {name: b, transport: sse, url: \"http://b.example/sse\"}\n",
		"t/task.toml": "version = \"1.0\"\n[[environment.mcp_servers]]\nname = \"a\"\ncommand = \"task-a\"\n" +
			"[[environment.mcp_servers]]\nname = \"c\"\nurl = \"http://c.example/mcp\"\n",
		"t/instruction.md": "do", "t/environment/x": "",
	})
	k, err := Load(dir + "/k.yaml")
	if err != nil {
		t.Fatal(err)
	}
	task, err := LoadTask(dir + "/t")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(k, task, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	want := []MCPServer{{Name: "a", Transport: "stdio", Command: "task-a"}, {Name: "c", Transport: "streamable-http", URL: "http://c.example/mcp"},
		{Name: "b", Transport: "sse", URL: "http://b.example/sse"}}
	if !reflect.DeepEqual(p.Agent.MCPServers, want) {
		t.Errorf("tool servers are %+v", p.Agent.MCPServers)
	}
	for _, c := range []struct{ name, value, want string }{
		{"stdio", `{name: x, transport: stdio}`, "transport stdio needs a command"},
		{"url", `{name: x, transport: sse, command: y}`, "needs a url"},
		{"scheme", `{name: x, transport: sse, url: "ftp://h"}`, "needs a url"},
		{"transport", `{name: x, transport: std}`, "did you mean stdio"},
		{"key", `{name: x, transport: stdio, comand: y}`, "did you mean command"},
	} {
		dir := writeTree(t, map[string]string{"k.yaml": "name: k\nagent:\n  mcp_servers: [" + c.value + "]\n"})
		k, err := Load(dir + "/k.yaml")
		if err == nil {
			_, err = Resolve(k, task, Overrides{})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
