package ledger

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Scanning is what recovery, reading and verification share: one reading of the epochs file, one of a segment.

// Flaw is where a log isn't what it claims to be.
type Flaw struct {
	Epoch uint64
	// Seq is the first bad record, or, where Exact is false, the first that can be bad: what is false is the epoch
	// as a whole.
	Seq   uint64
	Exact bool
	What  string
}

func (f *Flaw) Error() string {
	if f.Exact {
		return fmt.Sprintf("record %d (epoch %d): %s", f.Seq, f.Epoch, f.What)
	}
	return fmt.Sprintf("epoch %d, from record %d on: %s", f.Epoch, f.Seq, f.What)
}

// loadGenesis reads a log's genesis.
func loadGenesis(fsys fs.FS) (*Genesis, error) {
	b, err := readFile(fsys, genesisName, 64<<10)
	if err != nil {
		return nil, fmt.Errorf("reading the log's genesis: %w", err)
	}
	g, err := ParseGenesis(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return g, nil
}

// entry is an entry of the epochs file, with what follows from those before it.
type entry struct {
	Header
	place
	hash     Hash
	logOff   uint64 // of the epoch within its segment's log file
	payOff   uint64 // and payload file
	prevHead Hash   // digest of the record before the epoch
	end      int64  // of the entry within the epochs file
}

// epochScanner reads the epochs file entry by entry and checks each against those before it.
type epochScanner struct {
	gen  *Genesis
	id   Hash
	file io.Closer
	in   *bufio.Reader
	buf  []byte
	off  int64

	// What the next entry must continue.
	epoch   uint64
	next    uint64
	prev    Hash
	head    Hash
	afr     Hash
	segment place
}

// scanEpochs begins to read the epochs file. A log without one has no epochs.
func scanEpochs(fsys fs.FS, gen *Genesis) (*epochScanner, error) {
	id := gen.ID()
	s := &epochScanner{gen: gen, id: id, prev: id, head: id}
	return s, s.open(fsys)
}

// open opens the file to go on where the scanner stands.
func (s *epochScanner) open(fsys fs.FS) error {
	f, err := fsys.Open(epochsName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.in = nil
		return nil
	case err != nil:
		return fmt.Errorf("reading the log's epochs: %w", err)
	}
	var in io.Reader = f
	if s.off > 0 {
		ra, ok := f.(io.ReaderAt)
		if !ok {
			f.Close()
			return errors.New("reading the log's epochs: the file system can't read at an offset")
		}
		in = io.NewSectionReader(ra, s.off, 1<<62)
	}
	s.file, s.in = f, bufio.NewReaderSize(in, 64<<10)
	return nil
}

func (s *epochScanner) close() {
	if s.file != nil {
		s.file.Close()
		s.file, s.in = nil, nil
	}
}

// scan returns the next entry. At the end the error is io.EOF; errTorn where the file ends inside an entry; a *Flaw
// where the entry isn't what must come next.
func (s *epochScanner) scan() (*entry, error) {
	if s.in == nil {
		return nil, io.EOF
	}
	frame, err := s.frame()
	if err != nil {
		return nil, err
	}
	p, enc, _, err := readEpochFrame(frame)
	if err != nil {
		return nil, s.flaw("its entry in the epochs file is damaged: %v", err)
	}
	h, err := ParseHeader(enc)
	if err != nil {
		return nil, s.flaw("%v", err)
	}
	e := &entry{Header: *h, place: p, hash: headerHash(enc), prevHead: s.head}
	if err := s.check(e); err != nil {
		return nil, err
	}
	if p.segment != s.segment.segment {
		s.segment = place{segment: p.segment}
	}
	e.logOff, e.payOff = s.segment.logLen, s.segment.payLen
	s.segment.logLen += p.logLen
	s.segment.payLen += p.payLen
	s.off += int64(len(frame))
	e.end = s.off
	s.epoch, s.next, s.prev, s.head = h.Epoch+1, h.First+h.Count, e.hash, h.Head
	return e, nil
}

// frame reads one frame whole.
func (s *epochScanner) frame() ([]byte, error) {
	head, err := s.in.Peek(binary.MaxVarintLen32)
	if len(head) == 0 {
		if err == io.EOF {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("reading the log's epochs: %w", err)
	}
	n, size := binary.Uvarint(head)
	if size <= 0 || n == 0 || n > maxEpochFrame {
		if size == 0 && err == io.EOF {
			return nil, errTorn
		}
		return nil, s.flaw("its entry in the epochs file has no length")
	}
	whole := size + int(n) + 4
	if cap(s.buf) < whole {
		s.buf = make([]byte, whole)
	}
	s.buf = s.buf[:whole]
	if _, err := io.ReadFull(s.in, s.buf); err != nil {
		if err == io.ErrUnexpectedEOF {
			return nil, errTorn
		}
		return nil, fmt.Errorf("reading the log's epochs: %w", err)
	}
	return s.buf, nil
}

func (s *epochScanner) flaw(format string, args ...any) *Flaw {
	return &Flaw{Epoch: s.epoch, Seq: s.next, What: fmt.Sprintf(format, args...)}
}

func (s *epochScanner) check(e *entry) error {
	switch {
	case e.Log != s.id:
		return s.flaw("its header belongs to another log")
	case e.Epoch != s.epoch:
		return s.flaw("epoch %d stands where epoch %d should", e.Epoch, s.epoch)
	case e.First != s.next:
		return s.flaw("its header begins at record %d", e.First)
	case e.Prev != s.prev:
		return s.flaw("its header doesn't follow the header before it")
	case e.Count > s.gen.EpochRecords:
		return s.flaw("it claims %d records, more than the %d the genesis allows", e.Count, s.gen.EpochRecords)
	case e.Count == 0 && e.Head != s.head:
		return s.flaw("it is empty and yet moves the chain's head")
	case (e.AFR != nil) != (s.gen.Profile == ProfileAFR):
		return s.flaw("its header isn't of profile %s", s.gen.Profile)
	case e.segment != s.segment.segment && e.segment != s.segment.segment+1:
		return s.flaw("it lies in segment %d after segment %d", e.segment, s.segment.segment)
	case e.logLen > MaxEpoch*(maxFrame+8) || e.payLen > 1<<40:
		return s.flaw("it claims %d bytes of records and %d of payloads", e.logLen, e.payLen)
	}
	if e.AFR != nil {
		if *e.AFR != AFRRoot(e.Root, s.afr) {
			return s.flaw("its R_t doesn't follow from its M_t and the R_t before")
		}
		s.afr = *e.AFR
	}
	return nil
}

// walk reads the records of a sealed epoch from its bytes and hands each to visit with the offset of its payload.
// It returns a *Flaw where they aren't what the header commits to, or visit's error.
func (e *entry) walk(gen *Genesis, data []byte, c *cursor, visit func(s *stored, payOff uint64) error) error {
	c.log, c.profile, c.next, c.prev = e.Log, gen.Profile, e.First, e.prevHead
	c.begin(e.Epoch, e.Incarnation)
	o, rest, err := readOpening(data)
	if err != nil || o != (opening{e.Epoch, e.First, e.Incarnation, e.prevHead}) {
		return &Flaw{Epoch: e.Epoch, Seq: e.First, What: "the frame that opens it is false"}
	}
	digests := c.digests[:0]
	payOff := e.payOff
	var s stored
	for i := range e.Count {
		seq := e.First + i
		if rest, err = c.readRecord(rest, &s); err != nil {
			return &Flaw{e.Epoch, seq, true, frameFault(err)}
		}
		digests = append(digests, s.digest)
		if s.size > e.payOff+e.payLen-payOff {
			return &Flaw{e.Epoch, seq, true, "its payload lies beyond its epoch's"}
		}
		if visit != nil {
			if err := visit(&s, payOff); err != nil {
				return err
			}
		}
		payOff += s.size
	}
	c.digests = digests
	switch {
	case len(rest) != 0:
		return &Flaw{e.Epoch, e.First + e.Count, true, "there are more records than the epoch's header says"}
	case payOff != e.payOff+e.payLen:
		return &Flaw{Epoch: e.Epoch, Seq: e.First, What: "its payloads take other room than its entry says"}
	case c.prev != e.Head:
		return &Flaw{Epoch: e.Epoch, Seq: e.First, What: "its records lead to another chain head than its header's"}
	case gen.Profile.tree(digests) != e.Root:
		return &Flaw{Epoch: e.Epoch, Seq: e.First, What: "its records lead to another root than its header's"}
	}
	return nil
}

func frameFault(err error) string {
	switch {
	case errors.Is(err, errCheck):
		return "its digest isn't what was recorded"
	case errors.Is(err, errTorn):
		return "it is missing"
	}
	return "its bytes are no record: " + err.Error()
}

func (p Profile) tree(digests []Hash) Hash {
	if p == ProfileAFR {
		return AFRTree(digests)
	}
	return merkle.Root(digests)
}

// checkPayload tells whether a record's payload bytes are all there as they were stored.
func checkPayload(f *span, segment uint64, s *stored, off uint64, buf []byte) ([]byte, error) {
	if s.size == 0 {
		return buf, nil
	}
	b, err := f.read(payloadName(segment), int64(off), int64(s.size), buf)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, fs.ErrNotExist) {
			return buf, fmt.Errorf("%w: %w", ErrMissing, err)
		}
		return buf, err
	}
	if crc32.Checksum(b, castagnoli) != s.crc {
		return b, fmt.Errorf("%w: its bytes aren't those that were stored", ErrPayload)
	}
	return b, nil
}
