package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

// clock ticks by a millisecond, so that runs are alike.
func clock() func() (int64, int64) {
	t := int64(1_790_000_000_000_000_000)
	return func() (int64, int64) { t += 1e6; return t, t - 1_789_999_999_000_000_000 }
}

// acked is what a workload was told is durable.
type acked struct {
	payloads map[uint64]string // by sequence number
	note     *checkpoint.Note  // last published
}

// workload creates a log, appends, seals, appends, closes, opens again and appends. It stops at the first error
// that isn't about space.
func workload(store *ledgertest.Store, opts ledger.Options, a *acked) error {
	ctx := context.Background()
	w, err := ledger.Create(store, opts)
	if err != nil {
		return err
	}
	sent := map[uint64]string{}
	send := func(i, size int) error {
		p := fmt.Sprintf("%d:%s", i, bytes.Repeat([]byte("x"), size))
		seq, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "w", Payload: []byte(p)})
		if err != nil {
			return err
		}
		sent[seq] = p
		return nil
	}
	synced := func() error {
		if err := w.Sync(ctx); err != nil {
			return err
		}
		for seq, p := range sent {
			a.payloads[seq] = p
		}
		return nil
	}
	big := func() error {
		_, err := w.AppendBatch(ctx, ledger.Entry{Type: ledger.TypeUser + 1, Kind: "big"}, [][]byte{make([]byte, 30_000), []byte("p"), make([]byte, 10_000)})
		return err
	}
	steps := []func() error{
		func() error { return send(0, 10) },
		func() error { return send(1, 5000) },
		synced,
		func() error { return send(2, 70_000) },
		func() error { return send(3, 1) },
		w.Seal,
		func() error { return send(4, 1) },
		func() error {
			_, err := w.AppendBatch(ctx, ledger.Entry{Type: ledger.TypeUser + 1, Kind: "b"}, [][]byte{[]byte("p"), []byte("q")})
			return err
		},
		synced,
		big, big, // each in a chunk of its own
		func() error { return send(5, 1) },
	}
	do := func(f func() error) error {
		err := f()
		if n := w.Checkpoint(); n != nil {
			a.note = n
		}
		if errors.Is(err, ledger.ErrNoSpace) && !errors.Is(err, ledger.ErrFailed) {
			err = f() // there is room again
		}
		return err
	}
	for _, f := range steps {
		if err := do(f); err != nil {
			w.Close()
			return err
		}
	}
	if err := do(w.Detach); err != nil {
		return err
	}
	if w, err = ledger.Open(store, opts); err != nil {
		return err
	}
	for _, f := range []func() error{func() error { return send(6, 1) }, synced} {
		if err := do(f); err != nil {
			w.Close()
			return err
		}
	}
	return do(w.Close)
}

func TestFaults(t *testing.T) {
	for _, perWrap := range []int{1, 3} {
		t.Run(fmt.Sprint(perWrap, " epochs a wrap"), func(t *testing.T) { faults(t, perWrap) })
	}
}

func faults(t *testing.T, perWrap int) {
	id := identity(t)
	opts := func() ledger.Options {
		return ledger.Grouped(ledger.Manual(ledger.Options{
			Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
			EpochRecords: 3, CheckpointEvery: 1, Now: clock(),
		}), perWrap)
	}
	whole := ledgertest.New()
	full := &acked{payloads: map[uint64]string{}}
	if err := workload(whole, opts(), full); err != nil {
		t.Fatal(err)
	}
	if n := len(full.payloads); n != 7 {
		t.Fatalf("%d payloads acknowledged, want 7", n)
	}
	checkLog(t, whole, id, full, ledger.Verified)
	n := whole.Ops()
	t.Logf("%d operations", n)
	keeps := map[string]func(string, int) int{
		"nothing unsynced kept": nil,
		"all kept":              func(_ string, n int) int { return n },
		"half kept":             func(_ string, n int) int { return n / 2 },
		"payloads lost":         func(name string, n int) int { return map[bool]int{true: 0, false: n}[ledgertest.IsPayload(name)] },
	}
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
			a := &acked{payloads: map[uint64]string{}}
			err := workload(store, opts(), a)
			if err != nil && !errors.Is(err, ledgertest.ErrInjected) {
				t.Fatalf("%s at %+v: %v", fault, failed, err)
			}
			for how, keep := range keeps {
				name := fmt.Sprintf("%s at operation %d (%s %s), %s", fault, at, failed.Kind, failed.Name, how)
				recover1(t, name, store.Crash(keep), opts(), id, a)
			}
		}
	}
}

// recover1 opens a log after a crash, goes on writing, and checks all of it.
func recover1(t *testing.T, name string, store *ledgertest.Store, opts ledger.Options, id age.Identity, a *acked) {
	t.Helper()
	if store.Bytes("ledger/genesis") == nil {
		if len(a.payloads) > 0 {
			t.Fatalf("%s: the genesis is gone", name)
		}
		return
	}
	w, err := ledger.Open(store, opts)
	if err != nil {
		t.Fatalf("%s: opening: %v", name, err)
	}
	seq, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Payload: []byte("after")})
	if err != nil {
		t.Fatalf("%s: appending: %v", name, err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("%s: closing: %v", name, err)
	}
	b := &acked{payloads: map[uint64]string{seq: "after"}, note: a.note}
	for s, p := range a.payloads {
		if s == seq {
			t.Fatalf("%s: sequence number %d was durable and is used again", name, s)
		}
		b.payloads[s] = p
	}
	t.Run("", func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Log(name)
			}
		}()
		checkLog(t, store, id, b, "")
	})
}

// checkLog verifies all of a log: its verdict, the heads it published, and the payloads that were acknowledged. An
// empty verdict asks for integrity, order and content only: coverage says that there was a crash.
func checkLog(t *testing.T, store *ledgertest.Store, id age.Identity, a *acked, want ledger.Verdict) {
	t.Helper()
	r := checkLogReport(t, store, id, a)
	if want != "" && r.Verdict != want {
		t.Fatalf("verdict %s: %+v", r.Verdict, r)
	}
}

func checkLogReport(t *testing.T, store *ledgertest.Store, id age.Identity, a *acked) *ledger.Report {
	t.Helper()
	opts := ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: []age.Identity{id}, Payloads: true}
	if a.note != nil {
		opts.Pinned = []ledger.Pinned{{Checkpoint: a.note.Checkpoint, Source: "what was published before"}}
	}
	r, err := ledger.Verify(context.Background(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Claims
	if c.Integrity.Status != ledger.StatusVerified || c.Order.Status != ledger.StatusVerified || c.Content.Status != ledger.StatusVerified || !r.Closed {
		t.Fatalf("closed %v, first bad %+v, claims %+v", r.Closed, r.FirstBad, c)
	}
	rd, err := ledger.OpenReader(store, id)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	seen := map[[2]uint64]bool{}
	for rec, err := range rd.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		key := [2]uint64{rec.Incarnation, rec.Seq}
		if seen[key] {
			t.Fatalf("incarnation %d has two records %d", key[0], key[1])
		}
		seen[key] = true
		if p, ok := a.payloads[rec.Seq]; ok {
			got, err := rd.Payload(rec)
			if err != nil || string(got) != p {
				t.Fatalf("record %d: payload %.20q (%v), want %.20q", rec.Seq, got, err, p)
			}
			delete(a.payloads, rec.Seq)
		}
	}
	for seq := range a.payloads {
		t.Fatalf("record %d was durable and is gone", seq)
	}
	return r
}
