// Package ledgertest helps to test what writes ledgers: a store in memory that loses what was not synced, and that
// fails or dies at any operation one chooses.
package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
)

// Fault is what goes wrong with an operation.
type Fault uint8

// The faults.
const (
	None       Fault = iota
	Fail             // nothing is stored, an error is returned
	FailStored       // all is stored, and yet an error is returned
	NoSpace          // half of a write is stored, other operations not at all; the error is [ledger.ErrNoSpace]
	Kill             // nothing is stored, and this and every later operation fails: the process is dead
)

func (f Fault) String() string {
	return [...]string{"none", "fail", "fail-stored", "no-space", "kill"}[f]
}

// ErrInjected is wrapped by the errors of faults.
var ErrInjected = errors.New("injected fault")

// Op is an operation that can go wrong.
type Op struct {
	N    int    // from 0, in the order of the store's life
	Kind string // "write", "sync", "truncate", "put", "remove", "append"
	Name string // of the file
}

// Store is a log's store in memory. It is safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	files  map[string]*memFile
	locked bool
	dead   bool
	ops    int
	plan   func(Op) Fault
}

var _ ledger.Store = (*Store)(nil)

type memFile struct {
	data   []byte
	synced []byte // what a crash leaves
	named  bool   // a crash leaves the name
}

// New returns an empty store.
func New() *Store { return &Store{files: map[string]*memFile{}} }

// Plan sets what goes wrong from now on.
func (s *Store) Plan(plan func(Op) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

// Ops is how many operations there were.
func (s *Store) Ops() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops
}

// Crash returns the store as the next process finds it: unlocked, without faults, and with what was synced. keep says
// how many of a file's unsynced bytes survive; nil: none.
func (s *Store) Crash(keep func(name string, unsynced int) int) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := New()
	for name, f := range s.files {
		data := f.synced
		if bytes.HasPrefix(f.data, f.synced) && keep != nil {
			data = f.data[:len(f.synced)+keep(name, len(f.data)-len(f.synced))]
		}
		if f.named || len(data) > 0 {
			out.files[name] = &memFile{data: bytes.Clone(data), synced: bytes.Clone(data), named: true}
		}
	}
	return out
}

// Clone returns a copy of the store with all that was written, synced or not, as a reader beside the writer sees it.
func (s *Store) Clone() *Store {
	return s.Crash(func(_ string, n int) int { return n })
}

// Names lists the files, sorted.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.files))
}

// Bytes returns a copy of a file's bytes, nil where there is none.
func (s *Store) Bytes(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[name]; f != nil {
		return bytes.Clone(f.data)
	}
	return nil
}

// Set makes a file hold data, durably and without counting as an operation. Nil removes it.
func (s *Store) Set(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data == nil {
		delete(s.files, name)
		return
	}
	s.files[name] = &memFile{data: bytes.Clone(data), synced: bytes.Clone(data), named: true}
}

// step counts an operation and says what goes wrong with it. The lock is held.
func (s *Store) step(kind, name string) (Fault, error) {
	op := Op{s.ops, kind, name}
	s.ops++
	fault := None
	if s.dead {
		fault = Kill
	} else if s.plan != nil {
		fault = s.plan(op)
	}
	switch fault {
	case None:
		return None, nil
	case Kill:
		s.dead = true
	case NoSpace:
		return fault, fmt.Errorf("%s %s: %w: %w", kind, name, ledger.ErrNoSpace, ErrInjected)
	}
	return fault, fmt.Errorf("%s %s: %s: %w", kind, name, fault, ErrInjected)
}

// Lock implements [ledger.Store].
func (s *Store) Lock() (io.Closer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked {
		return nil, &ledger.LockedError{Holder: "another writer of this process"}
	}
	s.locked = true
	return unlock{s}, nil
}

type unlock struct{ s *Store }

func (u unlock) Close() error {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.s.locked = false
	return nil
}

// Append implements [ledger.Store].
func (s *Store) Append(name string) (ledger.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault, err := s.step("append", name)
	if err != nil && fault != FailStored {
		return nil, err
	}
	if s.files[name] == nil {
		s.files[name] = &memFile{}
	}
	if err != nil {
		return nil, err
	}
	return &handle{s, name, s.files[name]}, nil
}

// Put implements [ledger.Store].
func (s *Store) Put(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault, err := s.step("put", name)
	if err == nil || fault == FailStored {
		s.files[name] = &memFile{data: bytes.Clone(data), synced: bytes.Clone(data), named: true}
	}
	return err
}

// Remove implements [ledger.Store].
func (s *Store) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault, err := s.step("remove", name)
	if err == nil || fault == FailStored {
		delete(s.files, name)
	}
	return err
}

type handle struct {
	s    *Store
	name string
	f    *memFile
}

// Gather implements [ledger.Gatherer]: a fault may cut it anywhere.
func (h *handle) Gather(bufs [][]byte) (int, error) { return h.Write(bytes.Join(bufs, nil)) }

func (h *handle) Write(p []byte) (int, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	fault, err := h.s.step("write", h.name)
	n := 0
	switch {
	case err == nil, fault == FailStored:
		n = len(p)
	case fault == NoSpace:
		n = len(p) / 2
	}
	h.f.data = append(h.f.data, p[:n]...)
	return n, err
}

func (h *handle) Sync() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	fault, err := h.s.step("sync", h.name)
	if err == nil || fault == FailStored {
		h.f.synced, h.f.named = bytes.Clone(h.f.data), true
	}
	return err
}

func (h *handle) Truncate(size int64) error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	fault, err := h.s.step("truncate", h.name)
	if err == nil || fault == FailStored {
		h.f.data = h.f.data[:size]
	}
	return err
}

func (h *handle) Size() (int64, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return int64(len(h.f.data)), nil
}

func (h *handle) Close() error { return nil }

// Open implements [fs.FS].
func (s *Store) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	// Appends only ever add behind what the reader sees, so that it needs no copy.
	return &openFile{Reader: bytes.NewReader(f.data[:len(f.data):len(f.data)]), name: path.Base(name)}, nil
}

// openFile is a file as it was when it was opened.
type openFile struct {
	*bytes.Reader
	name string
}

func (f *openFile) Stat() (fs.FileInfo, error) { return info{f.name, f.Reader.Size()}, nil }
func (f *openFile) Close() error               { return nil }

type info struct {
	name string
	size int64
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0o600 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }

// IsPayload tells whether a file of a log holds payloads.
func IsPayload(name string) bool { return strings.HasPrefix(name, "payload/") }
