//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/cgroup"
)

// crashEnv makes the test binary a recorder that makes a box, fills it with processes and waits to be killed.
const crashEnv = "BODYCAM_TEST_CRASH"

func crashHelper(spec string) {
	id, dir, _ := strings.Cut(spec, " ")
	if id == "loop" {
		crashLoop(dir)
	}
	c := Config{ID: id, StateDir: dir, Network: Network{Mode: NetProxied}, Limits: Limits{Pids: 100, MemoryBytes: 256 << 20, CPUs: 1}}
	b, err := Create(context.Background(), c)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for _, script := range []string{"exec sleep 1000", "setsid sleep 1000 & sleep 1000", "trap '' TERM HUP INT; (sleep 1000 &) ; exec sleep 1000"} {
		for _, g := range groups {
			p, err := b.Start(context.Background(), Cmd{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin"}, Group: g})
			if err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			fmt.Println("pid", p.HostPID())
		}
	}
	fmt.Println("pid", b.InitPID())
	if b.cgroups != nil {
		fmt.Println("cgroup", b.cgroups.Root)
		for _, d := range b.cgroups.V1 {
			fmt.Println("cgroup", d)
		}
		_ = b.Freeze(context.Background(), GroupVerify) // frozen processes must die too
	}
	fmt.Println("ready", len(b.Weaker()))
	select {}
}

// A recorder that is killed with SIGKILL leaves no process, no mount, no cgroup and no file, and nobody need do anything.
// Where the process that tidies up was killed as well, Stale names what is left and Sweep removes it.
func TestKilledRecorder(t *testing.T) {
	for _, watched := range []bool{true, false} {
		t.Run(map[bool]string{true: "watched", false: "unwatched"}[watched], func(t *testing.T) { killRecorder(t, watched) })
	}
}

func killRecorder(t *testing.T, watched bool) {
	id, dir := testID(t), filepath.Join(t.TempDir(), "state")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+id+" "+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var pids []int
	paths := []string{dir}
	ready := false
	for sc := bufio.NewScanner(out); !ready && sc.Scan(); {
		var n int
		switch kind, rest, _ := strings.Cut(sc.Text(), " "); kind {
		case "pid":
			fmt.Sscan(rest, &n)
			pids = append(pids, n)
		case "cgroup":
			paths = append(paths, rest)
		case "ready":
			ready = true
		default:
			t.Fatal(sc.Text())
		}
	}
	if len(pids) != 10 {
		t.Fatalf("the helper gave %d pids", len(pids))
	}
	var fds []int
	for _, p := range pids {
		fd, err := unix.PidfdOpen(p, 0)
		if err != nil {
			t.Fatalf("process %d: %v", p, err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	if err := Sweep(); err != nil { // the recorder lives: nothing may happen to its box
		t.Error(err)
	}
	if err := unix.PidfdSendSignal(fds[0], 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
		t.Errorf("Sweep hurt a living box: %v", err)
	}
	if !watched {
		killWatcher(t, cmd.Process.Pid)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for i, fd := range fds {
		for unix.PidfdSendSignal(fd, 0, nil, 0) != unix.ESRCH {
			if time.Now().After(deadline) {
				t.Fatalf("process %d lives on", pids[i])
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), id) || strings.Contains(string(mounts), dir) {
		t.Error("a mount is left")
	}
	records, err := recordDir()
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, filepath.Join(records, id+".json"))
	if !watched {
		stale, err := Stale()
		if _, gone := os.Lstat(paths[len(paths)-1]); gone == nil && (err != nil || !slices.Contains(stale, id)) { // else another box's Create was quicker
			t.Errorf("stale are %q, %v", stale, err)
		}
		if err := Sweep(); err != nil {
			t.Error(err)
		}
	}
	left := func() (list []string) {
		for _, p := range paths {
			if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
				list = append(list, p)
			}
		}
		return list
	}
	for end := time.Now().Add(time.Minute); watched && len(left()) > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if l := left(); len(l) > 0 {
		t.Errorf("left are %q", l)
	}
	cmd.Wait() // only now: a recorder that nobody reaps is dead as well
}

// killWatcher ends the watcher of a recorder.
func killWatcher(t *testing.T, recorder int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		line, err := os.ReadFile(f)
		if err != nil || string(line) != watchName+"\x00" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(f), "stat"))
		if err == nil && strings.Contains(string(stat), fmt.Sprintf(") S %d ", recorder)) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the recorder has no watcher")
}

// A box whose init dies under the recorder says so, and can still be closed.
func TestKilledInit(t *testing.T) {
	b := testBox(t, nil)
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.init.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if st, _ := p.Wait(); !errors.Is(st.Err, ErrClosed) && st.Signal != syscall.SIGKILL {
		t.Errorf("status %+v", st)
	}
	if _, err := b.Start(t.Context(), Cmd{Argv: []string{"id"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("start in a dead box: %v", err)
	}
}

// The pid alone doesn't make an owner: it may have been given to another process.
func TestRecordOfReusedPID(t *testing.T) {
	started, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if r := (&record{Owner: os.Getpid(), Started: started}); !r.alive() {
		t.Error("this process counts as dead")
	}
	if r := (&record{Owner: os.Getpid(), Started: started - 1}); r.alive() {
		t.Error("a process with another start time counts as the owner")
	}
}

// Sweep never removes a directory that Create didn't make.
func TestSweepKeepsForeignState(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "precious")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := record{ID: testID(t), Owner: 1 << 30, StateDir: dir}
	if _, err := r.save(); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	if _, err := Create(t.Context(), Config{ID: testID(t), StateDir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("box over a full directory: %v", err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

// crashLoop makes and closes boxes until it is killed.
func crashLoop(spec string) {
	id, dir, _ := strings.Cut(spec, " ")
	for i := 0; ; i++ {
		b, err := Create(context.Background(), Config{ID: fmt.Sprintf("%s-%d", id, i), StateDir: filepath.Join(dir, fmt.Sprint(i)),
			Network: Network{Mode: NetProxied}, Limits: Limits{MemoryBytes: 256 << 20}})
		if err == nil {
			var p *Process
			if p, err = b.Start(context.Background(), Cmd{Argv: []string{"/bin/sleep", "0.002"}}); err == nil {
				p.Wait()
				err = b.Close()
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(".")
	}
}

// Whenever a recorder is killed, while it makes, uses or removes a box, Sweep finds all that is left.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	id := testID(t)
	for round := range 30 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=loop %s-%d %s", crashEnv, id, round, dir))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // the first box has come and gone
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round) * 1300 * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if err := Sweep(); err != nil {
			t.Error(err)
		}
		if left := leftovers(t, dir, id, cmd.Process.Pid); len(left) > 0 {
			t.Fatalf("round %d: left are %q", round, left)
		}
	}
}

// leftovers lists whatever still bears the name of a box, or lies in its state directory. Processes die a moment after
// the recorder.
func leftovers(t *testing.T, dir, id string, pid int) []string {
	t.Helper()
	records, err := recordDir()
	if err != nil {
		t.Fatal(err)
	}
	h, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	patterns := []string{filepath.Join(dir, "*"), filepath.Join(records, id+"*"), filepath.Join(records, fmt.Sprintf(".new-%d-*", pid))}
	patterns = append(patterns, h.Dirs(id+"*")...)
	var left []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	return left
}
