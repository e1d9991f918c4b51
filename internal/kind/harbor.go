package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// The file names of a Harbor task.
const (
	harborFile     = "task.toml"
	bodycamFile    = "task.yaml"
	harborSpec     = "instruction.md"
	harborEnv      = "environment"
	harborTests    = "tests"
	harborSolution = "solution"
)

// harborTask is task.toml, as 177 public ones have it, and what newer ones add.
type harborTask struct {
	Version       string                     `json:"version" number:"true"`
	SchemaVersion string                     `json:"schema_version" number:"true"`
	Source        json.RawMessage            `json:"source"`
	Task          harborHead                 `json:"task"`
	Metadata      map[string]json.RawMessage `json:"metadata"`
	Verifier      harborVerifier             `json:"verifier"`
	Agent         harborAgent                `json:"agent"`
	Solution      harborSolved               `json:"solution"`
	Environment   harborEnvironment          `json:"environment"`
	Artifacts     []harborArtifact           `json:"artifacts"`
	Steps         []json.RawMessage          `json:"steps"`

	tree *node
}

// line is where a key is written.
func (ht *harborTask) line(path ...string) int {
	n := ht.tree
	for _, key := range path {
		n = n.get(key)
	}
	if n != nil && len(n.items) > 0 && n.items[0].kind == mapNode {
		n = n.items[0] // the first of [[tables]]
	}
	if n == nil {
		return 0
	}
	return n.line
}

// harborArtifact is a path to collect: text, or a table with a source.
type harborArtifact struct {
	Source      string          `json:"source"`
	Destination string          `json:"destination"`
	Exclude     json.RawMessage `json:"exclude"`
}

func (v *harborArtifact) readNode(d *decoder, n *node) {
	if n.kind == textNode {
		*v = harborArtifact{Source: n.text}
	} else {
		type plain harborArtifact
		var p plain
		d.decodeStruct(n, reflect.ValueOf(&p).Elem())
		*v = harborArtifact(p)
	}
	if err := checkBoxPath(v.Source); err != nil {
		d.fail(n, "artifacts: %v", err)
	}
}

type harborHead struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Authors     json.RawMessage `json:"authors"`
	Keywords    []string        `json:"keywords"`
}

type harborVerifier struct {
	Timeout Duration          `json:"timeout_sec"`
	Env     map[string]string `json:"env" check:"env" number:"true"`
	User    string            `json:"user" check:"user" number:"true"`
	Mode    string            `json:"environment_mode"`
	Own     json.RawMessage   `json:"environment"`
	Collect json.RawMessage   `json:"collect"`
}

type harborAgent struct {
	Timeout Duration `json:"timeout_sec"`
	User    string   `json:"user" check:"user" number:"true"`
}

type harborSolved struct {
	Env map[string]string `json:"env" check:"env" number:"true"`
}

type harborEnvironment struct {
	BuildTimeout  Duration          `json:"build_timeout_sec"`
	DockerImage   string            `json:"docker_image"`
	CPUs          float64           `json:"cpus"`
	MemoryMB      float64           `json:"memory_mb"`
	StorageMB     float64           `json:"storage_mb"`
	Memory        Size              `json:"memory"`  // deprecated
	Storage       Size              `json:"storage"` // deprecated
	GPUs          float64           `json:"gpus"`
	GPUTypes      json.RawMessage   `json:"gpu_types"`
	AllowInternet *bool             `json:"allow_internet"`
	Env           map[string]string `json:"env" check:"env" number:"true"`
	SkillsDir     string            `json:"skills_dir"`
	MCPServers    []harborMCP       `json:"mcp_servers"`
	Workdir       string            `json:"workdir" check:"abs"`
	NetworkMode   string            `json:"network_mode"`
	OS            string            `json:"os"`
	Healthcheck   json.RawMessage   `json:"healthcheck"`
}

type harborMCP struct {
	Name      string   `json:"name"`
	Transport string   `json:"transport"`
	URL       string   `json:"url"`
	Command   string   `json:"command"`
	Args      []string `json:"args" number:"true"`
}

// LoadTask reads a task: a directory with a task.toml (Harbor) or task.yaml (bodycam), or a task.yaml itself.
func LoadTask(name string) (*Task, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading task %s: %w%s", name, cause(err), beside(name))
	}
	if !fi.IsDir() {
		if filepath.Base(name) == harborFile {
			return loadHarbor(filepath.Dir(name))
		}
		return loadTaskFile(name)
	}
	for _, f := range []struct {
		name string
		load func() (*Task, error)
	}{
		{bodycamFile, func() (*Task, error) { return loadTaskFile(filepath.Join(name, bodycamFile)) }},
		{harborFile, func() (*Task, error) { return loadHarbor(name) }},
	} {
		if _, err := os.Stat(filepath.Join(name, f.name)); err == nil {
			return f.load()
		}
	}
	return nil, fmt.Errorf("%s is no task: want a directory with %s (Harbor, terminal-bench, SkillsBench) or %s%s", name, harborFile, bodycamFile, tasksIn(name))
}

// beside says which file or directory next to a missing one was likely meant.
func beside(name string) string {
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	near := Nearest(filepath.Base(name), names)
	if near == "" || near == filepath.Base(name) {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", filepath.Join(filepath.Dir(name), near))
}

// tasksIn names tasks in a folder that isn't one itself.
func tasksIn(dir string) string {
	const most = 5
	var found []string
	for _, file := range []string{harborFile, bodycamFile} {
		list, err := filepath.Glob(filepath.Join(globEscaper.Replace(dir), "*", file))
		if err != nil {
			continue // the pattern is ours; then there is nothing to name
		}
		for _, f := range list {
			found = append(found, filepath.Base(filepath.Dir(f)))
		}
	}
	sort.Strings(found)
	switch {
	case len(found) == 0:
		return ""
	case len(found) > most:
		found = append(found[:most], "…")
	}
	return "; there are tasks in it: " + strings.Join(found, ", ")
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

func parseHarbor(data []byte, src *source) (*harborTask, []Note, error) {
	n, probs := parseTOML(data, src)
	if err := probs.Err(); err != nil {
		return nil, nil, err
	}
	ht := &harborTask{tree: n}
	var notes []Note
	d := decoder{unknown: func(at string, e entry, _ *node) {
		key := e.key
		if at != "" {
			key = at + "." + key
		}
		notes = append(notes, Note{File: harborFile, Line: e.line, Text: "unknown key " + key})
	}}
	d.decode(n, reflect.ValueOf(ht).Elem(), field{})
	if err := d.probs.Err(); err != nil {
		return nil, nil, err
	}
	env := n.get("environment")
	for _, key := range []string{"memory", "storage"} {
		if v := env.get(key); v != nil {
			notes = append(notes, Note{harborFile, v.line, fmt.Sprintf("environment.%s is deprecated: %s_mb is the new form", key, key)})
		}
	}
	if ht.Version == "" && ht.SchemaVersion == "" {
		notes = append(notes, Note{File: harborFile, Text: "neither version nor schema_version"})
	}
	sort.SliceStable(notes, func(i, j int) bool { return notes[i].Line < notes[j].Line })
	return ht, notes, nil
}

func loadHarbor(name string) (*Task, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("finding task %s: %w", name, err)
	}
	data, err := readIn(dir, harborFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s of task %s: %w", harborFile, name, cause(err))
	}
	src := &source{name: filepath.Join(name, harborFile), dir: dir}
	ht, notes, err := parseHarbor(data, src)
	if err != nil {
		return nil, err
	}
	instruction, err := readIn(dir, harborSpec, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s of task %s: %w", harborSpec, name, cause(err))
	}
	t := &Task{
		Name: filepath.Base(dir), Form: FormHarbor, Dir: dir, Instruction: string(instruction), Kind: "harbor", Notes: notes,
		Description: ht.Task.Description, Keywords: ht.Task.Keywords, Agent: TaskAgent{Timeout: ht.Agent.Timeout, User: ht.Agent.User},
	}
	if ht.Task.Name != "" {
		t.Name = ht.Task.Name
	}
	t.harborEnvironment(ht)
	if err := t.harborGrading(ht); err != nil {
		return nil, err
	}
	if err := t.harborBuild(ht, name); err != nil {
		return nil, err
	}
	return t, t.harborSkills()
}

func (t *Task) harborEnvironment(ht *harborTask) {
	e := ht.Environment
	t.Environment = TaskEnvironment{
		Limits:  Limits{CPUs: e.CPUs, Memory: Size(e.MemoryMB * (1 << 20)), Disk: Size(e.StorageMB * (1 << 20))},
		Offline: e.AllowInternet != nil && !*e.AllowInternet, Env: e.Env, SetupTimeout: e.BuildTimeout, SkillsDir: e.SkillsDir, Workdir: e.Workdir,
	}
	if e.MemoryMB == 0 {
		t.Environment.Limits.Memory = e.Memory
	}
	if e.StorageMB == 0 {
		t.Environment.Limits.Disk = e.Storage
	}
	for _, a := range ht.Artifacts {
		t.Environment.Artifacts = append(t.Environment.Artifacts, a.Source)
	}
	if e.NetworkMode == "no-network" {
		t.Environment.Offline = true
	}
	t.harborUnhonoured(ht)
	for _, m := range e.MCPServers {
		t.Environment.MCPServers = append(t.Environment.MCPServers, MCPServer(m))
	}
}

// harborUnhonoured lists what task.toml asks for and no plan has a place for.
func (t *Task) harborUnhonoured(ht *harborTask) {
	e, v := ht.Environment, ht.Verifier
	for _, x := range []struct {
		asked bool
		path  []string
		code  string
		sev   bodycam.Severity
		why   string
	}{
		{e.GPUs > 0, []string{"environment", "gpus"}, fmt.Sprintf("gpus = %g", e.GPUs), bodycam.High, "the box has no GPU"},
		{e.OS != "" && e.OS != "linux", []string{"environment", "os"}, "os = " + quote(e.OS), bodycam.High, "the box runs Linux"},
		{e.NetworkMode != "" && e.NetworkMode != "no-network" && e.NetworkMode != "public", []string{"environment", "network_mode"},
			"network_mode = " + quote(e.NetworkMode), bodycam.Medium, "the kind sets the network"},
		{e.Healthcheck != nil, []string{"environment", "healthcheck"}, "[environment.healthcheck]", bodycam.Info, "nothing waits for the box to be healthy"},
		{len(ht.Steps) > 0, []string{"steps"}, "[[steps]]", bodycam.High, "the task has several steps: only the instruction is given, and the tests run once"},
		{v.Mode != "" && v.Mode != "shared" || v.Own != nil, []string{"verifier"}, "[verifier] environment", bodycam.Medium, "the tests run in the agent's box"},
		{v.Collect != nil, []string{"verifier", "collect"}, "[[verifier.collect]]", bodycam.Medium, "nothing is run before the tests but the kind's hooks"},
	} {
		if x.asked {
			t.unhonoured(x.code, harborFile, ht.line(x.path...), x.sev, x.why)
		}
	}
}

func (t *Task) unhonoured(code, file string, line int, sev bodycam.Severity, why string) {
	t.Unhonoured = append(t.Unhonoured, Unhonoured{Instruction: cut(code, 200), File: file, Line: line, Why: why, Severity: sev})
}

// exists tells whether a file or directory of the task is there. A link that leads out of dir is an error.
func exists(dir string, parts ...string) (bool, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, cause(err)
	}
	defer root.Close()
	_, err = root.Stat(filepath.Join(parts...))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// readIn reads a regular file below dir, which no link may lead out of.
func readIn(dir, rel string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fi, err := root.Stat(rel)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if fi.Size() > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return root.ReadFile(rel)
}

func (t *Task) harborGrading(ht *harborTask) error {
	tests := filepath.Join(t.Dir, harborTests)
	have, err := exists(t.Dir, harborTests)
	if err != nil {
		return fmt.Errorf("looking for the tests of task %s: %w", t.Name, err)
	}
	if have {
		t.Tests = &TaskTests{
			Dir: tests, Box: boxTests, Timeout: ht.Verifier.Timeout, Env: ht.Verifier.Env, User: ht.Verifier.User, Reward: fileReward,
			Command: Command{Argv: []string{"/bin/bash", path.Join(boxTests, "test.sh")}},
		}
		if ok, err := exists(t.Dir, harborTests, "test.sh"); err != nil {
			return fmt.Errorf("looking for the tests of task %s: %w", t.Name, err)
		} else if !ok {
			t.Tests.Command = Command{}
			t.Notes = append(t.Notes, Note{File: harborTests, Text: "there is no test.sh: the outcome will be none"})
		}
	} else {
		t.Notes = append(t.Notes, Note{File: harborTests, Text: "there are no tests: the outcome will be none"})
	}
	solution := filepath.Join(t.Dir, harborSolution)
	if have, err := exists(t.Dir, harborSolution); err != nil {
		return fmt.Errorf("looking for the solution of task %s: %w", t.Name, err)
	} else if have {
		t.Solution = &TaskSolution{Dir: solution, Box: boxSolution, Env: ht.Solution.Env, Command: Command{Argv: []string{"/bin/bash", path.Join(boxSolution, "solve.sh")}}}
	}
	return nil
}

func (t *Task) harborBuild(ht *harborTask, shown string) error {
	env := filepath.Join(t.Dir, harborEnv)
	docker := filepath.Join(env, "Dockerfile")
	haveDocker, err := exists(t.Dir, harborEnv, "Dockerfile")
	if err != nil {
		return fmt.Errorf("looking for the environment of task %s: %w", t.Name, err)
	}
	if haveDocker {
		t.Environment.Build = &BuildSpec{Context: env, File: docker}
	}
	composed := false
	for _, name := range []string{"docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml"} {
		file := filepath.Join(env, name)
		ok, err := exists(t.Dir, harborEnv, name)
		if err != nil {
			return fmt.Errorf("looking for the environment of task %s: %w", t.Name, err)
		}
		if ok {
			composed = true
			if err := t.readCompose(file, filepath.Join(shown, harborEnv, name)); err != nil {
				return err
			}
			break
		}
	}
	image := ht.Environment.DockerImage
	switch {
	case image != "" && t.Environment.Build != nil:
		t.Notes = append(t.Notes, Note{File: harborFile, Line: ht.line("environment", "docker_image"), Text: "docker_image " + image + " isn't used: the Dockerfile is read instead"})
	case image != "":
		t.unhonoured("docker_image = "+quote(image), harborFile, ht.line("environment", "docker_image"), bodycam.Medium, "images aren't pulled: the kind's base stands in for it")
	case t.Environment.Build == nil && !composed:
		t.Notes = append(t.Notes, Note{File: harborEnv, Text: "there is neither Dockerfile nor docker-compose.yaml: the kind's base is all there is"})
	}
	return nil
}

// harborSkills finds the skills of environment/. Where they lie in the box shows when the Dockerfile is read.
func (t *Task) harborSkills() error {
	dirs, err := findSkills(filepath.Join(t.Dir, harborEnv))
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, dir := range dirs {
		s, notes, err := readSkill(dir, t.Dir)
		if err != nil {
			return err
		}
		if i, ok := seen[s.Name+s.SHA256]; ok {
			t.Skills[i].same = append(t.Skills[i].same, dir)
			continue
		}
		seen[s.Name+s.SHA256] = len(t.Skills)
		t.Notes = append(t.Notes, notes...)
		t.Skills = append(t.Skills, s)
	}
	return nil
}

// isUnder tells whether p is dir or lies in it.
func isUnder(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
