package security

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// An attack before, in and after a flood of a million names is found, memory stays bounded, and where the engine forgot
// something "nothing found" is no verdict.
func TestFlood(t *testing.T) {
	const n = 1_000_000
	s := newScene(t, Options{Policy: testPolicy(), Rules: testSet()})
	clear(s.files)
	attack := func(k int) {
		pid := s.run("/usr/bin/cat", "cat", "key")
		s.read(pid, fmt.Sprintf("/home/u%d/.ssh/id_rsa", k))
		link := fmt.Sprintf("/tmp/notes%d", k)
		s.link(pid, fmt.Sprintf("/home/v%d/.ssh/id_ed25519", k), link)
		s.read(pid, link)
		s.write(pid, fmt.Sprintf("/etc/profile.d/x%d.sh", k))
		s.connect(pid, fmt.Sprintf("c%d.collector.example", k), "203.0.113.9:443")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	attack(0)
	flood := s.run("/usr/bin/python3.11", "python3", "flood.py")
	for i := range n {
		if i == n/2 {
			attack(1)
		}
		s.do(bodycam.Event{Type: bodycam.TypeOpen, Proc: id(flood), Path: fmt.Sprintf("/tmp/x/file-%d", i), Dev: 1, Ino: uint64(1e6 + i), Access: bodycam.Write | bodycam.Create})
	}
	attack(2)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 150<<20 {
		t.Errorf("%d MiB are kept", used>>20)
	}
	all := s.a.Findings()
	for _, k := range []int{0, 1, 2} {
		for _, want := range []struct{ rule, resource string }{
			{"Credential read", fmt.Sprintf("/home/u%d/.ssh/id_rsa", k)},
			{"Credential moved or linked", fmt.Sprintf("/home/v%d/.ssh/id_ed25519", k)},
			{"Credential read", fmt.Sprintf("/tmp/notes%d", k)},
			{"Start-up file changed", fmt.Sprintf("/etc/profile.d/x%d.sh", k)},
			{"Untrusted host contacted", fmt.Sprintf("c%d.collector.example", k)},
			{"Secret sent away", fmt.Sprintf("c%d.collector.example", k)},
		} {
			if !slices.ContainsFunc(all, func(f bodycam.Finding) bool { return f.Rule == want.rule && f.Resource == want.resource }) {
				t.Errorf("attack %d: %s of %s isn't found", k, want.rule, want.resource)
			}
		}
	}
	if why := s.a.Incomplete(); len(why) != 1 || !strings.Contains(why[0], "forgotten") {
		t.Errorf("what was given up: %q", why)
	}
}

// In a directory that the run made itself a million files are nothing to forget but their inodes; short of the bounds
// nothing is given up.
func TestNothingForgotten(t *testing.T) {
	s := newScene(t, Options{Policy: testPolicy(), Rules: testSet()})
	pid := s.run("/usr/bin/python3.11", "python3", "many.py")
	s.do(bodycam.Event{Type: bodycam.TypeMkdir, Proc: id(pid), Path: "/tmp/x"})
	for i := range 300_000 {
		p := fmt.Sprintf("/tmp/x/file-%d", i)
		s.do(bodycam.Event{Type: bodycam.TypeOpen, Proc: id(pid), Path: p, Dev: 1, Ino: uint64(1e6 + i), Access: bodycam.Write | bodycam.Create})
		if i%3 == 0 { // as build systems do
			s.do(bodycam.Event{Type: bodycam.TypeRename, Proc: id(pid), Path: p, Path2: "/tmp/x/final", Dev: 1, Ino: uint64(1e6 + i)})
		}
	}
	for i := range int32(300_000) { // processes that end one after the other
		child := bodycam.Proc{PID: 1000 + i%30000, Start: uint64(i) + 7}
		s.do(bodycam.Event{Type: bodycam.TypeFork, Proc: id(pid), Child: child})
		s.do(bodycam.Event{Type: bodycam.TypeExit, Proc: child})
	}
	if why := s.a.Incomplete(); why != nil {
		t.Errorf("what was given up: %q", why)
	}
}

// What a rule finds beyond the findings that are listed is one more, which says how many calls and where.
func TestRestOfARule(t *testing.T) {
	s := newScene(t, Options{Policy: testPolicy(), Rules: testSet()})
	for i := range 1000 {
		s.read(11, fmt.Sprintf("/home/u%d/.ssh/id_rsa", i))
		s.connect(11, fmt.Sprintf("h%d.evil.example", i), "203.0.113.9:443")
	}
	titles := map[string]bool{}
	for _, f := range s.a.Findings() {
		if strings.Contains(f.Title, " more calls ") {
			titles[f.Rule+": "+f.Title[:strings.Index(f.Title, ", the first")]] = true
		}
	}
	for _, want := range []string{"Credential read: 800 more calls under /home", "Untrusted host contacted: 800 more calls to further hosts below evil.example"} {
		if !titles[want] {
			t.Errorf("%q isn't among %v", want, titles)
		}
	}
}

// An old process that turns up again after it was forgotten makes the record's verdict incomplete.
func TestForgottenProcess(t *testing.T) {
	table := rules.NewTable()
	fold := func(e bodycam.Event) { table.Fold(&e) }
	first := bodycam.Proc{PID: 5, Start: 1}
	fold(bodycam.Event{Type: bodycam.TypeExec, Proc: first, Exe: "/a"})
	for i := range int32(200_000) {
		child := bodycam.Proc{PID: i + 100, Start: uint64(i) + 2}
		fold(bodycam.Event{Type: bodycam.TypeFork, Proc: first, Child: child})
		fold(bodycam.Event{Type: bodycam.TypeExit, Proc: child})
	}
	if table.Dropped != 0 {
		t.Errorf("%d forgotten that nobody missed", table.Dropped)
	}
	fold(bodycam.Event{Type: bodycam.TypeFlow, Proc: bodycam.Proc{PID: 100, Start: 2}})
	if table.Dropped == 0 {
		t.Error("a forgotten process came back unnoticed")
	}
}
