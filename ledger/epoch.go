package ledger

import (
	"crypto/sha256"
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// MaxEpoch is the most records that an epoch may have.
const MaxEpoch = 1 << 16

// maxSensors bounds the coverage counters of an epoch.
const maxSensors = 256

// epochTag separates epoch headers from everything else that is hashed.
const epochTag = "bodycam-ledger/v1 epoch\n"

// Reason says why an epoch was sealed.
type Reason uint64

// The reasons.
const (
	SealCount     Reason = 1 // it was full
	SealAge       Reason = 2 // it was old
	SealAsked     Reason = 3 // the program asked for it
	SealHeartbeat Reason = 4 // nothing had happened for long
	SealClose     Reason = 5 // the log ended
	SealRecovered Reason = 6 // a later incarnation found it unsealed: its writer was cut off
)

func (r Reason) String() string {
	names := [...]string{"", "count", "age", "asked", "heartbeat", "close", "recovered"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason %d", uint64(r))
}

// Coverage counts what a sensor saw since the incarnation began. Totals never fall within an incarnation.
type Coverage struct {
	Sensor  string `json:"sensor"`
	Seen    uint64 `json:"seen"`
	Emitted uint64 `json:"emitted"`
	Lost    uint64 `json:"lost"`
}

// Header closes an epoch and commits to all of it. Its hash is a leaf of the log's tree.
type Header struct {
	Log         Hash
	Epoch       uint64 // from 0, without gaps
	Incarnation uint64
	First       uint64 // sequence number of the first record, or of the next one where the epoch is empty
	Count       uint64
	Root        Hash // head of the tree over the records' digests
	Head        Hash // digest of the last record of the log so far
	Prev        Hash // hash of the header before; of the genesis for the first
	Reason      Reason
	Opened      int64 // wall clock
	Closed      int64 // wall clock
	Mono        int64 // monotonic clock at Closed
	Coverage    []Coverage
	// AFR is the epoch root R_t of the published equations; only in ProfileAFR.
	AFR *Hash
}

// AppendCBOR appends the header's one encoding.
func (h *Header) AppendCBOR(b []byte) []byte {
	n := 13
	if h.AFR != nil {
		n++
	}
	b = dcbor.AppendMap(b, n)
	b = dcbor.AppendBytes(append(b, 1), h.Log[:])
	b = dcbor.AppendUint(append(b, 2), h.Epoch)
	b = dcbor.AppendUint(append(b, 3), h.Incarnation)
	b = dcbor.AppendUint(append(b, 4), h.First)
	b = dcbor.AppendUint(append(b, 5), h.Count)
	b = dcbor.AppendBytes(append(b, 6), h.Root[:])
	b = dcbor.AppendBytes(append(b, 7), h.Head[:])
	b = dcbor.AppendBytes(append(b, 8), h.Prev[:])
	b = dcbor.AppendUint(append(b, 9), uint64(h.Reason))
	b = dcbor.AppendInt(append(b, 10), h.Opened)
	b = dcbor.AppendInt(append(b, 11), h.Closed)
	b = dcbor.AppendInt(append(b, 12), h.Mono)
	b = dcbor.AppendArray(append(b, 13), len(h.Coverage))
	for i := range h.Coverage {
		c := &h.Coverage[i]
		b = dcbor.AppendArray(b, 4)
		b = dcbor.AppendText(b, c.Sensor)
		b = dcbor.AppendUint(b, c.Seen)
		b = dcbor.AppendUint(b, c.Emitted)
		b = dcbor.AppendUint(b, c.Lost)
	}
	if h.AFR != nil {
		b = dcbor.AppendBytes(append(b, 14), h.AFR[:])
	}
	return b
}

// ParseHeader reads a header's encoding. It accepts no other encoding of the same header.
func ParseHeader(b []byte) (*Header, error) {
	d := dcbor.NewDecoder(b)
	var h Header
	n := d.Map()
	d.Key(1)
	d.Fixed(h.Log[:])
	d.Key(2)
	h.Epoch = d.Uint()
	d.Key(3)
	h.Incarnation = d.Uint()
	d.Key(4)
	h.First = d.Uint()
	d.Key(5)
	h.Count = d.Uint()
	d.Key(6)
	d.Fixed(h.Root[:])
	d.Key(7)
	d.Fixed(h.Head[:])
	d.Key(8)
	d.Fixed(h.Prev[:])
	d.Key(9)
	h.Reason = Reason(d.Uint())
	d.Key(10)
	h.Opened = d.Int()
	d.Key(11)
	h.Closed = d.Int()
	d.Key(12)
	h.Mono = d.Int()
	d.Key(13)
	for range d.Array() {
		if d.Array() != 4 || d.Err() != nil {
			break // the re-encoding below differs
		}
		h.Coverage = append(h.Coverage, Coverage{d.Text(), d.Uint(), d.Uint(), d.Uint()})
	}
	if n == 14 && d.Err() == nil {
		h.AFR = new(Hash)
		d.Key(14)
		d.Fixed(h.AFR[:])
	}
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("reading an epoch header: %w", err)
	}
	if string(h.AppendCBOR(nil)) != string(b) {
		return nil, fmt.Errorf("reading an epoch header: %w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	return &h, h.valid()
}

func (h *Header) valid() error {
	if h.Count > MaxEpoch || h.First+h.Count < h.First {
		return fmt.Errorf("epoch %d claims %d records from %d", h.Epoch, h.Count, h.First)
	}
	if h.Reason < SealCount || h.Reason > SealRecovered {
		return fmt.Errorf("epoch %d was sealed for an unknown %s", h.Epoch, h.Reason)
	}
	if len(h.Coverage) > maxSensors {
		return fmt.Errorf("epoch %d counts for %d sensors, more than %d", h.Epoch, len(h.Coverage), maxSensors)
	}
	for i := 1; i < len(h.Coverage); i++ {
		if h.Coverage[i-1].Sensor >= h.Coverage[i].Sensor {
			return fmt.Errorf("the sensors of epoch %d aren't sorted", h.Epoch)
		}
	}
	return nil
}

// Hash is SHA-256(0x00 ‖ "bodycam-ledger/v1 epoch\n" ‖ encoding): the RFC 9162 leaf hash of the tagged header.
func (h *Header) Hash() Hash { return headerHash(h.AppendCBOR(nil)) }

func headerHash(encoding []byte) Hash {
	b := make([]byte, 0, 1+len(epochTag)+len(encoding))
	b = append(b, 0)
	b = append(b, epochTag...)
	return sha256.Sum256(append(b, encoding...))
}
