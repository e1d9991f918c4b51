//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// Process is a program that [Sensor.StartProcess] started.
type Process struct {
	PID    int
	done   chan struct{}
	status unix.WaitStatus
}

// Wait returns the process's status when it has ended; what it started may go on.
func (p *Process) Wait() unix.WaitStatus {
	<-p.done
	return p.status
}

// StartProcess runs a program under observation, in a session of its own. argv[0] is its path; files become its
// descriptors 0, 1, 2 …
func (s *Sensor) StartProcess(argv, env []string, dir string, files []*os.File) (*Process, error) {
	if len(argv) == 0 {
		return nil, errors.New("starting a process: no arguments; the first is the program's path")
	}
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
	}
	p := &Process{done: make(chan struct{})}
	if err := s.run(func(tr *tree) error { return tr.start(p, argv, env, dir, fds) }); err != nil {
		return nil, err
	}
	return p, nil
}

// start forks the program on the tracer's thread.
func (tr *tree) start(p *Process, argv, env []string, dir string, fds []uintptr) error {
	s := tr.s
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: fds, Sys: &syscall.SysProcAttr{Ptrace: true, Setsid: true}})
	if err != nil {
		return fmt.Errorf("starting %s: %w", argv[0], err)
	}
	p.PID = pid
	if err := tr.takeOver(pid, filter(s.deny)); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		return fmt.Errorf("bringing %s under observation: %w", argv[0], err)
	}
	tr.exit[pid] = p
	s.mu.Lock()
	defer s.mu.Unlock()
	t := tr.register(pid, s.self)
	s.emit(&bodycam.Event{Type: bodycam.TypeFork, NR: -1, Proc: s.self, TID: s.self.PID, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Child: t.p.id})
	e := t.event(bodycam.TypeExec, nil)
	e.NR, e.ABI, e.PathGiven = unix.SYS_EXECVE, bodycam.ABIAMD64, argv[0]
	t.image(e, image{object: t.resolve(unix.AT_FDCWD, argv[0], true), known: true}, nil)
	s.emit(e)
	return unix.Kill(pid, unix.SIGCONT)
}

// register enters the first process of a tree.
func (tr *tree) register(pid int, parent bodycam.Proc) *task {
	p := tr.s.newProcess(pid, nil)
	p.parent = parent
	t := &task{s: tr.s, tr: tr, tid: pid, p: p}
	tr.s.tasks[pid] = t
	tr.own[pid] = struct{}{}
	return t
}

// takeOver brings a child that stopped at its exec (PTRACE_TRACEME) under observation: it is made to install the
// filter, and traced anew in the way (PTRACE_SEIZE) that leaves its job control alone. It is then stopped by SIGSTOP.
func (tr *tree) takeOver(pid int, f []unix.SockFilter) error {
	if err := awaitStop(pid, unix.SIGTRAP); err != nil {
		return err
	}
	if err := inject(pid, f); err != nil {
		return err
	}
	if err := ptrace(unix.PTRACE_DETACH, pid, 0, uintptr(unix.SIGSTOP)); err != nil {
		return fmt.Errorf("letting go of it: %w", err)
	}
	if err := awaitStop(pid, unix.SIGSTOP); err != nil {
		return err
	}
	if err := ptrace(unix.PTRACE_SEIZE, pid, 0, traceOptions); err != nil {
		return fmt.Errorf("seizing it: %w", err)
	}
	return nil
}

func awaitStop(pid int, want unix.Signal) error {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, unix.WALL|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for it to stop: %w", err)
		case !ws.Stopped():
			return fmt.Errorf("it ended before it could be observed, status %#x", int(ws))
		case ws.StopSignal() == want:
			return nil
		default: // another signal came first; it stays without effect
			if err := ptrace(unix.PTRACE_CONT, pid, 0, 0); err != nil {
				return fmt.Errorf("waiting for it to stop: %w", err)
			}
		}
	}
}

// inject makes a stopped process install a filter: it borrows a few bytes of its code and stack, steps over two
// system calls, and puts everything back.
func inject(pid int, f []unix.SockFilter) error {
	var saved unix.PtraceRegs
	if err := getRegs(pid, &saved); err != nil {
		return fmt.Errorf("reading its registers: %w", err)
	}
	const compatCS = 0x23
	abi := abi64
	if saved.Cs == compatCS {
		abi = abi32
	}
	room := make([]byte, 8*len(f)+16)
	at := (saved.Rsp - 32<<10) &^ 15 // far below the stack's end, within what the kernel maps at exec
	code, stack := make([]byte, 2), make([]byte, len(room))
	if _, err := unix.PtracePeekData(pid, uintptr(saved.Rip), code); err != nil {
		return fmt.Errorf("reading its code: %w", err)
	}
	if _, err := unix.PtracePeekData(pid, uintptr(at), stack); err != nil {
		return fmt.Errorf("reading its stack: %w", err)
	}
	for i, ins := range f {
		b := room[16+8*i:]
		binary.LittleEndian.PutUint16(b, ins.Code)
		b[2], b[3] = ins.Jt, ins.Jf
		binary.LittleEndian.PutUint32(b[4:], ins.K)
	}
	binary.LittleEndian.PutUint16(room, uint16(len(f)))
	if abi.word == 8 {
		binary.LittleEndian.PutUint64(room[8:], at+16)
	} else {
		binary.LittleEndian.PutUint32(room[4:], uint32(at+16))
	}
	if err := errors.Join(poke(pid, saved.Rip, abi.trap[:]), poke(pid, at, room)); err != nil {
		return fmt.Errorf("writing its memory: %w", err)
	}
	err := abi.step(pid, saved, abi.prctl, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	if err == nil {
		err = abi.step(pid, saved, abi.seccomp, unix.SECCOMP_SET_MODE_FILTER, 0, at)
	}
	return errors.Join(err, poke(pid, saved.Rip, code), poke(pid, at, stack), setRegs(pid, &saved))
}

// borrowed is how a process of that ABI makes a system call.
type borrowed struct {
	trap           [2]byte
	word           int
	prctl, seccomp uint64
}

var (
	abi64 = borrowed{[2]byte{0x0f, 0x05}, 8, unix.SYS_PRCTL, unix.SYS_SECCOMP} // syscall
	abi32 = borrowed{[2]byte{0xcd, 0x80}, 4, 172, 354}                         // int 0x80
)

// step makes a stopped process do one call at its present instruction.
func (a borrowed) step(pid int, regs unix.PtraceRegs, nr, arg1, arg2, arg3 uint64) error {
	regs.Rax, regs.Orig_rax = nr, ^uint64(0)
	if a.word == 8 {
		regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8 = arg1, arg2, arg3, 0, 0
	} else {
		regs.Rbx, regs.Rcx, regs.Rdx, regs.Rsi, regs.Rdi = arg1, arg2, arg3, 0, 0
	}
	if err := setRegs(pid, &regs); err != nil {
		return fmt.Errorf("setting its registers: %w", err)
	}
	if err := ptrace(unix.PTRACE_SINGLESTEP, pid, 0, 0); err != nil {
		return fmt.Errorf("stepping it: %w", err)
	}
	if err := awaitStop(pid, unix.SIGTRAP); err != nil {
		return err
	}
	if err := getRegs(pid, &regs); err != nil {
		return fmt.Errorf("reading its registers: %w", err)
	}
	if ret := int64(int32(uint32(regs.Rax))); ret < 0 {
		return fmt.Errorf("making it call prctl or seccomp: %w", unix.Errno(-ret))
	}
	return nil
}

// Attach brings a process under observation that has stopped itself with SIGSTOP, with all its threads, and lets it
// go on. It is to install the filter next (see the package comment); until then nothing of it is seen.
// The process must not be a child of the recorder.
func (s *Sensor) Attach(pid int) error {
	st, err := readStat(pid)
	if err != nil {
		return fmt.Errorf("attaching to process %d: %w", pid, err)
	}
	if st.ppid == os.Getpid() {
		return fmt.Errorf("attaching to process %d: it is the recorder's own child, whose wait would take the tracer's stops; let a process in between start it", pid)
	}
	return s.run(func(tr *tree) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		seized := make(map[int]bool)
		for again := true; again; { // threads may be added while others are seized
			again = false
			entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
			if err != nil {
				return fmt.Errorf("attaching to process %d: %w", pid, err)
			}
			for _, e := range entries {
				tid, err := strconv.Atoi(e.Name())
				if err != nil || seized[tid] {
					continue
				}
				if err := ptrace(unix.PTRACE_SEIZE, tid, 0, traceOptions); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("attaching to process %d: seizing its thread %d: %w (is another tracer there, or the process of another user?)", pid, tid, err)
				}
				seized[tid], again = true, true
			}
		}
		t := tr.register(pid, s.target(st.ppid))
		for tid := range seized {
			if tid != pid {
				s.tasks[tid] = &task{s: s, tr: tr, tid: tid, p: t.p}
				tr.own[tid] = struct{}{}
				t.p.tasks++
			}
		}
		e := t.event(bodycam.TypeExec, nil)
		e.Marks |= bodycam.MarkSynthesised
		t.image(e, image{}, nil)
		s.emit(e)
		return unix.Kill(pid, unix.SIGCONT)
	})
}
