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
	// Deposit is another way in, past the sequencer of a layer 2; nil: none.
	Deposit *Deposit
	Now     func() time.Time // nil: time.Now
}

// Client sends transactions to a contract and follows them.
type Client struct {
	o      Options
	nodes  *nodes
	l1     *nodes // for deposits; nil where there are none
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
	c := &Client{o: o, sender: crypto.PubkeyToAddress(o.Key.PublicKey)}
	var err error
	if c.nodes, err = dial(ctx, o.Nodes, o.Agree); err != nil {
		return nil, err
	}
	if d := o.Deposit; d != nil {
		if c.l1, err = dial(ctx, d.Nodes, d.Agree); err != nil {
			return nil, fmt.Errorf("layer 1: %w", err)
		}
	}
	return c, nil
}

// Sender is the account's address.
func (c *Client) Sender() common.Address { return c.sender }

// ticket is a contract call on its way.
type ticket struct {
	Data []byte      `json:"data"`
	Head merkle.Hash `json:"head"` // what stands in the contract once it is done
	lane
	// Deposit is the same call by the way of layer 1.
	Deposit *lane       `json:"deposit,omitempty"`
	Begun   time.Time   `json:"begun,omitzero"`
	Block   common.Hash `json:"block,omitzero"` // where it was seen last
}

// slack is the gas above the estimate, in percent: the head's slot can be cold or warm.
const slack = 10

// prepare checks by an estimate that the call would succeed, and signs it. Nothing is sent.
func (c *Client) prepare(ctx context.Context, data []byte, head merkle.Hash) (*ticket, error) {
	if err := c.nodes.ofChain(ctx, c.o.Chain); err != nil {
		return nil, err
	}
	t := &ticket{Data: data, Head: head, Begun: c.o.Now().UTC()}
	var err error
	if t.Gas, err = c.estimate(ctx, data); err != nil {
		return nil, err
	}
	if d := c.o.Deposit; d != nil && d.After == 0 {
		return t, c.deposit(ctx, t)
	}
	return t, c.sign(ctx, c.direct(t), &t.lane)
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
	if len(t.Txs) == 0 && t.Deposit == nil {
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
	cost   float64
	detail string // what there is to know besides the transaction
}

func (p progress) text() string {
	switch {
	case p.tx == nil:
		return ""
	case p.detail != "":
		return "transaction " + p.tx.Hash().Hex() + " " + p.detail
	}
	return "transaction " + p.tx.Hash().Hex()
}

// advance takes a ticket one step further.
func (c *Client) advance(ctx context.Context, t *ticket) (progress, error) {
	failed := common.Hash{}
	for i := len(t.Txs) - 1; i >= 0; i-- {
		tx, err := t.tx(i)
		if err != nil {
			return progress{}, err
		}
		at, err := c.nodes.find(ctx, tx.Hash())
		switch {
		case err != nil:
			return progress{}, err
		case at.ok:
			return c.included(ctx, t, at, tx, c.cost(ctx, c.nodes, tx, at)), nil
		case at.block != (common.Hash{}):
			failed = tx.Hash()
		}
	}
	p, err := c.deposited(ctx, t)
	switch {
	case err != nil || p.at.ok:
		return p, err
	case p.at.block != (common.Hash{}):
		failed = p.tx.Hash()
	}
	if failed != (common.Hash{}) {
		return progress{}, fmt.Errorf("%w: transaction %s was included and reverted", anchor.ErrConflict, failed.Hex())
	}
	orphaned := t.Block != (common.Hash{})
	t.Block = common.Hash{}
	if p.tx == nil { // no deposit is in layer 1 yet
		p, err = c.outside(ctx, t)
	}
	if orphaned && p.state == anchor.Submitted {
		p.state = anchor.Orphaned
	}
	p.change = p.change || orphaned
	return p, err
}

// included is the progress of a ticket that is in the chain.
func (c *Client) included(ctx context.Context, t *ticket, at inclusion, tx *types.Transaction, cost float64) progress {
	p := progress{state: c.nodes.stage(ctx, at), at: at, tx: tx, change: t.Block != at.block, cost: cost}
	t.Block = at.block
	return p
}

// outside handles a ticket of which no transaction is in a chain: it is sent, sent again, or replaced.
func (c *Client) outside(ctx context.Context, t *ticket) (progress, error) {
	if d := c.o.Deposit; d != nil && c.o.Now().Sub(t.Begun) >= d.After {
		if t.Deposit == nil {
			return progress{state: anchor.Pending, change: true}, c.deposit(ctx, t)
		}
		return c.push(ctx, c.viaLayer1(t), t.Deposit)
	}
	used, err := c.nodes.nonce(ctx, c.sender)
	if err != nil {
		return progress{}, err
	}
	if used > t.Nonce {
		// Somebody else used our nonce: another transaction of this account is in its place.
		t.lane = lane{}
		if t.Gas, err = c.estimate(ctx, t.Data); err == nil {
			err = c.sign(ctx, c.direct(t), &t.lane)
		}
		return progress{state: anchor.Pending, change: true}, err
	}
	return c.push(ctx, c.direct(t), &t.lane)
}

// cost is what an included transaction cost, in ether.
func (c *Client) cost(ctx context.Context, n *nodes, tx *types.Transaction, at inclusion) float64 {
	price, err := first(ctx, n, "asking for the price", func(ctx context.Context, e *ethclient.Client) (*big.Int, error) {
		r, err := e.TransactionReceipt(ctx, tx.Hash())
		if err != nil {
			return nil, err
		}
		return r.EffectiveGasPrice, nil
	})
	if err != nil || price == nil {
		price = tx.GasFeeCap() // at most that
	}
	wei, _ := new(big.Float).SetInt(new(big.Int).Mul(price, new(big.Int).SetUint64(at.gas))).Float64()
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
