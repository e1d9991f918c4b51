//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"path"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"golang.org/x/sys/unix"
)

const pathMax = 4096

// name says where a call's arguments lie: positions, 0 where there is none (no optional one is the first), -1 for
// dir is the working directory.
type name struct {
	dir, path int
	flags     int  // AT_… flags
	mode      int  // a mode, or flags to be kept
	owner     int  // uid, the gid after it
	size      int  // a new size
	text      int  // a string to be kept as Detail
	follow    bool // a symlink at the end is followed, unless the flags say otherwise
}

type pair struct{ dir, path, dir2, path2, flags int }

// dirArg is a folder descriptor among the call's arguments.
func (c *call) dirArg(i int) int {
	if i < 0 {
		return unix.AT_FDCWD
	}
	return c.fd(i)
}

// onOpen handles open and its kin. The path argument is -1 where there is none, the flags' too (creat).
func onOpen(dir, path, flags int) handler {
	return func(t *task, c *call) *pending {
		f := uint64(unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC)
		if flags >= 0 {
			f = c.args[flags]
		}
		if path < 0 {
			return t.open(c, unix.AT_FDCWD, 0, f)
		}
		return t.open(c, c.dirArg(dir), c.args[path], f)
	}
}

func onOpenat2(t *task, c *call) *pending {
	var f uint64
	if b, err := t.read(c.args[2], 8); err == nil && len(b) == 8 {
		f = binary.LittleEndian.Uint64(b)
	}
	return t.open(c, c.fd(0), c.args[1], f)
}

func (t *task) open(c *call, dir int, addr, flags uint64) *pending {
	e := t.event(bodycam.TypeOpen, c)
	if addr != 0 {
		e.PathGiven, _ = t.str(addr, pathMax)
	}
	e.Flags, e.Access = flags, bodycam.AccessAsked(flags)
	fresh := t.absent(dir, e.PathGiven, flags)
	return &pending{ev: e, done: func(ret int64) bool {
		if ret < 0 {
			// The name alone: the kernel opened nothing.
			if e.PathGiven != "" {
				e.Path, _ = t.absolute(dir, e.PathGiven)
			}
			e.Marks |= bodycam.MarkUnverified
			return true
		}
		t.opened(e, dir, int(ret))
		if fresh {
			e.Detail = "new"
		}
		return true
	}}
}

// absent tells whether an open that works will have made its file: there is none of that name yet.
func (t *task) absent(dir int, given string, flags uint64) bool {
	if flags&unix.O_CREAT == 0 || flags&unix.O_EXCL != 0 {
		return flags&unix.O_CREAT != 0
	}
	o := t.resolve(dir, given, flags&unix.O_NOFOLLOW == 0)
	return o.ino == 0 && o.marks&bodycam.MarkUnverified == 0
}

// opened reads what a new descriptor is. Another thread may have replaced it already: an object that is not what
// the name means, or would mean, is marked.
func (t *task) opened(e *bodycam.Event, dir, fd int) {
	o, err := t.inspect(t.procFD(fd))
	if err != nil {
		e.Marks |= bodycam.MarkRaced
		return
	}
	e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
	e.Marks |= o.marks
	if o.marks&bodycam.MarkTruncated != 0 {
		e.Path = cut + strings.TrimPrefix(path.Clean("/"+e.PathGiven), "/")
	}
	if o.mode&unix.S_IFMT == unix.S_IFDIR {
		e.Access |= bodycam.Dir
	}
	if t.s.detach && t.detached(fd) {
		e.Marks |= bodycam.MarkDetached
	}
	if t.p.racy() && e.PathGiven != "" && path.Base(e.PathGiven) != path.Base(o.path) {
		if now := t.resolve(dir, e.PathGiven, true); now.ino != o.ino || now.dev != o.dev || now.ino == 0 {
			e.Marks |= bodycam.MarkRaced
		}
	}
}

func onMemfd(t *task, c *call) *pending {
	e := t.event(bodycam.TypeCreate, c)
	e.PathGiven, _ = t.str(c.args[0], 256)
	e.Flags, e.Access, e.Marks = c.args[1], bodycam.Temp|bodycam.Read|bodycam.Write, bodycam.MarkAnonymous
	return &pending{ev: e, done: func(ret int64) bool {
		if ret >= 0 {
			if o, err := t.inspect(t.procFD(int(ret))); err == nil {
				e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
			}
		}
		return true
	}}
}

// onName handles calls that act on one name.
func onName(typ bodycam.Type, n name) handler {
	return func(t *task, c *call) *pending {
		var flags uint64
		if n.flags > 0 {
			flags = c.args[n.flags]
		}
		if n.path > 0 && c.args[n.path] == 0 || flags&unix.AT_EMPTY_PATH != 0 && t.empty(c.args[n.path]) {
			return t.byFD(typ, c, c.fd(n.dir)) // utimensat(fd, NULL), fchownat(fd, "", AT_EMPTY_PATH)
		}
		kind := typ
		if typ == bodycam.TypeUnlink && flags&unix.AT_REMOVEDIR != 0 {
			kind = bodycam.TypeRmdir
		}
		e := t.event(kind, c)
		t.fill(e, c, n)
		given, err := t.str(c.args[n.path], pathMax)
		e.PathGiven = given
		e.Marks |= t.unverified()
		if err == nil || given != "" {
			o := t.resolve(c.dirArg(n.dir), given, n.follow && flags&unix.AT_SYMLINK_NOFOLLOW == 0)
			e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
			e.Marks |= o.marks
		}
		return &pending{ev: e, then: t.moved(typ, c)}
	}
}

// moved notes what a call changes for how later ones are read.
func (t *task) moved(typ bodycam.Type, c *call) func(int64) {
	if typ != bodycam.TypeMount {
		return nil
	}
	return func(ret int64) {
		if ret >= 0 {
			t.s.detach = true
		}
	}
}

func (t *task) empty(addr uint64) bool {
	s, err := t.str(addr, 1)
	return err == nil && s == ""
}

// fill keeps a call's plain arguments.
func (t *task) fill(e *bodycam.Event, c *call, n name) {
	switch {
	case n.mode > 0:
		e.Flags = c.args[n.mode]
	case n.owner > 0:
		e.Flags = uint64(uint32(c.args[n.owner])) | uint64(uint32(c.args[n.owner+1]))<<32
	case n.size > 0:
		e.Bytes = c.args[n.size]
		if strings.HasSuffix(c.def.name, "64") {
			e.Bytes |= c.args[n.size+1] << 32
		}
	case n.text > 0:
		e.Detail, _ = t.str(c.args[n.text], 256)
	}
}

// onFD handles calls that act on a descriptor, the first argument.
func onFD(typ bodycam.Type, arg int) handler {
	return func(t *task, c *call) *pending {
		p := t.byFD(typ, c, c.fd(0))
		switch typ {
		case bodycam.TypeChmod:
			p.ev.Flags = c.args[arg]
		case bodycam.TypeChown:
			t.fill(p.ev, c, name{owner: arg})
		case bodycam.TypeTruncate:
			t.fill(p.ev, c, name{size: arg})
		case bodycam.TypeXattr:
			t.fill(p.ev, c, name{text: arg})
		}
		return p
	}
}

// onIoctl handles the requests that the filter stops at.
func onIoctl(t *task, c *call) *pending {
	var value uint64
	request := uint32(c.args[1])
	terminal := request == unix.TIOCSTI || request == unix.TIOCLINUX
	if !terminal {
		if b, err := t.read(c.args[2], 4); err == nil && len(b) == 4 { // flags are what both structs begin with
			value = uint64(binary.NativeEndian.Uint32(b))
		}
	}
	p := t.byFD(bodycam.TypeXattr, c, c.fd(0))
	sensor.DescribeIoctl(p.ev, c.args[1], value)
	if terminal {
		p.ev.Path, p.ev.Dev, p.ev.Ino = "", 0, 0
		p.done = func(ret int64) bool { return ret < 0 }
	}
	return p
}

func onFallocate(t *task, c *call) *pending {
	p := t.byFD(trunc, c, c.fd(0))
	p.ev.Flags = c.args[1]
	offset, length := c.args[2], c.args[3]
	if c.abi == bodycam.ABII386 {
		offset, length = c.args[2]&0xffffffff|c.args[3]<<32, c.args[4]&0xffffffff|c.args[5]<<32
	}
	sensor.DescribeFallocate(p.ev, offset, length)
	return p
}

func (t *task) byFD(typ bodycam.Type, c *call, fd int) *pending {
	e := t.event(typ, c)
	if o, err := t.inspect(t.procFD(fd)); err == nil {
		e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
		e.Marks |= o.marks
	} else {
		e.Marks |= bodycam.MarkRaced
	}
	return &pending{ev: e}
}

// onPair handles calls that act on two names. Whether the second now is what the first was tells whether the names
// that were read are those that the kernel used.
func onPair(typ bodycam.Type, at pair) handler {
	return func(t *task, c *call) *pending {
		e := t.event(typ, c)
		follow := false
		if at.flags > 0 {
			e.Flags = c.args[at.flags]
			follow = typ == bodycam.TypeLink && e.Flags&unix.AT_SYMLINK_FOLLOW != 0
		}
		e.PathGiven, _ = t.str(c.args[at.path], pathMax)
		e.Path2Given, _ = t.str(c.args[at.path2], pathMax)
		from := t.resolve(c.dirArg(at.dir), e.PathGiven, follow)
		to := t.resolve(c.dirArg(at.dir2), e.Path2Given, false)
		e.Path, e.Path2, e.Dev, e.Ino = from.path, to.path, from.dev, from.ino
		e.Marks |= t.unverified() | from.marks&^bodycam.MarkDeleted | to.marks
		return &pending{ev: e, then: t.moved(typ, c), done: func(ret int64) bool {
			if ret == 0 && t.p.racy() && typ != bodycam.TypeMount {
				if is := t.resolve(c.dirArg(at.dir2), e.Path2Given, false); is.ino != from.ino || is.dev != from.dev {
					e.Marks |= bodycam.MarkRaced
				}
			}
			return true
		}}
	}
}

// onSymlink keeps the link's text as Path, the new name as Path2.
func onSymlink(text, dir, path int) handler {
	return func(t *task, c *call) *pending {
		e := t.event(bodycam.TypeSymlink, c)
		e.Path, _ = t.str(c.args[text], pathMax)
		e.PathGiven = e.Path
		e.Path2Given, _ = t.str(c.args[path], pathMax)
		o := t.resolve(c.dirArg(dir), e.Path2Given, false)
		e.Path2 = o.path
		e.Marks |= o.marks | t.unverified()
		return &pending{ev: e}
	}
}

// onMount keeps the place as Path and the source as Path2.
func onMount(t *task, c *call) *pending {
	e := t.event(bodycam.TypeMount, c)
	e.Flags = c.args[3]
	e.Path2Given, _ = t.str(c.args[0], pathMax)
	e.PathGiven, _ = t.str(c.args[1], pathMax)
	e.Detail, _ = t.str(c.args[2], 64)
	o := t.resolve(unix.AT_FDCWD, e.PathGiven, true)
	e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
	e.Marks |= o.marks | t.unverified()
	e.Path2 = e.Path2Given
	if e.Flags&(unix.MS_BIND|unix.MS_MOVE) != 0 {
		src := t.resolve(unix.AT_FDCWD, e.Path2Given, true)
		e.Path2 = src.path
		e.Marks |= src.marks
	}
	return &pending{ev: e}
}

// onTree handles the newer mount calls. After them a file's mount may have no place.
func onTree(dir, path int) handler {
	return func(t *task, c *call) *pending {
		e := t.event(bodycam.TypeMount, c)
		e.Detail = c.def.name
		if path >= 0 {
			e.PathGiven, _ = t.str(c.args[path], pathMax)
			if dir >= 0 {
				o := t.resolve(c.dirArg(dir), e.PathGiven, true)
				e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
				e.Marks |= o.marks
			}
			e.Marks |= t.unverified()
		}
		return &pending{ev: e, then: t.moved(bodycam.TypeMount, c)}
	}
}

func onMmap(t *task, c *call) *pending {
	return t.mmap(c, c.args[2], c.args[3], c.fd(4))
}

// onMmapOld is i386's first mmap, whose arguments lie in memory.
func onMmapOld(t *task, c *call) *pending {
	w, err := t.words(c, c.args[0], 6)
	if err != nil || len(w) < 6 {
		return nil
	}
	return t.mmap(c, w[2], w[3], int(int32(uint32(w[4]))))
}

// mmap records executable and shared mappings of files. A shared mapping of a file that is open for writing can be
// made writable at any time, so it counts as a write.
func (t *task) mmap(c *call, prot, flags uint64, fd int) *pending {
	if flags&unix.MAP_ANONYMOUS != 0 {
		if flags&unix.MAP_SHARED != 0 { // what it forks will share it
			t.p.lends = true
		}
		return nil
	}
	e := t.event(bodycam.TypeMmap, c)
	e.Flags = prot
	o, err := t.inspect(t.procFD(fd))
	if err != nil {
		return nil
	}
	e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
	e.Marks |= o.marks
	e.Access = bodycam.Read
	if prot&unix.PROT_EXEC != 0 {
		e.Access |= bodycam.Exec
	}
	if flags&unix.MAP_SHARED != 0 && t.writable(fd) {
		e.Access |= bodycam.Write
		t.p.lends = true
	}
	if e.Access == bodycam.Read {
		return nil
	}
	e.Mapped = true
	return &pending{ev: e}
}

// writable tells whether a descriptor is open for writing: its link's mode says so.
func (t *task) writable(fd int) bool {
	var st unix.Stat_t
	return unix.Lstat(t.procFD(fd), &st) == nil && st.Mode&0o200 != 0
}
