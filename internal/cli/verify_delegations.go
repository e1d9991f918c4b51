package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
)

// together is what `verify A B…` says.
type together struct {
	Verdict     ledger.Verdict        `json:"verdict"`
	Logs        []*verification       `json:"logs"`
	Delegations *delegation.Judgement `json:"delegations"`
}

// sideOf reads what a run or bundle says of delegations; nil where it can't be read, which its own verification says.
func (f *verifyFlags) sideOf(path string) (*delegation.Side, error) {
	ids, err := f.identities()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, usage("%w", err)
	}
	if !info.IsDir() {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, environment(err)
		}
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return nil, nil
		}
		return delegation.FromBundle(bundle, path), nil
	}
	lr, err := ledger.OpenReader(os.DirFS(path), ids...)
	if err != nil {
		return nil, nil
	}
	defer lr.Close()
	side, err := delegation.FromLog(lr, path)
	if err != nil {
		return nil, nil
	}
	return side, nil
}

// verifyTogether verifies several runs or bundles, each by itself and against what the others hold of it.
func (f *verifyFlags) verifyTogether(ctx context.Context, s *streams, paths []string) error {
	if f.log != "" || f.mirror != "" || f.host || len(f.pins) > 0 {
		return usage("--log, --pin, --mirror and --host are about one log: verify that one alone")
	}
	var sides []*delegation.Side
	for _, path := range paths {
		side, err := f.sideOf(path)
		if err != nil {
			return err
		}
		sides = append(sides, side)
	}
	f.held = map[string][]ledger.Pinned{}
	for i, side := range sides {
		for j, other := range sides {
			if i != j && side != nil && other != nil {
				f.held[paths[i]] = append(f.held[paths[i]], other.Heads()[side.ID]...)
			}
		}
	}
	out := &together{Verdict: ledger.Verified}
	var shown []*delegation.Side
	for i, path := range paths {
		v, err := f.verify(ctx, path)
		if err != nil {
			return err
		}
		out.Logs = append(out.Logs, v)
		switch {
		case v.Verdict == ledger.Tampered || out.Verdict == ledger.Tampered:
			out.Verdict = ledger.Tampered
		case v.Verdict == ledger.Incomplete:
			out.Verdict = ledger.Incomplete
		}
		if sides[i] != nil {
			shown = append(shown, sides[i])
		}
		v.Delegations = nil // they are judged together
	}
	trust, _, err := f.trust()
	if err != nil {
		return err
	}
	out.Delegations = delegation.Judge(trust.Keys, shown...)
	out.Verdict = out.Delegations.Lower(out.Verdict)
	if f.json {
		err = printJSON(s, out)
	} else {
		err = out.text(s)
	}
	if err != nil {
		return environment(err)
	}
	return (&verification{Report: &ledger.Report{Verdict: out.Verdict}}).status()
}

func (t *together) text(s *streams) error {
	for _, v := range t.Logs {
		if err := v.text(s); err != nil {
			return err
		}
		fmt.Fprintln(s.out)
	}
	var b strings.Builder
	writeDelegations(&b, t.Delegations)
	fmt.Fprintf(&b, "\n%s  all of them together\n", strings.ToUpper(string(t.Verdict)))
	_, err := s.out.Write([]byte(b.String()))
	return err
}

// writeDelegations says what became of each.
func writeDelegations(b *strings.Builder, j *delegation.Judgement) {
	fmt.Fprintf(b, "  delegations: %s\n", j.Summary())
	const most = 50
	for i := range j.Delegations {
		d := &j.Delegations[i]
		if i == most {
			fmt.Fprintf(b, "    and %d more (--json)\n", len(j.Delegations)-most)
			return
		}
		fmt.Fprintf(b, "    %-12s", d.Status)
		if d.From != "" {
			fmt.Fprintf(b, " %s → %s  %s: %s", short(d.From), short(d.To), bodycam.Printable(d.Name), bodycam.Printable(d.Scope))
		}
		b.WriteByte('\n')
		for _, why := range d.Why {
			fmt.Fprintf(b, "                 %s\n", bodycam.Printable(why))
		}
	}
}

// delegations judges those of one run or bundle alone, and a run's approvals.
func (v *verification) delegations(f *verifyFlags, trust ledger.Trust) error {
	if v.Kind == "run" && v.Verdict != ledger.Tampered {
		if err := v.approvals(f); err != nil {
			return err
		}
	}
	side, err := f.sideOf(v.Path)
	if err != nil || side == nil || side.Records() == 0 {
		return err
	}
	v.Delegations = delegation.Judge(trust.Keys, side)
	v.Verdict = v.Delegations.Lower(v.Verdict)
	return nil
}

// approvals says which are signed. They lower nothing: what is only asserted is what was recorded.
func (v *verification) approvals(f *verifyFlags) (err error) {
	m, err := f.anchors.manifest()
	if err != nil {
		return err
	}
	var more []checkpoint.Key
	if m != nil {
		more = m.ApproverKeys()
	}
	r := &store.Run{Dir: v.Path}
	if r.Identities, err = f.identities(); err != nil {
		return err
	}
	v.Approvals, err = f.approvers.approvals(r, &f.ring, more...)
	return err
}
