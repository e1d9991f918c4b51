//go:build linux

package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options say who is asked, and what he must know.
type Options struct {
	// Allow decides about one access. One goroutine calls it, and the process waits: it must be quick, must wait for
	// nothing and open no file of the sandbox. The Access is used again for the next one.
	Allow func(*Access) bool
	// Unclear is told of an access that is refused because it isn't known what it is about, where a path is longer than the
	// kernel tells (4,095 bytes). It must not wait.
	Unclear func(a *Access, err error)
	// Failed is told once, where decisions can't be had any more and everything is refused. It must not wait.
	Failed func(error)
	// Exe and User are wanted of an Access. What isn't wanted isn't looked up.
	Exe, User bool
	// Patience is how long a decision may take, 0 for five seconds. If it takes longer everything is refused.
	Patience time.Duration
}

// Stats count what a guard did.
type Stats struct {
	Asked    uint64        // opens and executions of the sandbox that waited for an answer
	Refused  uint64        // of them
	Unopened uint64        // refused by the kernel, because the file can't be handed over: a socket, too many open files
	Slowest  time.Duration // from taking a question up to its answer
	Mounts   int           // of the sandbox, on which the kernel asks
}

// Guard answers for one sandbox.
type Guard struct {
	o    Options
	fd   int
	file *os.File // of fd: the fanotify group
	stop int      // eventfd that ends the loop
	done chan struct{}

	init  int    // the sandbox's first process; 0: nothing is watched yet
	pidns string // of the sandbox

	asked, refused, unopened, slowest atomic.Uint64

	mu     sync.Mutex
	mounts int
	broken error
	loop   int // which loop may answer: one that was stuck is replaced
	// The question at hand, for the one who looks whether it takes too long.
	since time.Time
	at    int32

	close sync.Once
}

// Available says why accesses can't be guarded here, nil where they can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can have the kernel ask before it opens a file")
	}
	fd, err := group()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	own, err := unix.MemfdCreate("guard", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("trying fanotify: %w", err)
	}
	defer unix.Close(own)
	if err := mark(fd, 0, unix.FAN_OPEN_PERM|unix.FAN_OPEN_EXEC_PERM, own); err != nil {
		return fmt.Errorf("this kernel doesn't ask before it opens a file (it needs Linux 5.0 and CONFIG_FANOTIFY_ACCESS_PERMISSIONS): %w", err)
	}
	return nil
}

// group makes a fanotify group. Files are handed over opened with O_NONBLOCK, so that a named pipe keeps nobody waiting.
func group() (int, error) {
	const flags = unix.FAN_CLASS_CONTENT | unix.FAN_CLOEXEC | unix.FAN_REPORT_TID | unix.FAN_UNLIMITED_QUEUE | unix.FAN_UNLIMITED_MARKS
	fd, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		return -1, fmt.Errorf("making a fanotify group: %w", err)
	}
	return fd, nil
}

// mark marks what a descriptor is of: its inode, or with FAN_MARK_MOUNT the mount that it was reached by.
func mark(group int, flags uint, mask uint64, fd int) error {
	return unix.FanotifyMark(group, unix.FAN_MARK_ADD|flags, mask, unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd))
}

// New makes a guard that watches nothing yet. Close it once the sandbox is dead.
func New(o Options) (*Guard, error) {
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	fd, err := group()
	if err != nil {
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("guard: %w", err)
	}
	g := &Guard{o: o, fd: fd, file: os.NewFile(uintptr(fd), "fanotify"), stop: stop, done: make(chan struct{})}
	// Only now, so that os.File doesn't know: it would make the group blocking again where it is passed on.
	if err := unix.SetNonblock(fd, true); err != nil {
		g.file.Close()
		unix.Close(stop)
		return nil, fmt.Errorf("guard: %w", err)
	}
	return g, nil
}

// File is the group. As long as some process holds it open, accesses wait for an answer and aren't let.
func (g *Guard) File() *os.File { return g.file }

// Watch has the kernel ask, from now on, about everything that is opened or executed in the sandbox whose first process
// is init. The sandbox must not be able to make mounts: by a new one everything could be opened unasked.
func (g *Guard) Watch(init int) error {
	ns, err := pidNamespace(init)
	if err != nil {
		return fmt.Errorf("guarding the sandbox: %w", err)
	}
	places, err := placesOf(init)
	if err != nil {
		return fmt.Errorf("guarding the sandbox: %w", err)
	}
	defer closeAll(places)
	g.init, g.pidns = init, ns
	go g.serve(0)
	go g.hurry()
	for _, p := range places {
		if !p.asks {
			continue
		}
		if err := mark(g.fd, unix.FAN_MARK_MOUNT, unix.FAN_OPEN_PERM|unix.FAN_OPEN_EXEC_PERM|unix.FAN_ONDIR, int(p.at.Fd())); err != nil {
			return fmt.Errorf("guarding the sandbox's mount at %s (%s): %w", p.point, p.fstype, err)
		}
		g.mu.Lock()
		g.mounts++
		g.mu.Unlock()
	}
	return nil
}

// Stats are the counts up to now.
func (g *Guard) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{Asked: g.asked.Load(), Refused: g.refused.Load(), Unopened: g.unopened.Load(), Slowest: time.Duration(g.slowest.Load()), Mounts: g.mounts}
}

// Err says why everything is refused, nil where decisions are made.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

// Close lets go of whatever waits, and so must come after the sandbox's end. It may be called more than once.
func (g *Guard) Close() error {
	g.close.Do(func() {
		_, _ = unix.Write(g.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		if g.init != 0 {
			<-g.done
		}
		g.file.Close()
		unix.Close(g.stop)
	})
	return nil
}
