//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"time"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const traceOptions = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
	unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

// tree is one tracer thread and what it traces: one started or attached process and all that come from it. The
// kernel ties tracees to a thread, so each tree has its own.
type tree struct {
	s    *Sensor
	own  map[int]struct{}  // traced tasks
	held map[int]int       // new tasks whose creator has not reported them yet, with their parent's pid
	exit map[int]*Process  // started by us: who waits for their end
	cpu  time.Duration     // of this thread, so far
	info ptraceSyscallInfo // room for one
}

// run starts a tracer thread: begin runs on it and brings the first process under observation.
func (s *Sensor) run(begin func(*tree) error) error {
	s.mu.Lock()
	if !s.started || s.alive.over() {
		s.mu.Unlock()
		return errors.New("the ptrace sensor is not running")
	}
	tr := &tree{s: s, own: make(map[int]struct{}), held: make(map[int]int), exit: make(map[int]*Process)}
	s.running[tr] = struct{}{}
	s.trees.Add(1)
	s.mu.Unlock()
	begun := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and whatever it still traces dies with it.
		runtime.LockOSThread()
		defer s.trees.Done()
		err := begin(tr)
		begun <- err
		if err == nil {
			tr.loop()
		}
		s.mu.Lock()
		tr.account()
		s.cpu += tr.cpu
		delete(s.running, tr)
		s.mu.Unlock()
	}()
	return <-begun
}

func (tr *tree) account() {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &ru) == nil {
		tr.cpu = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
}

// loop handles stops until nothing is traced any more.
func (tr *tree) loop() {
	for n := 0; len(tr.own)+len(tr.held) > 0; n++ {
		tid, ws, err := tr.next()
		tr.s.mu.Lock()
		if err != nil {
			if tr.s.failed == nil {
				tr.s.failed = fmt.Errorf("waiting for traced processes: %w", err)
			}
			tr.s.mu.Unlock()
			return
		}
		if n&255 == 0 {
			tr.account()
		}
		tr.handle(tid, ws)
		tr.s.mu.Unlock()
	}
}

// next waits for a traced task to stop or end. The thread may have other children: those that were forked on it
// before, or inherited from a thread that ended. Their ends are for others to see, so it looks before it takes.
func (tr *tree) next() (int, unix.WaitStatus, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		var ws unix.WaitStatus
		child := (*childInfo)(unsafe.Pointer(&info))
		// Without WUNTRACED only tracees stop.
		if tid := int(child.pid); child.code >= cldTrapped || !tr.foreign(tid) {
			if got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOTHREAD, nil); err == nil && got == tid {
				return tid, ws, nil
			}
			continue
		}
		// Another's child has ended and hides what comes after it until that other has taken notice.
		for tid := range tr.own {
			if got, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil); err == nil && got == tid {
				return tid, ws, nil
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// foreign tells whether a task that ended is a child of the recorder that this tree does not trace. A task that
// isn't known may be a tracee that was killed before its creator could report it.
func (tr *tree) foreign(tid int) bool {
	if _, ok := tr.own[tid]; ok {
		return false
	}
	if _, ok := tr.held[tid]; ok {
		return false
	}
	st, err := readStat(tid)
	return err == nil && st.ppid == int(tr.s.self.PID) && isLeader(tid)
}

func (tr *tree) handle(tid int, ws unix.WaitStatus) {
	t := tr.s.tasks[tid]
	if ws.Exited() || ws.Signaled() {
		tr.ended(tid, t, ws)
		return
	}
	if !ws.Stopped() {
		return
	}
	sig, event := ws.StopSignal(), int(ws)>>16
	if t == nil {
		tr.s.alive.add(tid)
		tr.held[tid] = 0 // it stays stopped until its creator reports it
		if st, err := readStat(tid); err == nil {
			tr.held[tid] = st.ppid
		}
		return
	}
	switch {
	case event == unix.PTRACE_EVENT_SECCOMP:
		tr.entry(t)
	case sig == unix.SIGTRAP|0x80:
		tr.syscallStop(t)
	case event == unix.PTRACE_EVENT_FORK, event == unix.PTRACE_EVENT_VFORK, event == unix.PTRACE_EVENT_CLONE:
		tr.forked(t)
	case event == unix.PTRACE_EVENT_EXEC:
		tr.execed(t)
	case event == unix.PTRACE_EVENT_STOP:
		if sig == unix.SIGSTOP || sig == unix.SIGTSTP || sig == unix.SIGTTIN || sig == unix.SIGTTOU {
			tr.listen(t)
			return
		}
		tr.resume(t, 0)
	default:
		tr.resume(t, sig)
	}
}

// resume lets a task go on, to the end of its call if something waits for that.
func (tr *tree) resume(t *task, sig unix.Signal) {
	req := unix.PTRACE_CONT
	if t.pend != nil || t.broken != nil || t.p.full() {
		req = unix.PTRACE_SYSCALL
	}
	// ESRCH: it was killed meanwhile; wait4 will say so.
	_ = ptrace(req, t.tid, 0, uintptr(sig))
}

// listen leaves a task in its group stop, as if it were not traced.
func (tr *tree) listen(t *task) { _ = ptrace(unix.PTRACE_LISTEN, t.tid, 0, 0) }

// entry handles a stop of the seccomp filter: a call is about to be made.
func (tr *tree) entry(t *task) {
	if !tr.getInfo(t.tid) || tr.info.op != opSeccomp {
		t.kill() // what it is about to do isn't known, and must not be done where it is to be refused
		tr.resume(t, 0)
		return
	}
	c := tr.decode(t)
	errno := t.s.refuses(c, tr.info.arch)
	switch {
	case c.abi == bodycam.ABIX32:
		t.refuseX32(c)
	case errno != 0:
		t.refused(c, errno)
	case c.def != nil:
		t.enter(c)
	}
	tr.resume(t, 0)
}

// syscallStop handles a stop at the exit of a call, or, while all calls of the process stop, at an entry.
func (tr *tree) syscallStop(t *task) {
	if !tr.getInfo(t.tid) {
		tr.resume(t, 0)
		return
	}
	switch tr.info.op {
	case opEntry:
		e := tr.info.entry()
		t.returning = e.nr == unix.SYS_RT_SIGRETURN && tr.info.arch != unix.AUDIT_ARCH_I386 ||
			(e.nr == 119 || e.nr == 173) && tr.info.arch == unix.AUDIT_ARCH_I386
		if c := tr.decode(t); c.def != nil && (c.def.when == never || c.def.when == addressed && c.args[4] == 0) {
			t.enter(c)
		}
	case opExit:
		if p := t.pend; p != nil {
			t.pend = nil
			t.leave(p, tr.info.exit().rval)
		} else if p := t.broken; p != nil && t.returning && tr.info.exit().rval == -int64(unix.EINTR) {
			// The signal's handler returns to a call that failed because of it.
			t.broken = nil
			t.leave(p, -int64(unix.EINTR))
		}
		t.returning = false
	}
	tr.resume(t, 0)
}

// decode turns the kernel's description of a call into one of the table's. Its def is nil where the table lacks it.
func (tr *tree) decode(t *task) *call {
	e := tr.info.entry()
	c := &call{nr: int32(e.nr), args: e.args, sp: tr.info.sp}
	table := 0
	switch {
	case tr.info.arch == unix.AUDIT_ARCH_I386:
		c.abi, table = bodycam.ABII386, 1
		for i := range c.args {
			c.args[i] = uint64(uint32(c.args[i]))
		}
	case e.nr&x32Bit != 0:
		c.abi = bodycam.ABIX32
	default:
		c.abi = bodycam.ABIAMD64
	}
	nr := c.nr
	if c.abi == bodycam.ABIX32 {
		nr &^= x32Bit
	}
	c.def = tr.s.byNR[table][nr]
	return c
}

// ended handles the end of a task; the end of a leader is the end of its process.
func (tr *tree) ended(tid int, t *task, ws unix.WaitStatus) {
	s := tr.s
	delete(tr.held, tid)
	delete(tr.own, tid)
	if t == nil {
		s.alive.remove(tid)
		return
	}
	t.abandon()
	delete(s.tasks, tid)
	p := t.p
	p.tasks--
	if tid != int(p.id.PID) {
		return
	}
	tr.adoptOrphans(t)
	e := t.event(bodycam.TypeExit, nil)
	e.Status = int32(ws)
	s.emit(e)
	delete(s.procs, p.id.PID)
	s.alive.remove(tid)
	if w := tr.exit[tid]; w != nil {
		delete(tr.exit, tid)
		w.status = ws
		close(w.done)
	}
}

// adoptOrphans takes up new processes whose creator died before it could report them.
func (tr *tree) adoptOrphans(creator *task) {
	for tid, ppid := range tr.held {
		if ppid == int(creator.p.id.PID) {
			delete(tr.held, tid)
			tr.resume(tr.adopt(tid, creator, bodycam.MarkSynthesised), 0)
		}
	}
}

// forked handles a task's report that it made another.
func (tr *tree) forked(t *task) {
	var msg uint
	if err := ptrace(unix.PTRACE_GETEVENTMSG, t.tid, 0, uintptr(unsafe.Pointer(&msg))); err == nil {
		tid := int(msg)
		t.made = true
		if tr.s.tasks[tid] == nil {
			made := tr.adopt(tid, t, 0)
			if _, ok := tr.held[tid]; ok {
				delete(tr.held, tid)
				tr.resume(made, 0)
			}
		}
	}
	tr.resume(t, 0)
}

// adopt enters a new task, and its process where it is one, into the tables. The task is stopped, or a zombie that
// nobody has waited for: its /proc entry is there.
func (tr *tree) adopt(tid int, creator *task, m bodycam.Mark) *task {
	s := tr.s
	t := &task{s: s, tr: tr, tid: tid, uid: creator.uid, gid: creator.gid, ids: creator.ids}
	tr.own[tid] = struct{}{}
	if isThread(int(creator.p.id.PID), tid) {
		s.alive.remove(tid)
		t.p = creator.p
		t.p.tasks++
		s.tasks[tid] = t
		return t
	}
	t.p = s.newProcess(tid, creator.p)
	s.tasks[tid] = t
	e := creator.event(bodycam.TypeFork, nil)
	e.Child, e.Marks = t.p.id, m
	s.emit(e)
	return t
}

// newProcess makes the identity of a process. Two processes can share a pid within one tick of the clock that
// /proc/PID/stat counts in: the second is then a nanosecond younger.
func (s *Sensor) newProcess(pid int, parent *process) *process {
	p := &process{id: bodycam.Proc{PID: int32(pid)}, tasks: 1}
	if st, err := readStat(pid); err == nil {
		p.id.Start, p.sid = st.start, int32(st.sid)
	}
	if last, ok := s.last[p.id.PID]; ok && p.id.Start <= last {
		p.id.Start = last + 1
	}
	if len(s.last) > 1<<16 { // only what began within the last tick can collide
		maps.DeleteFunc(s.last, func(_ int32, start uint64) bool { return start+1e9 < p.id.Start })
	}
	s.last[p.id.PID] = p.id.Start
	if parent != nil {
		p.parent, p.borrows = parent.id, parent.lends
		if len(parent.dns) > 0 {
			p.dns = make(map[int]*dnsSocket, len(parent.dns))
			for fd, d := range parent.dns {
				c := *d
				p.dns[fd] = &c
			}
		}
	}
	s.procs[p.id.PID] = p
	s.alive.add(pid)
	return p
}
