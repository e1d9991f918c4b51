package proof

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Recursive length prefix and the Merkle-Patricia trie, as far as receipts need them (Ethereum yellow paper,
// appendices B and D). Only the canonical encoding is read.

// rlpItem is a byte string, or a list whose payload isn't parsed yet.
type rlpItem struct {
	bytes  []byte // string, or payload of the list
	raw    []byte // with its prefix
	isList bool
}

var errRLP = fmt.Errorf("%w: RLP", ErrSyntax)

// rlpNext reads one item and returns what follows it.
func rlpNext(b []byte) (it rlpItem, rest []byte, err error) {
	if len(b) == 0 {
		return it, nil, fmt.Errorf("%w: it ends early", errRLP)
	}
	prefix := b[0]
	if prefix < 0x80 {
		return rlpItem{bytes: b[:1], raw: b[:1]}, b[1:], nil
	}
	it.isList = prefix >= 0xc0
	short := int(prefix & 0x3f) // 0–55: length; 56–63: that many bytes of length, less 55
	head, size := 1, uint64(short)
	if short > 55 {
		n := short - 55
		if len(b) < 1+n || b[1] == 0 {
			return it, nil, fmt.Errorf("%w: length of a length", errRLP)
		}
		var full [8]byte
		copy(full[8-n:], b[1:1+n])
		head, size = 1+n, binary.BigEndian.Uint64(full[:])
		if size < 56 {
			return it, nil, fmt.Errorf("%w: not the shortest form", errRLP)
		}
	}
	if size > uint64(len(b)-head) {
		return it, nil, fmt.Errorf("%w: an item of %d bytes where %d are left", errRLP, size, len(b)-head)
	}
	end := head + int(size)
	it.bytes, it.raw = b[head:end], b[:end]
	if !it.isList && size == 1 && it.bytes[0] < 0x80 {
		return it, nil, fmt.Errorf("%w: not the shortest form", errRLP)
	}
	return it, b[end:], nil
}

// rlpList reads a list that is all there is.
func rlpList(b []byte) ([]rlpItem, error) {
	it, rest, err := rlpNext(b)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the list", errRLP, len(rest))
	}
	return it.list()
}

func (it rlpItem) list() (out []rlpItem, err error) {
	if !it.isList {
		return nil, fmt.Errorf("%w: a string where a list should be", errRLP)
	}
	for b := it.bytes; len(b) > 0; {
		var k rlpItem
		if k, b, err = rlpNext(b); err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

func (it rlpItem) uint() (uint64, error) {
	if it.isList || len(it.bytes) > 8 || len(it.bytes) > 0 && it.bytes[0] == 0 {
		return 0, fmt.Errorf("%w: no number", errRLP)
	}
	var full [8]byte
	copy(full[8-len(it.bytes):], it.bytes)
	return binary.BigEndian.Uint64(full[:]), nil
}

// rlpUint is a number as RLP.
func rlpUint(n uint64) []byte {
	b := bytes.TrimLeft(binary.BigEndian.AppendUint64(nil, n), "\x00")
	if len(b) == 1 && b[0] < 0x80 {
		return b
	}
	return append([]byte{0x80 + byte(len(b))}, b...)
}

// trieValue walks from the root along a key through the given nodes, every one of which must be needed, and returns
// the value.
func trieValue(root merkle.Hash, key []byte, nodes [][]byte) ([]byte, error) {
	var path []byte
	for _, b := range key {
		path = append(path, b>>4, b&15)
	}
	next := func(ref rlpItem) ([]rlpItem, error) {
		if ref.isList { // a node shorter than a hash stands in its parent
			return ref.list()
		}
		if len(ref.bytes) != 32 || len(nodes) == 0 || Keccak(nodes[0]) != merkle.Hash(ref.bytes) {
			return nil, fmt.Errorf("%w: a node of the trie is missing or another", merkle.ErrProof)
		}
		n := nodes[0]
		nodes = nodes[1:]
		return rlpList(n)
	}
	node, err := next(rlpItem{bytes: root[:]})
	for ; err == nil; node, err = next(node[0]) {
		var value *rlpItem
		if value, node, path, err = trieStep(node, path); err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if len(nodes) > 0 || value.isList || len(value.bytes) == 0 {
			return nil, fmt.Errorf("%w: the trie has no such value, or the proof has nodes that it doesn't need", merkle.ErrProof)
		}
		return value.bytes, nil
	}
	return nil, err
}

// trieStep goes one node down: it returns the value where the path ends, else the reference to the next node, alone, and
// what is left of the path. Every step takes at least one nibble of the path, so that a walk ends.
func trieStep(node []rlpItem, path []byte) (value *rlpItem, ref []rlpItem, left []byte, err error) {
	fail := func() (*rlpItem, []rlpItem, []byte, error) {
		return nil, nil, nil, fmt.Errorf("%w: the trie has no such key", merkle.ErrProof)
	}
	switch len(node) {
	case 17:
		if len(path) == 0 {
			return &node[16], node, nil, nil
		}
		return nil, node[path[0] : path[0]+1], path[1:], nil
	case 2:
		if node[0].isList || len(node[0].bytes) == 0 {
			return fail()
		}
		var part []byte
		for _, b := range node[0].bytes {
			part = append(part, b>>4, b&15)
		}
		flag := part[0]
		if flag > 3 || flag&1 == 0 && part[1] != 0 {
			return fail()
		}
		if part = part[1:]; flag&1 == 0 {
			part = part[1:]
		}
		leaf := flag >= 2
		if !bytes.HasPrefix(path, part) || leaf != (len(path) == len(part)) || !leaf && len(part) == 0 {
			return fail()
		}
		if leaf {
			return &node[1], node, nil, nil
		}
		return nil, node[1:2], path[len(part):], nil
	}
	return fail()
}
