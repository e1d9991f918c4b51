package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

// lackingRun records a run of three events that says of its record what complete does.
type lackingRun struct {
	complete bodycam.Completeness
	findings []bodycam.Finding
	files    map[string]string
	cut      bool // its recorder is killed
}

func (l lackingRun) record(t *testing.T, dir string) {
	t.Helper()
	ring, _, err := keyring.OpenOrCreate(os.Getenv("BODYCAM_KEYS"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Create(dir, bodycam.Run{ID: filepath.Base(dir), Started: time.Now(), Plan: []byte("{}")}, &store.Sealing{Signers: ring.Signers, Recipients: ring.Recipients, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e := bodycam.Event{NR: -1, Type: bodycam.TypeExec, Proc: bodycam.Proc{PID: 5, Start: 9}, Exe: "/bin/true", Argv: []string{"true"}, Boot: uint64(time.Now().UnixNano())}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range l.files {
		err = errors.Join(err, w.File(name, []byte(text)))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	if l.cut {
		return
	}
	if err := errors.Join(w.Findings(l.findings), w.Update(func(r *bodycam.Run) { r.Ended, r.Complete = time.Now().UTC(), l.complete }), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// gapped records a run whose ledger was refused room on the disk for two records.
func gapped(t *testing.T, dir string) {
	t.Helper()
	w, err := store.Create(dir, bodycam.Run{ID: filepath.Base(dir), Started: time.Now(), Plan: []byte("{}")}, nil)
	if err == nil {
		err = errors.Join(w.Update(func(r *bodycam.Run) { r.Ended, r.Complete.Complete = time.Now().UTC(), true }), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.ReadFile(filepath.Join(dir, store.InfoFile))
	if err != nil {
		t.Fatal(err)
	}
	ring, _, err := keyring.OpenOrCreate(os.Getenv("BODYCAM_KEYS"), nil)
	if err != nil {
		t.Fatal(err)
	}
	mem := ledgertest.New()
	log, err := ledger.Create(mem, ledger.Options{Signers: ring.Signers, Recipients: ring.Recipients, OnFull: ledger.FullGap})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	mem.Plan(func(op ledgertest.Op) ledgertest.Fault {
		if op.Kind == "write" || op.Kind == "put" {
			return ledgertest.NoSpace
		}
		return ledgertest.None
	})
	if err := log.Sync(ctx); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := log.Append(ctx, ledger.Entry{Type: store.RecordFinding, Payload: []byte("x")}); !errors.Is(err, ledger.ErrDropped) {
			t.Fatal(err)
		}
	}
	mem.Plan(nil)
	_, err = log.AppendReader(ctx, ledger.Entry{Type: store.RecordRun, Kind: "run"}, bytes.NewReader(info))
	for deadline := time.Now().Add(10 * time.Second); errors.Is(err, ledger.ErrDropped) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		_, err = log.AppendReader(ctx, ledger.Entry{Type: store.RecordRun, Kind: "run"}, bytes.NewReader(info))
	}
	if err = errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range mem.Names() {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, mem.Bytes(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoVerdictIsClean holds every way in which a record can be incomplete against every command that says something of a
// run: none ends with 0, and each says why.
func TestNoVerdictIsClean(t *testing.T) {
	t.Setenv("BODYCAM_KEYS", filepath.Join(t.TempDir(), "keys"))
	t.Setenv("BODYCAM_HOME", t.TempDir())
	root := t.TempDir()
	rules := filepath.Join(root, "none.yaml")
	if err := os.WriteFile(rules, []byte("- list: nothing\n  items: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := bodycam.Counters{Seen: 3, Emitted: 3}
	sensed := func(h bodycam.Health) func(*testing.T, string) {
		h.Sensor = "bpf"
		return lackingRun{complete: bodycam.Assess([]bodycam.Health{h})}.record
	}
	says := func(c bodycam.Completeness) func(*testing.T, string) { return lackingRun{complete: c}.record }
	whole := bodycam.Completeness{Complete: true}
	ref := filepath.Join(root, "whole")
	lackingRun{complete: whole}.record(t, ref)
	spoil := func(f func(dir string) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			lackingRun{complete: whole}.record(t, dir)
			if err := f(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	const undecided = "not known, since its state before or after"
	limited := []bodycam.Finding{{Analysis: security.Name, Rule: security.RuleIncomplete, Verdict: "undecidable", Title: "2 processes were forgotten", Count: 1}}
	ways := []struct {
		name, why string
		record    func(*testing.T, string)
		fresh     bool     // run itself can meet it
		clean     []string // commands that the record has all for
	}{
		{"events lost", "2 events lost", sensed(bodycam.Health{Total: bodycam.Counters{Seen: 5, Emitted: 3, Lost: 2}}), true, nil},
		{"sequence numbers missing", "1 sequence number missing", sensed(bodycam.Health{Total: ok, Gaps: 1}), true, nil},
		{"counters", "counters do not balance", sensed(bodycam.Health{Total: bodycam.Counters{Seen: 4, Emitted: 3}}), true, nil},
		{"sensor died", "bpf failed: it was killed", sensed(bodycam.Health{Total: ok, Failed: "it was killed"}), true, nil},
		{"blind", "blind: io_uring", sensed(bodycam.Health{Total: ok, Blind: []bodycam.Blind{{What: "io_uring", Why: "a ring of the host's"}}}), true, nil},
		{"no sensor", "no sensor ran", says(bodycam.Assess(nil)), true, nil},
		{"record full", "ended early", says(whole.Lacking("it was ended early: the record is full")), true, nil},
		{"collect timed out", "collect: context deadline exceeded", says(whole.Lacking("the run failed: collect: context deadline exceeded")), true, nil},
		{"no reason", "calls its own record incomplete", says(bodycam.Completeness{}), true, nil},
		{"findings limited", "2 processes were forgotten", lackingRun{complete: whole, findings: limited}.record, true,
			[]string{"compare", "events", "export", "rules test", "query", "check"}}, // check judges anew, and has room now
		{"one manifest", undecided, lackingRun{complete: whole, files: map[string]string{"manifest-before.json": "{}"},
			findings: []bodycam.Finding{{Analysis: security.Name, Rule: security.RuleIncomplete, Title: errNotCompared.Error(), Count: 1}}}.record, true,
			[]string{"events", "export", "rules test", "query"}}, // what they print has no part in it
		{"cut off", "cut off", lackingRun{cut: true}.record, false, nil},
		{"torn", "cut off", func(t *testing.T, dir string) {
			lackingRun{cut: true}.record(t, dir)
			path := filepath.Join(dir, store.EventsFile)
			st, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, st.Size()-3)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, false, []string{"query"}}, // 3: the event that it asks about is in the part that is gone
		{"ledger's gap", "the storage was full: ", gapped, false, nil},
		{"ledger gone", "its ledger isn", spoil(func(dir string) error { return os.RemoveAll(filepath.Join(dir, "ledger")) }), false, []string{"export", "query"}}, // 2: it is all that they read
		{"events changed", "events.bin", spoil(func(dir string) error {
			b, err := os.ReadFile(filepath.Join(ref, store.EventsFile))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, store.EventsFile), b, 0o600)
		}), false, nil},
		{"said to be complete", "run.json", func(t *testing.T, dir string) {
			sensed(bodycam.Health{Total: ok, Gaps: 1})(t, dir)
			path := filepath.Join(dir, store.InfoFile)
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, bytes.Replace(b, []byte(`"complete": false`), []byte(`"complete": true`), 1), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, false, []string{"export"}}, // it reads what was sealed, and says that
	}
	commands := []struct{ name, line string }{
		{"show", "show RUN"}, {"show", "show --json RUN"},
		{"check", "check --no-builtin --rules NONE RUN"}, {"check", "check --no-builtin --rules NONE --json RUN"},
		{"check", "check --no-builtin --rules NONE --sarif RUN"}, {"check", "check --no-builtin --rules NONE --junit RUN"},
		{"compare", "compare RUN"}, {"compare", "compare --json RUN"}, {"compare", "compare --graph dot RUN"}, {"compare", "compare --baseline RUN WHOLE"},
		{"events", "events RUN"}, {"events", "events --json RUN"}, {"export", "export --format aat RUN"},
		{"rules test", "rules test --rules NONE RUN"}, {"query", "query --why 1 RUN"},
	}
	do := func(line, dir string) (int, string) {
		var out bytes.Buffer
		line = strings.NewReplacer("RUN", dir, "NONE", rules, "WHOLE", ref).Replace(line)
		status := Main(append([]string{"bodycam"}, strings.Fields(line)...), strings.NewReader(""), &out, &out)
		return status, out.String()
	}
	for _, c := range commands {
		if status, out := do(c.line, ref); status != ExitOK || strings.Contains(out, "ncomplete\": {\"re") {
			t.Errorf("%s of a whole record: status %d\n%s", c.line, status, out)
		}
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			dir := filepath.Join(root, strings.ReplaceAll(way.name, " ", "-"))
			way.record(t, dir)
			clean := map[string]bool{}
			for _, c := range way.clean {
				clean[c] = true
			}
			for _, c := range commands {
				if c.name == "query" && way.name == "ledger's gap" {
					continue // it has no events
				}
				status, out := do(c.line, dir)
				switch {
				case clean[c.name] && status == ExitInconclusive && way.name != "said to be complete":
					t.Errorf("%s: status %d\n%s", c.line, status, out)
				case !clean[c.name] && (status != ExitInconclusive || !strings.Contains(out, way.why)):
					t.Errorf("%s: status %d, want %d and %q\n%s", c.line, status, ExitInconclusive, way.why, out)
				}
			}
			if !way.fresh {
				return
			}
			r, err := store.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if status := statusOf(r, nil, gate{min: bodycam.High}, false); status != ExitInconclusive {
				t.Errorf("run would end with status %d", status)
			}
			sum, err := summarise(r)
			var text bytes.Buffer
			if err == nil {
				err = sum.Text(&text, false, false)
			}
			if err != nil || sum.Completed || !strings.Contains(text.String(), "INCOMPLETE") || !strings.Contains(text.String(), way.why) {
				t.Errorf("run would say %v\n%s", err, text.String())
			}
		})
	}
}
