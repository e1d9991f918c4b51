//go:build linux

package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// eval runs a program as the kernel would. What the filters do to real programs is tested where boxes are.
func eval(t *testing.T, prog []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := binary.NativeEndian.AppendUint32(nil, nr)
	data = binary.NativeEndian.AppendUint32(data, arch)
	data = append(data, make([]byte, 8)...)
	for i := range 6 {
		var a uint64
		if i < len(args) {
			a = args[i]
		}
		data = binary.NativeEndian.AppendUint64(data, a)
	}
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		branch := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.NativeEndian.Uint32(data[in.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			branch(acc == in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			branch(acc&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d: code %#x", pc, in.Code)
		}
	}
	t.Fatal("the program runs off its end")
	return 0
}

func TestPrograms(t *testing.T) {
	const allow = uint32(unix.SECCOMP_RET_ALLOW)
	deny := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	strict, err := Program(Strict)
	if err != nil {
		t.Fatal(err)
	}
	observe, err := Program(Observe)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		nr      uint32
		args    []uint64
		strict  uint32
		observe uint32
	}{
		{"read", unix.SYS_READ, nil, allow, allow},
		{"exec", unix.SYS_EXECVE, nil, allow, allow},
		{"bpf", unix.SYS_BPF, nil, deny(unix.EPERM), deny(unix.EPERM)},
		{"ptrace", unix.SYS_PTRACE, nil, deny(unix.EPERM), allow},
		{"io_uring", unix.SYS_IO_URING_SETUP, nil, deny(unix.ENOSYS), allow},
		{"thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow, allow},
		{"clone user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, deny(unix.EPERM), allow},
		{"unshare files", unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES}, allow, allow},
		{"unshare mounts", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWNS}, deny(unix.EPERM), allow},
		{"tcp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow, allow},
		{"raw", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC}, deny(unix.EPERM), allow},
		{"raw, high bits set", unix.SYS_SOCKET, []uint64{unix.AF_INET6 | 1<<32, unix.SOCK_RAW | 1<<40}, deny(unix.EPERM), allow},
		{"multipath tcp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 262}, deny(unix.EPROTONOSUPPORT), allow},
		{"netlink", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW}, allow, allow},
		{"packet", unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW}, deny(unix.EAFNOSUPPORT), allow},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, deny(unix.EAFNOSUPPORT), deny(unix.EAFNOSUPPORT)},
		{"unix pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, allow, allow},
		{"vsock pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK}, deny(unix.EAFNOSUPPORT), deny(unix.EAFNOSUPPORT)},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, deny(unix.EPERM), deny(unix.EPERM)},
		{"TIOCSTI, high bits set", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | 1<<32}, deny(unix.EPERM), deny(unix.EPERM)},
		{"TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allow, allow},
	} {
		if got := eval(t, strict, auditArch, c.nr, c.args...); got != c.strict {
			t.Errorf("%s: strict gives %#x, want %#x", c.name, got, c.strict)
		}
		if got := eval(t, observe, auditArch, c.nr, c.args...); got != c.observe {
			t.Errorf("%s: observe gives %#x, want %#x", c.name, got, c.observe)
		}
	}
	const nobodysArch = 0x12345678
	for name, prog := range map[string][]unix.SockFilter{"strict": strict, "observe": observe} {
		if got := eval(t, prog, nobodysArch, 0); got != deny(unix.ENOSYS) {
			t.Errorf("%s: another architecture gives %#x", name, got)
		}
		if len(prog) > 4096 {
			t.Errorf("%s: %d instructions", name, len(prog))
		}
	}
	if prog, err := Program(None); prog != nil || err != nil {
		t.Errorf("none: %v, %v", prog, err)
	}
	if _, err := Program("lenient"); err == nil {
		t.Error("an unknown mode was accepted")
	}
}
