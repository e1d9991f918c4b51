//go:build linux

// Package seccomp builds the system call filters of a box's commands.
package seccomp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Mode names a filter for the commands of a box.
type Mode string

const (
	// Strict refuses what a sensor can't follow or an agent doesn't need: io_uring, handles, other ABIs, bpf,
	// perf, userfaultfd, keyrings, modules, raw and exotic sockets, mounts, new namespaces, ptrace.
	Strict Mode = "strict"
	// Observe is for software one wants to watch: it allows io_uring, mounts, namespaces, ptrace, raw sockets
	// and the 32-bit ABI inside the box.
	Observe Mode = "observe"
	// None installs no filter. Create refuses it unless Config.Unsafe is set.
	None Mode = "none"
)

// argTest compares the low 32 bits of one argument: (arg & Mask) op Value, where op is "any bit set" (Value unused)
// or equality.
type argTest struct {
	arg   int
	mask  uint32
	value uint32
	bits  bool
}

type rule struct {
	nr    uint32
	errno unix.Errno
	tests []argTest // all must hold; none means always
}

// Offsets in struct seccomp_data.
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16
)

const nsFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

func denyAll(errno unix.Errno, nrs ...uint32) []rule {
	var out []rule
	for _, nr := range nrs {
		out = append(out, rule{nr: nr, errno: errno})
	}
	return out
}

// alwaysDenied is refused in both modes: it reaches the kernel itself, files by handle, or other uses of the machine.
func alwaysDenied() []rule {
	return denyAll(unix.EPERM, append([]uint32{
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_SYSLOG, unix.SYS_REBOOT, unix.SYS_ACCT,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_FANOTIFY_INIT,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_VHANGUP, unix.SYS_LOOKUP_DCOOKIE,
		unix.SYS_NFSSERVCTL,
	}, archDenied...)...)
}

func strictDenied() []rule {
	rules := denyAll(unix.ENOSYS,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_CLONE3) // its flags can't be read by a filter; with ENOSYS libraries use clone
	rules = append(rules, denyAll(unix.EPERM,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
		unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD)...)
	rules = append(rules,
		rule{unix.SYS_UNSHARE, unix.EPERM, []argTest{{arg: 0, mask: nsFlags | unix.CLONE_NEWTIME, bits: true}}},
		rule{unix.SYS_CLONE, unix.EPERM, []argTest{{arg: 0, mask: nsFlags, bits: true}}})
	// Raw IP sockets; netlink sockets are commonly "raw" too, and harmless.
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		rules = append(rules, rule{unix.SYS_SOCKET, unix.EPERM, []argTest{
			{arg: 0, mask: ^uint32(0), value: family}, {arg: 1, mask: 0xf, value: unix.SOCK_RAW}}})
	}
	// Multipath TCP: the sensor follows TCP. A client that asks for it falls back.
	const protoMPTCP = 262
	rules = append(rules, rule{unix.SYS_SOCKET, unix.EPROTONOSUPPORT, []argTest{{arg: 2, mask: ^uint32(0), value: protoMPTCP}}})
	return rules
}

// ttyDenied: TIOCSTI and TIOCLINUX type into a terminal that another process reads.
func ttyDenied(ioctl uint32) []rule {
	return []rule{
		{ioctl, unix.EPERM, []argTest{{arg: 1, mask: ^uint32(0), value: unix.TIOCSTI}}},
		{ioctl, unix.EPERM, []argTest{{arg: 1, mask: ^uint32(0), value: unix.TIOCLINUX}}},
	}
}

// socketFamilies are the only ones a box may use. Others (packet, vsock, alg, …) reach past the network namespace or
// past the sensor. In observe mode packet sockets are allowed: they stay in the box's own network namespace.
func socketFamilies(mode Mode) []uint32 {
	f := []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	if mode == Observe {
		f = append(f, unix.AF_PACKET)
	}
	return f
}

// Program builds the classic BPF program of a mode, nil for None. Calls that no rule names are constant for the kernel,
// which then skips the program for them altogether.
func Program(mode Mode) ([]unix.SockFilter, error) {
	switch mode {
	case None:
		return nil, nil
	case Strict, Observe:
	default:
		return nil, fmt.Errorf("unknown seccomp mode %q (strict, observe, none)", mode)
	}
	native := compileRules(rulesOf(mode))
	native = append(native, compileFamilies(socketFamilies(mode), unix.SYS_SOCKET, unix.SYS_SOCKETPAIR)...)
	native = append(native, retAllow)

	other := []unix.SockFilter{retErrno(unix.ENOSYS)}
	if mode == Observe && compatArch != 0 {
		other = compatProgram()
	}
	prog := []unix.SockFilter{load(dataArch), jump(unix.BPF_JEQ, auditArch, 0, 1),
		{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(other))}} // further than a conditional jump reaches
	prog = append(prog, other...)
	prog = append(prog, load(dataNr))
	if x32Bit != 0 {
		prog = append(prog, jump(unix.BPF_JSET, x32Bit, 0, 1), retErrno(unix.ENOSYS))
	}
	return append(prog, native...), nil
}

// Traced is a program for a process whose tracer answers in its place: what the program refuses stops the process instead, for
// a tracer that evaluates the program itself and refuses the same. Without a tracer such a call fails with ENOSYS, so nothing
// is allowed that was not.
func Traced(prog []unix.SockFilter) []unix.SockFilter {
	out := slices.Clone(prog)
	for i := range out {
		if ins := &out[i]; ins.Code == unix.BPF_RET|unix.BPF_K && ins.K&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO {
			ins.K = unix.SECCOMP_RET_TRACE
		}
	}
	return out
}

// compatProgram is for the 32-bit calls of the same machine, in observe mode.
func compatProgram() []unix.SockFilter {
	rules := denyAll(unix.EPERM, compatDenied...)
	rules = append(rules, denyAll(unix.ENOSYS, compatSocketcall)...) // its arguments are out of a filter's sight
	rules = append(rules, ttyDenied(compatIoctl)...)
	p := []unix.SockFilter{jump(unix.BPF_JEQ, compatArch, 1, 0), retErrno(unix.ENOSYS), load(dataNr)}
	p = append(p, compileRules(rules)...)
	p = append(p, compileFamilies(socketFamilies(Observe), compatSocket, compatSocketpair)...)
	return append(p, retAllow)
}

// compileRules expects the call number in the accumulator and leaves it there.
func compileRules(rules []rule) []unix.SockFilter {
	var p []unix.SockFilter
	for _, r := range rules {
		var body []unix.SockFilter
		for i, t := range r.tests {
			body = append(body, load(uint32(dataArg0+8*t.arg)))
			left := uint8(3*(len(r.tests)-i-1) + 1) // instructions from after this test to the reload
			if t.bits {
				body = append(body, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: t.mask}, jump(unix.BPF_JEQ, 0, left, 0))
			} else {
				body = append(body, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: t.mask}, jump(unix.BPF_JEQ, t.value, 0, left))
			}
		}
		body = append(body, retErrno(r.errno))
		if len(r.tests) > 0 {
			body = append(body, load(dataNr))
		}
		p = append(p, jump(unix.BPF_JEQ, r.nr, 0, uint8(len(body))))
		p = append(p, body...)
	}
	return p
}

// compileFamilies refuses socket and socketpair, by their numbers, outside families.
func compileFamilies(families []uint32, socket, socketpair uint32) []unix.SockFilter {
	check := []unix.SockFilter{load(dataArg0)}
	for i, f := range families {
		check = append(check, jump(unix.BPF_JEQ, f, uint8(len(families)-i), 0))
	}
	check = append(check, retErrno(unix.EAFNOSUPPORT), load(dataNr))
	return append([]unix.SockFilter{
		jump(unix.BPF_JEQ, socket, 1, 0),
		jump(unix.BPF_JEQ, socketpair, 0, uint8(len(check))),
	}, check...)
}

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func retErrno(e unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
}

var retAllow = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}

// Refused lists the calls of this architecture that a mode's filter refuses, for some arguments at least. Sensors are
// held to record every one.
func Refused(mode Mode) []uint32 {
	var out []uint32
	if mode == None {
		return nil
	}
	for _, r := range rulesOf(mode) {
		out = append(out, r.nr)
	}
	return append(out, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR)
}

// rulesOf are the rules of a mode, without those on socket families.
func rulesOf(mode Mode) []rule {
	rules := alwaysDenied()
	if mode == Strict {
		rules = append(rules, strictDenied()...)
	}
	return append(rules, ttyDenied(unix.SYS_IOCTL)...)
}
