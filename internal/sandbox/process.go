//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// Cmd is a command to run in a box.
type Cmd struct {
	// Argv[0] is looked up in the PATH of Env if it has no slash.
	Argv []string
	// Env is the whole environment: nothing is inherited.
	Env []string
	// Dir is the working directory in the box; default: the user's home, or "/" if that is missing.
	Dir string
	// User is a name from the box's /etc/passwd, or uid[:gid] (gid is uid if missing); default: Config.Agent. Names of
	// Config and root can't be redefined from inside.
	User string
	// Group is the cgroup: GroupSetup, GroupAgent (default) or GroupVerify.
	Group string
	// Seccomp overrides Config.Seccomp if it isn't empty.
	Seccomp Seccomp
	// The standard streams always are pipes: a file of the host could be reopened and changed through /proc/self/fd.
	// nil means /dev/null. If Stdout and Stderr are the same, the command has one pipe for both. Each output is capped at
	// Limits.OutputBytes. Stdin is read in the background until it ends or
	// the command doesn't take any more.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Attach lets a tracer take hold of the command before its program runs: it is called with the process's id in the
	// recorder's pid namespace while that is stopped by SIGSTOP, and must let it continue. If it fails, the process is
	// killed and Start fails.
	Attach func(pid int) error
	// Filter is one more seccomp program, installed after Attach and the box's own filter. Where the two disagree the
	// stricter wins: a call that the box refuses never reaches the tracer, unless Refuses says otherwise.
	Filter []unix.SockFilter
	// Refuses promises that the tracer itself refuses what the box's filter ([seccomp.Program]) does, and so gets to see it:
	// such calls stop instead of failing. It needs Attach.
	Refuses bool
}

// ExitStatus is how a command ended.
type ExitStatus struct {
	Code   int            // exit code, -1 if a signal ended it
	Signal syscall.Signal // that signal, 0 if none
	Err    error          // the box ended first, or an output could not be written
}

// Usage is what a command and those of its children that it waited for have used.
type Usage struct {
	User, System time.Duration
	MaxRSS       uint64 // bytes, of the largest process
}

// Process is a command that was started.
type Process struct {
	box   *Box
	pid   int
	pidfd *os.File
	done  chan struct{}
	exit  *boxinit.Exit
	out   []*outPipe

	once   sync.Once
	status ExitStatus
	usage  Usage
}

// Start runs a command. It returns once the program has been executed; ctx bounds that only.
func (b *Box) Start(ctx context.Context, c Cmd) (*Process, error) {
	req, err := b.startRequest(c)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", b.cfg.ID, err)
	}
	p := &Process{box: b, done: make(chan struct{})}
	var theirs, ours []*os.File
	defer func() { boxinit.CloseAll(theirs) }()
	fail := func(err error) (*Process, error) {
		boxinit.CloseAll(ours)
		return nil, fmt.Errorf("sandbox %s: %w", b.cfg.ID, err)
	}
	var stdin *os.File
	for i, on := range []bool{req.Stdin, req.Stdout, req.Stderr} {
		if !on {
			continue
		}
		if i == 2 && req.Stdout && sameWriter(c.Stdout, c.Stderr) { // one pipe, so that the order is kept
			theirs = append(theirs, theirs[len(theirs)-1])
			continue
		}
		our, their, err := stdPipe(i > 0)
		if err != nil {
			return fail(err)
		}
		ours, theirs = append(ours, our), append(theirs, their)
		switch i {
		case 0:
			stdin = our
		case 1:
			p.out = append(p.out, newOutPipe(our, c.Stdout, b.cfg.Limits.OutputBytes))
		case 2:
			p.out = append(p.out, newOutPipe(our, c.Stderr, b.cfg.Limits.OutputBytes))
		}
	}
	if b.cgroups != nil {
		dir, err := os.Open(b.Cgroup(req.Group))
		if err != nil {
			return fail(err)
		}
		theirs, req.Cgroup = append(theirs, dir), true
	}
	if err := b.launch(ctx, p, &c, req, theirs); err != nil {
		return fail(err)
	}
	if p.pid, err = pidOf(p.pidfd); err != nil {
		p.pid = 0 // it has ended already and was reaped
	}
	for _, o := range p.out {
		go o.copy()
	}
	if stdin != nil {
		go feed(stdin, c.Stdin)
	}
	return p, nil
}

// launch has init start the command, and its tracer attach to it meanwhile.
func (b *Box) launch(ctx context.Context, p *Process, c *Cmd, req *boxinit.Start, files []*os.File) error {
	ch := make(chan answer, 2)
	id := b.reserve(ch, p)
	a, err := b.finish(ctx, id, ch, &boxinit.Request{Start: req}, files)
	if err == nil && a.Stopped {
		err = b.attach(a, c.Attach)
		boxinit.CloseAll(a.files)
		var late error
		// A command killed for want of a tracer has started nevertheless, and its end follows.
		if a, late = b.await(ctx, id, ch); late != nil {
			err = errors.Join(err, late)
		} else if err != nil {
			boxinit.CloseAll(a.files)
		}
	}
	if err != nil {
		b.forget(id)
		return err
	}
	if len(a.files) != 1 {
		boxinit.CloseAll(a.files)
		return errors.New("init sent no pidfd")
	}
	p.pidfd = a.files[0]
	return nil
}

func (b *Box) attach(a answer, attach func(pid int) error) error {
	if len(a.files) != 1 || attach == nil {
		return errors.New("init stopped a command that should not be")
	}
	pid, err := pidOf(a.files[0])
	if err == nil {
		err = attach(pid)
	}
	if err != nil {
		_ = unix.PidfdSendSignal(int(a.files[0].Fd()), unix.SIGKILL, nil, 0)
		return fmt.Errorf("attach to the command: %w", err)
	}
	return nil
}

func (b *Box) startRequest(c Cmd) (*boxinit.Start, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("command without arguments")
	}
	r := &boxinit.Start{Group: c.Group, Seccomp: c.Seccomp, Rootless: b.rootless, Stop: c.Attach != nil, Filter: c.Filter, Traced: c.Refuses,
		Stdin: c.Stdin != nil, Stdout: c.Stdout != nil, Stderr: c.Stderr != nil}
	if c.Refuses && c.Attach == nil {
		return nil, errors.New("nobody would refuse what the box's filter does: Refuses needs a tracer (Attach)")
	}
	if len(c.Filter) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("seccomp filter of %d instructions: the kernel takes at most %d", len(c.Filter), unix.BPF_MAXINSNS)
	}
	switch r.Group {
	case "":
		r.Group = GroupAgent
	case GroupSetup, GroupAgent, GroupVerify:
	default:
		return nil, fmt.Errorf("group %q (setup, agent, verify)", c.Group)
	}
	if r.Seccomp == "" {
		r.Seccomp = b.cfg.Seccomp
	}
	if r.Seccomp == SeccompNone && !b.cfg.Unsafe {
		return nil, errors.New(`seccomp "none" needs Config.Unsafe`)
	}
	u, err := b.lookup(c.User)
	if err != nil {
		return nil, err
	}
	r.UID, r.GID = u.UID, u.GID
	r.Groups = []uint32{u.GID}
	dir := c.Dir
	if dir == "" {
		dir = u.Home
		if _, err := b.stat(dir); err != nil {
			dir = "/"
		}
	}
	if !path.IsAbs(dir) {
		return nil, fmt.Errorf("working directory %q is not absolute", dir)
	}
	r.Dir = []byte(dir)
	for _, a := range c.Argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	for _, e := range c.Env {
		r.Env = append(r.Env, []byte(e))
	}
	return r, nil
}

// pidOf reads the pid behind a pidfd, in this process's pid namespace.
func pidOf(pidfd *os.File) (int, error) {
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(pidfd.Fd())))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil || n <= 0 {
				return 0, fmt.Errorf("pidfd of process %q", v)
			}
			return n, nil
		}
	}
	return 0, errors.New("no pid in the fdinfo of a pidfd")
}

// HostPID is the command's process id in the recorder's pid namespace, or 0 if it ended before that could be asked.
func (p *Process) HostPID() int { return p.pid }

// Signal sends a signal to the command's first process. os.ErrProcessDone says that it has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	raw, err := p.pidfd.SyscallConn() // unlike Fd, it can't name a file that Wait has closed meanwhile
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return os.ErrProcessDone
	}
	if errors.Is(serr, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return serr
}

// Kill ends the command's first process. Box.Kill ends whole groups.
func (p *Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Done is closed when the command's first process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) ended(m *boxinit.Exit) {
	p.exit = m
	close(p.done)
}

// Wait waits for the end of the command's first process, and for its output up to then. What children that outlive it
// write later is read and dropped, so that they don't notice. It may be called more than once.
func (p *Process) Wait() (ExitStatus, Usage) {
	<-p.done
	p.once.Do(func() {
		p.pidfd.Close()
		for _, o := range p.out {
			if err := o.finish(); err != nil {
				p.status.Err = errors.Join(p.status.Err, fmt.Errorf("output of the command: %w", err))
			}
		}
		if p.exit == nil {
			p.status.Code, p.status.Err = -1, errors.Join(ErrClosed, p.status.Err)
			return
		}
		ws := unix.WaitStatus(p.exit.Status)
		p.status.Code = ws.ExitStatus()
		if ws.Signaled() {
			p.status.Code, p.status.Signal = -1, ws.Signal()
		}
		p.usage = Usage{User: time.Duration(p.exit.UserUS) * time.Microsecond,
			System: time.Duration(p.exit.SysUS) * time.Microsecond, MaxRSS: uint64(p.exit.MaxRSSKiB) << 10}
	})
	return p.status, p.usage
}

// OutputDropped counts the bytes that Limits.OutputBytes cut off, of both streams.
func (p *Process) OutputDropped() uint64 {
	var n uint64
	for _, o := range p.out {
		n += o.dropped.Load()
	}
	return n
}

func feed(w *os.File, r io.Reader) {
	defer w.Close()
	_, _ = io.Copy(w, r) // a command that doesn't read its input is no error
}

// outPipe copies one output stream, up to a limit, until the command has ended, and drains it from then on.
type outPipe struct {
	r       *os.File
	w       io.Writer
	left    uint64
	dropped atomic.Uint64
	flushed chan struct{} // closed when all that the command wrote has been copied
	err     error         // of w; read it after flushed
}

func newOutPipe(r *os.File, w io.Writer, limit uint64) *outPipe {
	return &outPipe{r: r, w: w, left: limit, flushed: make(chan struct{})}
}

// sameWriter says whether two writers are one. Values that can't be compared aren't.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }()
	return a == b
}

func (o *outPipe) copy() {
	defer o.r.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := o.r.Read(buf)
		o.write(buf[:n])
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // the command has ended
			o.rest(buf)
			if o.r.SetReadDeadline(time.Time{}) == nil {
				close(o.flushed)
				_, _ = io.Copy(io.Discard, o.r)
				return
			}
		}
		close(o.flushed)
		return
	}
}

func (o *outPipe) write(b []byte) {
	k := min(uint64(len(b)), o.left)
	o.left -= k
	o.dropped.Add(uint64(len(b)) - k)
	if k > 0 && o.err == nil {
		_, o.err = o.w.Write(b[:k])
	}
}

// rest copies what is in the pipe now, which is never more than a pipe can hold, whoever keeps writing to it.
func (o *outPipe) rest(buf []byte) {
	raw, err := o.r.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for total := 0; total < 1<<20; {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				return
			}
			o.write(buf[:n])
			total += n
		}
	})
}

// finish waits until everything written so far has been copied.
func (o *outPipe) finish() error {
	_ = o.r.SetReadDeadline(time.Now()) // fails once the stream has ended, which closes flushed as well
	<-o.flushed
	return o.err
}

// stdPipe makes a pipe whose one end blocks, as programs expect, and whose other end can wait with a deadline.
func stdPipe(readIsOurs bool) (ours, theirs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	our, their := p[1], p[0]
	if readIsOurs {
		our, their = p[0], p[1]
	}
	if err := unix.SetNonblock(our, true); err != nil {
		unix.Close(our)
		unix.Close(their)
		return nil, nil, err
	}
	return os.NewFile(uintptr(our), "pipe"), os.NewFile(uintptr(their), "pipe"), nil
}
