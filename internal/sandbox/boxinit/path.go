//go:build linux

package boxinit

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is returned for what is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// OpenPath finds a name below dir without leaving it, whatever links say, and without opening what it finds: a device
// or fifo does nothing.
func OpenPath(dir *os.File, name string, flags uint64) (*os.File, error) {
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

// OpenRegular opens a regular file for reading, below dir.
func OpenRegular(dir *os.File, name string) (*os.File, error) {
	p, err := OpenPath(dir, name, 0)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(p.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s: %w", name, ErrNotRegular)
	}
	return Reopen(p, unix.O_RDONLY)
}

// Reopen turns an O_PATH file into one that can be read: the same file, whatever its name leads to by now.
func Reopen(p *os.File, flags int) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(p.Fd())), flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), p.Name()), nil
}
