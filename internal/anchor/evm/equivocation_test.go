package evm

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// TestTwoAnchorsForOnePosition: whoever has the account's key can anchor another head of the same size behind the first one.
// The first one counts, and the pair convicts the account and the log's key.
func TestTwoAnchorsForOnePosition(t *testing.T) {
	c := newChain(t)
	contract := c.deploy(proof.DesignHead)
	m := &Mechanism{c.client(c.options(proof.DesignHead, contract))}
	anchored := func(what string, forced bool) (*proof.Evidence, string) {
		t.Helper()
		log := anchortest.NewLog()
		log.Grow(what)
		log.Grow(what)
		h, err := log.Head()
		if err != nil {
			t.Fatal(err)
		}
		var ticket []byte
		if forced { // past the checks of our own client
			have, err := m.have(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			k, err := m.prepare(t.Context(), anchorHead(proof.ChainLog(h.Origin), have, proof.ChainHead(h.Checkpoint)), proof.ChainHead(h.Checkpoint))
			if err != nil {
				t.Fatal(err)
			}
			ticket = k.marshal()
		} else if ticket, err = m.Prepare(t.Context(), h, nil); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			s, err := m.Advance(t.Context(), h, ticket)
			if err != nil {
				t.Fatal(err)
			}
			if s.Ticket != nil {
				ticket = s.Ticket
			}
			if s.State == anchor.Final {
				return s.Evidence, hex.EncodeToString(h.Root[:])
			}
			c.Mine()
		}
		t.Fatal("it didn't become final")
		return nil, ""
	}
	first, counts := anchored("x", false)
	second, _ := anchored("y", true)

	root := c.Root(proof.DesignHead, contract)
	manifest := &proof.Manifest{Roots: map[string]proof.Root{"evm": root}}
	// The order in which they are found doesn't matter.
	for _, list := range [][]*proof.Evidence{{first, second}, {second, first}} {
		found, err := proof.FindEquivocations(list, nil, nil)
		if err != nil || len(found) != 1 {
			t.Fatalf("%d proofs, %v", len(found), err)
		}
		q, err := proof.ParseEquivocation(found[0].Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		got := q.Judge(nil, manifest)
		if got.Status != ledger.StatusVerified || got.Counts == nil || got.Statements[*got.Counts].Head != counts || got.Accused[0].Who != "the account "+root.Sender {
			t.Errorf("%+v", got)
		}
		key := anchortest.NewLog().Key()
		if got := q.Judge([]ledger.PublicKey{{Alg: key.Alg, Public: key.Public}}, nil); got.Status != ledger.StatusVerified || !strings.Contains(got.Accused[0].Who, "the log's ed25519 key") {
			t.Errorf("by the log's key: %+v", got)
		}
		// Without the blocks' hashes nothing is known of the account.
		blind := root
		blind.Blocks = nil
		if got := q.Judge(nil, &proof.Manifest{Roots: map[string]proof.Root{"evm": blind}}); got.Status != ledger.StatusUnverifiable || !strings.Contains(got.Why, "ask a node") {
			t.Errorf("without the blocks: %+v", got)
		}

		var anchors []ledger.Anchor
		for _, e := range list {
			anchors = append(anchors, ledger.Anchor{Kind: e.Kind, Data: e.Append(nil)})
		}
		j := proof.Judge(anchortest.Origin, anchors, manifest)
		if len(j.Conflicts) != 1 || !strings.Contains(j.Conflicts[0], "included first and counts") {
			t.Errorf("%v", j.Conflicts)
		}
		if p := j.Pinned(); len(p) != 1 || p[0].Root != first.Note.Root {
			t.Errorf("the log is held to %v, not to the head that was included first", p)
		}
	}
}
