package sensor

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

var (
	p1 = bodycam.Proc{PID: 11, Start: 1_000_000_123}
	p2 = bodycam.Proc{PID: 12, Start: 2_000_000_456}
)

// record is what a complete sensor says of two processes.
func record(sensor string) []bodycam.Event {
	ev := []bodycam.Event{
		{Type: bodycam.TypeFork, Proc: p1, Child: p2},
		{Type: bodycam.TypeExec, Proc: p2, Exe: "/usr/bin/cat", Argv: []string{"cat", "a b"}},
		{Type: bodycam.TypeOpen, Proc: p2, Path: "/etc/shadow", Access: bodycam.Read},
		{Type: bodycam.TypeOpen, Proc: p2, Path: "/etc/shadow", Access: bodycam.Read},
		{Type: bodycam.TypeOpen, Proc: p2, Path: "/tmp/x", Access: bodycam.Read | bodycam.Write},
		{Type: bodycam.TypeOpen, Proc: p2, Path: "/tmp/x", Access: bodycam.Write},
		{Type: bodycam.TypeOpen, Proc: p2, Path: "/tmp/x", Access: bodycam.Write | bodycam.Trunc},
		{Type: bodycam.TypeOpen, Proc: p2, PathGiven: "/nope", Access: bodycam.Read, Errno: 2},
		{Type: bodycam.TypeRename, Proc: p2, Path: "/tmp/x", Path2: "/tmp/y"},
		{Type: bodycam.TypeConnect, Proc: p1, Proto: bodycam.ProtoTCP, Remote: netip.MustParseAddrPort("[::ffff:10.0.0.1]:443"), Errno: 115},
		{Type: bodycam.TypeConnect, Proc: p1, Proto: bodycam.ProtoUnix, UnixAddr: "@x"},
		{Type: bodycam.TypeDNS, Proc: p1, Host: "Example.test"},
		{Type: bodycam.TypeExit, Proc: p2},
	}
	for i := range ev {
		ev[i].Sensor, ev[i].Boot = sensor, uint64(i+1)
	}
	return ev
}

// TestCrossCheckTolerates: folding, order, resolution of start times, name variants and what one sensor alone
// reports are no disagreement.
func TestCrossCheckTolerates(t *testing.T) {
	a, b := record("bpf"), record("ptrace")
	for i := range b {
		b[i].Proc.Start = b[i].Proc.Start / 10_000_000 * 10_000_000
	}
	b[2].Count, b[2].LastBoot = 2, 4
	b = append(b[:3], b[4:]...)
	b = append(b, bodycam.Event{Type: bodycam.TypeMmap, Proc: p2, Path: "/lib/x"}, bodycam.Event{Type: bodycam.TypeClose, Proc: p2, Path: "/lib/x"})
	for i := range b {
		switch b[i].Type {
		case bodycam.TypeConnect:
			if b[i].Remote.IsValid() {
				b[i].Remote = netip.MustParseAddrPort("10.0.0.1:443")
			}
		case bodycam.TypeDNS:
			b[i].Host = "example.test."
		}
	}
	rand.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
	if d := CrossCheck(a, b); len(d) != 0 {
		t.Errorf("disagreements: %+v", d)
	}
}

// TestCrossCheckFinds takes each event that uses a resource out of one record: that and nothing else must be found.
func TestCrossCheckFinds(t *testing.T) {
	for _, c := range []struct {
		at   []int
		verb string
		name string
		n    uint64
	}{
		{[]int{1}, "exec", "/usr/bin/cat", 1},
		{[]int{2, 3}, "read", "/etc/shadow", 2},
		{[]int{6}, "truncate", "/tmp/x", 1},
		{[]int{8}, "rename", "/tmp/x → /tmp/y", 1},
		{[]int{9}, "contact", "10.0.0.1:443", 1},
		{[]int{10}, "contact", "@x", 1},
		{[]int{11}, "dns", "Example.test", 1},
	} {
		var b []bodycam.Event
		for i, e := range record("ptrace") {
			if i < c.at[0] || i > c.at[len(c.at)-1] {
				b = append(b, e)
			}
		}
		for _, d := range [][]Disagreement{CrossCheck(record("bpf"), b), CrossCheck(b, record("bpf"))} {
			if len(d) != 1 || d[0].Verb != c.verb || d[0].Resource.Name != c.name || d[0].Seen != "bpf" || d[0].Missed != "ptrace" || d[0].Count != c.n {
				t.Errorf("without %v: %+v", c.at, d)
			}
		}
	}
	if d := CrossCheck(record("bpf"), nil); len(d) != 9 {
		t.Errorf("against nothing: %d disagreements, want 9: %+v", len(d), d)
	}
}

// TestCrossCheckSoft: an event that can't say what it was about answers for one of the same kind in its process, and
// for no other.
func TestCrossCheckSoft(t *testing.T) {
	b := record("ptrace")
	b[2].Path, b[2].Marks, b[2].Count = "", bodycam.MarkRaced, 2
	b = append(b[:3], b[4:]...)
	if d := CrossCheck(record("bpf"), b); len(d) != 0 {
		t.Errorf("a raced open: %+v", d)
	}
	a := append(record("bpf"), bodycam.Event{Sensor: "bpf", Type: bodycam.TypeOpen, Proc: p2, Path: "/etc/passwd", Access: bodycam.Read})
	if d := CrossCheck(a, b); len(d) != 1 {
		t.Errorf("two raced opens for three true ones: %+v", d)
	}
	b[2].Proc = p1
	if d := CrossCheck(record("bpf"), b); len(d) != 1 || d[0].Resource.Name != "/etc/shadow" {
		t.Errorf("a raced open of another process: %+v", d)
	}
}
