//go:build linux

package boxinit

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spawn forks a command straight into its namespaces and cgroup. os/exec can't install a seccomp filter or drop the
// bounding set between fork and exec, and a helper program in between would show up in the record as the agent's
// doing; so the child's few system calls are made here, by hand, under the rules of syscall.forkExec: after the fork
// nothing may allocate, grow the stack or take a lock.

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:linkname runtimeAfterForkInChild syscall.runtime_AfterForkInChild
func runtimeAfterForkInChild()

// stage says which step of the child failed.
type stage uint32

const (
	stageFork stage = iota
	stageMap
	stageSession
	stageIdentity
	stageLimits
	stageDir
	stageFiles
	stagePrivileges
	stageSeccomp
	stageExec
)

var stageNames = [...]string{
	"fork", "map user ids", "start session", "change user", "set limits", "change directory",
	"set up standard streams", "give up privileges", "install seccomp filter", "execute",
}

// child is everything the child needs, laid out before the fork.
type child struct {
	clone    cloneArgs
	paths    []*byte // candidates for the program, tried in order
	argv     []*byte // ends with nil
	envv     []*byte // ends with nil
	dir      *byte
	uid, gid uintptr
	groups   []uint32
	noGroups bool // setgroups is forbidden in this user namespace
	fds      [3]uintptr
	keep     uint64 // capabilities kept
	filter   unix.SockFprog
	hasBPF   bool
	stop     bool           // stop before tracer and exec, for stopped
	tracer   unix.SockFprog // a sensor's filter, installed once that is attached
	traced   bool
	nofile   unix.Rlimit
	one      unix.Rlimit
	syncR    uintptr // one byte arrives when the id maps are written
	errW     uintptr // stage and errno go here; closed by exec
	pidfd    int32
	zero     [1]byte
	sigact   [4]uint64 // a kernel_sigaction of zeros: default action
	capHdr   unix.CapUserHeader
	capData  [2]unix.CapUserData
	report   [2]uint32
	idMap    func(pid int) error
	stopped  func(pid int, pidfd *os.File)
}

// cloneArgs is struct clone_args of clone3, up to what Linux 5.7 knows.
type cloneArgs struct {
	Flags, Pidfd, ChildTID, ParentTID, ExitSignal, Stack, StackSize, TLS, SetTID, SetTIDSize, Cgroup uint64
}

// start forks and waits until the child has executed its program or failed to.
func (c *child) start() (pid int, pidfd *os.File, err error) {
	var sync, fail [2]int
	if err := unix.Pipe2(sync[:], unix.O_CLOEXEC); err != nil {
		return 0, nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := unix.Pipe2(fail[:], unix.O_CLOEXEC); err != nil {
		unix.Close(sync[0])
		unix.Close(sync[1])
		return 0, nil, fmt.Errorf("make pipe: %w", err)
	}
	c.syncR, c.errW = uintptr(sync[0]), uintptr(fail[1])
	c.clone.ExitSignal = uint64(unix.SIGCHLD)
	c.clone.Flags |= unix.CLONE_PIDFD
	c.clone.Pidfd = uint64(uintptr(unsafe.Pointer(&c.pidfd)))
	c.capHdr.Version = unix.LINUX_CAPABILITY_VERSION_3

	syscall.ForkLock.Lock()
	n, errno := forkChild(c)
	syscall.ForkLock.Unlock()
	unix.Close(sync[0])
	unix.Close(fail[1])
	defer unix.Close(fail[0])
	if errno != 0 {
		unix.Close(sync[1])
		return 0, nil, &spawnError{stageFork, errno}
	}
	pid, pidfd = int(n), os.NewFile(uintptr(c.pidfd), "pidfd")
	mapErr := c.idMap(pid)
	if mapErr == nil {
		_, mapErr = unix.Write(sync[1], []byte{1})
	}
	unix.Close(sync[1]) // without the byte the child gives up
	if mapErr == nil && c.stop && awaitStop(pid) {
		c.stopped(pid, pidfd)
	}
	var b [8]byte
	k := 0
	for k < len(b) {
		m, err := unix.Read(fail[0], b[k:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		k += m
	}
	switch {
	case mapErr != nil:
		return pid, pidfd, fmt.Errorf("map user ids: %w", mapErr)
	case k == len(b):
		st := *(*[2]uint32)(unsafe.Pointer(&b))
		return pid, pidfd, &spawnError{stage(st[0]), syscall.Errno(st[1])}
	case k != 0:
		return pid, pidfd, fmt.Errorf("child sent %d bytes of an error report", k)
	}
	return pid, pidfd, nil
}

// awaitStop waits until a child has stopped itself, and says whether it did so rather than end.
func awaitStop(pid int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && info.Code == cldStopped
		}
	}
}

const cldStopped = 5 // CLD_STOPPED

type spawnError struct {
	stage stage
	errno syscall.Errno
}

func (e *spawnError) Error() string {
	name := "stage " + strconv.Itoa(int(e.stage))
	if int(e.stage) < len(stageNames) {
		name = stageNames[e.stage]
	}
	return name + ": " + e.errno.Error()
}

func (e *spawnError) Unwrap() error { return e.errno }

// forkChild returns in the parent only.
//
//go:norace
//go:noinline
func forkChild(c *child) (uintptr, syscall.Errno) {
	runtimeBeforeFork()
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.clone)), unsafe.Sizeof(c.clone), 0)
	if errno != 0 || pid != 0 {
		runtimeAfterFork()
		return pid, errno
	}
	runtimeAfterForkInChild()
	runChild(c)
	return 0, 0 // not reached
}

//go:norace
//go:nosplit
func childFail(c *child, s stage, errno syscall.Errno) {
	c.report[0], c.report[1] = uint32(s), uint32(errno)
	syscall.RawSyscall(unix.SYS_WRITE, c.errW, uintptr(unsafe.Pointer(&c.report)), 8)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

// runChild never returns.
//
//go:norace
//go:nosplit
func runChild(c *child) {
	var errno syscall.Errno
	var n uintptr
	if n, _, errno = syscall.RawSyscall(unix.SYS_READ, c.syncR, uintptr(unsafe.Pointer(&c.zero)), 1); errno != 0 || n != 1 {
		childFail(c, stageMap, unix.ECANCELED)
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		childFail(c, stageSession, errno)
	}
	// Init ignores signals; its children must not.
	for i := uintptr(1); i <= 64; i++ {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, i, uintptr(unsafe.Pointer(&c.sigact)), 0, 8, 0, 0)
	}
	c.sigact[0] = 0
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, uintptr(unsafe.Pointer(&c.sigact)), 0, 8, 0, 0)
	childIdentity(c)
	childFiles(c)
	childConfine(c)
	childTraced(c)
	for i := 0; i < len(c.paths); i++ {
		_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.paths[i])),
			uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.envv[0])))
		// As execvp: a candidate that can't be executed is remembered, a missing one isn't.
		if errno == 0 || e != unix.ENOENT && e != unix.ENOTDIR {
			errno = e
		}
		if e != unix.ENOENT && e != unix.ENOTDIR && e != unix.EACCES {
			break
		}
	}
	childFail(c, stageExec, errno)
}

//go:norace
//go:nosplit
func childIdentity(c *child) {
	var errno syscall.Errno
	for i := uintptr(0); i < 64; i++ {
		if c.keep&(1<<i) != 0 {
			continue
		}
		if _, _, errno = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, i, 0); errno == unix.EINVAL {
			break // past the last capability this kernel knows
		} else if errno != 0 {
			childFail(c, stagePrivileges, errno)
		}
	}
	if !c.noGroups {
		var p uintptr
		if len(c.groups) > 0 {
			p = uintptr(unsafe.Pointer(&c.groups[0]))
		}
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.groups)), p, 0); errno != 0 {
			childFail(c, stageIdentity, errno)
		}
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETRESGID, c.gid, c.gid, c.gid); errno != 0 {
		childFail(c, stageIdentity, errno)
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETRESUID, c.uid, c.uid, c.uid); errno != 0 {
		childFail(c, stageIdentity, errno)
	}
	syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	c.capData[0] = unix.CapUserData{Effective: uint32(c.keep), Permitted: uint32(c.keep)}
	c.capData[1] = unix.CapUserData{Effective: uint32(c.keep >> 32), Permitted: uint32(c.keep >> 32)}
	if _, _, errno = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.capHdr)), uintptr(unsafe.Pointer(&c.capData)), 0); errno != 0 {
		childFail(c, stagePrivileges, errno)
	}
	if _, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&c.nofile)), 0, 0, 0); errno != 0 {
		childFail(c, stageLimits, errno)
	}
	if _, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&c.one)), 0, 0, 0); errno != 0 {
		childFail(c, stageLimits, errno)
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0); errno != 0 {
		childFail(c, stageDir, errno)
	}
}

//go:norace
//go:nosplit
func childFiles(c *child) {
	var errno syscall.Errno
	// The three files were opened well above 2, so no dup3 overwrites a later one.
	for i := 0; i < 3; i++ {
		if _, _, errno = syscall.RawSyscall(unix.SYS_DUP3, c.fds[i], uintptr(i), 0); errno != 0 {
			childFail(c, stageFiles, errno)
		}
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, 0xffffffff, unix.CLOSE_RANGE_CLOEXEC); errno != 0 {
		childFail(c, stageFiles, errno)
	}
}

//go:norace
//go:nosplit
func childConfine(c *child) {
	var errno syscall.Errno
	if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		childFail(c, stagePrivileges, errno)
	}
	if !c.hasBPF {
		return
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&c.filter))); errno != 0 {
		childFail(c, stageSeccomp, errno)
	}
}

// childTraced lets a tracer take hold and installs its filter: without a tracer such a filter makes calls fail.
//
//go:norace
//go:nosplit
func childTraced(c *child) {
	var errno syscall.Errno
	if c.stop {
		pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
		if _, _, errno = syscall.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGSTOP), 0); errno != 0 {
			childFail(c, stageSession, errno)
		}
	}
	if !c.traced {
		return
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&c.tracer))); errno != 0 {
		childFail(c, stageSeccomp, errno)
	}
}
