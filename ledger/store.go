package ledger

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Store is where a log lives. Names are slash-separated paths of lower-case letters, digits, dots and slashes.
//
// Reading needs only the [fs.FS]: a verifier or reader takes any file system that holds a copy of the log. Files
// that Open returns MUST implement [io.ReaderAt].
type Store interface {
	fs.FS

	// Lock makes the caller the store's only writer until it closes what is returned. Where another process or
	// another writer holds the lock, it MUST return a [*LockedError] at once. The lock MUST fall when its holder
	// dies.
	Lock() (io.Closer, error)

	// Append opens a file for writing at its end and makes it, with its directories, if it isn't there. Its name
	// MUST be durable once the first Sync of the file returned.
	Append(name string) (File, error)

	// Put makes name hold exactly data, durably. After a crash the file MUST hold either all of the old or all of
	// the new bytes. Where the name ends in ".keys" the old bytes hold destroyed keys: they SHOULD be overwritten
	// as far as the medium lets them be.
	Put(name string, data []byte) error

	// Remove removes a file durably, after having overwritten what it can of it. A missing file is no error.
	Remove(name string) error
}

// File is a file that grows.
type File interface {
	// Write appends. Where it writes less than all of p it MUST return how much it wrote, and an error; for want of
	// space the error MUST wrap [ErrNoSpace].
	io.Writer
	// Sync returns once everything written is on stable storage. After an error, nothing may be assumed of what
	// was written since the last Sync that worked.
	Sync() error
	// Truncate cuts the file to that size.
	Truncate(size int64) error
	// Size is the file's present size.
	Size() (int64, error)
	io.Closer
}

// Gatherer is a [File] that appends several byte strings at once, as writev(2) does: the kernel takes one large write
// for less than many small ones. What is said of Write holds for it.
type Gatherer interface {
	Gather(bufs [][]byte) (n int, err error)
}

// ErrNoSpace is wrapped by a store's errors where the storage is full: disk, quota.
var ErrNoSpace = errors.New("no space left")

// LockedError says that another writer has the log open.
type LockedError struct {
	Holder string // who: for a POSIX store the holder's process id
	Err    error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("the log is open for writing by %s: one writer per log; end it, or read the log without opening it", e.Holder)
}

func (e *LockedError) Unwrap() error { return e.Err }

// The names within a store.
const (
	genesisName    = "ledger/genesis"
	epochsName     = "ledger/epochs"
	checkpointName = "ledger/checkpoint"
)

func logName(segment uint64) string     { return fmt.Sprintf("ledger/%08d.log", segment) }
func keysName(segment uint64) string    { return fmt.Sprintf("ledger/%08d.keys", segment) }
func payloadName(segment uint64) string { return fmt.Sprintf("payload/%08d.bin", segment) }

func chunkName(digest *Hash) string {
	h := hex.EncodeToString(digest[:])
	return "payload/" + h[:2] + "/" + h
}

// readFile reads a whole file of at most max bytes.
func readFile(fsys fs.FS, name string, max int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("reading %s: it has more than %d bytes", name, max)
	}
	return b, nil
}

// span reads files of one store at offsets and keeps the last ones open.
type span struct {
	fsys fs.FS
	name string
	file fs.File
	size int64
}

func (s *span) close() {
	if s.file != nil {
		s.file.Close()
		s.file, s.name = nil, ""
	}
}

func (s *span) open(name string) error {
	if s.file != nil && s.name == name {
		return nil
	}
	s.close()
	f, err := s.fsys.Open(name)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if _, ok := f.(io.ReaderAt); !ok {
		f.Close()
		return fmt.Errorf("reading %s: the file system can't read at an offset", name)
	}
	s.file, s.name, s.size = f, name, info.Size()
	return nil
}

// read returns n bytes at off, in buf where it has room. A range beyond the file's end gives io.ErrUnexpectedEOF.
func (s *span) read(name string, off, n int64, buf []byte) ([]byte, error) {
	if n == 0 {
		return buf[:0], nil
	}
	if err := s.open(name); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off > s.size || n > s.size-off {
		// The file may have grown since it was opened.
		info, err := s.file.Stat()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if s.size = info.Size(); off < 0 || n < 0 || off > s.size || n > s.size-off {
			return nil, fmt.Errorf("reading %s: bytes %d to %d of %d: %w", name, off, off+n, s.size, io.ErrUnexpectedEOF)
		}
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := s.file.(io.ReaderAt).ReadAt(buf, off); err != nil {
		return nil, fmt.Errorf("reading %s at %d: %w", name, off, err)
	}
	return buf, nil
}
