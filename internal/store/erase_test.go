package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

func erase(t *testing.T, r *Run, id age.Identity, e Erasure) *Erased {
	t.Helper()
	s, _ := sealing(t) // its signing key is always the same
	done, err := r.Erase(context.Background(), e, ledger.Options{Recorder: "test", Signers: s.Signers, Recipients: []age.Recipient{id.(*age.X25519Identity).Recipient()}})
	if err != nil {
		t.Fatal(err)
	}
	if rep := verdict(t, r, id); rep.Verdict != ledger.Verified {
		t.Fatalf("after the erasure: %s: %+v", rep.Verdict, rep.Claims)
	}
	if faults, err := r.CompareCopies(); err != nil || len(faults) > 0 {
		t.Fatalf("after the erasure the copies differ: %v, %v", faults, err)
	}
	return done
}

func paths(t *testing.T, r *Run) []string {
	t.Helper()
	var out []string
	if err := r.Raw(func(e *bodycam.Event) error { out = append(out, e.Path); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// Single events go, those beside them in the same batch stay, and a second erasure in the batch works too.
func TestEraseEvents(t *testing.T) {
	for _, only := range []bool{false, true} {
		r, id := sealedRun(t, only)
		r.Identities = []age.Identity{id}
		done := erase(t, r, id, Erasure{Events: []uint64{700, 701, 1500}, Reason: "asked for"})
		if done.Events != 3 || len(done.Records) != 2 || done.Kept < 500 {
			t.Errorf("erased %+v", done)
		}
		got := paths(t, r)
		if len(got) != 2997 || slices.Contains(got, "/w/699") || !slices.Contains(got, "/w/698") || !slices.IsSortedFunc(got, func(a, b string) int { return len(a) - len(b) }) {
			t.Errorf("%d events are left", len(got))
		}
		again := erase(t, r, id, Erasure{Events: []uint64{702}, Reason: "again"})
		if got := paths(t, r); len(got) != 2996 || again.Events != 1 || slices.Contains(got, "/w/701") {
			t.Errorf("after the second erasure %d events are left", len(got))
		}
		if _, err := r.PlanErase(Erasure{Events: []uint64{702}}); err == nil {
			t.Error("an event could be erased twice")
		}
		if _, err := r.PlanErase(Erasure{Events: []uint64{3001}}); err == nil {
			t.Error("an event that isn't there could be erased")
		}
	}
}

// All of a run goes: what is left names it and verifies.
func TestEraseAll(t *testing.T) {
	r, id := sealedRun(t, false)
	r.Identities = []age.Identity{id}
	if err := os.WriteFile(r.Path("index.db"), []byte("derived"), 0o600); err != nil {
		t.Fatal(err)
	}
	erase(t, r, id, Erasure{All: true, Reason: "all of it"})
	if _, err := r.PlanErase(Erasure{All: true}); err == nil {
		t.Error("there was something left to erase")
	}
	if n := len(paths(t, r)); n != 0 {
		t.Errorf("%d events are left", n)
	}
	for _, name := range []string{"agent/stdout", RowsFile, FindingsFile, "index.db"} {
		if _, err := os.Stat(r.Path(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	now, err := Open(r.Dir)
	if err != nil || now.Info.ID != "r" || len(now.Info.Notes) != 1 {
		t.Errorf("run.json: %+v, %v", now, err)
	}
}

// A finding that rests on an erased event goes with it, and findings.json is made again from the others.
func TestEraseDerived(t *testing.T) {
	r, id := sealedRunWith(t, false, []bodycam.Finding{{Rule: "r1", Title: "t", Events: []uint64{700}}, {Rule: "r2", Title: "u", Events: []uint64{2}}})
	r.Identities = []age.Identity{id}
	if done := erase(t, r, id, Erasure{Events: []uint64{700}, Reason: "x"}); len(done.Derived) != 2 || len(done.Mention) == 0 {
		t.Errorf("erased %+v", done)
	}
	fs, err := r.Findings()
	if err != nil || len(fs) != 1 || fs[0].Rule != "r2" {
		t.Errorf("findings %+v, %v", fs, err)
	}
}

// Where the erasure can't be done, nothing is lost: not while the log is written, not without the key.
func TestEraseRefused(t *testing.T) {
	r, id := sealedRun(t, false)
	s, _ := sealing(t)
	opts := ledger.Options{Recorder: "test", Signers: s.Signers, Recipients: []age.Recipient{id.(*age.X25519Identity).Recipient()}}
	try := func() error {
		_, err := r.Erase(context.Background(), Erasure{Events: []uint64{700}, Reason: "x"}, opts)
		return err
	}
	if err := try(); !errors.Is(err, ledger.ErrNoKey) {
		t.Errorf("without the key: %v", err)
	}
	r.Identities = []age.Identity{id}
	w, err := ledger.Open(posixstore.New(r.Dir), opts)
	if err != nil {
		t.Fatal(err)
	}
	var locked *ledger.LockedError
	if err := try(); !errors.As(err, &locked) {
		t.Errorf("while it is written: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if faults, err := r.CompareCopies(); err != nil || len(faults) > 0 {
		t.Errorf("the copies: %v, %v", faults, err)
	}
	if err := try(); err != nil {
		t.Error(err)
	}
}

// A row of the agent's account is a record: one can go without the others.
func TestEraseRow(t *testing.T) {
	for _, only := range []bool{false, true} {
		s, id := sealing(t)
		s.Only = only
		dir := filepath.Join(t.TempDir(), "r")
		w, err := Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, s)
		if err != nil {
			t.Fatal(err)
		}
		said := []bodycam.Row{{Kind: bodycam.RowMessage, Text: "a \xff", Arrived: time.Unix(5, 6)}, {Index: 1, Kind: bodycam.RowMessage, Text: "my password is x"}, {Index: 2, Kind: bodycam.RowTool, Command: "ls"}}
		if err := errors.Join(w.Rows(said), w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }), w.Close()); err != nil {
			t.Fatal(err)
		}
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r.Identities = []age.Identity{id}
		rows, err := r.Rows()
		if err != nil || len(rows) != 3 || rows[0].Text != "a \xff" || !rows[0].Arrived.Equal(time.Unix(5, 6)) {
			t.Fatalf("%+v, %v", rows, err)
		}
		lr, err := r.Ledger()
		if err != nil {
			t.Fatal(err)
		}
		var which uint64
		for rec, err := range lr.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			if b, err := lr.Payload(rec); err == nil && rec.Type == RecordRow && strings.Contains(string(b), "password") {
				which = rec.Seq
			}
		}
		lr.Close()
		erase(t, r, id, Erasure{Records: []uint64{which}, Reason: "a password"})
		if rows, err = r.Rows(); err != nil || len(rows) != 2 || rows[1].Command != "ls" {
			t.Errorf("after the erasure: %+v, %v", rows, err)
		}
	}
}
