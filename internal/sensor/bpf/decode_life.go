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

func (d *decoder) exec(r record, b *sensorBody, s *[4][]byte) error {
	id := bodycam.Proc{PID: int32(r.Tgid), Start: r.Start}
	if pr := d.procs[id.PID]; pr == nil || pr.id != id {
		d.procs[id.PID] = &process{id: id, parent: bodycam.Proc{PID: int32(b.OtherTgid), Start: b.OtherStart}}
	}
	if old := int32(b.Arg[1]); old != int32(r.Tid) && d.tasks[old] != nil { // a thread that was not the leader
		d.forget(int32(r.Tid))
		d.tasks[int32(r.Tid)] = d.tasks[old]
		delete(d.tasks, old)
	}
	e := d.begin(r, bodycam.TypeExec)
	e.Exe = d.place(r, s[1])
	e.Path, e.PathGiven = e.Exe, string(s[0])
	e.CWD = d.place(r, s[3])
	e.Dev, e.Ino = dev(b.Dev), b.Ino
	e.Access = bodycam.Exec
	e.Marks |= walkMarks(b.Walk & 0xff)
	if b.Arg[3] != 0 { // execveat: the kernel made "/dev/fd/N/name" of it
		e.PathGiven = afterFD(e.PathGiven)
	}
	switch {
	case b.Arg[2] == 0:
	case len(s[2]) > 0: // an interpreter runs
		e.Script = d.place(r, s[2])
		e.Marks |= walkMarks(uint32(b.Arg[4])) &^ bodycam.MarkDeleted
	default:
		if e.Script = e.PathGiven; !path.IsAbs(e.Script) {
			e.Script = join(e.CWD, e.Script)
		}
		e.Marks |= bodycam.MarkUnverified
	}
	e.ArgvLen = b.Arg[0]
	h := &heldExec{ev: *e, total: b.Arg[0], whole: true}
	d.execs[r.Tid] = h
	if h.total == 0 {
		return d.finishExec(r.Tid)
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

func (d *decoder) argv(r record, b *sensorBody, piece []byte) error {
	h := d.execs[r.Tid]
	if h == nil {
		return nil // its head was lost, and counted
	}
	if b.Arg[1] != h.next || len(piece) == 0 {
		h.whole = false
	}
	h.next = b.Arg[1] + uint64(len(piece))
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
		return d.finishExec(r.Tid)
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

func (d *decoder) fork(r record, b *sensorBody) error {
	e := d.begin(r, bodycam.TypeFork)
	e.Child = bodycam.Proc{PID: int32(b.OtherTgid), Start: b.OtherStart}
	e.Flags = b.Arg[0]
	d.procs[e.Child.PID] = &process{id: e.Child, parent: e.Proc}
	return d.deliver(r.Source)
}

func (d *decoder) exit(r record, b *sensorBody) error {
	if err := d.notRestarted(int32(r.Tid)); err != nil {
		return err
	}
	e := d.begin(r, bodycam.TypeExit)
	e.Status = int32(b.Ret)
	err := d.deliver(r.Source)
	d.forget(int32(r.Tid))
	delete(d.procs, int32(r.Tgid))
	return err
}
