package evm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rlp"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Deposit is the way into a layer 2 of the OP Stack that its sequencer can't close: a call of depositTransaction of the
// portal on layer 1, which the chain must execute within its sequencing window (12 h, as a rule). It costs layer 1's gas.
type Deposit struct {
	// Nodes are layer 1's JSON-RPC endpoints, Agree how many must say the same, as in [Options].
	Nodes []string
	Agree int
	// Chain is layer 1's, Portal the address of the chain's OptimismPortal there.
	Chain  uint64
	Portal common.Address
	// After is how long a transaction may stay outside of layer 2 before it goes this way. 0: all go this way, at once.
	After time.Duration
	// MaxFee bounds the fee per gas on layer 1, in wei; nil: no bound.
	MaxFee *big.Int
}

// viaLayer1 is the road of a ticket through the portal.
func (c *Client) viaLayer1(t *ticket) road {
	d := c.o.Deposit
	return road{c.l1, d.Chain, d.Portal, depositCall(c.o.Contract, t.depositGas(), t.Data), d.MaxFee}
}

// depositGas is the gas that is bought on layer 2: the portal asks for 21,000 and 40 a byte at the least.
func (t *ticket) depositGas() uint64 { return max(t.Gas, 21_000+40*uint64(len(t.Data))) }

// deposit signs the deposit of a ticket.
func (c *Client) deposit(ctx context.Context, t *ticket) error {
	if err := c.l1.ofChain(ctx, c.o.Deposit.Chain); err != nil {
		return fmt.Errorf("layer 1: %w", err)
	}
	r, l := c.viaLayer1(t), &lane{}
	gas, err := first(ctx, r.nodes, "estimating the deposit's gas", func(ctx context.Context, e *ethclient.Client) (uint64, error) {
		return e.EstimateGas(ctx, ethereum.CallMsg{From: c.sender, To: &r.to, Data: r.data})
	})
	if err != nil {
		return err
	}
	l.Gas = gas + gas/4 // the portal's price of layer 2's gas moves from block to block
	if err := c.sign(ctx, r, l); err != nil {
		return err
	}
	t.Deposit = l
	return nil
}

// deposited follows a ticket's deposit, if it has one, from layer 1 to layer 2. What it returns has no transaction where
// there is nothing of it in layer 1, and no block where layer 2 hasn't executed it yet.
func (c *Client) deposited(ctx context.Context, t *ticket) (progress, error) {
	if t.Deposit == nil {
		return progress{}, nil
	}
	if c.l1 == nil {
		return progress{}, errors.New("a deposit is under way, and layer 1 isn't configured any more")
	}
	for i := len(t.Deposit.Txs) - 1; i >= 0; i-- {
		tx, err := t.Deposit.tx(i)
		if err != nil {
			return progress{}, err
		}
		at, err := c.l1.find(ctx, tx.Hash())
		if err != nil {
			return progress{}, fmt.Errorf("layer 1: %w", err)
		}
		switch {
		case at.block == (common.Hash{}):
			continue
		case !at.ok:
			return progress{}, fmt.Errorf("the deposit %s was included in layer 1 and reverted: is %s the portal?", tx.Hash().Hex(), c.o.Deposit.Portal.Hex())
		}
		return c.fromLayer1(ctx, t, tx, at)
	}
	used, err := c.l1.nonce(ctx, c.sender)
	if err == nil && used > t.Deposit.Nonce {
		t.Deposit = nil // another transaction of the account took its nonce: it is signed anew
	}
	return progress{}, err
}

// fromLayer1 looks on layer 2 for what a deposit in layer 1 leads to.
func (c *Client) fromLayer1(ctx context.Context, t *ticket, tx *types.Transaction, at inclusion) (progress, error) {
	id, err := ask(ctx, c.l1, "reading the deposit's event", func(ctx context.Context, e *ethclient.Client) (common.Hash, error) {
		r, err := e.TransactionReceipt(ctx, tx.Hash())
		if err != nil {
			return common.Hash{}, err
		}
		if r.BlockHash != at.block {
			return common.Hash{}, errors.New("the block changed meanwhile")
		}
		return c.derived(t, r)
	})
	if err != nil {
		return progress{}, fmt.Errorf("layer 1: %w", err)
	}
	p := progress{state: anchor.Submitted, tx: tx, cost: c.cost(ctx, c.l1, tx, at),
		detail: fmt.Sprintf("in block %d of layer 1, to be executed as %s", at.number, id.Hex())}
	there, err := c.nodes.find(ctx, id)
	switch {
	case err != nil:
		return progress{}, err
	case there.block == (common.Hash{}):
		return p, nil
	case !there.ok:
		p.at = there
		return p, nil
	}
	in := c.included(ctx, t, there, tx, p.cost)
	in.detail = fmt.Sprintf("in block %d of layer 1, executed as %s", at.number, id.Hex())
	return in, nil
}

// derived is the hash of the layer 2 transaction that a deposit's receipt leads to.
func (c *Client) derived(t *ticket, r *types.Receipt) (common.Hash, error) {
	want := opaque(t.depositGas(), t.Data)
	for _, l := range r.Logs {
		if l == nil || l.Address != c.o.Deposit.Portal || len(l.Topics) != 4 || l.Topics[0] != depositTopic || l.Topics[3] != (common.Hash{}) ||
			l.Topics[1] != common.Hash(address(c.sender)) || l.Topics[2] != common.Hash(address(c.o.Contract)) || !bytes.Equal(l.Data, want) {
			continue
		}
		return depositHash(r.BlockHash, uint64(l.Index), c.sender, c.o.Contract, t.depositGas(), t.Data)
	}
	return common.Hash{}, fmt.Errorf("the deposit left no event of the portal: %w", errOther)
}

// recoverDeposit makes the ticket again of a deposit that layer 2 executed under that hash.
func (c *Client) recoverDeposit(ctx context.Context, head [32]byte, id common.Hash) (*ticket, error) {
	q := ethereum.FilterQuery{FromBlock: big.NewInt(0), Addresses: []common.Address{c.o.Deposit.Portal},
		Topics: [][]common.Hash{{depositTopic}, {common.Hash(address(c.sender))}, {common.Hash(address(c.o.Contract))}}}
	return first(ctx, c.l1, "looking for the deposit's event", func(ctx context.Context, e *ethclient.Client) (*ticket, error) {
		logs, err := e.FilterLogs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, l := range logs {
			gas, data, ok := unpack(l.Data)
			if !ok {
				continue
			}
			h, err := depositHash(l.BlockHash, uint64(l.Index), c.sender, c.o.Contract, gas, data)
			if err != nil || h != id {
				continue
			}
			tx, _, err := e.TransactionByHash(ctx, l.TxHash)
			if err != nil {
				return nil, err
			}
			raw, err := tx.MarshalBinary()
			return &ticket{Data: data, Head: head, lane: lane{Gas: gas}, Begun: c.o.Now().UTC(),
				Deposit: &lane{Nonce: tx.Nonce(), Gas: tx.Gas(), Txs: [][]byte{raw}}}, err
		}
		return nil, fmt.Errorf("layer 2 executed deposit %s, and no event of layer 1 leads to it: %w", id.Hex(), errOther)
	})
}

// unpack reads what opaque wrote, and nothing else.
func unpack(b []byte) (gas uint64, data []byte, ok bool) {
	const head = 64 + 73
	if len(b) < head {
		return 0, nil, false
	}
	size := binary.BigEndian.Uint64(b[56:64])
	if size < 73 || size > uint64(len(b)-64) {
		return 0, nil, false
	}
	gas, data = binary.BigEndian.Uint64(b[128:136]), b[head:64+size]
	return gas, data, bytes.Equal(b, opaque(gas, data))
}

// depositTopic is the first topic of the portal's event. Its last one, the version, is 0.
var depositTopic = common.Hash(proof.Keccak([]byte("TransactionDeposited(address,address,uint256,bytes)")))

// depositCall is the call of the portal.
func depositCall(to common.Address, gas uint64, data []byte) []byte {
	out := call("depositTransaction(address,uint256,uint64,bool,bytes)", address(to), number(0), number(gas), number(0), number(5*32))
	return append(out, dynamic(data)...)
}

// dynamic is the ABI's encoding of bytes behind their offset.
func dynamic(data []byte) []byte {
	n := number(uint64(len(data)))
	out := append(n[:], data...)
	return append(out, make([]byte, (32-len(data)%32)%32)...)
}

// opaque is the data of the portal's event: mint, value, gas, whether a contract is created, data; in version 0 they stand
// one behind the other.
func opaque(gas uint64, data []byte) []byte {
	packed := make([]byte, 64, 73+len(data))
	packed = binary.BigEndian.AppendUint64(packed, gas)
	packed = append(append(packed, 0), data...)
	offset := number(32)
	return append(offset[:], dynamic(packed)...)
}

// depositHash is the hash of the transaction of type 0x7e that layer 2 derives from a deposit
// (specs.optimism.io/protocol/deposits.html).
func depositHash(block common.Hash, log uint64, from, to common.Address, gas uint64, data []byte) (common.Hash, error) {
	index := number(log)
	inner := proof.Keccak(block[:], index[:])
	source := proof.Keccak(make([]byte, 32), inner[:])
	b, err := rlp.EncodeToBytes([]any{source[:], from, to, []byte{}, []byte{}, gas, false, data})
	if err != nil {
		return common.Hash{}, err
	}
	return common.Hash(proof.Keccak([]byte{typeDeposit}, b)), nil
}
