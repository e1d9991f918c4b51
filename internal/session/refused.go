package session

import (
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/ptrace"
	"golang.org/x/sys/unix"
)

// refusals tells which failed calls the sandbox's own filter refused. The kernel never sees those, so where the filter says
// that it refuses a call with that errno, it did; the same errno of another call is the kernel's.
func refusals(mode string) (func(*bodycam.Event) bool, error) {
	prog, err := seccomp.Program(seccomp.Mode(mode))
	if err != nil {
		return nil, err
	}
	return func(e *bodycam.Event) bool {
		if len(prog) == 0 || e.NR < 0 {
			return false
		}
		switch unix.Errno(e.Errno) { // what a filter answers with; others needn't be looked at
		case unix.EPERM, unix.ENOSYS, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT:
		default:
			return false
		}
		arch, nr := uint32(unix.AUDIT_ARCH_X86_64), uint32(e.NR)
		switch e.ABI {
		case bodycam.ABIAMD64:
		case bodycam.ABII386:
			arch = unix.AUDIT_ARCH_I386
		case bodycam.ABIX32:
			nr |= 0x40000000
		default:
			return false
		}
		return int32(ptrace.Refusal(prog, arch, nr, argsOf(e))) == e.Errno
	}, nil
}

// argsOf are the arguments of a call that a filter looks at, as far as its event tells.
func argsOf(e *bodycam.Event) (args [6]uint64) {
	switch e.Syscall() {
	case "clone", "unshare":
		args[0] = e.Flags
	case "ioctl":
		args[1] = map[string]uint64{"TIOCSTI": unix.TIOCSTI, "TIOCLINUX": unix.TIOCLINUX}[e.Detail]
	case "socket", "socketpair":
		args[0], args[2], _ = sensor.SocketArgs(e)
		args[1] = e.Flags
	}
	return args
}
