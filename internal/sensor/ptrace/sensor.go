//go:build linux && amd64

package ptrace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"golang.org/x/sys/unix"
)

// Options configure a sensor. The zero value is a good one.
type Options struct {
	// Deny names system calls that are refused with EPERM and recorded as [bodycam.TypeDenied]. Only calls that
	// the sensor knows can be named.
	Deny []string
	// Refuses is the seccomp program of a sandbox whose refusals the sensor is to see: the sandbox installs it with every
	// RET_ERRNO turned into a RET_TRACE, and the sensor, which evaluates it over each call that stops, refuses what it refuses.
	// The calls are recorded as attempts, with [bodycam.MarkRefused]. Empty: nothing is refused but Deny.
	Refuses []unix.SockFilter
}

// Sensor observes processes with ptrace.
type Sensor struct {
	deny  map[string]bool
	box   []unix.SockFilter // Options.Refuses
	byNR  [2]map[int32]*def // amd64, i386
	self  bodycam.Proc      // the recorder
	pidNS string            // the recorder's pid namespace
	power bool              // the recorder may look into processes that are not dumpable

	trees sync.WaitGroup // tracer threads
	alive living

	// mu is held while a stop is handled, so that sink and tables see one stop at a time.
	mu      sync.Mutex
	sink    sensor.Sink
	root    string
	started bool
	failed  error
	procs   map[int32]*process // alive, by pid
	tasks   map[int]*task      // alive, by tid
	last    map[int32]uint64   // Start of the last process with that pid
	count   bodycam.Counters
	blind   map[string]*bodycam.Blind
	cpu     time.Duration // of tracer threads that ended
	running map[*tree]struct{}
	detach  bool // someone made a mount without a place, or took one away
}

var _ sensor.Sensor = (*Sensor)(nil)

// New returns a sensor that is not started.
func New(o Options) *Sensor {
	s := &Sensor{
		deny: make(map[string]bool), procs: make(map[int32]*process), tasks: make(map[int]*task), last: make(map[int32]uint64),
		blind: make(map[string]*bodycam.Blind), running: make(map[*tree]struct{}), box: o.Refuses,
	}
	for _, n := range o.Deny {
		s.deny[n] = true
	}
	table := callTable()
	for i := range s.byNR {
		s.byNR[i] = make(map[int32]*def)
	}
	for i := range table {
		d := &table[i]
		if d.amd64 >= 0 {
			s.byNR[0][d.amd64] = d
		}
		if d.i386 >= 0 {
			s.byNR[1][d.i386] = d
		}
	}
	s.blind["bytes"] = &bodycam.Blind{What: "bytes", Inherent: true,
		Why: "bytes read and written are not counted: every read and write would have to stop"}
	return s
}

// Name is "ptrace".
func (s *Sensor) Name() string { return "ptrace" }

// Start makes the sensor ready; processes come under observation by StartProcess and Attach. When the context ends,
// the sensor stops.
func (s *Sensor) Start(ctx context.Context, t sensor.Target, sink sensor.Sink) error {
	known := make(map[string]bool)
	for _, d := range callTable() {
		known[d.name] = true
	}
	for n := range s.deny {
		if !known[n] {
			return fmt.Errorf("starting the ptrace sensor: can't deny %q: no such call is known to it", n)
		}
	}
	if err := checkProgram(s.box); err != nil {
		return fmt.Errorf("starting the ptrace sensor: the sandbox's filter: %w", err)
	}
	st, err := readStat(os.Getpid())
	if err != nil {
		return fmt.Errorf("starting the ptrace sensor: reading the recorder's own process: %w", err)
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return fmt.Errorf("starting the ptrace sensor: reading the recorder's pid namespace: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errors.New("starting the ptrace sensor: it was started before; make another")
	}
	s.self = bodycam.Proc{PID: int32(os.Getpid()), Start: st.start}
	s.pidNS, s.power = ns, hasPtraceCap()
	quietStops()
	s.sink, s.root, s.started = sink, t.Root, true
	context.AfterFunc(ctx, func() { s.kill() })
	return nil
}

// Stop kills what is still observed, waits for the last events, and returns the final health.
func (s *Sensor) Stop() (bodycam.Health, error) {
	s.kill()
	s.mu.Lock()
	//lint:ignore SA2001 an empty section is meant: a start that came first is counted now
	s.mu.Unlock()
	s.trees.Wait()
	s.mu.Lock()
	err := s.failed
	s.mu.Unlock()
	return s.Health(), err
}

// Wait returns when everything that was observed has ended.
func (s *Sensor) Wait() { s.trees.Wait() }

// kill ends every observed process. Without its tracer each filtered call would fail with ENOSYS. It does not wait
// for the stop that is being handled: that may be waiting for a file system that an observed process serves.
func (s *Sensor) kill() {
	for _, pid := range s.alive.end() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// living is the set of observed processes. What is added after the end is killed at once.
type living struct {
	mu    sync.Mutex
	ended bool
	pids  map[int]struct{}
}

func (l *living) add(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pids == nil {
		l.pids = make(map[int]struct{})
	}
	l.pids[pid] = struct{}{}
	if l.ended {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (l *living) remove(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pids, pid)
}

func (l *living) end() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	return slices.Collect(maps.Keys(l.pids))
}

func (l *living) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Health is the sensor's account of itself.
func (s *Sensor) Health() bodycam.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := bodycam.Health{Sensor: "ptrace", Backend: "seccomp-ptrace", Total: s.count, CPU: s.cpu.Seconds()}
	for t := range s.running {
		h.CPU += t.cpu.Seconds()
	}
	for _, k := range slices.Sorted(maps.Keys(s.blind)) {
		h.Blind = append(h.Blind, *s.blind[k])
	}
	if s.failed != nil {
		h.Failed = s.failed.Error()
	}
	return h
}

// emit delivers an event that stands for one call.
func (s *Sensor) emit(e *bodycam.Event) {
	s.count.Seen++
	if s.failed != nil {
		s.count.Lost++
		return
	}
	e.Sensor, e.Count = "ptrace", 1
	if e.Boot == 0 {
		e.Boot, e.Time = now()
	}
	if s.root != "" {
		e.Path, e.Path2, e.Exe, e.CWD, e.Script = s.within(e.Path), s.within(e.Path2), s.within(e.Exe), s.within(e.CWD), s.within(e.Script)
	}
	if err := s.sink(e); err != nil {
		s.count.Lost++
		s.failed = fmt.Errorf("delivering an event: %w", err)
		return
	}
	s.count.Emitted++
}

// within takes the sandbox's root off a canonical path.
func (s *Sensor) within(p string) string {
	if rest, ok := cutDir(p, s.root); ok {
		return rest
	}
	return p
}

// hole counts one thing that could not be seen.
func (s *Sensor) hole(what, why string) {
	b := s.blind[what]
	if b == nil {
		b = &bodycam.Blind{What: what, Why: why}
		s.blind[what] = b
	}
	b.Count++
}

func now() (boot uint64, wall int64) {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano()), time.Now().UnixNano()
}

// hasPtraceCap tells whether the recorder has CAP_SYS_PTRACE.
func hasPtraceCap() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	return unix.Capget(&h, &d[0]) == nil && d[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}
