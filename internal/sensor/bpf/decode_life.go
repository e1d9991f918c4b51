package bpf

import (
	"crypto/sha256"
	"hash"
	"path"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// heldExec is an exec whose argv is still coming, piece by piece.
type heldExec struct {
	ev    bodycam.Event
	total uint64
	next  uint64 // offset of the piece awaited
	whole bool   // no piece is missing so far
	buf   []byte
	sum   hash.Hash
}

func (d *decoder) exec(r record) error {
	x, s, args, err := r.executed()
	if err != nil {
		return err
	}
	id := bodycam.Proc{PID: int32(r.Tgid), Start: r.Start}
	if pr, ok := d.procs[id.PID]; !ok || pr.id != id {
		d.born(process{id: id, parent: bodycam.Proc{PID: int32(x.Parent), Start: x.ParentStart}})
	}
	if err := d.leave(id, x.OldTid); err != nil {
		return err
	}
	if x.OldTid != int32(r.Tid) { // a thread goes on under its leader's id; its cache has been told
		d.forget(x.OldTid)
	}
	e := d.begin(r, bodycam.TypeExec)
	e.Exe = d.place(r, s[0])
	e.CWD = d.place(r, s[1])
	e.Path, e.PathGiven = e.Exe, d.given(s[2], e.Exe)
	e.Dev, e.Ino = dev(x.Dev), x.Ino
	e.Access = bodycam.Exec
	e.Marks |= walkMarks(uint32(x.ExeWalk))
	if x.ByFd != 0 { // execveat: the kernel made "/dev/fd/N/name" of it
		e.PathGiven = afterFD(e.PathGiven)
	}
	switch {
	case x.Interpreter == 0:
	case len(s[3]) > 0:
		e.Script = d.place(r, s[3])
		e.Marks |= walkMarks(uint32(x.ScriptWalk)) &^ bodycam.MarkDeleted
	default:
		if e.Script = e.PathGiven; !path.IsAbs(e.Script) {
			e.Script = join(e.CWD, e.Script)
		}
		e.Marks |= bodycam.MarkUnverified
	}
	e.ArgvLen = x.Argv
	if x.Argv <= uint64(len(args)) && len(args) <= d.argMax {
		e.Argv = splitArgv(args)
		return d.deliver(r.Source)
	}
	d.execs[r.Tid] = &heldExec{ev: *e, total: x.Argv, whole: true}
	if len(args) > 0 { // more than is to be kept
		return d.argvPiece(r.Tid, 0, args)
	}
	return nil
}

// afterFD is the name that a program gave to execveat, in the kernel's name for it.
func afterFD(s string) string {
	rest, ok := strings.CutPrefix(s, "/dev/fd/")
	if !ok {
		return s
	}
	_, name, _ := strings.Cut(rest, "/")
	return name
}

func (d *decoder) argv(r record) error {
	p, piece, err := cut[sensorPiece](r)
	if err != nil {
		return err
	}
	return d.argvPiece(r.Tid, p.Offset, piece)
}

func (d *decoder) argvPiece(tid uint32, offset uint64, piece []byte) error {
	h := d.execs[tid]
	if h == nil {
		return nil // its head was lost, and counted
	}
	if offset != h.next || len(piece) == 0 {
		h.whole = false
	}
	h.next = offset + uint64(len(piece))
	if h.total > uint64(d.argMax) {
		if h.sum == nil {
			h.sum = sha256.New()
		}
		h.sum.Write(piece)
	}
	if room := d.argMax - len(h.buf); room > 0 && h.whole {
		h.buf = append(h.buf, piece[:min(room, len(piece))]...)
	}
	if h.next >= h.total || len(piece) == 0 {
		return d.finishExec(tid)
	}
	return nil
}

// finishExec delivers an exec with what came of its argv.
func (d *decoder) finishExec(tid uint32) error {
	h := d.execs[tid]
	delete(d.execs, tid)
	d.ev = h.ev
	e := &d.ev
	e.Argv = splitArgv(h.buf)
	if uint64(len(h.buf)) < h.total {
		e.Marks |= bodycam.MarkArgvCut
		if h.sum != nil && h.whole && h.next >= h.total {
			h.sum.Sum(e.ArgvHash[:0])
		}
	}
	return d.deliver(uint8(sensorSourceSRC_EXEC))
}

// splitArgv cuts the memory of argv at its terminators. A last piece without one was cut.
func splitArgv(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	s := string(b)
	s = strings.TrimSuffix(s, "\x00")
	return strings.Split(s, "\x00")
}

func (d *decoder) fork(r record, child bodycam.Proc, flags uint64) error {
	e := d.begin(r, bodycam.TypeFork)
	e.Child, e.Flags = child, flags
	d.born(process{id: child, parent: e.Proc})
	return d.deliver(r.Source)
}

func (d *decoder) exit(r record, status int32) error {
	if err := d.notRestarted(int32(r.Tid)); err != nil {
		return err
	}
	e := d.begin(r, bodycam.TypeExit)
	e.Status = status
	err := d.deliver(r.Source)
	d.forget(int32(r.Tid))
	delete(d.procs, int32(r.Tgid))
	d.last = process{}
	return err
}
