//go:build linux && amd64

package ptrace

import (
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// object is something in a file system, as the kernel shows it.
type object struct {
	path     string
	dev, ino uint64
	mode     uint32
	marks    bodycam.Mark
}

// cut is how a path begins whose beginning is missing.
const cut = ".../"

// inspect reads what a magic link of /proc points to.
func (t *task) inspect(link string) (o object, err error) {
	if t.p.racy() { // hold the object, so that its name and numbers belong together
		fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.unreadable(err)
			return o, err
		}
		defer unix.Close(fd)
		link = "/proc/self/fd/" + strconv.Itoa(fd)
	}
	// As it is known here: a file system that an observed process serves need not be asked.
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_TYPE|unix.STATX_MODE, &st); err != nil {
		t.unreadable(err)
		return o, err
	}
	o.dev, o.ino, o.mode = uint64(st.Dev_major)<<32|uint64(st.Dev_minor), st.Ino, uint32(st.Mode)
	o.path, err = os.Readlink(link)
	if errors.Is(err, unix.ENAMETOOLONG) {
		// The kernel tells no part of it. What follows the mark is for the caller, who may know the name.
		o.path = cut
		o.marks |= bodycam.MarkTruncated
		return o, nil
	}
	if err != nil {
		return o, err
	}
	if !strings.HasPrefix(o.path, "/") {
		o.marks |= bodycam.MarkAnonymous // pipe:[1], socket:[2], anon_inode:…
		return o, nil
	}
	if name, ok := strings.CutSuffix(o.path, " (deleted)"); ok {
		var there unix.Stat_t
		if unix.Lstat(t.proc("/root")+o.path, &there) != nil || there.Ino != o.ino || devNumber(there.Dev) != o.dev {
			o.path = name
			o.marks |= bodycam.MarkDeleted
			if strings.HasPrefix(name, "/memfd:") {
				o.marks |= bodycam.MarkAnonymous
				o.path = name[1:] // it stands in no folder
			}
		}
	}
	return o, nil
}

// devNumber turns a device number as stat gives it into the record's.
func devNumber(dev uint64) uint64 { return uint64(unix.Major(dev))<<32 | uint64(unix.Minor(dev)) }

// detached tells whether a descriptor's mount has no place in the task's namespace. Only asked once someone made such
// a mount, since it reads a table.
func (t *task) detached(fd int) bool {
	info, err := os.ReadFile(t.proc("/fdinfo/" + strconv.Itoa(fd)))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(info), "mnt_id:\t")
	id, _, _ := strings.Cut(rest, "\n")
	if !ok {
		return false
	}
	mounts, err := os.ReadFile(t.proc("/mountinfo"))
	return err == nil && !strings.HasPrefix(string(mounts), id+" ") && !strings.Contains(string(mounts), "\n"+id+" ")
}

// resolve finds what a name means to the task at this moment: name is as given, dir a descriptor or AT_FDCWD. With
// follow, a symlink at the end is followed. What can't be resolved keeps the name, made absolute, and a mark.
func (t *task) resolve(dir int, given string, follow bool) object {
	abs, known := t.absolute(dir, given)
	lost := object{path: abs, marks: bodycam.MarkUnverified}
	if !known {
		if t.tooDeep(dir, given) {
			lost.path, lost.marks = cut+path.Clean("/" + given)[1:], lost.marks|bodycam.MarkTruncated
		}
		return lost
	}
	if link, ok := t.magic(abs); ok && follow {
		if o, err := t.inspect(link); err == nil {
			return o
		}
		return lost
	}
	root, err := unix.Open(t.proc("/root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.unreadable(err)
		return lost
	}
	defer unix.Close(root)
	// /proc/self would be the recorder: say whose it is.
	in := t.ownProc(abs)
	// The root's own place, where it isn't the top of the task's mounts (chroot).
	if place, err := os.Readlink(t.proc("/root")); err == nil && place != "/" {
		if rest, ok := cutDir(in, place); ok {
			in = rest
		}
	}
	base := path.Base(in)
	if follow || base == ".." || base == "." || base == "/" || strings.HasSuffix(in, "/") {
		fd, err := openat2(root, in, unix.O_PATH|unix.O_CLOEXEC)
		if err == nil {
			defer unix.Close(fd)
			return t.seen(fd, "", lost)
		}
	}
	in = strings.TrimRight(in, "/")
	fd, err := openat2(root, in[:strings.LastIndexByte(in, '/')+1], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return lost
	}
	defer unix.Close(fd)
	return t.seen(fd, base, lost)
}

// seen describes an open folder's entry, or with no name the open object itself.
func (t *task) seen(fd int, name string, lost object) object {
	o, err := t.inspect("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || strings.HasPrefix(o.path, "/proc/"+strconv.Itoa(int(t.s.self.PID))+"/") {
		return lost
	}
	if name == "" {
		return o
	}
	o = object{path: strings.TrimSuffix(o.path, "/") + "/" + name, marks: o.marks}
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		o.dev, o.ino, o.mode = devNumber(st.Dev), st.Ino, st.Mode
	}
	return o
}

// absolute puts the folder before a relative name. It doesn't clean the name: a ".." after a symlink must stay.
func (t *task) absolute(dir int, given string) (string, bool) {
	link, rest, ok := t.through(given)
	switch {
	case ok:
		given = rest
	case strings.HasPrefix(given, "/"):
		return given, true
	case dir == unix.AT_FDCWD:
		link = t.proc("/cwd")
	default:
		link = t.procFD(dir)
	}
	o, err := t.inspect(link)
	if err != nil || o.marks&(bodycam.MarkAnonymous|bodycam.MarkTruncated|bodycam.MarkDeleted) != 0 || !strings.HasPrefix(o.path, "/") {
		return given, false
	}
	if given == "" {
		return o.path, true
	}
	return strings.TrimSuffix(o.path, "/") + "/" + given, true
}

// tooDeep tells whether a relative name starts from a folder whose path the kernel doesn't tell for its length.
func (t *task) tooDeep(dir int, given string) bool {
	if _, _, ok := t.through(given); ok || strings.HasPrefix(given, "/") {
		return false
	}
	link := t.proc("/cwd")
	if dir != unix.AT_FDCWD {
		link = t.procFD(dir)
	}
	o, err := t.inspect(link)
	return err == nil && o.marks&bodycam.MarkTruncated != 0
}

// folder is the path of the task's working directory, cut marked as in a path.
func (t *task) folder() string {
	dir, err := os.Readlink(t.proc("/cwd"))
	if errors.Is(err, unix.ENAMETOOLONG) {
		return cut
	}
	return dir
}

// ownProc writes the task's pid for the names by which it would reach its own /proc entry.
func (t *task) ownProc(name string) string {
	for _, alias := range []string{"/proc/self", "/proc/thread-self"} {
		if rest, ok := cutDir(name, alias); ok {
			return "/proc/" + strconv.Itoa(t.insidePID()) + strings.TrimSuffix(rest, "/")
		}
	}
	return name
}

// through divides a name that leads through one of the task's own magic links to a folder, as /proc/self/fd/7/name.
func (t *task) through(name string) (link, rest string, ok bool) {
	for _, alias := range []string{"/proc/self", "/proc/thread-self", "/proc/" + strconv.Itoa(t.insidePID())} {
		in, ok := cutDir(name, alias)
		if !ok {
			continue
		}
		if rest, ok := strings.CutPrefix(in, "/cwd/"); ok {
			return t.proc("/cwd"), rest, true
		}
		in, ok = strings.CutPrefix(in, "/fd/")
		fd, rest, found := strings.Cut(in, "/")
		if n, err := strconv.Atoi(fd); ok && found && err == nil && n >= 0 {
			return t.procFD(n), rest, true
		}
	}
	return "", "", false
}

// magic tells of names of the task's own magic links, which can't be followed from elsewhere.
func (t *task) magic(name string) (string, bool) {
	for _, alias := range []string{"/proc/self", "/proc/thread-self", "/proc/" + strconv.Itoa(t.insidePID())} {
		if rest, ok := cutDir(name, alias); ok {
			if fd, isFD := strings.CutPrefix(rest, "/fd/"); isFD && !strings.Contains(fd, "/") || rest == "/cwd" || rest == "/root" || rest == "/exe" {
				return t.proc(rest), true
			}
		}
	}
	if fd, ok := strings.CutPrefix(name, "/dev/fd/"); ok && !strings.Contains(fd, "/") {
		return t.proc("/fd/" + fd), true
	}
	for i, std := range []string{"/dev/stdin", "/dev/stdout", "/dev/stderr"} {
		if name == std {
			return t.procFD(i), true
		}
	}
	return "", false
}

// insidePID is the pid of the task's process in its own pid namespace.
func (t *task) insidePID() int {
	if t.p.nsPID == 0 {
		t.ids = false
		t.identify()
	}
	if t.p.nsPID == 0 {
		return int(t.p.id.PID)
	}
	return t.p.nsPID
}

// openat2 opens a name as a process with that root would.
func openat2(root int, name string, flags uint64) (int, error) {
	if name == "" {
		name = "/"
	}
	return unix.Openat2(root, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT})
}

// cutDir takes a folder off the front of a path; the rest begins with a slash.
func cutDir(p, dir string) (string, bool) {
	rest, ok := strings.CutPrefix(p, dir)
	if !ok || dir == "" || rest != "" && rest[0] != '/' {
		return "", false
	}
	if rest == "" {
		rest = "/"
	}
	return rest, true
}
