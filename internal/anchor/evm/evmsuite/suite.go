// Package evmsuite runs the anchors' suite, with every design of contract, on a chain's node.
package evmsuite

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmtest"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Members is how many recorders share a super-root here.
const Members = 100

// Run runs the suite; make starts a fresh node.
func Run(t *testing.T, make func(*testing.T) *evmtest.Node) {
	for _, design := range []string{proof.DesignHead, proof.DesignMapping, proof.DesignSuper} {
		t.Run(design, func(t *testing.T) {
			anchortest.Suite(t, func(t *testing.T, _ *anchortest.Log) *anchortest.Fixture {
				n := make(t)
				m, contract := Mechanism(t, n, design)
				return &anchortest.Fixture{
					Mechanism:   m,
					Root:        func() proof.Root { return n.Root(design, contract) },
					Down:        func(d bool) { n.Doors[0].Down.Store(d); n.Doors[1].Down.Store(d) },
					Commitments: func() int { return n.Events(design, contract) },
					Turn:        n.Mine,
					Linear:      design == proof.DesignHead,
				}
			})
		})
	}
}

// Mechanism deploys a design's contract and makes the mechanism that anchors by it, of design super as one of [Members].
func Mechanism(t testing.TB, n *evmtest.Node, design string) (anchor.Mechanism, [20]byte) {
	t.Helper()
	code, err := evm.Bytecode(design)
	if err != nil {
		t.Fatal(err)
	}
	contract := n.Deploy(code)
	c, err := evm.Dial(t.Context(), evm.Options{Nodes: []string{n.Doors[0].URL, n.Doors[1].URL}, Chain: n.Chain, Contract: contract, Design: design, Key: n.Key})
	if err != nil {
		t.Fatal(err)
	}
	if design == proof.DesignSuper {
		return &member{&evm.Super{Client: c}, Others(t, Members-1)}, contract
	}
	return &evm.Mechanism{Client: c}, contract
}

// Others are heads of other recorders' logs.
func Others(t testing.TB, n int) []*checkpoint.Note {
	t.Helper()
	signer, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	var out []*checkpoint.Note
	for i := range n {
		origin := fmt.Sprintf("recorder.example/%d", i)
		k, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: origin, Size: uint64(i + 1), Root: merkle.Hash{byte(i)}}, origin, 0, signer)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k)
	}
	return out
}

// member sees the aggregator of many logs as the anchor of one of them.
type member struct {
	super  *evm.Super
	others []*checkpoint.Note
}

func (m *member) Kind() string { return proof.KindEVM }

func (m *member) Prepare(ctx context.Context, h anchor.Head, _ []byte) ([]byte, error) {
	half := len(m.others) / 2 // neither the first nor the last leaf of the tree
	return m.super.Prepare(ctx, append(append(m.others[:half:half], h.Note), m.others[half:]...))
}

func (m *member) Advance(ctx context.Context, h anchor.Head, ticket []byte) (anchor.Step, error) {
	b, err := m.super.Advance(ctx, ticket)
	step := anchor.Step{State: b.State, Ticket: b.Ticket, Cost: b.Cost, Detail: b.Detail}
	for _, e := range b.Evidence {
		if e.Note.Origin == h.Origin {
			step.Evidence = e
		}
	}
	return step, err
}

// Gas holds the steady anchors of designs head and super to what they may cost: 31,000 gas, and 300 a recorder.
func Gas(t *testing.T, n *evmtest.Node) {
	for design, most := range map[string]uint64{proof.DesignHead: 31_000, proof.DesignSuper: 300 * Members} {
		m, contract := Mechanism(t, n, design)
		log := anchortest.NewLog()
		var ticket []byte
		for range 3 {
			log.Grow("x")
			h, err := log.Head()
			if err == nil {
				ticket, err = m.Prepare(t.Context(), h, ticket)
			}
			if err == nil {
				_, err = m.Advance(t.Context(), h, ticket)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.Mine()
		}
		used := n.GasUsed(design, contract)
		if len(used) != 3 {
			t.Fatalf("%s: %d anchors, want 3", design, len(used))
		}
		t.Logf("%s: first %d, steady %d gas", design, used[0], used[2])
		if used[2] > most {
			t.Errorf("%s costs %d gas, more than %d", design, used[2], most)
		}
	}
}
