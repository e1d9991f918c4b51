package rules

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

const sequenceHead = "- rule: s\n  desc: d\n  priority: CRITICAL\n  output: \"%sequence.resource[1] (event %sequence.event[1]) to %host.name, %sequence.resource[3]\"\n  sequence:\n"

const secretSteps = "    steps:\n    - evt.type=openat and evt.is_open_read=true and fd.name startswith /secret\n    - condition: evt.type=connect and host.name != ok.example\n"

// story is a short way to write events. Times are seconds.
type story struct {
	t      *testing.T
	engine *Engine
	now    int64
	seq    uint64
}

func (s *story) do(e bodycam.Event) []Match {
	s.seq++
	s.now += 1e9
	e.Seq, e.Time = s.seq, s.now
	return s.engine.Event(&e)
}

func (s *story) start(pid, parent int32, exe string) {
	if parent != 0 {
		s.do(bodycam.Event{Type: bodycam.TypeFork, Proc: id(parent), Child: id(pid)})
	}
	s.do(bodycam.Event{Type: bodycam.TypeExec, Proc: id(pid), Exe: exe, Argv: []string{exe}})
}

func (s *story) read(pid int32, path string, ino uint64) []Match {
	return s.do(bodycam.Event{Type: bodycam.TypeOpen, Proc: id(pid), Path: path, Dev: 1, Ino: ino, Access: bodycam.Read})
}

func (s *story) write(pid int32, path string, ino uint64) []Match {
	return s.do(bodycam.Event{Type: bodycam.TypeOpen, Proc: id(pid), Path: path, Dev: 1, Ino: ino, Access: bodycam.Write | bodycam.Create})
}

func (s *story) connect(pid int32, host string) []Match {
	return s.do(bodycam.Event{Type: bodycam.TypeConnect, Proc: id(pid), Host: host, HostSource: bodycam.HostDNS, Remote: netip.MustParseAddrPort("1.2.3.4:443")})
}

// tell starts a harness (1) with two tool calls, the shells 2 and 3; 21 and 22 are children of 2.
func tell(t *testing.T, yaml string) *story {
	s := &story{t: t, engine: load(t, yaml).NewEngine(NewTable()), now: 1e18}
	s.start(1, 0, "/usr/bin/codex")
	s.start(2, 1, "/bin/bash")
	s.start(3, 1, "/bin/bash")
	s.start(21, 2, "/bin/cat")
	s.start(22, 2, "/usr/bin/curl")
	return s
}

func TestSequenceBy(t *testing.T) {
	tests := []struct {
		by           string
		read, send   int32
		want         bool
		beforeSecond int64 // nanoseconds that pass
	}{
		{"process_tree", 21, 22, true, 0},
		{"process_tree", 21, 3, false, 0},
		{"process_tree", 21, 21, true, 0},
		{"process_tree", 21, 22, false, 11 * 60e9},
		{"process", 21, 22, false, 0},
		{"process", 21, 21, true, 0},
		{"run", 21, 3, true, 0},
	}
	for _, tc := range tests {
		s := tell(t, sequenceHead+"    by: "+tc.by+"\n    within: 10m\n"+secretSteps)
		if m := s.connect(tc.send, "evil.example"); m != nil {
			t.Fatal("the second step alone matches")
		}
		s.read(tc.read, "/secret/key", 5)
		s.now += tc.beforeSecond
		if m := s.connect(tc.send, "ok.example"); m != nil {
			t.Fatal("the condition of the second step is not asked")
		}
		m := s.connect(tc.send, "evil.example")
		if got := len(m) == 1; got != tc.want {
			t.Errorf("%+v: %v", tc, got)
			continue
		}
		if tc.want {
			if len(m[0].Events) != 2 || m[0].Events[1] != s.seq || m[0].Confidence != 1 {
				t.Errorf("%+v", m[0])
			}
			want := "/secret/key (event 11) to evil.example, <NA>"
			if got := s.engine.Output(m[0]); got != want {
				t.Errorf("output %q, want %q", got, want)
			}
		}
	}
}

func TestSequenceOfOneEvent(t *testing.T) {
	s := tell(t, sequenceHead+"    by: process\n    steps:\n    - evt.type=openat\n    - evt.type=openat\n    - evt.type=openat\n")
	for i, want := range []bool{false, false, true, true} {
		if got := s.read(21, "/a", 1) != nil; got != want {
			t.Errorf("open %d: %v, want %v", i+1, got, want)
		}
	}
}

func TestTaint(t *testing.T) {
	near := func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }
	tests := []struct {
		name string
		do   func(*story)
		send int32
		want float64 // confidence; 0: no match
	}{
		{"the reader itself", func(s *story) { s.read(21, "/secret/key", 5) }, 21, 1},
		{"another call, no flow", func(s *story) { s.read(21, "/secret/key", 5) }, 3, 0},
		{"its child", func(s *story) { s.read(2, "/secret/key", 5); s.start(23, 2, "/usr/bin/curl") }, 23, .9},
		{"a child that was there before", func(s *story) { s.read(2, "/secret/key", 5) }, 22, 0},
		{"a copy, read by another call", func(s *story) {
			s.read(21, "/secret/key", 5)
			s.write(21, "/tmp/copy", 6)
			s.read(3, "/tmp/copy", 6)
		}, 3, .81},
		{"a copy that was written before", func(s *story) {
			s.write(21, "/tmp/copy", 6)
			s.read(21, "/secret/key", 5)
			s.read(3, "/tmp/copy", 6)
		}, 3, 0},
		{"output opened before, bytes written after", func(s *story) {
			s.write(21, "/tmp/copy", 6)
			s.read(21, "/secret/key", 5)
			s.do(bodycam.Event{Type: bodycam.TypeClose, Proc: id(21), Path: "/tmp/copy", Dev: 1, Ino: 6, BytesWritten: 9})
			s.read(3, "/tmp/copy", 6)
		}, 3, .81},
		{"an archive of a copy, renamed", func(s *story) {
			s.read(21, "/secret/key", 5)
			s.write(21, "/tmp/copy", 6)
			s.read(22, "/tmp/copy", 6)
			s.write(22, "/tmp/a.tgz", 7)
			s.do(bodycam.Event{Type: bodycam.TypeRename, Proc: id(2), Path: "/tmp/a.tgz", Path2: "/tmp/b", Dev: 1, Ino: 7})
			s.read(3, "/tmp/b", 7)
		}, 3, .9 * .9 * .9 * .9},
		{"the copy was removed and its inode used again", func(s *story) {
			s.read(21, "/secret/key", 5)
			s.write(21, "/tmp/copy", 6)
			s.do(bodycam.Event{Type: bodycam.TypeUnlink, Proc: id(2), Path: "/tmp/copy", Dev: 1, Ino: 6})
			s.read(3, "/tmp/other", 6)
		}, 3, 0},
		{"a pipe", func(s *story) {
			s.read(21, "/secret/key", 5)
			s.do(bodycam.Event{Type: bodycam.TypeClose, Proc: id(21), Path: "pipe:[9]", Dev: 2, Ino: 9, BytesWritten: 9, Marks: bodycam.MarkAnonymous})
			s.do(bodycam.Event{Type: bodycam.TypeClose, Proc: id(22), Path: "pipe:[9]", Dev: 2, Ino: 9, BytesRead: 9, Marks: bodycam.MarkAnonymous})
		}, 22, .81},
		{"a read that failed", func(s *story) {
			s.read(21, "/secret/key", 5)
			s.write(21, "/tmp/copy", 6)
			s.do(bodycam.Event{Type: bodycam.TypeOpen, Proc: id(3), Path: "/tmp/copy", Dev: 1, Ino: 6, Access: bodycam.Read, Errno: 13})
		}, 3, 0},
	}
	for _, tc := range tests {
		s := tell(t, sequenceHead+"    by: run\n    taint: true\n"+secretSteps)
		tc.do(s)
		m := s.connect(tc.send, "evil.example")
		switch {
		case tc.want == 0 && m != nil:
			t.Errorf("%s: matches", tc.name)
		case tc.want > 0 && m == nil:
			t.Errorf("%s: no match", tc.name)
		case tc.want > 0 && !near(m[0].Confidence, tc.want):
			t.Errorf("%s: confidence %v, want %v", tc.name, m[0].Confidence, tc.want)
		}
	}
	// Within one tree a match needs no known flow, but says so.
	s := tell(t, sequenceHead+"    by: process_tree\n    taint: true\n"+secretSteps)
	s.read(21, "/secret/key", 5)
	if m := s.connect(22, "evil.example"); len(m) != 1 || m[0].Confidence != .5 || !slices.Equal(m[0].Events, []uint64{10, 11}) {
		t.Errorf("same tree: %+v", m)
	}
}

func TestSequenceLimits(t *testing.T) {
	s := tell(t, sequenceHead+"    by: process\n    taint: true\n"+secretSteps)
	for i := int32(100); i < 100+maxChains+50; i++ {
		s.read(i, "/secret/key", 5)
	}
	if s.engine.Dropped() == 0 {
		t.Error("nothing was given up, or it wasn't counted")
	}
}

func TestThreshold(t *testing.T) {
	const yaml = "- rule: t\n  desc: d\n  priority: ERROR\n  output: o\n  condition: evt.type=openat\n  threshold:\n    over: 3\n    within: 10s\n    by: process_tree\n"
	s := tell(t, yaml)
	var got []uint64
	for range 6 {
		n := uint64(0)
		if m := s.read(21, "/a", 1); m != nil {
			n = m[0].Count
		}
		got = append(got, n)
	}
	if !slices.Equal(got, []uint64{0, 0, 0, 4, 1, 1}) {
		t.Errorf("counts %v", got)
	}
	if s.read(3, "/a", 1) != nil {
		t.Error("another tree is counted in")
	}
	s.now += 60e9
	if s.read(21, "/a", 1) != nil {
		t.Error("the window doesn't end")
	}
	s = tell(t, yaml)
	if m := s.do(bodycam.Event{Type: bodycam.TypeOpen, Proc: id(21), Path: "/a", Count: 500}); m == nil || m[0].Count != 500 {
		t.Errorf("an event that stands for many: %+v", m)
	}
	s = tell(t, "- rule: t\n  desc: d\n  priority: ERROR\n  output: o\n  condition: evt.type=close\n  threshold: {sum: body.bytes_written, over: 1000, within: 10s, by: run}\n")
	for i, want := range []bool{false, true} {
		m := s.do(bodycam.Event{Type: bodycam.TypeClose, Proc: id(int32(2 + i)), Path: "/a", BytesWritten: 600})
		if got := m != nil; got != want {
			t.Errorf("sum after %d: %v", i+1, got)
		}
	}
}

func TestThresholdOfDistinctValues(t *testing.T) {
	s := tell(t, "- rule: t\n  desc: d\n  priority: ERROR\n  output: o\n  condition: evt.type=connect\n  threshold: {distinct: host.name, over: 2, within: 10s, by: run}\n")
	for _, tc := range []struct {
		host string
		want bool
	}{{"a", false}, {"a", false}, {"a", false}, {"b", false}, {"a", false}, {"c", true}, {"c", true}} {
		if got := s.connect(2, tc.host) != nil; got != tc.want {
			t.Errorf("%s: %v, want %v", tc.host, got, tc.want)
		}
	}
}

func TestTreeSizeAndWriter(t *testing.T) {
	s := tell(t, ruleOf("proc.tree_size >= 4 or proc.exe_writer = /usr/bin/ld"))
	if s.do(bodycam.Event{Type: bodycam.TypeFork, Proc: id(21), Child: id(30)}) == nil {
		t.Error("2, 21, 22 and 30 live")
	}
	s.do(bodycam.Event{Type: bodycam.TypeExit, Proc: id(30)})
	if s.read(2, "/x", 1) != nil {
		t.Error("30 has ended")
	}
	s.start(31, 3, "/usr/bin/ld")
	s.write(31, "/tmp/prog", 88)
	if s.do(bodycam.Event{Type: bodycam.TypeExec, Proc: id(3), Exe: "/tmp/prog", Dev: 1, Ino: 88}) == nil {
		t.Error("the writer of a program is not known")
	}
}
