package security

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// synthetic makes events in the proportions of recorded runs: mostly opens and closes, of system files and of the
// workspace, with processes that come and go, and some of everything else.
func synthetic(n int) []*bodycam.Event {
	r := rand.New(rand.NewPCG(1, 2))
	events := make([]*bodycam.Event, 0, n)
	paths := make([]string, 4000)
	for i := range paths {
		switch i % 4 {
		case 0:
			paths[i] = fmt.Sprintf("/usr/lib/python3.11/site/pkg%d/mod_%d.py", i%97, i)
		case 1:
			paths[i] = fmt.Sprintf("/workspace/src/dir%d/file%d.go", i%31, i)
		case 2:
			paths[i] = fmt.Sprintf("/lib/x86_64-linux-gnu/lib%d.so.6", i)
		case 3:
			paths[i] = fmt.Sprintf("/tmp/build-%d/b%03d/out.o", i%13, i)
		}
	}
	exes := []string{"/usr/bin/bash", "/usr/bin/cat", "/usr/bin/python3.11", "/usr/bin/git", "/usr/lib/git-core/git-remote-https", "/usr/local/go/bin/go", "/usr/bin/ld"}
	add := func(e bodycam.Event) {
		e.Seq = uint64(len(events) + 1)
		e.Time, e.Boot = 1e18+int64(e.Seq)*4e6, e.Seq*4e6
		e.Window, e.Sensor, e.TID = bodycam.WindowAgent, "bpf", e.Proc.PID
		events = append(events, &e)
	}
	pid := int32(10)
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: id(pid), Exe: "/usr/local/bin/codex", Argv: []string{"codex", "exec"}, CWD: "/workspace"})
	add(bodycam.Event{Type: bodycam.TypeFork, Proc: id(10), Child: id(11)})
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: id(11), Exe: "/usr/bin/bash", Argv: []string{"bash", "-lc", "make"}, CWD: "/workspace"})
	cur := int32(11)
	next := int32(12)
	for len(events) < n {
		switch x := r.IntN(100); {
		case x < 45:
			i := r.IntN(len(paths))
			acc := bodycam.Read
			if i%4 == 1 && x < 8 || i%4 == 3 {
				acc = bodycam.Write | bodycam.Create
			}
			given := paths[i]
			if i%5 == 0 {
				given = "src/../" + paths[i][1:]
			}
			add(bodycam.Event{Type: bodycam.TypeOpen, NR: 257, ABI: bodycam.ABIAMD64, Proc: id(cur), Path: paths[i], PathGiven: given, CWD: "/", Dev: 1, Ino: uint64(1000 + i), Access: acc, Flags: 0o2000000})
		case x < 75:
			i := r.IntN(len(paths))
			add(bodycam.Event{Type: bodycam.TypeClose, NR: 3, ABI: bodycam.ABIAMD64, Proc: id(cur), Path: paths[i], Dev: 1, Ino: uint64(1000 + i), BytesRead: 4096})
		case x < 85:
			i := r.IntN(len(paths))
			add(bodycam.Event{Type: bodycam.TypeOpen, NR: 257, ABI: bodycam.ABIAMD64, Proc: id(cur), PathGiven: paths[i] + ".missing", Errno: 2, Access: bodycam.Read, Marks: bodycam.MarkUnverified})
		case x < 89:
			if cur != 11 && x < 88 {
				add(bodycam.Event{Type: bodycam.TypeExit, Proc: id(cur)})
			} else if cur != 11 {
				continue
			}
			add(bodycam.Event{Type: bodycam.TypeFork, NR: 56, ABI: bodycam.ABIAMD64, Proc: id(11), Child: id(next)})
			exe := exes[r.IntN(len(exes))]
			add(bodycam.Event{Type: bodycam.TypeExec, NR: 59, ABI: bodycam.ABIAMD64, Proc: id(next), Exe: exe, Path: exe, PathGiven: exe, CWD: "/workspace", Dev: 1, Ino: 7,
				Argv: []string{exe, "-o", "result.txt", "--level", "3", "src/main.go", "src/util.go"}})
			cur = next
			next++
		case x < 92:
			if cur != 11 {
				add(bodycam.Event{Type: bodycam.TypeExit, Proc: id(cur)})
				cur = 11
			}
		case x < 94:
			add(bodycam.Event{Type: bodycam.TypeConnect, NR: 42, ABI: bodycam.ABIAMD64, Proc: id(cur), Proto: bodycam.ProtoTCP, Local: netip.MustParseAddrPort("10.0.0.2:40000"), Remote: netip.MustParseAddrPort("151.101.0.223:443"), Host: "files.pythonhosted.org", HostSource: bodycam.HostDNS, Errno: 115})
		case x < 95:
			add(bodycam.Event{Type: bodycam.TypeDNS, Proc: id(cur), Host: "pypi.org"})
		case x < 97:
			i := r.IntN(len(paths)/4)*4 + 3
			add(bodycam.Event{Type: bodycam.TypeRename, NR: 82, ABI: bodycam.ABIAMD64, Proc: id(cur), Path: paths[i], Path2: paths[i] + "2", Dev: 1, Ino: uint64(1000 + i)})
		case x < 98:
			i := r.IntN(len(paths)/4)*4 + 3
			add(bodycam.Event{Type: bodycam.TypeUnlink, NR: 87, ABI: bodycam.ABIAMD64, Proc: id(cur), Path: paths[i], Dev: 1, Ino: uint64(1000 + i)})
		default:
			add(bodycam.Event{Type: bodycam.TypeFlow, Proc: id(cur), Proto: bodycam.ProtoTCP, Remote: netip.MustParseAddrPort("151.101.0.223:443"), Host: "files.pythonhosted.org", BytesRead: 9000})
		}
	}
	return events
}

// BenchmarkMillion judges a million events with the whole built-in rule set on one core; ns/op is for the million.
func BenchmarkMillion(b *testing.B) {
	// A run's events come one by one: a hundred thousand are played ten times, each time as later events of other
	// processes, so that the collector doesn't scan a million of them.
	const rounds = 10
	events := synthetic(100_000)
	set := testSet()
	b.ReportAllocs()
	start := cpu(b)
	for b.Loop() {
		a, err := New(Options{Policy: testPolicy(), Rules: set})
		if err != nil {
			b.Fatal(err)
		}
		for range rounds {
			for _, e := range events {
				a.Event(e)
				later(e, len(events))
			}
		}
		if n := len(a.Findings()); n != 0 {
			b.Fatalf("%d findings in a run without any: %v", n, a.Findings()[0])
		}
	}
	// On a busy machine the wall clock also counts what others do: the processor time is the figure.
	b.ReportMetric((cpu(b)-start).Seconds()/float64(b.N), "cpu-s/million")
}

// later makes an event one of the next round.
func later(e *bodycam.Event, n int) {
	e.Seq += uint64(n)
	e.Time += int64(n) * 4e6
	e.Boot += uint64(n) * 4e6
	for _, p := range []*bodycam.Proc{&e.Proc, &e.Child} {
		if p.PID > 11 {
			p.Start += 1e12
		}
	}
}

// cpu is the processor time of this process, of all its threads.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The whole rule set must not allocate for events that no rule finds anything in.
func TestBuiltInRulesDoNotAllocate(t *testing.T) {
	events := synthetic(20000)
	table := rules.NewTable()
	e := testSet().NewEngine(table)
	for _, ev := range events {
		e.Event(ev)
	}
	var quiet []*bodycam.Event
	for _, ev := range events {
		if ev.Type != bodycam.TypeFork && ev.Type != bodycam.TypeExec && ev.Type != bodycam.TypeExit && ev.Type != bodycam.TypeUnlink && ev.Type != bodycam.TypeRename {
			quiet = append(quiet, ev)
		}
	}
	i := 0
	n := testing.AllocsPerRun(5000, func() {
		e.Event(quiet[i%len(quiet)])
		i++
	})
	if n > 0.01 {
		t.Errorf("%v allocations an event", n)
	}
}
