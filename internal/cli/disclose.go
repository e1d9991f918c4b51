package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/query"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/spf13/cobra"
)

type discloseFlags struct {
	events, records, closed []string
	query, out              string
	json                    bool
	ring                    ringFlags
}

func discloseCommand(s *streams) *cobra.Command {
	var f discloseFlags
	cmd := &cobra.Command{
		Use:   "disclose RUN --event N… -o BUNDLE",
		Short: "Give single events of a run to somebody, with proofs",
		Long: `Write one file with the chosen events and records of a run, the proof of each up to the log's signed checkpoint, and the
salts that open just these. Nothing else of the run can be read with it. Whoever gets it verifies it with
"bodycam verify BUNDLE --key …" or bodycam-verify, without the run and without any key of yours.

Events are named by their number in the run, as "bodycam events" prints it; records by their number in the ledger, as
"bodycam query" prints it. Both take ranges. --query discloses what an expression finds. --closed gives a record
without its payload: that it is there, of which type, and when.` +
			exits("0  written", "2  usage, or the run has no such event", "3  the bundle can't be made: a key is missing, or it was erased"),
		Example: `  bodycam disclose RUN --event 17 --event 30-34 -o dispute.bundle
  bodycam disclose RUN --query 'tool == "deploy" && context.environment == "prod"' -o deploy.bundle
  bodycam verify dispute.bundle --key recorder.pub --show`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usage("want -o FILE for the bundle")
			}
			r, err := f.ring.open(args[0])
			if err != nil {
				return err
			}
			lr, err := r.Ledger()
			if err != nil {
				return usage("%w", err)
			}
			defer lr.Close()
			what, err := f.what(cmd, r, lr)
			if err != nil {
				return err
			}
			return f.write(s, args[0], lr, what)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVarP(&f.events, "event", "e", nil, "event's number in the run, or a range: 17, 30-34; repeatable")
	fl.StringSliceVar(&f.records, "record", nil, "record's number in the ledger, or a range; repeatable")
	fl.StringSliceVar(&f.closed, "closed", nil, "record's number, to be disclosed without its payload; repeatable")
	fl.StringVar(&f.query, "query", "", "disclose what this expression finds (see \"bodycam query\")")
	fl.StringVarP(&f.out, "out", "o", "", "file to write; it must not exist")
	fl.BoolVar(&f.json, "json", false, "print what was disclosed as JSON")
	f.ring.add(fl)
	return cmd
}

// what collects what is to be disclosed, record by record.
func (f *discloseFlags) what(cmd *cobra.Command, r *store.Run, lr *ledger.Reader) ([]ledger.Disclose, error) {
	events, err := numbers("--event", f.events)
	if err != nil {
		return nil, err
	}
	records, err := numbers("--record", f.records)
	if err != nil {
		return nil, err
	}
	closed, err := numbers("--closed", f.closed)
	if err != nil {
		return nil, err
	}
	places, err := store.Locate(lr, events)
	if err != nil {
		return nil, usage("%w", err)
	}
	c := chooser{at: map[uint64]*ledger.Disclose{}}
	for _, n := range records {
		c.record(n, false)
	}
	for _, n := range closed {
		c.record(n, true)
	}
	for _, p := range places {
		c.event(p.Record, p.Index)
	}
	if f.query != "" {
		x, err := query.Parse(f.query)
		if err != nil {
			return nil, queryError(err)
		}
		res, err := query.Run(cmd.Context(), r, lr, x, query.Options{Index: true})
		if err != nil {
			return nil, queryFailed(err)
		}
		for _, a := range res.Answers {
			if a.Index >= 0 {
				c.event(a.Record, a.Index)
			} else {
				c.record(a.Record, false)
			}
		}
	}
	out := c.list()
	if len(out) == 0 {
		return nil, usage("there is nothing to disclose: name events, records or a query that finds something")
	}
	return out, nil
}

// chooser puts events of one record together.
type chooser struct {
	at    map[uint64]*ledger.Disclose
	whole map[uint64]bool
	order []uint64
}

func (c *chooser) get(seq uint64) *ledger.Disclose {
	if c.at[seq] == nil {
		c.at[seq] = &ledger.Disclose{Seq: seq}
		c.order = append(c.order, seq)
	}
	return c.at[seq]
}

func (c *chooser) record(seq uint64, closed bool) {
	c.get(seq).Closed = closed
	if c.whole == nil {
		c.whole = map[uint64]bool{}
	}
	c.whole[seq] = true
}

func (c *chooser) event(seq uint64, index int) {
	if d := c.get(seq); !c.whole[seq] || d.Closed {
		d.Closed = false
		delete(c.whole, seq)
		d.Events = append(d.Events, index)
	}
}

func (c *chooser) list() []ledger.Disclose {
	var out []ledger.Disclose
	for _, seq := range c.order {
		out = append(out, *c.at[seq])
	}
	return out
}

func (f *discloseFlags) write(s *streams, run string, lr *ledger.Reader, what []ledger.Disclose) error {
	b, err := lr.Disclose(what)
	if err == nil {
		b.Anchors, err = anchor.ForBundle(run, b.Checkpoint)
	}
	switch {
	case errors.Is(err, ledger.ErrNoKey):
		return withHint(environment(err), "none of this machine's keys reads that run: see --keys")
	case err != nil:
		return environment(err)
	}
	data := b.Append(nil)
	if rep := b.Verify(ledger.Trust{Self: true}); rep.Verdict != ledger.Verified {
		return environment(fmt.Errorf("the bundle doesn't verify (%s): the ledger is damaged; see `bodycam verify`", rep.Verdict))
	}
	file, err := os.OpenFile(f.out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return usage("writing the bundle: %w", err)
	}
	_, err = file.Write(data)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(f.out)
		return environment(fmt.Errorf("writing the bundle: %w", err))
	}
	events := 0
	for i := range b.Items {
		events += len(b.Items[i].Events)
	}
	gen := lr.Genesis()
	id := gen.ID()
	if f.json {
		return printJSON(s, map[string]any{"bundle": f.out, "bytes": len(data), "records": len(b.Items), "events": events, "log": fmt.Sprintf("%x", id[:])})
	}
	_, err = fmt.Fprintf(s.out, "%s: %s, %s of batches, %s, of log %x\n", f.out, count(uint64(len(b.Items)), "record"), count(uint64(events), "event"), count(uint64(len(data)), "byte"), id[:])
	return err
}

// mostNumbers bounds what ranges add up to.
const mostNumbers = 1 << 20

// numbers reads numbers and ranges.
func numbers(flag string, list []string) ([]uint64, error) {
	var out []uint64
	for _, s := range list {
		from, to, ranged := strings.Cut(s, "-")
		a, err := strconv.ParseUint(from, 10, 63)
		b := a
		if err == nil && ranged {
			b, err = strconv.ParseUint(to, 10, 63)
		}
		if err != nil || b < a || b-a >= mostNumbers || len(out) >= mostNumbers {
			return nil, usage("%s %s: want a number or a range like 3-7", flag, s)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}
