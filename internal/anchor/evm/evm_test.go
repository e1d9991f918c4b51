package evm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmtest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// chain is an anvil node with what this package needs of it.
type chain struct{ *evmtest.Node }

func newChain(t *testing.T) *chain { t.Helper(); return &chain{evmtest.Anvil(t)} }

func (c *chain) deploy(design string) common.Address {
	c.T.Helper()
	code, err := Bytecode(design)
	if err != nil {
		c.T.Fatal(err)
	}
	return c.Deploy(code)
}

func (c *chain) options(design string, contract common.Address) Options {
	return Options{Nodes: []string{c.Doors[0].URL, c.Doors[1].URL}, Chain: c.Chain, Contract: contract, Design: design, Key: c.Key}
}

func (c *chain) client(o Options) *Client {
	c.T.Helper()
	cl, err := Dial(c.T.Context(), o)
	if err != nil {
		c.T.Fatal(err)
	}
	return cl
}

// way is one head on its way, without a runner.
type way struct {
	*chain
	m      *Mechanism
	h      anchor.Head
	ticket []byte
	now    time.Time
}

func newWay(t *testing.T, change func(*Options)) *way {
	t.Helper()
	c := newChain(t)
	w := &way{chain: c, now: time.Now()}
	o := c.options(proof.DesignHead, c.deploy(proof.DesignHead))
	o.Now = func() time.Time { return w.now }
	if change != nil {
		change(&o)
	}
	w.m = &Mechanism{c.client(o)}
	log := anchortest.NewLog()
	log.Grow("x")
	var err error
	if w.h, err = log.Head(); err != nil {
		t.Fatal(err)
	}
	if w.ticket, err = w.m.Prepare(t.Context(), w.h, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// step goes one step and stores the ticket.
func (w *way) step(want anchor.State) anchor.Step {
	w.T.Helper()
	s, err := w.m.Advance(w.T.Context(), w.h, w.ticket)
	if err != nil {
		w.T.Fatal(err)
	}
	if s.State != want {
		w.T.Fatalf("it is %s, want %s (%s)", s.State, want, s.Detail)
	}
	if s.Ticket != nil {
		w.ticket = s.Ticket
	}
	return s
}

func (w *way) transactions() int {
	w.T.Helper()
	t, err := parseTicket(w.ticket)
	if err != nil {
		w.T.Fatal(err)
	}
	return len(t.Txs)
}

func TestStates(t *testing.T) {
	w := newWay(t, nil)
	w.step(anchor.Submitted)
	w.step(anchor.Submitted)
	w.Mine()
	w.step(anchor.Included)
	w.Mine()
	w.step(anchor.Safe)
	w.Mine()
	s := w.step(anchor.Final)
	if s.Cost <= 0 || s.Evidence == nil || w.transactions() != 1 {
		t.Errorf("%+v", s)
	}
}

// TestReorg: the block goes away, the receipt with it, and the same signed transaction is sent again.
func TestReorg(t *testing.T) {
	w := newWay(t, nil)
	var snapshot string
	if err := w.Eth.Client().Call(&snapshot, "evm_snapshot"); err != nil {
		t.Fatal(err)
	}
	w.step(anchor.Submitted)
	w.Mine()
	first := w.step(anchor.Included)
	w.RPC("evm_revert", snapshot)
	w.RPC("anvil_mine", 1, 60) // another block in its place
	w.step(anchor.Orphaned)
	w.Mine()
	w.step(anchor.Included)
	w.Mine()
	w.Mine()
	last := w.step(anchor.Final)
	if w.transactions() != 1 || w.Events(proof.DesignHead, w.m.o.Contract) != 1 {
		t.Errorf("%d transactions, %d events", w.transactions(), w.Events(proof.DesignHead, w.m.o.Contract))
	}
	m := &proof.Manifest{Roots: map[string]proof.Root{"evm": w.Root(proof.DesignHead, w.m.o.Contract)}}
	judge := func(e *proof.Evidence) ledger.Status {
		return proof.Judge(anchortest.Origin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, m).Attestations[0].Status
	}
	if judge(last.Evidence) != ledger.StatusVerified || judge(first.Evidence) != ledger.StatusUnverifiable {
		t.Errorf("after the reorg the orphan's proof is %s, the other's %s", judge(first.Evidence), judge(last.Evidence))
	}
}

func TestDropped(t *testing.T) {
	w := newWay(t, nil)
	w.step(anchor.Submitted)
	tk, err := parseTicket(w.ticket)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := tk.last()
	if err != nil {
		t.Fatal(err)
	}
	w.RPC("anvil_dropTransaction", tx.Hash())
	w.Mine()
	w.step(anchor.Submitted) // sent again
	w.Mine()
	w.step(anchor.Included)
}

// TestStuck: where the fee is too low for the blocks that come, it is raised, under the same nonce and stored before sent.
func TestStuck(t *testing.T) {
	w := newWay(t, func(o *Options) { o.MaxFee = big.NewInt(20e9) })
	w.step(anchor.Submitted)
	w.now = w.now.Add(2 * time.Minute)
	w.step(anchor.Submitted)
	if w.transactions() != 1 {
		t.Fatal("it was replaced too early")
	}
	w.now = w.now.Add(4 * time.Minute)
	w.step(anchor.Pending)
	if w.transactions() != 2 {
		t.Fatalf("%d transactions, want a second", w.transactions())
	}
	tk, err := parseTicket(w.ticket)
	if err != nil {
		t.Fatal(err)
	}
	a, err := tk.tx(0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tk.tx(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Eth.TransactionByHash(t.Context(), b.Hash()); !errors.Is(err, ethereum.NotFound) {
		t.Errorf("the replacement was sent before it was stored: %v", err)
	}
	for name, k := range map[string][2]*big.Int{"tip": {a.GasTipCap(), b.GasTipCap()}, "fee": {a.GasFeeCap(), b.GasFeeCap()}} {
		if least := new(big.Int).Div(new(big.Int).Mul(k[0], big.NewInt(110)), big.NewInt(100)); k[1].Cmp(least) < 0 {
			t.Errorf("the %s rose from %v to %v, less than 10 %%: geth refuses that", name, k[0], k[1])
		}
	}
	if a.Nonce() != b.Nonce() {
		t.Error("the replacement has another nonce")
	}
	w.step(anchor.Submitted)
	w.Mine()
	w.step(anchor.Included)

	// Where the base fee outgrows it, there is nothing to wait for.
	w1 := newWay(t, nil)
	w1.step(anchor.Submitted)
	w1.RPC("anvil_setNextBlockBaseFeePerGas", "0x"+big.NewInt(8e9).Text(16))
	w1.Mine()
	w1.step(anchor.Pending)
	w1.step(anchor.Submitted)
	w1.Mine()
	w1.step(anchor.Included)
	if w1.transactions() != 2 {
		t.Errorf("%d transactions, want 2", w1.transactions())
	}

	// Above the bound nothing is raised; it waits.
	w2 := newWay(t, func(o *Options) { o.MaxFee = big.NewInt(3e9) })
	w2.step(anchor.Submitted)
	w2.RPC("anvil_setNextBlockBaseFeePerGas", "0x"+big.NewInt(8e9).Text(16))
	w2.Mine()
	w2.now = w2.now.Add(time.Hour)
	w2.step(anchor.Submitted)
	if w2.transactions() != 1 {
		t.Error("it was raised above the bound")
	}
}

// TestForeignNonce: another transaction of the account takes the nonce; the anchor is signed anew.
func TestForeignNonce(t *testing.T) {
	w := newWay(t, nil)
	w.Transact(&common.Address{1}, nil)
	w.step(anchor.Pending)
	w.step(anchor.Submitted)
	w.Mine()
	w.step(anchor.Included)
	if n := w.Events(proof.DesignHead, w.m.o.Contract); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestReverted: where another writer was faster, between estimate and block, the transaction fails; that is a conflict and no
// anchor, and not tried again.
func TestReverted(t *testing.T) {
	w := newWay(t, nil)
	w.step(anchor.Submitted)
	sender, log := address(w.Sender()), proof.ChainLog(anchortest.Origin)
	outer := proof.Keccak(sender[:], make([]byte, 32))
	slot := proof.Keccak(log[:], outer[:])
	w.RPC("anvil_setStorageAt", w.m.o.Contract, common.Hash(slot), common.Hash{9})
	w.Mine()
	if s, err := w.m.Advance(t.Context(), w.h, w.ticket); !errors.Is(err, anchor.ErrConflict) || !strings.Contains(err.Error(), "reverted") {
		t.Errorf("%s, %v", s.State, err)
	}
	if n := w.Events(proof.DesignHead, w.m.o.Contract); n != 0 {
		t.Errorf("%d events", n)
	}
}

// TestForkIsFree: a second history is found by the estimate, before it costs.
func TestForkIsFree(t *testing.T) {
	w := newWay(t, nil)
	w.step(anchor.Submitted)
	w.Mine()
	_, err := w.m.prepare(t.Context(), anchorHead(proof.ChainLog(anchortest.Origin), merkle.Hash{}, merkle.Hash{1}), merkle.Hash{1})
	if !errors.Is(err, anchor.ErrConflict) || !strings.Contains(err.Error(), "has head") {
		t.Errorf("%v", err)
	}
}

func TestNodes(t *testing.T) {
	t.Run("one of two down", func(t *testing.T) {
		w := newWay(t, nil)
		w.Doors[1].Down.Store(true)
		if s, err := w.m.Advance(t.Context(), w.h, w.ticket); err == nil {
			t.Errorf("with one of two nodes it is %s", s.State)
		}
		w.Doors[1].Down.Store(false)
		w.step(anchor.Submitted)
	})
	t.Run("one of three down or lying", func(t *testing.T) {
		w := newWay(t, nil)
		third := w.Open()
		o := w.m.o
		o.Nodes = append(o.Nodes, third.URL)
		w.m = &Mechanism{w.client(o)}
		third.Down.Store(true)
		w.step(anchor.Submitted)
		third.Down.Store(false)
		lie := func(method string, answer []byte) []byte {
			if method == "eth_getTransactionReceipt" {
				return []byte(`{"jsonrpc":"2.0","id":` + id(answer) + `,"result":null}`)
			}
			return answer
		}
		third.Lie.Store(&lie)
		w.Mine()
		w.Mine()
		w.Mine()
		w.step(anchor.Final)
	})
	t.Run("one of two says that it is included", func(t *testing.T) {
		w := newWay(t, nil)
		w.step(anchor.Submitted)
		w.Mine()
		real := w.step(anchor.Included)
		lie := func(method string, answer []byte) []byte {
			if method == "eth_getBlockByNumber" || method == "eth_getTransactionReceipt" {
				return bytes.ReplaceAll(answer, []byte(blockOf(real.Detail)), []byte("0x"+strings.Repeat("11", 32)))
			}
			return answer
		}
		w.Doors[1].Lie.Store(&lie)
		if s, err := w.m.Advance(t.Context(), w.h, w.ticket); err == nil {
			t.Errorf("while the nodes disagree it is %s", s.State)
		}
	})
	t.Run("one of three asks for a tip of 1,000 gwei", func(t *testing.T) {
		for position := range 3 {
			c := newChain(t)
			contract := c.deploy(proof.DesignHead)
			liar := c.Open()
			lie := func(method string, answer []byte) []byte {
				if method == "eth_maxPriorityFeePerGas" {
					return []byte(`{"jsonrpc":"2.0","id":` + id(answer) + `,"result":"0xe8d4a51000"}`)
				}
				return answer
			}
			liar.Lie.Store(&lie)
			o := c.options(proof.DesignHead, contract)
			o.Nodes = slices.Insert(o.Nodes, position, liar.URL)
			m := &Mechanism{c.client(o)}
			log := anchortest.NewLog()
			log.Grow("x")
			h, err := log.Head()
			if err != nil {
				t.Fatal(err)
			}
			raw, err := m.Prepare(t.Context(), h, nil)
			if err != nil {
				t.Fatal(err)
			}
			tk, err := parseTicket(raw)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := tk.last()
			if err != nil || tx.GasTipCap().Cmp(big.NewInt(100e9)) > 0 {
				t.Errorf("with the liar as node %d the tip is %v, %v", position, tx.GasTipCap(), err)
			}
		}
	})
	t.Run("all lie of what the block holds", func(t *testing.T) {
		for _, field := range []string{"cumulativeGasUsed", "status", "address", "null", "none"} {
			w := newWay(t, nil)
			w.step(anchor.Submitted)
			w.Mine()
			lie := func(method string, answer []byte) []byte {
				if method != "eth_getBlockReceipts" {
					return answer
				}
				switch field {
				case "null":
					return []byte(`{"jsonrpc":"2.0","id":` + id(answer) + `,"result":[null]}`)
				case "none":
					return []byte(`{"jsonrpc":"2.0","id":` + id(answer) + `,"result":null}`)
				case "status":
					return bytes.ReplaceAll(answer, []byte(`"status":"0x1"`), []byte(`"status":"0x0"`))
				case "cumulativeGasUsed":
					return bytes.ReplaceAll(answer, []byte(`"cumulativeGasUsed":"0x`), []byte(`"cumulativeGasUsed":"0x1`))
				}
				return bytes.ReplaceAll(answer, []byte(strings.ToLower(w.m.o.Contract.Hex())), []byte("0x"+strings.Repeat("22", 20)))
			}
			for _, d := range w.Doors {
				d.Lie.Store(&lie)
			}
			if s, err := w.m.Advance(t.Context(), w.h, w.ticket); err == nil || s.Evidence != nil || !strings.Contains(err.Error(), "the node lies") && !strings.Contains(err.Error(), "no receipt 0") {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
	t.Run("another chain", func(t *testing.T) {
		c := newChain(t)
		o := c.options(proof.DesignHead, c.deploy(proof.DesignHead))
		o.Chain = 1
		log := anchortest.NewLog()
		log.Grow("x")
		h, err := log.Head()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&Mechanism{c.client(o)}).Prepare(t.Context(), h, nil); err == nil || !strings.Contains(err.Error(), "not 1") {
			t.Errorf("%v", err)
		}
	})
}

func id(answer []byte) string {
	var m struct{ ID json.RawMessage }
	if json.Unmarshal(answer, &m) != nil {
		return "null"
	}
	return string(m.ID)
}

func blockOf(detail string) string { return detail[strings.LastIndex(detail, "0x"):] }

// TestGas holds the contracts to what they may cost, on Osaka's rules.
func TestGas(t *testing.T) {
	c := newChain(t)
	log := proof.ChainLog(anchortest.Origin)
	use := func(contract common.Address, data []byte) uint64 {
		t.Helper()
		r := c.Transact(&contract, data)
		if r.Status != types.ReceiptStatusSuccessful {
			t.Fatal("it reverted")
		}
		return r.GasUsed
	}
	heads := make([]merkle.Hash, 4)
	for i := range heads {
		heads[i] = proof.Keccak([]byte{byte(i)})
	}
	head, super, mapping := c.deploy(proof.DesignHead), c.deploy(proof.DesignSuper), c.deploy(proof.DesignMapping)
	first := use(head, anchorHead(log, merkle.Hash{}, heads[0]))
	steady := use(head, anchorHead(log, heads[0], heads[1]))
	use(super, anchorSuper(merkle.Hash{}, heads[0], 100))
	batch := use(super, anchorSuper(heads[0], heads[1], 100))
	use(mapping, anchorMapping(1, heads[0], merkle.Hash{}))
	paper := use(mapping, anchorMapping(2, heads[1], heads[0]))
	t.Logf("head: first %d, steady %d; super-root: %d, %d a recorder of 100; mapping: steady %d", first, steady, batch, batch/100, paper)
	if steady > 31_000 || batch > 30_000 || paper < 85_000 {
		t.Errorf("steady %d (at most 31,000), super-root %d (at most 30,000), mapping %d", steady, batch, paper)
	}
}

// TestSuper: a hundred recorders, one transaction, each with its proof.
func TestSuper(t *testing.T) {
	c := newChain(t)
	contract := c.deploy(proof.DesignSuper)
	s := &Super{c.client(c.options(proof.DesignSuper, contract))}
	var notes []*checkpoint.Note
	signer, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		origin := fmt.Sprintf("recorder.example/%d", i)
		n, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: origin, Size: uint64(i), Root: merkle.Hash{byte(i)}}, origin, 0, signer)
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, n)
	}
	ticket, err := s.Prepare(t.Context(), notes)
	if err != nil {
		t.Fatal(err)
	}
	var got Batch
	for range 20 {
		if got, err = s.Advance(context.Background(), ticket); err != nil {
			t.Fatal(err)
		}
		if got.Ticket != nil {
			ticket = got.Ticket
		}
		if got.State == anchor.Final {
			break
		}
		c.Mine()
	}
	if got.State != anchor.Final || len(got.Evidence) != 100 || c.Events(proof.DesignSuper, contract) != 1 {
		t.Fatalf("%s with %d proofs", got.State, len(got.Evidence))
	}
	m := &proof.Manifest{Roots: map[string]proof.Root{"evm": c.Root(proof.DesignSuper, contract)}}
	for i, e := range got.Evidence {
		j := proof.Judge(notes[i].Origin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, m)
		if a := j.Attestations[0]; a.Status != ledger.StatusVerified {
			t.Fatalf("member %d: %+v", i, a)
		}
	}
	// The same again, with the state lost: no second transaction, and the proofs are there again.
	again, err := s.Prepare(t.Context(), notes)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Advance(t.Context(), again)
	if err != nil || !b.Known || b.State != anchor.Final || len(b.Evidence) != 100 || c.Events(proof.DesignSuper, contract) != 1 {
		t.Fatalf("again: %s, %d proofs, %v", b.State, len(b.Evidence), err)
	}
	// The next batch goes on from there.
	if _, err := s.Prepare(t.Context(), notes[:50]); err != nil {
		t.Error(err)
	}
	if _, err := s.Prepare(t.Context(), append(notes[:2:2], notes[0])); err == nil {
		t.Error("a log is there twice")
	}
}

// TestRebuild proves that the committed bytecode is what the sources compile to.
func TestRebuild(t *testing.T) {
	dir := os.Getenv("SOLC_FROM")
	if dir == "" {
		t.Skip("SOLC_FROM names no folder where `npm install solc@0.8.37` was run")
	}
	out, err := exec.Command("node", "contracts/compile.mjs", "--check").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
