package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

const doc = `{"tool":"deploy","policy":[{"verdict":"allow","name":"a"},{"verdict":"deny","name":"b"}],"n":3,"big":1790000000123456789,
 "f":-2.5,"yes":true,"none":null,"empty":[],"argv":["/usr/bin/git","push \"x\""],"a":{"b-c":{"d e":"v"}},"uni":"Zo\u00eb","nested":[[1,2],[3]]}`

func match(t *testing.T, x string) bool {
	t.Helper()
	e, err := Parse(x)
	if err != nil {
		t.Fatalf("%s: %v", x, err)
	}
	return e.Match(&Doc{Record: []byte(`{"seq":7,"type":"action"}`), Body: []byte(doc)})
}

func TestExpressions(t *testing.T) {
	for _, x := range []string{
		`tool == "deploy"`, `tool == 'deploy' && policy.verdict == "deny"`, `policy.verdict == "allow"`, `policy[1].verdict == "deny"`,
		`!(policy[0].verdict == "deny")`, `policy.verdict != "escalate"`, `n == 3`, `n >= 3 && n <= 3`, `n < 3.5`, `f < 0`, `f == -2.5`,
		`big == 1790000000123456789`, `big > 1790000000123456788`, `yes`, `yes == true`, `!none`, `none == null`, `missing == null`,
		`missing.further != 3`, `empty == null`, `argv contains "push"`, `argv[0] matches "(^|/)git$"`, `argv[1] == "push \"x\""`,
		`tool in ["a", "deploy"]`, `n in [1, 2, 3]`, `tool startsWith "dep"`, `a.b-c."d e" == "v"`, `uni == "Zoë"`, `nested == 3`,
		`record.seq == 7`, `record.type == "action"`, `tool == "x" || n == 3 && yes`, `"deploy" == tool`, `3 < big`,
		`policy.name == policy.name`, `n == 0x3`,
	} {
		if !match(t, x) {
			t.Errorf("%s doesn't hold", x)
		}
	}
	for _, x := range []string{
		`tool == "Deploy"`, `policy.verdict != "deny"`, `n == "3"`, `n > 3`, `big == 1790000000123456788`, `none`, `yes == null`, `missing == 3`,
		`missing > 3`, `tool contains "Z"`, `tool in []`, `tool > 3`, `record.seq == 8`, `a == null && tool == "x"`, `argv == "push"`,
	} {
		if match(t, x) {
			t.Errorf("%s holds", x)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	for x, want := range map[string]string{
		``: "column 1", `a = 3`: "column 3", `a ==`: "column 5", `(a == 3`: "column 1", `a == "x`: "column 6", `a == 3 b == 4`: "column 8",
		`a & b`: "column 3", `a matches "("`: "column 3", `a in "x"`: "column 6", `a.`: "column 3", `a[x] == 3`: "column 3", `"x"`: "column 4",
		`a == "\q"`: "column 6", `a < true`: "column 3", `a contains 3`: "column 3", `in == 3`: "column 1", `a == 1.2.3`: "column 6", `é == 3`: "column 1",
		`a frob 3`: "column 3", strings.Repeat("(", 300): "column 202", strings.Repeat("!", 300) + "a": "column 202",
	} {
		_, err := Parse(x)
		var se *SyntaxError
		if !errors.As(err, &se) || !strings.HasPrefix(err.Error(), want+":") {
			t.Errorf("%q: %v, want %s", x, err, want)
		}
		if se != nil && !strings.Contains(se.Mark(), "^") {
			t.Errorf("%q: no mark", x)
		}
	}
}

// sealedRun records events of three processes, two actions and a finding.
func sealedRun(t *testing.T) *store.Run {
	t.Helper()
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "r")
	w, err := store.Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, &store.Sealing{
		Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	add := func(e bodycam.Event) {
		e.NR = -1
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	shell, tool := bodycam.Proc{PID: 10, Start: 1}, bodycam.Proc{PID: 11, Start: 2}
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: shell, Exe: "/bin/sh", Argv: []string{"sh", "-c", "tool"}, CWD: "/w"})
	add(bodycam.Event{Type: bodycam.TypeFork, Proc: shell, Child: tool})
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: tool, Exe: "/bin/tool", Argv: []string{"tool"}})
	for i := range 2000 {
		add(bodycam.Event{Type: bodycam.TypeOpen, Proc: tool, Path: fmt.Sprintf("/w/%d", i), Boot: uint64(i + 10)})
	}
	a := &bodycam.Action{Intent: bodycam.Intent{Tool: "fetch"}, Execution: bodycam.Execution{Command: "curl a"}}
	b := &bodycam.Action{Intent: bodycam.Intent{Tool: "shell"}, Execution: bodycam.Execution{Command: "tool"},
		Effects: bodycam.Effects{Events: [][2]uint64{{1, 1500}}, Confidence: 0.9}, Policy: []bodycam.Policy{{Name: "p", Verdict: "deny"}},
		Delegation: &bodycam.Delegation{Requester: "planner", Parent: "ab", Log: "cd"}}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	// The records so far: opening, batches of 512 events.
	b.Context.Upstream = []uint64{5}
	if err := errors.Join(w.Action(a), w.Action(b), w.Findings([]bodycam.Finding{{Rule: "r", Severity: bodycam.High, Events: []uint64{4}}}),
		w.File("agent/stdout", []byte("said a word\n")), w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Identities = []age.Identity{id}
	return r
}

func ask(t *testing.T, r *store.Run, text string, o Options) *Result {
	t.Helper()
	x, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	res, err := Run(context.Background(), r, lr, x, o)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return res
}

// The index must never change an answer.
func TestIndexAgrees(t *testing.T) {
	r := sealedRun(t)
	for text, want := range map[string]int{
		`type == "open" && path == "/w/1234"`:                       1,
		`path in ["/w/1", "/w/1999", "/w/5000"]`:                    2,
		`type == "open" && exe == "/bin/tool" && argv == "tool"`:    2000,
		`exe == "/bin/tool" && path == "/w/1900" && cwd == "/w"`:    1,
		`seq > 2000 && type == "open"`:                              3,
		`seq == 1700`:                                               1,
		`tool == "shell" && policy.verdict == "deny"`:               1,
		`record.type == "finding" && severity == "high"`:            1,
		`record.type == "file" && text contains "a word"`:           1,
		`time == "1970-01-01T00:00:00Z" && path == "/w/1"`:          1,
		`text == "said a word\n"`:                                   1,
		`record.type == "events"`:                                   4,
		`record.seq < 3`:                                            3,
		`!(type == "open") && record.type == "events"`:              3,
		`tool == null && type != "open" && record.type == "events"`: 3,
		`tool == "nothing"`:                                         0,
	} {
		plain, indexed := ask(t, r, text, Options{}), ask(t, r, text, Options{Index: true})
		if len(plain.Answers) != want {
			t.Errorf("%s: %d answers, want %d", text, len(plain.Answers), want)
		}
		a, _ := json.Marshal(plain.Answers)
		b, _ := json.Marshal(indexed.Answers)
		if string(a) != string(b) {
			t.Errorf("%s: the index gives other answers:\n%s\n%s", text, a, b)
		}
		if !plain.Scope.Exhaustive || !indexed.Scope.Exhaustive {
			t.Errorf("%s: %+v, %+v", text, plain.Scope, indexed.Scope)
		}
	}
	if res := ask(t, r, `path == "/w/7"`, Options{Index: true}); res.Scope.Looked > 2 {
		t.Errorf("the index left %d records to look at", res.Scope.Looked)
	}
}

// A stale, foreign or damaged index is made again.
func TestStaleIndex(t *testing.T) {
	r := sealedRun(t)
	const text = `path == "/w/7"`
	for _, spoil := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(r.Path(IndexFile), []byte("not a database"), 0o600) },
		func() error {
			other := sealedRun(t)
			ask(t, other, text, Options{Index: true})
			b, err := os.ReadFile(other.Path(IndexFile))
			if err != nil {
				return err
			}
			return os.WriteFile(r.Path(IndexFile), b, 0o600)
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if res := ask(t, r, text, Options{Index: true}); len(res.Answers) != 1 {
			t.Errorf("%d answers", len(res.Answers))
		}
	}
}

func TestScope(t *testing.T) {
	r := sealedRun(t)
	ids := r.Identities
	r.Identities = nil
	res := ask(t, r, `tool == "shell"`, Options{Index: true})
	if len(res.Answers) != 0 || res.Scope.Exhaustive || res.Scope.Closed == 0 {
		t.Errorf("without a key: %+v", res.Scope)
	}
	if res := ask(t, r, `record.type == "action"`, Options{}); len(res.Answers) != 2 || !res.Scope.Exhaustive {
		t.Errorf("what records say themselves: %d answers, %+v", len(res.Answers), res.Scope)
	}
	if _, err := os.Stat(r.Path(IndexFile)); err == nil {
		t.Error("an index was made without a key")
	}
	r.Identities = ids
	if res := ask(t, r, `type == "open"`, Options{From: 2, To: 3}); len(res.Answers) != 1024 || !res.Scope.Exhaustive || res.Scope.Records != 2 || res.Answers[0].Event != 513 {
		t.Errorf("a range: %d answers, %+v", len(res.Answers), res.Scope)
	}
	if res := ask(t, r, `type == "open"`, Options{Limit: 5}); len(res.Answers) != 5 || res.Scope.Exhaustive {
		t.Errorf("a limit: %d answers, %+v", len(res.Answers), res.Scope)
	}
}

// The bundle of a range holds every record of it and verifies.
func TestProve(t *testing.T) {
	r := sealedRun(t)
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	res := ask(t, r, `path == "/w/1000" || tool == "shell"`, Options{From: 1, To: 7})
	b, err := res.Prove(lr, true)
	if err != nil {
		t.Fatal(err)
	}
	if rep := b.Verify(ledger.Trust{Self: true}); rep.Verdict != ledger.Verified || len(b.Items) != 7 {
		t.Errorf("%s with %d records", rep.Verdict, len(b.Items))
	}
	open := 0
	for _, it := range b.Items {
		if it.Opened {
			open++
		}
		open += len(it.Events)
	}
	if open != 2 {
		t.Errorf("%d payloads and events are open, want 2", open)
	}
}

func TestWhy(t *testing.T) {
	r := sealedRun(t)
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	chain, err := Why(context.Background(), r, lr, 1234)
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, c := range chain {
		what = append(what, c.What)
	}
	if want := []string{"event", "process", "process", "call", "delegation", "upstream"}; !slices.Equal(what, want) {
		t.Errorf("chain %v, want %v", what, want)
	}
	if _, err := Why(context.Background(), r, lr, 99999); err == nil {
		t.Error("an event that isn't there has a cause")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`tool == "x" && policy.verdict == "deny"`, `!(a[0].b in [1, -2.5e3, "x", null]) || c`, `a matches "(^|/)git$"`, `a.'b' startsWith 'c'`, "\xff == 3", `(((`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		x, err := Parse(s)
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) || se.Column < 1 || se.Column > len(s)+1 {
				t.Fatalf("%q: %v", s, err)
			}
			se.Mark()
			return
		}
		x.Match(&Doc{Record: []byte(`{"seq":1}`), Body: []byte(doc)})
	})
}

// Whatever the path, finding it must agree with decoding the whole document.
func FuzzFind(f *testing.F) {
	f.Add([]byte(doc), "policy", "verdict")
	f.Add([]byte(`{"a":[{"b":1},{"b":"x\\"}]}`), "a", "b")
	f.Add([]byte(` [ {"a" : {"b" : [ ] } } , null ]`), "a", "b")
	f.Fuzz(func(t *testing.T, raw []byte, a, b string) {
		if !json.Valid(raw) {
			return
		}
		var v any
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return
		}
		want := count(v, []string{a, b})
		got := 0
		find(raw, []step{{a, -1}, {b, -1}}, func(*value) bool { got++; return false })
		if got < want { // a name that stands twice counts twice here and once there; a number may be out of range
			t.Errorf("%q.%q: found %d, want %d in %s", a, b, got, want, raw)
		}
	})
}

func count(v any, path []string) int {
	switch v := v.(type) {
	case []any:
		n := 0
		for _, e := range v {
			n += count(e, path)
		}
		return n
	case map[string]any:
		if len(path) == 0 {
			return 0
		}
		e, ok := v[path[0]]
		if !ok {
			return 0
		}
		return count(e, path[1:])
	case json.Number:
		if _, ok := parseNumber(v.String()); !ok {
			return 0
		}
	}
	if len(path) > 0 {
		return 0
	}
	return 1
}
