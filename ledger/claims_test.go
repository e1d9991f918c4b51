package ledger_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
)

// closed returns a log of eight entries, after change was let at the writer.
func closed(t *testing.T, opts ledger.Options, change func(w *ledger.Writer)) *ledgertest.Store {
	t.Helper()
	store := ledgertest.New()
	w, err := ledger.Create(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 4)
	if change != nil {
		change(w)
	}
	fill(t, w, 4)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return store
}

func report(t *testing.T, store *ledgertest.Store, opts ledger.VerifyOptions) *ledger.Report {
	t.Helper()
	r, err := ledger.Verify(context.Background(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func has(c ledger.Claim, text string) bool {
	return slices.ContainsFunc(append(c.Reasons, c.RestsOn...), func(s string) bool { return strings.Contains(s, text) })
}

func TestCoverage(t *testing.T) {
	id := identity(t)
	self := ledger.VerifyOptions{Trust: ledger.Trust{Self: true}}
	opts := manualOptions(t, id)
	r := report(t, closed(t, opts, func(w *ledger.Writer) {
		if err := w.Coverage("bpf", 10, 9, 0); err != nil {
			t.Fatal(err)
		}
		if err := w.Coverage("bpf", 9, 9, 0); err == nil {
			t.Fatal("a total fell")
		}
	}), self)
	if r.Verdict != ledger.Verified || len(r.Sensors) != 1 || r.Sensors[0] != (ledger.Coverage{Sensor: "bpf", Seen: 10, Emitted: 9}) {
		t.Fatalf("%s, %+v", r.Verdict, r.Sensors)
	}
	r = report(t, closed(t, opts, func(w *ledger.Writer) {
		if err := w.Coverage("bpf", 10, 9, 1); err != nil {
			t.Fatal(err)
		}
	}), self)
	if r.Verdict != ledger.Incomplete || !has(r.Claims.Coverage, `"bpf" lost 1`) {
		t.Fatalf("%s, %+v", r.Verdict, r.Claims.Coverage)
	}
	// Totals begin again with every incarnation, and add up.
	store := closed(t, opts, func(w *ledger.Writer) { w.Coverage("bpf", 10, 10, 0) })
	w, err := ledger.Open(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	w.Coverage("bpf", 5, 5, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if r := report(t, store, self); r.Verdict != ledger.Verified || r.Sensors[0].Seen != 15 {
		t.Fatalf("%s, %+v, %+v", r.Verdict, r.Sensors, r.Claims.Coverage)
	}
}

func TestSilence(t *testing.T) {
	opts := manualOptions(t, identity(t))
	opts.Heartbeat = time.Minute
	jump := int64(0)
	tick := clock()
	opts.Now = func() (int64, int64) {
		wall, mono := tick()
		return wall + jump, mono + jump
	}
	self := ledger.VerifyOptions{Trust: ledger.Trust{Self: true}}
	for d, want := range map[time.Duration]ledger.Verdict{50 * time.Second: ledger.Verified, 70 * time.Second: ledger.Incomplete} {
		jump = 0
		r := report(t, closed(t, opts, func(w *ledger.Writer) {
			if err := w.Seal(); err != nil {
				t.Fatal(err)
			}
			jump = int64(d)
		}), self)
		if r.Verdict != want || (want == ledger.Incomplete) != has(r.Claims.Coverage, "nothing was sealed for") {
			t.Fatalf("a silence of %v: %s, %+v", d, r.Verdict, r.Claims.Coverage)
		}
	}
}

// TestEmptyEpochs lets a writer run with nothing to do.
func TestEmptyEpochs(t *testing.T) {
	id := identity(t)
	store := ledgertest.New()
	w, err := ledger.Create(store, ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 1)}, Recipients: []age.Recipient{id.Recipient()},
		EpochAge: time.Hour, Heartbeat: 20 * time.Second, CheckpointEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.Seal(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := report(t, store, ledger.VerifyOptions{Trust: ledger.Trust{Self: true}})
	if r.Verdict != ledger.Verified || r.Epochs != 4 || r.Records != 2 {
		t.Fatalf("%s, %d epochs, %d records, %+v", r.Verdict, r.Epochs, r.Records, r.Claims)
	}
}

// TestWitness: cosignatures are a root of trust and a time that isn't the recorder's.
func TestWitness(t *testing.T) {
	id := identity(t)
	store := closed(t, manualOptions(t, id), nil)
	n, err := checkpoint.Parse(store.Bytes("ledger/checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	var keys []checkpoint.Key
	for i, alg := range []checkpoint.Algorithm{checkpoint.Cosignature, checkpoint.MLDSA44} {
		s := seedSigner(t, alg, byte(20+i))
		cosigned, err := checkpoint.Sign(n.Checkpoint, "witness.example/w", 1_790_000_100, s)
		if err != nil {
			t.Fatal(err)
		}
		n.Signatures = append(n.Signatures, cosigned.Signatures...)
		k := checkpoint.Key{Name: "witness.example/w"}
		k.Alg, k.Public = s.Public()
		keys = append(keys, k)
	}
	store.Set("ledger/checkpoint", n.Marshal())
	trust := ledger.Trust{Witnesses: keys, Quorum: 2}
	for name, r := range map[string]*ledger.Report{
		"log": report(t, store, ledger.VerifyOptions{Trust: trust, Require: []string{"existed_by"}}),
		"bundle": func() *ledger.Report {
			rd, err := ledger.OpenReader(store, id)
			if err != nil {
				t.Fatal(err)
			}
			defer rd.Close()
			b, err := rd.Disclose([]ledger.Disclose{{Seq: 3}})
			if err != nil {
				t.Fatal(err)
			}
			return b.Verify(trust, "existed_by", "content")
		}(),
	} {
		if r.Verdict != ledger.Verified || !has(r.Claims.Identity, "2 witnesses") || !has(r.Claims.ExistedBy, "existed by 2026-09-21") {
			t.Fatalf("%s: %s, %+v", name, r.Verdict, r.Claims)
		}
	}
	trust.Quorum = 3
	if r := report(t, store, ledger.VerifyOptions{Trust: trust}); r.Verdict != ledger.Incomplete || r.Claims.Identity.Status != ledger.StatusUnverifiable {
		t.Fatalf("two of three witnesses: %s", r.Verdict)
	}
	n.Signatures[1].Bytes[30] ^= 1
	store.Set("ledger/checkpoint", n.Marshal())
	trust.Quorum = 2
	if r := report(t, store, ledger.VerifyOptions{Trust: trust}); r.Verdict != ledger.Incomplete {
		t.Fatalf("a false cosignature: %s", r.Verdict)
	}
}

// TestLargePayloads stores payloads around every border, and loses a chunk.
func TestLargePayloads(t *testing.T) {
	id := identity(t)
	sizes := []int{0, 1, ledger.MaxInline, ledger.MaxInline + 1, ledger.MaxBody, ledger.MaxBody + 1, ledger.ChunkSize, ledger.ChunkSize + 1, 2*ledger.ChunkSize + 5}
	for _, clear := range []bool{false, true} {
		for _, p := range []ledger.Profile{ledger.ProfileDefault, ledger.ProfileAFR} {
			opts := manualOptions(t, id)
			opts.Profile = p
			if clear {
				opts.Clear, opts.Recipients = true, nil
			}
			store := ledgertest.New()
			w, err := ledger.Create(store, opts)
			if err != nil {
				t.Fatal(err)
			}
			a := &acked{payloads: map[uint64]string{}}
			for i, n := range sizes {
				b := bytes.Repeat([]byte{byte(i)}, n)
				seq, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Payload: b})
				if err != nil {
					t.Fatal(err)
				}
				a.payloads[seq] = string(b)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			checkLog(t, store, id, a, ledger.Verified)
			for _, name := range store.Names() {
				if len(name) > 40 {
					store.Set(name, nil)
					break
				}
			}
			r := report(t, store, ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: []age.Identity{id}})
			if r.Verdict != ledger.Tampered || r.Claims.Content.Status != ledger.StatusTampered {
				t.Fatalf("a lost chunk: %s, %+v", r.Verdict, r.Claims.Content)
			}
		}
	}
}
