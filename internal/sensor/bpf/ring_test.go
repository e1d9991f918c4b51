package bpf

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"testing"
)

// Records come whole and in order, also those that lie over the ring's end; what was given up is left out, and nothing is taken
// beyond one that is still being written.
func TestRing(t *testing.T) {
	r := &ring{size: 256, mapped: 256, consumer: make([]byte, 8), producer: make([]byte, 8), data: make([]byte, 256)}
	put := func(head uint32, b []byte) {
		at := atomic.LoadUint64(position(r.producer))
		binary.LittleEndian.PutUint32(r.data[at%256:], uint32(len(b))|head)
		for i, c := range b {
			r.data[(at+ringHead+uint64(i))%256] = c
		}
		atomic.StoreUint64(position(r.producer), at+ringHead+uint64(len(b)+7)&^7)
	}
	over := 0
	for i := range 200 {
		b := bytes.Repeat([]byte{byte(i)}, i*7%120)
		for j := range b {
			b[j] += byte(j)
		}
		begin := atomic.LoadUint64(position(r.producer)) % 256
		if begin+ringHead < 256 && begin+ringHead+uint64(len(b)) > 256 {
			over++
		}
		put(ringDiscard, []byte("given up"))
		put(0, b)
		busy := atomic.LoadUint64(position(r.producer)) % 256
		put(ringBusy, []byte("to come"))
		var got [][]byte
		take := func(b []byte) { got = append(got, bytes.Clone(b)) }
		drain := func(most uint64) {
			if _, err := r.drain(most, take); err != nil {
				t.Fatal(err)
			}
		}
		if drain(1 << 20); len(got) != 1 || !bytes.Equal(got[0], b) {
			t.Fatalf("record %d: got %q, want %q", i, got, b)
		}
		if n := r.waiting(); n != 16 {
			t.Fatalf("%d bytes wait behind record %d, want 16", n, i)
		}
		binary.LittleEndian.PutUint32(r.data[busy:], 7)
		if drain(1); len(got) != 2 || string(got[1]) != "to come" || r.waiting() != 0 {
			t.Fatalf("behind record %d: got %q, %d bytes wait", i, got[1:], r.waiting())
		}
	}
	if over < 20 {
		t.Errorf("%d records lay over the ring's end: this tests too little", over)
	}
}
