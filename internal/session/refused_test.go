package session

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
	"github.com/bodycam-dev/bodycam/internal/sensor/bpf"
	"golang.org/x/sys/unix"
)

// Whatever the sandbox's filter refuses is in the table of the calls that the sensor records when they fail.
func TestRefusedIsWatched(t *testing.T) {
	for _, mode := range []seccomp.Mode{seccomp.Strict, seccomp.Observe} {
		refused := seccomp.Refused(mode)
		if len(refused) < 20 {
			t.Errorf("%s refuses only %d calls", mode, len(refused))
		}
		for _, nr := range refused {
			if !bpf.Watches(bodycam.ABIAMD64, int32(nr)) {
				t.Errorf("%s refuses %s, which the bpf sensor doesn't record", mode, bodycam.SyscallName(bodycam.ABIAMD64, int32(nr)))
			}
		}
	}
	if bpf.Watches(bodycam.ABIAMD64, 39) {
		t.Error("getpid is watched: the test proves nothing")
	}
}

// refusedScript makes every call that the sandbox refuses, once, and prints what came of it. Then it tries to get the sandbox's
// filter out of the way with filters of its own: one that lets all calls stop for a tracer (whose word a tracer must not take for
// the sandbox's), and a listener that waves calls past.
const refusedScript = `
import ctypes, struct, os
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) for a in args])
    return "ok" if r >= 0 else "errno %d" % ctypes.get_errno()
for nr, args in [CALLS]:
    print(nr, args, call(nr, *args))
def program(*ins):
    raw = b"".join(struct.pack("<HBBI", *i) for i in ins)
    buf = ctypes.create_string_buffer(raw)
    prog = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(ins), ctypes.addressof(buf)))
    prog.keep = buf
    return prog
libc.prctl(38, 1, 0, 0, 0)
trace_all = program((0x20, 0, 0, 0), (0x15, 0, 1, 165), (0x06, 0, 0, 0x7ff00000), (0x06, 0, 0, 0x7fff0000))
print("filter", call(317, 1, 0, ctypes.addressof(trace_all)))
print("mount", call(165, 0, 0, 0, 0, 0))
notify = program((0x20, 0, 0, 0), (0x15, 0, 1, 165), (0x06, 0, 0, 0x7fc00000), (0x06, 0, 0, 0x7fff0000))
got = [call(317, op, 8, ctypes.addressof(notify)) for op in (1, 1 | 1 << 32)]
print("listeners", got)
if "ok" not in got: # else nobody would answer
    print("mount", call(165, 0, 0, 0, 0, 0))
`

// A sandbox refuses the same beside the ptrace sensor as beside the bpf one, where its own filter answers, and the attempts are
// in both records.
func TestRefusedIsTraced(t *testing.T) {
	needRoot(t)
	for _, mode := range []seccomp.Mode{seccomp.Strict, seccomp.Observe} {
		t.Run(string(mode), func(t *testing.T) {
			// Namespaces, raw and multipath sockets, families, terminals: refused for some arguments.
			calls := []string{"(41, (38, 5, 0))", "(53, (40, 1, 0))", "(16, (0, 0x5412))", "(16, (0, 0x541c))", "(41 | 1 << 30, (2, 1, 0))"}
			if mode == seccomp.Strict {
				calls = append(calls, "(272, (0x10000000,))", "(56, (0x10000000,))", "(41, (2, 3, 1))", "(41, (2, 1, 262))")
			}
			for _, nr := range seccomp.Refused(mode) {
				if !slices.Contains([]uint32{272, 56, 41, 53, 16}, nr) {
					calls = append(calls, fmt.Sprintf("(%d, (0, 0, 0, 0, 0))", nr))
				}
			}
			script := strings.Replace(refusedScript, "CALLS", strings.Join(calls, ", "), 1)
			said, tried := map[string]string{}, map[string][]string{}
			for _, sensor := range []string{"bpf", "ptrace"} {
				r := mustRun(t, options(t, []string{"/usr/bin/python3", "-c", script}, func(p *kind.Plan) { p.Sensors, p.Seccomp = []string{sensor}, string(mode) }))
				out, err := os.ReadFile(r.Path("agent/stdout"))
				if err != nil {
					t.Fatal(err)
				}
				said[sensor] = string(out)
				for _, e := range events(t, r) {
					if e.Marks&bodycam.MarkRefused != 0 {
						tried[sensor] = append(tried[sensor], fmt.Sprint(e.Syscall(), " ", e.ABI, " ", e.Errno))
					}
				}
			}
			before, after, ok := strings.Cut(said["bpf"], "filter ")
			pbefore, pafter, pok := strings.Cut(said["ptrace"], "filter ")
			if !ok || !pok || before != pbefore {
				t.Errorf("beside bpf the calls end as\n%s\nbeside ptrace as\n%s", before, pbefore)
			}
			if strings.Contains(before, ") ok") || strings.Count(before, "errno") != len(calls) {
				t.Errorf("not all of %d calls are refused:\n%s", len(calls), before)
			}
			// An untraced box answers the mount itself. Beside a tracer no listener is had, and the filter that lets it stop has no say.
			if mode == seccomp.Strict && !strings.Contains(after, "mount errno 1\n") || !strings.HasPrefix(pafter, "ok\n") ||
				mode == seccomp.Strict && strings.Count(pafter, "mount errno 1\n") != 2 || !strings.Contains(pafter, "listeners ['errno 16', 'errno 16']\n") {
				t.Errorf("filters of its own: beside bpf\n%sbeside ptrace\n%s", after, pafter)
			}
			for _, nr := range append(seccomp.Refused(mode), unix.SYS_IOCTL) {
				name := bodycam.SyscallName(bodycam.ABIAMD64, int32(nr)) + " x86_64 "
				for _, sensor := range []string{"bpf", "ptrace"} {
					if list := tried[sensor]; !slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, name) }) {
						t.Errorf("%s: the refused %sis not in the record: %q", sensor, name, list)
					}
				}
			}
		})
	}
}

// What the kernel itself refuses isn't told as the sandbox's doing, nor the other way round.
func TestRefusedByWhom(t *testing.T) {
	needRoot(t)
	const script = `
import ctypes, os
libc = ctypes.CDLL(None)
libc.syscall(165, 0, 0, 0, 0, 0)        # mount: the filter
libc.syscall(170, b"x", 1)              # sethostname: no right in the kernel's eyes
libc.syscall(41, 2, 3, 1)               # a raw socket: the filter
libc.syscall(41, 2, 1, 200)             # a protocol that isn't there: the kernel
libc.syscall(272, 0x10000000)           # a user namespace: the filter
try: os.chown("/etc/hostname", 0, 0)    # read-only, or no right
except OSError: pass
`
	for _, sensor := range []string{"bpf", "ptrace"} {
		r := mustRun(t, options(t, []string{"/usr/bin/python3", "-c", script}, func(p *kind.Plan) { p.Sensors = []string{sensor} }))
		byFilter := map[string]bool{}
		for _, e := range events(t, r) {
			if e.Failed() {
				byFilter[fmt.Sprint(e.Syscall(), " ", bodycam.ErrnoName(e.Errno))] = e.Marks&bodycam.MarkRefused != 0
			}
		}
		for call, want := range map[string]bool{"mount EPERM": true, "sethostname EPERM": false, "socket EPERM": true, "socket EPROTONOSUPPORT": false,
			"unshare EPERM": true, "chown EROFS": false, "chown EPERM": false} {
			if got, ok := byFilter[call]; got != want || !ok && !strings.HasPrefix(call, "chown") && (sensor == "bpf" || call != "socket EPROTONOSUPPORT") { // ptrace stops at odd sockets alone
				t.Errorf("%s: %s is told as refused by the sandbox: %v, recorded %v", sensor, call, got, ok)
			}
		}
	}
}
