package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// TestEventProofs proves every event of batches up to a few groups, and falsifies each part of each proof.
func TestEventProofs(t *testing.T) {
	for _, form := range []Form{FormBatch, formPlainBatch, FormBatch | FormClear} {
		for count := 1; count <= 3*groupSize+3; count++ {
			var events [][]byte
			for i := range count {
				events = append(events, fmt.Appendf(nil, "event %d", i))
			}
			m := &manifest{}
			if !form.Clear() {
				m.salt = make([]byte, keySize)
			}
			digests, err := eventDigests(form, m, events)
			if err != nil {
				t.Fatal(err)
			}
			leaves := eventLeaves(form, digests)
			root := merkle.Root(leaves)
			for i := range count {
				proof, err := proveEvent(form, digests, leaves, i)
				if err != nil {
					t.Fatal(err)
				}
				n, index := uint64(count), uint64(i)
				if err := verifyEvent(form, digests[i], index, n, proof, root); err != nil {
					t.Fatalf("form %d: event %d of %d: %v", form, i, count, err)
				}
				bad := [][]Hash{append(proof[:len(proof):len(proof)], Hash{})}
				for k := range proof {
					q := slices.Clone(proof)
					q[k][0] ^= 1
					bad = append(bad, q, slices.Delete(slices.Clone(proof), k, k+1))
				}
				for _, q := range bad {
					if err := verifyEvent(form, digests[i], index, n, q, root); !errors.Is(err, merkle.ErrProof) {
						t.Fatalf("form %d: event %d of %d: a false proof passes: %v", form, i, count, err)
					}
				}
				for j := range uint64(count + groupSize + 1) {
					if j != index && verifyEvent(form, digests[i], j, n, proof, root) == nil {
						t.Fatalf("form %d: event %d of %d passes as event %d", form, i, count, j)
					}
				}
			}
			if _, err := proveEvent(form, digests, leaves, count); err == nil {
				t.Fatalf("form %d: event %d of %d was proved", form, count, count)
			}
		}
	}
}

// TestFirstBatches: bundles of batches as they were written first still verify, and only as they are.
func TestFirstBatches(t *testing.T) {
	b, err := os.ReadFile("testdata/kernel-form3.bundle")
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(change func(*Bundle)) Verdict {
		bundle, err := ParseBundle(slices.Clone(b))
		if err != nil {
			t.Fatal(err)
		}
		change(bundle)
		return bundle.Verify(Trust{Self: true}).Verdict
	}
	if v := verdict(func(*Bundle) {}); v != Verified {
		t.Errorf("it is %s", v)
	}
	if v := verdict(func(b *Bundle) { b.Items[0].Events[0].Event[0] ^= 1 }); v != Tampered {
		t.Errorf("with an event changed it is %s", v)
	}
	if v := verdict(func(b *Bundle) { b.Items[0].Record.Form = FormBatch }); v != Tampered {
		t.Errorf("as form %d it is %s", FormBatch, v)
	}
}

// TestBatchRoom: a batch is written where it lies, grows where it must, and leaves nothing unencrypted behind.
func TestBatchRoom(t *testing.T) {
	w := &Writer{gen: &Genesis{Profile: ProfileDefault}}
	small, large := make([]byte, 100), make([]byte, chunkBytes)
	b := w.NewBatch()
	b.Add(small)
	first := b.buf
	b.Add(large)
	if slices.ContainsFunc(first[batchHead:], func(c byte) bool { return c != 0 }) {
		t.Error("the room that was too small still holds an event")
	}
	if b.Len() != 2 || b.Size() != 101+len(large)+3 {
		t.Errorf("%d events, %d bytes", b.Len(), b.Size())
	}
	p, err := b.prepare()
	if err != nil || p.chunk == nil || !p.chunk.oversized || b.ch != nil {
		t.Fatal("a large batch doesn't go where it lies:", err)
	}
	b.release()
	b.Add(small)
	if p, err = b.prepare(); err != nil || p.chunk != nil {
		t.Fatal("a small batch isn't copied:", err)
	}
	b.release()
	if b.Len() != 0 || b.Size() != 0 {
		t.Error("it isn't empty")
	}
	for _, e := range [][][]byte{nil, make([][]byte, MaxBatch+1), {make([]byte, maxBody+1)}} {
		if _, err := w.AppendBatch(context.Background(), Entry{Type: TypeUser}, e); err == nil {
			t.Errorf("a batch of %d events passes", len(e))
		}
	}
}
