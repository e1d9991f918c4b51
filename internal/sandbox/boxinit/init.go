//go:build linux

package boxinit

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
)

const (
	// Name is argv[0] of a box's init, all that the box sees of it.
	Name = "box-init"
	// HoldName is argv[0] of a process that only keeps a user namespace, until its standard input ends.
	HoldName = "box-hold"

	initFD = 3 // init's socket to the recorder

	// IDs is how many user and group ids a box has.
	IDs = 65536
	// UID is init's own user and group: the id after the last, which the namespace of the commands doesn't map. Not
	// even root inside has the same user as init.
	UID = IDs
)

// Main turns this process into the init of a box if the recorder started it as one, and then never returns.
func Main() {
	if len(os.Args) == 1 && os.Args[0] == HoldName {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if len(os.Args) != 1 || os.Args[0] != Name {
		return
	}
	var st unix.Stat_t
	if os.Getpid() != 1 || unix.Fstat(initFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	f := os.NewFile(initFD, "recorder")
	c, err := net.FileConn(f)
	if err != nil {
		os.Exit(1)
	}
	f.Close()
	conn, ok := c.(*net.UnixConn)
	if !ok {
		os.Exit(1)
	}
	b := &boxInit{conn: conn, procs: map[int]uint64{}, groups: map[int]string{}, forkers: map[string]*forker{}}
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // the recorder is gone; the kernel ends the rest of the pid namespace
}

type boxInit struct {
	conn *net.UnixConn
	send sync.Mutex

	mu     sync.Mutex
	procs  map[int]uint64 // pid → request that started it
	groups map[int]string // pid → group, of all commands started
	net    *boxNet

	forkers map[string]*forker // by group
}

func (b *boxInit) run() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	chld := make(chan os.Signal, 1)
	signal.Ignore(ignorable()...)
	signal.Notify(chld, unix.SIGCHLD)
	go b.reap(chld)
	for {
		var r Request
		files, err := Recv(b.conn, &r)
		if err != nil {
			CloseAll(files)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		b.handle(&r, files)
	}
}

// ignorable are the signals that a process of the box could send to init where they share a user (unprivileged boxes).
func ignorable() []os.Signal {
	var out []os.Signal
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case unix.SIGCHLD, unix.SIGURG, unix.SIGKILL, unix.SIGSTOP, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, 32, 33:
		default:
			out = append(out, s)
		}
	}
	return out
}

func (b *boxInit) handle(r *Request, files []*os.File) {
	out := Reply{ID: r.ID}
	var fds []*os.File
	var err error
	switch {
	case r.Setup != nil:
		out.Notes, fds, err = b.setup(r.Setup, files)
	case r.Start != nil:
		out.Pid, fds, err = b.start(r.ID, r.Start, files)
		CloseAll(files)
	case r.Unpack != nil:
		if len(files) != 1 {
			err = errors.New("unpack message without its stream")
			break
		}
		go func() { // its data may come slowly, and needs nothing of this thread
			defer files[0].Close()
			out := Reply{ID: r.ID}
			fillError(&out, unpack(r.Unpack, files[0]))
			b.tell(&out)
		}()
		return
	case r.Dropped:
		out.Count, err = b.net.dropped()
	case r.KillTree != "":
		b.killGroup(r.KillTree)
	case r.Dial != 0:
		go func() { // whoever listens may let it wait
			out := Reply{ID: r.ID}
			f, err := dial(r.Dial)
			fillError(&out, err)
			if f == nil {
				b.tell(&out)
				return
			}
			b.tell(&out, f)
			f.Close()
		}()
		return
	default:
		err = errors.New("unknown request")
		CloseAll(files)
	}
	fillError(&out, err)
	b.tell(&out, fds...)
	CloseAll(fds)
}

func fillError(out *Reply, err error) {
	if err == nil {
		return
	}
	out.Err = err.Error()
	var errno syscall.Errno
	if errors.As(err, &errno) {
		out.Errno = int(errno)
	}
}

func (b *boxInit) tell(out *Reply, files ...*os.File) {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	b.send.Lock()
	defer b.send.Unlock()
	_ = Send(b.conn, out, fds...) // a dead recorder shows as EOF in run
}

// setup builds the box. Its files are the mounts; it returns the root directory, and what listens for the recorder.
func (b *boxInit) setup(s *Setup, files []*os.File) (notes []string, fds []*os.File, err error) {
	if s.V1 < 0 || len(files) < s.V1*len(s.Groups) {
		return nil, nil, errors.New("setup message with too few files")
	}
	mounts := files[:len(files)-s.V1*len(s.Groups)]
	for i, g := range s.Groups { // these work while the rest is built
		b.forkers[g] = startForker(files[len(mounts)+i*s.V1:][:s.V1])
	}
	if err := buildRoot(s, mounts); err != nil {
		return nil, nil, err
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return nil, nil, fmt.Errorf("set host name: %w", err)
	}
	n, listeners, notes, err := setupNet(s)
	if err != nil {
		return nil, nil, fmt.Errorf("network: %w", err)
	}
	b.net = n
	if err := finishRoot(); err != nil {
		return nil, nil, err
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return notes, append([]*os.File{os.NewFile(uintptr(root), "/")}, listeners...), nil
}

func (b *boxInit) reap(chld <-chan os.Signal) {
	for range chld {
		for {
			var ws unix.WaitStatus
			var ru unix.Rusage
			pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, &ru)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			b.mu.Lock()
			id, ours := b.procs[pid]
			delete(b.procs, pid)
			delete(b.groups, pid)
			b.mu.Unlock()
			if ours {
				b.tell(&Reply{ID: id, Exit: &Exit{Status: uint32(ws), UserUS: ru.Utime.Nano() / 1000,
					SysUS: ru.Stime.Nano() / 1000, MaxRSSKiB: ru.Maxrss}})
			}
		}
	}
}

// killGroup is for boxes without cgroups: it ends the commands of a group and their sessions.
func (b *boxInit) killGroup(group string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pid, g := range b.groups {
		if g == group {
			_ = unix.Kill(-pid, unix.SIGKILL)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// A forker is the thread of init that all commands of one group are forked from: they inherit its session keyring, and
// the cgroups of version 1 that it alone has joined. Joining takes tens of milliseconds, so commands don't do it.
type forker struct {
	jobs  chan func()
	ready chan struct{}
	err   error // of joining
}

func startForker(v1 []*os.File) *forker {
	f := &forker{jobs: make(chan func()), ready: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		f.err = f.join(v1)
		CloseAll(v1)
		close(f.ready)
		for job := range f.jobs {
			job()
		}
	}()
	return f
}

func (f *forker) join(v1 []*os.File) error {
	// The recorder's keyrings must not be found from inside. ENOSYS: a kernel without them.
	if _, err := unix.KeyctlJoinSessionKeyring("box"); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("join a session keyring: %w", err)
	}
	for _, tasks := range v1 {
		if _, err := tasks.WriteString("0"); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// do runs a job on the forker's thread.
func (f *forker) do(job func() error) error {
	if f == nil {
		return errors.New("start before setup")
	}
	if <-f.ready; f.err != nil {
		return f.err
	}
	done := make(chan error)
	f.jobs <- func() { done <- job() }
	return <-done
}

const (
	// rootCaps is what root inside keeps, of the powers over its own user namespace alone: enough for package managers.
	rootCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL |
		1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE |
		1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_SETFCAP
	observeCaps = rootCaps | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW
)

func (b *boxInit) start(id uint64, s *Start, files []*os.File) (int, []*os.File, error) {
	c, null, err := prepareChild(s, files)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	c.stopped = func(pid int, pidfd *os.File) { b.tell(&Reply{ID: id, Pid: pid, Stopped: true}, pidfd) }
	// Under the lock, so that reap can't see the child's end before its start is known. When memory runs out, commands
	// go before init.
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	var pid int
	var pidfd *os.File
	err = b.forkers[s.Group].do(func() error {
		pid, pidfd, err = c.start()
		return err
	})
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	runtime.KeepAlive(files)
	if err != nil {
		if pidfd != nil {
			pidfd.Close()
		}
		return 0, nil, explainStart(s, err)
	}
	b.procs[pid], b.groups[pid] = id, s.Group
	return pid, []*os.File{pidfd}, nil
}

func prepareChild(s *Start, files []*os.File) (*child, *os.File, error) {
	want := 0
	for _, on := range []bool{s.Stdin, s.Stdout, s.Stderr, s.Cgroup} {
		if on {
			want++
		}
	}
	if len(files) != want || len(s.Argv) == 0 {
		return nil, nil, errors.New("malformed start message")
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	c := &child{uid: uintptr(s.UID), gid: uintptr(s.GID), groups: s.Groups, noGroups: s.Rootless}
	for i, on := range []bool{s.Stdin, s.Stdout, s.Stderr} {
		c.fds[i] = null.Fd()
		if on {
			c.fds[i], files = files[0].Fd(), files[1:]
		}
	}
	c.clone.Flags = unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP
	if s.Seccomp == seccomp.Observe {
		c.clone.Flags |= unix.CLONE_NEWNS // one that its root may mount in
	}
	if s.Cgroup {
		c.clone.Flags |= unix.CLONE_INTO_CGROUP
		c.clone.Cgroup = uint64(files[0].Fd())
	}
	if s.UID == 0 {
		c.keep = rootCaps
		if s.Seccomp == seccomp.Observe {
			c.keep = observeCaps
		}
	}
	prog, err := seccomp.Program(s.Seccomp)
	if err != nil {
		null.Close()
		return nil, nil, err
	}
	if s.Traced {
		prog = seccomp.Traced(prog)
	}
	if len(prog) > 0 {
		c.hasBPF, c.filter = true, unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	}
	c.stop = s.Stop
	if len(s.Filter) > 0 {
		c.traced, c.tracer = true, unix.SockFprog{Len: uint16(len(s.Filter)), Filter: &s.Filter[0]}
	}
	var hard unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &hard); err != nil {
		null.Close()
		return nil, nil, err
	}
	c.nofile = unix.Rlimit{Cur: min(hard.Max, 65536), Max: hard.Max}
	c.one = unix.Rlimit{Cur: 1, Max: 1} // 1, unlike 0, also keeps a core_pattern program of the host from being run
	c.idMap = func(pid int) error { return writeMaps(pid, s) }
	if err := c.setStrings(s); err != nil {
		null.Close()
		return nil, nil, err
	}
	return c, null, nil
}

func (c *child) setStrings(s *Start) error {
	var err error
	ptr := func(b []byte) *byte {
		p, e := unix.BytePtrFromString(string(b))
		if e != nil {
			err = errors.New("an argument, variable or path holds a NUL byte")
		}
		return p
	}
	for _, a := range s.Argv {
		c.argv = append(c.argv, ptr(a))
	}
	for _, e := range s.Env {
		c.envv = append(c.envv, ptr(e))
	}
	c.argv, c.envv = append(c.argv, nil), append(c.envv, nil)
	c.dir = ptr(s.Dir)
	for _, p := range candidates(string(s.Argv[0]), s.Env) {
		c.paths = append(c.paths, ptr([]byte(p)))
	}
	return err
}

// candidates are the paths that execvp would try, by the PATH of the command's own environment; those that aren't
// there only where none is. The search is ours, not the command's doing, and must not show up as its failed attempts.
func candidates(name string, env [][]byte) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	dirs := "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(string(e), "PATH="); ok {
			dirs = v
		}
	}
	var out, there []string
	for _, d := range strings.Split(dirs, ":") {
		if d == "" {
			d = "."
		}
		p := d + "/" + name
		out = append(out, p)
		var st unix.Stat_t
		if d[0] == '/' && unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			there = append(there, p)
		}
	}
	if len(there) > 0 {
		return there
	}
	return out
}

// writeMaps maps the ids of a command's own user namespace to those of the box.
func writeMaps(pid int, s *Start) error {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	uids, gids := "0 0 "+strconv.Itoa(IDs), "0 0 "+strconv.Itoa(IDs)
	if s.Rootless {
		uids = strconv.Itoa(int(s.UID)) + " 0 1"
		gids = strconv.Itoa(int(s.GID)) + " 0 1"
	}
	if err := os.WriteFile(dir+"uid_map", []byte(uids), 0); err != nil {
		return err
	}
	return os.WriteFile(dir+"gid_map", []byte(gids), 0)
}

// explainStart adds what the errno alone doesn't say.
func explainStart(s *Start, err error) error {
	var se *spawnError
	if !errors.As(err, &se) {
		return err
	}
	name := string(s.Argv[0])
	switch se.stage {
	case stageDir:
		return fmt.Errorf("directory %q in the box: %w", s.Dir, se.errno)
	case stageFork:
		if se.errno == unix.EAGAIN {
			return fmt.Errorf("start %q: too many processes in the box: %w", name, se.errno)
		}
	case stageExec:
		for _, p := range candidates(name, s.Env) {
			if !path.IsAbs(p) {
				p = path.Join(string(s.Dir), p)
			}
			if st, e := os.Stat(p); e == nil && se.errno == unix.ENOENT {
				return fmt.Errorf("start %q: %s is there, but %s: %w", name, p, missingInterpreter(p), se.errno)
			} else if e == nil && st.IsDir() {
				return fmt.Errorf("start %q: %s is a directory: %w", name, p, se.errno)
			}
		}
		if se.errno == unix.ENOENT {
			return fmt.Errorf("start %q: there is no such program in the box: %w", name, se.errno)
		}
		return fmt.Errorf("start %q: %w", name, se.errno)
	}
	return fmt.Errorf("start %q: %w", name, se)
}

func missingInterpreter(p string) string {
	f, err := os.Open(p)
	if err != nil {
		return "its interpreter isn't"
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if rest, ok := strings.CutPrefix(line, "#!"); ok {
		if fields := strings.Fields(rest); len(fields) > 0 {
			return fmt.Sprintf("its interpreter %q isn't", fields[0])
		}
	}
	return "its interpreter or dynamic loader isn't"
}

// unpack extracts a tar stream below a directory of the box.
func unpack(u *Unpack, stream *os.File) error {
	if u.Replace {
		if err := os.RemoveAll(u.Dir); err != nil {
			return err
		}
	}
	// A link into /proc/self would mean init's own.
	top, err := os.Open("/")
	if err != nil {
		return err
	}
	defer top.Close()
	dir, err := OpenPath(top, u.Dir, unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		owner := Dir{Path: u.Dir, Mode: 0o755, UID: max(u.UID, 0), GID: max(u.GID, 0)}
		if err := ensureDir(owner); err != nil {
			return err
		}
		dir, err = OpenPath(top, u.Dir, unix.O_DIRECTORY)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return err
	}
	defer root.Close()
	return Extract(root, tar.NewReader(bufio.NewReaderSize(stream, 1<<16)), func(h *tar.Header) (int, int) {
		if u.UID >= 0 {
			return u.UID, u.GID
		}
		return h.Uid, h.Gid
	})
}
