package ledger_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// seedSigner returns a signer whose key depends on n only.
func seedSigner(t testing.TB, alg checkpoint.Algorithm, n byte) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner(alg, bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func payload(i int) []byte { return fmt.Appendf(nil, "payload of entry %d", i) }

func TestWriteAndRead(t *testing.T) {
	ctx := context.Background()
	id := identity(t)
	dir := t.TempDir()
	opts := ledger.Options{
		Signers:    []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1), seedSigner(t, checkpoint.MLDSA44, 2)},
		Recipients: []age.Recipient{id.Recipient()}, Recorder: "test",
	}
	store := posixstore.New(dir)
	w, err := ledger.Create(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 200<<10)
	batch := [][]byte{[]byte("one"), nil, []byte("three")}
	seqs := map[string]uint64{}
	for i := range 250 {
		if _, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "test", Payload: payload(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, p := range map[string][]byte{"body": big[:20000], "big": big} {
		if seqs[name], err = w.Append(ctx, ledger.Entry{Type: ledger.TypeUser + 1, Kind: name, Payload: p}); err != nil {
			t.Fatal(err)
		}
	}
	if seqs["batch"], err = w.AppendBatch(ctx, ledger.Entry{Type: ledger.TypeUser + 2, Kind: "batch"}, batch); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Coverage("bpf", 10, 9, 1); err != nil {
		t.Fatal(err)
	}
	readBack(t, dir, id, seqs, big, 254)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	readBack(t, dir, id, seqs, big, 255)
}

// readBack reads what TestWriteAndRead wrote.
func readBack(t *testing.T, dir string, id age.Identity, seqs map[string]uint64, big []byte, want int) {
	t.Helper()
	r, err := ledger.OpenReader(os.DirFS(dir), id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for rec, err := range r.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Seq != uint64(n) {
			t.Fatalf("record %d where %d should be", rec.Seq, n)
		}
		if rec.Kind == "test" {
			p, err := r.Payload(rec)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(p, payload(n-1)) {
				t.Fatalf("record %d: payload %q", n, p)
			}
		}
		n++
	}
	if n != want {
		t.Fatalf("%d records, want %d", n, want)
	}
	for name, p := range map[string][]byte{"body": big[:20000], "big": big} {
		rec, err := r.Record(seqs[name])
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Payload(rec)
		if err != nil || !bytes.Equal(got, p) {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	got, err := r.Event(seqs["batch"], 2)
	if err != nil || string(got) != "three" {
		t.Fatalf("event: %q, %v", got, err)
	}
}
