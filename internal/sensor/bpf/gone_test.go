package bpf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// closedMeanwhile is a program of which one thread reads all of a file at once, while another closes the descriptor: the kernel goes on
// reading. It tries until the close came in time, and prints how much was read. "own" has the reading thread open the file itself.
const closedMeanwhile = `
import os, sys, threading, time
size = os.stat(sys.argv[1]).st_size
buf = bytearray(size)
total = 0
while True:
    ready, done = threading.Event(), []
    box = [os.open(sys.argv[1], os.O_RDONLY)] if sys.argv[2] != "own" else []
    def run():
        if not box:
            box.append(os.open(sys.argv[1], os.O_RDONLY))
        ready.set()
        n = os.readv(box[0], [buf])
        done.append(n)
    t = threading.Thread(target=run)
    t.start()
    ready.wait()
    time.sleep(0.005)
    os.close(box[0])
    early = not done
    t.join()
    total += sum(done)
    if early and done == [size]:
        break
print(total)`

// What a thread reads from a file that it opened is told also where another thread has closed the descriptor by then.
func TestClosedWhileReading(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const size = 256 << 20
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"own", "other"} {
		var c sensortest.Collector
		cmd := exec.Command("/usr/bin/python3", "-c", closedMeanwhile, name, who)
		var out bytes.Buffer
		cmd.Stdout = &out
		h := observed(t, Options{}, cmd, c.Sink)
		complete(t, h)
		read := bytesRead(&c, name)
		total, err := strconv.ParseUint(strings.TrimSpace(out.String()), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if who == "own" && read != total {
			t.Errorf("%d bytes read, want %d", read, total)
		}
		if who == "other" && read < total && !strings.Contains(h.Note, "told of no file") {
			t.Errorf("%d bytes read, and the note is %q", read, h.Note)
		}
	}
}

// swapFiles opens one of the files after another under one descriptor, while threads read from that. It is run by itself.
func swapFiles(names []string) {
	runtime.GOMAXPROCS(4)
	var fd, stop atomic.Int64
	open := func(name string) int64 {
		n, err := syscall.Open(name, syscall.O_RDONLY, 0)
		if err != nil {
			n = -1
		}
		return int64(n)
	}
	fd.Store(open(names[0]))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			runtime.LockOSThread()
			b := make([]byte, 8)
			for stop.Load() == 0 {
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd.Load()), uintptr(unsafe.Pointer(&b[0])), 8, 0, 0, 0)
			}
		})
	}
	for end, i := time.Now().Add(3*time.Second), 0; time.Now().Before(end); i++ {
		_ = syscall.Close(int(fd.Load()))
		fd.Store(open(names[i%len(names)]))
	}
	stop.Store(1)
	wg.Wait()
}

// A file that is being closed, or opened, while it is looked at is never taken for a file without a name.
func TestSwappedWhileReading(t *testing.T) {
	if names := os.Getenv("BODYCAM_SWAP"); names != "" {
		swapFiles(strings.Split(names, ":"))
		return
	}
	dir := t.TempDir()
	var names []string
	for i := range 64 {
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(name, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestSwappedWhileReading$")
	cmd.Env = append(os.Environ(), "BODYCAM_SWAP="+strings.Join(names, ":"))
	reads := 0
	complete(t, observed(t, Options{}, cmd, func(e *bodycam.Event) error {
		if (e.Type == bodycam.TypeClose || e.Type == bodycam.TypeOpen) && e.Path == "" {
			t.Errorf("%v of no file: %+v", e.Type, e)
		}
		if e.Type == bodycam.TypeClose && strings.HasPrefix(e.Path, dir) {
			reads++
		}
		return nil
	}))
	if reads == 0 {
		t.Error("nothing was read")
	}
}
