// Package config opens mechanisms from what a file says: `anchors` of a kind, or a file of its own.
package config

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/goccy/go-yaml"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/digest"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm"
	"github.com/bodycam-dev/bodycam/internal/anchor/sharedlog"
	"github.com/bodycam-dev/bodycam/internal/anchor/tsa"
	"github.com/bodycam-dev/bodycam/internal/anchor/witness"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Config is one anchor.
type Config struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // digest, witness, tlog, tsa, evm
	// To is where: a folder (digest), a URL (tlog, tsa).
	To string `json:"to,omitempty"`
	// Every is the time between two anchors, as 10m or 1h; "": whenever there is a new head.
	Every string `json:"every,omitempty"`
	// Promise is the longest time between two anchors, as 1h, that the ledger's genesis declares where the anchor is a kind's.
	// The shortest of a kind's counts. "": none.
	Promise string `json:"promise,omitempty"`
	// Budget is what may be spent in a day, in ether (evm). It widens Every up to what the log promises.
	Budget float64 `json:"budget,omitempty"`
	// Key is a file with a private key: of `bodycam anchor key` (digest), or 64 hexadecimal digits (evm).
	Key string `json:"key,omitempty"`
	// Witnesses cosign, Quorum of them (default: all).
	Witnesses []Witness `json:"witnesses,omitempty"`
	Quorum    int       `json:"quorum,omitempty"`
	// Root is what a tlog's or tsa's answers are checked against before they are kept, as in a manifest.
	Root *proof.Root `json:"root,omitempty"`
	// Nodes, Agree, Chain, Contract, Design and MaxFee (gwei per gas) are for evm: see package evm.
	Nodes    []string `json:"nodes,omitempty"`
	Agree    int      `json:"agree,omitempty"`
	Chain    uint64   `json:"chain,omitempty"`
	Contract string   `json:"contract,omitempty"`
	Design   string   `json:"design,omitempty"`
	MaxFee   float64  `json:"max_fee,omitempty"`
	// Deposit is the way past the sequencer of a layer 2, for evm.
	Deposit *Deposit `json:"deposit,omitempty"`

	dir string // that paths are relative to
}

// Deposit is the way into a layer 2 through its portal on layer 1 ([evm.Deposit]).
type Deposit struct {
	Nodes  []string `json:"nodes"`
	Agree  int      `json:"agree,omitempty"`
	Chain  uint64   `json:"chain"`
	Portal string   `json:"portal"`
	// After is how long a head may stay outside of layer 2 before it goes this way, as 1h. "": all heads go this way.
	After  string  `json:"after,omitempty"`
	MaxFee float64 `json:"max_fee,omitempty"`
}

// Witness is a witness to ask.
type Witness struct {
	URL string `json:"url"`
	Key string `json:"key"`
}

// Read reads a file, YAML or JSON, with a list named anchors. Paths in it are relative to its folder.
func Read(path string) ([]Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading anchors: %w", err)
	}
	var doc struct {
		Anchors []json.RawMessage `json:"anchors"`
	}
	if b, err = yaml.YAMLToJSON(b); err == nil {
		err = strict(b, &doc)
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		err = errors.New("it must hold a list named anchors")
	}
	if err != nil {
		return nil, fmt.Errorf("reading anchors from %s: %w", path, err)
	}
	list, err := Parse(doc.Anchors, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("reading anchors from %s: %w", path, err)
	}
	return list, nil
}

// Parse reads the anchors of a kind. Paths are relative to dir.
func Parse(raw []json.RawMessage, dir string) ([]Config, error) {
	var out []Config
	for i, r := range raw {
		c := Config{dir: dir}
		if err := strict(r, &c); err != nil {
			return nil, fmt.Errorf("anchor %d: %s", i+1, strings.TrimPrefix(err.Error(), "json: "))
		}
		if c.Name == "" {
			c.Name = c.Kind
		}
		if !slices.Contains(proof.Kinds(), c.Kind) {
			return nil, fmt.Errorf("anchor %s is of kind %q; there are %s", c.Name, c.Kind, strings.Join(proof.Kinds(), ", "))
		}
		if slices.ContainsFunc(out, func(o Config) bool { return o.Name == c.Name }) {
			return nil, fmt.Errorf("two anchors are called %s", c.Name)
		}
		if _, err := c.Options(); err != nil {
			return nil, err
		}
		if _, err := Promised([]Config{c}); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func (c Config) path(p string) string {
	if filepath.IsAbs(p) || p == "" {
		return p
	}
	return filepath.Join(c.dir, p)
}

// Options are the runner's.
func (c Config) Options() (anchor.Options, error) {
	o := anchor.Options{Name: c.Name, Budget: c.Budget}
	if c.Every != "" {
		d, err := time.ParseDuration(c.Every)
		if err != nil || d < 0 {
			return o, fmt.Errorf("anchor %s: every %q is no time such as 10m", c.Name, c.Every)
		}
		o.Every = d
	}
	return o, nil
}

// Promised is the shortest time between two anchors that any of a kind's promises; 0: none does.
func Promised(list []Config) (shortest time.Duration, err error) {
	for _, c := range list {
		if c.Promise == "" {
			continue
		}
		d, err := time.ParseDuration(c.Promise)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("anchor %s: promise %q is no time such as 1h", c.Name, c.Promise)
		}
		if shortest == 0 || d < shortest {
			shortest = d
		}
	}
	return shortest, nil
}

// Open makes the mechanism. Nothing is sent.
func (c Config) Open(ctx context.Context) (anchor.Mechanism, error) {
	m, err := c.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("anchor %s: %w", c.Name, err)
	}
	return m, nil
}

func (c Config) open(ctx context.Context) (anchor.Mechanism, error) {
	switch c.Kind {
	case proof.KindDigest:
		if c.Key == "" {
			return nil, errors.New("it needs a key, of `bodycam anchor key --type digest`")
		}
		_, s, err := ReadKey(c.path(c.Key))
		if err == nil && c.To == "" {
			err = errors.New("it needs a folder: to")
		}
		return &digest.Mechanism{Dir: c.path(c.To), Signer: s}, err
	case proof.KindTSA:
		if c.To == "" {
			return nil, errors.New("it needs the authority's URL: to")
		}
		return &tsa.Mechanism{URL: c.To, Root: c.Root}, nil
	case proof.KindLog:
		if c.To == "" || c.Root == nil {
			return nil, errors.New("it needs the log's URL (to) and its keys (root)")
		}
		return &sharedlog.Mechanism{URL: c.To, Root: *c.Root}, nil
	case proof.KindWitness:
		if n := len(c.Witnesses); n == 0 || c.Quorum < 0 || c.Quorum > n {
			return nil, fmt.Errorf("it needs witnesses, and a quorum of at most as many: %d of %d", c.Quorum, n)
		}
		m := &witness.Mechanism{Quorum: c.Quorum}
		for _, w := range c.Witnesses {
			k, err := checkpoint.ParseKey(w.Key)
			if err != nil {
				return nil, err
			}
			m.Witnesses = append(m.Witnesses, witness.Witness{URL: w.URL, Key: k})
		}
		return m, nil
	}
	cl, err := c.Client(ctx)
	if err == nil && c.Design == proof.DesignSuper {
		err = errors.New("a super-root is over many runs: see bodycam anchor super")
	}
	return &evm.Mechanism{Client: cl}, err
}

// Client makes the client of an evm anchor.
func (c Config) Client(ctx context.Context) (*evm.Client, error) {
	if len(c.Nodes) == 0 || c.Key == "" {
		return nil, errors.New("it needs nodes, and the file of an account's key")
	}
	o := evm.Options{Nodes: c.Nodes, Agree: c.Agree, Chain: c.Chain, Contract: common.HexToAddress(c.Contract), Design: c.Design}
	o.MaxFee = gwei(c.MaxFee)
	b, err := os.ReadFile(c.path(c.Key))
	if err != nil {
		return nil, fmt.Errorf("reading the account's key: %w", err)
	}
	if o.Key, err = crypto.HexToECDSA(strings.TrimPrefix(strings.TrimSpace(string(b)), "0x")); err != nil {
		return nil, fmt.Errorf("the account's key in %s: %w", c.Key, err)
	}
	if !common.IsHexAddress(c.Contract) {
		return nil, fmt.Errorf("contract %q is no address", c.Contract)
	}
	if o.Deposit, err = c.Deposit.options(); err != nil {
		return nil, fmt.Errorf("deposit: %w", err)
	}
	return evm.Dial(ctx, o)
}

// gwei is a fee in wei; nil where there is no bound.
func gwei(f float64) (wei *big.Int) {
	if f > 0 {
		wei, _ = big.NewFloat(f * 1e9).Int(nil)
	}
	return wei
}

func (d *Deposit) options() (*evm.Deposit, error) {
	if d == nil {
		return nil, nil
	}
	o := &evm.Deposit{Nodes: d.Nodes, Agree: d.Agree, Chain: d.Chain, Portal: common.HexToAddress(d.Portal), MaxFee: gwei(d.MaxFee)}
	if !common.IsHexAddress(d.Portal) || d.Chain == 0 {
		return nil, fmt.Errorf("it needs layer 1's chain and the address of its portal, not %q", d.Portal)
	}
	if d.After != "" {
		var err error
		if o.After, err = time.ParseDuration(d.After); err != nil || o.After < 0 {
			return nil, fmt.Errorf("after %q is no time such as 1h", d.After)
		}
	}
	return o, nil
}

const privatePrefix = "PRIVATE+KEY+"

// CreateKey makes a private key and writes it to a new file that only its owner can read. It returns the verifier key.
func CreateKey(path, name string, alg checkpoint.Algorithm, seed []byte) (checkpoint.Key, error) {
	s, err := checkpoint.NewSigner(alg, seed)
	if err != nil {
		return checkpoint.Key{}, err
	}
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = s.Public()
	if err := k.Valid(); err != nil {
		return k, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return k, fmt.Errorf("writing a key: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s%s+%d+%s\n", privatePrefix, name, alg, hex.EncodeToString(seed))
	return k, errors.Join(err, f.Sync(), f.Close())
}

// ReadKey reads what CreateKey wrote.
func ReadKey(path string) (checkpoint.Key, checkpoint.Signer, error) {
	seed, k, err := readSeed(path)
	if err != nil {
		return k, nil, err
	}
	s, err := checkpoint.NewSigner(k.Alg, seed)
	if err != nil {
		return k, nil, err
	}
	k.Alg, k.Public = s.Public()
	return k, s, k.Valid()
}

// ReadSeed reads the seed itself, for who makes a signer of another form of it.
func ReadSeed(path string) (name string, alg checkpoint.Algorithm, seed []byte, err error) {
	seed, k, err := readSeed(path)
	return k.Name, k.Alg, seed, err
}

func readSeed(path string) ([]byte, checkpoint.Key, error) {
	bad := func(err error) ([]byte, checkpoint.Key, error) {
		return nil, checkpoint.Key{}, fmt.Errorf("reading the key in %q: %w", path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return bad(err)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(string(b)), privatePrefix)
	parts := strings.Split(rest, "+")
	if !ok || len(parts) != 3 {
		return bad(errors.New("it is none that `bodycam anchor key` wrote"))
	}
	var alg uint8
	if _, err := fmt.Sscanf(parts[1], "%d", &alg); err != nil {
		return bad(err)
	}
	seed, err := hex.DecodeString(parts[2])
	if err != nil {
		return bad(errors.New("its seed isn't hexadecimal"))
	}
	return seed, checkpoint.Key{Name: parts[0], Alg: checkpoint.Algorithm(alg)}, nil
}
