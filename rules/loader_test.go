package rules

import (
	"slices"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func TestLoaded(t *testing.T) {
	const ld = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
	for _, c := range []struct {
		exe  string
		argv []string
		want string
		args []string
	}{
		{ld, []string{"/lib64/ld-linux-x86-64.so.2", "/tmp/x2", "-a"}, "/tmp/x2", []string{"/tmp/x2", "-a"}},
		{ld, []string{"ld.so", "--library-path", "/tmp", "--argv0", "ls", "--inhibit-cache", "./x"}, "/work/x", []string{"./x"}},
		{"/lib/ld-musl-x86_64.so.1", []string{"ld", "--preload=/tmp/l.so", "--", "/tmp/../tmp/y"}, "/tmp/y", []string{"/tmp/../tmp/y"}},
		{ld, []string{"ld.so", "--verify", "/tmp/x2"}, "", nil},
		{ld, []string{"ld.so", "--argv0"}, "", nil},
		{ld, nil, "", nil},
		{"/usr/bin/ld", []string{"ld", "/tmp/x.o"}, "", nil},
	} {
		p := &Process{Exe: c.exe, Argv: c.argv, CWD: "/work"}
		if got, args := p.loaded(); got != c.want || !slices.Equal(args, c.args) {
			t.Errorf("%v: %q %q, want %q %q", c.argv, got, args, c.want, c.args)
		}
	}
	p := &Process{Exe: ld, Argv: []string{"ld.so", "/tmp/x2"}, Parent: &Process{Exe: "/usr/bin/bash", Script: "/usr/bin/ldd"}}
	if got, _ := p.loaded(); got != "" {
		t.Errorf("ldd runs %q", got)
	}
	s := tell(t, "- rule: r\n  desc: d\n  priority: ERROR\n  output: o\n  condition: evt.type=execve and proc.exepath = /tmp/x2 and proc.exe_written = true and proc.args = -a\n")
	s.write(21, "/tmp/x2", 9)
	if m := s.do(bodycam.Event{Type: bodycam.TypeExec, Proc: id(22), Exe: ld, Dev: 1, Ino: 77, Argv: []string{"ld.so", "/tmp/x2", "-a"}}); len(m) != 1 {
		t.Error("the rules are asked about the loader")
	}
}

// A child goes on with what its parent began, and not with what the parent does later.
func TestSequenceOfProcessAndChild(t *testing.T) {
	s := tell(t, sequenceHead+"    by: process\n    within: 10m\n"+secretSteps)
	s.read(2, "/secret/key", 5)
	s.start(31, 2, "/bin/sh")
	if m := s.connect(31, "evil.example"); len(m) != 1 || m[0].Confidence >= 1 {
		t.Errorf("a child: %+v", m)
	}
	if m := s.connect(22, "evil.example"); len(m) != 0 {
		t.Errorf("a child from before: %+v", m)
	}
}
