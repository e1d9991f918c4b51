package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/bpf"
	"github.com/bodycam-dev/bodycam/internal/sensor/names"
	"github.com/bodycam-dev/bodycam/internal/sensor/ptrace"
)

// The sensors that a plan can ask for.
const (
	sensorAuto       = "auto"
	sensorBPF        = "bpf"
	sensorPtrace     = "ptrace"
	sensorCrossCheck = "cross-check"
)

// prompt is how late an event may be where it may end the run. Twice as prompt would cost the agent 1 % of a processor.
const prompt = 20 * time.Millisecond

// sensors says which kernel sensors observe a run.
type sensors struct {
	bpf, ptrace bool
	cross       bool // both, and their disagreements are findings
	auto        bool // bpf where the kernel has it, else ptrace
	note        string
}

// chooseSensors reads what a plan asks for. "auto" is bpf for root, where the kernel has it, and ptrace for others.
func chooseSensors(want []string) (c sensors, err error) {
	if len(want) == 0 {
		want = []string{sensorAuto}
	}
	for _, name := range want {
		switch name {
		case sensorAuto:
			if os.Geteuid() == 0 {
				c.bpf, c.auto = true, true
			} else {
				c.ptrace, c.note = true, "not root: the ptrace sensor observes, which is slower and doesn't count bytes of files"
			}
		case sensorBPF:
			c.bpf = true
		case sensorPtrace:
			c.ptrace = true
		case sensorCrossCheck:
			c.bpf, c.ptrace, c.cross = true, true, true
		default:
			return c, fmt.Errorf("sensor %q: want auto, bpf, ptrace or cross-check", name)
		}
	}
	if c.bpf && os.Geteuid() != 0 {
		return c, errors.New("the bpf sensor needs root: run with sudo, or with --sensor ptrace")
	}
	if c.bpf && c.ptrace {
		c.cross = true
	}
	return c, nil
}

// observe attaches the sensors to the agent's part of the sandbox.
func (s *run) observe(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.undo = append(s.undo, func() error { cancel(); return s.obs.stop() })
	c, err := chooseSensors(s.plan.Sensors)
	if err != nil {
		return err
	}
	if s.unguard, err = s.guard(); err != nil {
		return err
	}
	s.undo = append(s.undo, func() error { s.unguard(); return nil })
	if c.note != "" {
		s.note("%s", c.note)
	}
	joiner := names.NewJoiner(s.obs.sink, names.JoinerOptions{Hosts: boxHosts()})
	s.joiner.Store(joiner)
	s.obs.uid = s.box.InsideUID
	if s.obs.refused, err = refusals(s.plan.Seccomp); err != nil {
		return err
	}
	if s.o.Unobserved {
		s.obs.health = append(s.obs.health, bodycam.Health{Sensor: "kernel", Failed: "left out on request: this run is not observed"})
		return nil
	}
	target := sensor.Target{Cgroup: s.box.Cgroup(sandbox.GroupAgent)}
	sink := sensor.Sink(joiner.Kernel)
	if c.cross {
		s.cross = &crossCheck{}
		sink = s.cross.tee(&s.cross.bpf, sink)
	}
	if c.bpf {
		err := s.startBPF(ctx, target, sink)
		var kernel bpf.KernelError
		if c.auto && !c.ptrace && errors.As(err, &kernel) {
			s.note("the ptrace sensor observes, which is slower and doesn't count bytes of files, since this kernel has no eBPF for it: %v", kernel)
			c.ptrace = true
		} else if err != nil {
			return err
		}
	}
	if c.ptrace {
		var o ptrace.Options
		if c.cross {
			// The record is bpf's, and this is held against it. What a tracer refuses has lost its number when bpf hears of it.
			sink = s.cross.tee(&s.cross.ptrace, nil)
		} else if o.Refuses, err = seccomp.Program(seccomp.Mode(s.plan.Seccomp)); err != nil {
			return err
		}
		p := ptrace.New(o)
		if err := s.obs.start(ctx, p, target, sink); err != nil {
			return err
		}
		s.tracer = p
	}
	return nil
}

// startBPF attaches the bpf sensor.
func (s *run) startBPF(ctx context.Context, t sensor.Target, sink sensor.Sink) error {
	var o bpf.Options
	if s.o.Stops {
		o.Within = prompt
	}
	b, err := bpf.New(o)
	if err != nil {
		return fmt.Errorf("the bpf sensor: %w", err)
	}
	return s.obs.start(ctx, b, t, sink)
}

// trace has the agent's first process, and so all that it starts, traced, where the plan asks for it.
func (s *run) trace(cmd *sandbox.Cmd) {
	if s.tracer == nil {
		return
	}
	cmd.Attach = s.tracer.Attach
	cmd.Filter, cmd.Refuses = s.tracer.ChildFilter(), s.cross == nil
}

// blind names what a tracer beside the bpf sensor can't see because the sandbox's own filter comes first.
func (s *run) blind(h []bodycam.Health) {
	for i := range h {
		if h[i].Sensor == "ptrace" && s.cross != nil {
			h[i].Blind = append(h[i].Blind, bodycam.Blind{What: "refused-calls", Inherent: true,
				Why: "calls that the sandbox's seccomp filter refuses don't reach the tracer, the bpf sensor alone records them"})
		}
	}
}

// crossCheck keeps what two sensors saw of one run.
type crossCheck struct {
	bpf, ptrace []bodycam.Event
	cut         bool // more came than is kept: no comparison
}

// mostCrossed bounds the events kept of each sensor.
const mostCrossed = 2_000_000

func (c *crossCheck) tee(into *[]bodycam.Event, next sensor.Sink) sensor.Sink {
	return func(e *bodycam.Event) error {
		if len(*into) < mostCrossed {
			*into = append(*into, *e)
		} else {
			c.cut = true
		}
		if next == nil {
			return nil
		}
		return next(e)
	}
}

// findings are the disagreements: one sensor was blind to, or deceived about, what the other saw.
func (c *crossCheck) findings() []bodycam.Finding {
	if c == nil {
		return nil
	}
	if c.cut {
		return []bodycam.Finding{{Analysis: "cross-check", Rule: "cross-check", Severity: bodycam.Info, Count: 1, Verdict: "undecidable",
			Title: "the record is too large for the sensors to be held against each other"}}
	}
	out := []bodycam.Finding{}
	for _, d := range sensor.CrossCheck(c.bpf, c.ptrace) {
		out = append(out, bodycam.Finding{Analysis: "cross-check", Rule: "sensors-disagree", Severity: bodycam.Medium, Count: d.Count,
			Title:    fmt.Sprintf("%s saw %s %s by process %d, %s did not", d.Seen, d.Verb, bodycam.Escape(d.Resource.Name), d.Proc.PID, d.Missed),
			Resource: bodycam.Escape(d.Resource.Name)})
	}
	return out
}
