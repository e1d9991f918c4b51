// Package session is the life of a run: provision, set up, observe, run the agent, verify, collect, analyse, tear
// down. It is the only place where sandbox, harness, sensors and store meet.
//
// Each phase has its own bound, the whole run another. When the agent fails or runs out of time the later phases
// still run, so that partial behaviour is kept; when the environment can't be made they don't. What happens in
// setup and collection is outside the observed window. What agent processes do after the agent ended is recorded in
// windows of its own: post-agent, and verify while the tests run.
package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/sensor/names"
	"github.com/bodycam-dev/bodycam/internal/sensor/ptrace"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"golang.org/x/sys/unix"
)

// Options is what a run needs beside its plan.
type Options struct {
	Plan       *kind.Plan
	Harness    harness.Harness
	ID         string
	Dir        string // run directory to make
	State      string // private folder for what the sandbox needs while it lives; "" means a temporary one
	Model      Model
	Sealing    *store.Sealing // how the run's ledger is kept; nil: the run has none
	HostLog    HostLog        // this machine's log of its runs; nil: it keeps none
	Identities []age.Identity // open the ledger again for analyses, where the run keeps no working copies
	Oracle     bool           // run the task's reference solution in the agent's place
	Tool       bodycam.Build
	Service    *Service // the agent's program is a server; nil: it ends by itself
	Delegation Delegation

	// Unobserved leaves the kernel's sensors out, to measure what they cost. Such a run is incomplete.
	Unobserved bool
	// Progress is told of phases and counts, from one goroutine at a time. Nil: nobody listens.
	Progress func(Progress)
	// Event is told of every event as it is written. It must be quick and must not keep the event. Nil: nobody listens.
	Event func(*bodycam.Event)
	// Ready is told of the run once there is a sandbox, beside its being set up. The agent isn't started before it has
	// returned, nor after an error. None of the functions below is called before.
	Ready func(*bodycam.Run) error
	// Watch is told of every event for a judge, as it is written: a reason that it returns stops the run. Everything that
	// was recorded is kept. It is called in order, one call at a time, and must be quick; the event is its own until it
	// returns.
	Watch func(*bodycam.Event) (stop string)
	// Stops tells that Watch may stop the run: it is told of events within 20 ms then, rather than 100.
	Stops bool
	// Refuse is asked, from the agent's start, before the proxy passes on what an event says (a name to look up, a
	// connection, a name in it); it returns why not, or "". Many goroutines call it. Nil: the network's mode alone decides.
	Refuse func(*bodycam.Event) string
	// Guard is asked before the sandbox opens a file or executes a program. Nil: nobody is, and nothing waits.
	Guard *Guard
	// Secrets are credentials that the agent uses and never has.
	Secrets []Secret
	// Decoys are planted before the agent starts.
	Decoys []Decoy
	// Analyse judges the finished record.
	Analyse func(context.Context, *store.Run, *kind.Plan) ([]bodycam.Finding, error)

	found harness.Info        // the agent's program, by Prepare
	inv   *harness.Invocation // how it is started
}

// HostLog notes when a run begins and how it ended, outside the run's own directory, so that a run that vanished shows.
type HostLog interface {
	OpenRun(ctx context.Context, run, dir string) error
	CloseRun(ctx context.Context, run, dir string) error
}

// Model is the endpoint that the harness talks to, as the host reaches it. The sandbox knows it as
// http://ModelHost/…; credentials are added on the way and never enter the sandbox.
type Model struct {
	URL string        // base URL with its version part: http://127.0.0.1:8099/v1; "": the harness needs none
	Key func() string // nil: no credential is added
}

// ModelHost is the name under which a sandbox reaches the model.
const ModelHost = "model.bodycam.internal"

// Progress is what a run is doing.
type Progress struct {
	Phase   string
	Since   time.Time // when the phase began
	Events  uint64
	Calls   uint64
	Lost    uint64
	Done    bool // the run has ended
	Message string
}

// ErrEnvironment is wrapped by errors that say: the run could not be carried out here, whatever the agent.
var ErrEnvironment = errors.New("the environment failed")

// run is the state of one run.
type run struct {
	o     Options
	plan  *kind.Plan
	w     *store.Writer
	box   *sandbox.Box
	inv   *harness.Invocation
	obs   *observer
	undo  []func() error // what provisioning made, undone in reverse order
	began time.Time

	party    *delegation.Party // the recorder's side of delegations; nil: it takes part in none
	asserted atomic.Int64      // requests that came with what is no receipt

	guards         *guarding // nil: the kernel asks nobody
	proxy          *names.Proxy
	stopProxy      func() error // ends the proxy and waits until all it saw was delivered
	joiner         atomic.Pointer[names.Joiner]
	tracer         *ptrace.Sensor                // nil: nothing is traced
	before         string                        // folder outside that holds the workspace as it was
	manifestBefore map[string][]sandbox.FileInfo // of workspace and skills, before the agent
	cross          *crossCheck                   // nil: one kernel sensor observes
	exchanges      *exchanges                    // what passed through the proxy in the clear
	stopped        atomic.Pointer[string]        // why a watcher, or the guard of the disk, stopped the run
	unguard        func()                        // ends the guard; nil: there is none
	full           string                        // why the guard ended the record; "": it didn't
	diskLow        error                         // it was for want of room on the disk
	judging        bodycam.Event                 // what Options.Watch is asked about
	stopping       sync.WaitGroup                // its processes are being frozen
	account        *account                      // the agent's standard output
	pipe           *pipe                         // standard streams of a service without a port
	errs           *account                      // its standard error
	agentPID       int
	judgeReady     func() error // waits for Options.Ready
	refusing       atomic.Bool  // from the agent's start: what it asks the proxy for may be refused
	started        bool         // the agent's program was executed
	lacks          []string     // of the record, besides what the sensors say
	state          atomic.Pointer[Progress]
}

// Run carries a plan out and leaves a run directory, which it returns also where the run failed. An error that wraps
// ErrEnvironment says that it could not be carried out; what the agent did or failed to do is no error.
func Run(ctx context.Context, o Options) (*store.Run, error) {
	s := &run{o: o, plan: o.Plan, began: time.Now()}
	w, err := store.Create(o.Dir, s.info(), o.Sealing)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	s.w = w
	s.obs = &observer{w: w, offset: w.Info().BootOffset, each: s.tell}
	dir, err := filepath.Abs(o.Dir)
	if err == nil && o.HostLog != nil && o.Sealing != nil {
		err = o.HostLog.OpenRun(ctx, o.ID, dir)
	}
	if err != nil {
		err = fmt.Errorf("%w: noting the run in this machine's log: %w", ErrEnvironment, err)
	} else {
		stop := s.report()
		err = s.life(ctx)
		stop()
	}
	if uerr := w.Update(func(r *bodycam.Run) {
		r.Ended = time.Now().UTC()
		r.Complete = bodycam.Assess(r.Sensors).Lacking(s.lacks...)
		if err != nil {
			r.Error = err.Error()
			r.Complete = r.Complete.Lacking("the run failed: " + r.Error)
		}
	}); uerr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrEnvironment, uerr))
	}
	if cerr := w.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrEnvironment, cerr))
	}
	if o.HostLog != nil && o.Sealing != nil {
		if herr := o.HostLog.CloseRun(context.WithoutCancel(ctx), o.ID, dir); herr != nil {
			err = errors.Join(err, fmt.Errorf("%w: noting the run's end in this machine's log: %w", ErrEnvironment, herr))
		}
	}
	r, oerr := store.Open(o.Dir)
	if r != nil {
		r.Identities = o.Identities
	}
	return r, errors.Join(err, oerr)
}

// life is the ordered list of phases.
func (s *run) life(parent context.Context) error {
	ctx, cancel := bounded(parent, s.plan.Timeouts.Total)
	defer cancel()
	defer s.teardown()

	prepare := []struct {
		name  string
		bound kind.Duration
		do    func(context.Context) error
	}{
		{"provision", s.plan.Timeouts.Provision, s.provision},
		{"setup", s.plan.Timeouts.Setup, s.setup},
		{"validate", s.plan.Timeouts.Validate, s.validate},
		{"observe", s.plan.Timeouts.Provision, s.observe},
	}
	for _, p := range prepare {
		if err := s.phase(ctx, p.name, p.bound, p.do); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrEnvironment, p.name, err)
		}
	}
	agentErr := s.phase(ctx, "agent", s.o.agentBound(), s.agent)
	interrupted := parent.Err() != nil
	// From here on a time-out or an interruption must not lose what there is: each phase gets its own bound.
	late := context.WithoutCancel(ctx)
	var errs []error
	keep := func(name string, bound kind.Duration, fallback time.Duration, do func(context.Context) error) {
		if bound == 0 {
			bound = kind.Duration(fallback)
		}
		if err := s.phase(late, name, bound, do); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if s.started && !interrupted && ctx.Err() == nil && s.stopped.Load() == nil {
		if err := s.phase(ctx, "verify", s.plan.Timeouts.Verify, s.verify); err != nil {
			errs = append(errs, fmt.Errorf("verify: %w", err))
		}
	} else {
		why, stopped := "the run was interrupted", s.stopped.Load()
		switch {
		case stopped != nil:
			why = "the run was stopped: " + *stopped
		case interrupted:
		case !s.started:
			why = "the agent was never started"
		default:
			why = "the run's total time was used up"
		}
		if s.started && stopped == nil { // a stop is noted with what stood still
			s.note("%s", why)
		}
		s.update(func(r *bodycam.Run) {
			r.Outcome = bodycam.Outcome{Status: bodycam.OutcomeError, Error: why + ", so the tests were not run"}
		})
	}
	keep("settle", 0, time.Minute, s.settle)
	keep("collect", s.plan.Timeouts.Collect, 5*time.Minute, s.collect)
	keep("analyse", s.plan.Timeouts.Analyse, 10*time.Minute, s.analyse)
	if agentErr != nil && errors.Is(agentErr, ErrEnvironment) {
		errs = append(errs, agentErr)
	}
	if s.diskLow != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrEnvironment, s.diskLow))
	}
	if err := s.obs.failure(); err != nil {
		errs = append(errs, fmt.Errorf("%w: recording: %w", ErrEnvironment, err))
	}
	return distinct(errs)
}

// distinct joins errors. One file that can't be written makes many fail: it is told once.
func distinct(errs []error) error {
	var out []error
	told := map[string]bool{}
	for _, err := range errs {
		var p *fs.PathError
		if errors.As(err, &p) {
			if told[p.Error()] && (!errors.Is(err, ErrEnvironment) || errors.Is(errors.Join(out...), ErrEnvironment)) {
				continue
			}
			told[p.Error()] = true
		}
		out = append(out, err)
	}
	return errors.Join(out...)
}

// phase runs one phase under its bound and notes when it began, ended and how.
func (s *run) phase(ctx context.Context, name string, bound kind.Duration, do func(context.Context) error) error {
	ctx, cancel := bounded(ctx, bound)
	defer cancel()
	p := bodycam.Phase{Name: name, Started: time.Now().UTC()}
	s.say(Progress{Phase: name, Since: p.Started})
	s.update(func(r *bodycam.Run) { r.Phases = append(r.Phases, p) })
	err := do(ctx)
	if err == nil && ctx.Err() != nil && name != "agent" {
		err = ctx.Err()
	}
	s.update(func(r *bodycam.Run) {
		p := &r.Phases[len(r.Phases)-1]
		p.Ended = time.Now().UTC()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.TimedOut = true
		}
		if err != nil {
			p.Error = err.Error()
		}
	})
	return err
}

// teardown undoes what was made, newest first, whatever happened.
func (s *run) teardown() {
	s.say(Progress{Phase: "teardown", Since: time.Now()})
	for i := len(s.undo) - 1; i >= 0; i-- {
		if err := s.undo[i](); err != nil {
			s.note("teardown: %v", err)
		}
	}
	s.undo = nil
}

// note adds a remark to run.json.
func (s *run) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.update(func(r *bodycam.Run) { r.Notes = append(r.Notes, text) })
}

// update changes run.json. That it can't be written is noticed at the end, when Close tries again.
func (s *run) update(change func(*bodycam.Run)) {
	if err := s.w.Update(change); err != nil {
		s.obs.fail(err)
	}
}

func (s *run) info() bodycam.Run {
	p := s.plan
	skills := make([]bodycam.SkillRef, 0, len(p.Skills))
	for _, k := range p.Skills {
		skills = append(skills, bodycam.SkillRef{Name: k.Name, Digest: k.SHA256, Roots: k.Roots})
	}
	unhonoured := make([]bodycam.Unhonoured, 0, len(p.Unhonoured))
	for _, u := range p.Unhonoured {
		unhonoured = append(unhonoured, bodycam.Unhonoured{Where: fmt.Sprintf("%s:%d", u.File, u.Line),
			Instruction: u.Instruction, Why: u.Why, Harmless: u.Severity == bodycam.Info})
	}
	return bodycam.Run{
		ID: s.o.ID, Tool: s.o.Tool, Machine: machine(), Started: s.began.UTC(), BootOffset: bootOffset(),
		Task:  bodycam.TaskRef{Name: p.Task.Name, Path: p.Task.Dir, Digest: p.Digests.Task, Instruction: bodycam.Escape(p.Task.Instruction), Skills: skills},
		Agent: bodycam.AgentRef{Harness: p.Agent.Harness, Model: p.Agent.Model}, Kind: p.Kind.Name, Plan: planJSON(p),
		Environment: bodycam.Environment{Base: p.Base, Network: p.Network.Mode, Seccomp: p.Seccomp},
		Unhonoured:  unhonoured,
	}
}

func machine() bodycam.Machine {
	var u unix.Utsname
	_ = unix.Uname(&u) // it can't fail with a valid address
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = nil // it is a convenience; a machine without /proc fails in provisioning, with a better message
	}
	return bodycam.Machine{OS: runtime.GOOS, Kernel: unix.ByteSliceToString(u.Release[:]), Arch: runtime.GOARCH,
		CPUs: runtime.NumCPU(), BootID: strings.TrimSpace(string(boot)), User: os.Getuid()}
}

// bootNow is the time since boot, in the clock that kernel events carry.
func bootNow() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}

func bootOffset() int64 { return time.Now().UnixNano() - int64(bootNow()) }

func bounded(ctx context.Context, d kind.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d.D())
}
