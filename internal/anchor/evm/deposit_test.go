package evm

import (
	"bytes"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmtest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// layers are two chains: layer 1 with a stand-in of ours for the portal, and layer 2, an anvil node of the OP Stack's rules. What
// a rollup's node does in between, evmtest.Derive does. anvil, which isn't ours, checks type and hash of deposited transactions.
type layers struct {
	l1, l2           *evmtest.Node
	portal, contract common.Address
	done             uint64 // layer 1's blocks that were derived
}

func newLayers(t *testing.T) *layers {
	t.Helper()
	k := &layers{l1: evmtest.Anvil(t), l2: evmtest.Layer2(t)}
	code, err := Bytecode(proof.DesignHead)
	if err != nil {
		t.Fatal(err)
	}
	k.portal, k.contract = k.l1.Deploy(evmtest.Portal(t)), k.l2.Deploy(code)
	k.skip()
	return k
}

func (k *layers) skip() {
	n, err := k.l1.Eth.BlockNumber(k.l1.T.Context())
	if err != nil {
		k.l1.T.Fatal(err)
	}
	k.done = n
}

// derive lets layer 2 catch up with layer 1.
func (k *layers) derive() {
	k.l1.T.Helper()
	from := k.done
	k.skip()
	for n := from + 1; n <= k.done; n++ {
		evmtest.Derive(k.l1, k.l2, k.portal, new(big.Int).SetUint64(n))
	}
}

func (k *layers) options(after time.Duration) Options {
	url := func(n *evmtest.Node) []string { return []string{n.Doors[0].URL, n.Doors[1].URL} }
	return Options{Nodes: url(k.l2), Chain: k.l2.Chain, Contract: k.contract, Design: proof.DesignHead, Key: k.l2.Key,
		Deposit: &Deposit{Nodes: url(k.l1), Chain: k.l1.Chain, Portal: k.portal, After: after}}
}

// TestSuiteByDeposit: all that is asked of an anchor holds where every head goes in through layer 1.
func TestSuiteByDeposit(t *testing.T) {
	anchortest.Suite(t, func(t *testing.T, _ *anchortest.Log) *anchortest.Fixture {
		k := newLayers(t)
		c, err := Dial(t.Context(), k.options(0))
		if err != nil {
			t.Fatal(err)
		}
		return &anchortest.Fixture{
			Mechanism: &Mechanism{c},
			Root:      func() proof.Root { return k.l2.Root(proof.DesignHead, k.contract) },
			Down: func(d bool) {
				for i := range 2 {
					k.l1.Doors[i].Down.Store(d)
					k.l2.Doors[i].Down.Store(d)
				}
			},
			Commitments: func() int { return k.l2.Events(proof.DesignHead, k.contract) },
			Turn:        func() { k.l1.Mine(); k.derive() },
			Linear:      true,
		}
	})
}

// crossing is one head on its way over both layers.
type crossing struct {
	*layers
	t      *testing.T
	m      *Mechanism
	log    *anchortest.Log
	h      anchor.Head
	ticket []byte
	now    time.Time
}

func newCrossing(t *testing.T, after time.Duration) *crossing {
	t.Helper()
	k := &crossing{layers: newLayers(t), t: t, log: anchortest.NewLog(), now: time.Now()}
	o := k.options(after)
	o.Now = func() time.Time { return k.now }
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	k.m = &Mechanism{c}
	k.next()
	return k
}

// next grows the log and prepares its head.
func (k *crossing) next() {
	k.t.Helper()
	k.log.Grow("x")
	var err error
	if k.h, err = k.log.Head(); err == nil {
		k.ticket, err = k.m.Prepare(k.t.Context(), k.h, k.ticket)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *crossing) step(want anchor.State) anchor.Step {
	k.t.Helper()
	s, err := k.m.Advance(k.t.Context(), k.h, k.ticket)
	if err != nil {
		k.t.Fatal(err)
	}
	if s.State != want {
		k.t.Fatalf("it is %s, want %s (%s)", s.State, want, s.Detail)
	}
	if s.Ticket != nil {
		k.ticket = s.Ticket
	}
	return s
}

// censor takes our transactions out of layer 2's pool, as a sequencer does that doesn't want them.
func (k *crossing) censor() { k.t.Helper(); k.l2.RPC("anvil_dropAllTransactions") }

func (k *crossing) verified(s anchor.Step) {
	k.t.Helper()
	if s.Evidence == nil {
		k.t.Fatal("no proof")
	}
	m := &proof.Manifest{Roots: map[string]proof.Root{"evm": k.l2.Root(proof.DesignHead, k.contract)}}
	if a := proof.Judge(anchortest.Origin, []ledger.Anchor{{Kind: proof.KindEVM, Data: s.Evidence.Append(nil)}}, m).Attestations[0]; a.Status != ledger.StatusVerified {
		k.t.Fatalf("%+v", a)
	}
}

// TestCensored: what layer 2 doesn't take for an hour goes in through layer 1, whose block it must follow.
func TestCensored(t *testing.T) {
	k := newCrossing(t, time.Hour)
	for range 3 {
		k.step(anchor.Submitted)
		k.censor()
		k.l2.Mine()
	}
	k.now = k.now.Add(2 * time.Hour)
	k.step(anchor.Pending) // signed and stored
	pool, err := k.l1.Eth.PendingTransactionCount(t.Context())
	if err != nil || pool != 0 {
		t.Fatalf("%d transactions in layer 1's pool before the deposit was stored, %v", pool, err)
	}
	k.step(anchor.Submitted)
	k.censor()
	k.l1.Mine()
	s := k.step(anchor.Submitted)
	if !strings.Contains(s.Detail, "of layer 1, to be executed as 0x") || s.Evidence != nil {
		t.Errorf("%+v", s)
	}
	k.derive()
	if s = k.step(anchor.Included); !strings.Contains(s.Detail, "executed as 0x") || s.Cost <= 0 {
		t.Errorf("%+v", s)
	}
	k.verified(s)
	k.l2.Mine()
	k.l2.Mine()
	k.verified(k.step(anchor.Final))
	if n := k.l2.Events(proof.DesignHead, k.contract); n != 1 {
		t.Errorf("%d events", n)
	}
	// The sequencer relents: the next head goes the short way, in a block that begins with somebody's deposit.
	k.next()
	k.step(anchor.Submitted)
	k.l1.Transact(&k.portal, depositCall(common.Address{9}, 100_000, []byte("somebody else's")))
	k.derive()
	s = k.step(anchor.Included)
	if strings.Contains(s.Detail, "layer 1") {
		t.Errorf("it went through layer 1: %s", s.Detail)
	}
	k.verified(s)
}

// TestBothWays: where both the transaction and its deposit get in, one of them sets the head and the other one fails. That is
// no conflict.
func TestBothWays(t *testing.T) {
	k := newCrossing(t, time.Hour)
	k.step(anchor.Submitted)
	k.censor()
	k.now = k.now.Add(2 * time.Hour)
	k.step(anchor.Pending)
	k.step(anchor.Submitted)
	k.l1.Mine()
	// Before the deposit's turn the sequencer puts in what it had kept back.
	tk, err := parseTicket(k.ticket)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := tk.last()
	if err == nil {
		err = k.l2.Eth.SendTransaction(t.Context(), tx)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.l2.Mine()
	k.derive()
	s := k.step(anchor.Safe)
	if strings.Contains(s.Detail, "layer 1") || k.l2.Events(proof.DesignHead, k.contract) != 1 {
		t.Errorf("%s, %d events", s.Detail, k.l2.Events(proof.DesignHead, k.contract))
	}
	k.verified(s)
}

// TestLayer1Reorg: the deposit's block goes away before layer 2 followed it; the same transaction gets into another block, and
// so becomes another transaction of layer 2.
func TestLayer1Reorg(t *testing.T) {
	k := newCrossing(t, 0)
	var snapshot string
	if err := k.l1.Eth.Client().Call(&snapshot, "evm_snapshot"); err != nil {
		t.Fatal(err)
	}
	k.step(anchor.Submitted)
	k.l1.Mine()
	first := k.step(anchor.Submitted)
	k.l1.RPC("evm_revert", snapshot)
	k.l1.RPC("anvil_mine", 1, 60)
	k.step(anchor.Submitted) // sent again
	k.l1.Mine()
	second := k.step(anchor.Submitted)
	as := func(s anchor.Step) string { return s.Detail[strings.LastIndex(s.Detail, "0x"):] }
	if as(first) == as(second) || strings.Fields(first.Detail)[1] != strings.Fields(second.Detail)[1] {
		t.Fatalf("want the same deposit in another block:\n%s\n%s", first.Detail, second.Detail)
	}
	k.derive()
	k.verified(k.step(anchor.Included))
	if n := k.l2.Events(proof.DesignHead, k.contract); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestStuckDeposit: a deposit that layer 1 doesn't take is replaced, as any other transaction is.
func TestStuckDeposit(t *testing.T) {
	k := newCrossing(t, 0)
	k.step(anchor.Submitted)
	k.now = k.now.Add(5 * time.Minute)
	k.step(anchor.Pending)
	k.step(anchor.Submitted)
	tk, err := parseTicket(k.ticket)
	if err != nil || len(tk.Deposit.Txs) != 2 {
		t.Fatalf("%d deposits, %v", len(tk.Deposit.Txs), err)
	}
	k.l1.Mine()
	k.derive()
	k.verified(k.step(anchor.Included))

	// Another transaction of the account takes its nonce.
	k.next()
	k.l1.Transact(&common.Address{1}, nil)
	k.step(anchor.Pending)
	k.step(anchor.Submitted)
	k.l1.Mine()
	k.derive()
	k.verified(k.step(anchor.Included))
}

// TestNoPortal: what isn't a portal takes no head in, and that shows.
func TestNoPortal(t *testing.T) {
	k := newCrossing(t, 0)
	k.m.o.Deposit.Portal = common.Address{7}
	k.next()
	k.step(anchor.Submitted)
	k.l1.Mine()
	if _, err := k.m.Advance(t.Context(), k.h, k.ticket); err == nil || !strings.Contains(err.Error(), "no event of the portal") {
		t.Errorf("%v", err)
	}
	lie := func(method string, answer []byte) []byte {
		if method == "eth_getTransactionReceipt" {
			return bytes.Replace(answer, []byte(`"logs":[]`), []byte(`"logs":[null]`), 1)
		}
		return answer
	}
	for _, d := range k.l1.Doors {
		d.Lie.Store(&lie)
	}
	if _, err := k.m.Advance(t.Context(), k.h, k.ticket); err == nil || !strings.Contains(err.Error(), "no event of the portal") {
		t.Errorf("a null for an event: %v", err)
	}
	k.m.o.Deposit.Chain = 5
	if _, err := k.m.Prepare(t.Context(), k.h, nil); err == nil || !strings.Contains(err.Error(), "layer 1: the nodes are of chain 31337, not 5") {
		t.Errorf("%v", err)
	}
}

// TestOpaque: of the packing that stands in the portal's event there is one form.
func TestOpaque(t *testing.T) {
	data := anchorHead([32]byte{1}, [32]byte{2}, [32]byte{3})
	b := opaque(123_456, data)
	gas, got, ok := unpack(b)
	if !ok || gas != 123_456 || !bytes.Equal(got, data) {
		t.Fatalf("%d, %x, %v", gas, got, ok)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x80
		if gas, got, ok := unpack(bad); ok && gas == 123_456 && bytes.Equal(got, data) {
			t.Errorf("byte %d doesn't count", i)
		}
	}
	for i := range b {
		if _, _, ok := unpack(b[:i]); ok {
			t.Errorf("cut to %d bytes it is read", i)
		}
	}
}

// FuzzUnpack: what a node of layer 1 gives for an event may be anything.
func FuzzUnpack(f *testing.F) {
	f.Add(opaque(123_456, anchorHead([32]byte{1}, [32]byte{2}, [32]byte{3})))
	f.Add(opaque(21_000, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if gas, data, ok := unpack(b); ok && !bytes.Equal(opaque(gas, data), b) {
			t.Error("it has two encodings")
		}
	})
}

// FuzzReceipt: and for a receipt.
func FuzzReceipt(f *testing.F) {
	f.Add([]byte(`{"type":"0x7e","status":"0x1","cumulativeGasUsed":"0x52a8","logs":[],"logsBloom":"0x` + strings.Repeat("00", 256) + `","transactionHash":"0x` +
		strings.Repeat("11", 32) + `","gasUsed":"0x52a8","depositNonce":"0x1","depositReceiptVersion":"0x1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &receipt{}
		if r.UnmarshalJSON(b) != nil {
			return
		}
		if _, err := r.encode(); err != nil {
			return
		}
		if _, _, err := proveReceipt([]*receipt{r}, 0); err != nil {
			t.Errorf("it can be encoded and not proved: %v", err)
		}
	})
}
