package bodycam

import (
	"net/netip"
	"strings"
)

// EventSchema is the version of the event schema, printed by `bodycam events` and stored with every run.
// It grows when a field changes its meaning or disappears; a new field alone doesn't change it.
const EventSchema = 1

// Type says what an event is.
type Type uint8

// The event types. Their names are those of the JSON form.
const (
	TypeUnknown   Type = iota
	TypeFork           // a process or thread group began; Child is the new process
	TypeExec           // a program began, or failed to (Errno)
	TypeExit           // a process ended; Status is its wait status
	TypeOpen           // a file was opened, or not (Errno)
	TypeClose          // the last thing known of an open: BytesRead, BytesWritten, Mapped
	TypeCreate         // a file came into being other than by open: mknod, memfd
	TypeTruncate       // a file was cut to Bytes
	TypeRename         // Path became Path2
	TypeLink           // Path2 is a new hard link to Path
	TypeSymlink        // Path2 is a new symbolic link that says Path
	TypeUnlink         // a name was removed
	TypeMkdir          // a directory was made
	TypeRmdir          // a directory was removed
	TypeChmod          // Flags holds the mode
	TypeChown          // Flags holds uid | gid<<32
	TypeXattr          // an extended attribute was set or removed
	TypeUtime          // times were changed
	TypeChdir          // the working or root directory changed (Syscall tells which)
	TypeMount          // mount, umount, move_mount, pivot_root …
	TypeConnect        // a connection was attempted
	TypeBind           // a local address was taken
	TypeListen         // a socket listens
	TypeAccept         // a connection came in
	TypeSend           // datagrams went to an address without a connection
	TypeFlow           // the last thing known of a socket: BytesRead, BytesWritten
	TypeDNS            // a name was asked for; Host is the name, Answers what came back
	TypeTLS            // a TLS ClientHello named Host (SNI)
	TypeHTTP           // an HTTP request named Host (Host header or CONNECT)
	TypeSetuid         // uid, gid or capabilities changed
	TypePtrace         // a process was traced, or its memory read or written
	TypeSignal         // a signal went to another process
	TypePrctl          // a prctl that matters to observation (PR_SET_DUMPABLE, PR_SET_NAME …)
	TypeUring          // io_uring was set up or a request was submitted (no result: a blind mark)
	TypeBPF            // bpf, perf_event_open
	TypeModule         // kernel module or kexec
	TypePassFD         // a file descriptor was passed over a socket
	TypeDenied         // a call that the sandbox refused and no other type describes
	TypeNamespace      // unshare, setns, clone with new namespaces
	TypeMmap           // an executable or shared writable mapping of a file
	TypeMark           // the recorder speaks: loss, blind window, start or end of a window (Detail says what of)
	TypeIPC            // System V shared memory, semaphores and messages, POSIX message queues: Detail says which
	TypeSocket         // a raw or packet socket was opened, or any socket was refused
	typeCount
)

var typeNames = [typeCount]string{
	"unknown", "fork", "exec", "exit", "open", "close", "create", "truncate", "rename", "link", "symlink", "unlink",
	"mkdir", "rmdir", "chmod", "chown", "xattr", "utime", "chdir", "mount", "connect", "bind", "listen", "accept",
	"send", "flow", "dns", "tls", "http", "setuid", "ptrace", "signal", "prctl", "uring", "bpf", "module", "passfd",
	"denied", "namespace", "mmap", "mark",
	"ipc", "socket",
}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "unknown"
}

// Types returns the names of all event types, in the order of their numbers.
func Types() []string { return append([]string(nil), typeNames[:]...) }

// ParseType returns the type of that name.
func ParseType(name string) (Type, bool) {
	for i, n := range typeNames {
		if n == name {
			return Type(i), true
		}
	}
	return TypeUnknown, false
}

// Access tells how a file was to be used, as bits.
type Access uint16

// The bits of Access.
const (
	Read    Access = 1 << iota
	Write          // opened for writing
	Create         // O_CREAT was given and the file may be new
	Trunc          // cut to nothing on open
	Append         //
	Exec           // executed, or mapped executable
	Dir            // a directory was opened
	PathRef        // O_PATH: a reference, no content
	Temp           // O_TMPFILE or memfd: it had no name
)

var accessNames = []string{"read", "write", "create", "truncate", "append", "exec", "dir", "path", "temp"}

// The bits of open's flags that AccessAsked looks at (asm-generic/fcntl.h): the same on every architecture that there is a sensor for.
const (
	oAccMode = 0o3
	oCreat   = 0o100
	oTrunc   = 0o1000
	oAppend  = 0o2000
	oPath    = 0o10000000
	oTmpfile = 0o20000000 // of O_TMPFILE the bit that isn't O_DIRECTORY
)

// AccessAsked is what the flags of open(2) ask for.
func AccessAsked(flags uint64) Access {
	if flags&oPath != 0 {
		return PathRef
	}
	var a Access
	switch flags & oAccMode {
	case 0:
		a = Read
	case 1:
		a = Write
	case 2:
		a = Read | Write // 3 is neither, and still takes the right to do both: it allows ioctl alone
	}
	switch {
	case flags&oTmpfile != 0:
		a |= Temp
	case flags&oCreat != 0:
		a |= Create
	}
	if flags&oTrunc != 0 {
		a |= Trunc
	}
	if flags&oAppend != 0 {
		a |= Append
	}
	return a
}

// Writes tells whether a file was opened for writing, or cut: O_TRUNC cuts it however else it is opened.
func (a Access) Writes() bool { return a&(Write|Trunc) != 0 }

// String lists the bits' names, separated by commas.
func (a Access) String() string {
	var b strings.Builder
	for i, n := range accessNames {
		if a&(1<<i) != 0 {
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			b.WriteString(n)
		}
	}
	return b.String()
}

// ParseAccess reads what String wrote. Unknown names are ignored.
func ParseAccess(s string) Access {
	var a Access
	for _, part := range strings.Split(s, ",") {
		for i, n := range accessNames {
			if part == n {
				a |= 1 << i
			}
		}
	}
	return a
}

// Mark bits qualify what an event says. An event without marks is exactly true.
type Mark uint32

// The marks.
const (
	MarkUnverified  Mark = 1 << iota // the name or where it leads may have changed between the call and when it was read; the kernel's object was not seen
	MarkTruncated                    // the path is longer than what was kept; its tail is kept
	MarkDeleted                      // the file had no name any more when it was seen
	MarkDetached                     // the mount's place is unknown: the path lacks its prefix
	MarkRaced                        // the file descriptor was gone or changed before it could be read
	MarkArgvCut                      // argv is longer than what was kept: ArgvLen and ArgvHash describe the whole
	MarkNoResult                     // the call's result is not known (io_uring submissions)
	MarkAnonymous                    // the object lives outside any file system tree: pipe, memfd, socket
	MarkHostile                      // the call is one that only something that hides would make
	MarkSynthesised                  // the recorder derived the event (for example: a process that lived before recording)
	MarkNoProcess                    // the process that did it could not be found: Proc is zero
	MarkRefused                      // the sandbox (its filter, or the tracer in its place) refused the call: the kernel never saw it. A failed call without it failed in the kernel
)

var markNames = []string{"unverified", "truncated", "deleted", "detached", "raced", "argv-cut", "no-result", "anonymous", "hostile", "synthesised", "no-process", "refused"}

// Names lists the marks that are set.
func (m Mark) Names() []string {
	var out []string
	for i, n := range markNames {
		if m&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// ABI is the system call interface that a call came through.
type ABI uint8

// The ABIs.
const (
	ABINone  ABI = iota // not a system call
	ABIAMD64            // x86_64
	ABII386             // int 0x80, sysenter
	ABIX32              //
	ABIARM64            //
)

func (a ABI) String() string {
	return [...]string{"", "x86_64", "i386", "x32", "arm64"}[a]
}

// Window says in which part of a run's life an event happened.
type Window uint8

// The windows. Setup and collection are not observed.
const (
	WindowNone      Window = iota
	WindowAgent            // while the agent ran
	WindowPostAgent        // after the agent ended: daemons it left behind
	WindowVerify           // the same, while the task's tests ran
	WindowIdle             // service life cycle: before any probe
	WindowProbe            // service life cycle: while a probe was being answered
)

var windowNames = []string{"", "agent", "post-agent", "verify", "idle", "probe"}

func (w Window) String() string { return windowNames[w] }

// ParseWindow returns the window of that name.
func ParseWindow(s string) (Window, bool) {
	for i, n := range windowNames {
		if n == s {
			return Window(i), true
		}
	}
	return WindowNone, false
}

// HostSource says how a host's name is known, weakest last.
type HostSource uint8

// The sources of a host's name.
const (
	HostUnknown   HostSource = iota
	HostDNS                  // a DNS answer to this process named the address
	HostSNI                  // the TLS ClientHello named it
	HostHTTP                 // the HTTP Host header named it
	HostConnect              // an HTTP CONNECT or SOCKS request named it
	HostFile                 // the sandbox's hosts file names the address
	HostShared               // a DNS answer to another process of the run named the address
	HostAmbiguous            // several names have that address; the likeliest is given
	HostLiteral              // an address was used as it is: there is no name
)

var hostSourceNames = []string{"", "dns", "sni", "http", "connect", "hosts-file", "dns-shared", "ambiguous", "literal"}

func (h HostSource) String() string { return hostSourceNames[h] }

// ParseHostSource returns the source of that name.
func ParseHostSource(s string) (HostSource, bool) {
	for i, n := range hostSourceNames {
		if n == s {
			return HostSource(i), true
		}
	}
	return HostUnknown, false
}

// Proto is the transport of a network event.
type Proto uint8

// The transports.
const (
	ProtoNone Proto = iota
	ProtoTCP
	ProtoUDP
	ProtoICMP
	ProtoUnix
	ProtoRaw
	ProtoPacket
	ProtoNetlink
	ProtoVsock
	ProtoOther
)

var protoNames = []string{"", "tcp", "udp", "icmp", "unix", "raw", "packet", "netlink", "vsock", "other"}

func (p Proto) String() string { return protoNames[p] }

// ParseProto returns the transport of that name.
func ParseProto(s string) (Proto, bool) {
	for i, n := range protoNames {
		if n == s {
			return Proto(i), true
		}
	}
	return ProtoNone, false
}

// Proc is a process's identity. A pid alone is not one: pids are used again.
type Proc struct {
	PID   int32  // as the host's initial namespace numbers it
	Start uint64 // when its thread group leader started, in nanoseconds since boot
}

// Event is one thing that a sensor saw.
//
// Invariant: a sensor fills what it knows and leaves the rest zero; nothing is guessed. What is uncertain has a
// Mark. Strings are raw bytes (see the package comment).
type Event struct {
	Seq    uint64 // position in the run, from 1, without gaps; the run's writer sets it
	Time   int64  // wall clock, nanoseconds since 1970 UTC
	Boot   uint64 // the same moment in nanoseconds since boot: the order of events
	Type   Type
	NR     int32 // system call number, -1 where there was none
	ABI    ABI
	Sensor string // name of the sensor: "bpf", "ptrace", "names", "transcript"
	Window Window

	Proc   Proc // who did it
	TID    int32
	Parent Proc // of Proc, as it was at fork
	UID    uint32
	GID    uint32
	SID    int32 // session (setsid)

	// What the process is. Sensors set these on exec; readers of a run get them on every event ([Processes]).
	Exe  string // canonical path of the program really executed
	Argv []string
	CWD  string
	// Script is the file that an interpreter was started for by "#!": the canonical path where it is known.
	Script   string
	ArgvLen  uint64   // bytes of the whole argv with its terminators, also where it was cut
	ArgvHash [32]byte // SHA-256 of the whole argv as in memory, where it was cut

	// The object.
	Path       string // canonical: what the kernel really opened, renamed, …
	PathGiven  string // the name as the program gave it
	Path2      string // second path of rename, link and symlink
	Path2Given string
	Dev, Ino   uint64 // of the object; Dev as major<<32|minor
	Access     Access
	Flags      uint64 // the call's flags or mode, as given

	// Amounts.
	Bytes        uint64 // for truncate the new size, for send the bytes sent
	BytesRead    uint64
	BytesWritten uint64
	Mapped       bool   // the file was mapped: its bytes can be used without read or write
	Count        uint64 // how many alike calls this event stands for; at least 1
	LastBoot     uint64 // when the last of them happened, where Count > 1

	// The network.
	Proto      Proto
	Local      netip.AddrPort
	Remote     netip.AddrPort
	UnixAddr   string // unix socket: the path, or "@name" where it is abstract
	Host       string // the remote's name
	HostSource HostSource
	Answers    []netip.Addr // of a DNS answer
	Cookie     uint64       // kernel's socket cookie: joins connect, names and flow

	Child  Proc  // fork: the new process; signal, ptrace: the target
	Signal int32 // signal: its number; ptrace: the request
	Status int32 // exit: wait status
	Errno  int32 // 0: it worked
	Marks  Mark
	Detail string // a few words where the fields do not suffice: DNS type, option name, mark text
}

// Failed tells whether the call did not do what it was asked to.
func (e *Event) Failed() bool { return e.Errno != 0 }

// N is Count, at least 1.
func (e *Event) N() uint64 {
	if e.Count == 0 {
		return 1
	}
	return e.Count
}
