package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/bpf"
	"github.com/bodycam-dev/bodycam/internal/store"
)

const (
	ours   = "bodycam"
	sealed = "bodycam and ledger"
)

// recorders lists what can be compared here; the first is the workload alone. missing says what can't, and why.
func recorders(dir string, with []string, seal bool) (out []recorder, missing []string, err error) {
	out = []recorder{{"alone", runAlone}}
	add := func(name string, run func([]string, string, []string) (result, error)) {
		if with == nil || slices.Contains(with, name) {
			out = append(out, recorder{name, run})
		}
	}
	cg, err := cgroupRoot()
	if err != nil {
		return nil, nil, err
	}
	add(ours, func(argv []string, in string, env []string) (result, error) {
		return runOurs(cg, argv, in, env, true, nil)
	})
	if seal {
		add(sealed, func(argv []string, in string, env []string) (result, error) {
			return runSealed(cg, filepath.Join(dir, "run"), argv, in, env)
		})
	}
	add("attached elsewhere", func(argv []string, in string, env []string) (result, error) {
		return runOurs(cg, argv, in, env, false, nil)
	})
	if _, e := exec.LookPath("strace"); e == nil {
		pre := []string{"strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=%file,%network,%process", "-o", filepath.Join(dir, "strace.out")}
		add("strace --seccomp-bpf", func(argv []string, in string, env []string) (result, error) {
			return runPlain(append(slices.Clone(pre), argv...), in, env, nil)
		})
	} else {
		missing = append(missing, "strace is not installed")
	}
	if with == nil || slices.Contains(with, "auditd") {
		a, why := newAudit(dir)
		if why != "" {
			missing = append(missing, "auditd was not measured: "+why)
		} else {
			add("auditd", a.run)
		}
	}
	return out, missing, nil
}

func cgroupRoot() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, " - cgroup2 ") {
			return strings.Fields(line)[4], nil
		}
	}
	return "", fmt.Errorf("no cgroup2 mount")
}

// runPlain measures a command with everything it starts and waits for.
func runPlain(argv []string, dir string, env []string, attr *syscall.SysProcAttr) (result, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, attr
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	t := time.Now()
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%s: %w: %s", argv[0], err, errOut.Bytes())
	}
	return result{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), wall: time.Since(t)}, nil
}

// runAlone is runPlain with what this process itself does, as it is counted under the recorder.
func runAlone(argv []string, dir string, env []string) (result, error) {
	before := ownCPU()
	res, err := runPlain(argv, dir, env, nil)
	res.cpu += ownCPU() - before
	return res, err
}

// runSealed is runOurs with the record written to a run directory and sealed into its ledger, as a run does it.
func runSealed(root, dir string, argv []string, in string, env []string) (res result, err error) {
	sealing, _, err := newSealing()
	if err != nil {
		return res, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return res, err
	}
	w, err := store.Create(dir, bodycam.Run{}, sealing)
	if err != nil {
		return res, err
	}
	res, err = runOurs(root, argv, in, env, true, w.Event)
	mid := ownCPU()
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	res.recorder += ownCPU() - mid
	res.cpu += ownCPU() - mid
	return res, err
}

// ownCPU is the CPU time of this process, without its children.
func ownCPU() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// runOurs records a command with bodycam's sensor. Events go to the sink; where that is nil, they are encoded as they are stored.
// Everything this process does from the start of the workload to the end of the record is counted as the recorder's.
func runOurs(root string, argv []string, dir string, env []string, inside bool, to sensor.Sink) (res result, err error) {
	cg, err := os.MkdirTemp(root, "bodycam-bench-")
	if err != nil {
		return res, err
	}
	defer func() {
		for range 100 {
			if os.Remove(cg) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	s, err := bpf.New(bpf.Options{})
	if err != nil {
		return res, err
	}
	var events, size uint64
	buf := make([]byte, 0, 4096)
	sink := func(e *bodycam.Event) error {
		buf = e.AppendBinary(buf[:0])
		events++
		size += uint64(len(buf))
		return nil
	}
	if to != nil {
		sink = func(e *bodycam.Event) error {
			events++
			return to(e)
		}
	}
	if err := resetPeak(os.Getpid()); err != nil {
		return res, err
	}
	t := time.Now()
	if err := s.Start(context.Background(), sensor.Target{Cgroup: cg}, sink); err != nil {
		return res, err
	}
	setup := time.Since(t)
	var attr *syscall.SysProcAttr
	if inside {
		fd, err := syscall.Open(cg, syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return res, err
		}
		defer func() { _ = syscall.Close(fd) }()
		attr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	before := ownCPU()
	res, runErr := runPlain(argv, dir, env, attr)
	h, err := s.Stop()
	if runErr != nil {
		return res, runErr
	}
	if err != nil {
		return res, err
	}
	res.recorder = ownCPU() - before
	res.cpu += res.recorder
	res.setup = setup
	if res.peak, err = peakMemory(os.Getpid()); err != nil {
		return res, err
	}
	res.note = fmt.Sprintf("%d events of %d calls, %d bytes encoded, recorder %s CPU, lost %d, paused %d", events, h.Total.Seen, size, res.recorder.Round(time.Millisecond), h.Total.Lost, h.Stopped)
	if h.Total.Lost != 0 || !h.Total.Balanced() {
		return res, fmt.Errorf("the record is incomplete: %+v", h)
	}
	return res, nil
}

// audit is auditd with rules like the ones the sensor's events need, for one login uid only.
type audit struct {
	daemon *exec.Cmd
	dir    string
}

// auditUID marks the processes to audit: a login uid that nobody has.
const auditUID = "424242"

// newAudit tries whether auditd can run here: it needs the kernel's audit system, for which there is one daemon only.
func newAudit(dir string) (*audit, string) {
	for _, p := range []string{"auditd", "auditctl"} {
		if _, err := exec.LookPath(p); err != nil {
			return nil, p + " is not installed"
		}
	}
	if out, err := exec.Command("auditctl", "-s").CombinedOutput(); err != nil {
		return nil, "auditctl -s: " + strings.TrimSpace(string(out))
	} else if !strings.Contains(string(out), "pid 0") {
		return nil, "another audit daemon runs"
	}
	return &audit{dir: dir}, ""
}

// run starts auditd, runs the command under the login uid that the rules name, and adds the daemon's CPU time and that of the
// kernel's audit thread.
func (a *audit) run(argv []string, in string, env []string) (res result, err error) {
	conf := filepath.Join(a.dir, "audit")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		return res, err
	}
	if err := os.WriteFile(filepath.Join(conf, "auditd.conf"), []byte("log_file = "+conf+"/audit.log\nlog_format = RAW\nflush = NONE\nwrite_logs = yes\nlocal_events = yes\nmax_log_file = 4000\nnum_logs = 2\n"), 0o600); err != nil {
		return res, err
	}
	a.daemon = exec.Command("auditd", "-n", "-c", conf)
	if err := a.daemon.Start(); err != nil {
		return res, err
	}
	defer func() {
		_ = exec.Command("auditctl", "-D").Run()
		_ = exec.Command("auditctl", "-e", "0").Run()
		_ = a.daemon.Process.Signal(syscall.SIGTERM)
		_ = a.daemon.Wait()
		_ = os.RemoveAll(conf)
	}()
	time.Sleep(500 * time.Millisecond)
	for _, args := range [][]string{{"-e", "1"}, {"-b", "65536"}, {"--backlog_wait_time", "60000"},
		{"-a", "always,exit", "-F", "arch=b64", "-F", "auid=" + auditUID, "-S", "open,openat,openat2,creat,execve,execveat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,connect,bind,accept,accept4,sendto,clone,clone3,fork,vfork,exit_group"}} {
		if out, err := exec.Command("auditctl", args...).CombinedOutput(); err != nil {
			return res, fmt.Errorf("auditctl %s: %w: %s", args[0], err, out)
		}
	}
	kernel := kauditd()
	before := procCPU(kernel)
	shell := append([]string{"/bin/sh", "-c", "echo " + auditUID + " >/proc/self/loginuid && exec \"$@\"", "sh"}, argv...)
	res, err = runPlain(shell, in, env, nil)
	if err != nil {
		return res, err
	}
	time.Sleep(200 * time.Millisecond)
	res.recorder = procCPU(a.daemon.Process.Pid) + procCPU(kernel) - before
	res.cpu += res.recorder
	return res, nil
}

// kauditd finds the kernel's audit thread.
func kauditd() int {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && string(b) == "kauditd\n" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(n)))
			return pid
		}
	}
	return 0
}

// procCPU is the CPU time of a process so far, in ticks of 10 ms.
func procCPU(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(b, []byte(") "))
	f := strings.Fields(string(rest))
	if !ok || len(f) < 13 {
		return 0
	}
	u, _ := strconv.Atoi(f[11])
	s, _ := strconv.Atoi(f[12])
	return time.Duration(u+s) * 10 * time.Millisecond
}
