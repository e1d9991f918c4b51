package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
)

// Cause is one step of a causal chain, from what happened back to what led to it.
type Cause struct {
	// What it is: event, parent (the process that started the event's), call (the agent's tool call), source (content
	// that the agent had before it), upstream (a call whose output was in the context), delegation (who asked).
	What   string          `json:"what"`
	Depth  int             `json:"depth"` // steps from the event
	Record *uint64         `json:"record,omitempty"`
	Event  uint64          `json:"event,omitempty"`
	Text   string          `json:"text"` // one line for people
	Why    string          `json:"why"`  // how it is known
	Value  json.RawMessage `json:"value,omitempty"`
}

// maxChain bounds a chain: the links are the agent's own claims and may go in circles.
const maxChain = 1000

// Why follows an event of a run, by its number, back to what led to it.
func Why(ctx context.Context, r *store.Run, lr *ledger.Reader, event uint64) ([]Cause, error) {
	w := &tracer{ctx: ctx, lr: lr}
	if err := w.loadActions(); err != nil {
		return nil, err
	}
	if err := w.event(r, event); err != nil {
		return nil, fmt.Errorf("following event %d back: %w", event, err)
	}
	if i := slices.IndexFunc(w.actions, func(a sealedAction) bool { return linked(&a.Action, event) }); i >= 0 {
		a := &w.actions[i]
		how := fmt.Sprintf("the event is linked to the call (confidence %.2f)", a.Effects.Confidence)
		w.action(a, w.depth(), how)
	} else {
		w.chain = append(w.chain, Cause{What: "call", Depth: w.depth(), Text: "none", Why: "no call of the agent's account is linked to the event"})
	}
	return w.chain, nil
}

// WhyRecord follows an action, by its record's number, back to what led to it.
func WhyRecord(ctx context.Context, lr *ledger.Reader, record uint64) ([]Cause, error) {
	w := &tracer{ctx: ctx, lr: lr}
	if err := w.loadActions(); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(w.actions, func(a sealedAction) bool { return a.rec.Seq == record })
	if i < 0 {
		return nil, fmt.Errorf("record %d is no action that can be read", record)
	}
	w.action(&w.actions[i], 0, "asked for")
	return w.chain, nil
}

type sealedAction struct {
	bodycam.Action
	rec *ledger.ReadRecord
}

type tracer struct {
	ctx     context.Context
	lr      *ledger.Reader
	actions []sealedAction
	chain   []Cause
	seen    map[uint64]bool
}

func (w *tracer) depth() int {
	if len(w.chain) == 0 {
		return 0
	}
	return w.chain[len(w.chain)-1].Depth + 1
}

// loadActions reads every action that a key at hand opens.
func (w *tracer) loadActions() error {
	for rec, err := range w.lr.Records(0) {
		if err != nil {
			return err
		}
		if rec.Type != store.RecordAction {
			continue
		}
		b, err := w.lr.Payload(rec)
		if errors.Is(err, ledger.ErrErased) || errors.Is(err, ledger.ErrNoKey) {
			continue
		}
		if err != nil {
			return err
		}
		a, err := payload.ParseAction(b)
		if err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		w.actions = append(w.actions, sealedAction{Action: *a, rec: rec})
	}
	return w.ctx.Err()
}

func linked(a *bodycam.Action, event uint64) bool {
	return slices.ContainsFunc(a.Effects.Events, func(r [2]uint64) bool { return event >= r[0] && event <= r[1] })
}

// proc is a process as far as the events tell.
type proc struct {
	exe    string
	argv   []string
	parent bodycam.Proc
	event  uint64 // that started its program
}

// event puts the event and its process's ancestors into the chain.
func (w *tracer) event(r *store.Run, n uint64) error {
	procs := map[bodycam.Proc]*proc{}
	var found *bodycam.Event
	errFound := errors.New("found")
	err := r.Events(func(e *bodycam.Event) error {
		p := procs[e.Proc]
		if p == nil {
			p = &proc{}
			procs[e.Proc] = p
		}
		if e.Parent.PID != 0 {
			p.parent = e.Parent
		}
		if e.Exe != "" {
			p.exe = e.Exe
		}
		switch {
		case e.Type == bodycam.TypeExec && e.Errno == 0:
			p.argv, p.event = slices.Clone(e.Argv), e.Seq
		case e.Type == bodycam.TypeFork && e.Child.PID != 0 && e.Child != e.Proc:
			if procs[e.Child] == nil {
				procs[e.Child] = &proc{exe: p.exe, argv: p.argv, parent: e.Proc, event: e.Seq}
			}
		}
		if e.Seq == n {
			c := *e
			found = &c
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return err
	}
	if found == nil {
		return errors.New("the run has no such event, or it was erased")
	}
	raw := found.AppendJSON(nil)
	w.chain = append(w.chain, Cause{What: "event", Event: n, Text: describe(found), Why: "asked for", Value: raw})
	return w.ancestors(procs, found.Proc)
}

func (w *tracer) ancestors(procs map[bodycam.Proc]*proc, at bodycam.Proc) error {
	for seen := map[bodycam.Proc]bool{}; !seen[at] && len(w.chain) < maxChain; {
		seen[at] = true
		p := procs[at]
		if p == nil {
			return nil
		}
		text := fmt.Sprintf("pid %d %s", at.PID, bodycam.Printable(p.exe))
		for _, a := range p.argv {
			text += " " + bodycam.Printable(a)
			if len(text) > 200 {
				text += " …"
				break
			}
		}
		why := "the kernel saw it do so"
		if len(w.chain) > 1 {
			why = "the kernel saw it start the process before"
		}
		w.chain = append(w.chain, Cause{What: "process", Depth: w.depth(), Event: p.event, Text: text, Why: why})
		if p.parent.PID == 0 {
			return nil
		}
		at = p.parent
	}
	return nil
}

func describe(e *bodycam.Event) string {
	text := fmt.Sprintf("%s by pid %d %s", e.Type, e.Proc.PID, bodycam.Printable(e.Exe))
	for _, s := range []string{e.Path, e.Path2, e.Host, e.Addr()} {
		if s != "" {
			text += " " + bodycam.Printable(s)
		}
	}
	return text
}

// action puts a call into the chain, then who delegated it, what the agent had before it, and the calls before it
// whose output it had.
func (w *tracer) action(a *sealedAction, depth int, how string) {
	if w.seen == nil {
		w.seen = map[uint64]bool{}
	}
	if w.seen[a.rec.Seq] || len(w.chain) >= maxChain {
		return
	}
	w.seen[a.rec.Seq] = true
	seq := a.rec.Seq
	text := bodycam.Printable(a.Intent.Tool)
	if a.Execution.Command != "" {
		text += ": " + bodycam.Printable(a.Execution.Command)
	}
	what := "call"
	if depth > 0 && how != "" && len(w.seen) > 1 {
		what = "upstream"
	}
	value, err := json.Marshal(&a.Action)
	if err != nil {
		value = nil // its arguments aren't the JSON that they are said to be
	}
	w.chain = append(w.chain, Cause{What: what, Depth: depth, Record: &seq, Text: text, Why: how, Value: value})
	if d := a.Delegation; d != nil {
		text := "asked for by " + bodycam.Printable(d.Requester)
		if d.Scope != "" {
			text += " within " + bodycam.Printable(d.Scope)
		}
		why := "the call's delegation says so"
		if d.Parent != "" {
			why = fmt.Sprintf("the call names record %.16s… of the requester's log %.16s…: hold it against that log", bodycam.Printable(d.Parent), bodycam.Printable(d.Log))
		}
		w.chain = append(w.chain, Cause{What: "delegation", Depth: depth + 1, Record: &seq, Text: text, Why: why})
	}
	for _, s := range a.Context.Sources {
		w.chain = append(w.chain, Cause{What: "source", Depth: depth + 1, Record: &seq, Text: bodycam.Printable(s.Name) + " " + bodycam.Printable(s.SHA256), Why: "it was in the agent's context"})
	}
	for _, n := range a.Context.Upstream {
		if i := slices.IndexFunc(w.actions, func(b sealedAction) bool { return b.rec.Seq == n }); i >= 0 {
			w.action(&w.actions[i], depth+1, fmt.Sprintf("its output was in the context of record %d", seq))
		} else if !w.seen[n] {
			w.seen[n] = true
			w.chain = append(w.chain, Cause{What: "upstream", Depth: depth + 1, Record: &n, Text: "record that can't be read", Why: fmt.Sprintf("its output was in the context of record %d", seq)})
		}
	}
}
