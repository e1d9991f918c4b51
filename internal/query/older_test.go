package query

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// A run that was recorded when actions, findings and heads of files were JSON is verified, compared with its copies,
// queried and erased from as ever.
func TestOlderRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(dir, os.DirFS("testdata/older")); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile("testdata/older.key")
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.ParseX25519Identity(strings.TrimSpace(string(key)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Identities = []age.Identity{id}
	check := func() {
		t.Helper()
		rep, err := ledger.Verify(context.Background(), os.DirFS(dir), ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: r.Identities, Payloads: true})
		if err != nil || rep.Verdict != ledger.Verified {
			t.Fatalf("%+v, %v", rep, err)
		}
		if faults, err := r.CompareCopies(); err != nil || len(faults) > 0 {
			t.Fatalf("the copies: %+v, %v", faults, err)
		}
	}
	check()
	ask := func(text string, want int) {
		t.Helper()
		lr, err := r.Ledger()
		if err != nil {
			t.Fatal(err)
		}
		defer lr.Close()
		x, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run(context.Background(), r, lr, x, Options{})
		if err != nil || len(res.Answers) != want {
			t.Errorf("%s: %+v, %v", text, res, err)
		}
	}
	ask(`tool == "shell" && intent.args.command == "cat file" && effects.exit == 0`, 1)
	ask(`rule == "r1" && severity == "low"`, 1)
	ask(`name == "agent/stdout" && text contains "said"`, 1)
	lr, err := r.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	chain, err := Why(context.Background(), r, lr, 3)
	lr.Close()
	if err != nil || chain[len(chain)-1].What != "call" || !strings.Contains(string(chain[len(chain)-1].Value), "cat file") {
		t.Errorf("%+v, %v", chain, err)
	}
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	opts := ledger.Options{Recorder: "test", Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()}}
	done, err := r.Erase(context.Background(), store.Erasure{Events: []uint64{2}, Reason: "asked for"}, opts)
	if err != nil || len(done.Derived) != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	check()
	ask(`rule == "r1"`, 0)
	n := 0
	if err := r.Raw(func(e *bodycam.Event) error { n++; return nil }); err != nil || n != 4 {
		t.Errorf("%d events, %v", n, err)
	}
}
