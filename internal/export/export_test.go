package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

func sealed(t *testing.T) *store.Run {
	t.Helper()
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Create(filepath.Join(t.TempDir(), "r"), bodycam.Run{ID: "run-1", Started: time.Unix(1790000000, 0), Agent: bodycam.AgentRef{Harness: "codex", Version: "1.2", Model: "m"},
		Tool: bodycam.Build{Version: "9", SHA256: strings.Repeat("ab", 32)}, Artifacts: []bodycam.Artifact{{Path: "artifacts/out", SHA256: strings.Repeat("cd", 32)}}},
		&store.Sealing{Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	sh := bodycam.Proc{PID: 7, Start: 1}
	for _, e := range []bodycam.Event{
		{Type: bodycam.TypeExec, Proc: sh, Exe: "/bin/sh", Argv: []string{"sh", "-c", "x\xff\n"}},
		{Type: bodycam.TypeOpen, Proc: sh, Path: "/w/a b", Access: bodycam.Read},
		{Type: bodycam.TypeOpen, Proc: sh, Path: "/w/a b", Access: bodycam.Write, Count: 2},
		{Type: bodycam.TypeOpen, Proc: sh, Path: "/w/a b", Access: bodycam.Read | bodycam.Trunc},
		{Type: bodycam.TypeConnect, Proc: sh, Host: "a.example"},
		{Type: bodycam.TypeExit, Proc: sh, Status: 256},
	} {
		e.NR = -1
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	one := 1
	if err := errors.Join(
		w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "shell", Args: json.RawMessage(`{"cmd":"ls \u00e9"}`)}, Execution: bodycam.Execution{Started: 1790000001e9, Ended: 1790000002e9}, Effects: bodycam.Effects{Return: "ok", Observed: map[string]uint64{"open": 4}}}),
		w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "deploy"}, Policy: []bodycam.Policy{{Name: "g", Verdict: "deny"}}}),
		w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "test \"quoted\"\n"}, Effects: bodycam.Effects{Exit: &one}}),
		w.Update(func(r *bodycam.Run) { r.Ended = time.Unix(1790000060, 0) }), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	r.Identities = []age.Identity{id}
	return r
}

func export(t *testing.T, r *store.Run, format string) []byte {
	t.Helper()
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	s, err := Open(r, lr)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Formats[format](&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDeterministic(t *testing.T) {
	r := sealed(t)
	for format := range Formats {
		if a, b := export(t, r, format), export(t, r, format); !bytes.Equal(a, b) {
			t.Errorf("%s: twice gives two outputs", format)
		}
	}
}

func TestInToto(t *testing.T) {
	b := export(t, sealed(t), "in-toto")
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var s Statement
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	l := s.Predicate.MonitorLog
	if len(s.Subject) != 2 || len(l.Process) != 2 || len(l.Network) != 1 || len(l.FileAccess) != 1 || s.Type != statementType {
		t.Fatalf("%s", b)
	}
	if f := l.FileAccess[0]; f.URI != "file:///w/a%20b" || f.Annotations["written"] != 3.0 || f.Annotations["read"] != 1.0 {
		t.Errorf("%+v", f)
	}
	if a := l.Process[0].Arguments[2]; a != `x\xff`+"\n" {
		t.Errorf("argument %q", a)
	}
	var again bytes.Buffer
	if err := writeJSON(&again, &s); err != nil || !bytes.Equal(again.Bytes(), b) {
		t.Error("what was read and written again differs")
	}
}

// The chain is verified as the draft says: each record as it stands is canonical, and the next one names its digest.
func TestAAT(t *testing.T) {
	var prev, parent any
	n := 0
	observed := 0
	outcomes := map[string]int{}
	for line := range strings.Lines(string(export(t, sealed(t), "aat"))) {
		line = strings.TrimSuffix(line, "\n")
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"record_id", "timestamp", "agent_id", "agent_version", "session_id", "action_type", "action_detail", "outcome", "trust_level", "parent_record_id", "prev_hash", "record_phase"} {
			if _, ok := r[k]; !ok {
				t.Errorf("record %d has no %s", n, k)
			}
		}
		if r["prev_hash"] != prev || r["parent_record_id"] != parent {
			t.Errorf("record %d names %v after %v", n, r["prev_hash"], prev)
		}
		again, err := appendJCS(nil, numbers(r))
		if err != nil || string(again) != line {
			t.Errorf("record %d isn't canonical: %s, %v", n, again, err)
		}
		sum := sha256.Sum256([]byte(line))
		prev, parent = hex.EncodeToString(sum[:]), r["record_id"]
		outcomes[r["outcome"].(string)]++
		n++
		if r["action_type"] == "tool_call" { // what the agent says of itself is told from what was seen
			detail := r["action_detail"].(map[string]any)
			asserted, _ := detail["asserted"].([]any)
			for _, name := range []any{"tool", "input_digest", "output_digest", "outcome"} {
				if !slices.Contains(asserted, name) {
					t.Errorf("record %d doesn't say that its %s is asserted: %v", n, name, asserted)
				}
			}
			for _, name := range []any{"record", "record_digest", "payload_digest", "log"} {
				if slices.Contains(asserted, name) {
					t.Errorf("record %d says that its %s is asserted", n, name)
				}
			}
			seen, ok := detail["observed"].(map[string]any)
			if !ok {
				t.Errorf("record %d doesn't say what was observed", n)
			}
			observed += len(seen)
		}
	}
	if observed != 1 {
		t.Errorf("%d kinds of events observed, want 1", observed)
	}
	if n != 5 || outcomes["denied"] != 1 || outcomes["failure"] != 1 || outcomes["success"] != 3 {
		t.Errorf("%d records, %v", n, outcomes)
	}
}

// numbers turns what encoding/json decodes into what appendJCS takes.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		r := record{}
		for k, e := range v {
			r[k] = numbers(e)
		}
		return r
	case []any:
		out := make([]string, len(v))
		for i := range v {
			out[i], _ = v[i].(string)
		}
		return out
	case float64:
		return int64(v)
	}
	return v
}

// RFC 8785, section 3.2.2.2 and 3.2.3: what is escaped, and the order of keys by their UTF-16.
func TestJCS(t *testing.T) {
	got, err := appendJCS(nil, record{"\u20ac": "Euro", "\r": "CR", "1": "One", "\u0080": "C", "\U0001f602": "Smiley", "\u00f6": "o", "\ufb33": "Dalet", "</": "tag",
		"s": "\u20ac$\u000f\nA'\u0042\u0022\u005c\"/"})
	want := `{"\r":"CR","1":"One","</":"tag","s":"€$\u000f\nA'B\"\\\"/","` + "\u0080" + `":"C","ö":"o","€":"Euro","😂":"Smiley","` + "\ufb33" + `":"Dalet"}`
	if err != nil || string(got) != want {
		t.Errorf("%s\nwant %s (%v)", got, want, err)
	}
	if _, err := appendJCS(nil, record{"n": int64(1) << 60}); err == nil {
		t.Error("a number that isn't exact in JSON was taken")
	}
}

// What we read of others' traces, we read of ours: every action with its tool, arguments and outcome.
func TestOTelRoundTrip(t *testing.T) {
	r := sealed(t)
	spans, err := otlp.DecodeTracesJSON(export(t, r, "otel"))
	if err != nil || len(spans) != 4 {
		t.Fatalf("%d spans, %v", len(spans), err)
	}
	acc := otlp.Read(spans, nil)
	if len(acc.Calls) != 3 || acc.Calls[0].Tool != "shell" || acc.Calls[1].Tool != "deploy" {
		t.Errorf("%+v", acc.Calls)
	}
}

// A closed ledger is not an empty one.
func TestClosed(t *testing.T) {
	r := sealed(t)
	r.Identities = nil
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	defer lr.Close()
	if _, err := Open(r, lr); !errors.Is(err, ErrClosed) || !errors.Is(err, ledger.ErrNoKey) {
		t.Error(err)
	}
}
