package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

// keyWorkload rotates the signing keys and erases a record and an epoch. It returns what it was told is erased.
func keyWorkload(store *ledgertest.Store, opts ledger.Options, next []checkpoint.Signer, id age.Identity) (erased []uint64, rotated bool, err error) {
	ctx := context.Background()
	w, err := ledger.Create(store, opts)
	if err != nil {
		return nil, false, err
	}
	defer w.Close()
	for i := range 5 {
		if _, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Payload: payload(i)}); err != nil {
			return nil, false, err
		}
	}
	if err := w.Rotate(next); err != nil {
		return nil, false, err
	}
	rotated = true
	for i := range 5 {
		if _, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Payload: payload(i)}); err != nil {
			return nil, rotated, err
		}
	}
	if err := w.Erase(ctx, ledger.EraseNote{Events: []uint64{1}, Epochs: []uint64{1}, Reason: "asked for"}, id); err != nil {
		return nil, rotated, err
	}
	erased = []uint64{1, 3, 4}
	if _, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Payload: payload(9)}); err != nil {
		return erased, rotated, err
	}
	return erased, rotated, w.Close()
}

func TestFaultsRotateErase(t *testing.T) {
	for _, perWrap := range []int{1, 3} {
		t.Run(fmt.Sprint(perWrap, " epochs a wrap"), func(t *testing.T) { faultsRotateErase(t, perWrap) })
	}
}

func faultsRotateErase(t *testing.T, perWrap int) {
	id := identity(t)
	old := []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}
	next := []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 3), seedSigner(t, checkpoint.MLDSA44, 4)}
	opts := func(s []checkpoint.Signer) ledger.Options {
		return ledger.Grouped(ledger.Manual(ledger.Options{
			Signers: s, Recipients: []age.Recipient{id.Recipient()}, EpochRecords: 3, CheckpointEvery: 1, Now: clock(),
		}), perWrap)
	}
	whole := ledgertest.New()
	erased, _, err := keyWorkload(whole, opts(old), next, id)
	if err != nil {
		t.Fatal(err)
	}
	checkErased(t, "no fault", whole, id, erased, false)
	n := whole.Ops()
	for _, fault := range []ledgertest.Fault{ledgertest.Fail, ledgertest.FailStored, ledgertest.NoSpace, ledgertest.Kill} {
		for at := range n {
			store := ledgertest.New()
			var failed ledgertest.Op
			store.Plan(func(op ledgertest.Op) ledgertest.Fault {
				if op.N == at {
					failed = op
					return fault
				}
				return ledgertest.None
			})
			erased, rotated, err := keyWorkload(store, opts(old), next, id)
			if err != nil && !errors.Is(err, ledgertest.ErrInjected) {
				t.Fatalf("%s at %+v: %v", fault, failed, err)
			}
			name := fault.String() + " at " + failed.Kind + " " + failed.Name
			for _, keep := range []func(string, int) int{nil, func(_ string, n int) int { return n }} {
				crashed := store.Crash(keep)
				if crashed.Bytes("ledger/genesis") == nil {
					continue
				}
				w, err := ledger.Open(crashed, opts(next))
				if err != nil {
					w, err = ledger.Open(crashed, opts(old))
				}
				if err != nil {
					t.Fatalf("%s: opening (rotated: %v): %v", name, rotated, err)
				}
				if err := w.Close(); err != nil {
					t.Fatalf("%s: closing: %v", name, err)
				}
				checkErased(t, name, crashed, id, erased, true)
			}
		}
	}
}

// checkErased verifies a log in which records were erased: proofs hold, and the payloads named are gone for good.
func checkErased(t *testing.T, name string, store *ledgertest.Store, id age.Identity, erased []uint64, crashed bool) {
	t.Helper()
	_, pub := seedSigner(t, checkpoint.Ed25519, 1).Public()
	r, err := ledger.Verify(context.Background(), store, ledger.VerifyOptions{
		Trust:      ledger.Trust{Keys: []ledger.PublicKey{{Alg: checkpoint.Ed25519, Public: pub}}},
		Identities: []age.Identity{id},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c := r.Claims
	if c.Integrity.Status != ledger.StatusVerified || c.Content.Status != ledger.StatusVerified || c.Identity.Status != ledger.StatusVerified ||
		!crashed && r.Verdict != ledger.Verified {
		t.Fatalf("%s: %s, first bad %+v, claims %+v", name, r.Verdict, r.FirstBad, c)
	}
	rd, err := ledger.OpenReader(store, id)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer rd.Close()
	for _, seq := range erased {
		rec, err := rd.Record(seq)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p, err := rd.Payload(rec); !errors.Is(err, ledger.ErrErased) {
			t.Fatalf("%s: record %d was erased, and yet: %q, %v", name, seq, p, err)
		}
	}
	for rec, err := range rd.Records(0) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := rd.Payload(rec); err != nil && !errors.Is(err, ledger.ErrErased) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, name := range store.Names() {
		if name == "ledger/erase" || len(name) > 4 && name[len(name)-4:] == ".new" {
			t.Fatalf("%s is left over", name)
		}
	}
}
