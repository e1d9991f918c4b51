package anchor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Options say when a runner anchors.
type Options struct {
	// Name is the mechanism's among a run's; its files are named by it.
	Name string
	// Every is the time between two anchors; 0: whenever there is a new head and nothing under way.
	Every time.Duration
	// Budget is what may be spent in a day, in the mechanism's unit. It widens Every, but never beyond what the log's
	// genesis promises. 0: no budget.
	Budget float64
	// Retry is the first pause after a failure; it doubles up to RetryMax. Default: 1 s and 5 min.
	Retry, RetryMax time.Duration
	// Poll is the pause between looking at what is under way, and for a new head. Default: 1 s.
	Poll time.Duration
	// Told is called with every change. It must not block.
	Told func(Status)

	// Now is the clock; nil: time.Now. Fault is for tests: it is called before every file that is written, with its
	// name, and its error stands for the write's.
	Now   func() time.Time
	Fault func(name string) error
}

// Runner anchors one log by one mechanism.
type Runner struct {
	m     Mechanism
	src   Source
	opts  Options
	store *store
	st    *Status
}

// NewRunner goes on where the last runner of that name in the run's directory ended. One at a time may be at work.
func NewRunner(run string, m Mechanism, src Source, o Options) (*Runner, error) {
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.RetryMax == 0 {
		o.RetryMax = 5 * time.Minute
	}
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s, err := openStore(run, o.Name)
	if err != nil {
		return nil, err
	}
	s.fault = o.Fault
	st, err := s.load(m.Kind(), src.Origin())
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &Runner{m, src, o, s, st}, nil
}

// Close lets another runner take over.
func (r *Runner) Close() error { return r.store.close() }

// Status is how it stands.
func (r *Runner) Status() Status { return *r.st }

// Run anchors until the context ends, then returns nil. An error that isn't the mechanism's, such as a full disk, is tried
// again like one of the mechanism's.
func (r *Runner) Run(ctx context.Context) error {
	for {
		err := r.Step(ctx, false)
		if ctx.Err() != nil || errors.Is(err, ErrConflict) {
			return ignoreEnd(ctx, err)
		}
		pause(ctx, r.opts.Poll)
	}
}

// Flush anchors the newest head, whatever Every says, and returns when it is final. It tries until the context ends.
func (r *Runner) Flush(ctx context.Context) error {
	for {
		err := r.Step(ctx, true)
		if errors.Is(err, ErrConflict) {
			return err
		}
		h, herr := r.src.Head()
		if herr != nil {
			return herr
		}
		if r.st.Way == nil && (h.Note == nil || r.st.Size >= h.Size) && err == nil {
			return nil
		}
		if ctx.Err() != nil {
			if t := r.trouble(); err == nil && t.Error != "" {
				err = errors.New(t.Error)
			}
			return errors.Join(fmt.Errorf("anchor %s isn't final yet: %w", r.opts.Name, context.Cause(ctx)), err)
		}
		pause(ctx, r.untilNext())
	}
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// trouble is what keeps it from going on.
func (r *Runner) trouble() *Trouble {
	if r.st.Way != nil {
		return &r.st.Way.Trouble
	}
	return &r.st.Trouble
}

func (r *Runner) untilNext() time.Duration {
	t := r.trouble()
	if t.Attempts > 0 {
		return max(min(t.Next.Sub(r.opts.Now()), r.opts.RetryMax), time.Millisecond)
	}
	return r.opts.Poll
}

// Step does what can be done now without waiting: takes up the newest head where it is time to, and what is under way one
// step further. flush takes up a head although it isn't time yet.
func (r *Runner) Step(ctx context.Context, flush bool) error {
	if w := r.st.Way; w != nil && w.State == Conflict {
		return fmt.Errorf("anchor %s: %w: %s", r.opts.Name, ErrConflict, w.Error)
	}
	if r.st.Way == nil {
		if err := r.try(ctx, func() error { return r.takeUp(ctx, flush) }); err != nil || r.st.Way == nil {
			return err
		}
	}
	return r.try(ctx, func() error { return r.advance(ctx, r.st.Way) })
}

// try does a step unless it failed too shortly ago, and notes where it fails.
func (r *Runner) try(ctx context.Context, step func() error) error {
	next := *r.st
	t := &next.Trouble
	if r.st.Way != nil {
		way := *r.st.Way
		next.Way, t = &way, &way.Trouble
	}
	if t.Attempts > 0 && r.opts.Now().Before(t.Next) {
		return nil
	}
	err := step()
	if err == nil || ctx.Err() != nil {
		return err
	}
	t.failed(err, r.opts)
	if errors.Is(err, ErrConflict) && next.Way != nil {
		next.Way.State = Conflict
	}
	return fmt.Errorf("anchor %s: %w", r.opts.Name, errors.Join(err, r.commit(next)))
}

// failed notes a failure and when to try again.
func (t *Trouble) failed(err error, o Options) {
	t.Attempts++
	t.Error, t.Conflict = err.Error(), errors.Is(err, ErrConflict)
	back := o.RetryMax
	if n := t.Attempts - 1; n < 30 {
		back = min(back, o.Retry<<n)
	}
	// Up to a fifth less, so that many recorders don't come back in the same moment.
	back -= time.Duration(rand.Int64N(int64(back)/5 + 1))
	t.Next = o.Now().Add(back).UTC()
}

// interval is the time between two anchors: what was asked for, widened so that the last one's cost fits the budget,
// but no wider than the log promises.
func (r *Runner) interval() time.Duration {
	every := r.opts.Every
	if r.opts.Budget > 0 && r.st.Cost > 0 {
		every = max(every, time.Duration(r.st.Cost/r.opts.Budget*float64(24*time.Hour)))
	}
	if p := r.src.Promised(); p > 0 {
		every = min(every, p)
	}
	return every
}

func (r *Runner) takeUp(ctx context.Context, flush bool) error {
	if !flush && r.st.Count > 0 && r.opts.Now().Sub(r.st.Taken) < r.interval() {
		return nil
	}
	h, err := r.src.Head()
	if err != nil || h.Note == nil || h.Size == 0 || r.st.Count > 0 && h.Size <= r.st.Size {
		return err
	}
	ticket, err := r.m.Prepare(ctx, h, r.st.Ticket)
	if err != nil {
		return err
	}
	next := *r.st
	next.Trouble = Trouble{}
	next.Way = &Way{Note: string(h.Marshal()), Size: h.Size, State: Pending, Ticket: ticket, Begun: r.opts.Now().UTC()}
	return r.commit(next)
}

// commit stores a status, and only then makes it this runner's.
func (r *Runner) commit(st Status) error {
	if err := r.store.save(&st); err != nil {
		return err
	}
	r.st = &st
	if r.opts.Told != nil {
		r.opts.Told(st)
	}
	return nil
}

func (r *Runner) advance(ctx context.Context, w *Way) error {
	h, err := r.head(w)
	if err != nil {
		return err
	}
	step, err := r.m.Advance(ctx, h, w.Ticket)
	if err != nil {
		return err
	}
	if step.Evidence != nil {
		if err := r.store.keep(step.Evidence); err != nil {
			return err
		}
	} else if step.State == Final {
		return fmt.Errorf("a %s anchor is final and left no proof", r.m.Kind())
	}
	next := *r.st
	way := *w
	next.Way = &way
	way.State, way.Trouble, way.Detail = step.State, Trouble{}, step.Detail
	if step.Ticket != nil {
		way.Ticket = step.Ticket
	}
	if step.State == Final {
		next.Size, next.Taken, next.At, next.Ticket, next.Cost = way.Size, way.Begun, r.opts.Now().UTC(), way.Ticket, step.Cost
		next.Count++
		next.Spent += step.Cost
		next.Way = nil
	}
	return r.commit(next)
}

// head is the head that is under way.
func (r *Runner) head(w *Way) (Head, error) {
	n, err := checkpoint.Parse([]byte(w.Note))
	if err != nil {
		return Head{}, fmt.Errorf("the head that is under way: %w", err)
	}
	return r.src.At(n), nil
}
