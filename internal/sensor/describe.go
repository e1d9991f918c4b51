package sensor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// DescribeIPC completes an event of type ipc from its call's arguments and result: Detail, and Bytes of a message. The
// name that mq_open and mq_unlink give is in PathGiven, the queue behind a descriptor in Path: neither is a file's path,
// so both move into Detail.
func DescribeIPC(e *bodycam.Event, args [5]uint64, ret int64) {
	name := e.Syscall()
	if name == "ipc" { // i386's multiplexer: its first argument names the call, and the others stand further on
		name, args = multiplexed(args)
		e.Flags = 0
	}
	queue := e.PathGiven
	if e.Path != "" {
		queue = strings.TrimPrefix(e.Path, "/")
	}
	if strings.HasPrefix(name, "mq_") {
		e.Path, e.PathGiven, e.Detail = "", "", "queue"
		if queue != "" {
			e.Detail += " /" + queue
		}
	}
	id := func(what string) { e.Detail = what + " " + strconv.Itoa(int(int32(args[0]))) }
	key := func(what string) {
		e.Detail = fmt.Sprintf("%s key %#x", what, uint32(args[0]))
		if ret >= 0 {
			e.Detail += " is " + strconv.FormatInt(ret, 10)
		}
	}
	switch name {
	case "shmget":
		key("shared memory")
		e.Detail += fmt.Sprintf(", %d bytes", args[1])
	case "semget":
		key("semaphores")
	case "msgget":
		key("messages")
	case "shmat":
		id("shared memory")
	case "semop", "semtimedop", "semtimedop_time64":
		id("semaphores")
	case "msgsnd":
		id("messages")
		if ret >= 0 {
			e.Bytes = args[2]
		}
	case "msgrcv":
		id("messages")
		e.Bytes = uint64(max(ret, 0))
	case "mq_timedsend", "mq_timedsend_time64":
		if ret >= 0 {
			e.Bytes = args[2]
		}
	case "mq_timedreceive", "mq_timedreceive_time64":
		e.Bytes = uint64(max(ret, 0))
	case "mq_open", "mq_unlink":
	default: // of the multiplexer: control calls
		id(name)
	}
	if e.Syscall() == "ipc" {
		e.Detail = name + " " + e.Detail
		if name == "shmat" || ret < 0 {
			e.Bytes = 0
		}
	}
}

// multiplexed names the call that i386's ipc makes and puts its arguments where the call itself has them (linux/ipc.h).
func multiplexed(a [5]uint64) (string, [5]uint64) {
	first, second, third, ptr := a[1], a[2], a[3], a[4]
	switch a[0] & 0xffff {
	case 1:
		return "semop", [5]uint64{first, ptr, second}
	case 2:
		return "semget", [5]uint64{first, second, third}
	case 3:
		return "semctl", [5]uint64{first}
	case 4:
		return "semtimedop", [5]uint64{first, ptr, second}
	case 11:
		return "msgsnd", [5]uint64{first, ptr, second, third}
	case 12:
		return "msgrcv", [5]uint64{first, ptr, second}
	case 13:
		return "msgget", [5]uint64{first, second}
	case 14:
		return "msgctl", [5]uint64{first}
	case 21:
		return "shmat", [5]uint64{first, ptr, second}
	case 22:
		return "shmdt", [5]uint64{ptr}
	case 23:
		return "shmget", [5]uint64{first, second, third}
	case 24:
		return "shmctl", [5]uint64{first}
	}
	return "call " + strconv.FormatUint(a[0]&0xffff, 10), [5]uint64{first}
}

var familyNames = map[uint32]string{
	1: "AF_UNIX", 2: "AF_INET", 10: "AF_INET6", 16: "AF_NETLINK", 17: "AF_PACKET", 31: "AF_BLUETOOTH", 38: "AF_ALG", 40: "AF_VSOCK", 44: "AF_XDP",
}

var socketTypes = map[uint32]string{
	1: "SOCK_STREAM", 2: "SOCK_DGRAM", 3: "SOCK_RAW", 4: "SOCK_RDM", 5: "SOCK_SEQPACKET", 10: "SOCK_PACKET",
}

// The families and types that matter here.
const (
	familyUnix, familyNetlink, familyPacket, familyVsock = 1, 16, 17, 40
	typeMask, typeRaw, typePacket                        = 15, 3, 10
)

// ReachesPast tells of sockets that send and receive whole packets, which no other event shows.
func ReachesPast(family, typ uint64) bool {
	f, t := uint32(family), uint32(typ)&typeMask
	return f == familyPacket || t == typePacket || t == typeRaw && f != familyNetlink
}

// DescribeSocket completes an event of type socket from the arguments of socket or socketpair: Proto, Flags and Detail.
func DescribeSocket(e *bodycam.Event, family, typ, proto uint64) {
	name := func(m map[uint32]string, n uint32, what string) string {
		if s := m[n]; s != "" {
			return s
		}
		return what + " " + strconv.FormatUint(uint64(n), 10)
	}
	f, t := uint32(family), uint32(typ)&typeMask
	e.Flags = uint64(uint32(typ))
	e.Detail = name(familyNames, f, "family") + " " + name(socketTypes, t, "type") + " protocol " + strconv.FormatInt(int64(int32(proto)), 10)
	switch {
	case f == familyPacket || t == typePacket:
		e.Proto = bodycam.ProtoPacket
	case f == familyNetlink:
		e.Proto = bodycam.ProtoNetlink
	case f == familyUnix:
		e.Proto = bodycam.ProtoUnix
	case f == familyVsock:
		e.Proto = bodycam.ProtoVsock
	case t == typeRaw:
		e.Proto = bodycam.ProtoRaw
	default:
		e.Proto = bodycam.ProtoOther
	}
}

// SocketArgs reads the family and protocol back from what DescribeSocket made of them; the type is in Flags. ok is false where
// the event is none of its.
func SocketArgs(e *bodycam.Event) (family, proto uint64, ok bool) {
	w := strings.Fields(e.Detail)
	if len(w) < 4 || w[len(w)-2] != "protocol" {
		return 0, 0, false
	}
	p, err := strconv.ParseInt(w[len(w)-1], 10, 32)
	if err != nil {
		return 0, 0, false
	}
	for f, name := range familyNames {
		if name == w[0] {
			return uint64(f), uint64(uint32(p)), true
		}
	}
	f, err := strconv.ParseUint(w[1], 10, 32)
	return f, uint64(uint32(p)), err == nil && w[0] == "family"
}

var ptraceNames = map[int32]string{
	0: "PTRACE_TRACEME", 1: "PTRACE_PEEKTEXT", 2: "PTRACE_PEEKDATA", 3: "PTRACE_PEEKUSER", 4: "PTRACE_POKETEXT", 5: "PTRACE_POKEDATA",
	6: "PTRACE_POKEUSER", 7: "PTRACE_CONT", 8: "PTRACE_KILL", 9: "PTRACE_SINGLESTEP", 12: "PTRACE_GETREGS", 13: "PTRACE_SETREGS",
	14: "PTRACE_GETFPREGS", 15: "PTRACE_SETFPREGS", 16: "PTRACE_ATTACH", 17: "PTRACE_DETACH", 24: "PTRACE_SYSCALL", 31: "PTRACE_SYSEMU",
	0x4200: "PTRACE_SETOPTIONS", 0x4201: "PTRACE_GETEVENTMSG", 0x4202: "PTRACE_GETSIGINFO", 0x4203: "PTRACE_SETSIGINFO",
	0x4204: "PTRACE_GETREGSET", 0x4205: "PTRACE_SETREGSET", 0x4206: "PTRACE_SEIZE", 0x4207: "PTRACE_INTERRUPT", 0x4208: "PTRACE_LISTEN",
	0x4209: "PTRACE_PEEKSIGINFO", 0x420a: "PTRACE_GETSIGMASK", 0x420b: "PTRACE_SETSIGMASK", 0x420e: "PTRACE_GET_SYSCALL_INFO",
}

// PtraceRequest names a request of ptrace (linux/ptrace.h).
func PtraceRequest(request int32) string {
	if s := ptraceNames[request]; s != "" {
		return s
	}
	return "request " + strconv.FormatInt(int64(request), 10)
}

// DescribeIoctl completes the event of an ioctl whose argument, where it has one that counts, is value.
func DescribeIoctl(e *bodycam.Event, request, value uint64) {
	switch uint32(request) {
	case 0x40086602, 0x40046602:
		e.Detail, e.Flags = "FS_IOC_SETFLAGS", value&0xffffffff
	case 0x401c5820:
		e.Detail, e.Flags = "FS_IOC_FSSETXATTR", value&0xffffffff
	case 0x5412:
		e.Type, e.Detail = bodycam.TypeDenied, "TIOCSTI"
	case 0x541c:
		e.Type, e.Detail = bodycam.TypeDenied, "TIOCLINUX"
	}
}

// DescribeFallocate completes the event of a fallocate: Bytes is the end of its range.
func DescribeFallocate(e *bodycam.Event, offset, length uint64) {
	e.Bytes = offset + length
	e.Detail = fmt.Sprintf("fallocate %d+%d", offset, length)
}
