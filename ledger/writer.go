package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Writer appends to a log. It is safe for concurrent use: one lock is held from reading the log's head to placing
// the record behind it. Keys and commitments of small payloads are computed under that lock, large payloads and
// batches are encrypted and hashed before it is taken; ciphers of small ones, chaining, writing, syncing, sealing and
// signing happen beside it, in the same order.
type Writer struct {
	store  Store
	opts   Options
	gen    *Genesis
	id     Hash
	origin string
	unlock io.Closer
	inc    uint64

	erasing sync.Mutex // held by Erase, before mu

	mu       sync.Mutex
	closed   bool
	released bool
	ending   bool  // the epoch that is sealed now is this incarnation's last
	failed   error // what made the writer fail
	full     error // set while the storage is full
	gap      GapNote
	next     uint64 // sequence number of the next record
	number   uint64 // of the open epoch
	epoch    openEpoch
	coverage []Coverage // by name; never changed, only replaced
	group    group      // the secrets of the open epoch and the next ones
	pending  work       // what the committer hasn't taken yet
	spare    []*chunk
	waiting  int    // bytes in pending and in the committer's hands
	handed   int    // waiting, when the committer was last woken for it
	durable  uint64 // sequence number after the last durable record
	progress chan struct{}
	head     *checkpoint.Note // last published
	segment  uint64           // the open segment
	filled   uint64           // bytes in it, about
	roll     bool             // the next seal ends it
	sealedAt time.Time
	signedAt time.Time
	unsigned bool // an epoch was sealed since
	scratch  [1 + keySize + MaxInline]byte

	commit committing
	soon   chan struct{} // something waits
	later  chan struct{} // a batch waits
	now    chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup
}

// openEpoch is the epoch that records go to.
type openEpoch struct {
	first  uint64
	opened int64
	began  time.Time // when the first record came
	count  uint64
	key    *epochKey // nil until a record needs it, and once it was wiped
}

// Entry is what a program appends.
type Entry struct {
	Type    Type   // at least [TypeUser]
	Kind    string // what may be said in the clear: kind of event, name of tool; at most 255 bytes of UTF-8
	Payload []byte // any bytes; encrypted unless the log is clear
	Group   uint64 // tags entries that ran at the same time; 0: none
	// Durability asks for more than Options.Durability.
	Durability Durability
}

func (e *Entry) valid() error {
	if e.Type < TypeUser {
		return fmt.Errorf("can't append an entry of type %d: types below %d are the ledger's own", e.Type, TypeUser)
	}
	if len(e.Kind) > MaxKind || !utf8.ValidString(e.Kind) {
		return fmt.Errorf("can't append an entry: its kind %.40q must be at most %d bytes of UTF-8", e.Kind, MaxKind)
	}
	return nil
}

// Append adds an entry and returns its sequence number. It keeps nothing of e.Payload.
func (w *Writer) Append(ctx context.Context, e Entry) (uint64, error) {
	if err := e.valid(); err != nil {
		return 0, err
	}
	if len(e.Payload) > MaxInline {
		return w.AppendReader(ctx, e, bytes.NewReader(e.Payload))
	}
	return w.add(ctx, &e, nil)
}

// AppendReader adds an entry whose payload is read from r, however large. Payload is ignored.
func (w *Writer) AppendReader(ctx context.Context, e Entry, r io.Reader) (uint64, error) {
	if err := e.valid(); err != nil {
		return 0, err
	}
	p, err := prepareLarge(w.gen.Profile, w.opts.Clear, r, func(digest *Hash, data []byte) error {
		return w.store.Put(chunkName(digest), data)
	})
	if err != nil {
		return 0, fmt.Errorf("can't append an entry of kind %q: %w", e.Kind, err)
	}
	return w.add(ctx, &e, p)
}

// add puts a record behind the head and, where that is asked for, waits until it is durable.
func (w *Writer) add(ctx context.Context, e *Entry, p *prepared) (uint64, error) {
	if p != nil {
		defer clear(p.manifest) // it holds the payload's key
	}
	w.mu.Lock()
	if err := w.room(ctx, p); err != nil {
		w.mu.Unlock()
		return 0, err
	}
	seq, err := w.place(e, p)
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if p != nil && p.chunk != nil {
		w.writeHere()
	}
	if e.Durability == DurableEvent || w.opts.Durability == DurableEvent {
		return seq, w.await(ctx, seq+1)
	}
	return seq, nil
}

// room returns with the lock held once the writer can take a record.
func (w *Writer) room(ctx context.Context, p *prepared) error {
	for {
		switch {
		case w.failed != nil:
			return w.failed
		case w.closed:
			return fmt.Errorf("can't append: %w", ErrClosed)
		case w.full != nil && w.opts.OnFull == FullGap:
			w.gap.Records++
			if p != nil {
				w.gap.Events += p.count
			}
			wall, _ := w.opts.Now()
			if w.gap.From == 0 {
				w.gap.From = wall
			}
			w.gap.To = wall
			return fmt.Errorf("%w: %w", ErrDropped, w.full)
		case w.full != nil:
			return fmt.Errorf("can't append: %w", w.full)
		case w.waiting < w.opts.MaxPending || w.opts.manual:
			return nil
		}
		progress := w.progress
		w.mu.Unlock()
		w.kick(w.now)
		select {
		case <-progress:
		case <-ctx.Done():
			w.mu.Lock()
			return fmt.Errorf("can't append: waiting for the store: %w", context.Cause(ctx))
		}
		w.mu.Lock()
	}
}

// place puts a record behind the head. The lock is held.
func (w *Writer) place(e *Entry, p *prepared) (uint64, error) {
	encrypted := !w.opts.Clear && e.Type >= TypeUser
	if encrypted {
		if err := w.needKey(); err != nil {
			return 0, err
		}
	}
	ch := w.roomFor(e, p)
	ch.jobs = append(ch.jobs, job{inline: p == nil, from: len(ch.pay)})
	j := &ch.jobs[len(ch.jobs)-1]
	if ch.batch {
		j.from = 0
	}
	s := &j.rec
	s.Type, s.Kind, s.Group = e.Type, e.Kind, e.Group
	s.Form = FormInline
	if p != nil {
		s.Form, s.Commitment, s.Count = p.form, p.commitment, p.count
	}
	if !encrypted {
		s.Form |= FormClear
	}
	rand.Read(s.ID[:]) // not from a stock: a snapshot of the process would hold it
	s.Wall, s.Mono = w.opts.Now()
	if err := w.placePayload(e, p, ch, j); err != nil {
		ch.pay, ch.jobs = ch.pay[:j.from], ch.jobs[:len(ch.jobs)-1]
		return 0, err
	}
	j.to = len(ch.pay)
	s.size = uint64(j.to - j.from)
	weight := int(s.size)
	if ch.batch {
		weight = cap(ch.pay)
	}
	w.weigh(ch, frameWeight+weight)
	seq := w.next
	w.next++
	w.pending.next = w.next
	if w.epoch.count == 0 {
		w.epoch.began = time.Now()
	}
	if w.epoch.count++; w.epoch.count >= w.gen.EpochRecords {
		w.seal(SealCount)
	}
	if w.handed+handAt <= w.waiting { // much waits: don't wait for the clock
		w.handed = w.waiting
		w.kick(w.now)
	} else if !ch.batch {
		w.kick(w.soon)
	}
	return seq, nil
}

// weigh counts bytes that wait. The lock is held.
func (w *Writer) weigh(ch *chunk, n int) {
	ch.weight += n
	w.waiting += n
	w.filled += uint64(n)
}

// roomFor returns the chunk that takes a record's bytes. A chunk's payloads never move: that would leave a copy of
// what isn't encrypted yet behind.
func (w *Writer) roomFor(e *Entry, p *prepared) *chunk {
	if p != nil && p.chunk != nil {
		p.chunk.segment, p.chunk.batch = w.segment, true
		w.pending.chunks = append(w.pending.chunks, p.chunk)
		return p.chunk
	}
	need := len(e.Payload) + tagSize
	if p != nil {
		need = binary.MaxVarintLen64 + len(p.manifest) + tagSize + len(p.body)
	}
	ch := w.pending.last()
	if ch.batch || cap(ch.pay)-len(ch.pay) < need || len(ch.jobs) >= chunkJobs {
		if need > chunkBytes {
			ch = newChunk(need)
			ch.segment = w.segment
		} else {
			ch = w.freshChunk(w.segment)
		}
		w.pending.chunks = append(w.pending.chunks, ch)
	}
	if p == nil {
		ch.makeJobRoom()
	}
	return ch
}

// placePayload appends the payload, with room for what its encryption adds, and sets the commitment of an inline
// one. The committer encrypts it before it leaves the process: see [job].
func (w *Writer) placePayload(e *Entry, p *prepared, ch *chunk, j *job) error {
	plain, tag := e.Payload, 0
	if p != nil {
		plain = p.manifest
	}
	if !j.rec.Form.Clear() {
		if err := w.epoch.key.event(w.next, &j.rec.ID, &j.key); err != nil {
			return err
		}
		tag = tagSize
	}
	if ch.batch { // it lies there
		return nil
	}
	if p == nil {
		j.rec.Commitment = commitInline(w.gen.Profile, j.rec.Form, j.key[:], plain, w.scratch[:0])
	} else {
		ch.pay = binary.AppendUvarint(ch.pay, uint64(len(plain)+tag))
	}
	ch.pay = append(ch.pay, plain...)
	ch.pay = append(ch.pay, zeroTag[:tag]...)
	if p != nil {
		ch.pay = append(ch.pay, p.body...)
	}
	return nil
}

var zeroTag [tagSize]byte

// Coverage sets a sensor's counters: totals since the log was opened, which may not fall. They become part of the
// next epoch header.
func (w *Writer) Coverage(sensor string, seen, emitted, lost uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, there := slices.BinarySearchFunc(w.coverage, sensor, func(c Coverage, name string) int { return strings.Compare(c.Sensor, name) })
	var old Coverage
	if there {
		old = w.coverage[at]
	}
	switch {
	case !there && len(w.coverage) == maxSensors:
		return fmt.Errorf("coverage of sensor %q: a log counts for at most %d sensors", sensor, maxSensors)
	case len(sensor) > 64 || !utf8.ValidString(sensor):
		return fmt.Errorf("coverage of sensor %.40q: its name must be at most 64 bytes of UTF-8", sensor)
	case seen < old.Seen || emitted < old.Emitted || lost < old.Lost:
		return fmt.Errorf("coverage of sensor %q: totals fell from %+v to seen %d, emitted %d, lost %d", sensor, old, seen, emitted, lost)
	}
	next := slices.Clone(w.coverage)
	if !there {
		next = slices.Insert(next, at, Coverage{})
	}
	next[at] = Coverage{sensor, seen, emitted, lost}
	w.coverage = next
	return nil
}

// Seal closes the open epoch now, empty or not. Its header is written soon after; [Writer.Sync] doesn't wait for it.
func (w *Writer) Seal() error {
	w.mu.Lock()
	err := w.usable()
	if err == nil {
		w.seal(SealAsked)
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.kick(w.now)
	return w.manualCommit()
}

func (w *Writer) usable() error {
	if w.failed != nil {
		return w.failed
	}
	if w.closed {
		return ErrClosed
	}
	return nil
}

// seal closes the open epoch and opens the next. The lock is held.
func (w *Writer) seal(reason Reason) {
	wall, mono := w.opts.Now()
	h := &Header{
		Log: w.id, Epoch: w.number, Incarnation: w.inc, First: w.epoch.first, Count: w.epoch.count,
		Reason: reason, Opened: w.epoch.opened, Closed: wall, Mono: mono, Coverage: w.coverage,
	}
	s := &sealed{header: h}
	w.pending.seals = append(w.pending.seals, s)
	ch := w.pending.last()
	ch.jobs = append(ch.jobs, job{seals: s})
	w.wipeEpoch()
	w.sealedAt = time.Now()
	if w.ending {
		return
	}
	if w.roll || w.filled >= w.opts.SegmentBytes {
		w.roll = false
		w.segment, w.filled = w.segment+1, 0
		w.group.wipe() // a wrap lies in the segment of its epochs
		w.pending.chunks = append(w.pending.chunks, w.freshChunk(w.segment))
	}
	w.openEpoch(w.number+1, wall)
}

// openEpoch begins an epoch. The lock is held.
func (w *Writer) openEpoch(number uint64, wall int64) {
	w.number = number
	w.epoch = openEpoch{first: w.next, opened: wall}
	ch := w.pending.last()
	ch.jobs = append(ch.jobs, job{opens: true, epoch: number, inc: w.inc})
	w.weigh(ch, frameWeight)
}

// Sync returns once everything appended before it is on stable storage.
func (w *Writer) Sync(ctx context.Context) error {
	w.mu.Lock()
	err := w.usable()
	next := w.next
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.await(ctx, next)
}

// await returns once all records before next are durable.
func (w *Writer) await(ctx context.Context, next uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for first := true; w.durable < next; first = false {
		if w.failed != nil {
			return w.failed
		}
		if w.full != nil && !first {
			return fmt.Errorf("record %d isn't durable yet: %w", next-1, w.full)
		}
		w.pending.sync = true
		progress := w.progress
		w.mu.Unlock()
		err := w.manualCommit()
		if !w.opts.manual {
			w.kick(w.now)
			select {
			case <-progress:
			case <-ctx.Done():
				err = fmt.Errorf("waiting until record %d is durable: %w", next-1, context.Cause(ctx))
			}
		}
		w.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Checkpoint returns the last checkpoint that was published, nil before the first.
func (w *Writer) Checkpoint() *checkpoint.Note {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head
}

// Genesis returns what the log declares of itself.
func (w *Writer) Genesis() Genesis { return *w.gen }

// Close ends the log as it should end: with a close record, a last epoch and a signed checkpoint, all durable. Where
// that fails with [ErrNoSpace] the writer stays as it is, and Close may be called again once there is room. After any
// other failure it only releases the store.
func (w *Writer) Close() error { return w.end(true) }

// Detach releases the store without ending the log: everything is sealed and signed, and the log can be opened
// again. A log that is detached for good is incomplete. It fails as Close does.
func (w *Writer) Detach() error { return w.end(false) }

func (w *Writer) end(final bool) error {
	w.mu.Lock()
	if w.released {
		w.mu.Unlock()
		return nil
	}
	var err error
	if !w.closed && w.failed == nil {
		err = w.lastSeal(final)
	}
	first := !w.closed
	w.closed = true
	w.mu.Unlock()
	if first {
		close(w.quit)
		w.done.Wait()
	}
	if err == nil {
		err = w.commitAll(true)
	}
	if errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrFailed) {
		return fmt.Errorf("closing the log: %w", err)
	}
	w.mu.Lock()
	w.released = true
	w.mu.Unlock()
	w.wipe()
	if cerr := w.commit.close(); err == nil {
		err = cerr
	}
	if uerr := w.unlock.Close(); err == nil && uerr != nil {
		err = fmt.Errorf("releasing the log: %w", uerr)
	}
	return err
}

// lastSeal ends the incarnation. The lock is held.
func (w *Writer) lastSeal(final bool) error {
	if err := w.recordGap(); err != nil {
		return err
	}
	reason := SealAsked
	if final {
		if _, err := w.place(&Entry{Type: TypeClose}, nil); err != nil {
			return err
		}
		reason = SealClose
	}
	w.ending = true
	w.seal(reason)
	w.pending.sync = true
	return nil
}

// Create makes a log in an empty store and opens it.
func Create(store Store, opts Options) (*Writer, error) {
	opts = opts.withDefaults()
	if err := opts.valid(); err != nil {
		return nil, err
	}
	unlock, err := store.Lock()
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	w, err := create(store, opts, unlock)
	if err != nil {
		unlock.Close()
		return nil, err
	}
	return w, nil
}

func create(store Store, opts Options, unlock io.Closer) (*Writer, error) {
	if f, err := store.Open(genesisName); err == nil {
		f.Close()
		return nil, fmt.Errorf("making a log: %w: open it, or choose another place", ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	gen, err := opts.genesis()
	if err != nil {
		return nil, err
	}
	if err := store.Put(genesisName, gen.AppendCBOR(nil)); err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	return start(store, opts, gen, unlock, &recovered{head: gen.ID(), prevHeader: gen.ID()})
}
