//go:build unix

// Package posixstore keeps a log in a directory of a POSIX file system.
//
// Files are only ever appended to, replaced by rename, or removed. A file's name is made durable with its first
// sync by syncing its directory. The lock is flock(2) on the file "ledger/lock", which holds the holder's process
// id; the kernel drops it when the holder dies. On network file systems flock may not exclude other machines: keep a
// log on a local disk.
package posixstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

const lockName = "ledger/lock"

// Store is a directory that holds a log. It implements [ledger.Store].
type Store struct {
	fs.FS
	dir string
}

var _ ledger.Store = (*Store)(nil)

// New returns the store in a directory, which is made when something is written.
func New(dir string) *Store { return &Store{FS: regular.FS(dir), dir: dir} }

func (s *Store) path(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." {
		return "", fmt.Errorf("%q is no name of a log's file", name)
	}
	return filepath.Join(s.dir, filepath.FromSlash(name)), nil
}

// Lock makes the caller the only writer.
func (s *Store) Lock() (io.Closer, error) {
	path, err := s.path(lockName)
	if err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the log: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		return nil, &ledger.LockedError{Holder: holder(f), Err: err}
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("noting the lock's holder in %s: %w", path, noSpace(err))
		}
	}
	return f, nil
}

// Locked tells whether some process has the log open for writing. It doesn't keep one out.
func (s *Store) Locked() (bool, error) {
	path, err := s.path(lockName)
	if err != nil {
		return false, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the log's writer: %w", err)
	}
	defer f.Close() // which gives the lock back
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return false, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return true, nil
	default:
		return false, fmt.Errorf("looking for the writer of %s: %w", path, err)
	}
}

func holder(f *os.File) string {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	pid := strings.TrimSpace(string(b))
	if _, perr := strconv.Atoi(pid); err != nil || perr != nil {
		return "a process that hasn't noted its id"
	}
	return "process " + pid
}

// Append opens a file for writing at its end.
func (s *Store) Append(name string) (ledger.File, error) {
	path, err := s.path(name)
	if err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, noSpace(err)
	}
	return &file{File: f, dir: filepath.Dir(path)}, nil
}

type file struct {
	*os.File
	dir   string
	named bool // the directory was synced since
}

func (f *file) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, noSpace(err)
}

func (f *file) Sync() error {
	if err := datasync(f.File); err != nil {
		return noSpace(err)
	}
	if !f.named {
		if err := syncDir(f.dir); err != nil {
			return err
		}
		f.named = true
	}
	return nil
}

func (f *file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Put replaces a file by way of a temporary one.
func (s *Store) Put(name string, data []byte) error {
	path, err := s.path(name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	tmp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return noSpace(err)
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path + ".tmp")
		return noSpace(err)
	}
	return replace(path)
}

// replace renames the temporary file. Old keys are overwritten once their name points to the new ones.
func replace(path string) error {
	var old *os.File
	if strings.HasSuffix(path, ".keys") {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		old = f
	}
	err := os.Rename(path+".tmp", path)
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if old == nil {
		return err
	}
	if err == nil {
		err = zero(old)
	}
	return errors.Join(err, old.Close())
}

// Remove overwrites a file with zeros and removes it. On copy-on-write file systems and flash the old bytes may stay
// on the medium.
func (s *Store) Remove(name string) error {
	path, err := s.path(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = zero(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func zero(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for off := int64(0); off < info.Size(); off += int64(len(buf)) {
		if _, err := f.WriteAt(buf[:min(int64(len(buf)), info.Size()-off)], off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// makeDir makes a directory durably, with those above it.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return noSpace(err)
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("syncing directory %s: %w", dir, err)
	}
	return nil
}

// noSpace marks errors that mean a full disk or quota.
func noSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ledger.ErrNoSpace, err)
	}
	return err
}
