//go:build linux && amd64

package ptrace

import (
	"crypto/sha256"
	"os"
	"strings"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// argvKept is how many bytes of arguments an event keeps. Of longer ones it has length and hash.
const argvKept = 128 << 10

// argvMax bounds what is read of a failed exec's arguments: the kernel takes at most 6 MiB.
const argvMax = 6 << 20

func onExecve(t *task, c *call) *pending { return t.exec(c, unix.AT_FDCWD, c.args[0], c.args[1], 0) }

func onExecveat(t *task, c *call) *pending {
	return t.exec(c, c.fd(0), c.args[1], c.args[2], c.args[4])
}

// image is what an exec asked for: it differs from the program that runs where that is an interpreter.
type image struct {
	object
	known bool
}

// exec handles a call that starts a program. Where it works it does not return: execed completes the event.
func (t *task) exec(c *call, dir int, path, argv, flags uint64) *pending {
	e := t.event(bodycam.TypeExec, c)
	e.Flags, e.Access = flags, bodycam.Exec
	given, err := t.str(path, pathMax)
	e.PathGiven = given
	var img image
	switch {
	case err != nil:
	case given == "" && flags&unix.AT_EMPTY_PATH != 0:
		img.object, err = t.inspect(t.procFD(dir))
		img.known = err == nil
	default:
		img.object = t.resolve(dir, given, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
		img.known = img.ino != 0
	}
	racy := t.unverified()
	return &pending{ev: e, image: img, racy: racy, done: func(ret int64) bool {
		if ret == 0 { // the exit of a successful exec: recorded already
			return false
		}
		e.Path, e.Dev, e.Ino = img.path, img.dev, img.ino
		e.Marks |= img.marks | racy
		keepArgv(e, t.argv(c, argv))
		e.CWD = t.folder()
		return true
	}}
}

// argv reads the arguments of an exec that failed, as the kernel would have laid them out.
func (t *task) argv(c *call, addr uint64) []byte {
	var out []byte
	for addr != 0 && len(out) < argvMax {
		w, err := t.words(c, addr, 64)
		if err != nil {
			break
		}
		for _, p := range w {
			if p == 0 {
				return out
			}
			s, err := t.str(p, 128<<10)
			out = append(append(out, s...), 0)
			if err != nil {
				return out
			}
		}
		addr += uint64(len(w) * c.word())
	}
	return out
}

// keepArgv splits arguments, each ended by a NUL, and cuts them where they are too long to keep.
func keepArgv(e *bodycam.Event, raw []byte) {
	e.ArgvLen = uint64(len(raw))
	if len(raw) == 0 {
		return
	}
	kept := raw
	if len(raw) > argvKept {
		e.Marks |= bodycam.MarkArgvCut
		e.ArgvHash = sha256.Sum256(raw)
		kept = raw[:argvKept]
	}
	e.Argv = strings.Split(strings.TrimSuffix(string(kept), "\x00"), "\x00")
}

// execed handles the stop in a new program, before its first instruction.
func (tr *tree) execed(t *task) {
	var former uint
	_ = ptrace(unix.PTRACE_GETEVENTMSG, t.tid, 0, uintptr(unsafe.Pointer(&former)))
	by := t
	if f := tr.s.tasks[int(former)]; f != nil && f.p == t.p {
		by = f
	}
	p := by.pend
	by.pend = nil
	if b := by.broken; b != nil { // the program's handler ended in another program
		by.broken = nil
		by.leave(b, -int64(unix.EINTR))
	}
	// The other threads are gone, in the midst of calls perhaps. The one that called has its leader's number now.
	if t.p.tasks > 1 {
		for tid, o := range tr.s.tasks {
			if o.p != t.p {
				continue
			}
			o.abandon()
			if tid != t.tid {
				delete(tr.s.tasks, tid)
				delete(tr.own, tid)
			}
		}
	}
	t.p.tasks, t.p.lends, t.p.borrows = 1, false, false
	var e *bodycam.Event
	var img image
	if p != nil && p.ev != nil && p.ev.Type == bodycam.TypeExec {
		e, img = p.ev, p.image
		e.Boot, e.Time = now()
	} else {
		e = t.event(bodycam.TypeExec, nil)
	}
	e.TID = int32(t.tid)
	t.image(e, img, p)
	t.ids = false
	tr.s.emit(e)
	t.recheckDNS()
	tr.resume(t, 0)
}

// image describes the program that a process now runs.
func (t *task) image(e *bodycam.Event, img image, p *pending) {
	if o, err := t.inspect(t.proc("/exe")); err == nil {
		e.Exe, e.Path, e.Dev, e.Ino = o.path, o.path, o.dev, o.ino
		e.Marks |= o.marks
		// Another file than the one that was asked for: that one named an interpreter.
		if img.known && (img.ino != o.ino || img.dev != o.dev) {
			e.Script = img.path
			e.Marks |= img.marks
			if p != nil {
				e.Marks |= p.racy
			}
		}
	} else {
		e.Marks |= bodycam.MarkUnverified
		e.Exe = e.PathGiven
	}
	if raw, err := os.ReadFile(t.proc("/cmdline")); err == nil {
		keepArgv(e, raw)
	}
	e.CWD = t.folder()
	e.Access = bodycam.Exec
}
