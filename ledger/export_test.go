package ledger

import (
	"io"
	"io/fs"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// What follows lets tests take a log apart, change it, and put it together again as an attacker would who knows the
// format but not the keys.

// Manual leaves out a writer's goroutines, so that its operations have one order.
func Manual(o Options) Options {
	o.manual = true
	return o
}

// Grouped makes a writer wrap the secrets of n epochs together.
func Grouped(o Options, n int) Options {
	o.perWrap = n
	return o
}

// Forged is a log in pieces. It holds one segment.
type Forged struct {
	Gen    *Genesis
	Epochs []ForgedEpoch
}

// ForgedEpoch is an epoch in pieces.
type ForgedEpoch struct {
	Header Header
	Open   []byte // the frame that opens it
	Frames []ForgedFrame
}

// ForgedFrame is a record with the frame it was read from.
type ForgedFrame struct {
	Raw     []byte
	Rec     Record
	Payload []byte // as stored
	crc     uint32
}

// Unpack takes a log apart.
func Unpack(fsys fs.FS) *Forged {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	gen, err := loadGenesis(fsys)
	must(err)
	s, err := scanEpochs(fsys, gen)
	must(err)
	defer s.close()
	out := &Forged{Gen: gen}
	files := span{fsys: fsys}
	defer files.close()
	for {
		e, err := s.scan()
		if err == io.EOF {
			return out
		}
		must(err)
		data, err := files.read(logName(e.segment), int64(e.logOff), int64(e.logLen), nil)
		must(err)
		f := ForgedEpoch{Header: e.Header}
		_, rest, err := readOpening(data)
		must(err)
		f.Open = data[:len(data)-len(rest)]
		c := cursor{log: e.Log, profile: gen.Profile, next: e.First, prev: e.prevHead}
		c.begin(e.Epoch, e.Incarnation)
		off := e.payOff
		for len(rest) > 0 {
			var s stored
			after, err := c.readRecord(rest, &s)
			must(err)
			pay, err := files.read(payloadName(e.segment), int64(off), int64(s.size), nil)
			must(err)
			off += s.size
			f.Frames = append(f.Frames, ForgedFrame{rest[:len(rest)-len(after)], s.Record, append([]byte(nil), pay...), s.crc})
			rest = after
		}
		out.Epochs = append(out.Epochs, f)
	}
}

// Rechain gives every record from the epoch on the digest that follows from what it and those before it say.
func (f *Forged) Rechain(epoch int) {
	c := cursor{log: f.Gen.ID(), profile: f.Gen.Profile, prev: f.Gen.ID()}
	for i := range f.Epochs {
		e := &f.Epochs[i]
		c.begin(e.Header.Epoch, e.Header.Incarnation)
		if i >= epoch {
			e.Open = appendOpening(nil, &c)
		}
		for j := range e.Frames {
			r := &e.Frames[j]
			s := stored{Record: r.Rec, size: uint64(len(r.Payload)), crc: r.crc}
			raw := appendRecord(nil, &c, &s)
			if i >= epoch {
				r.Raw, r.Rec = raw, s.Record
			}
		}
	}
}

// Rehead gives every epoch from the given one on the header that follows from its records.
func (f *Forged) Rehead(epoch int) {
	prev, head := f.Gen.ID(), f.Gen.ID()
	var next uint64
	var afr Hash
	for i := range f.Epochs {
		e := &f.Epochs[i]
		var digests []Hash
		for j := range e.Frames {
			digests = append(digests, e.Frames[j].Rec.Digest(f.Gen.Profile))
		}
		if n := len(digests); n > 0 {
			head = digests[n-1]
		}
		if i >= epoch {
			h := &e.Header
			h.First, h.Count, h.Head, h.Prev, h.Root = next, uint64(len(digests)), head, prev, f.Gen.Profile.tree(digests)
			if h.AFR != nil {
				r := AFRRoot(h.Root, afr)
				h.AFR = &r
			}
		}
		if e.Header.AFR != nil {
			afr = *e.Header.AFR
		}
		next += uint64(len(digests))
		prev = e.Header.Hash()
	}
}

// Pack puts the log's files together.
func (f *Forged) Pack() (epochs, log, payloads []byte) {
	for i := range f.Epochs {
		e := &f.Epochs[i]
		before, pay := len(log), len(payloads)
		log = append(log, e.Open...)
		for _, r := range e.Frames {
			log = append(log, r.Raw...)
			payloads = append(payloads, r.Payload...)
		}
		epochs = appendEpochFrame(epochs, place{0, uint64(len(log) - before), uint64(len(payloads) - pay)}, e.Header.AppendCBOR(nil))
	}
	return epochs, log, payloads
}

// Root is the head of the log's tree.
func (f *Forged) Root() Hash {
	var t merkle.Range
	for i := range f.Epochs {
		t.Append(f.Epochs[i].Header.Hash())
	}
	return t.Root()
}

// EpochFrame is an entry of the epochs file with any header bytes.
func EpochFrame(logLen, payLen uint64, header []byte) []byte {
	return appendEpochFrame(nil, place{0, logLen, payLen}, header)
}

// SplitEpochs cuts the epochs file into places and headers.
func SplitEpochs(b []byte) (headers [][]byte, logLen, payLen []uint64) {
	for len(b) > 0 {
		p, h, rest, err := readEpochFrame(b)
		if err != nil {
			panic(err)
		}
		headers, logLen, payLen = append(headers, h), append(logLen, p.logLen), append(payLen, p.payLen)
		b = rest
	}
	return headers, logLen, payLen
}
