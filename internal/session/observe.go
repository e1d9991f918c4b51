package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// observer takes the events of all sensors, says in which window each happened, and writes them.
type observer struct {
	w       *store.Writer
	offset  int64 // boot time to wall clock
	each    func(*bodycam.Event)
	uid     func(host uint32) uint32  // user ids as the sandbox knows them
	refused func(*bodycam.Event) bool // by the sandbox's own filter
	guard   *guarding                 // nil: the kernel asks nobody
	folder  folder                    // of repeats that the sensors report one by one
	sensors []sensor.Sensor

	mu      sync.Mutex
	windows []span // in order of time
	err     error
	broken  func(error) // ends the agent: the record can't go on, or a watcher says so

	started bool   // the agent's program runs
	before  uint64 // events before that: the sandbox's own start of it

	health  []bodycam.Health
	stopped bool
	calls   atomic.Uint64
}

type span struct {
	window bodycam.Window
	from   uint64
	name   string // of a probe's window
}

// enter begins a window now.
func (o *observer) enter(w bodycam.Window) { o.enterNamed(w, "") }

func (o *observer) enterNamed(w bodycam.Window, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.windows = append(o.windows, span{w, bootNow(), name})
}

// spans lists the windows for run.json.
func (o *observer) spans() []bodycam.WindowSpan {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []bodycam.WindowSpan
	for i, s := range o.windows {
		if i > 0 && s.window == bodycam.WindowNone {
			continue
		}
		ws := bodycam.WindowSpan{Window: s.window.String(), Name: s.name, From: s.from}
		if i+1 < len(o.windows) {
			ws.To = o.windows[i+1].from
		}
		out = append(out, ws)
	}
	return out
}

// sink is what every sensor delivers to, through the names joiner.
func (o *observer) sink(e *bodycam.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	if !o.started && !o.begins(e) {
		o.before += e.N()
		return nil
	}
	if e.Time == 0 && e.Boot != 0 {
		e.Time = int64(e.Boot) + o.offset
	}
	if o.uid != nil && e.Proc.PID != 0 {
		e.UID, e.GID = o.uid(e.UID), o.uid(e.GID)
	}
	if e.Errno != 0 && o.refused != nil && o.refused(e) {
		e.Marks |= bodycam.MarkRefused
	}
	if o.guard != nil {
		o.guard.attribute(e)
	}
	if e.Marks&bodycam.MarkTruncated != 0 {
		e.Path, e.Path2 = cutPath(e.Path), cutPath(e.Path2)
	}
	if e.Window == bodycam.WindowNone {
		e.Window = o.windowAt(e.Boot)
	}
	if taken, err := o.folder.take(e, o.write); taken || err != nil {
		return err
	}
	return o.write(e)
}

// write puts an event into the record and tells the listener.
func (o *observer) write(e *bodycam.Event) error {
	if err := o.w.Event(e); err != nil {
		o.failLocked(err)
		return err
	}
	o.calls.Add(e.N())
	if o.each != nil {
		o.each(e)
	}
	return nil
}

// unfold writes what was counted and not told yet, once the sensors have ended.
func (o *observer) unfold() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil // told already
	}
	return o.folder.flush(o.write, nil)
}

// cutPath shows that a path's beginning is missing: its tail must not pass for an absolute path.
func cutPath(p string) string {
	const whole = 3500 // a path that a sensor cut is longer
	if len(p) < whole || strings.HasPrefix(p, ".../") {
		return p
	}
	return ".../" + strings.TrimLeft(p, "/")
}

// begins tells whether an event is the execution of the agent's program. What comes before it in the agent's group is
// the sandbox giving up privileges on the agent's behalf: not its doing, and not in the record.
func (o *observer) begins(e *bodycam.Event) bool {
	o.started = e.Type == bodycam.TypeExec && !e.Failed() && e.Marks&bodycam.MarkSynthesised == 0
	return o.started
}

// windowAt finds the window that was open at a boot time. What happened before the first, while the agent was being
// started, belongs to the first.
func (o *observer) windowAt(boot uint64) bodycam.Window {
	for i := len(o.windows) - 1; i >= 0; i-- {
		if o.windows[i].from <= boot && o.windows[i].window != bodycam.WindowNone {
			return o.windows[i].window
		}
	}
	if len(o.windows) > 0 {
		return o.windows[0].window
	}
	return bodycam.WindowAgent
}

// fail notes that the record can't go on, and ends the run: an agent must not act unobserved.
func (o *observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

func (o *observer) failLocked(err error) {
	if o.err != nil {
		return
	}
	o.err = err
	if o.broken != nil {
		go o.broken(fmt.Errorf("%w: recording failed", ErrEnvironment))
	}
}

func (o *observer) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// lost sums what the sensors have lost so far.
func (o *observer) lost() uint64 {
	o.mu.Lock()
	sensors := o.sensors
	o.mu.Unlock()
	var n uint64
	for _, s := range sensors {
		n += s.Health().Total.Lost
	}
	return n
}

// start attaches a sensor.
func (o *observer) start(ctx context.Context, s sensor.Sensor, t sensor.Target, sink sensor.Sink) error {
	if err := s.Start(ctx, t, sink); err != nil {
		return fmt.Errorf("starting the %s sensor: %w", s.Name(), err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sensors = append(o.sensors, s)
	return nil
}

// stop detaches all sensors and keeps their final accounts.
func (o *observer) stop() error {
	if o.stopped {
		return nil
	}
	o.stopped = true
	var errs []error
	for _, s := range o.sensors {
		h, err := s.Stop()
		if err != nil {
			if h.Failed == "" {
				h.Failed = err.Error()
			}
			errs = append(errs, fmt.Errorf("stopping the %s sensor: %w", s.Name(), err))
		}
		o.health = append(o.health, h)
	}
	return errors.Join(errs...)
}
