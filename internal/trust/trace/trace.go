// Package trace finds out from traces what an agent did for each probe: it keeps what is received over OTLP or fetched
// from MLflow, joins it with the probes and says how surely.
package trace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

// Conversation is what belongs together by the traces' own account: one trace, or the log records of one session.
type Conversation struct {
	ID       string // trace id; "session:…" for log records without one
	Spans    []otlp.Span
	Logs     []otlp.Log
	Sessions []string // beside those in attributes
	Texts    []string // beside those in attributes: MLflow's request preview
	Start    time.Time
	Cut      bool // there was more of it than is kept
}

// Source is where traces come from.
type Source interface {
	Name() string
	// Conversations returns what is there now of what began since then.
	Conversations(ctx context.Context, since time.Time) ([]Conversation, error)
}

// Most spans and log records that are kept of one trace, and traces in all: a sender isn't trusted.
const (
	mostSpans  = 20_000
	mostTraces = 50_000
)

// Store keeps what was received over OTLP. Its Sink is given to [otlp.Serve].
type Store struct {
	mu     sync.Mutex
	traces map[string]*Conversation
	file   *os.File // nil: memory alone
	size   int64
	failed error // of writing to it
}

// mostBytes bounds the file of a store.
const mostBytes = 1 << 30

// received is a line of a store's file.
type received struct {
	Spans []otlp.Span `json:"spans,omitempty"`
	Logs  []otlp.Log  `json:"logs,omitempty"`
}

// Keep makes the store keep what it receives in a file, too, from now on, and takes up what stands there: traces outlive an
// auditor that is killed. A last line that was cut off is removed.
func (s *Store) Keep(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		return fmt.Errorf("keeping traces in %s: they are kept in %s already", path, s.file.Name())
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("keeping traces: %w", err)
	}
	before := s.all()
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var one received
		if err == nil {
			err = json.Unmarshal(line, &one)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("taking up the traces in %s, byte %d: %w", path, s.size, err), f.Close())
		}
		s.size += int64(len(line))
		s.put(one)
	}
	err = f.Truncate(s.size)
	if err == nil {
		_, err = f.Seek(s.size, io.SeekStart)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keeping traces: %w", err), f.Close())
	}
	s.file = f
	s.write(before)
	return s.failed
}

// all is what was received before there was a file.
func (s *Store) all() (out received) {
	for _, c := range s.traces {
		out.Spans, out.Logs = append(out.Spans, c.Spans...), append(out.Logs, c.Logs...)
	}
	return out
}

// write appends to the file.
func (s *Store) write(x received) {
	if s.file == nil || s.failed != nil || len(x.Spans)+len(x.Logs) == 0 {
		return
	}
	b, err := json.Marshal(x)
	if err == nil && s.size+int64(len(b)) > mostBytes {
		return // a flood; what is in memory counts, and an audit taken up later finds less
	}
	if err == nil {
		_, err = s.file.Write(append(b, '\n'))
	}
	if err != nil {
		s.failed = fmt.Errorf("keeping traces in %s: %w", s.file.Name(), err)
	}
	s.size += int64(len(b)) + 1
}

// Close closes the file, if there is one.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.failed, s.file.Close())
	s.file = nil
	return err
}

// Name says where its traces come from.
func (s *Store) Name() string { return "otlp" }

// Sink takes spans and log records.
func (s *Store) Sink(spans []otlp.Span, logs []otlp.Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(received{spans, logs})
	s.put(received{spans, logs})
}

func (s *Store) put(x received) {
	spans, logs := x.Spans, x.Logs
	if s.traces == nil {
		s.traces = map[string]*Conversation{}
	}
	for i := range spans {
		if spans[i].Trace == "" {
			continue // it can't be told what it belongs to
		}
		switch c := s.get(spans[i].Trace, spans[i].Start); {
		case c == nil: // too many traces: probes find none of their own
		case len(c.Spans) < mostSpans:
			c.Spans = append(c.Spans, spans[i])
		default:
			c.Cut = true
		}
	}
	for i := range logs {
		id := logs[i].Trace
		if id == "" {
			a := otlp.Read(nil, logs[i:i+1])
			if len(a.Sessions) == 0 {
				continue // it can't be told what it belongs to
			}
			id = "session:" + a.Sessions[0]
		}
		switch c := s.get(id, logs[i].Time); {
		case c == nil:
		case len(c.Logs) < mostSpans:
			c.Logs = append(c.Logs, logs[i])
		default:
			c.Cut = true
		}
	}
}

func (s *Store) get(id string, at time.Time) *Conversation {
	c := s.traces[id]
	if c == nil && len(s.traces) < mostTraces && id != "" {
		c = &Conversation{ID: id, Start: at}
		s.traces[id] = c
	}
	if c != nil && !at.IsZero() && at.Before(c.Start) {
		c.Start = at
	}
	return c
}

// Conversations returns what was received.
func (s *Store) Conversations(_ context.Context, since time.Time) ([]Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	var out []Conversation
	for _, c := range s.traces {
		if !c.Start.Before(since) || c.Start.IsZero() {
			d := *c
			d.Spans, d.Logs = slices.Clone(c.Spans), slices.Clone(c.Logs)
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Conversation) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// conv is a conversation with what it says.
type conv struct {
	*Conversation
	a     otlp.Account
	texts []string // normalised
}

// slack is how much a trace's clock may differ from ours where only time joins.
const slack = 500 * time.Millisecond

// Correlate joins conversations with exchanges. Each conversation belongs to the exchange that the best method names; by
// time alone only where no other exchange was going on.
func Correlate(source string, probes map[string]*trust.Probe, xs []*trust.Exchange, list []Conversation) map[string]trust.Calls {
	convs := make([]conv, len(list))
	for i := range list {
		c := conv{Conversation: &list[i], a: otlp.Read(list[i].Spans, list[i].Logs)}
		for _, t := range append(slices.Clone(list[i].Texts), c.a.Texts...) {
			c.texts = append(c.texts, normal(t))
		}
		convs[i] = c
	}
	type join struct {
		method string
		convs  []*conv
	}
	joins := map[string]*join{}
	taken := make([]bool, len(convs))
	pass := func(method string, match func(x *trust.Exchange, c *conv) bool) {
		for i := range convs {
			if taken[i] {
				continue
			}
			var to *trust.Exchange
			n := 0
			for _, x := range xs {
				if match(x, &convs[i]) {
					to = x
					n++
				}
			}
			if n != 1 {
				continue // nobody's, or it can't be told whose
			}
			taken[i] = true
			j := joins[to.Probe]
			if j == nil {
				j = &join{method: method}
				joins[to.Probe] = j
			}
			j.convs = append(j.convs, &convs[i])
		}
	}
	pass(trust.ByTraceparent, func(x *trust.Exchange, c *conv) bool { return x.Trace != "" && x.Trace == c.ID })
	pass(trust.BySession, func(x *trust.Exchange, c *conv) bool {
		return x.Session != "" && (c.ID == "session:"+x.Session || slices.Contains(c.Sessions, x.Session) || slices.Contains(c.a.Sessions, x.Session))
	})
	// A probe may be part of another's text: those whose text is the same go first.
	for _, same := range []func(text, want string) bool{func(text, want string) bool { return text == want }, strings.Contains} {
		pass(trust.ByText, func(x *trust.Exchange, c *conv) bool {
			p := probes[x.Probe]
			if p == nil {
				return false
			}
			want := normal(p.Text)
			during := c.Start.IsZero() || !c.Start.Before(x.Started.Add(-slack)) && !c.Start.After(x.Ended.Add(slack))
			return len(want) >= 8 && during && slices.ContainsFunc(c.texts, func(t string) bool { return same(t, want) })
		})
	}
	pass(trust.ByTime, func(x *trust.Exchange, c *conv) bool {
		return joins[x.Probe] == nil && !c.Start.IsZero() && !c.Start.Before(x.Started.Add(-slack)) && !c.Start.After(x.Ended.Add(slack))
	})
	out := map[string]trust.Calls{}
	for _, x := range xs {
		c := trust.Calls{Probe: x.Probe, Source: source, Why: "no trace could be told to be this probe's"}
		if j := joins[x.Probe]; j != nil {
			c = callsOf(x, source, j.method, j.convs)
		}
		out[x.Probe] = c
	}
	return out
}

// callsOf sums up the conversations of one probe.
func callsOf(x *trust.Exchange, source, method string, convs []*conv) trust.Calls {
	c := trust.Calls{Probe: x.Probe, Source: source, Found: true, Complete: true, Method: method, Confidence: trust.Confidence[method]}
	// Where the trace that was asked for is there, it tells whether all is: others are of tries that failed, whose parents
	// nobody knows any more. What was done in those counts.
	own := x.Trace != "" && slices.ContainsFunc(convs, func(v *conv) bool { return v.ID == x.Trace })
	for _, v := range convs {
		c.Traces = append(c.Traces, v.ID)
		c.Spans += len(v.Spans) + len(v.Logs)
		if len(v.Spans) > 0 && (!own || v.ID == x.Trace) && !otlp.HasRoot(v.Spans, x.Span) {
			c.Complete, c.Why = false, "the trace's root span isn't there yet"
		}
		if v.Cut {
			c.Complete, c.Why = false, "there are more spans than are kept"
		}
		for _, t := range v.a.Calls {
			c.Calls = append(c.Calls, trust.Call{Tool: t.Tool, ID: t.ID, Span: t.Span, Failed: t.Failed, Agent: t.Agent, Args: clip(t.Args), At: t.At, By: t.Rule})
		}
		for _, o := range v.a.Offered {
			if !slices.ContainsFunc(c.Offered, func(x trust.Tool) bool { return x.Name == o.Name }) {
				c.Offered = append(c.Offered, trust.Tool{Name: o.Name, Description: o.Description, Schema: o.Schema})
			}
		}
	}
	return c
}

// clip bounds the arguments that are kept of a call.
func clip(s string) string {
	const most = 4096
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// normal makes texts comparable whatever their spaces, case and JSON escapes.
func normal(s string) string {
	s = strings.NewReplacer(`\n`, " ", `\"`, `"`, `\u0026`, "&", `\u003c`, "<", `\u003e`, ">", `\u2019`, "’").Replace(s)
	return strings.ToLower(strings.Join(strings.Fields(s), " "))
}

// Wait asks the source until every exchange has a complete trace whose spans don't grow any more, or the time is over,
// and returns what there is then.
func Wait(ctx context.Context, s Source, probes map[string]*trust.Probe, xs []*trust.Exchange, most time.Duration) (map[string]trust.Calls, error) {
	var since time.Time
	for _, x := range xs {
		if since.IsZero() || x.Started.Before(since) {
			since = x.Started
		}
	}
	since = since.Add(-10 * time.Second)
	deadline := time.Now().Add(most)
	var last map[string]trust.Calls
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		list, err := s.Conversations(ctx, since)
		if err != nil {
			return nil, fmt.Errorf("reading traces from %s: %w", s.Name(), err)
		}
		now := Correlate(s.Name(), probes, xs, list)
		if settled(xs, last, now) || time.Now().After(deadline) {
			for id, c := range now {
				if c.Found && last != nil && last[id].Spans != c.Spans {
					c.Complete, c.Why = false, "spans were still coming when the wait was over"
					now[id] = c
				}
			}
			return now, nil
		}
		last = now
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// settled tells whether nothing is missing and nothing has changed.
func settled(xs []*trust.Exchange, last, now map[string]trust.Calls) bool {
	if last == nil {
		return false
	}
	for _, x := range xs {
		if x.Error != "" {
			continue // there may be none
		}
		c := now[x.Probe]
		if !c.Found || !c.Complete || c.Spans != last[x.Probe].Spans {
			return false
		}
	}
	return true
}
