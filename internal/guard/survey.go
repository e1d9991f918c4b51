//go:build linux

package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"

	"golang.org/x/sys/unix"
)

// A file that is renamed or linked goes by another name afterwards, and no permission is asked for that. It stays the
// same file, though: what a survey of the sandbox found is known by device and inode, whatever it is called later.

// Found is a file of a survey.
type Found struct {
	Dev, Ino uint64 // as in Access; a file on an overlay can be told of twice, under the number that it gets when it is linked or renamed
	Path     string
}

const (
	mostDeep  = 512       // directories on the way to a file
	mostCopy  = 256 << 20 // bytes that a survey has an overlay copy
	mostFiles = 4096      // likewise
)

// Want says what a survey is to find out of a file.
type Want int

// The wants.
const (
	Nothing Want = iota
	Itself       // what it is, except on an overlay, where it may become another when it is renamed or linked
	Always       // what it is, and on an overlay what it becomes then, for which it is copied
)

// Survey tells of the files and directories that a sandbox can write to or rename, as far as want says so, each with its
// name as the sandbox sees it. Root is the host's id of the sandbox's root user. byName is how many files of an overlay
// would have had to be copied beyond what is reasonable: they are told of as they are now. Call it before Watch, and
// before the commands that are to be watched.
func Survey(ctx context.Context, init int, root uint32, want func(path string) Want, tell func(Found) error) (byName int, err error) {
	places, err := placesOf(init)
	if err != nil {
		return 0, fmt.Errorf("surveying the sandbox: %w", err)
	}
	defer closeAll(places)
	s := &survey{ctx: ctx, want: want, tell: tell, points: map[string]bool{}}
	for _, p := range places {
		s.points[p.point] = true
	}
	done := make(chan error)
	go func() { done <- s.all(places, int(root)) }()
	err = <-done
	return s.byName, err
}

// all goes through the mounts as a user that the sandbox knows: nobody else can link its files. The thread ends with it.
func (s *survey) all(places []place, root int) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secbitNoSetuidFixup, 0, 0, 0); err != nil { // keep the capabilities
		return fmt.Errorf("surveying the sandbox: %w", err)
	}
	if _, err := unix.SetfsgidRetGid(root); err != nil {
		return fmt.Errorf("surveying the sandbox: %w", err)
	}
	if _, err := unix.SetfsuidRetUid(root); err != nil {
		return fmt.Errorf("surveying the sandbox: %w", err)
	}
	for _, p := range places {
		if !p.asks || !p.writable {
			continue
		}
		s.overlay = p.fstype == "overlay"
		if err := s.mount(p); err != nil {
			return fmt.Errorf("surveying %s of the sandbox: %w", p.point, err)
		}
	}
	return nil
}

const secbitNoSetuidFixup = 1 << 2 // linux/securebits.h

type survey struct {
	ctx     context.Context
	want    func(string) Want
	tell    func(Found) error
	points  map[string]bool // where mounts are: they have their own turn
	overlay bool
	copied  int64
	files   int
	byName  int
}

func (s *survey) mount(p place) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(p.at.Fd()), &st); err != nil {
		return err
	}
	if s.want(p.point) != Nothing {
		if err := s.tell(Found{device(&st), st.Ino, p.point}); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	dir, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.at.Fd()))
	if err != nil {
		return err
	}
	return s.dir(dir, p.point, 0)
}

// dir goes through a directory and closes it.
func (s *survey) dir(dir *os.File, name string, depth int) error {
	defer dir.Close()
	if depth > mostDeep {
		return fmt.Errorf("%s lies deeper than %d directories", name, mostDeep)
	}
	for {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		list, err := dir.ReadDir(1024)
		for _, e := range list {
			if err := s.entry(int(dir.Fd()), e, path.Join(name, e.Name()), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *survey) entry(dir int, e fs.DirEntry, whole string, depth int) error {
	if s.points[whole] || !e.Type().IsRegular() && !e.IsDir() {
		return nil
	}
	if w := s.want(whole); w == Always || w == Itself && !s.overlay {
		if err := s.found(dir, e.Name(), whole, w == Always); err != nil {
			return ignoreGone(err)
		}
	}
	if !e.IsDir() {
		return nil
	}
	fd, err := unix.Openat(dir, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(err)
	}
	return s.dir(os.NewFile(uintptr(fd), whole), whole, depth+1)
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// found tells of one file.
func (s *survey) found(dir int, name, whole string, always bool) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := s.tell(Found{device(&st), st.Ino, whole}); err != nil {
		return err
	}
	if !always || !s.overlay || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	if s.files >= mostFiles || s.copied+st.Size > mostCopy {
		s.byName++
		return nil
	}
	s.files++
	s.copied += st.Size
	linked, err := s.link(dir, name)
	if err != nil {
		return fmt.Errorf("%s: %w", whole, err)
	}
	return s.tell(Found{device(&linked), linked.Ino, whole})
}

// link tells what a file of an overlay is once it has a further name, by giving it one for a moment. The overlay copies
// it then, and it stays copied.
func (s *survey) link(dir int, name string) (st unix.Stat_t, err error) {
	var of unix.Stat_t
	if err := unix.Fstat(dir, &of); err != nil {
		return st, err
	}
	tmp := ".bodycam-" + rand.Text()
	if err := unix.Linkat(dir, name, dir, tmp, 0); err != nil {
		return st, err
	}
	err = unix.Fstatat(dir, tmp, &st, unix.AT_SYMLINK_NOFOLLOW)
	err = errors.Join(err, unix.Unlinkat(dir, tmp, 0))
	return st, errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", dir), []unix.Timespec{of.Atim, of.Mtim}, 0))
}
