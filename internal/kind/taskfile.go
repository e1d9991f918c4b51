package kind

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
)

// The types in this file are task.yaml, with tags as in spec.go.

type taskFile struct {
	Name            string          `json:"name" doc:"Name of the task: letters, digits, dot, dash and underscore." required:"true" check:"name"`
	Description     string          `json:"description,omitempty" doc:"What the task is, in a sentence."`
	Keywords        []string        `json:"keywords,omitempty" doc:"Words to find it by."`
	Kind            string          `json:"kind,omitempty" doc:"Built-in kind that the task is run with, unless the caller names another. A task can't bring a kind file: kinds reach further than a task may."`
	Instruction     string          `json:"instruction,omitempty" doc:"What the agent is asked to do."`
	InstructionFile HostPath        `json:"instruction_file,omitempty" doc:"File that holds the instruction, relative to this one." check:"file"`
	Environment     taskEnv         `json:"environment,omitzero" doc:"What the task needs of the box. What is given here replaces what the kind says."`
	Skills          []taskSkill     `json:"skills,omitempty" doc:"Skills that the agent gets: directories with a SKILL.md."`
	Agent           taskFileAgent   `json:"agent,omitzero" doc:"What the task says of the agent."`
	Tests           *taskFileTests  `json:"tests,omitempty" doc:"What grades the task. It is copied in after the agent stopped. Without it the outcome is none."`
	Solution        *taskFileSolved `json:"solution,omitempty" doc:"Reference solution, for runs that check the task."`
	Artifacts       []string        `json:"artifacts,omitempty" doc:"Paths in the box (globs) that are collected, beside the kind's." check:"glob"`
	Judge           Judge           `json:"judge,omitzero" doc:"What analyses judge by, added to what the kind says."`
}

type taskEnv struct {
	Dockerfile   HostPath          `json:"dockerfile,omitempty" doc:"Dockerfile, relative to this file. Its FROM is answered by the kind's base." check:"file"`
	Context      HostPath          `json:"context,omitempty" doc:"Directory that COPY reads from; defaults to the Dockerfile's." check:"exists"`
	Target       string            `json:"target,omitempty" doc:"Stage of the Dockerfile; defaults to the last."`
	Args         map[string]string `json:"args,omitempty" doc:"Build arguments." check:"env" number:"true"`
	Files        []CopySpec        `json:"files,omitempty" doc:"Files of the workspace, copied in before setup."`
	Setup        []Step            `json:"setup,omitempty" doc:"Setup steps, before the kind's."`
	SetupTimeout Duration          `json:"setup_timeout,omitzero" doc:"The longest that setup may take."`
	Env          map[string]string `json:"env,omitempty" doc:"Environment variables, as environment.env of a kind." check:"env" number:"true"`
	Workdir      string            `json:"workdir,omitempty" doc:"Working directory." check:"abs"`
	User         string            `json:"user,omitempty" doc:"User in the box." check:"user" number:"true"`
	Hostname     string            `json:"hostname,omitempty" doc:"Host name in the box." check:"hostname"`
	Network      TaskNetwork       `json:"network,omitzero" doc:"Network that the task needs. It can only make the kind's tighter."`
	Limits       Limits            `json:"limits,omitzero" doc:"Limits that the task needs."`
	MCPServers   []MCPServer       `json:"mcp_servers,omitempty" doc:"Tool servers that the agent is given."`
}

// TaskNetwork is what a task says of the network. It can only tighten what the kind allows.
type TaskNetwork struct {
	Mode  string   `json:"mode,omitempty" doc:"As network.mode of a kind; counts only where it is stricter." enum:"none,record,allow,sink"`
	Allow []string `json:"allow,omitempty" doc:"Hosts that the task needs, for mode allow." check:"host"`
}

type taskFileAgent struct {
	Timeout Duration `json:"timeout,omitzero" doc:"The longest that the agent may run."`
	User    string   `json:"user,omitempty" doc:"User that the agent runs as." check:"user" number:"true"`
}

type taskSkill struct {
	From HostPath `json:"from" doc:"Directory of the skill, relative to this file." required:"true" check:"exists"`
	To   []string `json:"to,omitempty" doc:"Directories in the box that get the skill as a subdirectory; defaults to the kind's agent.skill_dirs." check:"glob"`
}

type taskFileTests struct {
	Dir     HostPath          `json:"dir,omitempty" doc:"Directory of the tests, relative to this file." check:"exists"`
	To      string            `json:"to,omitempty" doc:"Where they go in the box; defaults to /tests." check:"abs"`
	Command Command           `json:"command,omitzero" doc:"What to run in the task's working directory; defaults to test.sh of the tests."`
	Timeout Duration          `json:"timeout,omitzero" doc:"The longest that they may take."`
	Env     map[string]string `json:"env,omitempty" doc:"Further environment variables." check:"env" number:"true"`
	User    string            `json:"user,omitempty" doc:"User that they run as." check:"user" number:"true"`
	Reward  string            `json:"reward,omitempty" doc:"How the verdict is read: file (/logs/verifier/reward.txt or reward.json), or exit (status 0 is a pass). Defaults to file." enum:"file,exit"`
}

type taskFileSolved struct {
	Dir     HostPath          `json:"dir" doc:"Directory of the solution, relative to this file." required:"true" check:"exists"`
	To      string            `json:"to,omitempty" doc:"Where it goes in the box; defaults to /solution." check:"abs"`
	Command Command           `json:"command,omitzero" doc:"What to run; defaults to solve.sh of the solution."`
	Env     map[string]string `json:"env,omitempty" doc:"Further environment variables." check:"env" number:"true"`
}

// readNode lets a skill be its directory alone.
func (v *taskSkill) readNode(d *decoder, n *node) {
	type plain taskSkill
	var p plain
	if n.kind == textNode {
		d.decode(n, reflect.ValueOf(&p.From).Elem(), field{check: "exists"})
	} else {
		d.decodeStruct(n, reflect.ValueOf(&p).Elem())
	}
	*v = taskSkill(p)
}

func (t *taskFile) checkNode(d *decoder, n *node) {
	if k := n.get("kind"); k != nil && t.Kind != "" {
		if _, err := BuiltinSource(t.Kind); err != nil {
			d.fail(k, "kind: %v; a kind of one's own is named by the caller", err)
		}
	}
	if one, two := n.get("instruction"), n.get("instruction_file"); one != nil && two != nil {
		d.fail(two, "both instruction and instruction_file: write one")
	} else if one == nil && two == nil {
		d.fail(n, "neither instruction nor instruction_file: what is the agent asked to do?")
	}
}

func (t *taskFileTests) checkNode(d *decoder, n *node) {
	if n.get("dir") == nil && n.get("command") == nil {
		d.fail(n, "tests: neither dir nor command: what grades the task?")
	}
}

// loadTaskFile reads a task.yaml.
func loadTaskFile(file string) (*Task, error) {
	data, err := readFile(file, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading task %s: %w", file, cause(err))
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("finding task %s: %w", file, err)
	}
	dir := filepath.Dir(abs)
	tf, err := parseTaskFile(data, &source{name: file, dir: dir, confined: true})
	if err != nil {
		return nil, err
	}
	return tf.task(dir)
}

func parseTaskFile(data []byte, src *source) (*taskFile, error) {
	n, probs := parseYAML(data, src)
	if n == nil && len(probs) == 0 {
		probs = Problems{{File: src.name, Line: 1, Msg: "the file is empty: want at least name and instruction"}}
	}
	if err := probs.Err(); err != nil {
		return nil, err
	}
	tf := &taskFile{}
	d := decoder{ofTask: true}
	d.decode(n, reflect.ValueOf(tf).Elem(), field{})
	if err := d.probs.Err(); err != nil {
		return nil, err
	}
	return tf, nil
}

func (tf *taskFile) task(dir string) (*Task, error) {
	e := tf.Environment
	t := &Task{
		Name: tf.Name, Description: tf.Description, Keywords: tf.Keywords, Form: FormBodycam, Dir: dir,
		Instruction: tf.Instruction, Kind: tf.Kind,
		Environment: TaskEnvironment{
			Limits: e.Limits, Network: e.Network, Env: e.Env, Workdir: e.Workdir, User: e.User, Hostname: e.Hostname,
			Files: e.Files, Setup: e.Setup, SetupTimeout: e.SetupTimeout, MCPServers: e.MCPServers, Artifacts: tf.Artifacts,
		},
		Agent: TaskAgent{Timeout: tf.Agent.Timeout, User: tf.Agent.User},
		Judge: tf.Judge,
	}
	if tf.InstructionFile != "" {
		data, err := readIn(dir, relTo(dir, string(tf.InstructionFile)), maxFile)
		if err != nil {
			return nil, fmt.Errorf("reading the instruction %s: %w", tf.InstructionFile, cause(err))
		}
		t.Instruction = string(data)
	}
	if e.Dockerfile != "" {
		b := &BuildSpec{File: string(e.Dockerfile), Context: string(e.Context), Target: e.Target, Args: e.Args}
		if b.Context == "" {
			b.Context = filepath.Dir(b.File)
		}
		t.Environment.Build = b
	}
	for _, s := range tf.Skills {
		sk, notes, err := readSkill(string(s.From), dir)
		if err != nil {
			return nil, err
		}
		t.Skills = append(t.Skills, sk)
		t.Environment.Skills = append(t.Environment.Skills, SkillPlacement{Skill: sk.Host, Dirs: s.To})
		t.Notes = append(t.Notes, notes...)
	}
	if tf.Tests != nil {
		t.Tests = tf.Tests.tests()
	}
	if s := tf.Solution; s != nil {
		t.Solution = &TaskSolution{Dir: string(s.Dir), Box: orElse(s.To, boxSolution), Command: s.Command, Env: s.Env}
		if t.Solution.Command.IsZero() {
			t.Solution.Command = Command{Argv: []string{"/bin/bash", path.Join(t.Solution.Box, "solve.sh")}}
		}
	}
	return t, nil
}

func (tt *taskFileTests) tests() *TaskTests {
	out := &TaskTests{Dir: string(tt.Dir), Box: orElse(tt.To, boxTests), Command: tt.Command, Timeout: tt.Timeout, Env: tt.Env, User: tt.User, Reward: fileReward}
	if out.Command.IsZero() {
		out.Command = Command{Argv: []string{"/bin/bash", path.Join(out.Box, "test.sh")}}
	}
	if tt.Reward == "exit" {
		out.Reward = RewardRule{From: "exit"}
	}
	return out
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// CommandTask makes a task of a bare command line: bodycam run -- cmd args. workspace is a directory outside whose
// content is copied to the working directory; empty: none.
func CommandTask(argv []string, workspace string) (*Task, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("there is no command: write bodycam run -- COMMAND ARGS")
	}
	for _, a := range argv {
		if strings.Contains(a, "\x00") {
			return nil, fmt.Errorf("argument %s holds a zero byte", quote(a))
		}
	}
	t := &Task{Name: filepath.Base(argv[0]), Form: FormCommand, Kind: "command", Instruction: strings.Join(argv, " "), Agent: TaskAgent{Command: argv}}
	if workspace == "" {
		return t, nil
	}
	abs, err := filepath.Abs(workspace)
	if err != nil {
		return nil, fmt.Errorf("finding the workspace %s: %w", workspace, err)
	}
	if fi, err := os.Stat(abs); err != nil {
		return nil, fmt.Errorf("the workspace %s: %w", workspace, cause(err))
	} else if !fi.IsDir() {
		return nil, fmt.Errorf("the workspace %s is not a directory", workspace)
	}
	t.Environment.Workspace = abs
	return t, nil
}
