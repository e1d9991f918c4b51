package bpf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"golang.org/x/sys/unix"
)

// Name is the sensor's name in events and health.
const Name = "bpf"

// The back ends.
const (
	BackendAuto = "auto" // what this kernel allows
	BackendTP   = "tp"   // raw tracepoints and cgroup programs
	BackendLSM  = "lsm"  // race-free hooks; not built yet
)

// Options configure a sensor. The zero value is the default of each.
type Options struct {
	// Backend is BackendAuto ("" too), BackendTP or BackendLSM.
	Backend string
	// RingBytes is the size of the ring between kernel and recorder: a power of two, at least 1 MiB. 0: 32 MiB.
	RingBytes int
	// ArgvMax is how many bytes of an argv are kept; of a longer one also length and hash. 0: 256 KiB.
	ArgvMax int
	// Within bounds how late a record is read while records come. 0: 100 ms. A look costs some 100 µs.
	Within time.Duration
	// NoPause switches back-pressure off: a sink that is too slow then costs records, which are counted.
	NoPause bool

	others uint32 // how many tasks may have a cache outside of the pool; 0: as many as the kernel side says
	old    bool   // the object for older kernels, for tests
}

// wakeBytes is how much waits before the kernel side wakes the reader.
func (o Options) wakeBytes() uint32 { return uint32(min(1<<20, o.RingBytes/8)) }

// Sensor observes a cgroup subtree. It can be started once.
type Sensor struct {
	opt    Options
	tables *callTables

	mu      sync.Mutex // guards started and final; never held for long
	started bool
	final   *bodycam.Health
	end     sync.Once

	prog     *programs
	ring     *ring
	dec      *decoder
	pause    *pauser
	watch    *time.Timer // runs while the reader is at a step
	stopRead atomic.Bool
	failure  atomic.Pointer[error]
	running  atomic.Pointer[bodycam.Counters]
	cpu      atomic.Int64 // CPU time of the reader, nanoseconds
	wg       sync.WaitGroup
	drained  chan struct{}
}

var _ sensor.Sensor = (*Sensor)(nil)

// New returns a sensor that is not attached to anything yet. It fails where the options make no sense or the
// kernel lacks what every back end needs.
func New(opt Options) (*Sensor, error) {
	switch opt.Backend {
	case "", BackendAuto, BackendTP:
	case BackendLSM:
		return nil, errors.New(`sensor back end "lsm" is not built yet: use "tp" or "auto"`)
	default:
		return nil, fmt.Errorf("no sensor back end %q: use %q or %q", opt.Backend, BackendAuto, BackendTP)
	}
	if opt.RingBytes == 0 {
		opt.RingBytes = 32 << 20
	}
	if opt.RingBytes < 1<<20 || opt.RingBytes&(opt.RingBytes-1) != 0 {
		return nil, fmt.Errorf("a ring of %d bytes: it has to be a power of two of at least 1 MiB", opt.RingBytes)
	}
	if opt.ArgvMax == 0 {
		opt.ArgvMax = 256 << 10
	}
	if err := needBTF(); err != nil {
		return nil, KernelError{err}
	}
	t, err := calls()
	if err != nil {
		return nil, err
	}
	return &Sensor{opt: opt, tables: t}, nil
}

// Name returns "bpf".
func (s *Sensor) Name() string { return Name }

// Start attaches every hook and begins to read.
func (s *Sensor) Start(ctx context.Context, t sensor.Target, sink sensor.Sink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errors.New("the bpf sensor was started before: make a new one")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	prog, err := load(t.Cgroup, s.opt, s.tables)
	if err != nil {
		return err
	}
	s.prog = prog
	debug.FreeOSMemory() // the kernel's types, tens of megabytes that loading has read: their end is not to be paid for while recording
	if s.ring, err = newRing(prog.objs.Ring); err != nil {
		prog.close()
		return err
	}
	s.pause = newPauser(t.Cgroup, prog, s.ring, uint64(s.opt.RingBytes))
	s.watch = time.AfterFunc(stepLong, s.pause.rouse)
	s.watch.Stop()
	s.dec = newDecoder(s.tables, wallOffset(), strings.TrimSuffix(t.Root, "/"), s.opt.ArgvMax, sink)
	s.drained = make(chan struct{})
	s.running.Store(&bodycam.Counters{})
	s.started = true
	s.wg.Add(1)
	go s.read()
	if !s.opt.NoPause {
		s.wg.Add(1)
		go s.pause.run(&s.wg)
	}
	if err := prog.attach(t.Cgroup); err != nil {
		s.end.Do(func() {
			s.fail(err)
			s.halt()
			prog.close()
			s.ring.close()
			s.final = &bodycam.Health{Sensor: Name, Backend: BackendTP, Failed: err.Error()}
		})
		return err
	}
	return nil
}

// wallOffset is what added to the boot clock gives the wall clock.
func wallOffset() int64 {
	before := time.Now().UnixNano()
	boot := bootNow()
	after := time.Now().UnixNano()
	return before + (after-before)/2 - boot
}

func bootNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // can't fail: the clock is there since 2.6.39
	return ts.Nano()
}

// While records come, the kernel side wakes the reader only for much, and pollInterval (or Options.Within) bounds how late
// one is read. After an interval without any, it wakes the reader for the next one at once, and idleInterval is for what it
// might miss. A look costs some 100 µs with all that the Go runtime does around it, in a cold cache.
const (
	pollInterval = 100 * time.Millisecond
	idleInterval = 5 * time.Second
)

// stepBytes is how much room of the ring is given back at a time.
const stepBytes = 64 << 10

// read decodes the records where they lie in the ring, and calls the sink.
func (s *Sensor) read() {
	defer s.wg.Done()
	defer close(s.drained)
	for {
		stopping := s.stopRead.Load()
		if err := s.drain(); err != nil {
			s.fail(err)
			return
		}
		if s.ring.waiting() > 0 { // the first record is still being written
			time.Sleep(50 * time.Microsecond)
			continue
		}
		if stopping {
			break
		}
		if err := s.await(); err != nil {
			s.fail(err)
			return
		}
	}
	if s.failed() == nil {
		if err := s.dec.finish(); err != nil {
			s.fail(err)
		}
	}
	s.tell(0)
}

// drain takes what waits in the ring. Where the sink takes long over a step, the pauser looks after the ring meanwhile.
func (s *Sensor) drain() error {
	runtime.LockOSThread() // for its CPU time
	defer runtime.UnlockOSThread()
	s.pause.busy.Store(true)
	defer func() { s.watch.Stop(); s.pause.busy.Store(false) }()
	cpu := threadCPU()
	for n := uint64(1); n > 0 && s.ring.waiting() > 0; {
		s.watch.Reset(stepLong)
		var err error
		if n, err = s.ring.drain(stepBytes, s.take); err != nil {
			return err
		}
		s.pause.look()
		now := threadCPU()
		s.tell(now - cpu)
		cpu = now
	}
	return nil
}

// await returns when there is something to read, or the sensor is to stop.
func (s *Sensor) await() error {
	interval := cmp.Or(s.opt.Within, pollInterval)
	for idle := 0; s.ring.waiting() == 0 && !s.stopRead.Load(); idle++ {
		switch idle {
		case 0:
		case 1:
			if err := s.prog.wakeAt(0); err != nil {
				return err
			}
			defer func() { _ = s.prog.wakeAt(s.opt.wakeBytes()) }() // it could be set before
		case 2: // what went by while it was set was found by the second look
			s.pause.check()
			interval = idleInterval
		}
		if err := s.ring.wait(interval); err != nil {
			return err
		}
	}
	return nil
}

// take decodes one record. After the sink has failed records are only taken, so that the target is not left paused,
// and count as lost.
func (s *Sensor) take(record []byte) {
	if s.failed() != nil {
		return
	}
	if err := s.dec.one(record); err != nil {
		s.fail(err)
	}
}

// tell notes for Health how far the reader is, and how much CPU time that took.
func (s *Sensor) tell(cpu int64) {
	c := s.dec.total()
	s.running.Store(&c)
	s.cpu.Add(cpu)
}

// threadCPU is the CPU time of the calling thread, which has to be locked. The call is a raw one: it can't block, and the Go
// runtime need not take notice.
func threadCPU() int64 {
	var ts unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return ts.Nano()
}

func (s *Sensor) fail(err error) { s.failure.CompareAndSwap(nil, &err) }

func (s *Sensor) failed() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// halt ends the goroutines once everything in the ring has been delivered.
func (s *Sensor) halt() {
	s.stopRead.Store(true)
	s.ring.kick()
	<-s.drained
	s.pause.stop()
	s.wg.Wait()
}

// Stop detaches, delivers what is left, and returns the final health. Asked again it answers the same.
func (s *Sensor) Stop() (bodycam.Health, error) {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if !started {
		return bodycam.Health{}, errors.New("the bpf sensor was not started")
	}
	s.end.Do(func() {
		if err := s.prog.detach(); err != nil {
			s.fail(err)
		}
		if err := s.prog.flush(); err != nil {
			s.fail(err)
		}
		s.halt()
		h := s.account()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.final = &h
		s.ring.close()
		s.prog.close()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.final, s.failed()
}

// account makes the final health: the kernel's count of what was seen and lost against what was delivered.
func (s *Sensor) account() bodycam.Health {
	h := bodycam.Health{Sensor: Name, Backend: BackendTP, Sources: map[string]bodycam.Counters{}}
	if err := s.failed(); err != nil {
		h.Failed = err.Error()
	}
	k, err := s.prog.counters()
	n, names, err2 := skipped(s.prog.concerning(s.dec.net.tcp))
	if err = errors.Join(err, err2); err != nil {
		h.Failed = fmt.Errorf("reading the final counters: %w", err).Error()
		return h
	}
	for i := range sensorSourceSRC_NUM {
		c := s.dec.count[i]
		c.Seen += k.src[i].Seen
		c.Lost += k.src[i].Lost
		if h.Failed != "" && c.Seen > c.Emitted+c.Folded+c.Lost {
			c.Lost = c.Seen - c.Emitted - c.Folded // what a sink that failed was not given
		}
		if c != (bodycam.Counters{}) {
			h.Sources[sourceNames[i]] = c
		}
		h.Total.Add(c)
	}
	h.Gaps = s.dec.gaps(k.seqs)
	h.Stopped = s.pause.pauses() + k.stops
	h.CPU = s.cpuSeconds()
	h.Blind = s.dec.blindness()
	if n > 0 {
		h.Blind = append(h.Blind, bodycam.Blind{What: "hooks", Count: n,
			Why: "the kernel left out runs of " + strings.Join(names, ", ") + ", which ran already: what they would have seen is missing, if it was the target's"})
	}
	var notes []string
	if k.raced > 0 {
		notes = append(notes, fmt.Sprintf("%d descriptors were gone before they could be read: those opens are marked raced", k.raced))
	}
	if k.gone > 0 {
		notes = append(notes, fmt.Sprintf("%d descriptors were closed by another thread while in use: what went through these is told of no file", k.gone))
	}
	h.Note = strings.Join(notes, "; ")
	return h
}

var sourceNames = [sensorSourceSRC_NUM]string{
	"part", "call", "open", "close", "mmap", "exec", "fork", "exit", "net", "flow", "dns", "signal", "uring", "passfd",
}

// Health tells how the sensor fares. While it runs, Seen is what has been accounted for so far.
func (s *Sensor) Health() bodycam.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := bodycam.Health{Sensor: Name, Backend: BackendTP}
	switch {
	case s.final != nil:
		return *s.final
	case !s.started:
		return h
	}
	h.Total = *s.running.Load()
	h.Total.Seen = h.Total.Emitted + h.Total.Folded + h.Total.Lost
	if k, err := s.prog.counters(); err == nil {
		var lost uint64
		for _, c := range k.src {
			lost += c.Lost
		}
		h.Total.Lost += lost
		h.Total.Seen += lost
		h.Stopped = s.pause.pauses() + k.stops
	}
	h.CPU = s.cpuSeconds()
	if err := s.failed(); err != nil {
		h.Failed = err.Error()
	}
	return h
}

func (s *Sensor) cpuSeconds() float64 {
	return float64(s.cpu.Load()) / 1e9
}

// needBTF tells what to do where the kernel does not describe its types.
func needBTF() error {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return fmt.Errorf("this kernel does not describe its types (BTF), which the bpf sensor needs: use a kernel built with CONFIG_DEBUG_INFO_BTF=y, or the ptrace sensor: %w", err)
	}
	return nil
}
