// Package evm anchors checkpoints on an Ethereum-like chain.
//
// What stands on the chain is SHA-256 of the checkpoint's text ([proof.ChainHead]) under SHA-256 of the log's origin. The
// contracts are in folder contracts, with the ABI and bytecode that they compile to; compile.mjs proves that. The client
// owns its account's nonces, stores a signed transaction before it sends it, sends the same one again after a reorg, and
// believes of the chain only what enough of its nodes say alike. What it leaves behind proves the receipt offline, to whoever
// knows the hash of the block.
package evm

import (
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

//go:embed contracts/*.json
var compiled embed.FS

// Bytecode is what creates a design's contract.
func Bytecode(design string) ([]byte, error) {
	name, ok := map[string]string{proof.DesignHead: "Head", proof.DesignSuper: "Super", proof.DesignMapping: "Mapping"}[design]
	if !ok {
		return nil, fmt.Errorf("there is no contract design %q: head, super, mapping", design)
	}
	b, err := compiled.ReadFile("contracts/" + name + ".json")
	if err != nil {
		return nil, err
	}
	var c struct{ Bytecode string }
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("contract %s: %w", name, err)
	}
	return hex.DecodeString(strings.TrimPrefix(c.Bytecode, "0x"))
}

type word = merkle.Hash

func number(n uint64) (w word) {
	binary.BigEndian.PutUint64(w[24:], n)
	return w
}

func address(a [20]byte) (w word) {
	copy(w[12:], a[:])
	return w
}

// call is the data of a contract call.
func call(signature string, args ...word) []byte {
	sel := proof.Keccak([]byte(signature))
	out := append([]byte{}, sel[:4]...)
	for i := range args {
		out = append(out, args[i][:]...)
	}
	return out
}

// The calls of the contracts.
func anchorHead(log, prev, next word) []byte {
	return call("anchor(bytes32,bytes32,bytes32)", log, prev, next)
}

func anchorMapping(size uint64, head, prev word) []byte {
	return call("anchor(uint256,bytes32,bytes32)", number(size), head, prev)
}

func anchorSuper(prev, root word, members uint64) []byte {
	return call("anchor(bytes32,bytes32,uint64)", prev, root, number(members))
}

// Members is the tree of a super-root.
type Members []checkpoint.Checkpoint

func (m Members) leaves() []merkle.Hash {
	out := make([]merkle.Hash, len(m))
	for i := range m {
		out[i] = merkle.LeafHash(proof.SuperLeaf(m[i]))
	}
	return out
}

// Root is the super-root.
func (m Members) Root() merkle.Hash { return merkle.Root(m.leaves()) }

var forkSelector = func() [4]byte { h := proof.Keccak([]byte("Fork(bytes32)")); return [4]byte(h[:4]) }()
