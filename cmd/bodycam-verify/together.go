package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// together is the report on several logs, whose recorders handed work to each other.
type together struct {
	Verdict     ledger.Verdict        `json:"verdict"`
	Logs        []*outcome            `json:"logs"`
	Delegations *delegation.Judgement `json:"delegations"`
}

// side reads what a path says of delegations; nil where it can't be read, which its own report says.
func (s *settings) side(path string) (*delegation.Side, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		b, err := regular.ReadNamed(path)
		if err != nil {
			return nil, err
		}
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return nil, nil
		}
		return delegation.FromBundle(bundle, path), nil
	}
	root, err := runOf(path)
	if err != nil {
		return nil, err
	}
	r, err := ledger.OpenReader(regular.FS(root), s.opts.Identities...)
	if err != nil {
		return nil, nil
	}
	defer r.Close()
	side, err := delegation.FromLog(r, path)
	if err != nil {
		return nil, nil
	}
	return side, nil
}

// statements are what a run or a bundle says of its log, as package proof has them.
func statements(path string) (*ledger.Genesis, []*proof.Evidence, *proof.History, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, nil, err
	}
	if info.IsDir() {
		root, err := runOf(path)
		if err != nil {
			return nil, nil, nil, err
		}
		return proof.Statements(regular.FS(root))
	}
	b, err := regular.ReadNamed(path)
	if err != nil {
		return nil, nil, nil, err
	}
	bundle, err := ledger.ParseBundle(b)
	if err != nil {
		return nil, nil, nil, err
	}
	return bundle.Genesis, proof.BundleStatements(bundle), nil, nil
}

// together verifies each log by itself, against the other histories of it that are given and the checkpoints of it that the others embed, then what each signed of
// work that was handed over.
func (s *settings) together(ctx context.Context) (*together, error) {
	sides := make([]*delegation.Side, len(s.paths))
	for i, path := range s.paths {
		var err error
		if sides[i], err = s.side(path); err != nil {
			return nil, err
		}
	}
	out := &together{Verdict: ledger.Verified}
	pinned := s.opts.Pinned
	for i, path := range s.paths {
		s.path, s.opts.Pinned = path, slices.Clone(pinned)
		for j, other := range sides {
			if i != j && sides[i] != nil && other != nil {
				s.opts.Pinned = append(s.opts.Pinned, other.Heads(sides[i].ID)...)
			}
		}
		r, err := s.verify(ctx)
		if err != nil {
			return nil, err
		}
		out.Logs = append(out.Logs, r)
		switch {
		case r.Verdict == ledger.Tampered || out.Verdict == ledger.Tampered:
			out.Verdict = ledger.Tampered
		case r.Verdict == ledger.Incomplete:
			out.Verdict = ledger.Incomplete
		}
	}
	out.Delegations = delegation.Judge(s.opts.Keys, slices.DeleteFunc(sides, func(d *delegation.Side) bool { return d == nil })...)
	out.Verdict = out.Delegations.Lower(out.Verdict)
	return out, nil
}

// print writes the report for people.
func (t *together) print(w io.Writer) error {
	for _, r := range t.Logs {
		if err := print(w, r); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\ndelegations %s\n", t.Delegations.Summary())
	for i := range t.Delegations.Delegations {
		d := &t.Delegations.Delegations[i]
		fmt.Fprintf(w, "  %s: %.16s to %.16s, %q: %q\n", d.Status, d.From, d.To, d.Name, d.Scope)
		for _, why := range d.Why {
			fmt.Fprintf(w, "            - %s\n", why)
		}
	}
	_, err := fmt.Fprintf(w, "\nall together: %s\n", t.Verdict)
	return err
}
