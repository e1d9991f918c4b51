package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/bodycam-dev/bodycam/internal/anchor"
)

// lane are the transactions of a ticket on one chain, all under one nonce.
type lane struct {
	Nonce uint64 `json:"nonce"`
	Gas   uint64 `json:"gas"`
	// Txs are the signed transactions, in the order of their fees. Any of them may be included.
	Txs   [][]byte  `json:"transactions"`
	Since time.Time `json:"since,omitzero"` // when the last of them was first sent
}

// road is where a lane's transactions go.
type road struct {
	nodes  *nodes
	chain  uint64
	to     common.Address
	data   []byte
	maxFee *big.Int
}

// direct is the road of a ticket to the contract.
func (c *Client) direct(t *ticket) road {
	return road{c.nodes, c.o.Chain, c.o.Contract, t.Data, c.o.MaxFee}
}

// bump is how much a replacement's fees rise, in percent. Nodes ask for 10.
const bump = 15

// sign adds a transaction to a lane: the first one under the account's next nonce, a later one under the same nonce with
// higher fees.
func (c *Client) sign(ctx context.Context, r road, l *lane) error {
	tip, err := r.nodes.tip(ctx, len(l.Txs) > 0)
	if err != nil {
		return err
	}
	base, err := r.nodes.baseFee(ctx)
	if err != nil {
		return err
	}
	fee := new(big.Int).Add(new(big.Int).Mul(base, big.NewInt(2)), tip)
	if len(l.Txs) == 0 {
		if l.Nonce, err = r.nodes.nextNonce(ctx, c.sender); err != nil {
			return err
		}
	} else {
		old, err := l.last()
		if err != nil {
			return err
		}
		tip, fee = larger(tip, raised(old.GasTipCap())), larger(fee, raised(old.GasFeeCap()))
	}
	if r.maxFee != nil && fee.Cmp(r.maxFee) > 0 {
		if len(l.Txs) > 0 {
			return errTooDear
		}
		fee = r.maxFee
		if tip.Cmp(fee) > 0 {
			tip = fee
		}
	}
	id := new(big.Int).SetUint64(r.chain)
	tx, err := types.SignNewTx(c.o.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: l.Nonce, GasTipCap: tip, GasFeeCap: fee, Gas: l.Gas, To: &r.to, Data: r.data,
	})
	if err != nil {
		return fmt.Errorf("signing an anchor: %w", err)
	}
	raw, err := tx.MarshalBinary()
	if err != nil {
		return err
	}
	l.Txs, l.Since = append(l.Txs, raw), time.Time{}
	return nil
}

var errTooDear = errors.New("a higher fee would be above the bound")

func raised(n *big.Int) *big.Int {
	out := new(big.Int).Mul(n, big.NewInt(100+bump))
	return out.Add(out.Div(out, big.NewInt(100)), big.NewInt(1))
}

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// push sends a lane's newest transaction, or replaces it where it waits for too long or pays less than the chain asks for.
func (c *Client) push(ctx context.Context, r road, l *lane) (progress, error) {
	p := progress{state: anchor.Submitted}
	var err error
	if p.tx, err = l.last(); err != nil {
		return p, err
	}
	base, err := r.nodes.baseFee(ctx)
	if err != nil {
		return p, err
	}
	now := c.o.Now()
	dear := p.tx.GasFeeCap().Cmp(base) < 0
	if dear || !l.Since.IsZero() && now.Sub(l.Since) >= c.o.Stuck {
		switch err := c.sign(ctx, r, l); {
		case err == nil:
			return progress{state: anchor.Pending, change: true}, nil
		case !errors.Is(err, errTooDear):
			return p, err
		case dear:
			return p, nil // until the chain is cheaper
		}
	}
	if err := r.nodes.send(ctx, p.tx); err != nil {
		return p, err
	}
	if l.Since.IsZero() {
		l.Since, p.change = now.UTC(), true
	}
	return p, nil
}

func (l *lane) tx(i int) (*types.Transaction, error) {
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(l.Txs[i]); err != nil {
		return nil, fmt.Errorf("the stored transaction: %w", err)
	}
	return tx, nil
}

func (l *lane) last() (*types.Transaction, error) {
	if len(l.Txs) == 0 {
		return nil, errors.New("the stored ticket has no transaction")
	}
	return l.tx(len(l.Txs) - 1)
}
