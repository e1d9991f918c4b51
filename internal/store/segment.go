package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// An events file is a magic line and blocks. A block is its length and its CRC-32C (little endian, 4 bytes each) and
// as many events as fit, each a uvarint length and its binary form. A block that is cut or whose checksum is wrong
// ends the file: what stands before it is whole.
const (
	magic    = "bodycam events 1\n"
	blockMax = 64 << 10 // a block is written once it holds this much
	blockTop = 64 << 20 // no block is longer: larger ones are damage
	headLen  = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrTorn tells that an events file ends in the middle of a block: the writer was cut off. What stands before it
// has been read.
var ErrTorn = errors.New("the events file ends in the middle of a block")

type segmentWriter struct {
	f   *os.File
	buf []byte // head and body of the block that is being filled; nil where blocks come whole
}

func createSegment(path string) (*segmentWriter, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the events file: %w", err)
	}
	w := &segmentWriter{f: f}
	if _, err := f.WriteString(magic); err != nil {
		f.Close()
		return nil, fmt.Errorf("beginning the events file: %w", err)
	}
	return w, nil
}

// append adds one encoded event. full tells that the block should be flushed.
func (w *segmentWriter) append(event []byte) (full bool) {
	if w.buf == nil {
		w.buf = make([]byte, headLen, blockMax*2)
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(len(event)))
	w.buf = append(w.buf, event...)
	return len(w.buf) >= blockMax
}

func (w *segmentWriter) flush() error {
	if len(w.buf) <= headLen {
		return nil
	}
	if err := w.write(w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:headLen]
	return nil
}

// write writes a block: a body behind headLen bytes of room.
func (w *segmentWriter) write(block []byte) error {
	body := block[headLen:]
	binary.LittleEndian.PutUint32(block, uint32(len(body)))
	binary.LittleEndian.PutUint32(block[4:], crc32.Checksum(body, castagnoli))
	n, err := w.f.Write(block)
	if err != nil {
		if n > 0 { // leave no half block behind
			err = errors.Join(err, w.cutBack(int64(n)))
		}
		return fmt.Errorf("writing events: %w", err)
	}
	return nil
}

// cutBack takes back what a failed write has left at the end of the file.
func (w *segmentWriter) cutBack(n int64) error {
	at, err := w.f.Seek(-n, io.SeekCurrent)
	if err != nil {
		return err
	}
	return w.f.Truncate(at)
}

func (w *segmentWriter) close() error {
	err := w.flush()
	return errors.Join(err, w.f.Sync(), w.f.Close())
}

// segmentReader reads an events file from its beginning. It may be asked again after io.EOF, and then goes on
// where the writer has got to.
type segmentReader struct {
	f     *os.File
	r     *bufio.Reader
	at    int64 // offset of the next block
	block []byte
	rest  []byte
}

func openSegment(path string) (*segmentReader, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the events: %w", err)
	}
	s := &segmentReader{f: f, r: bufio.NewReaderSize(f, 256<<10)}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(s.r, head); err != nil || string(head) != magic {
		f.Close()
		return nil, fmt.Errorf("%s is not an events file of bodycam", path)
	}
	s.at = int64(len(magic))
	return s, nil
}

// next reads the next event into e. It returns io.EOF at the end of the last whole block, and ErrTorn where more
// bytes follow it that are not a whole block.
func (s *segmentReader) next(e *bodycam.Event) error {
	b, err := s.nextRaw()
	if err != nil {
		return err
	}
	if err := bodycam.DecodeEvent(b, e); err != nil {
		return fmt.Errorf("events block before offset %d: %w", s.at, err)
	}
	return nil
}

// nextRaw returns the next event's bytes; they are valid until the next call.
func (s *segmentReader) nextRaw() ([]byte, error) {
	for len(s.rest) == 0 {
		if err := s.nextBlock(); err != nil {
			return nil, err
		}
	}
	n, k := binary.Uvarint(s.rest)
	if k <= 0 || n > uint64(len(s.rest)-k) {
		return nil, fmt.Errorf("events block before offset %d: %w: its length is wrong", s.at, bodycam.ErrEvent)
	}
	b := s.rest[k : k+int(n)]
	s.rest = s.rest[k+int(n):]
	return b, nil
}

func (s *segmentReader) nextBlock() error {
	var head [headLen]byte
	n, err := io.ReadFull(s.r, head[:])
	if err == io.EOF {
		return io.EOF
	}
	if err == nil {
		size := binary.LittleEndian.Uint32(head[:])
		if size == 0 || size > blockTop {
			return s.torn()
		}
		if cap(s.block) < int(size) {
			s.block = make([]byte, size)
		}
		s.block = s.block[:size]
		n, err = io.ReadFull(s.r, s.block)
		if err == nil {
			if crc32.Checksum(s.block, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
				return s.torn()
			}
			s.at += headLen + int64(size)
			s.rest = s.block
			return nil
		}
	}
	_ = n
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.torn()
	}
	return fmt.Errorf("reading events: %w", err)
}

// torn goes back to where the last whole block ended, so that a follower can try again.
func (s *segmentReader) torn() error {
	if _, err := s.f.Seek(s.at, io.SeekStart); err != nil {
		return fmt.Errorf("reading events: %w", err)
	}
	s.r.Reset(s.f)
	return ErrTorn
}

func (s *segmentReader) close() error { return s.f.Close() }
