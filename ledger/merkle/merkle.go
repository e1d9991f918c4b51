// Package merkle is the Merkle tree of RFC 9162, section 2.1, over SHA-256: tree heads, inclusion and consistency
// proofs, and a compact range that grows leaf by leaf.
//
// A leaf's hash is SHA-256(0x00 ‖ leaf), a node's is SHA-256(0x01 ‖ left ‖ right), the head of the empty tree is
// SHA-256 of nothing. The head alone doesn't say how many leaves there are: every verification here takes the
// tree's size from the caller, who must know it from what was signed, and demands a proof of exactly the length
// that (index, size) calls for.
package merkle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
)

// Hash is a SHA-256 digest.
type Hash = [sha256.Size]byte

// ErrProof is wrapped by every error of a verification that failed.
var ErrProof = errors.New("proof does not hold")

// Empty is the head of the tree without leaves.
var Empty = sha256.Sum256(nil)

// LeafHash is the hash of a leaf.
func LeafHash(leaf []byte) Hash {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(leaf)
	var out Hash
	h.Sum(out[:0])
	return out
}

// NodeHash is the hash of the node over two subtrees.
func NodeHash(left, right *Hash) Hash {
	var buf [1 + 2*sha256.Size]byte
	buf[0] = 1
	copy(buf[1:], left[:])
	copy(buf[1+sha256.Size:], right[:])
	return sha256.Sum256(buf[:])
}

// Root is the head of the tree over the hashes of leaves.
func Root(leaves []Hash) Hash {
	var r Range
	for i := range leaves {
		r.Append(leaves[i])
	}
	return r.Root()
}

// Range is the frontier of a tree: the heads of the complete subtrees that its size is made of, largest first. The
// zero value is the empty tree.
type Range struct {
	size  uint64
	nodes [64]Hash
	n     int
}

// Size is the number of leaves.
func (r *Range) Size() uint64 { return r.size }

// Append adds a leaf, given by its hash.
func (r *Range) Append(leaf Hash) {
	for s := r.size; s&1 == 1; s >>= 1 {
		r.n--
		leaf = NodeHash(&r.nodes[r.n], &leaf)
	}
	r.nodes[r.n] = leaf
	r.n++
	r.size++
}

// Root is the head of the tree.
func (r *Range) Root() Hash {
	if r.n == 0 {
		return Empty
	}
	h := r.nodes[r.n-1]
	for i := r.n - 2; i >= 0; i-- {
		h = NodeHash(&r.nodes[i], &h)
	}
	return h
}

// split is the number of leaves of the left subtree: the largest power of two below n. n > 1.
func split(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

// Inclusion is the proof that the leaf at index belongs to the tree over the hashes of leaves.
func Inclusion(leaves []Hash, index int) ([]Hash, error) {
	if index < 0 || index >= len(leaves) {
		return nil, fmt.Errorf("no leaf %d in a tree of %d", index, len(leaves))
	}
	return appendInclusion(nil, leaves, index), nil
}

func appendInclusion(proof []Hash, leaves []Hash, index int) []Hash {
	if len(leaves) == 1 {
		return proof
	}
	k := split(len(leaves))
	if index < k {
		return append(appendInclusion(proof, leaves[:k], index), Root(leaves[k:]))
	}
	return append(appendInclusion(proof, leaves[k:], index-k), Root(leaves[:k]))
}

// Consistency is the proof that the tree over the first old hashes is a prefix of the tree over all of them.
func Consistency(leaves []Hash, old int) ([]Hash, error) {
	if old < 0 || old > len(leaves) {
		return nil, fmt.Errorf("no tree of %d leaves within one of %d", old, len(leaves))
	}
	if old == 0 || old == len(leaves) {
		return nil, nil
	}
	return appendConsistency(nil, leaves, old, true), nil
}

func appendConsistency(proof []Hash, leaves []Hash, old int, whole bool) []Hash {
	if old == len(leaves) {
		if whole {
			return proof
		}
		return append(proof, Root(leaves))
	}
	k := split(len(leaves))
	if old <= k {
		return append(appendConsistency(proof, leaves[:k], old, whole), Root(leaves[k:]))
	}
	return append(appendConsistency(proof, leaves[k:], old-k, false), Root(leaves[:k]))
}

// VerifyInclusion checks that the leaf with that hash is at index in the tree of that size and head.
func VerifyInclusion(leaf Hash, index, size uint64, proof []Hash, root Hash) error {
	if index >= size {
		return fmt.Errorf("%w: index %d in a tree of %d leaves", ErrProof, index, size)
	}
	inner := bits.Len64(index ^ (size - 1))
	border := bits.OnesCount64(index >> inner)
	if len(proof) != inner+border {
		return fmt.Errorf("%w: %d hashes where leaf %d of %d needs %d", ErrProof, len(proof), index, size, inner+border)
	}
	h := leaf
	for i := range proof {
		if i >= inner || index>>i&1 == 1 {
			h = NodeHash(&proof[i], &h)
		} else {
			h = NodeHash(&h, &proof[i])
		}
	}
	if h != root {
		return fmt.Errorf("%w: leaf %d leads to another head", ErrProof, index)
	}
	return nil
}

// VerifyConsistency checks that the tree of size old is a prefix of the tree of size size.
func VerifyConsistency(old, size uint64, proof []Hash, oldRoot, root Hash) error {
	switch {
	case old > size:
		return fmt.Errorf("%w: the tree shrank from %d to %d leaves", ErrProof, old, size)
	case old == size || old == 0:
		if len(proof) != 0 {
			return fmt.Errorf("%w: %d hashes where none are needed", ErrProof, len(proof))
		}
		if old == size && oldRoot != root || old == 0 && oldRoot != Empty {
			return fmt.Errorf("%w: two heads of one size differ", ErrProof)
		}
		return nil
	}
	// The proof runs from the largest complete subtree that ends at old.
	shift := bits.TrailingZeros64(old)
	inner := bits.Len64((old-1)^(size-1)) - shift
	border := bits.OnesCount64((old - 1) >> (inner + shift))
	first := 1
	if old == 1<<shift {
		first = 0 // the old tree is that subtree
	}
	if len(proof) != first+inner+border {
		return fmt.Errorf("%w: %d hashes where %d to %d needs %d", ErrProof, len(proof), old, size, first+inner+border)
	}
	seed := oldRoot
	if first == 1 {
		seed, proof = proof[0], proof[1:]
	}
	mask := (old - 1) >> shift
	was, now := seed, seed
	for i := range proof {
		if i >= inner || mask>>i&1 == 1 {
			was = NodeHash(&proof[i], &was)
			now = NodeHash(&proof[i], &now)
		} else {
			now = NodeHash(&now, &proof[i])
		}
	}
	if was != oldRoot {
		return fmt.Errorf("%w: it leads to another old head", ErrProof)
	}
	if now != root {
		return fmt.Errorf("%w: it leads to another new head", ErrProof)
	}
	return nil
}
