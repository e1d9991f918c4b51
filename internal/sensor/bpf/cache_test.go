package bpf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// A task's cache in the kernel goes to the next task when it ends. That one must find nothing in it: here all use one and the same
// open file, which none of them has opened.
func TestCacheIsGivenOnEmpty(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "shared")
	if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `exec 3<"$0"; i=0; while [ $i -lt 200 ]; do i=$((i+1)); dd bs=1 count=1 <&3 2>&- >/dev/null; done`, name)
	var c sensortest.Collector
	h := observed(t, Options{}, cmd, c.Sink)
	complete(t, h)
	readers := map[bodycam.Proc]uint64{}
	for _, e := range c.Events() {
		if e.Type == bodycam.TypeClose && e.Path == "" {
			t.Errorf("bytes went through a file without a name: %+v", e)
		}
		if e.Type == bodycam.TypeClose && e.Path == name {
			readers[e.Proc] += e.BytesRead
		}
	}
	for p, n := range readers {
		if n != 1 {
			t.Errorf("%v read %d bytes, want 1", p, n)
		}
	}
	if len(readers) != 200 {
		t.Errorf("%d processes read the file, want 200", len(readers))
	}
}

// A thread that executes a program goes on under its leader's id; what it did under its own is told all the same.
func TestCacheOfThreadThatExecutes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", `
import os, sys, threading
def run():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    os.read(fd, 100)
    os.execv("/bin/true", ["true"])
t = threading.Thread(target=run)
t.start()
t.join()`, name)
	var c sensortest.Collector
	complete(t, observed(t, Options{}, cmd, c.Sink))
	var read uint64
	for _, e := range c.Events() {
		if e.Type == bodycam.TypeClose && e.Path == name {
			read += e.BytesRead
		}
	}
	if read != 100 {
		t.Errorf("%d bytes read, want 100", read)
	}
}

// What goes through a file is told also where the first record of all, on the first processor, is what names that file.
func TestFirstRecordNamesFile(t *testing.T) {
	needRoot(t)
	dir, name := newCgroup(t), filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", `
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.write(1, b"x")
os.read(0, 1)
os.read(fd, 100)
os.close(fd)
os._exit(0)`, name)
	inCgroup(t, cmd, dir)
	in := untilReady(t, cmd) // the file is open, and nothing is recorded yet
	var c sensortest.Collector
	s := started(t, dir, Options{}, c.Sink)
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, h)
	var read uint64
	for _, e := range c.Events() {
		if e.Type == bodycam.TypeClose && e.Path == name {
			read += e.BytesRead
		}
	}
	if read != 100 {
		t.Errorf("%d bytes read, want 100", read)
	}
}

// crowd runs n tasks that live at the same time, each of which writes twice, and returns how many bytes are told of each file.
func crowd(t *testing.T, n int, opt Options) (bodycam.Health, map[string]uint64) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", `cd "$0"; mkfifo gate; exec 9<>gate; i=0; while [ $i -lt $1 ]; do i=$((i+1)); { exec 3>out$i; echo x >&3; read line; echo y >&3; } <gate & done
until [ -e out$1 ]; do sleep 0.01; done; i=0; while [ $i -lt $1 ]; do i=$((i+1)); echo go >&9; done; wait`, dir, strconv.Itoa(n))
	written := map[string]uint64{}
	h := observed(t, opt, cmd, func(e *bodycam.Event) error {
		if e.Type == bodycam.TypeClose && e.BytesWritten > 0 && strings.HasPrefix(e.Path, dir+"/out") {
			written[e.Path] += e.BytesWritten
		}
		return nil
	})
	return h, written
}

// More tasks than the pool has caches for are recorded all the same.
func TestMoreTasksThanCaches(t *testing.T) {
	const tasks = 1200
	h, written := crowd(t, tasks, Options{})
	complete(t, h)
	for p, b := range written {
		if b != 4 {
			t.Errorf("%s: %d bytes written, want 4", p, b)
		}
	}
	if len(written) != tasks {
		t.Errorf("%d files were written, want %d", len(written), tasks)
	}
}

// Where there is no cache left for a task, the record says that something is missing.
func TestNoCacheLeft(t *testing.T) {
	const tasks = 1200
	h, written := crowd(t, tasks, Options{others: 8})
	var told uint64
	for _, b := range written {
		told += b
	}
	if told >= 4*tasks {
		t.Fatalf("%d bytes are told: every task had a cache, so this tests nothing", told)
	}
	if h.Total.Lost == 0 || !h.Total.Balanced() || bodycam.Assess([]bodycam.Health{h}).Complete {
		t.Errorf("health %+v", h)
	}
}
