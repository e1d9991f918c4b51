package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// workloadArg makes this program play a workload instead of measuring.
const workloadArg = "workload"

type workload struct {
	name    string
	argv    []string
	dir     string
	env     []string
	prepare func() error
	whole   *codexLoad // nil: a command. Else a whole run, which only bodycam can record
}

// playWorkload runs the tight loops, with as little of its own around the calls as can be.
func playWorkload(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("workload: want a name and a number")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	runtime.LockOSThread()
	switch args[0] {
	case "openclose":
		name := []byte("/etc/hostname\x00")
		at := -100
		for range n {
			fd, _, e := syscall.RawSyscall6(syscall.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])), 0, 0, 0, 0)
			if e != 0 {
				return e
			}
			_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		}
	case "forkexec":
		for range n {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
			if err != nil {
				return err
			}
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("workload: no %q", args[0])
	}
	return nil
}

func workloads(dir string, only []string) ([]workload, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	nothing := func() error { return nil }
	env := append(os.Environ(), "GOMAXPROCS=1")
	all := []workload{
		{name: "open/close, one file, tight loop", argv: []string{self, workloadArg, "openclose", "600000"}, env: env, prepare: nothing},
		{name: "fork + exec", argv: []string{self, workloadArg, "forkexec", "1500"}, env: env, prepare: nothing},
		{name: "find", argv: []string{"find", "/", "-xdev", "-path", "/tmp", "-prune", "-o", "-type", "f", "-newermt", "2030-01-01"}, env: os.Environ(), prepare: nothing},
		cloneLoad(dir),
		buildLoad(dir),
		{name: "codex, the demo's task in the sandbox", prepare: nothing},
	}
	short := []string{"openclose", "forkexec", "find", "clone", "build", "codex"}
	var out []workload
	for i, w := range all {
		if only != nil && !slices.Contains(only, short[i]) {
			continue
		}
		err := first(dir, short[i])
		if short[i] == "codex" {
			w.whole, err = newCodex(dir)
		}
		if err != nil {
			return nil, fmt.Errorf("making ready %s: %w", w.name, err)
		}
		out = append(out, w)
	}
	return out, nil
}

// first lays out what a workload needs, once.
func first(dir, name string) error {
	switch name {
	case "clone":
		return makeRepo(filepath.Join(dir, "repo"))
	case "build":
		return makeModule(filepath.Join(dir, "module"), filepath.Join(dir, "cache-base"))
	}
	return nil
}

func cloneLoad(dir string) workload {
	to := filepath.Join(dir, "clone")
	return workload{name: "git clone, local", argv: []string{"git", "clone", "-q", "--no-hardlinks", filepath.Join(dir, "repo"), to}, env: os.Environ(),
		prepare: func() error { return os.RemoveAll(to) }}
}

// makeRepo makes a repository of Go's own sources.
func makeRepo(to string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(filepath.Join(strings.TrimSpace(string(root)), "src"))); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"config", "gc.auto", "0"}, {"add", "-A"}, {"-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "all"}, {"gc", "-q"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = to
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

func buildLoad(dir string) workload {
	cache := filepath.Join(dir, "cache")
	return workload{name: "go build", argv: []string{"go", "build", "-o", filepath.Join(dir, "built"), "."}, dir: filepath.Join(dir, "module"),
		env: append(os.Environ(), "GOCACHE="+cache, "GOFLAGS=-mod=mod", "GOWORK=off"),
		prepare: func() error {
			if err := os.RemoveAll(cache); err != nil {
				return err
			}
			return exec.Command("cp", "-r", filepath.Join(dir, "cache-base"), cache).Run()
		}}
}

// makeModule makes a module of forty packages, and a build cache that holds the standard library only.
func makeModule(dir, cache string) error {
	var imports, uses strings.Builder
	files := map[string]string{"go.mod": "module bench\n\ngo 1.24\n"}
	for i := range 40 {
		var b strings.Builder
		fmt.Fprintf(&b, "package p%d\n\nimport (\n\t\"encoding/json\"\n\t\"fmt\"\n\t\"sort\"\n)\n", i)
		for j := range 60 {
			fmt.Fprintf(&b, `
type T%[1]d struct{ A, B int; S []string; M map[string]int }

func (t *T%[1]d) F(n int) (string, error) {
	for i := range n {
		t.S = append(t.S, fmt.Sprint(i, t.A, t.B))
		t.M[t.S[i]] = i
	}
	sort.Strings(t.S)
	b, err := json.Marshal(t)
	return string(b), err
}
`, j)
		}
		files[fmt.Sprintf("p%d/p.go", i)] = b.String()
		fmt.Fprintf(&imports, "\t\"bench/p%d\"\n", i)
		fmt.Fprintf(&uses, "\t_, _ = (&p%d.T0{}).F(0)\n", i)
	}
	files["main.go"] = "package main\n\nimport (\n\t_ \"net/http\"\n" + imports.String() + ")\n\nfunc main() {\n" + uses.String() + "}\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "net/http", "encoding/json")
	cmd.Env = append(os.Environ(), "GOCACHE="+cache, "GOFLAGS=", "GOWORK=off")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("filling the build cache: %w: %s", err, out)
	}
	return nil
}
