package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/approval"
	"github.com/bodycam-dev/bodycam/internal/query"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/spf13/cobra"
)

type queryFlags struct {
	json, noIndex, count bool
	rng, proof, why      string
	limit                int
	approvers            approverFlags
	ring                 ringFlags
	items                []approval.Item // approvals and delegations of the answers
}

func queryCommand(s *streams) *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query RUN EXPRESSION | query RUN --why EVENT",
		Short: "Find what a run's ledger holds, by exact fields",
		Long: `Find events, actions, findings and files in a run's ledger by their fields:

  tool == "deploy" && policy.verdict == "deny"
  type == "connect" && host in ["a.example", "b.example"] && !(port == 443)
  argv[0] matches "(^|/)git$" || path startsWith "/etc/"

Comparisons are == != < <= > >= in contains startsWith matches, joined by && || ! and parentheses. A path through a list
means each of its elements; a field that isn't there is null. Events have the fields of "bodycam events --json", actions
tool, intent, policy, approval, execution, effects, context, code and delegation, findings rule, severity and so on;
files name, size, sha256 and text; rows of the agent's account kind, tool, command, args, output and so on, as in rows.jsonl. Each
has besides record.seq, record.type (events, action, finding, file, row, run and so on), record.kind, record.epoch, record.time,
record.wall and record.digest. An expression that asks for none but these opens no payload. A name that is none of
these, and that nothing in the log has, is an error, with the nearest right name; names inside args, params, env and the like are whatever
the agent chose, and where payloads are closed theirs can't be known: such a field is null. So is a comparison with what
the field can't be (port != "80" would hold for everything): write numbers, true and false without quotes, texts in quotes.

Answers carry sequence numbers and say what they cover: payloads that no key at hand opens, and such as were erased, are
counted and not passed over. With --proof FILE the answers go into a bundle that anybody can verify; with --range too,
it holds every record of the range, so that none can have been left out. That the payloads of the others don't match
can't be shown without opening them; here it is known where every key of the range is at hand, and it is said.

An index (RUN/index.db) is made when it is first needed and whenever the ledger has changed.` +
			exits("0  something was found", "1  nothing was found", "2  the expression or usage is wrong", "3  the ledger can't be read",
				"4  nothing was found, but not everything could be looked at; or --why: its chain is of a run whose record is incomplete, or that isn't what was sealed"),
		Example: `  bodycam query RUN 'tool == "shell" && effects.exit != 0'
  bodycam query RUN 'type == "open" && path == "/etc/passwd"' --proof found.bundle
  bodycam query RUN 'record.type == "finding" && severity == "critical"' --range 100-900 --json
  bodycam query RUN --why 1723`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 2) == (f.why != "") {
				return usage("want an expression, or --why with an event's number")
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
			if f.why != "" {
				return f.chain(cmd, s, r, lr)
			}
			return f.find(cmd, s, r, lr, args[1])
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON: answers, scope")
	fl.BoolVar(&f.count, "count", false, "print how many answers there are, and no answer")
	fl.BoolVar(&f.noIndex, "no-index", false, "look at every record")
	fl.StringVar(&f.rng, "range", "", "only these records of the ledger: 100-900")
	fl.StringVar(&f.proof, "proof", "", "write a bundle that proves the answers; it must not exist")
	fl.StringVar(&f.why, "why", "", "causal chain of an event by its number, or of record:N")
	fl.IntVar(&f.limit, "limit", 0, "end after so many answers")
	f.approvers.add(fl)
	f.ring.add(fl)
	return cmd
}

// judged finds out which of the approvals and delegations in the answers are signed.
func (f *queryFlags) judged(r *store.Run, res *query.Result) error {
	named := map[uint64]bool{}
	for i := range res.Answers {
		t := res.Answers[i].Type
		if t == store.TypeName(store.RecordAction) || t == store.TypeName(store.RecordApproval) {
			named[res.Answers[i].Record] = true
		}
	}
	if len(named) == 0 {
		return nil
	}
	items, err := f.approvers.approvals(r, &f.ring)
	for _, it := range items {
		if named[it.Record] || named[it.Of] {
			f.items = append(f.items, it)
		}
	}
	return err
}

// said is what is said of a record's approval and delegation, each with what stands before it.
func (f *queryFlags) said(record uint64, before string) (out string) {
	for i := range f.items {
		if it := &f.items[i]; it.Record == record || it.Of == record {
			out += before + it.What + " " + string(it.Status) + ": " + bodycam.Printable(approvalLine(it))
		}
	}
	return out
}

// queryError shows where an expression is wrong.
func queryError(err error) error {
	var se *query.SyntaxError
	if !errors.As(err, &se) {
		return usage("%w", err)
	}
	mark := strings.ReplaceAll(se.Mark(), "\n", "\n    ")
	out := usage("the expression is wrong at %w\n    %s", err, mark)
	if se.Hint != "" {
		return withHint(out, se.Hint)
	}
	return out
}

// queryFailed tells an expression that asks for what can't be there from a ledger that can't be read.
func queryFailed(err error) error {
	var wrong *query.SyntaxError
	if errors.As(err, &wrong) {
		return queryError(wrong)
	}
	return environment(err)
}

func (f *queryFlags) find(cmd *cobra.Command, s *streams, r *store.Run, lr *ledger.Reader, text string) error {
	x, err := query.Parse(text)
	if err != nil {
		return queryError(err)
	}
	if f.limit < 0 {
		return usage("--limit %d: want 0 (no limit) or more", f.limit)
	}
	o := query.Options{Index: !f.noIndex, Limit: f.limit}
	if f.rng != "" {
		ns, err := numbers("--range", []string{f.rng})
		if err != nil {
			return err
		}
		o.From, o.To = ns[0], ns[len(ns)-1]
		if o.To >= lr.Len() {
			return usage("--range %s: the ledger has records 0 to %d", f.rng, int64(lr.Len())-1)
		}
		if o.To == 0 {
			return usage("--range %s: want a range of more than record 0", f.rng)
		}
	}
	res, err := query.Run(cmd.Context(), r, lr, x, o)
	if err != nil {
		return queryFailed(err)
	}
	if err := f.judged(r, res); err != nil {
		return err
	}
	if f.proof != "" {
		if err := f.prove(res, lr); err != nil {
			return err
		}
	}
	switch {
	case f.json && f.count:
		err = printJSON(s, struct {
			Count int         `json:"count"`
			Scope query.Scope `json:"scope"`
		}{len(res.Answers), res.Scope})
	case f.json:
		err = printJSON(s, struct {
			*query.Result
			Proof     string          `json:"proof,omitempty"`
			Approvals []approval.Item `json:"approvals,omitempty"`
		}{res, f.proof, f.items})
	case f.count:
		_, err = fmt.Fprintln(s.out, len(res.Answers))
	default:
		err = f.text(s, res)
	}
	switch {
	case err != nil:
		return environment(err)
	case len(res.Answers) > 0:
		return nil
	case !res.Scope.Exhaustive:
		return &statusError{status: ExitInconclusive}
	}
	return &statusError{status: ExitGate}
}

func (f *queryFlags) prove(res *query.Result, lr *ledger.Reader) error {
	if len(res.Answers) == 0 && f.rng == "" {
		return usage("--proof: there is no answer to prove; with --range the bundle shows every record of it")
	}
	b, err := res.Prove(lr, f.rng != "")
	if err != nil {
		return environment(fmt.Errorf("proving the answers: %w", err))
	}
	if err := writeNewFile(f.proof, b.Append(nil), 0o600); err != nil {
		return usage("--proof: %w", err)
	}
	return nil
}

func (f *queryFlags) text(s *streams, res *query.Result) error {
	var b strings.Builder
	for i := range res.Answers {
		a := &res.Answers[i]
		at := fmt.Sprintf("record %d", a.Record)
		if a.Index >= 0 {
			at = fmt.Sprintf("event %d (record %d.%d)", a.Event, a.Record, a.Index)
		}
		value := "(its payload was not opened)"
		if a.Value != nil {
			value = bodycam.Printable(string(a.Value))
			if len(value) > 500 {
				value = value[:500] + "…"
			}
		}
		value += f.said(a.Record, "\n    ")
		fmt.Fprintf(&b, "%s  %s  %s %s\n    %s\n", at, time.Unix(0, a.Wall).UTC().Format(time.RFC3339Nano), a.Type, bodycam.Printable(a.Kind), value)
	}
	sc := res.Scope
	fmt.Fprintf(&b, "%s in records %d to %d", count(uint64(len(res.Answers)), "answer"), sc.From, sc.To)
	if sc.Exhaustive {
		b.WriteString("; everything in them was looked at\n")
	} else {
		fmt.Fprintf(&b, "; not everything was looked at: %s\n", sc.Why)
	}
	if f.proof != "" {
		fmt.Fprintf(&b, "proof: %s\n", f.proof)
		if f.rng != "" {
			b.WriteString("the bundle shows that no record of the range is missing; ")
			if sc.Exhaustive {
				b.WriteString("that the others' payloads don't match rests on this machine, which opened them all\n")
			} else {
				b.WriteString("whether closed or erased payloads match isn't known\n")
			}
		}
	}
	_, err := s.out.Write([]byte(b.String()))
	return err
}

func (f *queryFlags) chain(cmd *cobra.Command, s *streams, r *store.Run, lr *ledger.Reader) error {
	name, record := strings.CutPrefix(f.why, "record:")
	ns, err := numbers("--why", []string{name})
	if err != nil || len(ns) != 1 {
		return usage("--why %s: want an event's number, or record:N", f.why)
	}
	(&holder{ring: f.ring}).hold(r) // the chain is read from the working copies too
	var chain []query.Cause
	if record {
		chain, err = query.WhyRecord(cmd.Context(), lr, ns[0])
	} else {
		chain, err = query.Why(cmd.Context(), r, lr, ns[0])
	}
	if err != nil {
		return environment(err)
	}
	if f.json {
		if err := printJSON(s, chain); err != nil {
			return environment(err)
		}
		return stands(s, r.Dir, r.Info.Complete)
	}
	items, err := f.approvers.approvals(r, &f.ring)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, c := range chain {
		at := ""
		switch {
		case c.Record != nil:
			at = fmt.Sprintf(" (record %d)", *c.Record)
		case c.Event != 0:
			at = fmt.Sprintf(" (event %d)", c.Event)
		}
		if c.Record != nil && c.What == "delegation" {
			for i := range items {
				if it := &items[i]; it.Record == *c.Record && it.What == "delegation" {
					at += ", " + string(it.Status)
				}
			}
		}
		fmt.Fprintf(&b, "%s%-10s %s%s\n%s%-10s   %s\n", strings.Repeat("  ", c.Depth), c.What, c.Text, at, strings.Repeat("  ", c.Depth), "", c.Why)
	}
	if _, err = s.out.Write([]byte(b.String())); err != nil {
		return environment(err)
	}
	return stands(s, r.Dir, r.Info.Complete)
}

// readToken reads the token of a mirror from a file's first line.
func readToken(file string) (string, error) {
	if file == "" {
		return os.Getenv(mirrorTokenEnv), nil
	}
	return readPhrase(file)
}
