package sensortest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

func write(name, text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// real is a system program's canonical path.
func real(t *testing.T, p string) string {
	t.Helper()
	p, err := filepath.EvalSymlinks(p)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kid is the process that the trigger called its child.
func kid(o *Outcome, t *testing.T) cond { return pid(o.pid(t, "child")) }

// self is the program of the exec cases, which runs itself.
func self(o *Outcome) string { return filepath.Join(o.Bin, "execs") }

func execCases() []Case {
	exec, open := typ(bodycam.TypeExec), typ(bodycam.TypeOpen)
	return []Case{
		{Name: "04-exec/symlink", Argv: []string{"execs", "link"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), exe(self(o)), given("./innocent"), argv("./innocent", "end"), errno(0))
		}},
		{Name: "04-exec/argv0", Argv: []string{"execs", "alias"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), exe(self(o)), argv("innocent", "end"), errno(0))
		}},
		{Name: "04-exec/bash-exec-a", Argv: []string{"/bin/bash", "-c", "exec -a innocent /bin/true"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, pid(o.PID), exe(real(t, "/bin/true")), argv("innocent"), errno(0))
		}},
		{Name: "04-exec/proc-fd", Argv: []string{"execs", "procfd"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), exe(self(o)), givenPrefix("/proc/self/fd/"), argv("viafd", "end"), errno(0))
		}},
		{Name: "04-exec/execveat", Argv: []string{"execs", "execveat"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), exe(o.in("bin/prog")), given("prog"), argv("prog", "end"), errno(0))
		}},
		{Name: "05-nameless/memfd-exec", Argv: []string{"execs", "memfd"}, Check: func(t *testing.T, o *Outcome) {
			e := o.one(t, exec, kid(o, t), argv("ghost", "end"), errno(0))
			if !strings.Contains(e.Exe, "memfd:payload") || e.Marks&(bodycam.MarkAnonymous|bodycam.MarkDeleted) == 0 {
				t.Errorf("a program from memory: exe %q, marks %v", e.Exe, e.Marks.Names())
			}
		}},
		{Name: "05-nameless/deleted-exec", Argv: []string{"execs", "deleted"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), exe(o.in("vanishing")), argv("vanishing", "end"), mark(bodycam.MarkDeleted), errno(0))
		}},
		{Name: "06-scripts/shebang", Argv: []string{"execs", "script"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, exec, exe(self(o)), given("./script"), argv(self(o), "end -o pt", "./script", "arg one"), errno(0),
				cond{"script", func(e *bodycam.Event) bool { return e.Script == o.in("script") }})
			o.named(t, exec, exe(self(o)), given("./scriptlink"), errno(0), cond{"script behind a symlink", func(e *bodycam.Event) bool {
				return e.Script == o.in("script") || e.Script == o.in("scriptlink") && e.Marks&bodycam.MarkUnverified != 0
			}})
		}},
		{Name: "06-scripts/shebang-by-descriptor", Argv: []string{"execs", "script-fd"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, exec, kid(o, t), exe(self(o)), errno(0), cond{"script", func(e *bodycam.Event) bool { return e.Script == o.in("script") }})
		}},
		{Name: "06-scripts/shebang-of-shebang", Argv: []string{"execs", "nested"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, exec, kid(o, t), exe(self(o)), given("./outer"), argv(self(o), "end", "./inner", "./outer"), errno(0),
				cond{"the script that was asked for", func(e *bodycam.Event) bool { return e.Script == o.in("outer") }})
		}},
		{Name: "06-scripts/python-file", Argv: []string{"/usr/bin/python3", "a.py"}, Prepare: write("a.py", "x = 1\n"), Check: func(t *testing.T, o *Outcome) {
			o.some(t, open, pid(o.PID), path(o.in("a.py")), has(bodycam.Read), errno(0))
			o.one(t, exec, pid(o.PID), exe(real(t, "/usr/bin/python3")), argv("/usr/bin/python3", "a.py"))
		}},
		{Name: "06-scripts/sh-dot", Argv: []string{"/bin/sh", "-c", ". ./a.sh"}, Prepare: write("a.sh", "true\n"), Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, pid(o.PID), path(o.in("a.sh")), has(bodycam.Read), errno(0))
		}},
		{Name: "06-scripts/python-stdin", Argv: []string{"/bin/sh", "-c", "python3 - <a.py"}, Prepare: write("a.py", "x = 1\n"), Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("a.py")), has(bodycam.Read), errno(0))
			o.one(t, exec, argv("python3", "-"), errno(0), cond{"exe of a Python", func(e *bodycam.Event) bool { return strings.Contains(filepath.Base(e.Exe), "python3") }})
		}},
	}
}

// twoPrograms holds that what one program did with a file, and another one in the same process after it, is told of each.
func twoPrograms(t *testing.T, o *Outcome) {
	x := o.one(t, typ(bodycam.TypeExec), kid(o, t), argv("second", "second"), errno(0))
	first := cond{"told before the second program, of the first", func(e *bodycam.Event) bool { return o.between(e, nil, x) }}
	second := cond{"told after the second program began, of it", func(e *bodycam.Event) bool { return o.between(e, x, nil) }}
	f := both(kid(o, t), path(o.in("f")))
	o.count(t, 1, typ(bodycam.TypeOpen), f, flags(unix.O_RDONLY), first)
	for i, program := range []cond{first, second} {
		o.count(t, 3, typ(bodycam.TypeOpen), f, flags(unix.O_RDONLY|unix.O_CLOEXEC), program)
		o.count(t, 3, typ(bodycam.TypeMmap), f, has(bodycam.Exec), program)
		if !o.suite.traits.Bytes {
			continue
		}
		var read uint64
		found, _ := o.match(typ(bodycam.TypeClose), f, program)
		for _, e := range found {
			read += e.BytesRead
		}
		if want := uint64(3*5 + []int{7, 11}[i]); read != want {
			t.Errorf("program %d read %d bytes, want %d", i+1, read, want)
		}
	}
	o.some(t, typ(bodycam.TypeOpen), f, second, cond{"at once", func(e *bodycam.Event) bool { return e.N() == 1 }})
}

func argumentCases() []Case {
	exec, open := typ(bodycam.TypeExec), typ(bodycam.TypeOpen)
	return []Case{
		{Name: "07-arguments/empty-and-odd", Argv: []string{"execs", "args"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), argv("", "end", "", "two words", "new\nline", "\xff\xfe", ""), errno(0))
		}},
		{Name: "07-arguments/none", Argv: []string{"execs", "argc0"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), either(argv(""), argv()), errno(0)) // since 5.18 the kernel adds an empty one
		}},
		{Name: "07-arguments/100000", Argv: []string{"execs", "many"}, Check: func(t *testing.T, o *Outcome) {
			want := []string{"many", "end"}
			for i := 2; i < 100000; i++ {
				want = append(want, strconv.Itoa(i))
			}
			o.only(t, inexact&^bodycam.MarkArgvCut, exec, kid(o, t), argv(want...), errno(0))
		}},
		{Name: "07-arguments/big", Argv: []string{"execs", "big"}, Check: func(t *testing.T, o *Outcome) {
			want := append([]string{"big", "end"}, slices.Repeat([]string{strings.Repeat("B", 130000)}, 13)...)
			o.only(t, inexact&^bodycam.MarkArgvCut, exec, kid(o, t), argv(want...), errno(0))
		}},
		{Name: "10-identity/exec-from-thread", Argv: []string{"execs", "thread"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, exec, kid(o, t), exe(self(o)), argv("from-thread", "end"), errno(0))
			o.one(t, typ(bodycam.TypeExit), kid(o, t), status(0))
		}},
		{Name: "10-identity/same-files-before-and-after", Argv: []string{"execs", "folds"}, Check: twoPrograms},
		{Name: "10-identity/same-files-exec-from-thread", Argv: []string{"execs", "folds-thread"}, Check: twoPrograms},
		{Name: "10-identity/connects-before-exec", Argv: []string{"execs", "connects"}, Check: func(t *testing.T, o *Outcome) {
			x := o.one(t, exec, pid(o.PID), argv("connected", "end"), errno(0))
			o.count(t, 4, typ(bodycam.TypeConnect), pid(o.PID), remote("127.0.0.1", o.num(t, "port")), cond{"told before the next program", func(e *bodycam.Event) bool { return o.between(e, nil, x) }})
			o.count(t, 4, typ(bodycam.TypeConnect), pid(o.PID))
		}},
		{Name: "10-identity/interrupted-before-exec", Argv: []string{"execs", "handled"}, Check: func(t *testing.T, o *Outcome) {
			x := o.one(t, exec, pid(o.PID), argv("handled", "end"), errno(0))
			e := o.named(t, open, given("fifo"), errno(int32(unix.EINTR)))
			if !o.between(e, nil, x) {
				t.Errorf("the call that a signal interrupted is told of the next program: %s", line(e))
			}
		}},
		{Name: "10-identity/vfork", Argv: []string{"execs", "vfork"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeFork), pid(o.PID), child(o.pid(t, "child")))
			o.one(t, exec, kid(o, t), argv("vforked", "end"), errno(0))
		}},
		{Name: "10-identity/one-process-many-programs", Argv: []string{"execs", "chain", "3"}, Check: func(t *testing.T, o *Outcome) {
			o.count(t, 4, exec, pid(o.PID), exe(self(o)), errno(0))
			o.one(t, typ(bodycam.TypeExit), pid(o.PID))
		}},
		{Name: "16-outcomes/exec", Argv: []string{"execs", "failing"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, exec, given("./missing"), argv("missing", "x y"), errno(int32(unix.ENOENT)))
			o.named(t, exec, given("./noexec"), errno(int32(unix.EACCES)))
			o.named(t, exec, given("./garbage"), errno(int32(unix.ENOEXEC)))
			o.named(t, exec, given("./badinterp"), errno(int32(unix.ENOENT)))
		}},
		{Name: "20-kin/i386-program", Argv: []string{"tiny", "all", "{tcp}"}, Need: nil, Check: func(t *testing.T, o *Outcome) {
			i386 := abi(bodycam.ABII386)
			o.one(t, open, path(o.in("f")), access(bodycam.Read), i386, errno(0))
			o.named(t, typ(bodycam.TypeRename), path(o.in("f")), path2(o.in("g")), i386, errno(0))
			o.one(t, typ(bodycam.TypeConnect), remote("127.0.0.1", o.suite.host.tcp), o.outcome(t, "connect"))
			o.one(t, typ(bodycam.TypeSend), remote("127.0.0.1", o.suite.host.tcp), o.outcome(t, "sendto"))
			o.one(t, exec, kid(o, t), exe(real(t, "/bin/true")), argv("true", "from-32"), errno(0))
		}},
	}
}
