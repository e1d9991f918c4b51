package evm

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// chain is an anvil node of Osaka rules that makes blocks when it is told to, behind two doors that can be shut and can lie.
type chain struct {
	t     *testing.T
	url   string
	doors [2]*door
	eth   *ethclient.Client
	key   *ecdsa.PrivateKey
}

type door struct {
	*httptest.Server
	down atomic.Bool
	lie  atomic.Pointer[func(method string, answer []byte) []byte]
}

// anvil finds the program: npm install @foundry-rs/anvil.
func anvil(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("ANVIL"); p != "" {
		return p
	}
	p, err := exec.LookPath("anvil")
	if err != nil {
		t.Skip("no anvil: npm install -g @foundry-rs/anvil, or set ANVIL to the program")
	}
	return p
}

func newChain(t *testing.T) *chain {
	t.Helper()
	program := anvil(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.Command(program, "--port", fmt.Sprint(port), "--hardfork", "osaka", "--no-mining", "--slots-in-an-epoch", "1", "--silent", "--accounts", "3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	c := &chain{t: t, url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	// The first of anvil's accounts, whose keys are public.
	if c.key, err = crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"); err != nil {
		t.Fatal(err)
	}
	if c.eth, err = ethclient.Dial(c.url); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if _, err := c.eth.BlockNumber(t.Context()); err == nil {
			break
		} else if i == 200 {
			t.Fatalf("anvil doesn't answer: %v", err)
		}
		time.Sleep(25 * time.Millisecond)
	}
	for i := range c.doors {
		c.doors[i] = c.open()
	}
	return c
}

func (c *chain) open() *door {
	d := &door{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := io.ReadAll(r.Body)
		if err != nil || d.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		res, err := http.Post(c.url, "application/json", bytes.NewReader(q))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if lie := d.lie.Load(); lie != nil {
			var m struct{ Method string }
			if json.Unmarshal(q, &m) == nil {
				answer = (*lie)(m.Method, answer)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	c.t.Cleanup(d.Close)
	return d
}

func (c *chain) rpc(method string, args ...any) {
	c.t.Helper()
	if err := c.eth.Client().Call(nil, method, args...); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

func (c *chain) mine() { c.t.Helper(); c.rpc("evm_mine") }

// deploy creates a design's contract.
func (c *chain) deploy(design string) common.Address {
	c.t.Helper()
	code, err := Bytecode(design)
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.transact(nil, code)
	return r.ContractAddress
}

// transact sends and mines a transaction of the account.
func (c *chain) transact(to *common.Address, data []byte) *types.Receipt {
	c.t.Helper()
	ctx := c.t.Context()
	from := crypto.PubkeyToAddress(c.key.PublicKey)
	nonce, err := c.eth.PendingNonceAt(ctx, from)
	if err != nil {
		c.t.Fatal(err)
	}
	tx, err := types.SignNewTx(c.key, types.LatestSignerForChainID(big.NewInt(31337)), &types.DynamicFeeTx{
		ChainID: big.NewInt(31337), Nonce: nonce, GasTipCap: big.NewInt(2e9), GasFeeCap: big.NewInt(50e9), Gas: 2_000_000, To: to, Data: data,
	})
	if err == nil {
		err = c.eth.SendTransaction(ctx, tx)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.mine()
	r, err := c.eth.TransactionReceipt(ctx, tx.Hash())
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *chain) options(design string, contract common.Address) Options {
	return Options{Nodes: []string{c.doors[0].URL, c.doors[1].URL}, Chain: 31337, Contract: contract, Design: design, Key: c.key}
}

func (c *chain) client(o Options) *Client {
	c.t.Helper()
	cl, err := Dial(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// root is what a verifier would know: where the anchors are, and, from a node that he relies on, the chain's blocks.
func (c *chain) root(design string, contract common.Address) proof.Root {
	c.t.Helper()
	r := proof.Root{Kind: proof.KindEVM, Chain: 31337, Contract: strings.ToLower(contract.Hex()), Design: design,
		Sender: strings.ToLower(crypto.PubkeyToAddress(c.key.PublicKey).Hex())}
	n, err := c.eth.BlockNumber(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range n + 1 {
		h, err := c.eth.HeaderByNumber(c.t.Context(), new(big.Int).SetUint64(i))
		if err != nil {
			c.t.Fatal(err)
		}
		r.Blocks = append(r.Blocks, h.Hash().Hex())
	}
	return r
}

func (c *chain) events(design string, contract common.Address) int {
	c.t.Helper()
	logs, err := c.eth.FilterLogs(c.t.Context(), ethereum.FilterQuery{FromBlock: big.NewInt(0), Addresses: []common.Address{contract},
		Topics: [][]common.Hash{{common.Hash(proof.EventTopic(design))}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return len(logs)
}

func TestSuite(t *testing.T) {
	for _, design := range []string{proof.DesignHead, proof.DesignMapping} {
		t.Run(design, func(t *testing.T) {
			anchortest.Suite(t, func(t *testing.T, _ *anchortest.Log) *anchortest.Fixture {
				c := newChain(t)
				contract := c.deploy(design)
				return &anchortest.Fixture{
					Mechanism:   &Mechanism{c.client(c.options(design, contract))},
					Root:        func() proof.Root { return c.root(design, contract) },
					Down:        func(d bool) { c.doors[0].down.Store(d); c.doors[1].down.Store(d) },
					Commitments: func() int { return c.events(design, contract) },
					Turn:        c.mine,
					Linear:      design == proof.DesignHead,
				}
			})
		})
	}
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
	w.t.Helper()
	s, err := w.m.Advance(w.t.Context(), w.h, w.ticket)
	if err != nil {
		w.t.Fatal(err)
	}
	if s.State != want {
		w.t.Fatalf("it is %s, want %s (%s)", s.State, want, s.Detail)
	}
	if s.Ticket != nil {
		w.ticket = s.Ticket
	}
	return s
}

func (w *way) transactions() int {
	w.t.Helper()
	t, err := parseTicket(w.ticket)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(t.Txs)
}

func TestStates(t *testing.T) {
	w := newWay(t, nil)
	w.step(anchor.Submitted)
	w.step(anchor.Submitted)
	w.mine()
	w.step(anchor.Included)
	w.mine()
	w.step(anchor.Safe)
	w.mine()
	s := w.step(anchor.Final)
	if s.Cost <= 0 || s.Evidence == nil || w.transactions() != 1 {
		t.Errorf("%+v", s)
	}
}

// TestReorg: the block goes away, the receipt with it, and the same signed transaction is sent again.
func TestReorg(t *testing.T) {
	w := newWay(t, nil)
	var snapshot string
	if err := w.eth.Client().Call(&snapshot, "evm_snapshot"); err != nil {
		t.Fatal(err)
	}
	w.step(anchor.Submitted)
	w.mine()
	first := w.step(anchor.Included)
	w.rpc("evm_revert", snapshot)
	w.rpc("anvil_mine", 1, 60) // another block in its place
	w.step(anchor.Orphaned)
	w.mine()
	w.step(anchor.Included)
	w.mine()
	w.mine()
	last := w.step(anchor.Final)
	if w.transactions() != 1 || w.events(proof.DesignHead, w.m.o.Contract) != 1 {
		t.Errorf("%d transactions, %d events", w.transactions(), w.events(proof.DesignHead, w.m.o.Contract))
	}
	m := &proof.Manifest{Roots: map[string]proof.Root{"evm": w.root(proof.DesignHead, w.m.o.Contract)}}
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
	w.rpc("anvil_dropTransaction", tx.Hash())
	w.mine()
	w.step(anchor.Submitted) // sent again
	w.mine()
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
	if _, _, err := w.eth.TransactionByHash(t.Context(), b.Hash()); !errors.Is(err, ethereum.NotFound) {
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
	w.mine()
	w.step(anchor.Included)

	// Where the base fee outgrows it, there is nothing to wait for.
	w1 := newWay(t, nil)
	w1.step(anchor.Submitted)
	w1.rpc("anvil_setNextBlockBaseFeePerGas", "0x"+big.NewInt(8e9).Text(16))
	w1.mine()
	w1.step(anchor.Pending)
	w1.step(anchor.Submitted)
	w1.mine()
	w1.step(anchor.Included)
	if w1.transactions() != 2 {
		t.Errorf("%d transactions, want 2", w1.transactions())
	}

	// Above the bound nothing is raised; it waits.
	w2 := newWay(t, func(o *Options) { o.MaxFee = big.NewInt(3e9) })
	w2.step(anchor.Submitted)
	w2.rpc("anvil_setNextBlockBaseFeePerGas", "0x"+big.NewInt(8e9).Text(16))
	w2.mine()
	w2.now = w2.now.Add(time.Hour)
	w2.step(anchor.Submitted)
	if w2.transactions() != 1 {
		t.Error("it was raised above the bound")
	}
}

// TestForeignNonce: another transaction of the account takes the nonce; the anchor is signed anew.
func TestForeignNonce(t *testing.T) {
	w := newWay(t, nil)
	w.transact(&common.Address{1}, nil)
	w.step(anchor.Pending)
	w.step(anchor.Submitted)
	w.mine()
	w.step(anchor.Included)
	if n := w.events(proof.DesignHead, w.m.o.Contract); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestForkIsFree: a second history is found by the estimate, before it costs.
func TestForkIsFree(t *testing.T) {
	w := newWay(t, nil)
	w.step(anchor.Submitted)
	w.mine()
	_, err := w.m.prepare(t.Context(), anchorHead(proof.ChainLog(anchortest.Origin), merkle.Hash{}, merkle.Hash{1}), merkle.Hash{1})
	if !errors.Is(err, anchor.ErrConflict) || !strings.Contains(err.Error(), "has head") {
		t.Errorf("%v", err)
	}
}

func TestNodes(t *testing.T) {
	t.Run("one of two down", func(t *testing.T) {
		w := newWay(t, nil)
		w.doors[1].down.Store(true)
		if s, err := w.m.Advance(t.Context(), w.h, w.ticket); err == nil {
			t.Errorf("with one of two nodes it is %s", s.State)
		}
		w.doors[1].down.Store(false)
		w.step(anchor.Submitted)
	})
	t.Run("one of three down or lying", func(t *testing.T) {
		w := newWay(t, nil)
		third := w.open()
		o := w.m.o
		o.Nodes = append(o.Nodes, third.URL)
		w.m = &Mechanism{w.client(o)}
		third.down.Store(true)
		w.step(anchor.Submitted)
		third.down.Store(false)
		lie := func(method string, answer []byte) []byte {
			if method == "eth_getTransactionReceipt" {
				return []byte(`{"jsonrpc":"2.0","id":` + id(answer) + `,"result":null}`)
			}
			return answer
		}
		third.lie.Store(&lie)
		w.mine()
		w.mine()
		w.mine()
		w.step(anchor.Final)
	})
	t.Run("one of two says that it is included", func(t *testing.T) {
		w := newWay(t, nil)
		w.step(anchor.Submitted)
		w.mine()
		real := w.step(anchor.Included)
		lie := func(method string, answer []byte) []byte {
			if method == "eth_getBlockByNumber" || method == "eth_getTransactionReceipt" {
				return bytes.ReplaceAll(answer, []byte(blockOf(real.Detail)), []byte("0x"+strings.Repeat("11", 32)))
			}
			return answer
		}
		w.doors[1].lie.Store(&lie)
		if s, err := w.m.Advance(t.Context(), w.h, w.ticket); err == nil {
			t.Errorf("while the nodes disagree it is %s", s.State)
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
		r := c.transact(&contract, data)
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
		c.mine()
	}
	if got.State != anchor.Final || len(got.Evidence) != 100 || c.events(proof.DesignSuper, contract) != 1 {
		t.Fatalf("%s with %d proofs", got.State, len(got.Evidence))
	}
	m := &proof.Manifest{Roots: map[string]proof.Root{"evm": c.root(proof.DesignSuper, contract)}}
	for i, e := range got.Evidence {
		j := proof.Judge(notes[i].Origin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, m)
		if a := j.Attestations[0]; a.Status != ledger.StatusVerified {
			t.Fatalf("member %d: %+v", i, a)
		}
	}
	// The next batch goes on from there, and the same again is refused without a cost.
	if _, err := s.Prepare(t.Context(), notes); !errors.Is(err, ErrSame) {
		t.Errorf("%v", err)
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
