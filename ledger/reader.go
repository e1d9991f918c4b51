package ledger

import (
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sort"
	"sync"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Reader reads a log, also one that is being written: it sees what the writer has handed to the store. It checks the
// order of the epochs and, epoch by epoch, that records are what their headers commit to; for whether the log is
// what was published, see [Verify]. It is safe for concurrent use.
type Reader struct {
	fsys fs.FS
	gen  *Genesis
	id   Hash
	keys *keyring

	mu     sync.Mutex
	epochs []entry // without coverage
	scan   *epochScanner
	tail   tailMark
	files  span
}

// tailMark is where the records after the last sealed epoch begin.
type tailMark struct {
	segment place
	next    uint64
	epoch   uint64
	head    Hash
}

// OpenReader opens a log for reading. Without identities the payloads stay closed.
func OpenReader(fsys fs.FS, identities ...age.Identity) (*Reader, error) {
	gen, err := loadGenesis(fsys)
	if err != nil {
		return nil, err
	}
	r := &Reader{fsys: fsys, gen: gen, id: gen.ID(), files: span{fsys: fsys}}
	r.keys = &keyring{fsys: fsys, id: r.id, identities: identities}
	if err := r.Refresh(); err != nil {
		return nil, err
	}
	return r, nil
}

// Close releases the reader's files.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files.close()
	r.keys.forget()
	return nil
}

// Refresh looks for epochs that were sealed since.
func (r *Reader) Refresh() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.scan
	r.keys.forgetFrom(uint64(len(r.epochs)))
	if info, err := fs.Stat(r.fsys, epochsName); err == nil && s != nil && info.Size() < s.off {
		s = nil // a writer that recovered cut it
	}
	if s != nil {
		if err := s.open(r.fsys); err != nil {
			return err
		}
	}
	var flaw *Flaw
	err := r.refresh(s)
	if errors.As(err, &flaw) && len(r.epochs) > 0 {
		// A writer that recovered after a crash may have replaced what no checkpoint covered.
		r.keys.forget()
		err = r.refresh(nil)
	}
	if err != nil {
		if errors.As(err, &flaw) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return fmt.Errorf("reading the log: %w", err)
	}
	return nil
}

// refresh goes on from a scanner, or begins anew. The lock is held.
func (r *Reader) refresh(s *epochScanner) error {
	if s == nil {
		var err error
		if s, err = scanEpochs(r.fsys, r.gen); err != nil {
			return err
		}
		r.epochs = nil
	}
	defer s.close()
	for {
		e, err := s.scan()
		if err == io.EOF || errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return err
		}
		e.Coverage = nil
		r.epochs = append(r.epochs, *e)
	}
	r.scan = s
	r.tail = tailMark{s.segment, s.next, s.epoch, s.head}
	return nil
}

// Headers yields the headers of the sealed epochs from an epoch on, as they stand in the store now.
func (r *Reader) Headers(from uint64) iter.Seq2[*Header, error] {
	return func(yield func(*Header, error) bool) {
		s, err := scanEpochs(r.fsys, r.gen)
		if err != nil {
			yield(nil, err)
			return
		}
		defer s.close()
		for {
			e, err := s.scan()
			if err == io.EOF || errors.Is(err, errTorn) {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("reading the log: %w: %w", ErrDamaged, err))
				return
			}
			if e.Epoch >= from && !yield(&e.Header, nil) {
				return
			}
		}
	}
}

// Genesis returns what the log declares of itself.
func (r *Reader) Genesis() Genesis { return *r.gen }

// Epochs returns how many epochs are sealed.
func (r *Reader) Epochs() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.epochs))
}

// Len returns how many records are sealed.
func (r *Reader) Len() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail.next
}

// Checkpoint returns the last checkpoint that was published, nil where there is none. Its signatures aren't checked.
func (r *Reader) Checkpoint() (*checkpoint.Note, error) {
	b, err := readFile(r.fsys, checkpointName, 256<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log's checkpoint: %w", err)
	}
	return checkpoint.Parse(b)
}

// ReadRecord is a record with what a reader needs to find its payload.
type ReadRecord struct {
	Record
	Digest Hash
	Epoch  uint64
	Sealed bool // its epoch is sealed
	// Stored is how many bytes the payload takes in the payload file; chunks of a large one come on top.
	Stored uint64

	segment uint64
	payOff  uint64
	crc     uint32
}

// Records yields the records from a sequence number on, the unsealed ones at the end included. A record in whose
// place the log is damaged ends it with an error.
func (r *Reader) Records(from uint64) iter.Seq2[*ReadRecord, error] {
	return func(yield func(*ReadRecord, error) bool) {
		r.mu.Lock()
		epochs, tail := r.epochs, r.tail
		r.mu.Unlock()
		files := span{fsys: r.fsys}
		defer files.close()
		first := sort.Search(len(epochs), func(i int) bool { return epochs[i].First+epochs[i].Count > from })
		for i := first; i < len(epochs); i++ {
			e := &epochs[i]
			recs, err := r.epochRecords(&files, e)
			if err != nil {
				yield(nil, err)
				return
			}
			for j := range recs {
				if recs[j].Seq >= from && !yield(&recs[j], nil) {
					return
				}
			}
		}
		r.tailRecords(&files, tail, from, yield)
	}
}

// epochRecords reads the records of a sealed epoch.
func (r *Reader) epochRecords(files *span, e *entry) ([]ReadRecord, error) {
	data, err := files.read(logName(e.segment), int64(e.logOff), int64(e.logLen), nil)
	if err != nil {
		return nil, fmt.Errorf("reading epoch %d: %w", e.Epoch, err)
	}
	recs := make([]ReadRecord, 0, e.Count)
	var c cursor
	err = e.walk(r.gen, data, &c, func(s *stored, off uint64) error {
		recs = append(recs, ReadRecord{s.Record, s.digest, e.Epoch, true, s.size, e.segment, off, s.crc})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w: %w", ErrDamaged, err)
	}
	return recs, nil
}

// maxTail bounds what is read of a segment's end: many times what a writer leaves unsealed.
const maxTail = 128 << 20

// tailRecords reads what comes after the last sealed epoch, up to the first frame that isn't whole.
func (r *Reader) tailRecords(files *span, t tailMark, from uint64, yield func(*ReadRecord, error) bool) {
	c := cursor{log: r.id, profile: r.gen.Profile, next: t.next, prev: t.head}
	for seg := t.segment; ; seg = (place{segment: seg.segment + 1}) {
		if err := files.open(logName(seg.segment)); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield(nil, err)
			}
			return
		}
		size := uint64(files.size)
		if size < seg.logLen {
			return
		}
		data, err := files.read(logName(seg.segment), int64(seg.logLen), int64(min(size-seg.logLen, maxTail)), nil)
		if err != nil {
			yield(nil, fmt.Errorf("reading the log's end: %w", err))
			return
		}
		off := seg.payLen
		for len(data) > 0 {
			if o, rest, err := readOpening(data); err == nil {
				if o.first != c.next || o.prev != c.prev {
					return
				}
				c.begin(o.epoch, o.inc)
				data = rest
				continue
			}
			var s stored
			rest, err := c.readRecord(data, &s)
			if err != nil {
				return
			}
			data = rest
			rec := ReadRecord{s.Record, s.digest, c.epoch, false, s.size, seg.segment, off, s.crc}
			off += s.size
			if s.Seq >= from && !yield(&rec, nil) {
				return
			}
		}
	}
}

// Record returns one record.
func (r *Reader) Record(seq uint64) (*ReadRecord, error) {
	for rec, err := range r.Records(seq) {
		if err != nil {
			return nil, err
		}
		if rec.Seq == seq {
			return rec, nil
		}
		break
	}
	return nil, fmt.Errorf("the log has no record %d: %w", seq, fs.ErrNotExist)
}

// storedPayload reads a record's bytes in the payload file.
func (r *Reader) storedPayload(rec *ReadRecord) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := stored{Record: rec.Record, size: rec.Stored, crc: rec.crc}
	b, err := checkPayload(&r.files, rec.segment, &s, rec.payOff, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the payload of record %d: %w", rec.Seq, err)
	}
	return b, nil
}

// Payload returns a record's payload, checked against its commitment. For a batch see [Reader.Events]; for a payload
// that may not fit in memory see [Reader.PayloadTo].
func (r *Reader) Payload(rec *ReadRecord) ([]byte, error) {
	var out writeBuffer
	if err := r.PayloadTo(rec, &out); err != nil {
		return nil, err
	}
	return out, nil
}

type writeBuffer []byte

func (w *writeBuffer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// PayloadTo writes a record's payload to dst. It is checked while it is written: after an error dst holds bytes that
// mustn't be believed.
func (r *Reader) PayloadTo(rec *ReadRecord, dst io.Writer) error {
	if rec.Form.Batch() {
		return fmt.Errorf("record %d is a batch: read its events", rec.Seq)
	}
	o, err := r.open(rec)
	if err == nil {
		err = o.payloadTo(r.gen.Profile, rec.Form, &rec.Commitment, r.chunk, dst)
	}
	if err != nil {
		return fmt.Errorf("opening the payload of record %d: %w", rec.Seq, err)
	}
	return nil
}

// Events returns the events of a batch, checked against its commitment.
func (r *Reader) Events(rec *ReadRecord) ([][]byte, error) {
	if !rec.Form.Batch() {
		return nil, fmt.Errorf("record %d is no batch: read its payload", rec.Seq)
	}
	o, err := r.open(rec)
	var events [][]byte
	if err == nil {
		events, _, err = o.events(&rec.Record)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the events of record %d: %w", rec.Seq, err)
	}
	return events, nil
}

// Event returns one event of a batch.
func (r *Reader) Event(seq uint64, index int) ([]byte, error) {
	rec, err := r.Record(seq)
	if err != nil {
		return nil, err
	}
	events, err := r.Events(rec)
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(events) {
		return nil, fmt.Errorf("record %d has no event %d: it has %d", seq, index, len(events))
	}
	return events[index], nil
}

func (r *Reader) chunk(digest *Hash) ([]byte, error) { return loadChunk(r.fsys, digest) }

func loadChunk(fsys fs.FS, digest *Hash) ([]byte, error) {
	b, err := readFile(fsys, chunkName(digest), ChunkSize+tagSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return b, err
}

// opened is a payload with its key, or its manifest and body.
type opened struct {
	key   EventKey
	plain []byte // inline: the payload. else: the manifest
	m     *manifest
	body  []byte // as stored
}

// open decrypts what stands under a record's event key.
func (r *Reader) open(rec *ReadRecord) (*opened, error) {
	raw, err := r.storedPayload(rec)
	if err != nil {
		return nil, err
	}
	o := &opened{}
	if !rec.Form.Clear() {
		if o.key, err = r.keys.event(rec.segment, rec.Epoch, &rec.Record); err != nil {
			return nil, err
		}
	}
	return o, o.decrypt(r.gen.Profile, rec.Form, raw)
}

// decrypt opens stored bytes with the key that o has.
func (o *opened) decrypt(p Profile, form Form, raw []byte) error {
	head := raw
	if form.Kind() != FormInline {
		n, size := binary.Uvarint(raw)
		if size <= 0 || n > uint64(len(raw)-size) {
			return fmt.Errorf("%w: it has no manifest", ErrPayload)
		}
		head, o.body = raw[size:size+int(n)], raw[size+int(n):]
	}
	o.plain = head
	if !form.Clear() {
		gcm, err := o.key.cipher()
		if err != nil {
			return err
		}
		if o.plain, err = openChunk(gcm, 0, head); err != nil {
			return err
		}
	}
	if form.Kind() == FormInline {
		return nil
	}
	var err error
	if o.m, err = parseManifest(o.plain, p, form); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

// payloadTo writes the payload and checks it.
func (o *opened) payloadTo(p Profile, form Form, want *Hash, chunk func(*Hash) ([]byte, error), dst io.Writer) error {
	if form.Kind() == FormInline {
		c := newCommitter(p, form, o.key[:])
		c.Write(o.plain)
		if c.sum() != *want {
			return ErrPayload
		}
		_, err := dst.Write(o.plain)
		return err
	}
	var gcm cipher.AEAD
	if o.m.key != nil {
		var err error
		if gcm, err = newGCM(o.m.key); err != nil {
			return err
		}
	}
	c := newCommitter(p, form, o.m.salt)
	var size uint64
	part := func(i int, data []byte) error {
		plain, err := openChunk(gcm, uint32(i), data)
		if err != nil {
			return err
		}
		c.Write(plain)
		size += uint64(len(plain))
		_, err = dst.Write(plain)
		return err
	}
	if o.m.chunks == nil {
		if err := part(0, o.body); err != nil {
			return err
		}
	}
	for i := range o.m.chunks {
		data, err := chunk(&o.m.chunks[i])
		if err != nil {
			return err
		}
		if sha256.Sum256(data) != o.m.chunks[i] {
			return fmt.Errorf("%w: chunk %d isn't the one that was stored", ErrPayload, i)
		}
		if err := part(i, data); err != nil {
			return err
		}
	}
	if c.sum() != *want || size != o.m.size {
		return ErrPayload
	}
	return nil
}

// events decrypts a batch and checks it; digests are those of its events.
func (o *opened) events(rec *Record) (events [][]byte, digests []Hash, err error) {
	var gcm cipher.AEAD
	if o.m.key != nil {
		if gcm, err = newGCM(o.m.key); err != nil {
			return nil, nil, err
		}
	}
	body, err := openChunk(gcm, 0, o.body)
	if err != nil {
		return nil, nil, err
	}
	if events, err = splitBatch(body, rec.Count); err != nil {
		return nil, nil, err
	}
	if digests, err = eventDigests(rec.Form, o.m, events); err != nil {
		return nil, nil, err
	}
	if merkle.Root(eventLeaves(rec.Form, digests)) != rec.Commitment {
		return nil, nil, ErrPayload
	}
	return events, digests, nil
}
