package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// TestTogether: two logs whose recorders handed work over; one of them with and without it.
func TestTogether(t *testing.T) {
	var keys []string
	begin := func(name string, seed byte) (*ledger.Writer, *delegation.Party, string) {
		t.Helper()
		s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{seed}, 32))
		if err != nil {
			t.Fatal(err)
		}
		k := checkpoint.Key{Name: name}
		k.Alg, k.Public = s.Public()
		keys = append(keys, "-key", k.String())
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		w, err := ledger.Create(posixstore.New(dir), ledger.Options{Name: name, Signers: []checkpoint.Signer{s}, Clear: true, CheckpointEvery: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return w, delegation.New(w, os.DirFS(dir), []checkpoint.Signer{s}), dir
	}
	wa, a, dirA := begin("a", 1)
	wb, b, dirB := begin("b", 2)
	before := filepath.Join(t.TempDir(), "b")
	if err := errors.Join(wb.Sync(t.Context()), os.CopyFS(before, os.DirFS(dirB))); err != nil {
		t.Fatal(err)
	}
	asked, err := a.Request(t.Context(), delegation.Terms{To: "b", Scope: "count"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.Accept(t.Context(), asked, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Acknowledge(t.Context(), asked, answer), wa.Close(), wb.Close()); err != nil {
		t.Fatal(err)
	}
	// Two futures of what a was: each is a whole log by itself.
	wf, _, dirF := begin("f", 1)
	if err := wf.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	fork := filepath.Join(t.TempDir(), "f")
	if err := errors.Join(os.CopyFS(fork, os.DirFS(dirF)), wf.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	w2, err := ledger.Open(posixstore.New(fork), ledger.Options{Name: "f", Signers: []checkpoint.Signer{s}, Clear: true, CheckpointEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := w2.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		paths []string
		exit  int
		want  string
	}{
		{[]string{dirA, dirB}, exitVerified, "delegations 1 verified"},
		{[]string{dirB, filepath.Join(dirA, "ledger")}, exitVerified, "all together: verified"},
		{[]string{dirA, before}, exitTampered, "has no such record there"},
		{[]string{"-json", dirA, dirB}, exitVerified, `"scope": "count"`},
		{[]string{dirF}, exitVerified, "identity"},
		{[]string{fork}, exitIncomplete, "coverage    incomplete"}, // it was cut off, and went on
		{[]string{dirF, fork}, exitTampered, "EQUIVOCATION PROVED"},
		{[]string{fork, filepath.Join(dirF, "ledger")}, exitTampered, "all together: tampered"},
		{[]string{dirA, filepath.Join(dirA, "nowhere")}, exitUnreadable, "no such file"},
	} {
		var out, errs strings.Builder
		if got := run(append(append([]string{}, keys...), c.paths...), &out, &errs); got != c.exit {
			t.Errorf("%v: exit status %d, want %d", c.paths, got, c.exit)
		}
		if all := out.String() + errs.String(); !strings.Contains(all, c.want) {
			t.Errorf("%v printed %s\nwant %q in it", c.paths, all, c.want)
		}
	}
}
