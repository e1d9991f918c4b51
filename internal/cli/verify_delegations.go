package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/approval"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// together is what `verify A B…` says.
type together struct {
	Verdict     ledger.Verdict        `json:"verdict"`
	Logs        []*verification       `json:"logs"`
	Delegations *delegation.Judgement `json:"delegations"`
}

// signedParts are what a run or bundle says of delegations and approvals. side is nil where it can't be read, which its own
// verification says.
type signedParts struct {
	side      *delegation.Side
	approvals []approval.Item
}

// parts reads them, once for each path.
func (f *verifyFlags) parts(path string) (*signedParts, error) {
	if p := f.read[path]; p != nil {
		return p, nil
	}
	p, err := f.readParts(path)
	if err != nil {
		return nil, err
	}
	if f.read == nil {
		f.read = map[string]*signedParts{}
	}
	f.read[path] = p
	return p, nil
}

func (f *verifyFlags) readParts(path string) (*signedParts, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usage("%w", err)
	}
	if !info.IsDir() {
		b, err := regular.ReadNamed(path)
		if err != nil {
			return nil, environment(err)
		}
		if proof.IsEquivocation(path, b) {
			return nil, usage("%s is a proof of equivocation: verify it by itself", path)
		}
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return &signedParts{}, nil
		}
		return &signedParts{side: delegation.FromBundle(bundle, path)}, nil
	}
	ids, err := f.identities()
	if err != nil {
		return nil, err
	}
	known, err := f.approverKeys()
	if err != nil {
		return nil, err
	}
	lr, err := ledger.OpenReader(regular.FS(path), ids...)
	if err != nil {
		return &signedParts{}, nil
	}
	defer lr.Close()
	side := delegation.NewSide(lr, path)
	approvals := approval.NewReader(side.ID, known)
	for rec, err := range lr.Records(0) {
		if err == nil {
			err = errors.Join(side.Take(lr, rec), approvals.Take(lr, rec))
		}
		if err != nil {
			return &signedParts{}, nil
		}
	}
	return &signedParts{side, approvals.Items()}, nil
}

// approverKeys are those of the flags, of this machine, and of a manifest.
func (f *verifyFlags) approverKeys() ([]checkpoint.Key, error) {
	known, err := f.approvers.keys(&f.ring)
	if err != nil {
		return nil, err
	}
	m, err := f.anchors.manifest()
	if err != nil || m == nil {
		return known, err
	}
	return append(known, m.ApproverKeys()...), nil
}

// verifyTogether verifies several runs or bundles, each by itself and against what the others hold of it.
func (f *verifyFlags) verifyTogether(ctx context.Context, s *streams, paths []string) error {
	if f.log != "" || f.mirror != "" || f.host || len(f.pins) > 0 {
		return usage("--log, --pin, --mirror and --host are about one log: verify that one alone")
	}
	var sides []*delegation.Side
	for _, path := range paths {
		p, err := f.parts(path)
		if err != nil {
			return err
		}
		sides = append(sides, p.side)
	}
	f.held, f.notes = map[string][]ledger.Pinned{}, map[string][]*proof.Evidence{}
	for i, side := range sides {
		for j, other := range sides {
			if i != j && side != nil && other != nil {
				f.held[paths[i]] = append(f.held[paths[i]], other.Heads(side.ID)...)
				for _, n := range other.Notes(side.ID) {
					f.notes[paths[i]] = append(f.notes[paths[i]], &proof.Evidence{Kind: proof.KindCheckpoint, Note: n})
				}
			}
		}
	}
	f.together = paths
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

// delegations judges those of one run or bundle alone, and a run's approvals, which lower nothing: what is only asserted is
// what was recorded.
func (v *verification) delegations(f *verifyFlags, trust ledger.Trust) error {
	p, err := f.parts(v.Path)
	if err != nil {
		return err
	}
	if v.Verdict != ledger.Tampered {
		v.Approvals = p.approvals
	}
	if p.side == nil || p.side.Records() == 0 {
		return nil
	}
	v.Delegations = delegation.Judge(trust.Keys, p.side)
	v.Verdict = v.Delegations.Lower(v.Verdict)
	return nil
}
