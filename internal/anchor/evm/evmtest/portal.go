package evmtest

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
)

//go:embed Portal.json
var portal []byte

// Portal is the creation code of the stand-in for an OptimismPortal.
func Portal(t testing.TB) []byte {
	t.Helper()
	var c struct{ Bytecode string }
	if err := json.Unmarshal(portal, &c); err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimPrefix(c.Bytecode, "0x"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Derive does what a layer 2 node of the OP Stack does with a block of its layer 1: executes the transactions that the portal's
// events ask for. It returns their hashes, as layer 2's node names them. Blocks that had their turn aren't to be derived again.
func Derive(l1, l2 *Node, portal common.Address, block *big.Int) (out []common.Hash) {
	l1.T.Helper()
	logs, err := l1.Eth.FilterLogs(l1.T.Context(), ethereum.FilterQuery{FromBlock: block, ToBlock: block, Addresses: []common.Address{portal}})
	if err != nil {
		l1.T.Fatal(err)
	}
	for _, l := range logs {
		// ABI: offset, length, then mint ‖ value ‖ gas ‖ creation ‖ data.
		size := new(big.Int).SetBytes(l.Data[32:64]).Uint64()
		packed := l.Data[64 : 64+size]
		mint, value := new(big.Int).SetBytes(packed[:32]), new(big.Int).SetBytes(packed[32:64])
		gas := new(big.Int).SetBytes(packed[64:72]).Uint64()
		var index [32]byte
		new(big.Int).SetUint64(uint64(l.Index)).FillBytes(index[:])
		source := crypto.Keccak256Hash(make([]byte, 32), crypto.Keccak256(l.BlockHash[:], index[:]))
		body, err := rlp.EncodeToBytes([]any{source, common.BytesToAddress(l.Topics[1][:]), common.BytesToAddress(l.Topics[2][:]), mint, value, gas, false, packed[73:]})
		if err != nil {
			l1.T.Fatal(err)
		}
		var hash common.Hash
		if err := l2.Eth.Client().Call(&hash, "eth_sendRawTransaction", "0x7e"+hex.EncodeToString(body)); err != nil {
			l1.T.Fatalf("layer 2 refuses a deposited transaction: %v", err)
		}
		out = append(out, hash)
	}
	l2.Mine()
	return out
}
