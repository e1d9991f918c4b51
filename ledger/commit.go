package ledger

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// The committer is the one goroutine that writes. It takes what appends have left, in order, and for each portion
//
//	1. encrypts payloads, chains records, and appends them to the segment's files: wraps, payloads, records
//	2. computes the trees and headers of the epochs that were sealed in it
//	3. syncs the segment's files, where the durability asks for it
//	4. appends the headers to the epochs file and syncs that
//	5. signs and publishes a checkpoint, if one is due
//
// so that after a crash at any point whatever a later step wrote rests on bytes that are there. For want of space it
// keeps what is left of the portion and tries again; any other failure ends the writer.

// work is a portion: what was appended since the committer last looked.
type work struct {
	chunks []*chunk
	seals  []*sealed
	next   uint64 // sequence number after the last record in it
	sync   bool   // somebody waits for it to be durable
	wraps  bool   // secrets are to be wrapped
	weight int    // of the chunks, set when it is taken

	headers []byte // frames of the epochs file, once computed
	done    bool   // they were computed
}

// committing is the committer's state.
type committing struct {
	mu         sync.Mutex
	backlog    []*work
	segment    uint64
	files      map[string]*openFile
	cur        cursor // of the chain
	open       sealed // the epoch whose records are being chained: leaves and place
	spare      []Hash // room for leaves
	tree       merkle.Range
	prev       Hash // hash of the last header
	afr        Hash // last R_t
	signers    []checkpoint.Signer
	recipients []age.Recipient
	signed     uint64
	signedAt   time.Time
	unsynced   bool // something was written that wasn't synced
}

type openFile struct {
	File
	dirty bool
}

func (c *committing) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first error
	for name, f := range c.files {
		if err := f.Close(); err != nil && first == nil {
			first = fmt.Errorf("closing %s: %w", name, err)
		}
	}
	c.files = nil
	return first
}

// kick wakes the committer.
func (w *Writer) kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *Writer) loop() {
	defer w.done.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	w.stockChunks()
	var flush time.Time // when what waits is to be handed over
	hasty := false      // a record waits that is no batch
	for {
		timer.Reset(w.untilDue(flush))
		soon, later := w.soon, w.later // to be woken by every append would cost more than the append
		if hasty {
			soon = nil
		}
		if !flush.IsZero() {
			later = nil
		}
		select {
		case <-w.quit:
			return
		case <-w.now:
		case <-timer.C:
		case <-soon:
			hasty = true
			if t := time.Now().Add(w.opts.FlushEvery); flush.IsZero() || t.Before(flush) {
				flush = t
			}
			continue
		case <-later:
			flush = time.Now().Add(batchPatience * w.opts.FlushEvery)
			continue
		}
		flush, hasty = time.Time{}, false
		w.sealDue()
		w.commitAll(false)
		w.stockChunks()
	}
}

// batchPatience is how many times as long a batch may wait. Its events have waited for one another, and to write
// several batches at once costs half as much an event.
const batchPatience = 10

// fullRetry is how often a full storage is tried again.
const fullRetry = 100 * time.Millisecond

// untilDue is the time until the committer has something to do by itself.
func (w *Writer) untilDue(flush time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.failed != nil:
		return time.Hour // only its end is left
	case w.full != nil:
		return fullRetry
	}
	due := w.sealedAt.Add(w.gen.Heartbeat / 2)
	earlier := func(t time.Time) {
		if t.Before(due) {
			due = t
		}
	}
	if !flush.IsZero() {
		earlier(flush)
	}
	if w.epoch.count > 0 {
		earlier(w.epoch.began.Add(w.gen.EpochAge))
	}
	if w.unsigned {
		earlier(w.signedAt.Add(w.opts.CheckpointEvery))
	}
	return max(time.Until(due), 0)
}

// sealDue seals the open epoch if it is old, or if nothing was sealed for long.
func (w *Writer) sealDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch now := time.Now(); {
	case w.failed != nil || w.closed || w.full != nil:
	case w.epoch.count > 0 && now.Sub(w.epoch.began) >= w.gen.EpochAge:
		w.seal(SealAge)
	case now.Sub(w.sealedAt) >= w.gen.Heartbeat/2:
		w.seal(SealHeartbeat)
	}
}

func (w *Writer) manualCommit() error {
	if !w.opts.manual {
		return nil
	}
	return w.commitAll(false)
}

// commitAll writes everything that waits. For want of space it returns an error and keeps what is left.
func (w *Writer) commitAll(final bool) error {
	c := &w.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	next := w.takeChunk() // to make one takes long, and appends wait for the lock
	w.mu.Lock()
	if err := w.failed; err != nil {
		w.mu.Unlock()
		return err
	}
	if !w.pending.empty() {
		c.backlog = append(c.backlog, w.takePending(next))
	} else {
		w.reuse(next)
	}
	w.mu.Unlock()
	for len(c.backlog) > 0 {
		k := c.backlog[0]
		err := w.write(k)
		if err == nil && len(c.backlog) == 1 {
			err = w.publish(final)
		}
		if err != nil {
			return w.stumble(err)
		}
		c.backlog = c.backlog[1:]
		w.settle(k, !c.unsynced)
	}
	if err := w.publish(final); err != nil {
		return w.stumble(err)
	}
	return nil
}

// takePending takes what waits; next is for what comes. The lock is held.
func (w *Writer) takePending(next *chunk) *work {
	k := w.pending
	for _, ch := range k.chunks {
		k.weight += ch.weight
	}
	next.segment = w.segment
	w.pending = work{chunks: append(make([]*chunk, 0, 4), next), next: w.next}
	return &k
}

// writeHere writes what waits on the thread of the append, or leaves it to the committer where it is at work or there is
// to be synced, sealed or wrapped. A batch is large enough for a write of its own, and lies in this processor's cache: to
// wake the committer, and to have another processor fetch it, would cost more than to write it.
func (w *Writer) writeHere() {
	c := &w.commit
	if w.opts.manual {
		return
	}
	if !c.mu.TryLock() {
		w.kick(w.later)
		return
	}
	defer c.mu.Unlock()
	next := w.takeChunk()
	w.mu.Lock()
	if k := &w.pending; len(k.seals) > 0 || k.sync || k.wraps || len(c.backlog) > 0 || w.full != nil || w.failed != nil || w.opts.Durability == DurableEvent {
		w.reuse(next)
		w.mu.Unlock()
		w.kick(w.now)
		return
	}
	k := w.takePending(next)
	w.mu.Unlock()
	c.backlog = append(c.backlog, k)
	if err := w.write(k); err != nil {
		_ = w.stumble(err) // the next append says so
		return
	}
	c.backlog = c.backlog[:0]
	w.settle(k, false)
}

// settle tells those who wait that a portion is written.
func (w *Writer) settle(k *work, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range k.chunks {
		w.reuse(ch)
	}
	w.waiting -= k.weight
	w.handed = max(w.handed-k.weight, 0)
	if synced {
		w.durable = k.next
	}
	if w.full != nil {
		w.full = nil
		if err := w.recordGap(); err != nil && w.failed == nil {
			w.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		}
	}
	close(w.progress)
	w.progress = make(chan struct{})
}

// recordGap appends a record of what was refused while the storage was full. The lock is held.
func (w *Writer) recordGap() error {
	if w.gap == (GapNote{}) {
		return nil
	}
	note := w.gap
	w.gap = GapNote{}
	if _, err := w.place(&Entry{Type: TypeGap, Payload: note.append(nil)}, nil); err != nil {
		return fmt.Errorf("recording a gap: %w", err)
	}
	return nil
}

// stumble notes what went wrong: for want of space the writer waits, anything else ends it.
func (w *Writer) stumble(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var final noRetry
	if errors.Is(err, ErrNoSpace) && !errors.As(err, &final) {
		w.full = err
	} else if w.failed == nil {
		w.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		w.wipeEpoch()
	}
	close(w.progress)
	w.progress = make(chan struct{})
	if w.failed != nil {
		return w.failed
	}
	return err
}

// write does steps 1 to 4 for a portion.
func (w *Writer) write(k *work) error {
	c := &w.commit
	for chunks := k.chunks; len(chunks) > 0; {
		segment, n := chunks[0].segment, 0
		for n < len(chunks) && chunks[n].segment == segment {
			if err := c.finish(chunks[n]); err != nil {
				return err
			}
			n++
		}
		if segment != c.segment {
			if err := c.leaveSegment(segment); err != nil {
				return err
			}
		}
		for _, part := range []struct {
			name string
			of   func(*chunk) *[]byte
		}{
			{keysName(segment), func(ch *chunk) *[]byte { return &ch.keys }},
			{payloadName(segment), func(ch *chunk) *[]byte { return &ch.pay }},
			{logName(segment), func(ch *chunk) *[]byte { return &ch.log }},
		} {
			if err := c.appendChunks(w.store, part.name, chunks[:n], part.of); err != nil {
				return err
			}
		}
		chunks = chunks[n:]
	}
	if !k.done {
		w.finishSeals(k)
	}
	sync := k.sync || w.opts.Durability == DurableEvent || w.opts.Durability == DurableEpoch && len(k.seals) > 0
	if sync {
		if err := c.sync(); err != nil {
			return err
		}
	}
	if err := c.append(w.store, epochsName, []*[]byte{&k.headers}); err != nil {
		return err
	}
	if sync {
		if err := c.sync(); err != nil {
			return err
		}
	}
	return nil
}

// finishSeals computes the headers of the epochs that were sealed in a portion.
func (w *Writer) finishSeals(k *work) {
	c := &w.commit
	for _, s := range k.seals {
		h := s.header
		h.Prev = c.prev
		if w.gen.Profile == ProfileAFR {
			h.Root = AFRTree(s.leaves)
			c.afr = AFRRoot(h.Root, c.afr)
			root := c.afr
			h.AFR = &root
		} else {
			h.Root = merkle.Root(s.leaves)
		}
		enc := h.AppendCBOR(nil)
		c.prev = headerHash(enc)
		c.tree.Append(c.prev)
		k.headers = appendEpochFrame(k.headers, s.place, enc)
		c.spare, s.leaves = s.leaves[:0], nil
		if s.signers != nil {
			c.signers = s.signers
		}
	}
	k.done = true
}

// appendChunks writes one part of chunks to a file.
func (c *committing) appendChunks(store Store, name string, chunks []*chunk, part func(*chunk) *[]byte) error {
	parts := make([]*[]byte, len(chunks))
	for i, ch := range chunks {
		parts[i] = part(ch)
	}
	return c.append(store, name, parts)
}

// append writes parts to a file, in as few pieces as the file takes, and cuts off what was written.
func (c *committing) append(store Store, name string, parts []*[]byte) error {
	bufs := make([][]byte, 0, len(parts))
	for _, p := range parts {
		if len(*p) > 0 {
			bufs = append(bufs, *p)
		}
	}
	if len(bufs) == 0 {
		return nil
	}
	f := c.files[name]
	if f == nil {
		file, err := store.Append(name)
		if err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		f = &openFile{File: file}
		c.files[name] = f
	}
	f.dirty, c.unsynced = true, true
	n, err := gather(f.File, bufs)
	left := n
	for _, p := range parts {
		k := min(left, len(*p))
		*p, left = (*p)[k:], left-k
	}
	if left != 0 {
		return fmt.Errorf("writing %s: the store says that it wrote %d bytes, more than it was given", name, n)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// gather appends byte strings to a file and returns how many bytes of them are there.
func gather(f File, bufs [][]byte) (n int, err error) {
	if g, ok := f.(Gatherer); ok && len(bufs) > 1 {
		return g.Gather(bufs)
	}
	for _, b := range bufs {
		k, err := f.Write(b)
		if k < 0 || k > len(b) {
			return n, fmt.Errorf("the store wrote %d of %d bytes", k, len(b))
		}
		if n += k; err != nil {
			return n, err
		}
		if k < len(b) {
			return n, errors.New("short write without an error")
		}
	}
	return n, nil
}

// sync makes everything written durable, wraps and payloads before the records that rest on them.
func (c *committing) sync() error {
	for _, name := range []string{keysName(c.segment), payloadName(c.segment), logName(c.segment), epochsName} {
		f := c.files[name]
		if f == nil || !f.dirty {
			continue
		}
		if err := f.Sync(); err != nil {
			// What a failed sync left behind is unknown; to try again would pretend.
			return fmt.Errorf("syncing %s: %w", name, noRetry{err})
		}
		f.dirty = false
	}
	c.unsynced = false
	return nil
}

// noRetry marks an error after which nothing is tried again, even where it is for want of space.
type noRetry struct{ error }

func (n noRetry) Unwrap() error { return n.error }

// leaveSegment makes the old segment durable and turns to the next.
func (c *committing) leaveSegment(next uint64) error {
	if err := c.sync(); err != nil {
		return err
	}
	for _, name := range []string{keysName(c.segment), payloadName(c.segment), logName(c.segment)} {
		if f := c.files[name]; f != nil {
			delete(c.files, name)
			if err := f.Close(); err != nil {
				return fmt.Errorf("closing %s: %w", name, noRetry{err})
			}
		}
	}
	c.segment = next
	return nil
}

// publish signs a checkpoint if one is due. Everything it covers is durable first.
func (w *Writer) publish(final bool) error {
	c := &w.commit
	if c.tree.Size() == c.signed || !final && time.Since(c.signedAt) < w.opts.CheckpointEvery {
		w.setUnsigned(c.tree.Size() != c.signed)
		return nil
	}
	if err := c.sync(); err != nil {
		return err
	}
	wall, _ := w.opts.Now()
	cp := checkpoint.Checkpoint{Origin: w.origin, Size: c.tree.Size(), Root: c.tree.Root()}
	note, err := checkpoint.Sign(cp, w.origin, wall/int64(time.Second), c.signers...)
	if err != nil {
		return err
	}
	if err := w.store.Put(checkpointName, note.Marshal()); err != nil {
		return fmt.Errorf("publishing checkpoint of size %d: %w", cp.Size, err)
	}
	c.signed, c.signedAt = cp.Size, time.Now()
	w.mu.Lock()
	w.head = note
	w.unsigned, w.signedAt = false, c.signedAt
	w.mu.Unlock()
	return nil
}

func (w *Writer) setUnsigned(v bool) {
	w.mu.Lock()
	w.unsigned = v
	w.mu.Unlock()
}

// wipeEpoch forgets the open epoch's key. The lock is held.
func (w *Writer) wipeEpoch() {
	if w.epoch.key != nil {
		w.epoch.key.wipe()
		w.epoch.key = nil
		clear(w.scratch[:])
	}
}

// wipe forgets every secret.
func (w *Writer) wipe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wipeEpoch()
	w.group.wipe()
	for _, k := range append(w.commit.backlog, &w.pending) {
		for _, ch := range k.chunks {
			for i := range ch.jobs {
				clear(ch.jobs[i].key[:])
				if g := ch.jobs[i].wraps; g != nil {
					g.wipe()
				}
			}
		}
	}
}
