package session

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/guard"
)

// Where decisions fail the agent gets nothing any more, the run ends at once and says why.
func TestGuardThatFails(t *testing.T) {
	if err := guard.Available(); err != nil {
		t.Skip(err)
	}
	o := options(t, []string{"sh", "-c", "read x < /etc/hosts; read x < /etc/group && echo leaked; while :; do sleep 1; done"}, nil)
	o.Guard = &Guard{Wants: func(string) (bool, bool) { return false, false }, Refuse: func(e *bodycam.Event) string {
		if e.Path == "/etc/hosts" {
			panic("it can't be decided")
		}
		return ""
	}}
	began := time.Now()
	r, err := Run(t.Context(), o)
	if !errors.Is(err, ErrEnvironment) || !strings.Contains(err.Error(), "it can't be decided") || time.Since(began) > time.Minute {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	if c := r.Info.Complete; c.Complete || !slices.ContainsFunc(c.Reasons, func(s string) bool { return strings.Contains(s, "guard failed") }) {
		t.Errorf("%+v", c)
	}
	if out, err := os.ReadFile(r.Path("agent/stdout")); err == nil && len(out) > 0 {
		t.Errorf("it printed %q", out)
	}
}

// What is refused because its path can't be known is told as such.
func TestGuardOfLongPaths(t *testing.T) {
	if err := guard.Available(); err != nil {
		t.Skip(err)
	}
	o := options(t, []string{"python3", "-c", `import os
for i in range(22):
    os.mkdir("a" * 200)
    os.chdir("a" * 200)
try: os.open("f", os.O_CREAT | os.O_WRONLY)
except PermissionError: print("refused")`}, nil)
	o.Guard = &Guard{Wants: func(string) (bool, bool) { return false, false }, Refuse: func(*bodycam.Event) string { return "" }}
	r := mustRun(t, o)
	if out, err := os.ReadFile(r.Path("agent/stdout")); err != nil || string(out) != "refused\n" {
		t.Errorf("it printed %q, %v", out, err)
	}
	if !slices.ContainsFunc(events(t, r), func(e bodycam.Event) bool {
		return e.Type == bodycam.TypeOpen && e.Errno == 1 && e.Detail == refusedUnclear && e.RefusedBy() == "" && e.Ino != 0
	}) {
		t.Error("no event says why")
	}
	if !slices.ContainsFunc(r.Info.Notes, func(n string) bool { return strings.HasPrefix(n, "1 opens and executions were refused") }) {
		t.Errorf("notes %q", r.Info.Notes)
	}
}

// A refusal is told of the event that bears its time, and of no other call of the thread.
func TestRefusalsFindTheirEvents(t *testing.T) {
	x := &guarding{refusals: map[int32][]refused{7: {{at: 10, detail: bodycam.Refusal("a"), path: "/a", ino: 1}, {at: 20, detail: bodycam.Refusal("b"), path: "/b", ino: 2}, {at: 30, detail: bodycam.Refusal("b"), path: "/b", ino: 2}, {at: 90, detail: bodycam.Refusal("c"), path: "/c"}}, 8: {{at: 5, detail: bodycam.Refusal("d")}}}, kept: 5}
	for _, c := range []struct {
		tid         int32
		boot, last  uint64
		errno       int32
		typ         bodycam.Type
		rule, path  string
		left, leftN int
	}{
		{7, 9, 0, 1, bodycam.TypeOpen, "", "/given", 5, 4},  // before any
		{7, 15, 0, 2, bodycam.TypeOpen, "", "/given", 5, 4}, // another error
		{7, 15, 0, 1, bodycam.TypeUnlink, "", "/given", 5, 4},
		{7, 15, 0, 1, bodycam.TypeOpen, "a", "/a", 4, 3},
		{7, 16, 0, 1, bodycam.TypeOpen, "", "/given", 4, 3}, // refused by the kernel itself
		{7, 25, 35, 1, bodycam.TypeExec, "b", "/b", 2, 1},   // two in one event
		{9, 99, 0, 1, bodycam.TypeOpen, "", "/given", 2, 1},
		{7, 95, 0, 1, bodycam.TypeOpen, "c", "/c", 1, 0},
	} {
		e := bodycam.Event{Type: c.typ, TID: c.tid, Boot: c.boot, LastBoot: c.last, Errno: c.errno, Path: "/given", Marks: bodycam.MarkUnverified}
		x.attribute(&e)
		if e.RefusedBy() != c.rule || e.Path != c.path || (e.Marks == 0) != (c.rule != "") || x.kept != c.left || len(x.refusals[7]) != c.leftN {
			t.Errorf("%+v: %+v, %d left, %d of the thread", c, e, x.kept, len(x.refusals[7]))
		}
	}
}
