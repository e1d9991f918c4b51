package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

// TestProducers has 64 producers append at once, some waiting for durability, some in batches, while others seal,
// count and read.
func TestProducers(t *testing.T) {
	id := identity(t)
	store := ledgertest.New()
	w, err := ledger.Create(store, ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
		EpochRecords: 16, CheckpointEvery: time.Millisecond, SegmentBytes: 64 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	const producers, each = 64, 20
	var mu sync.Mutex
	a := &acked{payloads: map[uint64]string{}}
	var group sync.WaitGroup
	for p := range producers {
		group.Go(func() {
			for i := range each {
				e := ledger.Entry{Type: ledger.TypeUser, Kind: "k", Payload: fmt.Appendf(nil, "%d/%d", p, i), Group: uint64(p)}
				if p%4 == 0 {
					e.Durability = ledger.DurableEvent
				}
				if p%8 == 1 {
					if _, err := w.AppendBatch(context.Background(), e, [][]byte{e.Payload, nil}); err != nil {
						t.Error(err)
					}
					continue
				}
				seq, err := w.Append(context.Background(), e)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if _, again := a.payloads[seq]; again {
					t.Errorf("sequence number %d was given twice", seq)
				}
				a.payloads[seq] = string(e.Payload)
				mu.Unlock()
			}
		})
	}
	var stop atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() {
		for n := uint64(1); !stop.Load(); n++ {
			if err := w.Coverage("sensor", n, n, 0); err != nil {
				t.Error(err)
			}
			if err := w.Seal(); err != nil {
				t.Error(err)
			}
			r, err := ledger.OpenReader(store, id)
			if err != nil {
				t.Error(err)
				return
			}
			for _, err := range r.Records(0) {
				if err != nil {
					t.Error(err)
					break
				}
			}
			r.Close()
			time.Sleep(time.Millisecond)
		}
	})
	group.Wait()
	stop.Store(true)
	beside.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser}); !errors.Is(err, ledger.ErrClosed) {
		t.Fatalf("appending to a closed log: %v", err)
	}
	checkLog(t, store, id, a, ledger.Verified)
}

// TestFull fills the storage and frees it again, under both policies.
func TestFull(t *testing.T) {
	ctx := context.Background()
	id := identity(t)
	for _, policy := range []ledger.FullPolicy{ledger.FullStop, ledger.FullGap} {
		store := ledgertest.New()
		w, err := ledger.Create(store, ledger.Manual(ledger.Options{
			Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
			OnFull: policy, EpochRecords: 4, Now: clock(),
		}))
		if err != nil {
			t.Fatal(err)
		}
		a := &acked{payloads: map[uint64]string{}}
		add := func(p string) error {
			seq, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Payload: []byte(p)})
			if err == nil {
				a.payloads[seq] = p
			}
			return err
		}
		if err := add("before"); err != nil {
			t.Fatal(err)
		}
		store.Plan(func(op ledgertest.Op) ledgertest.Fault {
			if op.Kind == "write" || op.Kind == "put" {
				return ledgertest.NoSpace
			}
			return ledgertest.None
		})
		if err := w.Sync(ctx); !errors.Is(err, ledger.ErrNoSpace) {
			t.Fatalf("syncing to a full store: %v", err)
		}
		want := ledger.ErrNoSpace
		if policy == ledger.FullGap {
			want = ledger.ErrDropped
		}
		for range 3 {
			if err := add("refused"); !errors.Is(err, want) {
				t.Fatalf("policy %d: %v, want %v", policy, err, want)
			}
		}
		if err := w.Close(); !errors.Is(err, ledger.ErrNoSpace) {
			t.Fatalf("closing on a full store: %v", err)
		}
		store.Plan(nil)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r := checkLogReport(t, store, id, a)
		gap := r.Claims.Coverage.Status == ledger.StatusIncomplete
		if gap != (policy == ledger.FullGap) {
			t.Fatalf("policy %d: coverage %+v", policy, r.Claims.Coverage)
		}
	}
}

// TestFullDoesNotSpin fills the storage under a writer with its goroutines: appends that want to be durable come back,
// and the store is tried now and then, not all the time.
func TestFullDoesNotSpin(t *testing.T) {
	id := identity(t)
	store := ledgertest.New()
	w, err := ledger.Create(store, ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
		EpochAge: time.Millisecond, CheckpointEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	store.Plan(func(op ledgertest.Op) ledgertest.Fault {
		if op.Kind != "write" && op.Kind != "put" {
			return ledgertest.None
		}
		tries.Add(1)
		return ledgertest.NoSpace
	})
	if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Durability: ledger.DurableEvent}); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("a durable append to a full store: %v", err)
	}
	time.Sleep(300 * time.Millisecond)
	if n := tries.Load(); n > 20 {
		t.Fatalf("the full store was tried %d times", n)
	}
	store.Plan(nil)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkLog(t, store, id, &acked{}, ledger.Verified)
}

// TestHeartbeat waits for seals of empty epochs and of old ones.
func TestHeartbeat(t *testing.T) {
	id := identity(t)
	store := ledgertest.New()
	w, err := ledger.Create(store, ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
		EpochAge: 20 * time.Millisecond, Heartbeat: 10 * time.Second, CheckpointEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for w.Checkpoint() == nil {
		if time.Now().After(deadline) {
			t.Fatal("an old epoch wasn't sealed")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkLog(t, store, id, &acked{}, ledger.Verified)
}
