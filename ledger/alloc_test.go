package ledger

import "testing"

// What happens for each of hundreds of thousands of events a second must make no garbage: a batch takes its keys and
// its ciphers, whatever the number of its events.
func TestBatchMakesNoGarbage(t *testing.T) {
	const events = 512
	event := make([]byte, 150)
	w := &Writer{gen: &Genesis{Profile: ProfileDefault}}
	ch := newChunk(chunkBytes)
	n := testing.AllocsPerRun(20, func() {
		w.reuse(ch)
		b := w.NewBatch()
		for range events {
			b.Add(event)
		}
		if p, err := b.prepare(); err != nil || p.chunk != ch {
			t.Fatal("the batch doesn't lie in the chunk:", err)
		}
	})
	if n > 30 {
		t.Errorf("a batch of %d events makes %v allocations", events, n)
	}
}

// An event's key is derived without any.
func TestEventKeyMakesNoGarbage(t *testing.T) {
	var log Hash
	k, err := newEpochKey(&log, 3, make([]byte, keySize))
	if err != nil {
		t.Fatal(err)
	}
	var id [16]byte
	var e EventKey
	if n := testing.AllocsPerRun(20, func() {
		if err := k.event(7, &id, &e); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
