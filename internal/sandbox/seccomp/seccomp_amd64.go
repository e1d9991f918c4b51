//go:build linux

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	compatArch = unix.AUDIT_ARCH_I386
	x32Bit     = 0x40000000

	// Numbers of i386.
	compatIoctl, compatSocketcall, compatSocket, compatSocketpair = 54, 102, 359, 360
)

// archDenied are calls that only this architecture has, or has in x/sys.
var archDenied = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT}

// compatDenied are the i386 numbers of the calls that alwaysDenied names.
var compatDenied = []uint32{
	342, 357, 336, 374, // open_by_handle_at, bpf, perf_event_open, userfaultfd
	283, 128, 350, 129, // kexec_load, init_module, finit_module, delete_module
	288, 286, 287, 103, 88, 51, // keyctl, add_key, request_key, syslog, reboot, acct
	87, 115, 131, 443, 338, // swapon, swapoff, quotactl, quotactl_fd, fanotify_init
	79, 264, 404, 111, 253, 169, // settimeofday, clock_settime, clock_settime64, vhangup, lookup_dcookie, nfsservctl
	101, 110, 123, // ioperm, iopl, modify_ldt
}
