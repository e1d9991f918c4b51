package bpf

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// bytesRead sums what the closes of a file tell of.
func bytesRead(c *sensortest.Collector, name string) (n uint64) {
	for _, e := range c.Events() {
		if e.Type == bodycam.TypeClose && e.Path == name {
			n += e.BytesRead
		}
	}
	return n
}

// reader reads 100 bytes of a file that it opens, says so, and waits.
const reader = `
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.read(fd, 100)
os.write(1, b"x")
os.read(0, 1)
os._exit(0)`

// readers starts n of them in a cgroup, and returns when each has read. The functions returned let them go on, one by one.
func readers(t *testing.T, dir, name string, n int) (goOn []func()) {
	t.Helper()
	for range n {
		cmd := exec.Command("/usr/bin/python3", "-c", reader, name)
		inCgroup(t, cmd, dir)
		in := untilReady(t, cmd)
		goOn = append(goOn, func() {
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	return goOn
}

func newFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// What a task did is told also where it ends after the hooks were removed, and before what they gathered is sent.
func TestTaskEndsWhileStopping(t *testing.T) {
	needRoot(t)
	dir, name := newCgroup(t), newFile(t)
	var c sensortest.Collector
	s := started(t, dir, Options{}, c.Sink)
	const n = 3
	goOn := readers(t, dir, name, n)
	if err := s.prog.detach(); err != nil {
		t.Fatal(err)
	}
	for _, f := range goOn {
		f()
	}
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, h)
	if got := bytesRead(&c, name); got != n*100 {
		t.Errorf("%d bytes read, want %d", got, n*100)
	}
}

// The counts agree whenever the sensor stops, among tasks that begin, work and end.
func TestStopAmongTasksThatEnd(t *testing.T) {
	needRoot(t)
	dir, name := newCgroup(t), newFile(t)
	for range 4 {
		cmd := exec.Command("/bin/sh", "-c", `while :; do cat "$0" "$0"; (read line; read line) <"$0"; done >/dev/null`, name)
		inCgroup(t, cmd, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	for i := range 15 {
		var c sensortest.Collector
		s := started(t, dir, Options{}, c.Sink)
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		h, err := s.Stop()
		if err != nil {
			t.Fatal(err)
		}
		complete(t, h)
	}
}

// A process that was moved to another cgroup is not observed there; what it did before is told.
func TestTaskLeavesCgroup(t *testing.T) {
	needRoot(t)
	dir, other, name := newCgroup(t), newCgroup(t), newFile(t)
	var c sensortest.Collector
	s := started(t, dir, Options{}, c.Sink)
	goOn := readers(t, dir, name, 1)
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "cgroup.procs"), b, 0); err != nil {
		t.Fatal(err)
	}
	goOn[0]()
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, h)
	if got := bytesRead(&c, name); got != 100 {
		t.Errorf("%d bytes read, want 100", got)
	}
}

// deadly writes a program that the kernel finds impossible only when it has ended the other threads of whoever executes it: its one
// segment lies where no program may have one.
func deadly(t *testing.T) string {
	t.Helper()
	const head, segment = 64, 56
	b := make([]byte, head+segment)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 2)  // ET_EXEC
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], 0x400000)
	le.PutUint64(b[32:], head)
	le.PutUint16(b[52:], head)
	le.PutUint16(b[54:], segment)
	le.PutUint16(b[56:], 1)
	p := b[head:]
	le.PutUint32(p, 1)                          // PT_LOAD
	le.PutUint32(p[4:], 5)                      // read, execute
	le.PutUint64(p[16:], 0xffff_8000_0000_0000) // in the kernel's half
	le.PutUint64(p[32:], uint64(len(b)))
	le.PutUint64(p[40:], uint64(len(b)))
	le.PutUint64(p[48:], 0x1000)
	name := filepath.Join(t.TempDir(), "deadly")
	if err := os.WriteFile(name, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// A thread that dies of executing a program has its leader's id by then. What it did under its own is told, and at once.
func TestThreadDiesExecuting(t *testing.T) {
	needRoot(t)
	dir, name := newCgroup(t), newFile(t)
	var c sensortest.Collector
	s := started(t, dir, Options{}, c.Sink)
	cmd := exec.Command("/usr/bin/python3", "-c", `
import os, sys, threading
def run():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    os.read(fd, 100)
    os.execv(sys.argv[2], ["deadly"])
t = threading.Thread(target=run)
t.start()
t.join()`, name, deadly(t))
	inCgroup(t, cmd, dir)
	if err := cmd.Run(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("%v: the program should have died of a signal", cmd.ProcessState)
	}
	for range 30 {
		if bytesRead(&c, name) > 0 {
			break
		}
		time.Sleep(pollInterval)
	}
	if got := bytesRead(&c, name); got != 100 {
		t.Errorf("%d bytes read, want 100", got)
	}
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, h)
	if n := len(s.dec.tasks); n != 0 {
		t.Errorf("something is kept for %d tasks, and none is left", n)
	}
}
