//go:build linux && amd64

package ptrace

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	dataNR   = 0
	dataArch = 4
	dataArgs = 16
)

const x32Bit = 0x40000000

// when says which of a call's uses stop.
type when uint8

const (
	always     when = iota
	never           // only while every call of the process stops (task.full)
	addressed       // sendto with an address
	newKind         // clone that asks for namespaces, no tracer, or memory without being a thread
	mapsFile        // mmap of a file, shared or executable
	prctlKind       // prctl options that matter to observation
	notURG          // tgkill of another signal than SIGURG
	otherPID        // prlimit of another process
	ioctlKind       // ioctl requests that change a file or type into a terminal
	socketKind      // socket of another kind than the ordinary ones, which the kernel always opens
)

// cloneKind are the clone flags that matter; a thread may share memory and descriptors, a vfork
// memory.
const (
	cloneUntraced = unix.CLONE_UNTRACED
	cloneSpaces   = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	cloneMemory   = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_THREAD
	cloneFiles    = unix.CLONE_FILES | unix.CLONE_THREAD
)

var prctlOptions = []uint32{unix.PR_SET_DUMPABLE, unix.PR_SET_NAME, unix.PR_SET_SECCOMP, unix.PR_SET_MM, unix.PR_SET_PTRACER}

// ioctlRequests are FS_IOC_SETFLAGS and its 32-bit form, FS_IOC_FSSETXATTR, TIOCSTI and TIOCLINUX.
var ioctlRequests = []uint32{0x40086602, 0x40046602, 0x401c5820, unix.TIOCSTI, unix.TIOCLINUX}

// program is a classic BPF program under construction.
type program []unix.SockFilter

func (p *program) op(code uint16, k uint32, jt, jf uint8) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}
func (p *program) load(off uint32) { p.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, off, 0, 0) }
func (p *program) arg(i int)       { p.load(dataArgs + 8*uint32(i)) }
func (p *program) and(k uint32)    { p.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, k, 0, 0) }
func (p *program) jeq(k uint32, jt, jf uint8) {
	p.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, jt, jf)
}
func (p *program) ret(action uint32) { p.op(unix.BPF_RET|unix.BPF_K, action, 0, 0) }

// trace and allow end a block.
func (p *program) trace() { p.ret(unix.SECCOMP_RET_TRACE) }
func (p *program) allow() { p.ret(unix.SECCOMP_RET_ALLOW) }

// block appends the instructions that decide one call, given that its number matched.
func (p *program) block(w when) {
	switch w {
	case always:
	case addressed:
		p.arg(4)
		p.jeq(0, 0, 3)
		p.load(dataArgs + 8*4 + 4)
		p.jeq(0, 0, 1)
		p.allow()
	case newKind:
		p.arg(0)
		p.and(cloneSpaces | cloneUntraced)
		p.jeq(0, 0, 7)
		p.arg(0)
		p.and(cloneMemory)
		p.jeq(unix.CLONE_VM, 4, 0)
		p.arg(0)
		p.and(cloneFiles)
		p.jeq(unix.CLONE_FILES, 1, 0)
		p.allow()
	case mapsFile:
		p.arg(3)
		p.and(unix.MAP_SHARED)
		p.jeq(unix.MAP_SHARED, 9, 0)
		p.arg(4)
		p.jeq(0xffffffff, 6, 0) // no file
		p.arg(3)
		p.and(unix.MAP_ANONYMOUS)
		p.jeq(0, 0, 3)
		p.arg(2)
		p.and(unix.PROT_EXEC)
		p.jeq(0, 0, 1)
		p.allow()
	case prctlKind:
		p.arg(0)
		for i, o := range prctlOptions {
			p.jeq(o, uint8(len(prctlOptions)-i), 0)
		}
		p.allow()
	case notURG:
		p.arg(2)
		p.jeq(uint32(unix.SIGURG), 0, 1)
		p.allow()
	case ioctlKind:
		p.arg(1)
		for i, r := range ioctlRequests {
			p.jeq(r, uint8(len(ioctlRequests)-i), 0)
		}
		p.allow()
	case socketKind:
		p.arg(1)
		p.and(0xf)
		p.jeq(unix.SOCK_PACKET, 3, 0)
		p.jeq(unix.SOCK_RAW, 0, 3)
		p.arg(0)
		p.jeq(unix.AF_NETLINK, 6, 0)
		p.trace()
		p.arg(0)
		p.jeq(unix.AF_UNIX, 3, 0)
		p.jeq(unix.AF_INET, 2, 0)
		p.jeq(unix.AF_NETLINK, 1, 0)
		p.jeq(unix.AF_INET6, 0, 1)
		p.allow()
	case otherPID:
		p.arg(0)
		p.jeq(0, 0, 1)
		p.allow()
	}
	p.trace()
}

// section decides all calls of one ABI; the accumulator holds the call's number.
func section(abi bodycam.ABI, deny map[string]bool) program {
	var p program
	for _, d := range callTable() {
		w := d.when
		if deny[d.name] {
			w = always
		}
		if n := d.number(abi); n >= 0 && w != never {
			var b program
			b.block(w)
			p.jeq(uint32(n), 0, uint8(len(b)))
			p = append(p, b...)
		}
	}
	p.allow()
	return p
}

func filter(deny map[string]bool) []unix.SockFilter {
	native, compat := section(bodycam.ABIAMD64, deny), section(bodycam.ABII386, deny)
	var p program
	p.load(dataArch)
	p.jeq(unix.AUDIT_ARCH_X86_64, 2, 0)
	p.jeq(unix.AUDIT_ARCH_I386, 0, 3)
	p.op(unix.BPF_JMP|unix.BPF_JA, uint32(len(native))+3, 0, 0) // to the compat section
	p.load(dataNR)
	p.op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, x32Bit, 0, 1)
	p.trace() // x32, or an interface nobody knows: rare enough to stop at all of it
	p = append(p, native...)
	p.load(dataNR)
	return append(p, compat...)
}

// ChildFilter returns the seccomp filter that a process to be observed installs, as data: a sandbox can install it in
// its child just before exec. It must be installed with a tracer already there ([Sensor.Attach]).
func (s *Sensor) ChildFilter() []unix.SockFilter { return filter(s.deny) }

// ChildFilter returns the filter of a sensor without options.
func ChildFilter() []unix.SockFilter { return filter(nil) }

// InstallFilter sets no_new_privs and installs a filter in every thread of the calling process.
func InstallFilter(f []unix.SockFilter) error {
	if len(f) == 0 || len(f) > unix.BPF_MAXINSNS {
		return fmt.Errorf("installing a seccomp filter of %d instructions: the kernel takes 1 to %d", len(f), unix.BPF_MAXINSNS)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(f)
	if e != 0 {
		return fmt.Errorf("installing the seccomp filter: %w", e)
	}
	return nil
}
