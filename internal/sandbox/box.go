//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
	"github.com/bodycam-dev/bodycam/internal/sandbox/cgroup"
)

// Box is one isolated environment. Its methods may be called from several goroutines.
type Box struct {
	cfg      Config
	rootless bool
	base     uint32 // host id of the box's root user
	weaker   []string
	cgroups  *cgroup.Set // nil without
	record   record
	file     string // of record
	watch    *watcher
	lower    string // host directory of the base; "" for a host base

	conn *net.UnixConn
	send sync.Mutex
	init *exec.Cmd
	// lastWords is what init wrote to its standard error; read it after dead.
	lastWords head
	dead      chan struct{} // closed when init has ended
	free      chan struct{} // closed to let the thread go that init's life hangs on
	root      *os.File      // O_PATH, the box's root directory

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan answer
	procs   map[uint64]*Process
	nets    netFiles

	digest digestOnce
	close  sync.Once
	closed error
}

type answer struct {
	boxinit.Reply
	files []*os.File
}

// ErrClosed is returned by methods of a box that was closed or whose init has died.
var ErrClosed = errors.New("the box has ended")

// Init turns this process into the init of a box if a recorder started it as one, and then never returns. Call it first
// in main, and in TestMain of tests that make boxes.
func Init() {
	watchMain()
	boxinit.Main()
}

// Create makes a box and starts its init. The caller must Close it. What could not be had is in Weaker.
func Create(ctx context.Context, c Config) (*Box, error) {
	if err := c.fill(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	b := &Box{cfg: c, rootless: os.Geteuid() != 0, waiting: map[uint64]chan answer{}, procs: map[uint64]*Process{},
		dead: make(chan struct{}), free: make(chan struct{})}
	if err := b.create(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox %s: %w", c.ID, err), b.Close())
	}
	return b, nil
}

func (b *Box) create(ctx context.Context) error {
	// Leftovers that can't be removed must not stop a new box; `bodycam doctor` reports them.
	_ = Sweep()
	if err := b.prepareHost(); err != nil {
		return err
	}
	if err := b.prepareBase(ctx); err != nil {
		return err
	}
	if err := b.startInit(); err != nil {
		return fmt.Errorf("start the box's init: %w", err)
	}
	go b.receive()
	s, mounts, err := b.plan()
	defer func() { boxinit.CloseAll(mounts) }()
	if err != nil {
		return err
	}
	a, err := b.call(ctx, &boxinit.Request{Setup: s}, mounts...)
	if errors.Is(err, ErrClosed) {
		<-b.dead
		return fmt.Errorf("build the box: %w: %s", err, b.lastWords.text)
	}
	if err != nil {
		return fmt.Errorf("build the box: %w", err)
	}
	b.weaker = append(b.weaker, a.Notes...)
	if len(a.files) == 0 {
		return errors.New("init sent no root directory")
	}
	b.root = a.files[0]
	return b.takeNet(a.files[1:])
}

// prepareHost claims the ID and makes what lives outside the box.
func (b *Box) prepareHost() error {
	started, err := startTime(os.Getpid())
	if err != nil {
		return err
	}
	b.record = record{ID: b.cfg.ID, Owner: os.Getpid(), Started: started, StateDir: b.cfg.StateDir}
	h, err := cgroup.Find()
	if err != nil {
		return err
	}
	if !b.rootless {
		b.record.Cgroups = h.Dirs(b.cfg.ID)
	}
	if b.file, err = b.record.save(); err != nil {
		return err
	}
	if b.watch, err = startWatcher(b.cfg.Keep); err != nil {
		return err
	}
	if err := makeState(b.cfg.StateDir); err != nil {
		return err
	}
	if b.rootless {
		b.weaker = append(b.weaker, rootlessWeaker...)
		return nil
	}
	var weaker []string
	b.cgroups, weaker, err = cgroup.Make(h, b.cfg.ID, groups, groupInit, b.cfg.Limits.cgroup(), int(idBase(b.cfg.ID)+boxinit.UID))
	b.weaker = append(b.weaker, weaker...)
	return err
}

var rootlessWeaker = []string{
	"not root: no cgroups, so no limits of memory, CPU and processes, no freezing, and commands that leave their session outlive Kill (not Close)",
	"not root: the box has one user; every command, whatever its user is called, has the same rights",
	"not root: files of the host's base show as owned by nobody and can't be changed inside",
}

// idBase picks the host ids of a box, from a range that neither accounts nor other container managers use. Boxes whose
// IDs collide share user ids, but no namespace.
func idBase(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id))
	return 0x70000000 + h.Sum32()%2048*(2*boxinit.IDs)
}

// startInit runs this program again as process 1 of the box.
func (b *Box) startInit() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "init"), os.NewFile(uintptr(pair[1]), "recorder")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return err
	}
	b.conn = c.(*net.UnixConn)

	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Setsid:    true,
		Pdeathsig: unix.SIGKILL,
	}
	b.base = uint32(os.Geteuid())
	if b.rootless {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	} else {
		b.base = idBase(b.cfg.ID)
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(b.base), Size: boxinit.IDs + 1}}
		attr.GidMappings = attr.UidMappings
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: boxinit.UID, Gid: boxinit.UID}
		for i := uintptr(0); i <= lastCap(); i++ {
			attr.AmbientCaps = append(attr.AmbientCaps, i)
		}
		dir, err := os.Open(b.cgroups.Dir(groupInit))
		if err != nil {
			return err
		}
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	}
	b.init = &exec.Cmd{Path: "/proc/self/exe", Args: []string{boxinit.Name}, Env: []string{}, ExtraFiles: []*os.File{theirs},
		SysProcAttr: attr, Dir: "/", Stderr: &b.lastWords}

	// PDEATHSIG follows the death of the thread that forked, so that thread stays until Close.
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := b.init.Start()
		started <- err
		if err == nil {
			<-b.free
		}
	}()
	if err := <-started; err != nil {
		b.init = nil
		return err
	}
	go func() {
		_ = b.init.Wait() // how init ended says nothing more than that it did
		close(b.dead)
	}()
	return nil
}

// head keeps the first bytes written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), 2048-len(h.text))]...)
	return len(p), nil
}

// lastCap is the number of the last capability this kernel knows.
func lastCap() uintptr {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err == nil {
		var n uintptr
		if _, err := fmt.Sscan(string(b), &n); err == nil && n < 64 {
			return n
		}
	}
	return unix.CAP_LAST_CAP
}

// call sends a request and waits for its answer.
func (b *Box) call(ctx context.Context, r *boxinit.Request, files ...*os.File) (answer, error) {
	ch := make(chan answer, 1)
	id := b.reserve(ch, nil)
	return b.finish(ctx, id, ch, r, files)
}

func (b *Box) reserve(ch chan answer, p *Process) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	b.waiting[b.next] = ch
	if p != nil {
		b.procs[b.next] = p
	}
	return b.next
}

func (b *Box) finish(ctx context.Context, id uint64, ch chan answer, r *boxinit.Request, files []*os.File) (answer, error) {
	r.ID = id
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	b.send.Lock()
	err := boxinit.Send(b.conn, r, fds...)
	b.send.Unlock()
	runtime.KeepAlive(files)
	if err != nil {
		b.forget(id)
		return answer{}, fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return b.await(ctx, id, ch)
}

// await waits for the next answer to a request.
func (b *Box) await(ctx context.Context, id uint64, ch chan answer) (answer, error) {
	select {
	case a, ok := <-ch:
		if !ok {
			return answer{}, ErrClosed
		}
		if a.Err != "" {
			boxinit.CloseAll(a.files)
			return answer{}, &boxError{a.Err, syscall.Errno(a.Errno)}
		}
		return a, nil
	case <-ctx.Done():
		b.forget(id)
		return answer{}, ctx.Err()
	}
}

func (b *Box) forget(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, id)
	delete(b.procs, id)
}

// boxError is an error of init's; errors.Is finds its errno.
type boxError struct {
	text  string
	errno syscall.Errno
}

func (e *boxError) Error() string { return e.text }

func (e *boxError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// receive hands init's messages to those who wait for them.
func (b *Box) receive() {
	for {
		var r boxinit.Reply
		files, err := boxinit.Recv(b.conn, &r)
		if err != nil {
			boxinit.CloseAll(files)
			break
		}
		b.mu.Lock()
		if r.Exit != nil {
			p := b.procs[r.ID]
			delete(b.procs, r.ID)
			b.mu.Unlock()
			boxinit.CloseAll(files)
			if p != nil {
				p.ended(r.Exit)
			}
			continue
		}
		ch := b.waiting[r.ID]
		if !r.Stopped { // another follows
			delete(b.waiting, r.ID)
		}
		b.mu.Unlock()
		if ch == nil { // nobody waits any more, so nobody would ever end what was started
			if r.Pid > 0 && len(files) == 1 {
				_ = unix.PidfdSendSignal(int(files[0].Fd()), unix.SIGKILL, nil, 0)
			}
			boxinit.CloseAll(files)
			continue
		}
		ch <- answer{r, files}
	}
	b.mu.Lock()
	waiting, procs := b.waiting, b.procs
	b.waiting, b.procs = map[uint64]chan answer{}, map[uint64]*Process{}
	b.mu.Unlock()
	for _, ch := range waiting {
		close(ch)
	}
	for _, p := range procs {
		p.ended(nil)
	}
}

// Weaker says what this box lacks of what a box should have, one sentence each.
func (b *Box) Weaker() []string { return append([]string(nil), b.weaker...) }

// Kill ends every process of a group, and waits until they are gone. In a box without cgroups it ends those that still
// are in the session of a command, and doesn't wait.
func (b *Box) Kill(ctx context.Context, group string) error {
	if b.cgroups == nil {
		_, err := b.call(ctx, &boxinit.Request{KillTree: group})
		return err
	}
	return b.cgroups.Kill(ctx, group)
}

// HostUID is the host's id of a user or group id inside the box.
func (b *Box) HostUID(inside uint32) uint32 {
	if b.rootless {
		return b.base
	}
	return b.base + inside
}

// InsideUID turns a user id of the host, as a sensor sees it, into the box's. What the box doesn't map is nobody, 65534.
func (b *Box) InsideUID(host uint32) uint32 {
	const nobody = 65534
	switch {
	case b.rootless && host == b.base:
		return b.cfg.Agent.UID
	case !b.rootless && host >= b.base && host < b.base+boxinit.IDs:
		return host - b.base
	}
	return nobody
}

// InitPID is the process id of the box's init in the recorder's pid namespace.
func (b *Box) InitPID() int { return b.init.Process.Pid }

// Close ends every process of the box and removes all it had. It may be called more than once.
func (b *Box) Close() error {
	b.close.Do(func() { b.closed = b.shutdown() })
	return b.closed
}

func (b *Box) shutdown() error {
	var errs []error
	if b.cgroups != nil {
		_ = b.cgroups.KillAll() // the kill of init below does the same, later
	}
	if b.init != nil {
		if err := b.init.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		<-b.dead
	}
	close(b.free)
	if b.conn != nil {
		b.conn.Close()
	}
	b.nets.close()
	if b.root != nil {
		b.root.Close()
	}
	if b.file == "" { // the ID was never ours
		return errors.Join(errs...)
	}
	if b.cgroups != nil {
		errs = append(errs, b.cgroups.Remove())
	}
	errs = append(errs, removeState(b.cfg.StateDir))
	err := errors.Join(errs...)
	if err == nil { // else it stays for Sweep
		err = os.Remove(b.file)
	}
	if b.watch != nil {
		b.watch.stop()
	}
	return err
}
