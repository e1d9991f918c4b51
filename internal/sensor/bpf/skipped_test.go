package bpf

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// printing is a program that prints an empty line to the kernel's trace, which is what sets off the tracepoint bpf_trace_printk.
func printing(t *testing.T, spec ebpf.ProgramSpec) *ebpf.Program {
	t.Helper()
	spec.License = "GPL"
	spec.Instructions = asm.Instructions{
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -8),
		asm.Mov.Imm(asm.R2, 1),
		asm.FnTracePrintk.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
	p, err := ebpf.NewProgram(&spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// The kernel does not run a program on a processor where it runs already. Here one sets off its own hook.
func TestSkippedRunsAreCounted(t *testing.T) {
	needRoot(t)
	inner := printing(t, ebpf.ProgramSpec{Name: "inner", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "bpf_trace_printk"})
	outer := printing(t, ebpf.ProgramSpec{Name: "outer", Type: ebpf.SocketFilter})
	l, err := link.AttachTracing(link.TracingOptions{Program: inner})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all := []*ebpf.Program{inner, outer}
	if n, names, err := skipped(all); n != 0 || names != nil || err != nil {
		t.Errorf("%d, %v, %v before any run", n, names, err)
	}
	const runs = 3
	for range runs {
		if _, err := outer.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
			t.Fatal(err)
		}
	}
	if n, names, err := skipped(all); n < runs || !slices.Equal(names, []string{"inner"}) || err != nil {
		t.Errorf("%d, %v, %v: want %d of inner at least", n, names, err, runs)
	}
}

// connections makes many TCP connections at once, over and over, and prints how many. Their packets come by interrupts, in the midst of
// the changes of state of others.
const connections = `
import select, socket, threading, time
srv = socket.socket()
srv.bind(("127.0.0.1", 0))
srv.listen(4096)
end = time.time() + 4
count = [0, 0]
def serve():
    while True:
        c, _ = srv.accept()
        c.close()
def connect(k):
    while time.time() < end:
        made = []
        for _ in range(100):
            s = socket.socket()
            s.setblocking(False)
            try:
                s.connect(srv.getsockname())
            except BlockingIOError:
                pass
            made.append(s)
        for s in made:
            s.setblocking(True)
            if s.recv(1) != b"":
                raise Exception("received something")
            s.close()
            count[k] += 1
for _ in range(2):
    threading.Thread(target=serve, daemon=True).start()
clients = [threading.Thread(target=connect, args=(k,)) for k in range(2)]
for t in clients:
    t.start()
for t in clients:
    t.join()
print(sum(count))`

// inOwnNet is a Python script in a network namespace of its own.
func inOwnNet(script string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", `ip link set lo up && exec /usr/bin/python3 -c "$0"`, script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return cmd
}

// Where interrupts made the kernel leave runs out, the record says so, and only there. The outcome of every connection is told all the same.
func TestConnectionsUnderInterrupts(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	cmd := inOwnNet(connections)
	inCgroup(t, cmd, dir)
	var out bytes.Buffer
	cmd.Stdout = &out
	var pending, connects int
	s := started(t, dir, Options{}, func(e *bodycam.Event) error {
		if e.Type == bodycam.TypeConnect && e.Remote.IsValid() {
			connects++
			if e.Errno == int32(syscall.EINPROGRESS) {
				pending++
			}
		}
		return nil
	})
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	untilEmpty(t, dir)
	left, names, err := skipped(s.prog.tracing())
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, h)
	n, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil || n == 0 {
		t.Fatalf("%d connections: %v", n, err)
	}
	t.Logf("%d connections; the kernel left %d runs out, of %v", n, left, names)
	if connects != n || uint64(pending) > left {
		t.Errorf("%d connects, of %d the outcome unknown, of %d connections", connects, pending, n)
	}
	if left > 0 && (len(h.Blind) != 1 || h.Blind[0].What != "hooks" || h.Blind[0].Count < left) || left == 0 && len(h.Blind) > 0 {
		t.Errorf("%d runs were left out; blind: %v", left, h.Blind)
	}
}

// What the kernel left out of strangers' connections is no blind spot of a target that has none.
func TestStrangersConnections(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	s := started(t, dir, Options{}, func(*bodycam.Event) error { return nil })
	cmd := inOwnNet(connections)
	target := exec.Command("/bin/ls", "/")
	inCgroup(t, target, dir)
	if err := errors.Join(cmd.Run(), target.Run()); err != nil {
		t.Fatal(err)
	}
	untilEmpty(t, dir)
	left, names, err := skipped(s.prog.tracing())
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the kernel left %d runs out, of %v", left, names)
	if len(h.Blind) > 0 || h.Total.Emitted == 0 {
		t.Errorf("%+v", h)
	}
}

// usedAgain gives a connection up and uses its socket for another one, and then to listen.
const usedAgain = `
import ctypes, socket, struct
srv = socket.socket()
srv.bind(("127.0.0.1", 0))
srv.listen(8)
s = socket.socket()
libc = ctypes.CDLL(None, use_errno=True)
def give_up(s):
    if libc.connect(s.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16):
        raise OSError(ctypes.get_errno())
for n in (1, 2):
    s.connect(srv.getsockname())
    c, _ = srv.accept()
    s.send(b"x" * n)
    c.recv(9)
    give_up(s)
    c.close()
s.bind(("127.0.0.1", 0))
s.listen(8)
o = socket.create_connection(s.getsockname())
c, _ = s.accept()
o.send(b"xxx")
c.recv(9)
c.close()
o.close()`

func TestSocketUsedAgain(t *testing.T) {
	needRoot(t)
	dir := newCgroup(t)
	cmd := inOwnNet(usedAgain)
	inCgroup(t, cmd, dir)
	read, written := map[uint64]int{}, map[uint64]int{}
	s := started(t, dir, Options{}, func(e *bodycam.Event) error {
		if e.Type == bodycam.TypeFlow {
			read[e.BytesRead]++
			written[e.BytesWritten]++
		}
		return nil
	})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	untilEmpty(t, dir)
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 3; n++ {
		if read[n] != 1 || written[n] != 1 {
			t.Errorf("of the connection that moved %d bytes the ends were told %d and %d times: read %v, written %v", n, read[n], written[n], read, written)
		}
	}
}
