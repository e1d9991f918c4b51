package evm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Super anchors the heads of many logs in one transaction. It has the contract of [anchor.Mechanism]: what Prepare returns
// is stored before Advance sees it.
type Super struct{ *Client }

// superTicket is a ticket with its members.
type superTicket struct {
	ticket
	Notes []string `json:"checkpoints"`
	Known bool     `json:"known,omitempty"`
}

// Batch is how far a super-root has come.
type Batch struct {
	State    anchor.State
	Ticket   []byte // nil: as before
	Evidence []*proof.Evidence
	Cost     float64
	Detail   string
	// Known tells that these heads were anchored by an earlier call: nothing was sent.
	Known bool
}

// Prepare signs the transaction that anchors these heads, in their order. At most one per log. Where the contract's newest
// super-root is over just these, the transaction that set it is taken up instead, so that lost proofs can be made again.
func (s *Super) Prepare(ctx context.Context, notes []*checkpoint.Note) ([]byte, error) {
	if len(notes) == 0 {
		return nil, errors.New("a super-root of no log")
	}
	t := superTicket{}
	seen := map[string]bool{}
	var members Members
	for _, n := range notes {
		if seen[n.Origin] {
			return nil, fmt.Errorf("log %s is there twice", n.Origin)
		}
		seen[n.Origin] = true
		members = append(members, n.Checkpoint)
		t.Notes = append(t.Notes, string(n.Marshal()))
	}
	have, err := s.view(ctx, call("head(address)", address(s.sender)))
	if err != nil {
		return nil, err
	}
	root := members.Root()
	var inner *ticket
	if t.Known = have == root; t.Known {
		inner, err = s.recover(ctx, root)
	} else {
		inner, err = s.prepare(ctx, anchorSuper(have, root, uint64(len(members))), root)
	}
	if err != nil {
		return nil, err
	}
	t.ticket = *inner
	return json.Marshal(t)
}

// Advance takes a super-root one step further. Every member gets its evidence, in the order of Prepare.
func (s *Super) Advance(ctx context.Context, raw []byte) (Batch, error) {
	t := superTicket{}
	if err := json.Unmarshal(raw, &t); err != nil || len(t.Txs) == 0 && t.Deposit == nil {
		return Batch{}, fmt.Errorf("the stored super-root: %w", errors.Join(err, errOther))
	}
	p, err := s.advance(ctx, &t.ticket)
	if err != nil {
		return Batch{}, err
	}
	out := Batch{State: p.state, Known: t.Known}
	if p.change {
		if out.Ticket, err = json.Marshal(t); err != nil {
			return Batch{}, err
		}
	}
	out.Detail = p.text()
	if p.at.block == (common.Hash{}) {
		return out, nil
	}
	r, err := s.nodes.receipt(ctx, p.at, s.o.Chain, s.o.Design, s.o.Contract)
	if err != nil {
		return Batch{}, err
	}
	out.Evidence, err = t.members(r)
	out.Cost = p.cost
	return out, err
}

// members gives every member the receipt with its own proof of inclusion.
func (t *superTicket) members(r *proof.Receipt) ([]*proof.Evidence, error) {
	a, err := r.Open()
	if err != nil {
		return nil, err
	}
	var notes []*checkpoint.Note
	var members Members
	for _, s := range t.Notes {
		n, err := checkpoint.Parse([]byte(s))
		if err != nil {
			return nil, fmt.Errorf("the stored super-root: %w", err)
		}
		notes, members = append(notes, n), append(members, n.Checkpoint)
	}
	leaves := members.leaves()
	var out []*proof.Evidence
	for i, n := range notes {
		k := *r
		k.Member, k.Members = uint64(i), uint64(len(notes))
		if k.Proof, err = merkle.Inclusion(leaves, i); err != nil {
			return nil, err
		}
		if _, err := a.Commits(&k, n.Checkpoint); err != nil {
			return nil, err
		}
		out = append(out, &proof.Evidence{Kind: proof.KindEVM, Note: n, Data: k.Append(nil)})
	}
	return out, nil
}
