package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

// manualOptions are those of a small log that works in one order.
func manualOptions(t *testing.T, id *age.X25519Identity) ledger.Options {
	return ledger.Manual(ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
		EpochRecords: 3, CheckpointEvery: 1, Now: clock(),
	})
}

func fill(t *testing.T, w *ledger.Writer, n int) {
	t.Helper()
	for i := range n {
		if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Payload: payload(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// refusal is a log that must not be opened.
type refusal struct {
	name  string
	store *ledgertest.Store
	opts  ledger.Options
	want  error
	text  string
}

func (c *refusal) check(t *testing.T) {
	before := c.store.Clone()
	w, err := ledger.Open(c.store, c.opts)
	if err == nil {
		w.Close()
		t.Fatal("it was opened")
	}
	if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
		t.Fatalf("%v, want %v %q", err, c.want, c.text)
	}
	for _, name := range before.Names() {
		if !bytes.Equal(before.Bytes(name), c.store.Bytes(name)) {
			t.Errorf("%s was changed", name)
		}
	}
	l, err := c.store.Lock()
	if err != nil {
		t.Fatalf("the lock wasn't given back: %v", err)
	}
	l.Close()
}

// TestOpenRefuses: a log that isn't what was published of it is never continued.
func TestOpenRefuses(t *testing.T) {
	id := identity(t)
	opts := manualOptions(t, id)
	store := ledgertest.New()
	w, err := ledger.Create(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 5)
	if err := w.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	snapshot := store.Crash(nil)
	fill(t, w, 5)
	if err := w.Detach(); err != nil {
		t.Fatal(err)
	}
	last := w.Checkpoint().Checkpoint
	with := func(change func(o *ledger.Options)) ledger.Options {
		o := opts
		change(&o)
		return o
	}
	cut := func(name string, n int) *ledgertest.Store {
		s := store.Clone()
		b := s.Bytes(name)
		s.Set(name, b[:len(b)-n])
		return s
	}
	edited := store.Clone()
	b := edited.Bytes("ledger/epochs")
	b[30] ^= 1
	edited.Set("ledger/epochs", b)
	for _, c := range []refusal{
		{"snapshot, head seen elsewhere", snapshot, with(func(o *ledger.Options) { o.Seen = []checkpoint.Checkpoint{last} }), ledger.ErrRolledBack, ""},
		{"head of a fork seen elsewhere", store.Clone(), with(func(o *ledger.Options) {
			fork := last
			fork.Root[0] ^= 1
			o.Seen = []checkpoint.Checkpoint{fork}
		}), ledger.ErrDamaged, ""},
		{"epochs missing below the checkpoint", cut("ledger/epochs", 300), opts, ledger.ErrDamaged, ""},
		{"records missing below the checkpoint", cut("ledger/00000000.log", 300), opts, ledger.ErrDamaged, ""},
		{"epochs edited", edited, opts, ledger.ErrDamaged, ""},
		{"no log", ledgertest.New(), opts, nil, "genesis"},
		{"other signers", store.Clone(), with(func(o *ledger.Options) { o.Signers = []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 9)} }), nil, "signed by the keys in force"},
		{"no signer", store.Clone(), with(func(o *ledger.Options) { o.Signers = nil }), nil, "at least one signer"},
		{"no recipient", store.Clone(), with(func(o *ledger.Options) { o.Recipients = nil }), nil, "Options.Clear"},
	} {
		t.Run(c.name, c.check)
	}
	if _, err := ledger.Create(store, opts); !errors.Is(err, ledger.ErrExists) {
		t.Fatalf("making a log where there is one: %v", err)
	}
	w, err = ledger.Open(store, with(func(o *ledger.Options) { o.Seen = []checkpoint.Checkpoint{last} }))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkLog(t, store, id, &acked{}, ledger.Verified)
}

// TestDurableNone: without syncs a crash takes everything back to the last checkpoint, and no further.
func TestDurableNone(t *testing.T) {
	id := identity(t)
	opts := manualOptions(t, id)
	opts.Durability, opts.CheckpointEvery = ledger.DurableNone, 1<<62
	for name, keep := range map[string]func(string, int) int{
		"all lost":        nil,
		"headers kept":    func(name string, n int) int { return map[bool]int{true: n}[name == "ledger/epochs"] },
		"log kept":        func(name string, n int) int { return map[bool]int{true: n}[name != "payload/00000000.bin"] },
		"half of it kept": func(_ string, n int) int { return n / 2 },
	} {
		store := ledgertest.New()
		w, err := ledger.Create(store, opts)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, w, 8)
		if err := w.Detach(); err != nil { // publishes a checkpoint
			t.Fatal(err)
		}
		note := w.Checkpoint()
		if w, err = ledger.Open(store, opts); err != nil {
			t.Fatal(err)
		}
		fill(t, w, 8)
		if err := w.Seal(); err != nil {
			t.Fatal(err)
		}
		crashed := store.Crash(keep)
		if w, err = ledger.Open(crashed, opts); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fill(t, w, 1)
		if err := w.Close(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkLog(t, crashed, id, &acked{note: note}, "")
	}
}

// TestFollow reads a log while it grows, and after it was cut by a recovery.
func TestFollow(t *testing.T) {
	id := identity(t)
	opts := manualOptions(t, id)
	store := ledgertest.New()
	w, err := ledger.Create(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 2)
	if err := w.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	r, err := ledger.OpenReader(store, id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count := func() (all, sealed uint64) {
		if err := r.Refresh(); err != nil {
			t.Fatal(err)
		}
		for rec, err := range r.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			if all++; rec.Sealed {
				sealed++
			}
		}
		var headers uint64
		for h, err := range r.Headers(0) {
			if err != nil || h.Epoch != headers {
				t.Fatalf("header %d: %+v, %v", headers, h, err)
			}
			headers++
		}
		if headers != r.Epochs() || sealed != r.Len() {
			t.Fatalf("%d headers of %d epochs, %d records of %d", headers, r.Epochs(), sealed, r.Len())
		}
		return all, sealed
	}
	for i := range uint64(5) {
		if all, sealed := count(); all != 3+2*i || sealed != all/3*3 {
			t.Fatalf("round %d: %d records, %d sealed", i, all, sealed)
		}
		fill(t, w, 2)
		if err := w.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHybridRecipients records for recipients that resist quantum computers.
func TestHybridRecipients(t *testing.T) {
	a, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	b, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	opts := manualOptions(t, identity(t))
	opts.Recipients = []age.Recipient{a.Recipient(), b.Recipient()}
	store := ledgertest.New()
	w, err := ledger.Create(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 4)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []age.Identity{a, b} {
		checkLog(t, store, id, &acked{payloads: map[uint64]string{1: string(payload(0)), 4: string(payload(3))}}, ledger.Verified)
	}
	r, err := ledger.OpenReader(store, identity(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rec, err := r.Record(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Payload(rec); !errors.Is(err, ledger.ErrNoKey) {
		t.Fatalf("a stranger's key: %v", err)
	}
}
