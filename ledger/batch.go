package ledger

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// A batch commits to its events by a tree. An event's digest is SHA-256(0x04 ‖ salt ‖ event), without a salt
// SHA-256(0x05 ‖ event); the digests of groupSize events that follow each other are one leaf of an RFC 9162 tree. A
// leaf for each event would cost a node of two blocks of SHA-256 more each, nearly as much as the event itself.

const (
	groupSize    = 16
	saltedEvent  = 0x04
	clearedEvent = 0x05
)

// Batch gathers events that become one record. They are encrypted and written where they lie. A Batch isn't
// safe for concurrent use; its writer may have several.
type Batch struct {
	w     *Writer
	ch    *chunk // whose room holds it; nil where there are no events
	buf   []byte // batchHead bytes of room, then uvarint length ‖ event for each
	count int
}

// batchHead is the room in front of the events, for the manifest.
const batchHead = 128

// handOver is the size from which on a batch's room goes to the committer with what is in it. Smaller ones are copied:
// many of them share a chunk.
const handOver = chunkBytes / 4

// NewBatch returns an empty batch.
func (w *Writer) NewBatch() *Batch { return &Batch{w: w} }

// Len is the number of events.
func (b *Batch) Len() int { return b.count }

// Size is how many bytes they take.
func (b *Batch) Size() int { return max(len(b.buf)-batchHead, 0) }

// Bytes are the events as they lie: uvarint length ‖ event for each, behind room bytes, at most 64, that the caller may
// use. They are valid until the next call of another method.
func (b *Batch) Bytes(room int) []byte {
	if b.count == 0 {
		return make([]byte, room)
	}
	return b.buf[batchHead-room:]
}

func (b *Batch) begin() {
	if b.ch == nil {
		b.ch = b.w.takeChunk()
		b.buf = b.ch.payRoom[:batchHead]
	}
}

// AddFunc adds the event that f appends to the bytes it is given, as strconv.AppendInt does. It is written where it will
// be encrypted; one that finds no room there is copied.
func (b *Batch) AddFunc(f func([]byte) []byte) {
	const guess = 2 // bytes of most lengths
	b.begin()
	at := len(b.buf)
	if at+guess+tagSize >= cap(b.buf) {
		b.Add(f(nil))
		return
	}
	room := b.buf[at+guess : at+guess : cap(b.buf)-tagSize]
	event := f(room)
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(event)))
	end := at + n + len(event)
	if len(event) == 0 || &event[0] != &room[:1][0] || end+tagSize > cap(b.buf) {
		b.Add(event)
		return
	}
	b.buf = b.buf[:end]
	if n != guess {
		copy(b.buf[at+n:], event)
	}
	copy(b.buf[at:], length[:n])
	b.count++
}

// Add adds an event. It keeps nothing of it.
func (b *Batch) Add(event []byte) {
	b.begin()
	need := len(b.buf) + binary.MaxVarintLen32 + len(event) + tagSize
	if need > cap(b.buf) {
		grown := newChunk(2 * need)
		buf := append(grown.payRoom[:0], b.buf...)
		clear(b.buf) // not encrypted yet
		b.ch, b.buf = grown, buf
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(len(event)))
	b.buf = append(b.buf, event...)
	b.count++
}

// Append adds the events as one record, which commits to them by a tree of salted digests: each can be disclosed
// alone. It returns the record's sequence number; an event is named by it and its index. The batch is empty then, also
// after an error.
func (b *Batch) Append(ctx context.Context, e Entry) (uint64, error) {
	defer b.release()
	if err := e.valid(); err != nil {
		return 0, err
	}
	p, err := b.prepare()
	if err != nil {
		return 0, fmt.Errorf("can't append a batch: %w", err)
	}
	return b.w.add(ctx, &e, p)
}

// release empties the batch, and gives back its room where the committer hasn't got it.
func (b *Batch) release() {
	if b.ch != nil {
		clear(b.buf) // a batch that was refused isn't encrypted
		b.w.giveChunk(b.ch)
	}
	b.ch, b.buf, b.count = nil, nil, 0
}

// AppendBatch adds events as one record: see [Batch.Append].
func (w *Writer) AppendBatch(ctx context.Context, e Entry, events [][]byte) (uint64, error) {
	b := w.NewBatch()
	defer b.release()
	for _, event := range events {
		if b.count > MaxBatch || b.Size() > maxBody {
			break // Append says so
		}
		b.Add(event)
	}
	return b.Append(ctx, e)
}

// prepare makes a batch ready: salted digests, their tree, one encryption.
func (b *Batch) prepare() (*prepared, error) {
	if b.count == 0 || b.count > MaxBatch {
		return nil, fmt.Errorf("a batch of %d events: it must have 1 to %d", b.count, MaxBatch)
	}
	if b.Size() > maxBody {
		return nil, fmt.Errorf("a batch of %d bytes: it may have %d; send fewer events at a time", b.Size(), maxBody)
	}
	form := FormBatch
	m := &manifest{}
	if b.w.opts.Clear {
		form |= FormClear
	} else {
		m.key = randomBytes(keySize)
		if b.w.gen.Profile != ProfileAFR {
			m.salt = randomBytes(keySize)
		}
	}
	defer m.wipe()
	body := b.buf[batchHead:]
	commitment, err := b.commit(form, m.salt, body)
	if err != nil {
		return nil, err
	}
	if m.key != nil {
		gcm, err := newGCM(m.key)
		if err != nil {
			return nil, err
		}
		body = gcm.Seal(body[:0], zeroNonce[:], body, nil)
	}
	p := &prepared{form: form, commitment: commitment, count: uint64(b.count), manifest: m.append(nil, form), body: body}
	b.buf = b.buf[:batchHead+len(body)]
	if len(body) >= handOver {
		b.handOver(p)
	}
	return p, nil
}

// commit computes the batch's commitment.
func (b *Batch) commit(form Form, saltKey, body []byte) (Hash, error) {
	h, err := newEventHasher(form, saltKey)
	if err != nil {
		return Hash{}, err
	}
	defer h.wipe()
	var tree merkle.Range
	leaf := make([]byte, 1, 1+groupSize*sha256.Size) // 0 ‖ the digests of a group
	for i := range b.count {
		n, size := binary.Uvarint(body)
		end := size + int(n)
		leaf = h.append(leaf, body[size:end])
		body = body[end:]
		if len(leaf) == cap(leaf) || i == b.count-1 {
			tree.Append(sha256.Sum256(leaf))
			leaf = leaf[:1]
		}
	}
	return tree.Root(), nil
}

// handOver makes the batch's room a chunk of the log: what stands before the body is put in front of it.
func (b *Batch) handOver(p *prepared) {
	tag := tagSize
	if p.form.Clear() {
		tag = 0
	}
	var head [batchHead]byte
	h := binary.AppendUvarint(head[:0], uint64(len(p.manifest)+tag))
	h = append(append(h, p.manifest...), zeroTag[:tag]...)
	from := batchHead - len(h)
	copy(b.buf[from:], h)
	clear(p.manifest)
	clear(h)
	b.ch.pay = b.buf[from:]
	p.chunk, p.manifest, p.body = b.ch, nil, nil
	b.ch = nil
}

// eventSalts is the stream of the salts of a batch's events, saltSize bytes each: the AES-256-CTR key stream, from
// block 0, of the manifest's salt key.
func eventSalts(key []byte) (cipher.Stream, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	var iv [aes.BlockSize]byte
	return cipher.NewCTR(block, iv[:]), nil
}

// eventHasher computes the digests of a batch's events, from the first on.
type eventHasher struct {
	form   Form
	stream cipher.Stream // nil: unsalted
	salts  [groupSize * saltSize]byte
	left   []byte // of salts
	hash   hash.Hash
	prefix [1 + saltSize]byte
}

// newEventHasher begins with event 0. saltKey is nil where events aren't salted.
func newEventHasher(form Form, saltKey []byte) (*eventHasher, error) {
	h := &eventHasher{form: form, hash: sha256.New()}
	var err error
	if saltKey != nil {
		h.stream, err = eventSalts(saltKey)
	}
	return h, err
}

func (h *eventHasher) wipe() {
	clear(h.salts[:])
	clear(h.prefix[:])
}

// append appends the digest of the next event.
func (h *eventHasher) append(b, event []byte) []byte {
	h.hash.Reset()
	h.hash.Write(appendEventPrefix(h.prefix[:0], h.form, h.salt()))
	h.hash.Write(event)
	return h.hash.Sum(b)
}

// salt is the salt of the next event, nil where there are none.
func (h *eventHasher) salt() []byte {
	if h.stream == nil {
		return nil
	}
	if len(h.left) == 0 {
		clear(h.salts[:])
		h.stream.XORKeyStream(h.salts[:], h.salts[:])
		h.left = h.salts[:]
	}
	salt := h.left[:saltSize]
	h.left = h.left[saltSize:]
	return salt
}

// appendEventPrefix appends what is hashed in front of an event.
func appendEventPrefix(b []byte, form Form, salt []byte) []byte {
	switch {
	case form.Kind() == formPlainBatch:
		b = append(b, 0)
	case len(salt) == 0:
		b = append(b, clearedEvent)
	default:
		b = append(b, saltedEvent)
	}
	return append(b, salt...)
}

// eventLeaves are the leaf hashes of a batch's tree.
func eventLeaves(form Form, digests []Hash) []Hash {
	if form.Kind() == formPlainBatch {
		return digests
	}
	var leaves []Hash
	for group := range slices.Chunk(digests, groupSize) {
		leaves = append(leaves, groupLeaf(group))
	}
	return leaves
}

func groupLeaf(digests []Hash) Hash {
	b := make([]byte, 1, 1+groupSize*sha256.Size)
	for i := range digests {
		b = append(b, digests[i][:]...)
	}
	return sha256.Sum256(b)
}

// proveEvent is the proof that an event belongs to its batch: the other digests of its group, in their order, and the
// inclusion proof of the group.
func proveEvent(form Form, digests, leaves []Hash, index int) ([]Hash, error) {
	if index < 0 || index >= len(digests) {
		return nil, fmt.Errorf("no event %d in a batch of %d", index, len(digests))
	}
	if form.Kind() == formPlainBatch {
		return merkle.Inclusion(leaves, index)
	}
	group := index / groupSize
	path, err := merkle.Inclusion(leaves, group)
	if err != nil {
		return nil, err
	}
	var proof []Hash
	for i := group * groupSize; i < min((group+1)*groupSize, len(digests)); i++ {
		if i != index {
			proof = append(proof, digests[i])
		}
	}
	return append(proof, path...), nil
}

// verifyEvent checks a proof of [proveEvent], whose length follows from index and count.
func verifyEvent(form Form, digest Hash, index, count uint64, proof []Hash, commitment Hash) error {
	if form.Kind() == formPlainBatch {
		return merkle.VerifyInclusion(digest, index, count, proof, commitment)
	}
	if index >= count {
		return fmt.Errorf("%w: event %d in a batch of %d", merkle.ErrProof, index, count)
	}
	group := index / groupSize
	others := int(min(groupSize, count-group*groupSize)) - 1
	if len(proof) < others {
		return fmt.Errorf("%w: %d hashes where the group alone needs %d", merkle.ErrProof, len(proof), others)
	}
	leaf := groupLeaf(slices.Insert(slices.Clone(proof[:others]), int(index%groupSize), digest))
	return merkle.VerifyInclusion(leaf, group, (count+groupSize-1)/groupSize, proof[others:], commitment)
}

// eventDigests are the digests of a batch's events.
func eventDigests(form Form, m *manifest, events [][]byte) ([]Hash, error) {
	h, err := newEventHasher(form, m.salt)
	if err != nil {
		return nil, err
	}
	defer h.wipe()
	digests := make([]Hash, len(events))
	for i, e := range events {
		h.append(digests[i][:0], e)
	}
	return digests, nil
}

// splitBatch cuts a batch's body, in the clear, into its events.
func splitBatch(body []byte, count uint64) ([][]byte, error) {
	events := make([][]byte, 0, min(count, uint64(len(body))))
	f := fields{b: body}
	for range count {
		n := f.uvarint()
		if n > uint64(len(f.b)) {
			f.err = errFrame
		}
		e := f.bytes(int(min(n, uint64(len(f.b)))))
		if f.err != nil {
			break
		}
		events = append(events, slices.Clip(e))
	}
	if f.err != nil || len(f.b) != 0 {
		return nil, fmt.Errorf("%w: a batch isn't %d events", ErrPayload, count)
	}
	return events, nil
}
