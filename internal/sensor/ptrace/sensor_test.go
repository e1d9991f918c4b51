//go:build linux && amd64

package ptrace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
	case "observe": // an ordinary user's recorder of one program, whose health is printed
		s := New(Options{})
		if err := s.Start(context.Background(), sensor.Target{}, func(*bodycam.Event) error { return nil }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		p, err := s.StartProcess([]string{"/bin/sh", "-c", os.Args[1]}, []string{"PATH=/usr/bin:/bin"}, "/", nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		p.Wait()
		s.Wait()
		h, _ := s.Stop()
		_ = json.NewEncoder(os.Stdout).Encode(h)
		os.Exit(0)
	case "child": // stops, is seized, installs the filter, becomes the command
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		if err := InstallFilter(ChildFilter()); err != nil {
			fmt.Println("filter:", err)
			os.Exit(1)
		}
		err := unix.Exec("/bin/sh", []string{"sh", "-c", "cat /etc/hostname >/dev/null; sleep 100 & kill $!; exit 7"}, []string{"PATH=/usr/bin:/bin"})
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
	cmd := exec.Command("/proc/self/exe")
	attach(t, cmd, func(r *bufio.Reader) int {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	})
}

// TestAttachInNamespaces attaches to a process that numbers processes otherwise and has a user, a mount and a network
// namespace of its own, as in a sandbox.
func TestAttachInNamespaces(t *testing.T) {
	cmd := exec.Command("/usr/bin/unshare", "-Urmpnf", "--mount-proc", "/proc/self/exe")
	if out, err := exec.Command("/usr/bin/unshare", "-Urmpnf", "--mount-proc", "/bin/true").CombinedOutput(); err != nil {
		t.Skipf("this user can't make namespaces: %v %s", err, out)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[len(cmd.Args)-1] = self
	attach(t, cmd, func(r *bufio.Reader) int {
		if _, err := r.ReadString('\n'); err != nil { // the pid inside
			t.Fatal(err)
		}
		first := onlyChild(t, cmd.Process.Pid)
		return onlyChild(t, first)
	})
}

// onlyChild finds the one child of a process.
func onlyChild(t *testing.T, parent int) int {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if pid, err := strconv.Atoi(d.Name()); err == nil {
			if st, err := readStat(pid); err == nil && st.ppid == parent {
				return pid
			}
		}
	}
	t.Fatalf("process %d has no child", parent)
	return 0
}

// attach runs a command that becomes "init", and observes init's child.
func attach(t *testing.T, cmd *exec.Cmd, child func(*bufio.Reader) int) {
	t.Helper()
	s := New(Options{})
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{}, c.Sink); err != nil {
		t.Fatal(err)
	}
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
	pid := child(bufio.NewReader(r))
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
	born := make(map[bodycam.Proc]bool)
	for i := range ev {
		if ev[i].Type == bodycam.TypeFork {
			born[ev[i].Child] = true
		}
	}
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
		"the signal to sleep": func(e *bodycam.Event) bool {
			return e.Type == bodycam.TypeSignal && int(e.Proc.PID) == pid && e.Signal == 15 && born[e.Child]
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

// TestRoot takes the sandbox's root off canonical paths.
func TestRoot(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/key", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{})
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{Root: dir}, c.Sink); err != nil {
		t.Fatal(err)
	}
	p, err := s.StartProcess([]string{"/bin/cat", dir + "/key", dir + "x"}, nil, dir, []*os.File{os.Stdin, scratch(t), scratch(t)})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]func(*bodycam.Event) bool{
		"the root as directory": func(e *bodycam.Event) bool { return e.Type == bodycam.TypeExec && e.CWD == "/" },
		"the file":              func(e *bodycam.Event) bool { return e.Path == "/key" && e.PathGiven == dir+"/key" },
		"another folder":        func(e *bodycam.Event) bool { return e.Path == dir+"x" && e.Errno == int32(unix.ENOENT) },
	} {
		if find(c.Events(), ok) == nil {
			t.Errorf("no event of %s", what)
		}
	}
}

// TestUnreadableProgram: what an ordinary user's recorder may not look into leaves a hole that makes the record
// incomplete.
func TestUnreadableProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs a program of another user, so that the machine's administrator must run it")
	}
	self := copyOfSelf(t)
	secret := filepath.Join(filepath.Dir(self), "unreadable")
	b, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, b, 0o711); err != nil {
		t.Fatal(err)
	}
	for script, complete := range map[string]bool{"/bin/cat /etc/hostname": true, secret + " /etc/hostname": false} {
		cmd := exec.Command(self, script)
		cmd.Env = []string{"PTRACE_TEST_ROLE=observe"}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var h bodycam.Health
		if err := json.Unmarshal(out, &h); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := bodycam.Assess([]bodycam.Health{h}); got.Complete != complete {
			t.Errorf("%s: %+v %+v", script, got, h)
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

// TestForeignChild: a child that something else forked on the tracer's thread belongs to that, not to the tracer; and
// it does not hold up the tracer while its end goes unnoticed.
func TestForeignChild(t *testing.T) {
	s := New(Options{})
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{}, c.Sink); err != nil {
		t.Fatal(err)
	}
	foreign := exec.Command("/bin/sh", "-c", "sleep 0.1; exit 3")
	lingering := exec.Command("/bin/sleep", "1000")
	p := &Process{done: make(chan struct{})}
	err := s.run(func(tr *tree) error {
		if err := errors.Join(foreign.Start(), lingering.Start()); err != nil {
			return err
		}
		script := "sleep 0.3; for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done"
		return tr.start(p, []string{"/bin/sh", "-c", script}, []string{"PATH=/usr/bin:/bin"}, "/", []uintptr{0, 2, 2})
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	s.Wait()
	if h, err := s.Stop(); err != nil || !bodycam.Assess([]bodycam.Health{h}).Complete {
		t.Errorf("%v %+v", err, h)
	}
	execs := 0
	for _, e := range c.Events() {
		if e.Type == bodycam.TypeExec && len(e.Argv) == 1 && e.Argv[0] == "/bin/true" {
			execs++
		}
	}
	if execs != 9 {
		t.Errorf("%d of 9 commands in the record", execs)
	}
	_ = foreign.Wait()
	if code := foreign.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the foreign child's status is %d, want 3", code)
	}
	_ = lingering.Process.Kill()
	_ = lingering.Wait()
	if ws, ok := lingering.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
		t.Errorf("the lingering child's status: %v", lingering.ProcessState)
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
