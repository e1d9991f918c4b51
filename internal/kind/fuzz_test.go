package kind

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// seed adds the content of files as starting points.
func seed(f *testing.F, globs ...string) {
	f.Helper()
	n := 0
	for _, g := range globs {
		files, err := filepath.Glob(g)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
			n++
		}
	}
	if n == 0 {
		f.Fatalf("no seeds in %q", globs)
	}
}

// checkProblems wants every fault to have a message and a line inside the file.
func checkProblems(t *testing.T, data []byte, err error) {
	t.Helper()
	var ps Problems
	if !errors.As(err, &ps) {
		return
	}
	lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2
	for _, p := range ps {
		if p.Msg == "" || p.Line < 0 || p.Line > lines {
			t.Errorf("problem %+v in a file of %d lines", p, lines)
		}
	}
}

func FuzzKind(f *testing.F) {
	seed(f, "builtin/*.yaml", "testdata/broken/*.yaml", "testdata/kinds/*.yaml")
	base, err := Load(rootKind)
	if err != nil {
		f.Fatal(err)
	}
	data, err := BuiltinSource(rootKind)
	if err != nil {
		f.Fatal(err)
	}
	baseTree, probs := parseYAML(data, &source{name: "base"})
	if err := probs.Err(); err != nil || base == nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		src := &source{name: "fuzz.yaml", dir: t.TempDir(), confined: true}
		n, probs := parseYAML(data, src)
		if len(probs) > 0 || n == nil {
			checkProblems(t, data, probs.Err())
			return
		}
		k := &Kind{}
		d := decoder{}
		d.decode(n, reflect.ValueOf(k).Elem(), field{})
		if err := d.probs.Err(); err != nil {
			checkProblems(t, data, err)
			return
		}
		merged := &Kind{}
		d = decoder{}
		d.decode(mergeKinds(baseTree, n), reflect.ValueOf(merged).Elem(), field{})
		if err := d.probs.Err(); err != nil {
			t.Fatalf("right by itself, wrong over the base: %v", err)
		}
		task, err := CommandTask([]string{"true"}, "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Resolve(merged, task, Overrides{})
		if err != nil {
			return
		}
		if _, err := json.Marshal(p); err != nil {
			t.Fatalf("the plan can't be stored: %v", err)
		}
	})
}

func FuzzTaskFile(f *testing.F) {
	seed(f, "testdata/tasks/*/task.yaml", "testdata/broken-tasks/*/task.yaml")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		tf, err := parseTaskFile(data, &source{name: "task.yaml", dir: dir, confined: true})
		if err != nil {
			checkProblems(t, data, err)
			return
		}
		if tf.Name == "" {
			t.Error("a task without a name")
		}
	})
}

func FuzzHarbor(f *testing.F) {
	seed(f, "testdata/tasks/*/task.toml", "testdata/broken-tasks/*/task.toml")
	f.Fuzz(func(t *testing.T, data []byte) {
		ht, notes, err := parseHarbor(data, &source{name: "task.toml"})
		if err != nil {
			checkProblems(t, data, err)
			return
		}
		if e := ht.Environment; e.CPUs < 0 || e.MemoryMB < 0 || ht.Agent.Timeout < 0 {
			t.Errorf("negative: %+v", e)
		}
		for _, n := range notes {
			if n.Text == "" {
				t.Error("an empty note")
			}
		}
	})
}

func FuzzCompose(f *testing.F) {
	seed(f, "testdata/tasks/*/environment/docker-compose.yaml", "testdata/broken-tasks/*/environment/docker-compose.yaml")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		n, probs := parseCompose(data, "docker-compose.yaml")
		if err := probs.Err(); err != nil {
			checkProblems(t, data, err)
			return
		}
		task := &Task{Dir: dir}
		r := &composeReader{t: task, dir: dir, file: "docker-compose.yaml"}
		r.read(n)
		checkProblems(t, data, r.probs.Err())
		if b := task.Environment.Build; b != nil && len(r.probs) == 0 && !isUnder(b.Context, dir) {
			t.Errorf("build context %s is outside", b.Context)
		}
	})
}

func FuzzDockerfile(f *testing.F) {
	seed(f, "testdata/tasks/*/environment/Dockerfile", "testdata/tasks/*/environment/*/Dockerfile", "testdata/broken-tasks/*/environment/Dockerfile")
	dir := f.TempDir()
	for name, content := range map[string]string{"skills/cite/SKILL.md": "x", "data/a.bib": "a", "data/run.sh": "r", "app/main.py": "p"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	outside, err := filepath.Abs(filepath.Dir(dir))
	if err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "outside.txt"), []byte("outside"), 0o644); err != nil {
		f.Fatal(err)
	}
	base := buildBase{user: "root", env: []EnvVar{{Name: "PATH", Value: "/bin"}, {Name: "SECRET", Value: "from-outside", From: "S"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) || len(data) > 1<<16 {
			return
		}
		b := &builder{spec: BuildSpec{Context: dir}, file: "Dockerfile", shown: "Dockerfile", base: base, out: &build{env: base.env}, known: map[string]bool{}}
		b.read(data)
		if err := b.probs.Err(); err != nil {
			checkProblems(t, data, err)
			return
		}
		for _, s := range b.out.steps {
			for _, c := range s.Copies {
				if !strings.HasPrefix(c.To, "/") || strings.Contains(c.To, "/../") || strings.HasSuffix(c.To, "/..") {
					t.Errorf("copy to %q", c.To)
				}
				if c.From != "" && !isUnder(c.From, dir) {
					t.Errorf("copy from %q", c.From)
				}
				if strings.Contains(c.Content, "from-outside") {
					t.Error("a value from outside got into a file")
				}
			}
			if s.Mkdir != "" && !strings.HasPrefix(s.Mkdir, "/") {
				t.Errorf("mkdir %q", s.Mkdir)
			}
			if (len(s.Argv) > 0) == (len(s.Copies) > 0 || s.Mkdir != "") {
				t.Errorf("a step does one thing: %+v", s)
			}
		}
	})
}

func FuzzFrontMatter(f *testing.F) {
	seed(f, "testdata/tasks/*/skills/*/SKILL.md", "testdata/tasks/*/environment/skills/*/SKILL.md")
	f.Add([]byte("---\n---\n"))
	f.Add([]byte("---\r\nname: x\r\n---\r\n"))
	f.Add([]byte("---\nname: [x]\n--- \nbody"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fm, err := parseFrontMatter(data)
		checkProblems(t, data, err)
		if fm.Name != strings.TrimSpace(fm.Name) {
			t.Errorf("name %q", fm.Name)
		}
	})
}

func FuzzReward(f *testing.F) {
	f.Add([]byte("1"), []byte(`{"a":1}`), true)
	f.Add([]byte("0.5\n"), []byte(`{"reward":0,"b":1e308}`), false)
	f.Add([]byte("NaN"), []byte(`{"a":null}`), false)
	f.Fuzz(func(t *testing.T, text, js []byte, haveText bool) {
		if !haveText {
			text = nil
		}
		r, err := ParseReward(text, js)
		if err != nil {
			return
		}
		if len(r.Values) == 0 {
			t.Error("no value and no error")
		}
		for k, v := range r.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%q = %v", k, v)
			}
		}
	})
}
