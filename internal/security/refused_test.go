package security

import (
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// A call that the recorder refused is found by the rule that refused it, and by no other as done; the same errno of the
// kernel's own is no such finding.
func TestRefusedByTheRecorder(t *testing.T) {
	mine := rules.Source{Name: "mine.yaml", Data: []byte(`- {rule: Keys, desc: d, mode: deny, condition: read_open and body.path startswith /keys/, output: "%proc.exepath read %body.path", priority: CRITICAL}
- {rule: Tmp, desc: d, mode: deny, condition: body.type = exec and proc.exepath startswith /tmp/, output: "%proc.exepath was executed", priority: ERROR}
- {rule: Other, desc: d, condition: read_open and body.path startswith /keys/, output: o, priority: CRITICAL}
`)}
	set, err := Load(testPolicy(), rules.Options{CanDeny: func(rules.Rule) error { return nil }}, mine)
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, Options{Policy: testPolicy(), Rules: set})
	refused := func(typ bodycam.Type, path, detail string, count uint64) {
		e := s.file(typ, 11, path, bodycam.Read)
		e.Errno, e.Detail, e.Count = 1, detail, count
		s.do(e)
	}
	refused(bodycam.TypeOpen, "/keys/own", "", 1) // the kernel's own
	refused(bodycam.TypeOpen, "/keys/a", bodycam.Refusal("Keys"), 1)
	refused(bodycam.TypeOpen, "/keys/a", bodycam.Refusal("Keys"), 4)
	refused(bodycam.TypeOpen, "/other/name", bodycam.Refusal("Keys"), 1) // known to the recorder by another name
	refused(bodycam.TypeExec, "/tmp/prog", bodycam.Refusal("Tmp"), 1)
	refused(bodycam.TypeOpen, "/keys/b", bodycam.Refusal("Gone"), 1) // a rule that has gone since; this one would have refused it too
	s.read(11, "/fine")
	got := map[string]uint64{}
	for _, f := range s.a.Findings() {
		if f.Rule == "Other" {
			t.Errorf("%q is found though it didn't happen", f.Title)
		}
		if f.Rule == "Keys" || f.Rule == "Tmp" {
			got[f.Title] = f.Count
			if !strings.HasSuffix(f.Detail, "The recorder refused the call.") || len(f.Tree) == 0 || f.Tree[len(f.Tree)-1].Exe != "/usr/bin/bash" {
				t.Errorf("%q says %q of %+v", f.Title, f.Detail, f.Tree)
			}
		}
	}
	for title, n := range map[string]uint64{"/usr/bin/bash read /keys/a, which the recorder refused": 5, "/usr/bin/bash opened /other/name, which the recorder refused": 1,
		"/tmp/prog was executed, which the recorder refused": 1, "/usr/bin/bash read /keys/b, which the recorder refused": 1} {
		if got[title] != n {
			t.Errorf("%q ×%d: %v", title, n, got)
		}
	}
	if len(got) != 4 {
		t.Error(got)
	}
}

// A rule that doesn't ask whether a call worked says of those that failed that they were only tries.
func TestOnlyTried(t *testing.T) {
	set, err := Load(testPolicy(), rules.Options{}, rules.Source{Name: "mine.yaml", Data: []byte(`- {rule: Keys, desc: d, condition: body.type = open and body.path startswith /keys/, output: "%body.path", priority: CRITICAL}
- {rule: Told, desc: d, condition: body.type = open and body.path startswith /keys/, output: "%body.path gave %evt.res", priority: CRITICAL}
`)})
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, Options{Policy: testPolicy(), Rules: set})
	for _, errno := range []int32{2, 2, 13, 0} {
		e := s.file(bodycam.TypeOpen, 11, "/keys/a", bodycam.Read)
		e.Errno = errno
		s.do(e)
	}
	got := map[string]uint64{}
	for _, f := range s.a.Findings() {
		got[f.Title] = f.Count
	}
	for title, n := range map[string]uint64{"/keys/a, only tried: ENOENT": 2, "/keys/a, only tried: EACCES": 1, "/keys/a": 1, "/keys/a gave ENOENT": 2, "/keys/a gave EACCES": 1} {
		if got[title] != n {
			t.Errorf("%q ×%d: %v", title, n, got)
		}
	}
}
