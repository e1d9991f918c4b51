package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// nodes are the nodes that are asked, and how many must say the same.
type nodes struct {
	list  []*ethclient.Client
	names []string
	agree int
}

// dial connects to every node. Connections over HTTP are made when they are needed, so that a node that is down is no
// error yet.
func dial(ctx context.Context, urls []string, agree int) (*nodes, error) {
	n := &nodes{agree: agree}
	if n.agree == 0 {
		n.agree = min(2, len(urls))
	}
	if len(urls) == 0 || n.agree > len(urls) || n.agree < 1 {
		return nil, fmt.Errorf("%d of %d nodes can't agree", n.agree, len(urls))
	}
	for _, u := range urls {
		c, err := ethclient.DialContext(ctx, u)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", u, err)
		}
		n.list = append(n.list, c)
		n.names = append(n.names, u)
	}
	return n, nil
}

// ask puts one question to all nodes and returns the answer that enough of them give alike. "It isn't there"
// ([ethereum.NotFound]) is an answer: the zero value.
func ask[T comparable](ctx context.Context, n *nodes, what string, f func(context.Context, *ethclient.Client) (T, error)) (T, error) {
	votes := map[T]int{}
	var errs []error
	for i, c := range n.list {
		v, err := f(ctx, c)
		if err != nil && !errors.Is(err, ethereum.NotFound) {
			errs = append(errs, fmt.Errorf("node %s: %w", n.names[i], err))
			continue
		}
		votes[v]++
	}
	var best T
	winners := 0
	for v, k := range votes {
		if k >= n.agree {
			best = v
			winners++
		}
	}
	if winners == 1 {
		return best, nil
	}
	if len(votes) > 1 {
		errs = append(errs, fmt.Errorf("the nodes disagree: %d answers", len(votes)))
	}
	return *new(T), fmt.Errorf("%s: no answer that %d nodes give alike: %w", what, n.agree, errors.Join(errs...))
}

// first takes the first node that answers: for what is checked otherwise.
func first[T any](ctx context.Context, n *nodes, what string, f func(context.Context, *ethclient.Client) (T, error)) (T, error) {
	var errs []error
	for i, c := range n.list {
		v, err := f(ctx, c)
		if err == nil {
			return v, nil
		}
		errs = append(errs, fmt.Errorf("node %s: %w", n.names[i], err))
	}
	return *new(T), fmt.Errorf("%s: %w", what, errors.Join(errs...))
}

// ofChain checks that the nodes are of a chain.
func (n *nodes) ofChain(ctx context.Context, chain uint64) error {
	id, err := ask(ctx, n, "asking for the chain", func(ctx context.Context, e *ethclient.Client) (uint64, error) {
		id, err := e.ChainID(ctx)
		if err != nil {
			return 0, err
		}
		return id.Uint64(), nil
	})
	if err == nil && id != chain {
		err = fmt.Errorf("the nodes are of chain %d, not %d", id, chain)
	}
	return err
}

// nonce is the first of an account that isn't used in the chain.
func (n *nodes) nonce(ctx context.Context, account common.Address) (uint64, error) {
	return ask(ctx, n, "asking for the nonce", func(ctx context.Context, e *ethclient.Client) (uint64, error) {
		return e.NonceAt(ctx, account, nil)
	})
}

// nextNonce is an account's next nonce, with what is in any node's pool.
func (n *nodes) nextNonce(ctx context.Context, account common.Address) (uint64, error) {
	var next uint64
	answers := 0
	var errs []error
	for _, e := range n.list {
		k, err := e.PendingNonceAt(ctx, account)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		next = max(next, k)
		answers++
	}
	if answers < n.agree {
		return 0, fmt.Errorf("asking for the nonce: %w", errors.Join(errs...))
	}
	return next, nil
}

// tip is the middle one of what the nodes say that includers ask for, so that no one node can make us pay what it likes. Between
// two it is the lower one, and the higher one where the lower one got us nowhere.
func (n *nodes) tip(ctx context.Context, higher bool) (*big.Int, error) {
	var tips []*big.Int
	var errs []error
	for i, c := range n.list {
		t, err := c.SuggestGasTipCap(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.names[i], err))
			continue
		}
		tips = append(tips, t)
	}
	if len(tips) < n.agree {
		return nil, fmt.Errorf("asking for the tip: %w", errors.Join(errs...))
	}
	slices.SortFunc(tips, (*big.Int).Cmp)
	if higher {
		return tips[len(tips)/2], nil
	}
	return tips[(len(tips)-1)/2], nil
}

// baseFee is that of the newest block. What is paid is the chain's; a false answer only moves the bound of what may be.
func (n *nodes) baseFee(ctx context.Context) (*big.Int, error) {
	h, err := first(ctx, n, "asking for the newest block", func(ctx context.Context, e *ethclient.Client) (*types.Header, error) {
		return e.HeaderByNumber(ctx, nil)
	})
	if err == nil && h.BaseFee == nil {
		err = errors.New("the chain has no base fee (EIP-1559)")
	}
	if err != nil {
		return nil, err
	}
	return h.BaseFee, nil
}

// inclusion is where a transaction stands.
type inclusion struct {
	block  common.Hash // zero: nowhere
	number uint64
	index  uint
	ok     bool
	gas    uint64
}

// find looks for a transaction's receipt.
func (n *nodes) find(ctx context.Context, tx common.Hash) (inclusion, error) {
	return ask(ctx, n, "looking for transaction "+tx.Hex(), func(ctx context.Context, c *ethclient.Client) (inclusion, error) {
		r, err := c.TransactionReceipt(ctx, tx)
		if err != nil {
			return inclusion{}, err
		}
		if r.TxHash != tx || r.BlockNumber == nil {
			return inclusion{}, errors.New("it gave another transaction's receipt")
		}
		return inclusion{r.BlockHash, r.BlockNumber.Uint64(), r.TransactionIndex, r.Status == types.ReceiptStatusSuccessful, r.GasUsed}, nil
	})
}

// stage says how settled a block is: enough nodes must have it in its place, and hold it for safe or final.
func (n *nodes) stage(ctx context.Context, at inclusion) anchor.State {
	have, safe, final := 0, 0, 0
	for _, c := range n.list {
		h, err := c.HeaderByNumber(ctx, new(big.Int).SetUint64(at.number))
		if err != nil || h.Hash() != at.block {
			continue
		}
		have++
		reached := func(tag rpc.BlockNumber) bool {
			t, err := c.HeaderByNumber(ctx, big.NewInt(int64(tag)))
			return err == nil && t.Number.Uint64() >= at.number
		}
		if reached(rpc.SafeBlockNumber) {
			safe++
		}
		if reached(rpc.FinalizedBlockNumber) {
			final++
		}
	}
	switch {
	case final >= n.agree:
		return anchor.Final
	case safe >= n.agree:
		return anchor.Safe
	case have >= n.agree:
		return anchor.Included
	}
	return anchor.Submitted
}

// send gives a signed transaction to every node. One that took it, or has it, is enough.
func (n *nodes) send(ctx context.Context, tx *types.Transaction) error {
	taken := false
	var errs []error
	for i, c := range n.list {
		err := c.SendTransaction(ctx, tx)
		if err == nil || known(err) {
			taken = true
			continue
		}
		errs = append(errs, fmt.Errorf("node %s: %w", n.names[i], err))
	}
	if taken {
		return nil
	}
	return fmt.Errorf("sending transaction %s: %w", tx.Hash().Hex(), errors.Join(errs...))
}

// known tells that a node has the transaction already. The protocol has no code for it.
func known(err error) bool {
	s := strings.ToLower(err.Error())
	return strings.Contains(s, "already known") || strings.Contains(s, "already imported") || strings.Contains(s, "known transaction")
}

// receipt makes the proof of a transaction's receipt, from one node's block, and checks it as a stranger would.
func (n *nodes) receipt(ctx context.Context, at inclusion, chain uint64, design string, contract common.Address) (*proof.Receipt, error) {
	return first(ctx, n, "proving the receipt", func(ctx context.Context, c *ethclient.Client) (*proof.Receipt, error) {
		h, err := c.HeaderByHash(ctx, at.block)
		if err != nil {
			return nil, err
		}
		enc, err := rlp.EncodeToBytes(h)
		if err != nil || proof.Keccak(enc) != at.block {
			return nil, fmt.Errorf("the header of block %s doesn't lead to its hash: %w", at.block.Hex(), errors.Join(err, errOther))
		}
		var list []*receipt
		if err := c.Client().CallContext(ctx, &list, "eth_getBlockReceipts", at.block); err != nil {
			return nil, err
		}
		if slices.Contains(list, nil) {
			return nil, fmt.Errorf("the receipts of block %s: one is null: %w", at.block.Hex(), errOther)
		}
		root, way, err := proveReceipt(list, int(at.index))
		if err != nil {
			return nil, err
		}
		if common.Hash(root) != h.ReceiptHash {
			return nil, fmt.Errorf("the receipts of block %s don't lead to its header: %w", at.block.Hex(), errOther)
		}
		if int(at.index) >= len(list) {
			return nil, fmt.Errorf("the block has no receipt %d: %w", at.index, errOther)
		}
		out := &proof.Receipt{Chain: chain, Design: design, Header: enc, Index: uint64(at.index), Nodes: way}
		topic := common.Hash(proof.EventTopic(design))
		for i, l := range list[at.index].Logs {
			if l != nil && l.Address == contract && len(l.Topics) > 0 && l.Topics[0] == topic {
				out.Log = uint64(i)
				return out, nil
			}
		}
		return nil, fmt.Errorf("the transaction left no event of the contract: %w", errOther)
	})
}

var errOther = errors.New("the node lies, or the chain isn't of a form that is known here")
