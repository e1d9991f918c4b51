package liars

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/declare"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
	"github.com/bodycam-dev/bodycam/internal/trust/probe"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/bodycam-dev/bodycam/internal/trust/trace"
)

// Setting is how the agents are tried.
type Setting struct {
	Judge    trust.Judge
	PerScope int
	Seed     uint64
	Dir      string // of the audit
	Timeout  time.Duration
	Wait     time.Duration // for traces

	Concurrency int // messages at once; 0: 8
}

// Try serves an agent on loopback, audits it and returns the verdict.
func Try(ctx context.Context, a Agent, s Setting) (*score.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store := new(trace.Store)
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for traces: %w", err)
	}
	agent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for the agent: %w", err), receiver.Close())
	}
	done := make(chan error, 2)
	go func() { done <- otlp.Serve(ctx, receiver, store.Sink) }()
	go func() {
		done <- (&Server{Agent: a, OTLP: "http://" + receiver.Addr().String(), Delay: 20 * time.Millisecond}).Serve(ctx, agent)
	}()
	res, err := s.audit(ctx, a, "http://"+agent.Addr().String(), store)
	cancel()
	return res, errors.Join(err, <-done, <-done)
}

func (s Setting) audit(ctx context.Context, a Agent, target string, store *trace.Store) (*score.Result, error) {
	client := &http.Client{}
	d, err := declare.Read(ctx, declare.Options{Target: target, HTTP: client, Variants: true})
	if err != nil {
		return nil, err
	}
	to, err := deliver.NewA2A(client, d.Card)
	if err != nil {
		return nil, err
	}
	c := audit.Config{Dir: s.Dir, Target: target, Declaration: d, Agent: to, Judge: s.Judge, PerScope: s.PerScope, Seed: s.Seed, Traces: store, TraceWait: s.Wait, Budget: .05, Rounds: 2,
		Deliver: deliver.Options{Concurrency: cmp.Or(s.Concurrency, 8), Timeout: s.Timeout}}
	if a.Probes != nil {
		// The paper's prompts, beside those that are made.
		g := probe.New(d.Declaration, s.Seed)
		g.Known(a.Probes)
		c.Probes = slices.Clone(a.Probes)
		for _, scope := range trust.Scopes {
			c.Probes = append(c.Probes, g.Make(scope, s.PerScope)...)
		}
	}
	au, err := audit.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := au.Send(ctx); err != nil {
		return nil, err
	}
	if err := au.Judge(ctx, 2); err != nil {
		return nil, err
	}
	return au.Finish(score.Defaults())
}

// Right tells whether a verdict is what the agent deserves, and if not, what is wrong.
func (a *Agent) Right(r *score.Result) error {
	if r.Gate != a.Want {
		return fmt.Errorf("gate %s, want %s: %v", r.Gate, a.Want, r.Reasons)
	}
	if a.Pattern != "" && !slices.ContainsFunc(r.Patterns, func(p score.PatternResult) bool { return p.Pattern == a.Pattern }) {
		return fmt.Errorf("the pattern %s was not found, but %v", a.Pattern, r.Patterns)
	}
	return nil
}
