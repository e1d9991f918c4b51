//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var errNotRegular = errors.New("not a regular file")

// openPath finds a name below dir without leaving it, whatever links say, and without opening what it finds: a device
// or fifo does nothing.
func openPath(dir *os.File, name string, flags uint64) (*os.File, error) {
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		if errors.Is(err, unix.EAGAIN) && try < 100 { // a rename elsewhere raced with the look-up
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// openInRoot opens a regular file for reading, below dir.
func openInRoot(dir *os.File, name string) (*os.File, error) {
	p, err := openPath(dir, name, 0)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(p.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s: %w", name, errNotRegular)
	}
	return reopen(p, unix.O_RDONLY)
}

// reopen turns an O_PATH file into one that can be read: the same file, whatever its name leads to by now.
func reopen(p *os.File, flags int) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(p.Fd())), flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), p.Name()), nil
}

func readLimited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	if b == nil {
		b = []byte{}
	}
	return b, err
}

func (b *Box) openFile(name string) (*os.File, error) {
	return openInRoot(b.root, strings.TrimPrefix(name, "/"))
}

func (b *Box) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	p, err := openPath(b.root, strings.TrimPrefix(name, "/"), 0)
	if err != nil {
		return st, err
	}
	defer p.Close()
	return st, unix.Fstat(int(p.Fd()), &st)
}
