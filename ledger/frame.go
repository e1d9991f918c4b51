package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A segment's log file is a sequence of frames: uvarint length ‖ body ‖ four check bytes. A body begins with a
// uvarint: 0 opens an epoch, anything else is a record's type. What follows from a record's place (log,
// incarnation, sequence number, predecessor) isn't stored; times are stored as differences within the epoch.
//
// The check bytes of an epoch's opening are the CRC-32C of the body, those of a record the first four bytes of its
// digest. They find the tear after a crash and name the record that was edited; what proves is the epoch's root.

var (
	// errTorn: the bytes end inside a frame.
	errTorn = errors.New("the bytes end inside a frame")
	// errFrame: the bytes are no frame.
	errFrame = errors.New("no frame")
	// errCheck: the frame's check bytes don't fit.
	errCheck = errors.New("the check bytes don't fit")
)

const maxFrame = 512

// maxStored bounds what a record may claim to have in the payload file: the largest batch, or a manifest.
const maxStored = maxBody + 1<<20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cursor is the state that gives a record what its frame leaves out.
type cursor struct {
	log     Hash
	profile Profile
	inc     uint64
	epoch   uint64
	next    uint64 // sequence number of the next record
	prev    Hash   // digest of the record before
	wall    int64  // of the record before in this epoch; 0 before the first
	mono    int64
	scratch [1 + maxFrame]byte
	digests []Hash // of the epoch that was walked last; kept for its room
	kinds   map[string]string
}

// maxKinds bounds the kinds that a cursor keeps.
const maxKinds = 64

// kind is b as a string. A log has few kinds, and a string for each record would be most of a verifier's garbage.
func (c *cursor) kind(b []byte) string {
	if s, ok := c.kinds[string(b)]; ok {
		return s
	}
	s := string(b)
	if c.kinds == nil {
		c.kinds = map[string]string{}
	}
	if len(c.kinds) < maxKinds {
		c.kinds[s] = s
	}
	return s
}

// stored is a record as a segment holds it.
type stored struct {
	Record
	digest Hash
	size   uint64 // bytes in the payload file
	crc    uint32 // CRC-32C of those bytes
}

// begin moves the cursor to the start of an epoch.
func (c *cursor) begin(epoch, inc uint64) {
	c.epoch, c.inc, c.wall, c.mono = epoch, inc, 0, 0
}

// complete sets what follows from the record's place, computes its digest and moves on.
func (c *cursor) complete(s *stored) {
	s.Log, s.Incarnation, s.Seq, s.Prev = c.log, c.inc, c.next, c.prev
	c.scratch[0] = 0
	s.digest = c.profile.digest(s.AppendCBOR(c.scratch[:1]))
	c.prev = s.digest
	c.wall, c.mono = s.Wall, s.Mono
	c.next++
}

func appendUvarint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }
func appendVarint(b []byte, n int64) []byte   { return binary.AppendVarint(b, n) }

// appendOpening appends the frame that opens the cursor's epoch.
func appendOpening(b []byte, c *cursor) []byte {
	var body [64]byte
	w := appendUvarint(append(body[:0], 0), c.epoch)
	w = appendUvarint(w, c.next)
	w = binary.BigEndian.AppendUint64(w, c.inc)
	w = append(w, c.prev[:]...)
	b = appendUvarint(b, uint64(len(w)))
	b = append(b, w...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(w, castagnoli))
}

// appendRecord completes a record and appends its frame.
func appendRecord(b []byte, c *cursor, s *stored) []byte {
	wall, mono := c.wall, c.mono
	c.complete(s)
	start := len(b)
	b = append(b, 0) // the length takes one byte below 128
	b = appendUvarint(b, uint64(s.Type))
	b = appendUvarint(b, uint64(s.Form))
	b = append(b, s.ID[:]...)
	b = append(b, s.Commitment[:]...)
	b = appendVarint(b, s.Wall-wall)
	b = appendVarint(b, s.Mono-mono)
	b = append(b, byte(len(s.Kind)))
	b = append(b, s.Kind...)
	b = appendUvarint(b, s.Group)
	if s.Form.Batch() {
		b = appendUvarint(b, s.Count)
	}
	b = appendUvarint(b, s.size)
	if s.size > 0 {
		b = binary.BigEndian.AppendUint32(b, s.crc)
	}
	if n := len(b) - start - 1; n < 0x80 {
		b[start] = byte(n)
	} else { // two bytes below 16384
		b = append(b, 0)
		copy(b[start+2:], b[start+1:])
		b[start], b[start+1] = byte(n)|0x80, byte(n>>7)
	}
	return append(b, s.digest[:4]...)
}

// fields reads the parts of a frame's body. The first error sticks.
type fields struct {
	b   []byte
	err error
}

func (f *fields) bytes(n int) []byte {
	if f.err != nil || len(f.b) < n {
		f.err = errFrame
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

// uvarint reads an unsigned integer in its shortest form.
func (f *fields) uvarint() uint64 {
	if f.err != nil {
		return 0
	}
	n, size := binary.Uvarint(f.b)
	if size <= 0 || size > 1 && f.b[size-1] == 0 {
		f.err = errFrame
		return 0
	}
	f.b = f.b[size:]
	return n
}

func (f *fields) varint() int64 {
	u := f.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (f *fields) uint32() uint32 {
	if b := f.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// nextFrame splits the first frame off b.
func nextFrame(b []byte, max uint64) (body []byte, check uint32, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	switch {
	case size == 0:
		return nil, 0, b, errTorn
	case size < 0 || size > 1 && b[size-1] == 0 || n == 0 || n > max:
		return nil, 0, b, errFrame
	case uint64(len(b)-size) < n+4:
		return nil, 0, b, errTorn
	}
	body, rest = b[size:size+int(n)], b[size+int(n):]
	return body, binary.BigEndian.Uint32(rest), rest[4:], nil
}

// opening is what the frame that opens an epoch says.
type opening struct {
	epoch, first, inc uint64
	prev              Hash
}

// readOpening reads the frame that opens an epoch.
func readOpening(b []byte) (o opening, rest []byte, err error) {
	body, check, rest, err := nextFrame(b, maxFrame)
	if err != nil {
		return o, b, err
	}
	f := fields{b: body}
	if f.uvarint() != 0 {
		return o, b, errFrame
	}
	o.epoch, o.first = f.uvarint(), f.uvarint()
	if inc := f.bytes(8); inc != nil {
		o.inc = binary.BigEndian.Uint64(inc)
	}
	copy(o.prev[:], f.bytes(len(o.prev)))
	if f.err != nil || len(f.b) != 0 {
		return o, b, errFrame
	}
	if crc32.Checksum(body, castagnoli) != check {
		return o, b, errCheck
	}
	return o, rest, nil
}

// isOpening tells whether b begins with a frame that opens an epoch.
func isOpening(b []byte) bool {
	body, _, _, err := nextFrame(b, maxFrame)
	return err == nil && body[0] == 0
}

// readRecord reads the frame of the next record and moves the cursor past it. After an error the cursor stands
// where it stood, but for errCheck, where it has moved on: the caller may look at what follows.
func (c *cursor) readRecord(b []byte, s *stored) (rest []byte, err error) {
	body, check, rest, err := nextFrame(b, maxFrame)
	if err != nil {
		return b, err
	}
	f := fields{b: body}
	*s = stored{}
	s.Type = Type(f.uvarint())
	s.Form = Form(f.uvarint())
	copy(s.ID[:], f.bytes(len(s.ID)))
	copy(s.Commitment[:], f.bytes(len(s.Commitment)))
	s.Wall = c.wall + f.varint()
	s.Mono = c.mono + f.varint()
	if n := f.bytes(1); n != nil {
		s.Kind = c.kind(f.bytes(int(n[0])))
	}
	s.Group = f.uvarint()
	if s.Form.Batch() {
		s.Count = f.uvarint()
	}
	if s.size = f.uvarint(); s.size > 0 {
		s.crc = f.uint32()
	}
	if f.err != nil || len(f.b) != 0 || s.size > maxStored {
		return b, errFrame
	}
	if err := s.Record.valid(); err != nil {
		return b, fmt.Errorf("%w: %w", errFrame, err)
	}
	c.complete(s)
	if binary.BigEndian.Uint32(s.digest[:]) != check {
		return rest, errCheck
	}
	return rest, nil
}

// An entry of the epochs file is a frame too: its body is the epoch's place (segment, bytes in the log file, bytes
// in the payload file, as uvarints) and its header; its check bytes are the CRC-32C of the body.

const maxEpochFrame = 64 << 10

// place says where an epoch's bytes lie. The offsets follow from the epochs before.
type place struct {
	segment uint64
	logLen  uint64
	payLen  uint64
}

func appendEpochFrame(b []byte, p place, header []byte) []byte {
	w := appendUvarint(nil, p.segment)
	w = appendUvarint(w, p.logLen)
	w = appendUvarint(w, p.payLen)
	w = append(w, header...)
	b = appendUvarint(b, uint64(len(w)))
	b = append(b, w...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(w, castagnoli))
}

// readEpochFrame reads an entry of the epochs file; header is a slice of b.
func readEpochFrame(b []byte) (p place, header []byte, rest []byte, err error) {
	body, check, rest, err := nextFrame(b, maxEpochFrame)
	if err != nil {
		return p, nil, b, err
	}
	f := fields{b: body}
	p = place{f.uvarint(), f.uvarint(), f.uvarint()}
	if f.err != nil {
		return p, nil, b, errFrame
	}
	if crc32.Checksum(body, castagnoli) != check {
		return p, nil, b, errCheck
	}
	return p, f.b, rest, nil
}

// A keys file is a sequence of frames whose body is an epoch number, where it is more than one the number of epochs
// that the wrap is for (both uvarint), and an age file, which begins with a letter; the check bytes are the CRC-32C of
// the body.

const maxWrap = 8 << 20

// wrapped is a frame of a keys file: the secrets of epochs from first on.
type wrapped struct {
	first, epochs uint64
	age           []byte
}

func (w *wrapped) covers(epoch uint64) bool { return epoch >= w.first && epoch-w.first < w.epochs }

// all are the epochs that it covers.
func (w *wrapped) all() []uint64 {
	list := make([]uint64, w.epochs)
	for i := range list {
		list[i] = w.first + uint64(i)
	}
	return list
}

func appendWrap(b []byte, w wrapped) []byte {
	body := appendUvarint(nil, w.first)
	if w.epochs > 1 {
		body = appendUvarint(body, w.epochs)
	}
	body = append(body, w.age...)
	b = appendUvarint(b, uint64(len(body)))
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
}

func readWrap(b []byte) (w wrapped, rest []byte, err error) {
	body, check, rest, err := nextFrame(b, maxWrap)
	if err != nil {
		return w, b, err
	}
	f := fields{b: body}
	w.first, w.epochs = f.uvarint(), 1
	if f.err == nil && len(f.b) > 0 && f.b[0] <= maxPerWrap {
		if w.epochs = f.uvarint(); w.epochs < 2 || uint64(len(f.b)) < w.epochs*keySize {
			f.err = errFrame
		}
	}
	if f.err != nil || w.first+w.epochs < w.first {
		return wrapped{}, b, errFrame
	}
	if crc32.Checksum(body, castagnoli) != check {
		return wrapped{}, b, errCheck
	}
	w.age = f.b
	return w, rest, nil
}
