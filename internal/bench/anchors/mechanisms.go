package anchorsbench

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest/authority"
	"github.com/bodycam-dev/bodycam/internal/anchor/digest"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm"
	"github.com/bodycam-dev/bodycam/internal/anchor/sharedlog"
	"github.com/bodycam-dev/bodycam/internal/anchor/tsa"
	"github.com/bodycam-dev/bodycam/internal/anchor/witness"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// outside is where a mechanism anchors, running.
type outside struct {
	mechanism anchor.Mechanism
	manifest  *proof.Manifest
	roots     func() proof.Root // asked for after the anchors
	anchors   []ledger.Anchor
	told      func(anchor.Status)
	close     []func()
}

func (o *outside) stop() {
	for _, f := range slices.Backward(o.close) {
		f()
	}
}

type skipped string

func (s skipped) Error() string { return string(s) }

type mechanism struct {
	name                  string
	start                 func(context.Context, *recorder) (*outside, error)
	prior, survives, left string
}

func mechanisms() []mechanism {
	return []mechanism{
		{"none", nil, "the recorder's keys", "nothing",
			"everything: rewrite all of the log with the keys"},
		{"digest", startDigest, "the deliverer's key, and a folder that the operator can't write to", "the digests, where the folder is somebody else's",
			"stop; where folder and key are his, everything"},
		{"tlog", startLog, "the shared log's key, its witnesses' keys", "entries and tiles, at the log and whoever follows it",
			"stop; enter a second history, for all to see"},
		{"witness", startWitness, "the witnesses' keys; they must know the log's", "each witness's last checkpoint, and cosigned checkpoints that were given out",
			"stop; with a quorum of witnesses, a second history"},
		{"tsa", startTSA, "the authority's root certificate", "nothing at the authority: the stamps, where copies of them were given out",
			"stop; stamp a second history, later; withhold stamps"},
		{"evm", startChain, "chain, contract and sender; hashes of final blocks from a node that one relies on", "the contract's head and events, for ever",
			"stop; nothing to what is final"},
	}
}

func serve(o *outside, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go s.Serve(l)
	o.close = append(o.close, func() { s.Close() })
	return "http://" + l.Addr().String(), nil
}

func key(name string, alg checkpoint.Algorithm, n byte) (checkpoint.Key, checkpoint.Signer, error) {
	s, err := checkpoint.NewSigner(alg, slices.Repeat([]byte{n}, 32))
	if err != nil {
		return checkpoint.Key{}, nil, err
	}
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = s.Public()
	return k, s, nil
}

func startDigest(_ context.Context, r *recorder) (*outside, error) {
	k, s, err := key("audit", checkpoint.Ed25519, 3)
	if err != nil {
		return nil, err
	}
	root := proof.Root{Kind: proof.KindDigest, Key: k.String()}
	return &outside{mechanism: &digest.Mechanism{Dir: r.path("digests"), Signer: s}, manifest: &proof.Manifest{}, roots: func() proof.Root { return root }}, nil
}

func (r *recorder) logKeys() (map[string][]checkpoint.Key, error) {
	l, err := anchor.OpenLog(r.path("true"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	gen := l.Genesis()
	var keys []checkpoint.Key
	for _, k := range r.keys {
		keys = append(keys, checkpoint.Key{Name: gen.Origin(), Alg: k.Alg, Public: k.Public})
	}
	return map[string][]checkpoint.Key{gen.Origin(): keys}, nil
}

func startWitness(_ context.Context, r *recorder) (*outside, error) {
	logs, err := r.logKeys()
	if err != nil {
		return nil, err
	}
	o := &outside{manifest: &proof.Manifest{}}
	return o, o.witness(r, "witness", "w.example", logs, func(url string, k checkpoint.Key) error {
		o.mechanism = &witness.Mechanism{Witnesses: []witness.Witness{{URL: url, Key: k}}}
		o.roots = func() proof.Root { return proof.Root{Kind: proof.KindWitness, Key: k.String()} }
		return nil
	})
}

// witness starts a witness and hands it over.
func (o *outside) witness(r *recorder, folder, name string, logs map[string][]checkpoint.Key, use func(string, checkpoint.Key) error) error {
	k, s, err := key(name, checkpoint.Cosignature, 4)
	if err != nil {
		return err
	}
	w := &witness.Server{Name: name, Signers: []checkpoint.Signer{s}, Logs: logs}
	if err := w.Open(r.path(folder)); err != nil {
		return err
	}
	o.close = append(o.close, func() { w.Close() })
	url, err := serve(o, w)
	if err != nil {
		return err
	}
	return use(url, k)
}

func startLog(ctx context.Context, r *recorder) (*outside, error) {
	const name = "shared.example/log"
	k, _, err := key(name, checkpoint.Ed25519, 5)
	if err != nil {
		return nil, err
	}
	o := &outside{manifest: &proof.Manifest{}}
	err = o.witness(r, "log-witness", "v.example", map[string][]checkpoint.Key{name: {k}}, func(url string, wk checkpoint.Key) error {
		policy := fmt.Sprintf("witness w %s %s\nquorum w\n", wk, url)
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		l, err := sharedlog.Open(life, sharedlog.ServerOptions{Dir: r.path("shared"), Name: name, Seed: slices.Repeat([]byte{5}, 32), WitnessPolicy: []byte(policy), Interval: 100 * time.Millisecond})
		if err != nil {
			end()
			return err
		}
		o.close = append(o.close, func() { l.Close(life); end() })
		at, err := serve(o, l)
		root := proof.Root{Kind: proof.KindLog, Key: k.String(), Witnesses: []string{wk.String()}}
		o.mechanism, o.roots = &sharedlog.Mechanism{URL: at, Root: root}, func() proof.Root { return root }
		return err
	})
	return o, err
}

// startTSA lets OpenSSL be the authority.
func startTSA(_ context.Context, r *recorder) (*outside, error) {
	dir := r.path("tsa")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	a, err := authority.New(dir)
	if errors.Is(err, authority.ErrNone) {
		return nil, skipped(err.Error())
	}
	if err != nil {
		return nil, err
	}
	o := &outside{manifest: &proof.Manifest{}}
	url, err := serve(o, a)
	root := proof.Root{Kind: proof.KindTSA, Certificates: a.Root}
	o.mechanism, o.roots = &tsa.Mechanism{URL: url, Root: &root}, func() proof.Root { return root }
	return o, err
}

// startChain lets anvil be the chain. Blocks are made when something is sent, so that the time is ours, not the chain's.
func startChain(ctx context.Context, r *recorder) (*outside, error) {
	program := os.Getenv("ANVIL")
	if program == "" {
		var err error
		if program, err = exec.LookPath("anvil"); err != nil {
			return nil, skipped("no anvil to be the chain: npm install -g @foundry-rs/anvil, or set ANVIL")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.Command(program, "--port", fmt.Sprint(port), "--hardfork", "osaka", "--slots-in-an-epoch", "1", "--silent", "--no-mining")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	o := &outside{manifest: &proof.Manifest{}, close: []func(){func() { cmd.Process.Kill(); cmd.Wait() }}}
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	e, err := ethclient.Dial(url)
	for i := 0; err == nil && i < 200; i++ {
		if _, nerr := e.BlockNumber(ctx); nerr == nil {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if err != nil {
		o.stop()
		return nil, err
	}
	mine := func() error { return e.Client().CallContext(ctx, nil, "evm_mine") }
	k, err := crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80") // anvil's first account
	if err == nil {
		err = o.chain(ctx, e, url, mine, evm.Options{Nodes: []string{url}, Chain: 31337, Design: proof.DesignHead, Key: k})
	}
	if err != nil {
		o.stop()
		return nil, err
	}
	o.told = func(anchor.Status) { _ = mine() }
	return o, nil
}

// chain deploys the contract and makes the mechanism.
func (o *outside) chain(ctx context.Context, e *ethclient.Client, url string, mine func() error, opts evm.Options) error {
	code, err := evm.Bytecode(opts.Design)
	if err != nil {
		return err
	}
	tx, err := types.SignNewTx(opts.Key, types.LatestSignerForChainID(big.NewInt(31337)), &types.DynamicFeeTx{
		ChainID: big.NewInt(31337), GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(50e9), Gas: 2_000_000, Data: code})
	if err == nil {
		err = e.SendTransaction(ctx, tx)
	}
	if err == nil {
		err = mine()
	}
	if err != nil {
		return err
	}
	rec, err := e.TransactionReceipt(ctx, tx.Hash())
	if err != nil {
		return err
	}
	opts.Contract = rec.ContractAddress
	c, err := evm.Dial(ctx, opts)
	if err != nil {
		return err
	}
	o.mechanism = &evm.Mechanism{Client: c}
	o.roots = func() proof.Root {
		root := proof.Root{Kind: proof.KindEVM, Chain: 31337, Design: opts.Design,
			Contract: strings.ToLower(opts.Contract.Hex()), Sender: strings.ToLower(c.Sender().Hex())}
		n, err := e.BlockNumber(ctx)
		for i := uint64(0); err == nil && i <= n; i++ {
			var h *types.Header
			if h, err = e.HeaderByNumber(ctx, new(big.Int).SetUint64(i)); err == nil {
				root.Blocks = append(root.Blocks, h.Hash().Hex())
			}
		}
		return root
	}
	return nil
}
