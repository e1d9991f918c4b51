// Package gethtest runs the anchors' suite on go-ethereum's own node, beside anvil: another implementation of the chain, with
// another transaction pool. The fork schedule is pinned to Osaka's, for the one that go-ethereum gives its simulated chains
// is a hybrid that no network has.
package gethtest

import (
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/eth/ethconfig"
	"github.com/ethereum/go-ethereum/ethclient/simulated"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/params"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmsuite"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmtest"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// chain is go-ethereum's id of a simulated chain.
const chain = 1337

// osaka is the schedule of a network on which every fork up to Osaka is in force from its first block, and none after.
func osaka() *params.ChainConfig {
	zero, time0 := big.NewInt(0), uint64(0)
	return &params.ChainConfig{
		ChainID: big.NewInt(chain), HomesteadBlock: zero, EIP150Block: zero, EIP155Block: zero, EIP158Block: zero,
		ByzantiumBlock: zero, ConstantinopleBlock: zero, PetersburgBlock: zero, IstanbulBlock: zero, MuirGlacierBlock: zero,
		BerlinBlock: zero, LondonBlock: zero, ArrowGlacierBlock: zero, GrayGlacierBlock: zero, MergeNetsplitBlock: zero,
		TerminalTotalDifficulty: zero, ShanghaiTime: &time0, CancunTime: &time0, PragueTime: &time0, OsakaTime: &time0,
		BlobScheduleConfig: &params.BlobScheduleConfig{
			Cancun: params.DefaultCancunBlobConfig, Prague: params.DefaultPragueBlobConfig,
		},
	}
}

type geth struct {
	*evmtest.Node
	sim *simulated.Backend
}

func newGeth(t *testing.T) *geth {
	t.Helper()
	port, key := evmtest.Port(t), evmtest.Key(t)
	alloc := types.GenesisAlloc{crypto.PubkeyToAddress(key.PublicKey): {Balance: new(big.Int).Mul(big.NewInt(1000), big.NewInt(params.Ether))}}
	b := simulated.NewBackend(alloc, func(n *node.Config, e *ethconfig.Config) {
		n.HTTPHost, n.HTTPPort, n.HTTPModules = "127.0.0.1", port, []string{"eth", "net", "web3"}
		e.Genesis.Config = osaka()
	})
	t.Cleanup(func() { b.Close() })
	g := &geth{evmtest.New(t, fmt.Sprintf("http://127.0.0.1:%d", port), chain, key), b}
	g.Mine = func() { b.Commit() }
	return g
}

func TestSuite(t *testing.T) {
	evmsuite.Run(t, func(t *testing.T) *evmtest.Node {
		n := newGeth(t).Node
		one := n.Mine
		n.Mine = func() { // a block is final after 32 to 64 more
			for range 16 {
				one()
			}
		}
		return n
	})
}

// TestGas: what go-ethereum reckons is what anvil does.
func TestGas(t *testing.T) { evmsuite.Gas(t, newGeth(t).Node) }

// way is one head on its way, without a runner.
type way struct {
	*geth
	m      *evm.Mechanism
	h      anchor.Head
	ticket []byte
	now    time.Time
}

func newWay(t *testing.T) *way {
	t.Helper()
	w := &way{geth: newGeth(t), now: time.Now()}
	code, err := evm.Bytecode(proof.DesignHead)
	if err != nil {
		t.Fatal(err)
	}
	c, err := evm.Dial(t.Context(), evm.Options{Nodes: []string{w.Doors[0].URL, w.Doors[1].URL}, Chain: chain, Contract: w.Deploy(code),
		Design: proof.DesignHead, Key: w.Key, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	w.m = &evm.Mechanism{Client: c}
	log := anchortest.NewLog()
	log.Grow("x")
	if w.h, err = log.Head(); err != nil {
		t.Fatal(err)
	}
	if w.ticket, err = w.m.Prepare(t.Context(), w.h, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *way) step(want ...anchor.State) anchor.Step {
	w.T.Helper()
	s, err := w.m.Advance(w.T.Context(), w.h, w.ticket)
	if err != nil {
		w.T.Fatal(err)
	}
	if s.Ticket != nil {
		w.ticket = s.Ticket
	}
	for _, k := range want {
		if s.State == k {
			return s
		}
	}
	w.T.Fatalf("it is %s, want %v (%s)", s.State, want, s.Detail)
	return s
}

// TestReorg: another branch takes the place of the block; the receipt vanishes, and the same transaction gets in again.
func TestReorg(t *testing.T) {
	w := newWay(t)
	parent, err := w.Eth.HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.step(anchor.Submitted)
	w.Mine()
	first := w.step(anchor.Included, anchor.Safe)
	if err := w.sim.Fork(parent.Hash()); err != nil {
		t.Fatal(err)
	}
	w.sim.Rollback() // the branch's first block is made without it
	w.Mine()
	w.Mine()
	w.step(anchor.Orphaned)
	w.step(anchor.Submitted)
	w.Mine()
	second := w.step(anchor.Included, anchor.Safe)
	if first.Detail == second.Detail {
		t.Fatalf("the same block: %s", first.Detail)
	}
	for range 64 {
		w.Mine()
	}
	w.step(anchor.Final)
}

// TestReplacement: go-ethereum's pool refuses a replacement that raises the fees by less than 10 %, and takes ours.
func TestReplacement(t *testing.T) {
	w := newWay(t)
	w.step(anchor.Submitted)
	first := w.pending()
	id := new(big.Int).SetUint64(chain)
	cheap, err := types.SignNewTx(w.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{ChainID: id, Nonce: first.Nonce(), To: first.To(), Data: first.Data(),
		Gas: first.Gas(), GasTipCap: new(big.Int).Add(first.GasTipCap(), big.NewInt(1)), GasFeeCap: new(big.Int).Add(first.GasFeeCap(), big.NewInt(1))})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Eth.SendTransaction(t.Context(), cheap); err == nil {
		t.Fatal("a replacement for one wei more was taken: this pool tests nothing")
	}
	w.now = w.now.Add(time.Hour)
	w.step(anchor.Pending)
	w.step(anchor.Submitted)
	if second := w.pending(); second.Hash() == first.Hash() || second.Nonce() != first.Nonce() {
		t.Fatal("the replacement isn't in the pool")
	}
	w.Mine()
	w.step(anchor.Included, anchor.Safe)
}

// pending is the newest transaction under way, as the pool has it.
func (w *way) pending() *types.Transaction {
	w.T.Helper()
	s := w.step(anchor.Submitted)
	tx, pending, err := w.Eth.TransactionByHash(w.T.Context(), common.HexToHash(s.Detail[len("transaction "):]))
	if err != nil || !pending {
		w.T.Fatalf("%v, pending %v", err, pending)
	}
	return tx
}

// TestForkIsFree: go-ethereum too finds a second history while it estimates the gas.
func TestForkIsFree(t *testing.T) {
	w := newWay(t)
	w.step(anchor.Submitted)
	w.Mine()
	w.step(anchor.Included, anchor.Safe)
	other := anchortest.NewLog()
	other.Grow("y")
	other.Grow("y")
	h, err := other.Head()
	if err != nil {
		t.Fatal(err)
	}
	before, err := w.Eth.NonceAt(t.Context(), w.Sender(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.m.Prepare(t.Context(), h, nil); !errors.Is(err, anchor.ErrConflict) {
		t.Fatalf("another history is prepared: %v", err)
	}
	if after, err := w.Eth.PendingNonceAt(t.Context(), w.Sender()); err != nil || after != before {
		t.Fatalf("it cost a transaction: nonce %d, then %d, %v", before, after, err)
	}
}
