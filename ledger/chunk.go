package ledger

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// An append decides a record's place, derives its key and commits to its payload. What takes longer and needs no lock,
// the cipher and the chain, the committer does in the same order, before anything leaves the process.

// chunk is a part of what waits for the committer. It belongs to one segment and is of bounded size.
type chunk struct {
	segment   uint64
	keys      []byte // wraps
	pay, log  []byte // what isn't written yet; log grows as the jobs are done
	jobs      []job
	weight    int    // bytes that it will take, about
	payRoom   []byte // where pay begins
	logRoom   []byte
	oversized bool // made for one big payload
	batch     bool // a batch's own: nothing else comes into it
}

// job is a record that is to be encrypted and chained, or a border between epochs.
type job struct {
	rec      stored
	key      EventKey
	inline   bool    // the whole payload is one ciphertext; otherwise a length stands before it and a body behind
	from, to int     // of the payload, in pay
	opens    bool    // no record: epoch begins, of incarnation inc
	epoch    uint64  //
	inc      uint64  //
	seals    *sealed // no record: the epoch ends
	wraps    *group  // no record: secrets are to be wrapped
}

// sealed is an epoch that was closed. Leaves, place and the header's Head are known once its records are chained, the
// header's Root, Prev and AFR after that.
type sealed struct {
	header  *Header
	leaves  []Hash
	place   place
	signers []checkpoint.Signer // who take over after it, nil where nobody does
}

// What a chunk takes.
const (
	chunkBytes  = 128 << 10
	chunkJobs   = 320
	spareChunks = 24
	readyChunks = 3       // made before they are needed
	handAt      = 1 << 20 // so many bytes are handed to the committer at once
	frameWeight = 128     // bytes of a record's frame, about
)

// freshChunk returns an empty chunk. The lock is held, but for a writer that nobody has yet.
func (w *Writer) freshChunk(segment uint64) *chunk {
	k := w.spareChunk()
	if k == nil {
		k = newChunk(chunkBytes)
	}
	k.segment = segment
	return k
}

func (w *Writer) spareChunk() *chunk {
	n := len(w.spare)
	if n == 0 {
		return nil
	}
	k := w.spare[n-1]
	w.spare = w.spare[:n-1]
	return k
}

// takeChunk is freshChunk for those who don't hold the lock.
func (w *Writer) takeChunk() *chunk {
	w.mu.Lock()
	k := w.spareChunk()
	w.mu.Unlock()
	if k == nil {
		k = newChunk(chunkBytes)
	}
	return k
}

func newChunk(room int) *chunk {
	k := &chunk{payRoom: make([]byte, 0, room), oversized: room > chunkBytes}
	k.pay = k.payRoom
	return k
}

// makeJobRoom makes room for all of a chunk's jobs at once: to grow step by step would slow down one append in thirty.
func (k *chunk) makeJobRoom() {
	if cap(k.jobs) < chunkJobs {
		k.jobs = append(make([]job, 0, chunkJobs+16), k.jobs...)
	}
}

// stockChunks keeps chunks ready whose memory is there: an append that had to make one, or to touch it first, would
// take many times as long as the others.
func (w *Writer) stockChunks() {
	for range readyChunks {
		w.mu.Lock()
		n := len(w.spare)
		w.mu.Unlock()
		if n >= readyChunks {
			return
		}
		k := newChunk(chunkBytes)
		k.makeJobRoom()
		clear(k.payRoom[:cap(k.payRoom)])
		clear(k.jobs[:cap(k.jobs)])
		w.giveChunk(k)
	}
}

// reuse keeps a chunk for later, so that appends leave no garbage. The lock is held.
func (w *Writer) reuse(k *chunk) {
	if len(w.spare) < spareChunks && !k.oversized {
		k.keys, k.pay, k.log, k.jobs, k.weight, k.batch = nil, k.payRoom, k.logRoom, k.jobs[:0], 0, false
		w.spare = append(w.spare, k)
	}
}

// giveChunk is reuse for those who don't hold the lock.
func (w *Writer) giveChunk(k *chunk) {
	w.mu.Lock()
	w.reuse(k)
	w.mu.Unlock()
}

func (k *work) last() *chunk { return k.chunks[len(k.chunks)-1] }

func (k *work) empty() bool {
	return len(k.seals) == 0 && !k.sync && len(k.chunks) == 1 && k.chunks[0].weight == 0
}

// finish does a chunk's jobs.
func (c *committing) finish(k *chunk) (err error) {
	for i := range k.jobs {
		j := &k.jobs[i]
		switch {
		case j.wraps != nil:
			if k.keys, err = j.wraps.appendWrapTo(k.keys, &c.cur.log, c.recipients); err != nil {
				return err
			}
		case j.opens:
			c.cur.begin(j.epoch, j.inc)
			before := len(k.log)
			k.log = appendOpening(k.log, &c.cur)
			if cap(c.spare) == 0 {
				c.spare = make([]Hash, 0, 128)
			}
			c.open = sealed{place: place{k.segment, uint64(len(k.log) - before), 0}, leaves: c.spare}
			c.spare = nil
		case j.seals != nil:
			j.seals.leaves, j.seals.place = c.open.leaves, c.open.place
			j.seals.header.Head = c.cur.prev
		default:
			if err := j.encrypt(k.pay); err != nil {
				return err
			}
			before := len(k.log)
			k.log = appendRecord(k.log, &c.cur, &j.rec)
			c.open.leaves = append(c.open.leaves, j.rec.digest)
			c.open.place.logLen += uint64(len(k.log) - before)
			c.open.place.payLen += j.rec.size
		}
	}
	k.jobs = k.jobs[:0]
	k.logRoom = k.log[:0]
	return nil
}

// encrypt encrypts a record's payload where it lies, and notes its check sum.
func (j *job) encrypt(pay []byte) error {
	if j.from == j.to {
		return nil
	}
	if !j.rec.Form.Clear() {
		head := pay[j.from:j.to]
		if !j.inline {
			n, size := binary.Uvarint(head)
			head = head[size : size+int(n)]
		}
		gcm, err := j.key.cipher()
		if err != nil {
			return err
		}
		plain := head[:len(head)-tagSize]
		gcm.Seal(plain[:0], zeroNonce[:], plain, nil)
		clear(j.key[:])
	}
	j.rec.crc = crc32.Checksum(pay[j.from:j.to], castagnoli)
	return nil
}
