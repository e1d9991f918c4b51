package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/guard"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Guard decides what the sandbox's processes may open and execute, from the agent's start to the end of the run. Its
// functions are called once Options.Ready has returned.
type Guard struct {
	// Wants tells which files are to be known by what they are, so that another name doesn't change what may be done with
	// them, and of which it matters so much that an image's file is copied for it. They are looked for when the agent starts, and
	// again when the tests have been copied in.
	Wants func(path string) (known, copied bool)
	// Named is told of each such file, beside calls of Refuse.
	Named func(dev, ino uint64, path string) error
	// Refuse is asked about every open and execution while it waits in the kernel; it returns the rule that refuses it, or
	// "". One goroutine calls it.
	Refuse func(*bodycam.Event) (rule string)
	// Exe and User tell that Refuse looks at the process's program, and at its user.
	Exe, User bool
}

// guarding is a run's guard.
type guarding struct {
	g     *guard.Guard
	event bodycam.Event // for the one goroutine that decides

	mu       sync.Mutex
	refusals map[int32][]refused // by thread, in order
	kept     int
	unclear  int // calls that were refused because the path is longer than the kernel tells
}

// refused is a call that was refused. The kernel's record of it comes later.
type refused struct {
	at       uint64 // since boot
	detail   string
	path     string
	dev, ino uint64
}

// mostRefused bounds the refusals whose record hasn't come yet.
const mostRefused = 1 << 18

// newGuard makes the guard that a run asks for. The sandbox holds it open until its processes are dead.
func (s *run) newGuard() error {
	x := &guarding{refusals: map[int32][]refused{}}
	var err error
	x.g, err = guard.New(guard.Options{Allow: s.allow, Unclear: x.noName, Exe: s.o.Guard.Exe, User: s.o.Guard.User, Failed: func(err error) {
		s.obs.fail(fmt.Errorf("deciding what may be opened (everything is refused now): %w", err))
	}})
	if err != nil {
		return err
	}
	s.guards, s.obs.guard = x, x
	s.undo = append(s.undo, x.g.Close)
	return nil
}

// beginGuard has the kernel ask from now on.
func (s *run) beginGuard(ctx context.Context) error {
	if s.guards == nil {
		return nil
	}
	if err := s.survey(ctx); err != nil {
		return err
	}
	return s.guards.g.Watch(s.box.InitPID())
}

// survey tells the rules which files they are about, as they lie now.
func (s *run) survey(ctx context.Context) error {
	byName, err := guard.Survey(ctx, s.box.InitPID(), s.box.HostUID(0), s.wants, func(f guard.Found) error { return s.o.Guard.Named(f.Dev, f.Ino, f.Path) })
	if err != nil {
		return err
	}
	if byName > 0 {
		s.note("%d files that rules of mode deny are about are known by their name alone: the image holds too many of them. If they are renamed or linked, the rules go by the new name", byName)
	}
	return nil
}

// copyTests puts the task's tests into the sandbox. Where files are refused by what they are, theirs are looked for too,
// while what the agent left stands still: it can't rename them first.
func (s *run) copyTests(ctx context.Context, list []kind.Copy) error {
	if s.guards == nil || len(list) == 0 {
		return s.copies(ctx, list, true)
	}
	still, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.box.Freeze(still, sandbox.GroupAgent); err != nil {
		s.note("what the agent left couldn't be held while the tests were copied in: %v", err)
	}
	defer func() {
		if s.stopped.Load() == nil { // else it stays as it is until it is killed
			if err := s.box.Thaw(context.WithoutCancel(ctx), sandbox.GroupAgent); err != nil {
				s.note("letting what the agent left go on: %v", err)
			}
		}
	}()
	if err := s.copies(ctx, list, true); err != nil {
		return err
	}
	return s.survey(ctx)
}

func (s *run) wants(path string) guard.Want {
	switch known, copied := s.o.Guard.Wants(path); {
	case copied:
		return guard.Always
	case known:
		return guard.Itself
	}
	return guard.Nothing
}

// allow decides about an access that waits.
func (s *run) allow(a *guard.Access) bool {
	x := s.guards
	a.UID, a.GID = s.box.InsideUID(a.UID), s.box.InsideUID(a.GID)
	rule := ""
	no := a.Any(&x.event, func(e *bodycam.Event) bool {
		e.Time = time.Now().UnixNano()
		rule = s.o.Guard.Refuse(e)
		return rule != ""
	})
	if !no {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.keep(a, bodycam.Refusal(rule))
	return false
}

// noName takes in an access that was refused because nobody knows whether a rule is about it.
func (x *guarding) noName(a *guard.Access, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if errors.Is(err, unix.ENAMETOOLONG) {
		x.unclear++
		x.keep(a, refusedUnclear)
		return
	}
	x.keep(a, "refused, for what it is about isn't known: "+err.Error())
}

const refusedUnclear = "refused, for its path is longer than the kernel tells and a rule of mode deny may be about it"

// keep remembers a refusal until its record comes.
func (x *guarding) keep(a *guard.Access, detail string) {
	if x.kept >= mostRefused {
		clear(x.refusals)
		x.kept = 0
	}
	x.refusals[a.TID] = append(x.refusals[a.TID], refused{bootNow(), detail, a.Path, a.Dev, a.Ino})
	x.kept++
}

// attribute says of an event of a failed call that it was refused here, and what the call was about: the record of a
// call that failed has no file. A thread makes one call at a time, and its record bears the time when it returned.
func (x *guarding) attribute(e *bodycam.Event) {
	if e.Errno != int32(unix.EPERM) || e.Type != bodycam.TypeOpen && e.Type != bodycam.TypeExec {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.refusals[e.TID]
	n := 0
	for n < len(list) && list[n].at <= max(e.Boot, e.LastBoot) {
		n++
	}
	if n == 0 {
		return
	}
	r := list[n-1]
	x.kept -= n
	if n == len(list) {
		delete(x.refusals, e.TID)
	} else {
		x.refusals[e.TID] = list[n:]
	}
	e.Detail, e.Dev, e.Ino = r.detail, r.dev, r.ino
	if r.path != "" {
		e.Path = r.path
		e.Marks &^= bodycam.MarkUnverified
	}
}

// account is what run.json says of the guard; nil where there was none.
func (x *guarding) account() (*bodycam.Guarded, []bodycam.Health) {
	if x == nil {
		return nil, nil
	}
	st := x.g.Stats()
	h := bodycam.Health{Sensor: "guard", Backend: "fanotify", Note: fmt.Sprintf("asked about %d opens and executions, refused %d", st.Asked, st.Refused)}
	if err := x.g.Err(); err != nil {
		h.Failed = err.Error()
	}
	return &bodycam.Guarded{Asked: st.Asked, Refused: st.Refused + st.Unopened, Mounts: st.Mounts, SlowestMS: float64(st.Slowest.Microseconds()) / 1000}, []bodycam.Health{h}
}
