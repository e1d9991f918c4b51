//go:build linux && amd64

package ptrace

import (
	"slices"

	"github.com/bodycam-dev/bodycam"
)

// def describes one system call that may stop: its numbers (-1 where the ABI lacks it) and what its entry leads to.
type def struct {
	name        string
	amd64, i386 int32
	when        when
	on          handler
}

func (d *def) number(abi bodycam.ABI) int32 {
	if abi == bodycam.ABII386 {
		return d.i386
	}
	return d.amd64
}

// call is a system call that a task is about to make.
type call struct {
	def  *def
	abi  bodycam.ABI
	nr   int32
	args [6]uint64
	sp   uint64
}

// handler looks at a call at its entry. It returns what is to be completed at its exit, or nil.
type handler func(t *task, c *call) *pending

// callTable is the one table from which filter and dispatch are made. Handlers are made with the positions of the
// call's arguments, folder descriptor (-1: the working directory) before path.
func callTable() []def {
	return slices.Concat(openCalls(), nameCalls(), attributeCalls(), mountCalls(), socketCalls(), identityCalls(), reachCalls(), otherCalls(), ipcCalls(), refusedCalls(), openingCalls())
}

// Short names for the table.
const (
	unlink, rmdir, mkdir, create = bodycam.TypeUnlink, bodycam.TypeRmdir, bodycam.TypeMkdir, bodycam.TypeCreate
	chmod, chown, xattr, utime   = bodycam.TypeChmod, bodycam.TypeChown, bodycam.TypeXattr, bodycam.TypeUtime
	trunc, chdir, mount          = bodycam.TypeTruncate, bodycam.TypeChdir, bodycam.TypeMount
)

func openCalls() []def {
	return []def{
		{"open", 2, 5, always, onOpen(-1, 0, 1)},
		{"openat", 257, 295, always, onOpen(0, 1, 2)},
		{"openat2", 437, 437, always, onOpenat2},
		{"creat", 85, 8, always, onOpen(-1, 0, -1)},
		{"open_by_handle_at", 304, 342, always, onOpen(-1, -1, 2)},
		{"memfd_create", 319, 356, always, onMemfd},
		{"execve", 59, 11, always, onExecve},
		{"execveat", 322, 358, always, onExecveat},
	}
}

func nameCalls() []def {
	return []def{
		{"rename", 82, 38, always, onPair(bodycam.TypeRename, pair{-1, 0, -1, 1, -1})},
		{"renameat", 264, 302, always, onPair(bodycam.TypeRename, pair{0, 1, 2, 3, -1})},
		{"renameat2", 316, 353, always, onPair(bodycam.TypeRename, pair{0, 1, 2, 3, 4})},
		{"link", 86, 9, always, onPair(bodycam.TypeLink, pair{-1, 0, -1, 1, -1})},
		{"linkat", 265, 303, always, onPair(bodycam.TypeLink, pair{0, 1, 2, 3, 4})},
		{"symlink", 88, 83, always, onSymlink(0, -1, 1)},
		{"symlinkat", 266, 304, always, onSymlink(0, 1, 2)},
		{"unlink", 87, 10, always, onName(unlink, name{dir: -1, path: 0})},
		{"unlinkat", 263, 301, always, onName(unlink, name{dir: 0, path: 1, flags: 2})},
		{"rmdir", 84, 40, always, onName(rmdir, name{dir: -1, path: 0})},
		{"mkdir", 83, 39, always, onName(mkdir, name{dir: -1, path: 0, mode: 1})},
		{"mkdirat", 258, 296, always, onName(mkdir, name{dir: 0, path: 1, mode: 2})},
		{"mknod", 133, 14, always, onName(create, name{dir: -1, path: 0, mode: 1})},
		{"mknodat", 259, 297, always, onName(create, name{dir: 0, path: 1, mode: 2})},
	}
}

func attributeCalls() []def {
	return []def{
		{"chmod", 90, 15, always, onName(chmod, name{dir: -1, path: 0, mode: 1, follow: true})},
		{"fchmodat", 268, 306, always, onName(chmod, name{dir: 0, path: 1, mode: 2, follow: true})},
		{"fchmodat2", 452, 452, always, onName(chmod, name{dir: 0, path: 1, mode: 2, flags: 3, follow: true})},
		{"fchmod", 91, 94, always, onFD(chmod, 1)},
		{"chown", 92, 212, always, onName(chown, name{dir: -1, path: 0, owner: 1, follow: true})},
		{"chown16", -1, 182, always, onName(chown, name{dir: -1, path: 0, owner: 1, follow: true})},
		{"lchown", 94, 198, always, onName(chown, name{dir: -1, path: 0, owner: 1})},
		{"lchown16", -1, 16, always, onName(chown, name{dir: -1, path: 0, owner: 1})},
		{"fchownat", 260, 298, always, onName(chown, name{dir: 0, path: 1, owner: 2, flags: 4, follow: true})},
		{"fchown", 93, 207, always, onFD(chown, 1)},
		{"fchown16", -1, 95, always, onFD(chown, 1)},
		{"setxattr", 188, 226, always, onName(xattr, name{dir: -1, path: 0, text: 1, follow: true})},
		{"lsetxattr", 189, 227, always, onName(xattr, name{dir: -1, path: 0, text: 1})},
		{"fsetxattr", 190, 228, always, onFD(xattr, 1)},
		{"setxattrat", 463, 463, always, onName(xattr, name{dir: 0, path: 1, flags: 2, text: 3, follow: true})},
		{"removexattr", 197, 235, always, onName(xattr, name{dir: -1, path: 0, text: 1, follow: true})},
		{"lremovexattr", 198, 236, always, onName(xattr, name{dir: -1, path: 0, text: 1})},
		{"fremovexattr", 199, 237, always, onFD(xattr, 1)},
		{"file_setattr", 469, 469, always, onName(xattr, name{dir: 0, path: 1, flags: 4, follow: true})},
		{"removexattrat", 466, 466, always, onName(xattr, name{dir: 0, path: 1, flags: 2, text: 3, follow: true})},
		{"utime", 132, 30, always, onName(utime, name{dir: -1, path: 0, follow: true})},
		{"utimes", 235, 271, always, onName(utime, name{dir: -1, path: 0, follow: true})},
		{"futimesat", 261, 299, always, onName(utime, name{dir: 0, path: 1, follow: true})},
		{"utimensat", 280, 320, always, onName(utime, name{dir: 0, path: 1, flags: 3, follow: true})},
		{"utimensat_time64", -1, 412, always, onName(utime, name{dir: 0, path: 1, flags: 3, follow: true})},
		{"truncate", 76, 92, always, onName(trunc, name{dir: -1, path: 0, size: 1, follow: true})},
		{"truncate64", -1, 193, always, onName(trunc, name{dir: -1, path: 0, size: 1, follow: true})},
		{"ftruncate", 77, 93, always, onFD(trunc, 1)},
		{"ftruncate64", -1, 194, always, onFD(trunc, 1)},
		{"chdir", 80, 12, always, onName(chdir, name{dir: -1, path: 0, follow: true})},
		{"fchdir", 81, 133, always, onFD(chdir, 0)},
		{"chroot", 161, 61, always, onName(chdir, name{dir: -1, path: 0, follow: true})},
	}
}

func mountCalls() []def {
	return []def{
		{"mount", 165, 21, always, onMount},
		{"umount2", 166, 52, always, onName(mount, name{dir: -1, path: 0, mode: 1, follow: true})},
		{"umount", -1, 22, always, onName(mount, name{dir: -1, path: 0, follow: true})},
		{"pivot_root", 155, 217, always, onName(mount, name{dir: -1, path: 0, follow: true})},
		{"open_tree", 428, 428, always, onTree(0, 1)},
		{"move_mount", 429, 429, always, onPair(mount, pair{0, 1, 2, 3, 4})},
		{"fsopen", 430, 430, always, onTree(-1, 0)},
		{"fsmount", 432, 432, always, onTree(0, -1)},
		{"fspick", 433, 433, always, onTree(0, 1)},
		{"mount_setattr", 442, 442, always, onTree(0, 1)},
		{"unshare", 272, 310, always, onUnshare},
		{"setns", 308, 346, always, onUnshare},
		{"clone", 56, 120, newKind, onClone},
		{"clone3", 435, 435, always, onClone3},
	}
}

func socketCalls() []def {
	return []def{
		{"connect", 42, 362, always, onConnect},
		{"bind", 49, 361, always, onBind},
		{"listen", 50, 363, always, onListen},
		{"accept", 43, -1, always, onAccept},
		{"accept4", 288, 364, always, onAccept},
		{"sendto", 44, 369, addressed, onSendto},
		{"sendmsg", 46, 370, always, onSendmsg},
		{"sendmmsg", 307, 345, always, onSendmmsg},
		{"recvmsg", 47, 372, always, onRecvmsg},
		{"recvmmsg", 299, 337, never, onRecvmmsg},
		{"recvmmsg_time64", -1, 417, never, onRecvmmsg},
		{"socketcall", -1, 102, always, onSocketcall},
		{"recvfrom", 45, 371, never, onRead},
		{"read", 0, 3, never, onRead},
		{"readv", 19, 145, never, onReadv},
		{"write", 1, 4, never, onWrite},
		{"writev", 20, 146, never, onWritev},
		{"close", 3, 6, never, onClose},
		{"close_range", 436, 436, never, onCloseRange},
	}
}

func identityCalls() []def {
	return []def{
		{"setuid", 105, 213, always, onIdentity(1)},
		{"setgid", 106, 214, always, onIdentity(1)},
		{"setreuid", 113, 203, always, onIdentity(2)},
		{"setregid", 114, 204, always, onIdentity(2)},
		{"setresuid", 117, 208, always, onIdentity(3)},
		{"setresgid", 119, 210, always, onIdentity(3)},
		{"setfsuid", 122, 215, always, onIdentity(1)},
		{"setfsgid", 123, 216, always, onIdentity(1)},
		{"setgroups", 116, 206, always, onIdentity(0)},
		{"setuid16", -1, 23, always, onIdentity(1)},
		{"setgid16", -1, 46, always, onIdentity(1)},
		{"setreuid16", -1, 70, always, onIdentity(2)},
		{"setregid16", -1, 71, always, onIdentity(2)},
		{"setresuid16", -1, 164, always, onIdentity(3)},
		{"setresgid16", -1, 170, always, onIdentity(3)},
		{"setfsuid16", -1, 138, always, onIdentity(1)},
		{"setfsgid16", -1, 139, always, onIdentity(1)},
		{"setgroups16", -1, 81, always, onIdentity(0)},
		{"capset", 126, 185, always, onIdentity(0)},
		{"setsid", 112, 66, always, onSetsid},
	}
}

func reachCalls() []def {
	return []def{
		{"ptrace", 101, 26, always, onPtrace},
		{"process_vm_readv", 310, 347, always, onProcessVM},
		{"process_vm_writev", 311, 348, always, onProcessVM},
		{"pidfd_getfd", 438, 438, always, onPidfdGetfd},
		{"kill", 62, 37, always, onKill},
		{"tkill", 200, 238, always, onTkill(0)},
		{"tgkill", 234, 270, notURG, onTkill(1)},
		{"rt_sigqueueinfo", 129, 178, always, onKill},
		{"rt_tgsigqueueinfo", 297, 335, always, onTkill(1)},
		{"pidfd_send_signal", 424, 424, always, onPidfdSignal},
		{"prlimit64", 302, 340, otherPID, onPrlimit},
		{"prctl", 157, 172, prctlKind, onPrctl},
		{"seccomp", 317, 354, always, onSeccomp},
	}
}

func otherCalls() []def {
	return []def{
		{"io_uring_setup", 425, 425, always, onUring},
		{"io_uring_enter", 426, 426, always, onUring},
		{"io_uring_register", 427, 427, always, onUring},
		{"bpf", 321, 357, always, onPlain(bodycam.TypeBPF)},
		{"perf_event_open", 298, 336, always, onPlain(bodycam.TypeBPF)},
		{"userfaultfd", 323, 374, always, onPlain(bodycam.TypePtrace)},
		{"init_module", 175, 128, always, onPlain(bodycam.TypeModule)},
		{"finit_module", 313, 350, always, onPlain(bodycam.TypeModule)},
		{"delete_module", 176, 129, always, onPlain(bodycam.TypeModule)},
		{"kexec_load", 246, 283, always, onPlain(bodycam.TypeModule)},
		{"kexec_file_load", 320, -1, always, onPlain(bodycam.TypeModule)},
		{"mmap", 9, 192, mapsFile, onMmap},
		{"mmap_old", -1, 90, always, onMmapOld},
		{"ioctl", 16, 54, ioctlKind, onIoctl},
		{"fallocate", 285, 324, always, onFallocate},
	}
}

func ipcCalls() []def {
	return []def{
		{"shmget", 29, 395, always, onIPC}, {"shmat", 30, 397, always, onIPC}, {"ipc", -1, 117, always, onIPC},
		{"semget", 64, 393, always, onIPC}, {"semop", 65, -1, always, onIPC}, {"semtimedop", 220, -1, always, onIPC},
		{"semtimedop_time64", -1, 420, always, onIPC},
		{"msgget", 68, 399, always, onIPC}, {"msgsnd", 69, 400, always, onIPC}, {"msgrcv", 70, 401, always, onIPC},
		{"mq_open", 240, 277, always, onIPC}, {"mq_unlink", 241, 278, always, onIPC},
		{"mq_timedsend", 242, 279, always, onIPC}, {"mq_timedreceive", 243, 280, always, onIPC},
		{"mq_timedsend_time64", -1, 418, always, onIPC}, {"mq_timedreceive_time64", -1, 419, always, onIPC},
	}
}

// refusedCalls are recorded where they fail: what sandboxes refuse and nothing else here describes.
func refusedCalls() []def {
	return []def{
		{"keyctl", 250, 288, always, onRefused}, {"add_key", 248, 286, always, onRefused}, {"request_key", 249, 287, always, onRefused},
		{"syslog", 103, 103, always, onRefused}, {"reboot", 169, 88, always, onRefused}, {"acct", 163, 51, always, onRefused},
		{"swapon", 167, 87, always, onRefused}, {"swapoff", 168, 115, always, onRefused}, {"quotactl", 179, 131, always, onRefused},
		{"quotactl_fd", 443, 443, always, onRefused}, {"fanotify_init", 300, 338, always, onRefused},
		{"settimeofday", 164, 79, always, onRefused}, {"clock_settime", 227, 264, always, onRefused},
		{"clock_settime64", -1, 404, always, onRefused}, {"vhangup", 153, 111, always, onRefused},
		{"ioperm", 173, 101, always, onRefused}, {"iopl", 172, 110, always, onRefused}, {"modify_ldt", 154, 123, always, onRefused},
		{"kcmp", 312, 349, always, onRefused}, {"sethostname", 170, 74, always, onRefused}, {"setdomainname", 171, 121, always, onRefused},
	}
}

func openingCalls() []def {
	return []def{
		{"socket", 41, 359, socketKind, onSocket},
		{"socketpair", 53, 360, socketKind, onSocket},
	}
}
