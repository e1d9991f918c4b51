package bpf

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
)

// needRoot skips where programs can't be loaded because the user isn't root; nothing else is excused.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

// newCgroup makes a cgroup v2 directory of the test's own.
func newCgroup(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if strings.Contains(line, " - cgroup2 ") {
			dir, err := os.MkdirTemp(f[4], "bodycam-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
				for range 500 {
					if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
				t.Errorf("removing %s: %v", dir, err)
			})
			return dir
		}
	}
	t.Fatal("no cgroup2 mount on this machine")
	return ""
}

// inCgroup makes a command start in a cgroup.
func inCgroup(t testing.TB, cmd *exec.Cmd, dir string) {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
}

// untilReady starts a command and returns once it has printed something: then it waits for the end of its input, which is returned.
func untilReady(t *testing.T, cmd *exec.Cmd) io.WriteCloser {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return in
}

// untilEmpty waits until no process is left in a cgroup.
func untilEmpty(t testing.TB, dir string) {
	t.Helper()
	for range 6000 {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("populated 0")) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("processes are left in %s", dir)
}

func target(dir string) sensor.Target { return sensor.Target{Cgroup: dir} }

// started returns a sensor that watches a cgroup.
func started(t testing.TB, dir string, opt Options, sink sensor.Sink) *Sensor {
	t.Helper()
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background(), target(dir), sink); err != nil {
		t.Fatal(err)
	}
	return s
}

// observed runs a command under a sensor until every process has ended.
func observed(t testing.TB, opt Options, cmd *exec.Cmd, sink sensor.Sink) bodycam.Health {
	t.Helper()
	needRoot(t)
	dir := newCgroup(t)
	s := started(t, dir, opt, sink)
	inCgroup(t, cmd, dir)
	runErr := cmd.Run()
	untilEmpty(t, dir)
	h, err := s.Stop()
	if err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if runErr != nil && !errors.As(runErr, &exit) {
		t.Fatal(runErr)
	}
	return h
}

type harness struct{ opt Options }

func (h harness) Start(t testing.TB, w sensortest.Workload) sensortest.Record {
	var c sensortest.Collector
	var out bytes.Buffer
	cmd := exec.Command(w.Argv[0], w.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout = w.Env, w.Dir, &out
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	health := observed(t, h.opt, cmd, c.Sink)
	r := sensortest.Record{Events: c.Events(), Health: health, Stdout: out.Bytes(), PID: cmd.Process.Pid, Status: -1}
	if st := cmd.ProcessState; st != nil && st.Exited() {
		r.Status = st.ExitCode()
	}
	return r
}

func (harness) Traits() sensortest.Traits {
	return sensortest.Traits{
		Bytes: true, Walks: true, DNSAnswers: true,
		Blind: map[string]string{"01-uring/open": "io_uring", "01-uring/connect": "io_uring", "01-uring/unlink": "io_uring"},
	}
}

func TestSuite(t *testing.T) {
	needRoot(t)
	sensortest.Run(t, harness{})
}

// The object for older kernels makes the same record. A newer kernel takes it too.
func TestSuiteOld(t *testing.T) {
	needRoot(t)
	sensortest.Run(t, harness{Options{old: true}})
}

func complete(t testing.TB, h bodycam.Health) {
	t.Helper()
	if h.Failed != "" || !h.Total.Balanced() || h.Total.Lost != 0 || h.Gaps != 0 {
		t.Errorf("health %+v", h)
	}
	for name, c := range h.Sources {
		if !c.Balanced() {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
