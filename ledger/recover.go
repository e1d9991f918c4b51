package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Open opens a log to go on writing. After a crash it recovers first: the log ends at its last whole record, what
// was torn is dropped, and the new incarnation's opening record says so. It fails with [ErrRolledBack] or
// [ErrDamaged] where what was published isn't there.
func Open(store Store, opts Options) (*Writer, error) {
	opts = opts.withDefaults()
	if err := opts.valid(); err != nil {
		return nil, err
	}
	unlock, err := store.Lock()
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	w, err := reopen(store, opts, unlock)
	if err != nil {
		unlock.Close()
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return w, nil
}

func reopen(store Store, opts Options, unlock io.Closer) (*Writer, error) {
	gen, err := loadGenesis(store)
	if err != nil {
		return nil, err
	}
	r := &recovery{store: store, gen: gen, files: span{fsys: store}}
	defer r.files.close()
	rec, err := r.run(&opts)
	if err != nil {
		return nil, err
	}
	if rec.erasure, err = pendingErasure(store); err != nil {
		return nil, err
	}
	if rec.erasure == nil {
		if err := dropNewKeys(store, rec.segment.segment); err != nil {
			return nil, err
		}
	} else {
		if err := swapKeys(store, rec.erasure); err != nil {
			return nil, fmt.Errorf("completing an erasure: %w", err)
		}
	}
	w, err := start(store, opts, gen, unlock, rec)
	if err != nil || rec.erasure == nil {
		return w, err
	}
	if err = w.Sync(context.Background()); err == nil {
		err = store.Remove(eraseName)
	}
	if err != nil {
		w.unlock = noLock{} // the caller releases it
		w.end(false)
		return nil, fmt.Errorf("recording an erasure that was completed: %w", err)
	}
	return w, nil
}

type noLock struct{}

func (noLock) Close() error { return nil }

// recovered is where a log ends, and so where writing goes on.
type recovered struct {
	head       Hash   // digest of the last record
	next       uint64 // sequence number of the next
	epoch      uint64 // number of the next epoch
	segment    place  // the last segment and its length
	tree       merkle.Range
	prevHeader Hash
	afr        Hash
	tails      []*sealed // epochs that were never sealed
	note       OpenNote
	published  *checkpoint.Note
	erasure    *intent // that a crash interrupted: completed, but perhaps not recorded
}

type recovery struct {
	store Store
	gen   *Genesis
	files span
	recovered
	keys    []PublicKey // in force, nil while that isn't known
	old     []PublicKey // in force at the last checkpoint, where a rotation came after it
	endFile int64       // good length of the epochs file
	torn    bool        // something of the epochs file is to be cut
}

func (r *recovery) run(opts *Options) (*recovered, error) {
	if err := r.loadCheckpoint(); err != nil {
		return nil, err
	}
	if err := r.sealedEpochs(opts.Seen); err != nil {
		return nil, err
	}
	if err := r.tail(); err != nil {
		return nil, err
	}
	if err := r.checkSigners(opts); err != nil {
		return nil, err
	}
	if err := r.cut(); err != nil {
		return nil, fmt.Errorf("dropping what was torn: %w", err)
	}
	return &r.recovered, nil
}

func (r *recovery) loadCheckpoint() error {
	b, err := readFile(r.store, checkpointName, 256<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if r.published, err = checkpoint.Parse(b); err != nil {
		return fmt.Errorf("%w: its checkpoint: %w", ErrDamaged, err)
	}
	if r.published.Origin != r.gen.Origin() {
		return fmt.Errorf("%w: its checkpoint is that of %s", ErrDamaged, r.published.Origin)
	}
	return nil
}

func (r *recovery) publishedSize() uint64 {
	if r.published == nil {
		return 0
	}
	return r.published.Size
}

// sealedEpochs reads the epochs file. Epochs that a checkpoint covers must be as published; those above it are
// checked in full, and the first that isn't all there ends the log.
func (r *recovery) sealedEpochs(seen []checkpoint.Checkpoint) error {
	s, err := scanEpochs(r.store, r.gen)
	if err != nil {
		return err
	}
	defer s.close()
	r.head, r.prevHeader = r.gen.ID(), r.gen.ID()
	heads := map[uint64][]Hash{}
	if r.published != nil {
		heads[r.published.Size] = append(heads[r.published.Size], r.published.Root)
	}
	for _, cp := range seen {
		if cp.Origin != r.gen.Origin() {
			return fmt.Errorf("Options.Seen holds a checkpoint of another log, %s", cp.Origin)
		}
		heads[cp.Size] = append(heads[cp.Size], cp.Root)
	}
	for {
		for _, root := range heads[r.tree.Size()] {
			if root != r.tree.Root() {
				return fmt.Errorf("%w: its first %d epochs aren't those that were published", ErrDamaged, r.tree.Size())
			}
		}
		delete(heads, r.tree.Size())
		e, err := s.scan()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = r.acceptEpoch(e)
		}
		if err != nil {
			var flaw *Flaw
			if !errors.As(err, &flaw) && !errors.Is(err, errTorn) {
				return err
			}
			if r.tree.Size() < r.publishedSize() {
				return fmt.Errorf("%w: epoch %d, below the published %d: %w", ErrDamaged, r.tree.Size(), r.publishedSize(), err)
			}
			r.torn = true
			if flaw != nil {
				r.note.LostEpochs = 1 // at least; what follows rests on it
			}
			break
		}
		r.endFile = e.end
	}
	for size := range heads {
		return fmt.Errorf("%w: it has %s, a published checkpoint %d", ErrRolledBack, count(r.tree.Size(), "epoch"), size)
	}
	return nil
}

// acceptEpoch checks an epoch's bytes and takes it into the tree.
func (r *recovery) acceptEpoch(e *entry) error {
	if e.segment != r.segment.segment {
		r.segment = place{segment: e.segment}
	}
	if r.tree.Size() >= r.publishedSize() {
		if err := r.checkEpoch(e); err != nil {
			return err
		}
	} else if err := r.haveBytes(e); err != nil {
		return err
	}
	r.segment.logLen += e.logLen
	r.segment.payLen += e.payLen
	r.tree.Append(e.hash)
	r.head, r.prevHeader, r.next, r.epoch = e.Head, e.hash, e.First+e.Count, e.Epoch+1
	r.note.Before = e.Incarnation
	if e.AFR != nil {
		r.afr = *e.AFR
	}
	return nil
}

func (r *recovery) haveBytes(e *entry) error {
	if _, err := r.files.read(logName(e.segment), int64(e.logOff+e.logLen)-1, 1, nil); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, fs.ErrNotExist) {
			return &Flaw{Epoch: e.Epoch, Seq: e.First, What: "its records are missing"}
		}
		return err
	}
	return nil
}

func (r *recovery) checkEpoch(e *entry) error {
	data, err := r.files.read(logName(e.segment), int64(e.logOff), int64(e.logLen), nil)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, fs.ErrNotExist) {
			return &Flaw{Epoch: e.Epoch, Seq: e.First, What: "its records are missing"}
		}
		return err
	}
	data = append([]byte(nil), data...)
	var c cursor
	var buf []byte
	return e.walk(r.gen, data, &c, func(s *stored, off uint64) error {
		var err error
		if buf, err = checkPayload(&r.files, e.segment, s, off, buf); err != nil {
			if errors.Is(err, ErrMissing) || errors.Is(err, ErrPayload) {
				return &Flaw{e.Epoch, s.Seq, true, err.Error()}
			}
			return err
		}
		return r.noteRotation(s, buf)
	})
}

// tail reads the records after the last sealed epoch, up to the first that isn't whole.
func (r *recovery) tail() error {
	c := cursor{log: r.gen.ID(), profile: r.gen.Profile, next: r.next, prev: r.head}
	for {
		more, err := r.tailSegment(&c)
		if err != nil || !more {
			return err
		}
		if _, err := fs.Stat(r.store, logName(r.segment.segment+1)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		r.segment = place{segment: r.segment.segment + 1}
	}
}

// tailSegment reads the tail within one segment. It tells whether the segment ended at a whole frame.
func (r *recovery) tailSegment(c *cursor) (whole bool, err error) {
	data, err := r.restOf(logName(r.segment.segment), r.segment.logLen)
	if err != nil {
		return false, err
	}
	for len(data) > 0 {
		o, rest, err := readOpening(data)
		if err != nil || o.epoch != r.epoch || o.first != c.next || o.prev != c.prev {
			return false, nil
		}
		t := sealed{place: place{segment: r.segment.segment}, header: &Header{
			Log: c.log, Epoch: o.epoch, Incarnation: o.inc, First: o.first, Reason: SealRecovered,
		}}
		c.begin(o.epoch, o.inc)
		t.place.logLen = uint64(len(data) - len(rest))
		cutOff, err := r.tailEpoch(c, &t, &rest)
		if err != nil {
			return false, err
		}
		t.header.Count, t.header.Head = uint64(len(t.leaves)), c.prev
		r.tails = append(r.tails, &t)
		r.segment.logLen += t.place.logLen
		r.segment.payLen += t.place.payLen
		r.head, r.next, r.epoch = c.prev, c.next, o.epoch+1
		r.note.Before = o.inc
		r.note.Recovered += t.header.Count
		if cutOff {
			return false, nil
		}
		data = rest
	}
	return true, nil
}

// tailEpoch reads the records of an unsealed epoch. It tells whether it ended at something that isn't whole.
func (r *recovery) tailEpoch(c *cursor, t *sealed, rest *[]byte) (cutOff bool, err error) {
	var buf []byte
	for len(*rest) > 0 {
		if isOpening(*rest) {
			return false, nil
		}
		was := *c
		var s stored
		after, err := c.readRecord(*rest, &s)
		if err == nil && uint64(len(t.leaves)) == r.gen.EpochRecords {
			err = errFrame // a whole record, but no writer puts it there
		}
		if err == nil {
			buf, err = checkPayload(&r.files, r.segment.segment, &s, r.segment.payLen+t.place.payLen, buf)
			if err != nil && !errors.Is(err, ErrMissing) && !errors.Is(err, ErrPayload) {
				return false, err
			}
		}
		if err == nil {
			err = r.noteRotation(&s, buf)
		}
		if err != nil {
			*c = was
			return true, nil
		}
		t.place.logLen += uint64(len(*rest) - len(after))
		t.place.payLen += s.size
		t.leaves = append(t.leaves, s.digest)
		if t.header.Opened == 0 {
			t.header.Opened = s.Wall
		}
		t.header.Closed, t.header.Mono = s.Wall, s.Mono
		*rest = after
	}
	return false, nil
}

// restOf reads a file from an offset to its end. A missing file is empty.
func (r *recovery) restOf(name string, off uint64) ([]byte, error) {
	f, err := r.store.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	n := info.Size() - int64(off)
	if n <= 0 {
		return nil, nil
	}
	if n > maxTail {
		return nil, fmt.Errorf("%w: %s has %d bytes after its last sealed epoch", ErrDamaged, name, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(f.(io.ReaderAt), int64(off), n), b); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return b, nil
}

// cut drops what was torn, in every file. Order doesn't matter: to do it again leads to the same.
func (r *recovery) cut() error {
	if _, err := r.cutFile(epochsName, uint64(r.endFile)); err != nil {
		return err
	}
	n, err := r.cutFile(logName(r.segment.segment), r.segment.logLen)
	if err != nil {
		return err
	}
	r.note.TornLog += n
	if n, err = r.cutFile(payloadName(r.segment.segment), r.segment.payLen); err != nil {
		return err
	}
	r.note.TornBytes += n
	if err := r.cutKeys(); err != nil {
		return err
	}
	for seg := r.segment.segment + 1; ; seg++ {
		there := false
		for i, name := range []string{logName(seg), payloadName(seg), keysName(seg)} {
			info, err := fs.Stat(r.store, name)
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				return err
			}
			there = true
			switch i {
			case 0:
				r.note.TornLog += uint64(info.Size())
			case 1:
				r.note.TornBytes += uint64(info.Size())
			}
			if err := r.store.Remove(name); err != nil {
				return err
			}
		}
		if !there {
			return nil
		}
	}
}

// cutFile cuts a file to size and tells how many bytes that dropped.
func (r *recovery) cutFile(name string, size uint64) (uint64, error) {
	info, err := fs.Stat(r.store, name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && size == 0 {
			return 0, nil
		}
		return 0, err
	}
	if uint64(info.Size()) < size {
		return 0, fmt.Errorf("%w: %s has %d bytes where its epochs need %d", ErrDamaged, name, info.Size(), size)
	}
	f, err := r.store.Append(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if uint64(info.Size()) > size {
		if err := f.Truncate(int64(size)); err != nil {
			return 0, err
		}
	}
	// What was read may never have been synced: from here on it is relied upon.
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return uint64(info.Size()) - size, nil
}

// cutKeys cuts the wraps of the last segment to whole frames.
func (r *recovery) cutKeys() error {
	name := keysName(r.segment.segment)
	b, err := r.restOf(name, 0)
	if err != nil || len(b) == 0 {
		return err
	}
	rest := b
	for len(rest) > 0 {
		_, after, err := readWrap(rest)
		if err != nil {
			break
		}
		rest = after
	}
	_, err = r.cutFile(name, uint64(len(b)-len(rest)))
	return err
}

// checkSigners makes sure that the writer signs with the keys that are in force.
func (r *recovery) checkSigners(opts *Options) error {
	keys := opts.publicKeys()
	if err := validKeys(r.gen.Origin(), keys); err != nil {
		return err
	}
	force := r.keys
	if force == nil && r.published == nil {
		force = r.gen.Keys
	}
	if force != nil && !sameKeys(force, keys) {
		return fmt.Errorf("%w: Options.Signers aren't the keys in force, which change only by Rotate", ErrSigners)
	}
	if r.published == nil {
		return nil
	}
	at := keys
	if r.old != nil {
		at = r.old
	}
	for _, k := range at {
		if _, err := k.named(r.gen.Origin()).Verify(r.published); err != nil {
			return fmt.Errorf("%w: the last checkpoint isn't signed by the keys in force: %w", ErrSigners, err)
		}
	}
	return nil
}

func sameKeys(a, b []PublicKey) bool {
	return string(appendKeys(nil, a)) == string(appendKeys(nil, b))
}

// start begins an incarnation behind what was recovered.
func start(store Store, opts Options, gen *Genesis, unlock io.Closer, rec *recovered) (*Writer, error) {
	w := &Writer{
		store: store, opts: opts, gen: gen, id: gen.ID(), origin: gen.Origin(), unlock: unlock,
		progress: make(chan struct{}), head: rec.published,
		soon: make(chan struct{}, 1), later: make(chan struct{}, 1), now: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	for w.inc == 0 || w.inc == rec.note.Before {
		w.inc = binary.BigEndian.Uint64(randomBytes(8))
	}
	w.next = rec.next
	w.commit.cur = cursor{log: w.id, profile: gen.Profile, next: rec.next, prev: rec.head}
	w.durable = rec.next
	w.segment, w.filled = rec.segment.segment, rec.segment.logLen+rec.segment.payLen
	w.commit.segment = rec.segment.segment
	w.commit.signers, w.commit.recipients = opts.Signers, opts.Recipients
	w.commit.files = map[string]*openFile{}
	w.commit.tree, w.commit.prev, w.commit.afr = rec.tree, rec.prevHeader, rec.afr
	if rec.published != nil {
		w.commit.signed = rec.published.Size
	}
	w.pending = work{chunks: []*chunk{w.freshChunk(rec.segment.segment)}, next: rec.next, seals: rec.tails}
	wall, _ := opts.Now()
	w.sealedAt = time.Now()
	if rec.next == 0 {
		w.signedAt, w.commit.signedAt = w.sealedAt, w.sealedAt // a new log's first checkpoint is due like the others
	}
	w.openEpoch(rec.epoch, wall)
	note := rec.note
	note.Recorder, note.Boot = opts.Recorder, opts.Boot
	if _, err := w.place(&Entry{Type: TypeOpen, Payload: note.append(nil)}, nil); err != nil {
		return nil, err
	}
	if rec.erasure != nil {
		if _, err := w.place(&Entry{Type: TypeErase, Payload: rec.erasure.note}, nil); err != nil {
			return nil, err
		}
	}
	if !opts.manual {
		if !opts.Clear {
			w.newGroup() // not in line with the first append
		}
		w.done.Add(1)
		go w.loop()
	}
	return w, nil
}
