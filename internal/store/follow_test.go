package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Following a run ends when its writer is gone, and not while it is silent.
func TestFollowCut(t *testing.T) {
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() + "/r"
	w, err := Create(dir, bodycam.Run{ID: "r", Started: time.Now()}, &Sealing{Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Event(&bodycam.Event{Type: bodycam.TypeExec, Exe: "/bin/true", NR: -1}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	follow := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		return r.Follow(ctx, func(*bodycam.Event) error { n++; return nil })
	}
	if err := follow(4 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is written: %v", err)
	}
	if err := w.Close(); err != nil { // without an end in run.json
		t.Fatal(err)
	}
	if err := follow(20 * time.Second); !errors.Is(err, ErrCut) {
		t.Errorf("after its writer has gone: %v", err)
	}
	if n != 2 {
		t.Errorf("%d events", n)
	}
}
