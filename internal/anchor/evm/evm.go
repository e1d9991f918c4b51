package evm

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Options say on which chain and how.
type Options struct {
	// Nodes are JSON-RPC endpoints, Agree how many must say the same before it is believed. Default: 2, or the only one.
	Nodes []string
	Agree int
	// Chain, Contract and Design say where.
	Chain    uint64
	Contract common.Address
	Design   string
	// Key is the account's. Its nonces are ours alone: one account, one recorder.
	Key *ecdsa.PrivateKey
	// MaxFee bounds the fee per gas, in wei; nil: no bound. A transaction that the bound keeps from being included waits.
	MaxFee *big.Int
	// Stuck is how long a transaction waits before its fee is raised. Default: 3 min.
	Stuck time.Duration
	Now   func() time.Time // nil: time.Now
}

// Client sends transactions to a contract and follows them.
type Client struct {
	o      Options
	nodes  *nodes
	sender common.Address
}

// Dial makes a client.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if o.Stuck == 0 {
		o.Stuck = 3 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if proof.EventTopic(o.Design) == (merkle.Hash{}) {
		return nil, fmt.Errorf("there is no contract design %q: head, super, mapping", o.Design)
	}
	n, err := dial(ctx, o.Nodes, o.Agree)
	if err != nil {
		return nil, err
	}
	return &Client{o, n, crypto.PubkeyToAddress(o.Key.PublicKey)}, nil
}

// Sender is the account's address.
func (c *Client) Sender() common.Address { return c.sender }

// ticket is a contract call on its way.
type ticket struct {
	Data  []byte      `json:"data"`
	Head  merkle.Hash `json:"head"` // what stands in the contract once it is done
	Nonce uint64      `json:"nonce"`
	Gas   uint64      `json:"gas"`
	// Txs are the signed transactions, in the order of their fees. Any of them may be included.
	Txs   [][]byte    `json:"transactions"`
	Since time.Time   `json:"since,omitzero"` // when the last of them was first sent
	Block common.Hash `json:"block,omitzero"` // where it was seen last
}

// bump is how much a replacement's fees rise, in percent. Nodes ask for 10.
const bump = 15

// slack is the gas above the estimate, in percent: the head's slot can be cold or warm.
const slack = 10

// prepare checks by an estimate that the call would succeed, and signs it. Nothing is sent.
func (c *Client) prepare(ctx context.Context, data []byte, head merkle.Hash) (*ticket, error) {
	id, err := ask(ctx, c.nodes, "asking for the chain", func(ctx context.Context, e *ethclient.Client) (uint64, error) {
		n, err := e.ChainID(ctx)
		if err != nil {
			return 0, err
		}
		return n.Uint64(), nil
	})
	if err != nil {
		return nil, err
	}
	if id != c.o.Chain {
		return nil, fmt.Errorf("the nodes are of chain %d, not %d", id, c.o.Chain)
	}
	t := &ticket{Data: data, Head: head}
	if t.Gas, err = c.estimate(ctx, data); err != nil {
		return nil, err
	}
	return t, c.sign(ctx, t)
}

func (c *Client) estimate(ctx context.Context, data []byte) (uint64, error) {
	msg := ethereum.CallMsg{From: c.sender, To: &c.o.Contract, Data: data}
	gas, err := first(ctx, c.nodes, "estimating the anchor's gas", func(ctx context.Context, e *ethclient.Client) (uint64, error) {
		return e.EstimateGas(ctx, msg)
	})
	var refused rpc.DataError
	if errors.As(err, &refused) && refused.ErrorData() != nil {
		if have, ok := forkData(refused.ErrorData()); ok {
			return 0, fmt.Errorf("%w: the contract has head %s", anchor.ErrConflict, have.Hex())
		}
	}
	return gas + gas*slack/100, err
}

// forkData reads the contract's error Fork(bytes32).
func forkData(v any) (common.Hash, bool) {
	s, ok := v.(string)
	b := common.FromHex(s)
	if !ok || len(b) != 36 || [4]byte(b[:4]) != forkSelector {
		return common.Hash{}, false
	}
	return common.Hash(b[4:]), true
}

// sign adds a transaction to a ticket: the first one under the account's next nonce, a later one under the same nonce with
// higher fees.
func (c *Client) sign(ctx context.Context, t *ticket) error {
	tip, err := first(ctx, c.nodes, "asking for the tip", func(ctx context.Context, e *ethclient.Client) (*big.Int, error) {
		return e.SuggestGasTipCap(ctx)
	})
	if err != nil {
		return err
	}
	h, err := first(ctx, c.nodes, "asking for the newest block", func(ctx context.Context, e *ethclient.Client) (*types.Header, error) {
		return e.HeaderByNumber(ctx, nil)
	})
	if err != nil {
		return err
	}
	if h.BaseFee == nil {
		return errors.New("the chain has no base fee (EIP-1559)")
	}
	fee := new(big.Int).Add(new(big.Int).Mul(h.BaseFee, big.NewInt(2)), tip)
	if len(t.Txs) == 0 {
		if t.Nonce, err = c.nextNonce(ctx); err != nil {
			return err
		}
	} else {
		old, err := t.last()
		if err != nil {
			return err
		}
		tip, fee = larger(tip, raised(old.GasTipCap())), larger(fee, raised(old.GasFeeCap()))
	}
	if c.o.MaxFee != nil && fee.Cmp(c.o.MaxFee) > 0 {
		if len(t.Txs) > 0 {
			return errTooDear
		}
		fee = c.o.MaxFee
		if tip.Cmp(fee) > 0 {
			tip = fee
		}
	}
	tx, err := types.SignNewTx(c.o.Key, types.LatestSignerForChainID(new(big.Int).SetUint64(c.o.Chain)), &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(c.o.Chain), Nonce: t.Nonce, GasTipCap: tip, GasFeeCap: fee, Gas: t.Gas, To: &c.o.Contract, Data: t.Data,
	})
	if err != nil {
		return fmt.Errorf("signing an anchor: %w", err)
	}
	raw, err := tx.MarshalBinary()
	if err != nil {
		return err
	}
	t.Txs, t.Since = append(t.Txs, raw), time.Time{}
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

// nextNonce is the account's next nonce, with what is in any node's pool.
func (c *Client) nextNonce(ctx context.Context) (uint64, error) {
	var next uint64
	answers := 0
	var errs []error
	for _, e := range c.nodes.list {
		n, err := e.PendingNonceAt(ctx, c.sender)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		next = max(next, n)
		answers++
	}
	if answers < c.nodes.agree {
		return 0, fmt.Errorf("asking for the nonce: %w", errors.Join(errs...))
	}
	return next, nil
}

func (t *ticket) tx(i int) (*types.Transaction, error) {
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(t.Txs[i]); err != nil {
		return nil, fmt.Errorf("the stored transaction: %w", err)
	}
	return tx, nil
}

func (t *ticket) last() (*types.Transaction, error) { return t.tx(len(t.Txs) - 1) }

func (t *ticket) marshal() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // of fixed fields
	}
	return b
}

func parseTicket(b []byte) (*ticket, error) {
	t := &ticket{}
	if err := json.Unmarshal(b, t); err != nil {
		return nil, fmt.Errorf("the stored transaction: %w", err)
	}
	if len(t.Txs) == 0 {
		return nil, errors.New("the stored ticket has no transaction")
	}
	return t, nil
}

// progress is how far a ticket has come.
type progress struct {
	state  anchor.State
	at     inclusion
	tx     *types.Transaction
	change bool // the ticket changed and must be stored before anything is sent
}

// advance takes a ticket one step further.
func (c *Client) advance(ctx context.Context, t *ticket) (progress, error) {
	for i := len(t.Txs) - 1; i >= 0; i-- {
		tx, err := t.tx(i)
		if err != nil {
			return progress{}, err
		}
		at, err := c.nodes.find(ctx, tx.Hash())
		if err != nil {
			return progress{}, err
		}
		if at.block == (common.Hash{}) {
			continue
		}
		if !at.ok {
			return progress{}, fmt.Errorf("%w: transaction %s was included and reverted", anchor.ErrConflict, tx.Hash().Hex())
		}
		p := progress{c.nodes.stage(ctx, at), at, tx, t.Block != at.block}
		t.Block = at.block
		return p, nil
	}
	return c.outside(ctx, t)
}

// outside handles a ticket of which no transaction is in the chain: it is sent, sent again, or replaced.
func (c *Client) outside(ctx context.Context, t *ticket) (progress, error) {
	p := progress{state: anchor.Submitted}
	if t.Block != (common.Hash{}) {
		t.Block = common.Hash{}
		p.state, p.change = anchor.Orphaned, true
	}
	used, err := ask(ctx, c.nodes, "asking for the nonce", func(ctx context.Context, e *ethclient.Client) (uint64, error) {
		return e.NonceAt(ctx, c.sender, nil)
	})
	if err != nil {
		return p, err
	}
	if used > t.Nonce {
		// Somebody else used our nonce: another transaction of this account is in its place.
		t.Txs = nil
		if t.Gas, err = c.estimate(ctx, t.Data); err == nil {
			err = c.sign(ctx, t)
		}
		return progress{state: anchor.Pending, change: true}, err
	}
	if p.tx, err = t.last(); err != nil {
		return p, err
	}
	now := c.o.Now()
	dear, err := c.outgrown(ctx, p.tx)
	if err != nil {
		return p, err
	}
	if dear || !t.Since.IsZero() && now.Sub(t.Since) >= c.o.Stuck {
		switch err := c.sign(ctx, t); {
		case err == nil:
			return progress{state: anchor.Pending, change: true}, nil
		case !errors.Is(err, errTooDear):
			return p, err
		case dear:
			return p, nil // until the chain is cheaper
		}
	}
	if err := c.nodes.send(ctx, p.tx); err != nil {
		return p, err
	}
	if t.Since.IsZero() {
		t.Since, p.change = now.UTC(), true
	}
	return p, nil
}

// outgrown tells whether the base fee has risen above what a transaction pays, so that it can't be included.
func (c *Client) outgrown(ctx context.Context, tx *types.Transaction) (bool, error) {
	h, err := first(ctx, c.nodes, "asking for the newest block", func(ctx context.Context, e *ethclient.Client) (*types.Header, error) {
		return e.HeaderByNumber(ctx, nil)
	})
	return err == nil && h.BaseFee != nil && tx.GasFeeCap().Cmp(h.BaseFee) < 0, err
}

// cost is what an included transaction cost, in ether.
func (c *Client) cost(ctx context.Context, p progress) float64 {
	price, err := first(ctx, c.nodes, "asking for the price", func(ctx context.Context, e *ethclient.Client) (*big.Int, error) {
		r, err := e.TransactionReceipt(ctx, p.tx.Hash())
		if err != nil {
			return nil, err
		}
		return r.EffectiveGasPrice, nil
	})
	if err != nil || price == nil {
		price = p.tx.GasFeeCap() // at most that
	}
	wei, _ := new(big.Float).SetInt(new(big.Int).Mul(price, new(big.Int).SetUint64(p.at.gas))).Float64()
	return wei / 1e18
}

// view calls a function that changes nothing and returns its first word.
func (c *Client) view(ctx context.Context, data []byte) (merkle.Hash, error) {
	return ask(ctx, c.nodes, "reading the contract", func(ctx context.Context, e *ethclient.Client) (merkle.Hash, error) {
		b, err := e.CallContract(ctx, ethereum.CallMsg{From: c.sender, To: &c.o.Contract, Data: data}, nil)
		if err != nil {
			return merkle.Hash{}, err
		}
		if len(b) < 32 {
			return merkle.Hash{}, fmt.Errorf("there is no such contract at %s", c.o.Contract.Hex())
		}
		return merkle.Hash(b[:32]), nil
	})
}
