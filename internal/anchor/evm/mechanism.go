package evm

import (
	"context"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Mechanism anchors one log by the designs head and mapping.
type Mechanism struct{ *Client }

// Kind implements [anchor.Mechanism].
func (m *Mechanism) Kind() string { return proof.KindEVM }

// Prepare reads the contract's head, which must be one of this log's, and signs the call that moves it on.
func (m *Mechanism) Prepare(ctx context.Context, h anchor.Head, last []byte) ([]byte, error) {
	head, log := proof.ChainHead(h.Checkpoint), proof.ChainLog(h.Origin)
	prev := merkle.Hash{}
	if last != nil {
		t, err := parseTicket(last)
		if err != nil {
			return nil, err
		}
		prev = t.Head
	}
	have, err := m.have(ctx, h)
	if err != nil {
		return nil, err
	}
	switch {
	case have == head:
		return m.adopt(ctx, h)
	case m.o.Design == proof.DesignMapping:
		if have != (merkle.Hash{}) {
			return nil, fmt.Errorf("%w: the contract has another head of size %d", anchor.ErrConflict, h.Size)
		}
		t, err := m.prepare(ctx, anchorMapping(h.Size, head, prev), head)
		if err != nil {
			return nil, err
		}
		return t.marshal(), nil
	case have != prev && !m.ours(h, have):
		return nil, fmt.Errorf("%w: the contract has head %s for it, which is none of this log's", anchor.ErrConflict, common.Hash(have).Hex())
	}
	t, err := m.prepare(ctx, anchorHead(log, have, head), head)
	if err != nil {
		return nil, err
	}
	return t.marshal(), nil
}

// have is what the contract has for the log, or, where it keeps one head per size, for this size.
func (m *Mechanism) have(ctx context.Context, h anchor.Head) (merkle.Hash, error) {
	if m.o.Design == proof.DesignMapping {
		return m.view(ctx, call("anchors(address,uint256)", address(m.sender), number(h.Size)))
	}
	return m.view(ctx, call("head(address,bytes32)", address(m.sender), proof.ChainLog(h.Origin)))
}

// ours tells whether a chain's head is of an earlier head of this log.
func (m *Mechanism) ours(h anchor.Head, have merkle.Hash) bool {
	if have == (merkle.Hash{}) || h.RootAt == nil {
		return have == (merkle.Hash{})
	}
	for size := h.Size; size > 0; size-- {
		root, err := h.RootAt(size)
		if err != nil {
			return false
		}
		if proof.ChainHead(checkpoint.Checkpoint{Origin: h.Origin, Size: size, Root: root}) == have {
			return true
		}
	}
	return false
}

// adopt finds the transaction that anchored this head before our state was lost.
func (m *Mechanism) adopt(ctx context.Context, h anchor.Head) ([]byte, error) {
	second := common.Hash(proof.ChainLog(h.Origin))
	if m.o.Design == proof.DesignMapping {
		second = common.Hash(number(h.Size))
	}
	t, err := m.recover(ctx, proof.ChainHead(h.Checkpoint), second)
	if err != nil {
		return nil, err
	}
	return t.marshal(), nil
}

// recover makes the ticket again of a transaction that is in the chain, from the event by which it set the head. topics are
// those behind the sender's.
func (c *Client) recover(ctx context.Context, head merkle.Hash, topics ...common.Hash) (*ticket, error) {
	q := ethereum.FilterQuery{FromBlock: big.NewInt(0), Addresses: []common.Address{c.o.Contract}, Topics: [][]common.Hash{
		{common.Hash(proof.EventTopic(c.o.Design))}, {common.Hash(address(c.sender))},
	}}
	for _, t := range topics {
		q.Topics = append(q.Topics, []common.Hash{t})
	}
	return first(ctx, c.nodes, "looking for the anchor's event", func(ctx context.Context, e *ethclient.Client) (*ticket, error) {
		logs, err := e.FilterLogs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, l := range logs {
			if len(l.Data) < 32 || merkle.Hash(l.Data[:32]) != head {
				continue
			}
			if c.l1 != nil {
				var kind struct{ Type hexutil.Uint64 }
				if err := e.Client().CallContext(ctx, &kind, "eth_getTransactionByHash", l.TxHash); err != nil {
					return nil, err
				}
				if kind.Type == typeDeposit {
					return c.recoverDeposit(ctx, head, l.TxHash)
				}
			}
			tx, _, err := e.TransactionByHash(ctx, l.TxHash)
			if err != nil {
				return nil, err
			}
			raw, err := tx.MarshalBinary()
			return &ticket{Data: tx.Data(), Head: head, lane: lane{Nonce: tx.Nonce(), Gas: tx.Gas(), Txs: [][]byte{raw}}, Begun: c.o.Now().UTC()}, err
		}
		return nil, fmt.Errorf("the contract has this head, and no event says who set it: %w", errOther)
	})
}

// Advance implements [anchor.Mechanism].
func (m *Mechanism) Advance(ctx context.Context, h anchor.Head, raw []byte) (anchor.Step, error) {
	t, err := parseTicket(raw)
	if err != nil {
		return anchor.Step{}, err
	}
	p, err := m.advance(ctx, t)
	if err != nil {
		return anchor.Step{}, err
	}
	step := anchor.Step{State: p.state}
	if p.change {
		step.Ticket = t.marshal()
	}
	step.Detail = p.text()
	if p.at.block == (common.Hash{}) {
		return step, nil
	}
	r, err := m.nodes.receipt(ctx, p.at, m.o.Chain, m.o.Design, m.o.Contract)
	if err != nil {
		return anchor.Step{}, err
	}
	a, err := r.Open()
	if err == nil {
		_, err = a.Commits(r, h.Checkpoint)
	}
	if err != nil {
		return anchor.Step{}, err
	}
	step.Evidence = &proof.Evidence{Kind: proof.KindEVM, Note: h.Note, Data: r.Append(nil)}
	step.Detail += fmt.Sprintf(" in block %d, %s", p.at.number, p.at.block.Hex())
	step.Cost = p.cost
	return step, nil
}
