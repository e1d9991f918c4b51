package watch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// TestEquivocation: a log that is written again under the watcher's eyes leaves a proof that convicts its keys, with nothing
// else at hand, although the machine shows only the second history by then.
func TestEquivocation(t *testing.T) {
	top := t.TempDir()
	dir, begun := filepath.Join(top, "run"), filepath.Join(top, "begun")
	write(t, ledger.Create, begun, "a", true)
	future := func(events ...string) {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(begun)); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			write(t, ledger.Open, dir, e, true)
		}
	}
	proofs := filepath.Join(top, "proofs")
	w := New(Options{Proofs: proofs})
	alarms := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, a := range w.Look(t.Context(), dir) {
			out[a.Alarm] = a.Proof
		}
		return out
	}
	future("b", "c")
	if a := alarms(); len(a) != 0 {
		t.Fatalf("an honest log: %v", a)
	}
	// Rolled back: no contradiction yet, but it shrank.
	future()
	if a := alarms(); len(a) != 1 || a[Shrunk] != "" {
		t.Fatalf("rolled back: %v", a)
	}
	future("another", "future", "of it")
	file := alarms()[Equivocation]
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no proof was kept: %v", err)
	}
	q, err := proof.ParseEquivocation(b)
	if err != nil {
		t.Fatal(err)
	}
	if c := q.Judge(nil, nil); c.Status != ledger.StatusVerified || q.First.Note.Size == q.Second.Note.Size {
		t.Errorf("%+v", c)
	}
	// It is found again, and kept once.
	if a := alarms(); a[Equivocation] != file {
		t.Errorf("%v", a)
	}
	if list, err := os.ReadDir(proofs); err != nil || len(list) != 1 {
		t.Errorf("%d files, %v", len(list), err)
	}
}
