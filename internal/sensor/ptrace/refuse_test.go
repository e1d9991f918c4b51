//go:build linux && amd64

package ptrace

import (
	"testing"

	"github.com/bodycam-dev/bodycam/internal/sensor"
	"golang.org/x/sys/unix"
)

// A program that the sensor couldn't carry out as the kernel does is refused before anything starts.
func TestRefusesPrograms(t *testing.T) {
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: opRet, K: k} }
	for name, p := range map[string][]unix.SockFilter{
		"no end":          {{Code: opLoad}},
		"jump too far":    {{Code: opEQ, Jt: 1}, ret(0)},
		"far jump":        {{Code: opJump, K: 1 << 31}, ret(0)},
		"unknown":         {{Code: unix.BPF_LDX | unix.BPF_W | unix.BPF_IMM}, ret(0)},
		"odd load":        {{Code: opLoad, K: 2}, ret(0)},
		"load outside":    {{Code: opLoad, K: 64}, ret(0)},
		"ret accumulator": {{Code: unix.BPF_RET | unix.BPF_A}},
	} {
		s := New(Options{Refuses: p})
		if err := s.Start(t.Context(), sensor.Target{}, nil); err == nil {
			t.Errorf("%s: the sensor takes it", name)
		}
	}
	// nr == 7 and the high half of its second argument has a bit of 0xf0: EDOM. Above 100: ENOSYS. i386: EXDEV.
	p := []unix.SockFilter{
		{Code: opLoad, K: dataArch}, {Code: opEQ, K: unix.AUDIT_ARCH_I386, Jf: 1}, ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EXDEV)),
		{Code: opLoad, K: dataNR}, {Code: opGT, K: 100, Jf: 1}, ret(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
		{Code: opEQ, K: 7, Jf: 4}, {Code: opLoad, K: dataArgs + 8 + 4}, {Code: opAnd, K: 0xf0}, {Code: opEQ, K: 0, Jt: 1},
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EDOM)), {Code: opJump, K: 0}, ret(unix.SECCOMP_RET_ALLOW),
	}
	if err := checkProgram(p); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arch, nr uint32
		arg      uint64
		want     unix.Errno
	}{
		{unix.AUDIT_ARCH_X86_64, 7, 0x20 << 32, unix.EDOM}, {unix.AUDIT_ARCH_X86_64, 7, 0x20, 0}, {unix.AUDIT_ARCH_X86_64, 8, 0x20 << 32, 0},
		{unix.AUDIT_ARCH_X86_64, 101, 0, unix.ENOSYS}, {unix.AUDIT_ARCH_X86_64, 100, 0, 0}, {unix.AUDIT_ARCH_I386, 7, 0x20 << 32, unix.EXDEV},
	} {
		if got := Refusal(p, c.arch, c.nr, [6]uint64{1: c.arg}); got != c.want {
			t.Errorf("%+v is refused with %v", c, got)
		}
	}
}
