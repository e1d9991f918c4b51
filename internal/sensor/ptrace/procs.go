//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"golang.org/x/sys/unix"
)

// onClone sees clone only with flags that matter. A child that asks not to be traced is traced all the same.
func onClone(t *task, c *call) *pending {
	flags := c.args[0] & 0xffffffff
	t.lend(flags)
	if flags&cloneUntraced != 0 {
		t.rewriteFirst(c, flags&^cloneUntraced)
		e := t.event(bodycam.TypeDenied, c)
		e.Flags, e.Marks, e.Detail = flags, bodycam.MarkHostile, "CLONE_UNTRACED taken out"
		t.s.emit(e)
	}
	return t.spaces(c, flags&cloneSpaces)
}

// lend notes that another process gets hold of this one's memory or descriptors.
func (t *task) lend(flags uint64) {
	if flags&cloneMemory == unix.CLONE_VM || flags&cloneFiles == unix.CLONE_FILES {
		t.p.lends = true
	}
}

// onIPC handles System V IPC and POSIX message queues.
func onIPC(t *task, c *call) *pending {
	const shmat = 21 // of i386's ipc
	if c.def.name == "shmat" || c.def.name == "ipc" && c.args[0]&0xffff == shmat {
		t.p.lends = true
	}
	e := t.event(bodycam.TypeIPC, c)
	switch c.def.name {
	case "mq_open", "mq_unlink":
		e.PathGiven, _ = t.str(c.args[0], pathMax)
		e.Marks |= t.unverified()
	case "mq_timedsend", "mq_timedreceive", "mq_timedsend_time64", "mq_timedreceive_time64":
		if o, err := t.inspect(t.procFD(c.fd(0))); err == nil {
			e.Path, e.Dev, e.Ino = o.path, o.dev, o.ino
		}
	}
	switch c.def.name {
	case "shmget", "shmat", "semget":
		e.Flags = c.args[2]
	case "msgget", "mq_open":
		e.Flags = c.args[1]
	case "msgsnd":
		e.Flags = c.args[3]
	case "msgrcv":
		e.Flags = c.args[4]
	}
	return &pending{ev: e, done: func(ret int64) bool {
		sensor.DescribeIPC(e, [5]uint64(c.args[:5]), ret)
		return true
	}}
}

// onSocket handles the sockets that the filter stops at.
func onSocket(t *task, c *call) *pending {
	e := t.event(bodycam.TypeSocket, c)
	sensor.DescribeSocket(e, c.args[0], c.args[1], c.args[2])
	return &pending{ev: e, done: func(ret int64) bool { return ret < 0 || sensor.ReachesPast(c.args[0], c.args[1]) }}
}

// onRefused records a call where it fails.
func onRefused(t *task, c *call) *pending {
	e := t.event(bodycam.TypeDenied, c)
	e.Detail = c.def.name
	return &pending{ev: e, done: func(ret int64) bool { return ret < 0 }}
}

// rewriteFirst changes the first argument of the call that the task is about to make.
func (t *task) rewriteFirst(c *call, v uint64) {
	var r unix.PtraceRegs
	if getRegs(t.tid, &r) != nil {
		return
	}
	if c.abi == bodycam.ABII386 {
		r.Rbx = v
	} else {
		r.Rdi = v
	}
	_ = setRegs(t.tid, &r)
}

// spaces records new namespaces, if there are any.
func (t *task) spaces(c *call, flags uint64) *pending {
	if flags == 0 {
		return nil
	}
	e := t.event(bodycam.TypeNamespace, c)
	e.Flags, e.Detail = flags, c.def.name
	return &pending{ev: e, then: func(int64) { t.p.nsPID = 0 }}
}

// onClone3 reads flags from memory that another thread can change: whether a child appeared untraced is checked
// after the call.
func onClone3(t *task, c *call) *pending {
	b, err := t.read(c.args[0], 8)
	if err != nil || len(b) < 8 {
		return nil
	}
	flags := binary.LittleEndian.Uint64(b)
	if flags&cloneUntraced != 0 {
		t.deny(c, bodycam.TypeDenied, bodycam.MarkHostile, unix.EPERM)
		return nil
	}
	t.lend(flags)
	p := t.spaces(c, flags&cloneSpaces)
	if !t.p.racy() {
		return p
	}
	if p == nil {
		p = &pending{}
	}
	p.then = func(ret int64) {
		t.p.nsPID = 0
		if ret > 0 && !t.made {
			t.s.hole("untraced-clone", "a process was made that can't be followed: clone3's flags changed during the call")
		}
	}
	return p
}

// onUnshare handles unshare and setns.
func onUnshare(t *task, c *call) *pending {
	if c.def.name == "setns" {
		e := t.event(bodycam.TypeNamespace, c)
		e.Flags, e.Detail = c.args[1], c.def.name
		return &pending{ev: e, then: func(int64) { t.p.nsPID = 0 }}
	}
	const newTime = 0x80
	return t.spaces(c, c.args[0]&(cloneSpaces|newTime))
}

// onIdentity handles the calls that change ids; the first n arguments are ids.
func onIdentity(n int) handler {
	return func(t *task, c *call) *pending {
		e := t.event(bodycam.TypeSetuid, c)
		e.Detail = c.def.name
		for i := range n {
			e.Detail += " " + strconv.Itoa(int(int32(uint32(c.args[i]))))
		}
		return &pending{ev: e, then: func(int64) { t.ids = false }}
	}
}

func onSetsid(t *task, c *call) *pending {
	return &pending{then: func(ret int64) {
		if ret > 0 {
			t.p.sid = t.p.id.PID
		}
	}}
}

// sameSpace tells whether the task numbers processes as the recorder does.
func (t *task) sameSpace() bool {
	ns, err := os.Readlink(t.proc("/ns/pid"))
	return err == nil && ns == t.s.pidNS
}

// outside turns a pid of the task's namespace into the recorder's, 0 where that isn't known.
func (t *task) outside(pid int) int {
	if pid <= 0 || t.sameSpace() {
		return pid
	}
	mine, err := os.Readlink(t.proc("/ns/pid"))
	if err != nil {
		return 0
	}
	for tid, o := range t.s.tasks {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] == strconv.Itoa(pid) {
			if ns, err := os.Readlink(o.proc("/ns/pid")); err == nil && ns == mine {
				return tid
			}
		}
	}
	return 0
}

// target is the identity of a process, observed or not; tid may name any of its threads.
func (s *Sensor) target(tid int) bodycam.Proc {
	if tid <= 0 {
		return bodycam.Proc{}
	}
	if t := s.tasks[tid]; t != nil {
		return t.p.id
	}
	if s.isSelf(tid) {
		return s.self
	}
	st, err := readStat(tid)
	if err != nil {
		return bodycam.Proc{PID: int32(tid)}
	}
	return bodycam.Proc{PID: int32(tid), Start: st.start}
}

// isSelf tells whether a pid or tid is the recorder's.
func (s *Sensor) isSelf(tid int) bool {
	return tid == int(s.self.PID) || isThread(int(s.self.PID), tid)
}

// at records a call that acts on another process, or refuses it where that is the recorder.
func (t *task) at(c *call, typ bodycam.Type, tid int, signal int32) *pending {
	e := t.event(typ, c)
	e.Child, e.Signal, e.Detail = t.s.target(tid), signal, c.def.name
	if tid > 0 && t.s.isSelf(tid) && !(typ == bodycam.TypeSignal && signal == 0) {
		t.refuse(e)
		return nil
	}
	if tid > 0 && e.Child == t.p.id {
		return nil // itself
	}
	return &pending{ev: e}
}

// refuse makes a call aimed at the recorder fail.
func (t *task) refuse(e *bodycam.Event) {
	e.Errno = int32(unix.EPERM)
	e.Marks |= bodycam.MarkHostile | bodycam.MarkRefused
	t.answer(-int64(unix.EPERM))
	t.s.emit(e)
}

func onPtrace(t *task, c *call) *pending {
	request := int32(c.args[0])
	tid := 0
	if request != unix.PTRACE_TRACEME {
		tid = t.outside(c.fd(1))
	}
	p := t.at(c, bodycam.TypePtrace, tid, request)
	if p != nil {
		p.ev.Detail = sensor.PtraceRequest(request)
	}
	return p
}

func onProcessVM(t *task, c *call) *pending {
	return t.at(c, bodycam.TypePtrace, t.outside(c.fd(0)), 0)
}

// onKill handles kill and rt_sigqueueinfo. A negative pid is a process group, -1 everything.
func onKill(t *task, c *call) *pending {
	pid, signal := c.fd(0), int32(c.args[1])
	if pid > 0 {
		return t.at(c, bodycam.TypeSignal, t.outside(pid), signal)
	}
	e := t.event(bodycam.TypeSignal, c)
	e.Signal = signal
	switch {
	case pid == 0:
		e.Detail = "own process group"
	case pid == -1:
		e.Detail = "every process"
	default:
		e.Detail = fmt.Sprintf("process group %d", -pid)
	}
	if signal != 0 && t.sameSpace() && (pid == -1 || pid == -unix.Getpgrp()) {
		t.refuse(e)
		return nil
	}
	return &pending{ev: e}
}

// onTkill handles calls that name a thread.
func onTkill(arg int) handler {
	return func(t *task, c *call) *pending {
		return t.at(c, bodycam.TypeSignal, t.outside(c.fd(arg)), int32(c.args[arg+1]))
	}
}

// pidfd is the process that a descriptor of the task means.
func (t *task) pidfd(fd int) int {
	b, err := os.ReadFile(t.proc("/fdinfo/" + strconv.Itoa(fd)))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "\nPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	pid, _ := strconv.Atoi(line)
	return max(pid, 0)
}

func onPidfdSignal(t *task, c *call) *pending {
	return t.at(c, bodycam.TypeSignal, t.pidfd(c.fd(0)), int32(c.args[1]))
}

func onPidfdGetfd(t *task, c *call) *pending {
	pid := t.pidfd(c.fd(0))
	p := t.at(c, bodycam.TypePassFD, pid, 0)
	if p != nil && pid > 0 {
		if o, err := t.inspect("/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(c.fd(1))); err == nil {
			p.ev.Path, p.ev.Dev, p.ev.Ino = o.path, o.dev, o.ino
			p.ev.Marks |= o.marks
		}
	}
	return p
}

// onPrlimit keeps the recorder's limits out of reach; others' are not recorded.
func onPrlimit(t *task, c *call) *pending {
	if tid := t.outside(c.fd(0)); tid > 0 && t.s.isSelf(tid) && c.args[2] != 0 {
		return t.at(c, bodycam.TypeSignal, tid, -1)
	}
	return nil
}

func onPrctl(t *task, c *call) *pending {
	e := t.event(bodycam.TypePrctl, c)
	e.Flags = c.args[1]
	switch c.args[0] & 0xffffffff {
	case unix.PR_SET_DUMPABLE:
		e.Detail = "PR_SET_DUMPABLE"
		if c.args[1] == 0 && !t.s.power {
			e.Detail += ": answered without effect, it would hide the process"
			e.Marks |= bodycam.MarkHostile
			t.answer(0)
			t.s.emit(e)
			return nil
		}
	case unix.PR_SET_NAME:
		e.Flags = 0
		comm, _ := t.str(c.args[1], 16)
		e.Detail = "PR_SET_NAME " + comm
	case unix.PR_SET_SECCOMP:
		e.Detail = "PR_SET_SECCOMP"
	case unix.PR_SET_MM:
		e.Detail = "PR_SET_MM"
		e.Marks |= bodycam.MarkHostile // its own arguments or program will read otherwise
	case unix.PR_SET_PTRACER:
		e.Detail = "PR_SET_PTRACER"
	default:
		return nil
	}
	return &pending{ev: e}
}

// onSeccomp refuses a listener: with it a process could wave its own calls past the recorder's filter. It says so as
// the kernel would if there were a listener already.
func onSeccomp(t *task, c *call) *pending {
	if op := uint32(c.args[0]); op != unix.SECCOMP_SET_MODE_FILTER && op != unix.SECCOMP_SET_MODE_STRICT {
		return nil // the kernel takes the low half alone
	}
	if c.args[1]&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
		t.deny(c, bodycam.TypeDenied, bodycam.MarkHostile, unix.EBUSY)
		return nil
	}
	e := t.event(bodycam.TypePrctl, c)
	e.Flags, e.Detail = c.args[1], "seccomp filter"
	return &pending{ev: e}
}

// onUring records that requests went where nobody sees them.
func onUring(t *task, c *call) *pending {
	e := t.event(bodycam.TypeUring, c)
	e.Detail = c.def.name
	if c.def.name == "io_uring_enter" {
		e.Marks |= bodycam.MarkNoResult
	}
	return &pending{ev: e, then: func(ret int64) {
		if ret >= 0 && c.def.name != "io_uring_register" {
			t.s.hole("io_uring", "requests submitted to an io_uring don't pass the system call entry")
		}
	}}
}

// onPlain records a call by its name.
func onPlain(typ bodycam.Type) handler {
	return func(t *task, c *call) *pending {
		e := t.event(typ, c)
		e.Flags, e.Detail = c.args[0], c.def.name
		return &pending{ev: e}
	}
}
