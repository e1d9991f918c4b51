//go:build linux && amd64

package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ptrace is the bare call. None of the requests used here blocks, so the scheduler need not know of it.
func ptrace(req, tid int, addr, data uintptr) error {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), addr, data, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// Values of ptraceSyscallInfo.op.
const (
	opEntry   = 1
	opExit    = 2
	opSeccomp = 3
)

// ptraceSyscallInfo is the kernel's struct ptrace_syscall_info.
type ptraceSyscallInfo struct {
	op    uint8
	_     [3]uint8
	arch  uint32
	ip    uint64
	sp    uint64
	union [64]byte
}

type infoEntry struct {
	nr   uint64
	args [6]uint64
}

type infoExit struct {
	rval    int64
	isError uint8
}

func (i *ptraceSyscallInfo) entry() *infoEntry { return (*infoEntry)(unsafe.Pointer(&i.union)) }
func (i *ptraceSyscallInfo) exit() *infoExit   { return (*infoExit)(unsafe.Pointer(&i.union)) }

func (tr *tree) getInfo(tid int) bool {
	return ptrace(unix.PTRACE_GET_SYSCALL_INFO, tid, unsafe.Sizeof(tr.info), uintptr(unsafe.Pointer(&tr.info))) == nil
}

func getRegs(tid int, r *unix.PtraceRegs) error {
	return ptrace(unix.PTRACE_GETREGS, tid, 0, uintptr(unsafe.Pointer(r)))
}

func setRegs(tid int, r *unix.PtraceRegs) error {
	return ptrace(unix.PTRACE_SETREGS, tid, 0, uintptr(unsafe.Pointer(r)))
}

// peek reads a task's memory: as much as is there, up to len(b).
func peek(tid int, addr uint64, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	local := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
	n, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// poke writes a task's memory, read-only pages included.
func poke(tid int, addr uint64, b []byte) error {
	_, err := unix.PtracePokeData(tid, uintptr(addr), b)
	return err
}

// childInfo is the kernel's siginfo_t of a child.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
}

// cldTrapped is the first childInfo.code of a task that has not ended.
const cldTrapped = 4

// quietStops keeps the kernel from sending this process a SIGCHLD at each stop of a tracee, which would interrupt the
// runtime for nothing. It changes one flag of the signal's handler; SIGCHLD at the end of children stays.
func quietStops() {
	const noChildStop = 1 // SA_NOCLDSTOP
	var act struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0); e != 0 || act.flags&noChildStop != 0 {
		return
	}
	act.flags |= noChildStop
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
}
