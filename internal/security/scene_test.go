package security

import (
	"net/netip"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func id(pid int32) bodycam.Proc { return bodycam.Proc{PID: pid, Start: uint64(pid) * 1e6} }

// testPolicy is that of a codex task in /workspace.
func testPolicy() Policy {
	return Policy{
		Workspace:       []string{"/workspace"},
		HarnessState:    []string{"/root/.codex/**", "/root/.claude/**", "/root/.claude.json*"},
		TrustedPrograms: []string{"/bin/**", "/sbin/**", "/usr/bin/**", "/usr/sbin/**", "/usr/lib/**", "/usr/libexec/**", "/usr/local/bin/**", "/usr/local/lib/**", "/usr/local/go/**", "/lib/**", "/lib64/**"},
		TrustedHosts:    []string{"localhost", "pypi.org", "files.pythonhosted.org", "deb.debian.org", "registry.npmjs.org", "*.trusted.example", "model.internal:8080"},
		Resolvers:       []string{"10.0.0.1"},
		AllowCommands:   []string{"deploy-tool"},
		AllowFiles:      []string{"/srv/shared/**", "/root/.allowed"},
		Skills:          []string{"/root/.codex/skills"},
		Decoys:          []Decoy{{Name: "AWS key", Path: "/root/.aws/credentials", Value: "AKIADECOY7XK2QPLM9ZT/4fQ8"}},
		Task:            "Fix the bug in report.py. Update .github/workflows/build.yml for Go 1.26 and look the entries up at api.lookup.example. Write the answer to /data/answer.json.",
	}
}

// scene writes a run's events in few words. The agent program is process 10; 11 is the shell of its first tool call,
// 12 that of its second.
type scene struct {
	t   *testing.T
	a   *Analyser
	now int64
	seq uint64
	ino uint64
	// inodes of paths
	files map[string]uint64
	next  int32
}

func newScene(t *testing.T, opts Options) *scene {
	a, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, a: a, now: 1e18, files: map[string]uint64{}, ino: 100, next: 20}
	s.do(bodycam.Event{Type: bodycam.TypeExec, Proc: id(10), Exe: "/usr/local/bin/codex", Argv: []string{"codex", "exec"}, CWD: "/workspace"})
	s.spawn(11, 10, "/usr/bin/bash", "bash", "-lc", "make")
	s.spawn(12, 10, "/usr/bin/bash", "bash", "-lc", "true")
	return s
}

func (s *scene) do(e bodycam.Event) {
	s.seq++
	s.now += 1e6
	e.Seq, e.Time, e.Boot = s.seq, s.now, uint64(s.now-1e18+1e15)
	if e.Window == bodycam.WindowNone {
		e.Window = bodycam.WindowAgent
	}
	s.a.Event(&e)
}

func (s *scene) inode(path string) uint64 {
	n, ok := s.files[path]
	if !ok {
		s.ino++
		n = s.ino
		s.files[path] = n
	}
	return n
}

func (s *scene) file(typ bodycam.Type, pid int32, path string, access bodycam.Access) bodycam.Event {
	return bodycam.Event{Type: typ, Proc: id(pid), Path: path, PathGiven: path, Dev: 1, Ino: s.inode(path), Access: access}
}

// spawn starts a program as a child.
func (s *scene) spawn(pid, parent int32, exe string, argv ...string) {
	s.do(bodycam.Event{Type: bodycam.TypeFork, Proc: id(parent), Child: id(pid)})
	s.exec(pid, exe, argv...)
}

func (s *scene) exec(pid int32, exe string, argv ...string) {
	s.do(bodycam.Event{Type: bodycam.TypeExec, Proc: id(pid), Exe: exe, Path: exe, PathGiven: exe, Argv: argv, CWD: "/workspace", Dev: 1, Ino: s.inode(exe), Access: bodycam.Exec})
}

// run starts a program below the first tool call and returns its pid.
func (s *scene) run(exe string, argv ...string) int32 {
	s.next++
	s.spawn(s.next, 11, exe, argv...)
	return s.next
}

func (s *scene) read(pid int32, path string) {
	s.do(s.file(bodycam.TypeOpen, pid, path, bodycam.Read))
}

func (s *scene) readGiven(pid int32, path, given string) {
	e := s.file(bodycam.TypeOpen, pid, path, bodycam.Read)
	e.PathGiven = given
	s.do(e)
}

func (s *scene) refused(pid int32, path string, errno int32) {
	e := s.file(bodycam.TypeOpen, pid, path, bodycam.Read)
	e.Errno, e.Ino, e.Dev, e.Marks = errno, 0, 0, bodycam.MarkUnverified
	s.do(e)
}

func (s *scene) write(pid int32, path string) {
	s.do(s.file(bodycam.TypeOpen, pid, path, bodycam.Write|bodycam.Create|bodycam.Trunc))
}

// create writes a file that wasn't there.
func (s *scene) create(pid int32, path string) {
	e := s.file(bodycam.TypeOpen, pid, path, bodycam.Write|bodycam.Create|bodycam.Trunc)
	e.Detail = "new"
	s.do(e)
}

// open opens a file that is there, in any way.
func (s *scene) open(pid int32, path string, how bodycam.Access) {
	s.do(s.file(bodycam.TypeOpen, pid, path, how))
}

func (s *scene) unlink(pid int32, path string) {
	s.do(s.file(bodycam.TypeUnlink, pid, path, 0))
	delete(s.files, path)
}

func (s *scene) rename(pid int32, from, to string) {
	e := s.file(bodycam.TypeRename, pid, from, 0)
	e.Path2, e.Path2Given = to, to
	s.files[to] = s.files[from]
	delete(s.files, from)
	s.do(e)
}

func (s *scene) link(pid int32, from, to string) {
	e := s.file(bodycam.TypeLink, pid, from, 0)
	e.Path2, e.Path2Given = to, to
	s.files[to] = s.files[from]
	s.do(e)
}

func (s *scene) connect(pid int32, host, addr string) {
	e := bodycam.Event{Type: bodycam.TypeConnect, Proc: id(pid), Proto: bodycam.ProtoTCP, Local: netip.MustParseAddrPort("10.0.0.2:40000"), Remote: netip.MustParseAddrPort(addr), Host: host, HostSource: bodycam.HostDNS, Errno: 115}
	if host == "" {
		e.HostSource = bodycam.HostLiteral
	}
	s.do(e)
}

func (s *scene) dns(pid int32, name string) {
	s.do(bodycam.Event{Type: bodycam.TypeDNS, Proc: id(pid), Host: name, Detail: "A", Proto: bodycam.ProtoUDP})
}

// found tells which rules found something.
func (s *scene) found() map[string]bodycam.Finding {
	out := map[string]bodycam.Finding{}
	for _, f := range s.a.Findings() {
		if _, ok := out[f.Rule]; !ok {
			out[f.Rule] = f
		}
	}
	return out
}
