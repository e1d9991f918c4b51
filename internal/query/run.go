package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
)

// Options say how to look.
type Options struct {
	Index bool   // use the run's index, and make it where it isn't there; not for runs without working copies
	From  uint64 // first record of the range
	To    uint64 // last one; 0: the log's last
	Limit int    // answers; 0: all
}

// Answer is something that an expression holds for.
type Answer struct {
	Record uint64          `json:"record"`
	Index  int             `json:"index"` // within a batch; -1: the record is none
	Event  uint64          `json:"event,omitempty"`
	Type   string          `json:"type"`
	Kind   string          `json:"kind"`
	Wall   int64           `json:"wall"`
	Value  json.RawMessage `json:"value,omitempty"` // nil: its payload isn't at hand, or wasn't asked for
}

// Scope says what an answer covers, so that its silence can be judged.
type Scope struct {
	From    uint64 `json:"from"` // first record
	To      uint64 `json:"to"`   // last record
	Records uint64 `json:"records"`
	Looked  uint64 `json:"looked"` // records whose documents were evaluated
	Closed  uint64 `json:"closed"` // payloads that no key at hand opens
	Erased  uint64 `json:"erased"` // payloads, or events of them, whose keys were destroyed
	// Unsealed records at the end are under no checkpoint.
	Unsealed uint64 `json:"unsealed,omitempty"`
	// Exhaustive: the expression was decided for all that was ever recorded in the range.
	Exhaustive bool   `json:"exhaustive"`
	Why        string `json:"why,omitempty"` // why it isn't
}

// Result is what a query comes to.
type Result struct {
	Answers []Answer `json:"answers"`
	Scope   Scope    `json:"scope"`
}

// Run evaluates an expression over a run's ledger. Where it names a field that nothing in the log has and nothing that
// bodycam records can have, or compares one with what it can't be, the error is a [*SyntaxError].
func Run(ctx context.Context, r *store.Run, lr *ledger.Reader, x *Expr, o Options) (*Result, error) {
	if err := x.check(ctx, lr); err != nil {
		return nil, fmt.Errorf("looking through the ledger of %s: %w", r.Dir, err)
	}
	q := &runner{x: x, o: o, lr: lr, open: newOpener(lr), body: x.NeedsBody(), only: candidates{all: true}}
	q.res.Answers = []Answer{}
	if o.Index && q.body && indexed(r) {
		if err := q.useIndex(ctx, r); err != nil {
			return nil, err
		}
	}
	err := q.run(ctx)
	if q.index != nil {
		err = errors.Join(err, q.index.close())
	}
	if err == nil && len(q.res.Answers) == 0 {
		err = x.checkKinds(ctx, lr)
	}
	if err != nil {
		return nil, fmt.Errorf("looking through the ledger of %s: %w", r.Dir, err)
	}
	return &q.res, nil
}

// check refuses what can't be meant, before anything is looked for.
func (x *Expr) check(ctx context.Context, lr *ledger.Reader) error {
	for _, wrong := range []func(context.Context, *ledger.Reader) error{x.checkFields, x.checkKnown, x.checkTypes} {
		if err := wrong(ctx, lr); err != nil {
			return err
		}
	}
	return nil
}

// indexed tells whether a run may have an index: it holds what was recorded in the clear, as working copies do.
func indexed(r *store.Run) bool { return len(r.Identities) > 0 && r.HasCopies() }

type runner struct {
	x      *Expr
	o      Options
	lr     *ledger.Reader
	open   *opener
	body   bool
	only   candidates
	index  *index            // where only was asked for
	access map[uint64]access // of records that aren't looked at, where they aren't open
	res    Result
	first  uint64 // number of the next batch's first event
}

func (q *runner) useIndex(ctx context.Context, r *store.Run) (err error) {
	x, err := openIndex(ctx, r, q.lr)
	if err != nil {
		return err
	}
	defer func() {
		if q.index == nil {
			err = errors.Join(err, x.close())
		}
	}()
	if q.only, err = x.plan(ctx, q.x.root); err != nil || q.only.all {
		return err
	}
	q.index = x
	rows, err := x.db.QueryContext(ctx, "SELECT seq, access FROM record WHERE access > 0")
	if err != nil {
		return fmt.Errorf("asking the index: %w", err)
	}
	defer rows.Close()
	q.access = map[uint64]access{}
	for rows.Next() {
		var seq int64
		var a int
		if err := rows.Scan(&seq, &a); err != nil {
			return fmt.Errorf("asking the index: %w", err)
		}
		q.access[uint64(seq)] = access(a)
	}
	return rows.Err()
}

func (q *runner) run(ctx context.Context) error {
	s := &q.res.Scope
	s.From, s.To = q.o.From, q.o.To
	q.first = 1
	start := q.o.From
	if q.o.From > 0 {
		start = 0 // to number the events
	}
	next := 0
	for rec, err := range q.lr.Records(start) {
		if err != nil {
			return err
		}
		if q.o.To > 0 && rec.Seq > q.o.To {
			break
		}
		first := q.first
		if rec.Type == store.RecordEvents {
			q.first += rec.Count
		}
		if rec.Seq < q.o.From {
			if q.body && rec.Type == store.RecordEvents { // what processes became before the range
				if _, err := q.open.each(rec, true, func(int, *Doc) error { return nil }); err != nil {
					return err
				}
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Records++
		s.To = rec.Seq
		if !rec.Sealed {
			s.Unsealed++
		}
		if !q.only.all && rec.Sealed {
			for next < len(q.only.seqs) && q.only.seqs[next] < rec.Seq {
				next++
			}
			if next == len(q.only.seqs) || q.only.seqs[next] != rec.Seq {
				q.count(q.access[rec.Seq])
				if rec.Type == store.RecordEvents {
					if err := q.index.lives(ctx, rec.Seq, func(e *bodycam.Event) { q.open.procs.Observe(e) }); err != nil {
						return err
					}
				}
				continue
			}
		}
		if stop, err := q.record(rec, first); stop || err != nil {
			return err
		}
	}
	q.conclude()
	return nil
}

func (q *runner) count(a access) {
	switch a {
	case closed:
		q.res.Scope.Closed++
	case erased:
		q.res.Scope.Erased++
	}
}

func (q *runner) record(rec *ledger.ReadRecord, first uint64) (stop bool, err error) {
	q.res.Scope.Looked++
	acc, err := q.open.each(rec, q.body, func(i int, d *Doc) error {
		if stop || !q.x.Match(d) {
			return nil
		}
		a := Answer{Record: rec.Seq, Index: i, Type: store.TypeName(rec.Type), Kind: rec.Kind, Wall: rec.Wall}
		if i >= 0 {
			a.Event = first + uint64(i)
		}
		if d.Body != nil {
			a.Value = bytes.Clone(d.Body)
		}
		q.res.Answers = append(q.res.Answers, a)
		stop = q.o.Limit > 0 && len(q.res.Answers) >= q.o.Limit
		return nil
	})
	q.count(acc)
	if stop {
		q.res.Scope.Why = fmt.Sprintf("it ended with answer %d, as was asked", q.o.Limit)
	}
	return stop, err
}

// conclude says whether the answer is all there is.
func (q *runner) conclude() {
	s := &q.res.Scope
	switch {
	case s.Unsealed > 0:
		s.Why = fmt.Sprintf("the last %d records aren't sealed yet", s.Unsealed)
	case !q.body:
		s.Exhaustive = true // what records say themselves needs no key
	case s.Closed > 0 || s.Erased > 0:
		s.Why = fmt.Sprintf("what payloads hold wasn't looked at: %d closed to the keys at hand, %d erased", s.Closed, s.Erased)
	default:
		s.Exhaustive = true
	}
}

// Prove makes a bundle of the answers and, where whole is set, of every other record of the range without its payload:
// whoever gets it sees that no record of the range is missing. Whether the others' payloads match it can't show without
// opening them.
func (res *Result) Prove(lr *ledger.Reader, whole bool) (*ledger.Bundle, error) {
	at := map[uint64]*ledger.Disclose{}
	var order []uint64
	for i := range res.Answers {
		a := &res.Answers[i]
		if at[a.Record] == nil {
			at[a.Record] = &ledger.Disclose{Seq: a.Record, Closed: a.Value == nil}
			order = append(order, a.Record)
		}
		if a.Index >= 0 {
			at[a.Record].Events = append(at[a.Record].Events, a.Index)
		}
	}
	if whole {
		for n := res.Scope.From; n <= res.Scope.To; n++ {
			if at[n] == nil {
				at[n] = &ledger.Disclose{Seq: n, Closed: true}
				order = append(order, n)
			}
		}
	}
	what := make([]ledger.Disclose, len(order))
	for i, n := range order {
		what[i] = *at[n]
	}
	return lr.Disclose(what)
}
