// Package regular opens files of a directory that somebody else may have filled: a run, a mirror's copy, a bundle. A named
// pipe or a device in a file's place is refused where it would keep the reader waiting for good, and so is a symbolic
// link, which would have something else judged than what lies there.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNot is wrapped where something else than a regular file lies in a file's place.
var ErrNot = errors.New("not a regular file")

// Open opens a regular file for reading. The last part of its path must not be a symbolic link.
func Open(path string) (*os.File, error) { return open(path, true, false) }

// ReadFile reads a file as [Open] opens it.
func ReadFile(path string) ([]byte, error) { return read(path, true) }

// ReadNamed reads a regular file that the reader's own user named. It may be named by a symbolic link.
func ReadNamed(path string) ([]byte, error) { return read(path, false) }

func read(path string, strict bool) ([]byte, error) {
	f, err := open(path, strict, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func open(path string, strict, folders bool) (*os.File, error) {
	flags := os.O_RDONLY | nonblock
	if strict {
		flags |= nofollow
		// Said before it is opened, for a better message; what counts where the platform has it is the flag.
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, link(path)
		}
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() && !(folders && info.IsDir()) {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but a %s: nothing is read from it", ErrNot, kind(info.Mode()))}
	}
	return f, nil
}

func link(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but a symbolic link to something else: put the file itself there", ErrNot)}
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// FS is the file system of a directory, which itself may be named by a symbolic link; no file or folder in it may.
type FS string

// Open implements [fs.FS]. What it opens is an *os.File.
func (dir FS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) || filepath.Separator != '/' && strings.ContainsAny(name, `\:`) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return os.Open(string(dir))
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		part := filepath.Join(string(dir), filepath.FromSlash(name[:i]))
		if info, err := os.Lstat(part); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, link(part)
		}
	}
	f, err := open(filepath.Join(string(dir), filepath.FromSlash(name)), true, true)
	if err != nil {
		return nil, err // not f: a nil *os.File isn't a nil fs.File
	}
	return f, nil
}
