//go:build linux

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam"
)

// Access is one open or execution, as far as the one who does it can't change it meanwhile: it waits in the kernel.
type Access struct {
	Exec bool   // the kernel opens it to execute it: a program, a script, the interpreter or loader of either
	Path string // canonical, as the sandbox sees it
	// Dev (major<<32|minor) and Ino are those that stat tells.
	Dev, Ino uint64
	Dir      bool
	TID      int32 // as the host numbers it
	NR       int32 // system call, -1 where it isn't known
	// Flags are those of open; not known are those that lie in memory, where they can be changed at any time (openat2).
	Flags      uint64
	FlagsKnown bool
	Exe        string // program of the process
	UID, GID   uint32 // real ids, as the host numbers them

	deleted bool // Path ends as that of a file without a name; it may be its name
	pipe    bool
	buf     [8192]byte
}

// fill looks up what is asked for. again tells that the access is part of an execution that was asked about before: the
// kernel asks twice.
func (a *Access) fill(q question, o *Options) (again bool, err error) {
	proc := "/proc/" + strconv.Itoa(int(q.tid))
	*a = Access{Exec: q.exec, TID: q.tid, NR: -1, buf: a.buf}
	if err := a.call(proc); err != nil {
		return false, err
	}
	if !q.exec && (a.NR == unix.SYS_EXECVE || a.NR == unix.SYS_EXECVEAT) {
		return true, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(q.fd), &st); err != nil {
		return false, err
	}
	a.Dev, a.Ino = device(&st), st.Ino
	if a.Path, err = a.readlink("/proc/self/fd/" + strconv.Itoa(int(q.fd))); err != nil {
		return false, err
	}
	a.deleted = strings.HasSuffix(a.Path, deletedSuffix)
	a.Dir, a.pipe = st.Mode&unix.S_IFMT == unix.S_IFDIR, st.Mode&unix.S_IFMT == unix.S_IFIFO
	if o.Exe {
		if a.Exe, err = a.readlink(proc + "/exe"); err != nil {
			return false, err
		}
	}
	if o.User {
		b, err := a.read(proc + "/status")
		if err != nil {
			return false, err
		}
		if a.UID, a.GID, err = parseIDs(b); err != nil {
			return false, err
		}
	}
	return false, nil
}

const deletedSuffix = " (deleted)"

func device(st *unix.Stat_t) uint64 {
	return uint64(unix.Major(uint64(st.Dev)))<<32 | uint64(unix.Minor(uint64(st.Dev)))
}

func (a *Access) readlink(name string) (string, error) {
	n, err := unix.Readlink(name, a.buf[:])
	if err != nil {
		return "", err
	}
	return string(a.buf[:n]), nil
}

func (a *Access) read(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, a.buf[:])
	if err != nil {
		return nil, err
	}
	return a.buf[:n], nil
}

// call reads the registers of the thread, which waits inside its system call.
func (a *Access) call(proc string) error {
	b, err := a.read(proc + "/syscall")
	// The thread has asked, and is on its way to sleep.
	for i := 0; err == nil && bytes.HasPrefix(b, []byte("running")) && i < 2000; i++ {
		if i < 20 {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // it may have been waiting for this very processor
		} else {
			time.Sleep(100 * time.Microsecond)
		}
		b, err = a.read(proc + "/syscall")
	}
	if err != nil {
		return err
	}
	nr, args := parseCall(b)
	a.NR = nr
	if i, ok := flagsAt[nr]; ok {
		a.Flags, a.FlagsKnown = args[i], true
	} else if nr == creat {
		a.Flags, a.FlagsKnown = unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, true
	}
	a.Flags &= 0xffffffff // it is an int
	return nil
}

// parseCall reads /proc/TID/syscall: the number and six arguments. -1 stands for a thread that isn't in a call, or for
// what can't be read.
func parseCall(b []byte) (nr int32, args [6]uint64) {
	f := bytes.Fields(b)
	if len(f) < 7 {
		return -1, args
	}
	n, err := strconv.ParseInt(string(f[0]), 10, 32)
	if err != nil || n < 0 {
		return -1, args
	}
	for i := range args {
		hex, ok := bytes.CutPrefix(f[i+1], []byte("0x"))
		v, err := strconv.ParseUint(string(hex), 16, 64)
		if !ok || err != nil {
			return -1, [6]uint64{}
		}
		args[i] = v
	}
	return int32(n), args
}

// parseIDs reads the real user and group ids from /proc/TID/status.
func parseIDs(b []byte) (uid, gid uint32, err error) {
	get := func(key string) (uint32, error) {
		_, rest, ok := bytes.Cut(b, []byte("\n"+key+":\t"))
		end := bytes.IndexAny(rest, "\t\n")
		if !ok || end < 0 {
			return 0, fmt.Errorf("a status without %s", key)
		}
		v, err := strconv.ParseUint(string(rest[:end]), 10, 32)
		return uint32(v), err
	}
	uid, err1 := get("Uid")
	gid, err2 := get("Gid")
	return uid, gid, errors.Join(err1, err2)
}

// reads tells whether the call may read what it opens.
func (a *Access) reads() bool { return !a.FlagsKnown || a.Flags&unix.O_ACCMODE != unix.O_WRONLY }

// Any tells whether f holds for the event that this access may come to be in the record. Where something isn't known
// for sure f is asked about each possibility. The event is used again.
func (a *Access) Any(e *bodycam.Event, f func(*bodycam.Event) bool) bool {
	*e = bodycam.Event{Type: bodycam.TypeOpen, NR: a.NR, ABI: abi, Proc: bodycam.Proc{PID: a.TID}, TID: a.TID, UID: a.UID, GID: a.GID, Dev: a.Dev, Ino: a.Ino, Exe: a.Exe}
	if a.Exec {
		e.Type, e.Access = bodycam.TypeExec, bodycam.Exec
	}
	return either(a.Path, a.deleted, func(path string) bool {
		e.Path, e.Marks = path, 0
		if a.deleted {
			e.Marks = bodycam.MarkDeleted
		}
		if a.Exec {
			e.Exe = path // what the process becomes
			return f(e)
		}
		return either(a.Exe, strings.HasSuffix(a.Exe, deletedSuffix), func(exe string) bool {
			e.Exe = exe
			return a.eachAccess(e, f)
		})
	})
}

// either asks about a name as the kernel writes it, and without its mark that the file has no name any more: nobody can
// tell that from a name which ends so.
func either(name string, deleted bool, f func(string) bool) bool {
	return f(name) || deleted && f(strings.TrimSuffix(name, deletedSuffix))
}

func (a *Access) eachAccess(e *bodycam.Event, f func(*bodycam.Event) bool) bool {
	var dir bodycam.Access
	if a.Dir {
		dir = bodycam.Dir
	}
	if a.FlagsKnown {
		e.Flags, e.Access = a.Flags, bodycam.AccessAsked(a.Flags)|dir
		return f(e)
	}
	for _, rw := range []bodycam.Access{0, bodycam.Read, bodycam.Write, bodycam.Read | bodycam.Write} {
		for _, made := range []bodycam.Access{0, bodycam.Create, bodycam.Temp} {
			for _, how := range []bodycam.Access{0, bodycam.Trunc, bodycam.Append, bodycam.Trunc | bodycam.Append} {
				e.Access = rw | made | how | dir
				if f(e) {
					return true
				}
			}
		}
	}
	return false
}
