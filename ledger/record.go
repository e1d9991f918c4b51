package ledger

import (
	"crypto/sha256"
	"fmt"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Hash is a SHA-256 digest.
type Hash = merkle.Hash

// Type says what a record is about. Types below [TypeUser] are the ledger's own; what the others mean is up to the
// program that embeds it.
type Type uint64

// The ledger's own types. Their payloads are never encrypted, so that a verifier without keys can read them.
const (
	TypeOpen   Type = 1 // an incarnation began; payload [OpenNote]
	TypeGap    Type = 2 // records were refused for want of space; payload [GapNote]
	TypeRotate Type = 3 // the signing keys changed; payload [RotateNote]
	TypeErase  Type = 4 // keys were destroyed; payload [EraseNote]
	TypeClose  Type = 5 // the log ended as it should; no payload
	TypeUser   Type = 16
)

func (t Type) String() string {
	switch t {
	case TypeOpen:
		return "open"
	case TypeGap:
		return "gap"
	case TypeRotate:
		return "rotate"
	case TypeErase:
		return "erase"
	case TypeClose:
		return "close"
	}
	return fmt.Sprintf("type %d", uint64(t))
}

// Form says how a record's payload is stored and what its commitment means.
type Form uint64

// The forms. FormClear is a bit that may be added to each of the others.
const (
	FormInline Form = 1  // one payload of at most [MaxInline] bytes
	FormLarge  Form = 2  // one payload of any size: under its own key, beyond [MaxBody] bytes in chunks
	FormBatch  Form = 4  // Count events under one key; the commitment is the head of a tree over groups of them
	FormClear  Form = 16 // not encrypted, not salted
)

// formPlainBatch is how batches were written first: their tree has a leaf for each event. They are still read.
const formPlainBatch Form = 3

// Kind is the form without [FormClear].
func (f Form) Kind() Form { return f &^ FormClear }

// Batch tells whether the payload is events.
func (f Form) Batch() bool { return f.Kind() == FormBatch || f.Kind() == formPlainBatch }

// Clear tells whether the payload is stored as it is.
func (f Form) Clear() bool { return f&FormClear != 0 }

func (f Form) valid() bool { return f.Kind() >= FormInline && f.Kind() <= FormBatch && f < 2*FormClear }

// The bounds of a record.
const (
	MaxKind  = 255      // bytes of a record's kind
	MaxBatch = 1 << 16  // events in a batch
	maxBody  = 16 << 20 // bytes of a batch
)

// Record is what is hashed: everything about an event except its payload, to which it commits.
type Record struct {
	Log         Hash     // digest of the log's genesis
	Incarnation uint64   // random number of the writer's life; (Incarnation, Seq) never repeats
	Seq         uint64   // position in the log, from 0, without gaps
	Prev        Hash     // digest of the record before; of the genesis for the first
	ID          [16]byte // random
	Type        Type
	Form        Form
	Commitment  Hash   // to the payload
	Wall        int64  // nanoseconds since 1970 UTC, as the recorder's clock said
	Mono        int64  // the same moment on the recorder's monotonic clock, in nanoseconds
	Kind        string // what may be said in the clear: kind of event, name of tool
	Group       uint64 // tags records that ran at the same time; 0: none
	Count       uint64 // events of a batch; 0 for the other forms
}

// AppendCBOR appends the record's one encoding: a map with the keys 1 to 11, and 12 and 13 where Group and Count
// aren't zero.
func (r *Record) AppendCBOR(b []byte) []byte {
	n := 11
	if r.Group != 0 {
		n++
	}
	if r.Count != 0 {
		n++
	}
	b = dcbor.AppendMap(b, n)
	b = dcbor.AppendBytes(append(b, 1), r.Log[:])
	b = dcbor.AppendUint(append(b, 2), r.Incarnation)
	b = dcbor.AppendUint(append(b, 3), r.Seq)
	b = dcbor.AppendBytes(append(b, 4), r.Prev[:])
	b = dcbor.AppendBytes(append(b, 5), r.ID[:])
	b = dcbor.AppendUint(append(b, 6), uint64(r.Type))
	b = dcbor.AppendUint(append(b, 7), uint64(r.Form))
	b = dcbor.AppendBytes(append(b, 8), r.Commitment[:])
	b = dcbor.AppendInt(append(b, 9), r.Wall)
	b = dcbor.AppendInt(append(b, 10), r.Mono)
	b = dcbor.AppendText(append(b, 11), r.Kind)
	if r.Group != 0 {
		b = dcbor.AppendUint(append(b, 12), r.Group)
	}
	if r.Count != 0 {
		b = dcbor.AppendUint(append(b, 13), r.Count)
	}
	return b
}

// ParseRecord reads a record's encoding. It accepts no other encoding of the same record.
func ParseRecord(b []byte) (*Record, error) {
	d := dcbor.NewDecoder(b)
	var r Record
	n := d.Map()
	d.Key(1)
	d.Fixed(r.Log[:])
	d.Key(2)
	r.Incarnation = d.Uint()
	d.Key(3)
	r.Seq = d.Uint()
	d.Key(4)
	d.Fixed(r.Prev[:])
	d.Key(5)
	d.Fixed(r.ID[:])
	d.Key(6)
	r.Type = Type(d.Uint())
	d.Key(7)
	r.Form = Form(d.Uint())
	d.Key(8)
	d.Fixed(r.Commitment[:])
	d.Key(9)
	r.Wall = d.Int()
	d.Key(10)
	r.Mono = d.Int()
	d.Key(11)
	r.Kind = d.Text()
	batch := r.Form.Batch()
	if d.Err() == nil && (n == 13 || n == 12 && !batch) {
		d.Key(12)
		r.Group = d.Uint()
	}
	if batch {
		d.Key(13)
		r.Count = d.Uint()
	}
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("reading a record: %w", err)
	}
	if err := r.valid(); err != nil {
		return nil, err
	}
	if string(r.AppendCBOR(nil)) != string(b) {
		return nil, fmt.Errorf("reading a record: %w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	return &r, nil
}

// valid checks what the encoding alone doesn't say.
func (r *Record) valid() error {
	switch {
	case r.Type == 0:
		return fmt.Errorf("record %d has type 0", r.Seq)
	case !r.Form.valid():
		return fmt.Errorf("record %d has an unknown form %d", r.Seq, r.Form)
	case len(r.Kind) > MaxKind || !utf8.ValidString(r.Kind):
		return fmt.Errorf("the kind of record %d is longer than %d bytes or no UTF-8", r.Seq, MaxKind)
	case r.Form.Batch() != (r.Count != 0) || r.Count > MaxBatch:
		return fmt.Errorf("record %d has form %d and %d events", r.Seq, r.Form, r.Count)
	case r.Type < TypeUser && r.Form != FormInline|FormClear:
		return fmt.Errorf("record %d is the ledger's own (%s) but has form %d", r.Seq, r.Type, r.Form)
	}
	return nil
}

// Digest is the record's digest: the leaf of the epoch's tree and the link of the chain.
func (r *Record) Digest(p Profile) Hash {
	var buf [512]byte
	b := r.AppendCBOR(append(buf[:0], 0))
	return p.digest(b)
}

// digest is the digest of a record's encoding that stands behind one zero byte.
func (p Profile) digest(zeroAndCBOR []byte) Hash {
	if p == ProfileAFR {
		return sha256.Sum256(zeroAndCBOR[1:])
	}
	return sha256.Sum256(zeroAndCBOR)
}
