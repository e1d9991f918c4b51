package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

func sealing(t *testing.T) (*Sealing, age.Identity) {
	t.Helper()
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &Sealing{Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}, Recorder: "test"}, id
}

func sealedRun(t *testing.T, only bool) (*Run, age.Identity) {
	t.Helper()
	return sealedRunWith(t, only, []bodycam.Finding{{Rule: "r1", Title: "t"}})
}

func sealedRunWith(t *testing.T, only bool, findings []bodycam.Finding) (*Run, age.Identity) {
	t.Helper()
	s, id := sealing(t)
	s.Only = only
	dir := filepath.Join(t.TempDir(), "r")
	w, err := Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		e := bodycam.Event{NR: -1, Type: bodycam.TypeOpen, Proc: bodycam.Proc{PID: 5, Start: 9}, Path: fmt.Sprintf("/w/%d", i), Boot: uint64(i + 1)}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Action(&bodycam.Action{Intent: bodycam.Intent{Tool: "shell"}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Rows([]bodycam.Row{{Kind: bodycam.RowTool, Command: "ls"}}), w.File("agent/stdout", []byte("said\n")),
		w.Findings(findings), w.Coverage(bodycam.Health{Sensor: "bpf", Total: bodycam.Counters{Seen: 3000, Emitted: 3000}})); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, id
}

func verdict(t *testing.T, r *Run, id age.Identity) *ledger.Report {
	t.Helper()
	rep, err := ledger.Verify(context.Background(), os.DirFS(r.Dir), ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: []age.Identity{id}, Payloads: true})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestSealed(t *testing.T) {
	r, id := sealedRun(t, false)
	if rep := verdict(t, r, id); rep.Verdict != ledger.Verified || rep.Events != 3000 {
		t.Fatalf("verdict %s over %d events: %+v", rep.Verdict, rep.Events, rep.Claims)
	}
	if _, err := r.CompareCopies(); err == nil {
		t.Error("copies were compared without a key")
	}
	r.Identities = []age.Identity{id}
	faults, err := r.CompareCopies()
	if err != nil || len(faults) > 0 {
		t.Fatalf("faults %v, %v", faults, err)
	}
}

// Each change of a working copy must be told, with the first event that differs.
func TestChangedCopies(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"events cut": {func(d string) error { return os.Truncate(filepath.Join(d, EventsFile), int64(len(magic))) }, EventsFile},
		"transcript": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "agent/stdout"), []byte("never said\n"), 0o600)
		}, "agent/stdout"},
		"removed": {func(d string) error { return os.Remove(filepath.Join(d, RowsFile)) }, RowsFile},
		"added":   {func(d string) error { return os.WriteFile(filepath.Join(d, "artifacts/x"), nil, 0o600) }, "artifacts/x"},
		"run.json": {func(d string) error {
			p := filepath.Join(d, InfoFile)
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			return os.WriteFile(p, []byte(strings.Replace(string(b), `"id": "r"`, `"id": "q"`, 1)), 0o600)
		}, InfoFile},
		"event rewritten": {func(d string) error {
			w, err := createSegment(filepath.Join(d, "new"))
			if err != nil {
				return err
			}
			s, err := openSegment(filepath.Join(d, EventsFile))
			if err != nil {
				return err
			}
			defer s.close()
			var e bodycam.Event
			for s.next(&e) == nil {
				if e.Seq == 1234 {
					e.Path = "/w/forged"
				}
				if w.append(e.AppendBinary(nil)) {
					if err := w.flush(); err != nil {
						return err
					}
				}
			}
			return errors.Join(w.close(), os.Rename(filepath.Join(d, "new"), filepath.Join(d, EventsFile)))
		}, "event 1234"},
	} {
		t.Run(name, func(t *testing.T) {
			r, id := sealedRun(t, false)
			r.Identities = []age.Identity{id}
			if err := c.change(r.Dir); err != nil {
				t.Fatal(err)
			}
			faults, err := r.CompareCopies()
			if err != nil || len(faults) != 1 || !strings.Contains(faults[0].Name+" "+faults[0].Why, c.want) {
				t.Errorf("faults %+v, %v; want one about %s", faults, err, c.want)
			}
		})
	}
}

// A run without working copies reads the same, with the key; without it, it says so.
func TestSealedOnly(t *testing.T) {
	r, id := sealedRun(t, true)
	for _, name := range []string{EventsFile, RowsFile, AgentDir, FindingsFile} {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); err == nil {
			t.Errorf("the working copy %s is there", name)
		}
	}
	if err := r.Events(func(*bodycam.Event) error { return nil }); !errors.Is(err, ErrSealedOnly) {
		t.Errorf("without a key: %v", err)
	}
	r.Identities = []age.Identity{id}
	n := 0
	if err := r.Events(func(e *bodycam.Event) error { n++; return nil }); err != nil || n != 3000 {
		t.Errorf("read %d events, %v", n, err)
	}
	rows, err := r.Rows()
	if err != nil || len(rows) != 1 || rows[0].Command != "ls" {
		t.Errorf("rows %v, %v", len(rows), err)
	}
	fs, err := r.Findings()
	if err != nil || len(fs) != 1 || fs[0].Rule != "r1" {
		t.Errorf("findings %v, %v", fs, err)
	}
}
