package features

import (
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// TestCensus reads a process's environment in many ways: what lists all processes, or reads its own, reads no credentials.
func TestCensus(t *testing.T) {
	for _, c := range []struct {
		exe, args, given string
		secret           bool
	}{
		{"/usr/bin/ps", "ps aux", "", false},
		{"/usr/bin/ps", "ps -C node -eo pid,etime", "", false},
		{"/usr/bin/pgrep", "pgrep -f server", "", false},
		{"/usr/bin/cat", "cat /proc/self/environ", "/proc/self/environ", false},
		{"/usr/bin/ps", "ps aux e", "", true},
		{"/usr/bin/ps", "ps eww", "", true},
		{"/usr/bin/ps", "ps -eo pid,environ", "", true},
		{"/workspace/ps", "ps aux", "", true},
		{"/usr/bin/cat", "cat /proc/17/environ", "", true},
		{"/usr/bin/cat", "cat /proc/self/../17/environ", "/proc/self/../17/environ", true},
	} {
		x := NewExtractor(nil, nil)
		e := bodycam.Event{Type: bodycam.TypeOpen, Exe: c.exe, Argv: strings.Fields(c.args), Path: "/proc/17/environ", PathGiven: c.given, Access: bodycam.Read, Seq: 1}
		x.Add(&e)
		f := x.Finish()
		if got := f.Resources[0].Class == "credentials"; got != c.secret {
			t.Errorf("%s as %s: reads credentials: %v, want %v", c.exe, c.args, got, c.secret)
		}
		if got := len(f.Notables(Yardstick{})) > 0; got != c.secret {
			t.Errorf("%s as %s: is shown first: %v, want %v", c.exe, c.args, got, c.secret)
		}
	}
	// A census hides no other reading of the same entry, and none by a ps that the run itself put there.
	x := NewExtractor(nil, nil)
	read := bodycam.Event{Type: bodycam.TypeOpen, Exe: "/usr/bin/ps", Argv: []string{"ps", "aux"}, Path: "/proc/17/environ", Access: bodycam.Read, Seq: 1}
	x.Add(&read)
	read.Exe, read.Argv, read.Seq = "/usr/bin/cat", []string{"cat", "/proc/17/environ"}, 2
	x.Add(&read)
	x.Add(&bodycam.Event{Type: bodycam.TypeOpen, Exe: "/usr/bin/cp", Path: "/usr/bin/ps", Access: bodycam.Write | bodycam.Trunc, Seq: 3})
	read.Exe, read.Argv, read.Seq, read.Path = "/usr/bin/ps", []string{"ps"}, 4, "/proc/18/environ"
	x.Add(&read)
	n := 0
	for _, r := range x.Finish().Resources {
		if strings.HasPrefix(r.Name, "/proc/") && r.Class == "credentials" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d of the two entries hold credentials", n)
	}
}
