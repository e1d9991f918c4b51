package bpf

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
)

//go:embed calls.tsv
var callsTSV string

// maxCalls is the length of the kernel's tables of calls; x32 keeps calls of its own at 512 to 547.
const maxCalls = 576

// callTables are what the kernel side looks up by system call number.
type callTables struct {
	amd64, i386 [maxCalls]sensorCall
	watched     [maxCalls]uint8
	socketcalls [32]uint16
	flags       [bodycam.ABIX32 + 1][maxCalls]uint8  // which argument, from 1, is the event's Flags
	opens       [bodycam.ABIX32 + 1][maxCalls]uint64 // the flags of calls that open without being given any
}

var actions = map[string]sensorAct{
	"open": sensorActA_OPEN, "openhow": sensorActA_OPENHOW, "path": sensorActA_PATH, "move": sensorActA_MOVE, "rename": sensorActA_RENAME, "fd": sensorActA_FD,
	"args": sensorActA_ARGS, "creds": sensorActA_CREDS, "chdir": sensorActA_CHDIR, "chroot": sensorActA_CHROOT, "exec": sensorActA_EXEC,
	"read": sensorActA_READ, "write": sensorActA_WRITE, "copy": sensorActA_COPY, "close": sensorActA_CLOSE, "ioctl": sensorActA_IOCTL,
	"mmap": sensorActA_MMAP, "clone": sensorActA_CLONE, "clone3": sensorActA_CLONE3, "kill": sensorActA_KILL,
	"target": sensorActA_TARGET, "pidfd": sensorActA_PIDFD, "prctl": sensorActA_PRCTL, "connect": sensorActA_CONNECT, "bind": sensorActA_BIND,
	"listen": sensorActA_LISTEN, "accept": sensorActA_ACCEPT, "sendto": sensorActA_SENDTO,
	"sendmsg": sensorActA_SENDMSG, "sendmmsg": sensorActA_SENDMMSG, "recvmsg": sensorActA_RECVMSG,
	"failed": sensorActA_FAILED, "socket": sensorActA_SOCKET, "uring": sensorActA_URING, "indirect": sensorActA_INDIRECT, "socketcall": sensorActA_SOCKETCALL,
}

var follows = map[string]sensorFollow{
	"-": sensorFollowF_NO, "yes": sensorFollowF_YES, "at": sensorFollowF_AT, "link": sensorFollowF_LINK, "open": sensorFollowF_OPEN,
	"name": sensorFollowF_NAME, "text": sensorFollowF_TEXT,
}

// parseFollow reads how a name is treated: a word, and the argument that holds the flags which decide.
func parseFollow(s string) (uint8, error) {
	word, n, flagged := strings.Cut(s, ":")
	f, ok := follows[word]
	if !ok {
		return 0, fmt.Errorf("no way %q to treat a name", s)
	}
	if !flagged {
		return uint8(f), nil
	}
	i, err := strconv.Atoi(n)
	if err != nil || i < 1 || i > 6 {
		return 0, fmt.Errorf("%q is no argument number", n)
	}
	return uint8(f) | uint8(i)<<4, nil
}

// socketcallNames are the calls that i386's socketcall multiplexes, by its first argument (linux/net.h).
var socketcallNames = map[int]string{
	1: "socket", 8: "socketpair", 2: "bind", 3: "connect", 4: "listen", 5: "accept4", 11: "sendto", 16: "sendmsg", 17: "recvmsg", 18: "accept4",
	19: "recvmmsg", 20: "sendmmsg",
}

// calls are the tables, made once from calls.tsv and the kernel's numbers. The file is part of the program: that it
// is well formed is a test.
var calls = sync.OnceValues(func() (*callTables, error) { return parseCalls(callsTSV) })

func parseCalls(tsv string) (*callTables, error) {
	t := &callTables{}
	for i, line := range strings.Split(tsv, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := t.add(strings.Split(line, "\t")); err != nil {
			return nil, fmt.Errorf("calls.tsv:%d: %w", i+1, err)
		}
	}
	for sub, name := range socketcallNames {
		nr, ok := bodycam.SyscallNumber(bodycam.ABII386, name)
		if !ok {
			return nil, fmt.Errorf("socketcall: no number for %s", name)
		}
		t.socketcalls[sub] = uint16(nr)
	}
	return t, nil
}

func (t *callTables) add(f []string) error {
	if len(f) != 12 {
		return fmt.Errorf("%d columns, want 12", len(f))
	}
	typ, ok := bodycam.ParseType(f[1])
	if !ok {
		return fmt.Errorf("no event type %q", f[1])
	}
	act, ok := actions[f[2]]
	if !ok {
		return fmt.Errorf("no action %q", f[2])
	}
	var err error
	var arg [7]uint8
	for i, s := range f[3:10] {
		if s == "-" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 6 {
			return fmt.Errorf("%q is no argument number", s)
		}
		arg[i] = uint8(n)
	}
	if (act == sensorActA_READ || act == sensorActA_WRITE || act == sensorActA_CLOSE) && arg[4] != 1 {
		return fmt.Errorf("%s: the kernel side takes the first argument for the descriptor", f[2])
	}
	c := sensorCall{Act: uint8(act), Type: uint8(typ), Dfd: arg[0], Path: arg[1], Dfd2: arg[2], Path2: arg[3], Fd: arg[4], Fd2: arg[5], Flags: arg[6]}
	if c.Follow, err = parseFollow(f[10]); err == nil {
		c.Follow2, err = parseFollow(f[11])
	}
	if err != nil {
		return err
	}
	name, only, _ := strings.Cut(f[0], "@")
	found := false
	for _, abi := range []bodycam.ABI{bodycam.ABIAMD64, bodycam.ABII386, bodycam.ABIX32} {
		nr, ok := bodycam.SyscallNumber(abi, name)
		if !ok || only != "" && only != abi.String() {
			continue
		}
		if nr < 0 || nr >= maxCalls {
			return fmt.Errorf("%s has number %d, the tables end at %d", name, nr, maxCalls)
		}
		found = true
		t.flags[abi][nr] = arg[6]
		if name == "creat" {
			t.opens[abi][nr] = oCreat | oTrunc | 1
		}
		switch {
		case abi == bodycam.ABII386:
			t.i386[nr] = c
			t.watched[nr] |= 2
		case abi == bodycam.ABIAMD64 || nr >= 512:
			t.amd64[nr] = c
			t.watched[nr] |= 1
		}
	}
	if !found {
		return fmt.Errorf("no system call is named %q", f[0])
	}
	return nil
}

// flagsArg returns which argument of a call, from 1, is the event's Flags; 0 for none.
func (t *callTables) flagsArg(abi bodycam.ABI, nr int32) uint8 {
	if abi == bodycam.ABIX32 {
		nr &^= x32Bit
	}
	if int(abi) >= len(t.flags) || nr < 0 || nr >= maxCalls {
		return 0
	}
	return t.flags[abi][nr]
}

// flagsOf returns the argument of a call that is the event's Flags, from args.
func (t *callTables) flagsOf(abi bodycam.ABI, nr int32, args *[5]uint64) uint64 {
	if i := t.flagsArg(abi, nr); i >= 1 && int(i) <= len(args) {
		return args[i-1]
	}
	return 0
}

// openFlags returns the flags of a call that opens, from those that it was given.
func (t *callTables) openFlags(abi bodycam.ABI, nr int32, f uint64) uint64 {
	if abi == bodycam.ABIX32 {
		nr &^= x32Bit
	}
	if f == 0 && int(abi) < len(t.opens) && nr >= 0 && nr < maxCalls {
		f = t.opens[abi][nr]
	}
	return f
}

const x32Bit = 0x40000000
