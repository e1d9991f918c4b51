package evm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rlp"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// A block's receipts are the values of a Merkle-Patricia trie, keyed by the RLP of their index. It is small and made once,
// so it is made in memory, by recursion, and only the nodes on the way to one key are kept.

// receipt is a transaction's receipt as a node gives it.
type receipt struct {
	types.Receipt
	// DepositNonce and DepositVersion are there in receipts of the OP Stack's deposited transactions; the version since Canyon,
	// from when on both are in the trie.
	DepositNonce, DepositVersion *hexutil.Uint64
}

// typeDeposit is that of the OP Stack's deposited transactions.
const typeDeposit = 0x7e

// UnmarshalJSON implements [json.Unmarshaler].
func (r *receipt) UnmarshalJSON(b []byte) error {
	var more struct {
		DepositNonce   *hexutil.Uint64 `json:"depositNonce"`
		DepositVersion *hexutil.Uint64 `json:"depositReceiptVersion"`
	}
	if err := errors.Join(json.Unmarshal(b, &r.Receipt), json.Unmarshal(b, &more)); err != nil {
		return err
	}
	r.DepositNonce, r.DepositVersion = more.DepositNonce, more.DepositVersion
	return nil
}

// encode is the receipt as it is in the trie. Types of layer 2 chains that nothing is known of here are taken to be as
// Ethereum's are; whether that is true, the block's header says.
func (r *receipt) encode() ([]byte, error) {
	if r.Type != typeDeposit || r.DepositVersion == nil || r.DepositNonce == nil {
		return r.MarshalBinary()
	}
	status := []byte{}
	if r.Status == types.ReceiptStatusSuccessful {
		status = []byte{1}
	}
	b, err := rlp.EncodeToBytes([]any{status, r.CumulativeGasUsed, r.Bloom, r.Logs, uint64(*r.DepositNonce), uint64(*r.DepositVersion)})
	return append([]byte{typeDeposit}, b...), err
}

type pair struct {
	path  []byte // nibbles
	value []byte
}

// proveReceipt returns the root of the trie over a block's receipts and the nodes that lead to one of them.
func proveReceipt(receipts []*receipt, index int) (root merkle.Hash, nodes [][]byte, err error) {
	var pairs []pair
	var target []byte
	for i, r := range receipts {
		key, err := rlp.EncodeToBytes(uint64(i))
		if err != nil {
			return root, nil, err
		}
		value, err := r.encode()
		if err != nil {
			return root, nil, fmt.Errorf("encoding receipt %d: %w", i, err)
		}
		var path []byte
		for _, b := range key {
			path = append(path, b>>4, b&15)
		}
		pairs = append(pairs, pair{path, value})
		if i == index {
			target = path
		}
	}
	if target == nil {
		return root, nil, fmt.Errorf("the block has no receipt %d", index)
	}
	top, err := trieNode(pairs, target, &nodes)
	if err != nil {
		return root, nil, err
	}
	if len(top) < 32 { // a root is always referred to by its hash
		nodes = append(nodes, top)
	}
	for i, j := 0, len(nodes)-1; i < j; i, j = i+1, j-1 {
		nodes[i], nodes[j] = nodes[j], nodes[i]
	}
	return proof.Keccak(top), nodes, nil
}

// trieNode encodes the node over pairs, whose paths begin at this node. Nodes on the way to target, which is nil elsewhere,
// are added to kept from below, unless they are so short that they stand within their parent.
func trieNode(pairs []pair, target []byte, kept *[][]byte) ([]byte, error) {
	node, err := trieFields(pairs, target, kept)
	if err != nil {
		return nil, err
	}
	b, err := rlp.EncodeToBytes(node)
	if err == nil && target != nil && len(b) >= 32 {
		*kept = append(*kept, b)
	}
	return b, err
}

func trieFields(pairs []pair, target []byte, kept *[][]byte) ([]any, error) {
	if len(pairs) == 1 {
		return []any{compact(pairs[0].path, true), pairs[0].value}, nil
	}
	shared := pairs[0].path
	for _, p := range pairs[1:] {
		n := 0
		for n < min(len(shared), len(p.path)) && shared[n] == p.path[n] {
			n++
		}
		shared = shared[:n]
	}
	if n := len(shared); n > 0 {
		ref, err := trieRef(cut(pairs, n), after(target, shared), kept)
		return []any{compact(shared, false), ref}, err
	}
	fields := make([]any, 17)
	for i := range byte(16) {
		var below []pair
		for _, p := range pairs {
			if len(p.path) > 0 && p.path[0] == i {
				below = append(below, p)
			}
		}
		fields[i] = []byte{}
		if len(below) > 0 {
			ref, err := trieRef(cut(below, 1), after(target, []byte{i}), kept)
			if err != nil {
				return nil, err
			}
			fields[i] = ref
		}
	}
	fields[16] = []byte{}
	return fields, nil
}

// trieRef is how a parent refers to a node: itself where it is short, else its hash.
func trieRef(pairs []pair, target []byte, kept *[][]byte) (any, error) {
	b, err := trieNode(pairs, target, kept)
	if err != nil || len(b) < 32 {
		return rlp.RawValue(b), err
	}
	h := proof.Keccak(b)
	return h[:], nil
}

func cut(pairs []pair, n int) []pair {
	out := make([]pair, len(pairs))
	for i, p := range pairs {
		out[i] = pair{p.path[n:], p.value}
	}
	return out
}

// after is what follows a prefix in target, nil where it hasn't that prefix.
func after(target, prefix []byte) []byte {
	if target == nil || !bytes.HasPrefix(target, prefix) {
		return nil
	}
	return append([]byte{}, target[len(prefix):]...)
}

// compact is the hex-prefix encoding of a path.
func compact(path []byte, leaf bool) []byte {
	flag := byte(0)
	if leaf {
		flag = 2
	}
	if len(path)%2 == 1 {
		path = append([]byte{flag + 1}, path...)
	} else {
		path = append([]byte{flag, 0}, path...)
	}
	out := make([]byte, len(path)/2)
	for i := range out {
		out[i] = path[2*i]<<4 | path[2*i+1]
	}
	return out
}
