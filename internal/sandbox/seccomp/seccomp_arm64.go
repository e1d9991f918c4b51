//go:build linux

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	compatArch = 0
	x32Bit     = 0

	compatIoctl, compatSocketcall, compatSocket, compatSocketpair = 0, 0, 0, 0
)

var (
	archDenied   = []uint32{unix.SYS_KEXEC_FILE_LOAD}
	compatDenied []uint32
)
