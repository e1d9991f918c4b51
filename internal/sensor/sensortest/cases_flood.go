package sensortest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func floodCases() []Case {
	sum := func(o *Outcome, t *testing.T, prefix string) int {
		n := 0
		for i := range 8 {
			n += o.num(t, prefix+string(rune('0'+i)))
		}
		return n
	}
	return []Case{
		{Name: "18-floods/8-openers-one-file", Argv: []string{"floods", "openers", "8", "{flood}", "1"}, Check: func(t *testing.T, o *Outcome) {
			n := sum(o, t, "opened")
			o.count(t, n, typ(bodycam.TypeOpen), givenPrefix("flood-"), errno(0))
			t.Logf("%d opens in %d events, sensor %.2f s CPU", n, len(o.Events), o.Health.CPU)
		}},
		{Name: "18-floods/8-openers-many-files", Argv: []string{"floods", "openers", "8", "{flood}", "4096"}, Check: func(t *testing.T, o *Outcome) {
			n := sum(o, t, "opened")
			o.count(t, n, typ(bodycam.TypeOpen), givenPrefix("flood-"), errno(0))
			t.Logf("%d opens in %d events, sensor %.2f s CPU", n, len(o.Events), o.Health.CPU)
		}},
		{Name: "18-floods/8-forkers", Argv: []string{"floods", "forks", "8", "{flood}"}, Check: func(t *testing.T, o *Outcome) {
			n := sum(o, t, "forked")
			o.count(t, n+8, typ(bodycam.TypeFork), errno(0), cond{"not the start itself", func(e *bodycam.Event) bool { return int(e.Child.PID) != o.PID }})
			o.count(t, n+9, typ(bodycam.TypeExit))
		}},
		{Name: "18-floods/datagrams", Argv: []string{"floods", "connects", "5000"}, Check: func(t *testing.T, o *Outcome) {
			o.count(t, 5000, typ(bodycam.TypeSend), errno(0))
		}},
		{Name: "21-loads/git-clone", Argv: []string{"/bin/sh", "-ec", `
			git init -q src
			cd src
			for i in 0 1 2 3 4 5 6 7 8 9; do mkdir d$i; for j in 0 1 2 3 4 5 6 7 8 9; do echo $i$j >d$i/f$j; done; done
			git add . && git -c user.name=n -c user.email=e@example.test commit -q -m all
			git clone -q file://"$PWD" ../dst
			test -f ../dst/d9/f9`}, Check: func(t *testing.T, o *Outcome) {
			if o.Status != 0 {
				t.Errorf("the script ended with %d under observation", o.Status)
			}
			for _, n := range []string{"d0/f0", "d9/f9"} {
				o.some(t, typ(bodycam.TypeOpen), path(o.in("dst/"+n)), has(bodycam.Write|bodycam.Create), errno(0))
			}
		}},
		{Name: "21-loads/go-build", Argv: []string{"/bin/sh", "-ec", `
			test -n "$LONG" || exit 0
			printf 'module x\n' >go.mod
			printf 'package main\nfunc main() { println(1) }\n' >main.go
			GOCACHE="$PWD/cache" GOFLAGS=-mod=mod GOTOOLCHAIN=local "$GO" build -o x .
			./x`}, Env: longEnv(), Check: func(t *testing.T, o *Outcome) {
			if o.Status != 0 {
				t.Errorf("the build ended with %d under observation", o.Status)
			}
			if longRun() {
				o.some(t, typ(bodycam.TypeExec), exe(o.in("x")), errno(0))
			}
		}},
		{Name: "21-loads/find", Argv: []string{"/usr/bin/find", findRoot(), "-xdev", "-name", "no-such-name"}, Check: func(t *testing.T, o *Outcome) {
			o.some(t, typ(bodycam.TypeOpen), path(findRoot()), has(bodycam.Dir), errno(0))
			t.Logf("%d events, sensor %.2f s CPU", len(o.Events), o.Health.CPU)
		}},
	}
}

// longRun tells whether floods of full length were asked for: the slow loads run then, too.
func longRun() bool { return os.Getenv("BODYCAM_TEST_FLOOD") != "" }

func longEnv() []string {
	goTool, err := exec.LookPath("go")
	if !longRun() || err != nil {
		return nil
	}
	return []string{"LONG=1", "GO=" + goTool}
}

func findRoot() string {
	if longRun() {
		return "/"
	}
	return "/usr/share/doc"
}
