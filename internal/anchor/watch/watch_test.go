package watch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/digest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

func signer(t *testing.T, n byte) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, open func(ledger.Store, ledger.Options) (*ledger.Writer, error), dir, what string, end bool) {
	t.Helper()
	w, err := open(posixstore.New(dir), ledger.Options{Name: "watched", Signers: []checkpoint.Signer{signer(t, 1)}, Clear: true, Heartbeat: time.Minute, AnchorEvery: time.Hour, CheckpointEvery: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "x", Payload: []byte(what)}); err != nil {
		t.Fatal(err)
	}
	if end {
		err = w.Close()
	} else {
		err = errors.Join(w.Seal(), w.Sync(context.Background()))
	}
	if err != nil {
		t.Fatal(err)
	}
	if !end {
		t.Cleanup(func() { w.Close() })
	}
}

// TestAlarms lets a log live through what alarms are for.
func TestAlarms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	now := time.Now()
	key := checkpoint.Key{Name: "audit"}
	key.Alg, key.Public = signer(t, 2).Public()
	w := New(Options{Now: func() time.Time { return now }, Manifest: &proof.Manifest{Roots: map[string]proof.Root{"audit": {Kind: proof.KindDigest, Key: key.String()}}}})
	expect := func(want ...string) {
		t.Helper()
		got := w.Look(t.Context(), dir)
		var names []string
		for _, a := range got {
			names = append(names, a.Alarm)
		}
		if len(names) != len(want) {
			t.Fatalf("alarms %v, want %v: %+v", names, want, got)
		}
		for i := range want {
			if names[i] != want[i] {
				t.Fatalf("alarms %v, want %v: %+v", names, want, got)
			}
		}
	}
	write(t, ledger.Create, dir, "a", false)
	expect()
	now = now.Add(2 * time.Minute)
	expect(Silent) // no heartbeat
	now = now.Add(2 * time.Hour)
	expect(Missing, Silent)

	m := &digest.Mechanism{Dir: t.TempDir(), Signer: signer(t, 2)}
	list := []anchor.Named{{Mechanism: m, Options: anchor.Options{Name: "d", Poll: time.Millisecond}}}
	if err := anchor.Flush(t.Context(), dir, list); err != nil {
		t.Fatal(err)
	}
	expect(Silent)

	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	write(t, ledger.Open, copied, "b", true)
	dir2 := dir
	dir = copied
	w.seen[dir] = w.seen[dir2]
	expect(Late) // closed, so it needn't be alive; its new epochs are under no anchor
	// What an anchor or we have seen is taken back.
	if err := os.RemoveAll(filepath.Join(dir, "ledger")); err != nil {
		t.Fatal(err)
	}
	write(t, ledger.Create, dir, "c", true)
	got := w.Look(t.Context(), dir)
	if len(got) == 0 || got[0].Alarm != Shrunk {
		t.Fatalf("another log in its place: %+v", got)
	}
}
