//go:build linux && amd64

package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// process is a thread group.
type process struct {
	id     bodycam.Proc
	parent bodycam.Proc
	sid    int32
	tasks  int // alive
	// lends: it shares memory or descriptors with processes that come from it (clone flags, shared mappings);
	// borrows: it came from one that does.
	lends, borrows bool
	nsPID          int // its pid in its own namespace, 0 while unknown
	dns            map[int]*dnsSocket
}

// full tells whether every call of the process stops.
func (p *process) full() bool { return len(p.dns) > 0 }

// racy tells whether memory or descriptors that a call names can change while the call is made.
func (p *process) racy() bool { return p.tasks > 1 || p.lends || p.borrows }

// task is a thread.
type task struct {
	s    *Sensor
	tr   *tree
	p    *process
	tid  int
	pend *pending // the call that it is in
	made bool     // it made a task during that call

	broken    *pending // a call that a signal interrupted: it may come again, or have failed with EINTR
	returning bool     // in sigreturn

	uid, gid uint32
	ids      bool // uid and gid are known
}

// pending is a call whose end is waited for.
type pending struct {
	call *call
	ev   *bodycam.Event
	// done completes the event from the call's result. It returns false where there is nothing to record.
	done func(ret int64) bool
	// then runs after the event was delivered, for what follows from it.
	then func(ret int64)
	// For exec: what was asked for, and the mark of how it was read.
	image image
	racy  bodycam.Mark
}

// event begins an event of this task.
func (t *task) event(typ bodycam.Type, c *call) *bodycam.Event {
	t.identify()
	e := &bodycam.Event{Type: typ, NR: -1, Proc: t.p.id, Parent: t.p.parent, TID: int32(t.tid), UID: t.uid, GID: t.gid, SID: t.p.sid}
	if c != nil {
		e.NR, e.ABI = c.nr, c.abi
	}
	return e
}

// unverified is the mark of what was read from the task's memory.
func (t *task) unverified() bodycam.Mark {
	if t.p.racy() {
		return bodycam.MarkUnverified
	}
	return 0
}

// identify reads the task's ids where they may have changed.
func (t *task) identify() {
	if t.ids {
		return
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(t.tid) + "/status")
	if err != nil {
		return
	}
	for line := range bytes.Lines(b) {
		key, rest, _ := strings.Cut(string(line), ":")
		f := strings.Fields(rest)
		switch {
		case len(f) == 0:
		case key == "Uid":
			t.uid = number(f[0])
		case key == "Gid":
			t.gid = number(f[0])
		case key == "NSpid":
			t.p.nsPID, _ = strconv.Atoi(f[len(f)-1])
		}
	}
	t.ids = true
}

func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

// enter looks at a call at its entry.
func (t *task) enter(c *call) {
	t.mend(c)
	t.made = false
	if t.s.deny[c.def.name] {
		t.deny(c, bodycam.TypeDenied, 0, unix.EPERM)
		return
	}
	t.pend = c.def.on(t, c)
	if t.pend != nil {
		t.pend.call = c
	}
}

// refuseX32 answers a call of the x32 interface as a kernel without it would: nothing needs it, and its numbers and
// layouts are a world of their own. The attempt is recorded as what it was to be.
func (t *task) refuseX32(c *call) {
	t.answer(-int64(unix.ENOSYS))
	if c.def == nil {
		e := t.event(bodycam.TypeDenied, c)
		e.Errno, e.Marks, e.Detail = int32(unix.ENOSYS), bodycam.MarkHostile|bodycam.MarkRefused, "x32"
		t.s.emit(e)
		return
	}
	if p := c.def.on(t, c); p != nil {
		p.call = c
		if p.ev != nil {
			p.ev.Marks |= bodycam.MarkRefused
		}
		t.leave(p, -int64(unix.ENOSYS))
	}
}

// mend deals with a call that a signal interrupted. If the same is made again, the kernel restarts it: one attempt.
// If the task has left its frame for another call, a handler jumped out of it: it failed.
func (t *task) mend(next *call) {
	p := t.broken
	switch {
	case p == nil:
	case next.nr == p.call.nr && next.args == p.call.args && next.sp == p.call.sp:
		t.broken = nil
	case next.sp >= p.call.sp:
		t.broken = nil
		t.leave(p, -int64(unix.EINTR))
	}
}

// leave completes a call.
func (t *task) leave(p *pending, ret int64) {
	if ret <= -512 && ret >= -516 { // ERESTARTSYS and kin: the kernel will make the call again, or a handler ends it
		t.broken = p
		return
	}
	if p.ev != nil {
		p.ev.Boot, p.ev.Time = now()
		if ret < 0 && ret >= -4095 {
			p.ev.Errno = int32(-ret)
		}
	}
	if (p.done == nil || p.done(ret)) && p.ev != nil {
		t.s.emit(p.ev)
	}
	if p.then != nil {
		p.then(ret)
	}
}

// abandon records calls whose task died in them.
func (t *task) abandon() {
	for _, p := range []*pending{t.broken, t.pend} {
		if p != nil && p.ev != nil {
			p.ev.Marks |= bodycam.MarkNoResult
			t.s.emit(p.ev)
		}
	}
	t.pend, t.broken = nil, nil
}

// deny refuses the call that the task is about to make, and records the attempt.
func (t *task) deny(c *call, typ bodycam.Type, m bodycam.Mark, errno unix.Errno) {
	e := t.event(typ, c)
	e.Errno, e.Marks, e.Detail = int32(errno), m|bodycam.MarkRefused, c.def.name
	t.answer(-int64(errno))
	t.s.emit(e)
}

// answer makes the call that the task is about to make not happen, with this result.
func (t *task) answer(ret int64) {
	var r unix.PtraceRegs
	err := getRegs(t.tid, &r)
	if err == nil {
		r.Orig_rax, r.Rax = ^uint64(0), uint64(ret)
		err = setRegs(t.tid, &r)
	}
	if err != nil { // it is being killed already; were it not, the call must not be made
		t.kill()
	}
}

// kill ends the task's process.
func (t *task) kill() { _ = unix.Kill(int(t.p.id.PID), unix.SIGKILL) }

// read reads n bytes of the task's memory, or fewer where it ends.
func (t *task) read(addr uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	got := 0
	for got < n {
		k, err := peek(t.tid, addr+uint64(got), b[got:])
		if err != nil || k == 0 {
			if got > 0 {
				break
			}
			t.unreadable(err)
			return nil, err
		}
		got += k
	}
	return b[:got], nil
}

// str reads a string of at most limit bytes from the task's memory. It reads page by page, since the next one may
// not be there.
func (t *task) str(addr uint64, limit int) (string, error) {
	if addr == 0 {
		return "", unix.EFAULT
	}
	var out []byte
	for len(out) < limit {
		n := min(limit-len(out), 4096-int(addr&4095))
		b := make([]byte, n)
		k, err := peek(t.tid, addr, b)
		if err != nil {
			t.unreadable(err)
			return string(out), err
		}
		if i := bytes.IndexByte(b[:k], 0); i >= 0 {
			return string(append(out, b[:i]...)), nil
		}
		out = append(out, b[:k]...)
		addr += uint64(k)
		if k < n {
			return string(out), unix.EFAULT
		}
	}
	return string(out), unix.ENAMETOOLONG
}

// unreadable counts memory that the recorder is not allowed to see.
func (t *task) unreadable(err error) {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.s.hole("not-dumpable", "a process made itself, or was started, unreadable to its own user")
	}
}

// words reads n pointer-sized words.
func (t *task) words(c *call, addr uint64, n int) ([]uint64, error) {
	size := c.word()
	b, err := t.read(addr, n*size)
	if err != nil {
		return nil, err
	}
	out := make([]uint64, len(b)/size)
	for i := range out {
		for k := size - 1; k >= 0; k-- {
			out[i] = out[i]<<8 | uint64(b[i*size+k])
		}
	}
	return out, nil
}

// word is the size of a pointer in the call's ABI.
func (c *call) word() int {
	if c.abi == bodycam.ABIAMD64 {
		return 8
	}
	return 4
}

// fd is a descriptor among the call's arguments.
func (c *call) fd(i int) int { return int(int32(uint32(c.args[i]))) }

func (t *task) proc(rest string) string { return "/proc/" + strconv.Itoa(t.tid) + rest }

func (t *task) procFD(fd int) string {
	return "/proc/" + strconv.Itoa(t.tid) + "/fd/" + strconv.Itoa(fd)
}

// stat is what matters of /proc/PID/stat.
type stat struct {
	ppid, sid int
	start     uint64 // nanoseconds since boot, in steps of ten milliseconds
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The command in brackets may hold anything, brackets included.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat is not as expected: %q", pid, b)
	}
	var st stat
	st.ppid, _ = strconv.Atoi(f[1])
	st.sid, _ = strconv.Atoi(f[3])
	ticks, err := strconv.ParseUint(f[19], 10, 64)
	st.start = ticks * 10_000_000
	return st, err
}

// isThread tells whether a task belongs to a thread group.
func isThread(tgid, tid int) bool {
	return unix.Access("/proc/"+strconv.Itoa(tgid)+"/task/"+strconv.Itoa(tid), unix.F_OK) == nil
}

// isLeader tells whether a task is its thread group's first.
func isLeader(tid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	return err == nil && strings.Contains(string(b), "\nTgid:\t"+strconv.Itoa(tid)+"\n")
}
