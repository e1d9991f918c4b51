//go:build linux && amd64

package ptrace

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
	"golang.org/x/sys/unix"
)

// TestMain also plays the two processes of a sandbox that starts its own command.
func TestMain(m *testing.M) {
	switch os.Getenv("PTRACE_TEST_ROLE") {
	case "init": // starts the child and waits for it, as a sandbox's first process does
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "PTRACE_TEST_ROLE=child")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(cmd.Process.Pid)
		_ = cmd.Wait()
		os.Exit(cmd.ProcessState.ExitCode())
	case "child": // stops, is seized, installs the filter, becomes the command
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		if err := InstallFilter(ChildFilter()); err != nil {
			fmt.Println("filter:", err)
			os.Exit(1)
		}
		err := unix.Exec("/bin/sh", []string{"sh", "-c", "cat /etc/hostname >/dev/null; exit 7"}, []string{"PATH=/usr/bin:/bin"})
		fmt.Println("exec:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// observe runs a shell script under a sensor and returns its record.
func observe(t *testing.T, o Options, script string) ([]bodycam.Event, bodycam.Health, string) {
	t.Helper()
	s := New(o)
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{}, c.Sink); err != nil {
		t.Fatal(err)
	}
	out := scratch(t)
	p, err := s.StartProcess([]string{"/bin/bash", "-c", script}, []string{"PATH=/usr/bin:/bin"}, "/", []*os.File{os.Stdin, out, out})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	s.Wait()
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, _ := out.ReadAt(b, 0)
	return c.Events(), h, string(b[:n])
}

func find(events []bodycam.Event, ok func(*bodycam.Event) bool) *bodycam.Event {
	for i := range events {
		if ok(&events[i]) {
			return &events[i]
		}
	}
	return nil
}

func TestAttach(t *testing.T) {
	s := New(Options{})
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{}, c.Sink); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PTRACE_TEST_ROLE=init")
	cmd.Stderr = os.Stderr
	r, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "own child") {
		t.Errorf("attaching to a child of the recorder: %v", err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for !stopped(t, pid) {
		time.Sleep(5 * time.Millisecond)
	}
	if err := s.Attach(pid); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("the sandbox's first process saw exit status %d of its child, want 7", code)
	}
	s.Wait()
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if !bodycam.Assess([]bodycam.Health{h}).Complete {
		t.Errorf("incomplete: %+v", h)
	}
	ev := c.Events()
	for what, ok := range map[string]func(*bodycam.Event) bool{
		"the attached process": func(e *bodycam.Event) bool {
			return e.Type == bodycam.TypeExec && e.Marks&bodycam.MarkSynthesised != 0 && int(e.Proc.PID) == pid
		},
		"the command": func(e *bodycam.Event) bool {
			return e.Type == bodycam.TypeExec && int(e.Proc.PID) == pid && len(e.Argv) == 3 && e.Argv[0] == "sh" && e.Errno == 0
		},
		"cat's file": func(e *bodycam.Event) bool {
			return e.Type == bodycam.TypeOpen && e.Path == "/etc/hostname" && e.Errno == 0
		},
		"the end": func(e *bodycam.Event) bool {
			return e.Type == bodycam.TypeExit && int(e.Proc.PID) == pid && e.Status == 7<<8
		},
	} {
		if find(ev, ok) == nil {
			t.Errorf("no event of %s among %d", what, len(ev))
		}
	}
}

func stopped(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')'):]), ") T")
}

// TestRecorderIsOutOfReach lets observed processes try to end or blind their recorder.
func TestRecorderIsOutOfReach(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	// SIGURG to all: harmless should it get through.
	ev, h, out := observe(t, Options{}, "kill -KILL "+me+"; kill -STOP "+me+"; kill -URG -1; prlimit --pid "+me+" --cpu=1 2>&1; :")
	var n int
	for i := range ev {
		if e := &ev[i]; e.Type == bodycam.TypeSignal && e.Marks&bodycam.MarkHostile != 0 && e.Errno == int32(unix.EPERM) {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d refused attempts in the record, want 4; the shell said %q", n, out)
	}
	if !bodycam.Assess([]bodycam.Health{h}).Complete {
		t.Errorf("incomplete: %+v", h)
	}
}

func TestDeny(t *testing.T) {
	ev, h, out := observe(t, Options{Deny: []string{"symlinkat", "symlink"}}, "ln -s /etc/shadow /tmp/never-made-$$ && echo made; :")
	e := find(ev, func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDenied })
	if e == nil || e.Errno != int32(unix.EPERM) || strings.Contains(out, "made\n") {
		t.Errorf("event %+v, the shell said %q", e, out)
	}
	if !bodycam.Assess([]bodycam.Health{h}).Complete {
		t.Errorf("a refused call makes the record incomplete: %+v", h)
	}
	if err := New(Options{Deny: []string{"opne"}}).Start(t.Context(), sensor.Target{}, func(*bodycam.Event) error { return nil }); err == nil {
		t.Error("an unknown name to deny was taken")
	}
}

// TestStopEndsAll stops a sensor while its processes, a daemon among them, still run.
func TestStopEndsAll(t *testing.T) {
	s := New(Options{})
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{}, c.Sink); err != nil {
		t.Fatal(err)
	}
	out := scratch(t)
	p, err := s.StartProcess([]string{"/bin/bash", "-c", "setsid sleep 1000 & setsid sleep 1000 & echo up; sleep 1000"}, []string{"PATH=/usr/bin:/bin"}, "/", []*os.File{os.Stdin, out, out})
	if err != nil {
		t.Fatal(err)
	}
	for execs := 0; execs < 4; time.Sleep(5 * time.Millisecond) {
		execs = 0
		for _, e := range c.Events() {
			if e.Type == bodycam.TypeExec && strings.HasSuffix(e.Exe, "sleep") {
				execs++
			}
		}
		if execs == 3 {
			break
		}
	}
	h, err := s.Stop()
	if err != nil || !h.Total.Balanced() || h.Total.Lost != 0 {
		t.Errorf("stop: %v %+v", err, h)
	}
	if ws := p.Wait(); !ws.Signaled() || ws.Signal() != unix.SIGKILL {
		t.Errorf("the process ended otherwise: %#x", int(ws))
	}
	alive := make(map[int32]bool)
	for _, e := range c.Events() {
		switch e.Type {
		case bodycam.TypeFork:
			alive[e.Child.PID] = true
		case bodycam.TypeExit:
			delete(alive, e.Proc.PID)
		}
	}
	if len(alive) != 0 {
		t.Errorf("processes without an end: %v", alive)
	}
	if _, err := s.StartProcess([]string{"/bin/true"}, nil, "/", nil); err == nil {
		t.Error("a stopped sensor started a process")
	}
}

// TestSinkFails: what can't be delivered is lost, counted, and ends the sensor's good health.
func TestSinkFails(t *testing.T) {
	s := New(Options{})
	full := errors.New("no space left")
	n := 0
	sink := func(*bodycam.Event) error {
		if n++; n > 3 {
			return full
		}
		return nil
	}
	if err := s.Start(t.Context(), sensor.Target{}, sink); err != nil {
		t.Fatal(err)
	}
	p, err := s.StartProcess([]string{"/bin/true"}, nil, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	h, err := s.Stop()
	if !errors.Is(err, full) || h.Failed == "" || h.Total.Lost == 0 || !h.Total.Balanced() || h.Total.Emitted != 3 {
		t.Errorf("%v %+v", err, h)
	}
	if bodycam.Assess([]bodycam.Health{h}).Complete {
		t.Error("a record that could not be written is complete")
	}
}

func TestStartProcessErrors(t *testing.T) {
	s := New(Options{})
	if _, err := s.StartProcess([]string{"/bin/true"}, nil, "/", nil); err == nil {
		t.Error("a sensor that was not started started a process")
	}
	if err := s.Start(t.Context(), sensor.Target{}, func(*bodycam.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartProcess([]string{"/no/such/program"}, nil, "/", nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a missing program: %v", err)
	}
	if _, err := s.StartProcess(nil, nil, "/", nil); err == nil {
		t.Error("no program at all")
	}
	if h, err := s.Stop(); err != nil || h.Total != (bodycam.Counters{}) {
		t.Errorf("%v %+v", err, h)
	}
}
