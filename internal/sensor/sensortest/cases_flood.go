package sensortest

import (
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
		{Name: "18-floods/find-usr", Argv: []string{"/usr/bin/find", "/usr/share", "-name", "no-such-name"}, Check: func(t *testing.T, o *Outcome) {
			o.some(t, typ(bodycam.TypeOpen), path("/usr/share"), has(bodycam.Dir), errno(0))
		}},
	}
}
