package bpf

import (
	"path"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
)

// CLONE_NEW* flags: new namespaces.
const cloneNew = 0x7e020080

// call reports a system call by its arguments and names.
func (d *decoder) call(r record, b *sensorBody, s *[4][]byte) error {
	typ := bodycam.Type(r.Type)
	e := d.begin(r, typ)
	e.Errno = errnoOf(b.Ret)
	e.Flags = d.tables.flagsOf(e.ABI, r.Nr, &b.Arg)
	d.names(e, r, b, s)
	switch typ {
	case bodycam.TypeOpen:
		e.Flags = d.tables.openFlags(e.ABI, r.Nr, e.Flags)
		e.Access = accessAsked(e.Flags)
	case bodycam.TypeExec:
		e.Access = bodycam.Exec
		e.Argv, e.ArgvLen = splitArgv(s[2]), uint64(len(s[2]))
		if b.Arg[4] != 0 {
			e.Marks |= bodycam.MarkArgvCut
		}
	case bodycam.TypeCreate:
		e.Access = bodycam.Create
	case bodycam.TypeTruncate:
		e.Bytes, e.Access = b.Arg[1], bodycam.Write
		if e.Syscall() == "fallocate" {
			e.Bytes = 0
			if e.ABI != bodycam.ABII386 { // there it takes six words, of which five come along
				sensor.DescribeFallocate(e, b.Arg[2], b.Arg[3])
			}
		}
		if e.ABI == bodycam.ABII386 {
			if n := e.Syscall(); n == "truncate64" || n == "ftruncate64" {
				e.Bytes = b.Arg[1] | b.Arg[2]<<32
			}
		}
	case bodycam.TypeUnlink:
		if e.Flags&atRemoveDir != 0 {
			e.Type = bodycam.TypeRmdir
		}
	case bodycam.TypeMkdir:
		e.Access = bodycam.Dir | bodycam.Create
	case bodycam.TypeChown:
		if i := d.tables.flagsArg(e.ABI, r.Nr); i >= 1 && i <= 4 {
			e.Flags = b.Arg[i-1]&0xffffffff | b.Arg[i]<<32
		}
	case bodycam.TypeXattr:
		e.Detail, e.Path2Given = e.Path2Given, ""
		if e.Syscall() == "ioctl" {
			sensor.DescribeIoctl(e, b.Arg[1], b.Arg[2])
		}
	case bodycam.TypeFork:
		if e.Flags&cloneNew != 0 {
			e.Type = bodycam.TypeNamespace
		}
	case bodycam.TypeNamespace, bodycam.TypeModule:
		e.Marks &^= bodycam.MarkUnverified
	case bodycam.TypeIPC:
		sensor.DescribeIPC(e, b.Arg, b.Ret)
		e.Marks &^= bodycam.MarkDetached | bodycam.MarkAnonymous
	case bodycam.TypeSocket:
		sensor.DescribeSocket(e, b.Arg[0], b.Arg[1], b.Arg[2])
	case bodycam.TypePtrace:
		d.ptrace(e, b)
	case bodycam.TypeSignal:
		e.Signal, e.Flags = int32(e.Flags), b.Arg[0]
		d.target(e, b)
	case bodycam.TypePrctl:
		e.Flags, e.Detail = b.Arg[0], prctlName(b.Arg[0])
		switch {
		case b.Arg[0] == 15:
			e.Detail += " " + string(s[0])
			e.PathGiven = ""
		default:
			e.Detail += " " + strconv.FormatInt(int64(b.Arg[1]), 10)
		}
		if b.Arg[0] == 4 && b.Arg[1] == 0 {
			e.Marks |= bodycam.MarkHostile
		}
	case bodycam.TypeUring, bodycam.TypeBPF, bodycam.TypeSetuid:
		e.Detail = argsDetail(typ, b)
	}
	if interrupted(b.Ret) {
		return d.interrupt(sourceOf(typ))
	}
	d.restarted()
	return d.deliver(r.Source)
}

// sourceOf is the source that counts a call of that type.
func sourceOf(t bodycam.Type) sensorSource {
	switch t {
	case bodycam.TypeExec:
		return sensorSourceSRC_EXEC
	case bodycam.TypeOpen:
		return sensorSourceSRC_OPEN
	}
	return sensorSourceSRC_CALL
}

// names fills the paths of a call.
func (d *decoder) names(e *bodycam.Event, r record, b *sensorBody, s *[4][]byte) {
	first, second := b.Walk&0xffff, b.Walk>>16
	e.PathGiven = d.text.keep(s[0])
	e.Dev, e.Ino = dev(b.Dev), b.Ino
	switch {
	case first&walkName != 0:
		if e.Type == bodycam.TypeSymlink {
			e.Path = e.PathGiven
		}
	case len(s[0]) > 0 || len(s[1]) > 0:
		e.Path = d.lead(e, r, first, s[1], s[0])
	case first&walkNoFD != 0 && e.Errno == 0:
		e.Marks |= bodycam.MarkRaced
	}
	if e.Type == bodycam.TypeExec || len(s[2]) == 0 && len(s[3]) == 0 {
		return
	}
	e.Path2Given = d.text.keep(s[2])
	if second&walkName == 0 {
		e.Path2 = d.lead(e, r, second&^walkDeleted, s[3], s[2])
	}
}

// lead returns where a name leads. Where the kernel side could walk the way the path is canonical, and exact unless it says
// otherwise. Else it is made from the name as given and the folder that it starts from, as text, and marked.
func (d *decoder) lead(e *bodycam.Event, r record, bits uint32, walked, given []byte) string {
	if bits&walkObject == 0 {
		e.Marks |= bodycam.MarkUnverified
		if len(given) == 0 || given[0] != '/' {
			e.Marks |= walkMarks(bits)
		}
		return join(d.place(r, walked), string(given))
	}
	e.Marks |= walkMarks(bits)
	if bits&walkUnsure != 0 {
		e.Marks |= bodycam.MarkUnverified
	}
	p := d.place(r, walked)
	if bits&walkRest == 0 {
		return p
	}
	if strings.Contains(p, "/..") { // what lies beyond a folder that isn't there is nowhere
		e.Marks |= bodycam.MarkUnverified
	}
	return path.Clean(p)
}

func (d *decoder) target(e *bodycam.Event, b *sensorBody) {
	if b.OtherTgid != 0 {
		e.Child = bodycam.Proc{PID: int32(b.OtherTgid), Start: b.OtherStart}
	}
}

func (d *decoder) ptrace(e *bodycam.Event, b *sensorBody) {
	d.target(e, b)
	switch e.Syscall() {
	case "ptrace":
		e.Signal, e.Detail = int32(b.Arg[0]), sensor.PtraceRequest(int32(b.Arg[0]))
	case "kcmp":
	case "pidfd_getfd":
		e.Detail = "fd " + strconv.FormatInt(int64(int32(b.Arg[1])), 10)
	default:
		if b.Ret > 0 {
			e.Bytes = uint64(b.Ret)
		}
	}
}

// argsDetail tells the arguments that say what a call was for.
func argsDetail(typ bodycam.Type, b *sensorBody) string {
	switch typ {
	case bodycam.TypeBPF:
		return "cmd " + strconv.FormatUint(b.Arg[0], 10)
	case bodycam.TypeSetuid:
		return strconv.Itoa(int(int32(b.Arg[0]))) + " " + strconv.Itoa(int(int32(b.Arg[1]))) + " " + strconv.Itoa(int(int32(b.Arg[2])))
	}
	return ""
}

// prctlName names the options that the kernel side lets through (linux/prctl.h).
func prctlName(option uint64) string {
	switch option {
	case 1:
		return "PR_SET_PDEATHSIG"
	case 4:
		return "PR_SET_DUMPABLE"
	case 15:
		return "PR_SET_NAME"
	case 22:
		return "PR_SET_SECCOMP"
	case 24:
		return "PR_CAPBSET_DROP"
	case 28:
		return "PR_SET_SECUREBITS"
	case 35:
		return "PR_SET_MM"
	case 36:
		return "PR_SET_CHILD_SUBREAPER"
	case 38:
		return "PR_SET_NO_NEW_PRIVS"
	case 47:
		return "PR_CAP_AMBIENT"
	case 59:
		return "PR_SET_SYSCALL_USER_DISPATCH"
	case 0x59616d61:
		return "PR_SET_PTRACER"
	}
	return "option " + strconv.FormatUint(option, 10)
}

// uringNames are the requests of io_uring, by opcode (linux/io_uring.h).
var uringNames = [...]string{
	"nop", "readv", "writev", "fsync", "read_fixed", "write_fixed", "poll_add", "poll_remove", "sync_file_range",
	"sendmsg", "recvmsg", "timeout", "timeout_remove", "accept", "async_cancel", "link_timeout", "connect",
	"fallocate", "openat", "close", "files_update", "statx", "read", "write", "fadvise", "madvise", "send", "recv",
	"openat2", "epoll_ctl", "splice", "provide_buffers", "remove_buffers", "tee", "shutdown", "renameat", "unlinkat",
	"mkdirat", "symlinkat", "linkat", "msg_ring", "fsetxattr", "setxattr", "fgetxattr", "getxattr", "socket",
	"uring_cmd", "send_zc", "sendmsg_zc", "read_multishot", "waitid", "futex_wait", "futex_wake", "futex_waitv",
	"fixed_fd_install", "ftruncate", "bind", "listen", "recv_zc", "epoll_wait", "readv_fixed", "writev_fixed", "pipe",
}

// uring reports a request to io_uring: what was asked for is known, what came of it is not.
func (d *decoder) uring(r record, b *sensorBody, s *[4][]byte) error {
	op := int(b.Arg[0])
	name := "op " + strconv.Itoa(op)
	if op < len(uringNames) {
		name = uringNames[op]
	}
	d.blind["io_uring"]++
	e := d.begin(r, bodycam.TypeUring)
	if name == "openat" || name == "openat2" {
		e.Type = bodycam.TypeOpen
		e.Flags = b.Arg[1]
		e.Access = accessAsked(e.Flags)
		d.names(e, r, b, s)
		e.Marks |= bodycam.MarkUnverified
	}
	e.Detail = "io_uring " + name
	e.Marks |= bodycam.MarkNoResult
	return d.deliver(r.Source)
}
