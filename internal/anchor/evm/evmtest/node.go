// Package evmtest is a chain for tests: a real node that makes blocks when it is told to, behind doors that can be shut and
// can lie.
package evmtest

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
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

	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Node is a node of a chain.
type Node struct {
	T     testing.TB
	URL   string
	Chain uint64
	Eth   *ethclient.Client
	// Key is of an account that has ether.
	Key *ecdsa.PrivateKey
	// Mine makes a block of what is in the pool.
	Mine  func()
	Doors [2]*Door
}

// Door stands between a client and the node.
type Door struct {
	*httptest.Server
	Down atomic.Bool
	// Lie changes the node's answers.
	Lie atomic.Pointer[func(method string, answer []byte) []byte]
}

// New makes a Node of one that listens, and waits until it answers.
func New(t testing.TB, url string, chain uint64, key *ecdsa.PrivateKey) *Node {
	t.Helper()
	n := &Node{T: t, URL: url, Chain: chain, Key: key}
	var err error
	if n.Eth, err = ethclient.Dial(url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Eth.Close)
	for i := 0; ; i++ {
		if _, err := n.Eth.BlockNumber(t.Context()); err == nil {
			break
		} else if i == 400 {
			t.Fatalf("the node doesn't answer: %v", err)
		}
		time.Sleep(25 * time.Millisecond)
	}
	for i := range n.Doors {
		n.Doors[i] = n.Open()
	}
	return n
}

// Key is the private key of anvil's first account, which is public.
func Key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Anvil starts an anvil node of Osaka's rules on which a block is safe after one more and final after two: npm install
// @foundry-rs/anvil. Without the program the test is skipped.
func Anvil(t testing.TB) *Node { t.Helper(); return anvil(t, 31337, "--hardfork", "osaka") }

// Layer2 starts an anvil node of the OP Stack's rules, which executes deposited transactions (type 0x7e). It derives none from
// a layer 1: that is for the test to do.
func Layer2(t testing.TB) *Node { t.Helper(); return anvil(t, 901, "--optimism") }

func anvil(t testing.TB, chain uint64, args ...string) *Node {
	t.Helper()
	program := os.Getenv("ANVIL")
	if program == "" {
		var err error
		if program, err = exec.LookPath("anvil"); err != nil {
			t.Skip("no anvil: npm install -g @foundry-rs/anvil, or set ANVIL to the program")
		}
	}
	port := Port(t)
	cmd := exec.Command(program, append(args, "--port", fmt.Sprint(port), "--chain-id", fmt.Sprint(chain), "--no-mining", "--slots-in-an-epoch", "1", "--silent", "--accounts", "3")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	n := New(t, fmt.Sprintf("http://127.0.0.1:%d", port), chain, Key(t))
	n.Mine = func() { n.T.Helper(); n.RPC("evm_mine") }
	return n
}

// Port is a port that is free.
func Port(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Open makes another door.
func (n *Node) Open() *Door {
	d := &Door{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := io.ReadAll(r.Body)
		if err != nil || d.Down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		res, err := http.Post(n.URL, "application/json", bytes.NewReader(q))
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
		if lie := d.Lie.Load(); lie != nil {
			var m struct{ Method string }
			if json.Unmarshal(q, &m) == nil {
				answer = (*lie)(m.Method, answer)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	n.T.Cleanup(d.Close)
	return d
}

// RPC calls a method of the node.
func (n *Node) RPC(method string, args ...any) {
	n.T.Helper()
	if err := n.Eth.Client().Call(nil, method, args...); err != nil {
		n.T.Fatalf("%s: %v", method, err)
	}
}

// Sender is the account's address.
func (n *Node) Sender() common.Address { return crypto.PubkeyToAddress(n.Key.PublicKey) }

// Deploy creates a contract.
func (n *Node) Deploy(code []byte) common.Address {
	n.T.Helper()
	r := n.Transact(nil, code)
	if r.Status != types.ReceiptStatusSuccessful {
		n.T.Fatal("the contract wasn't created")
	}
	return r.ContractAddress
}

// Transact sends and mines a transaction of the account.
func (n *Node) Transact(to *common.Address, data []byte) *types.Receipt {
	n.T.Helper()
	ctx := n.T.Context()
	nonce, err := n.Eth.PendingNonceAt(ctx, n.Sender())
	if err != nil {
		n.T.Fatal(err)
	}
	id := new(big.Int).SetUint64(n.Chain)
	tx, err := types.SignNewTx(n.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: nonce, GasTipCap: big.NewInt(2e9), GasFeeCap: big.NewInt(50e9), Gas: 2_000_000, To: to, Data: data,
	})
	if err == nil {
		err = n.Eth.SendTransaction(ctx, tx)
	}
	if err != nil {
		n.T.Fatal(err)
	}
	n.Mine()
	r, err := n.Eth.TransactionReceipt(ctx, tx.Hash())
	if err != nil {
		n.T.Fatal(err)
	}
	return r
}

// Root is what a verifier would know: where the anchors are, and, from a node that he relies on, the hashes of the chain's
// blocks with the contract's events.
func (n *Node) Root(design string, contract common.Address) proof.Root {
	n.T.Helper()
	r := proof.Root{Kind: proof.KindEVM, Chain: n.Chain, Contract: strings.ToLower(contract.Hex()), Design: design,
		Sender: strings.ToLower(n.Sender().Hex())}
	for _, l := range n.logs(design, contract) {
		r.Blocks = append(r.Blocks, l.BlockHash.Hex())
	}
	return r
}

// Events counts a design's events of a contract.
func (n *Node) Events(design string, contract common.Address) int {
	n.T.Helper()
	return len(n.logs(design, contract))
}

// GasUsed is what the transactions used that left a design's events, in their order.
func (n *Node) GasUsed(design string, contract common.Address) (out []uint64) {
	n.T.Helper()
	for _, l := range n.logs(design, contract) {
		r, err := n.Eth.TransactionReceipt(n.T.Context(), l.TxHash)
		if err != nil {
			n.T.Fatal(err)
		}
		out = append(out, r.GasUsed)
	}
	return out
}

func (n *Node) logs(design string, contract common.Address) []types.Log {
	n.T.Helper()
	logs, err := n.Eth.FilterLogs(n.T.Context(), ethereum.FilterQuery{FromBlock: big.NewInt(0), Addresses: []common.Address{contract},
		Topics: [][]common.Hash{{common.Hash(proof.EventTopic(design))}}})
	if err != nil {
		n.T.Fatal(err)
	}
	return logs
}
