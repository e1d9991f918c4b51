package ledger

import (
	"crypto/sha256"
	"fmt"
	"math/bits"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// AFRTree is M_t, the published Merkle root over the digests of an epoch's records: a node is
// SHA-256(left ‖ right), and where a level has an odd number of nodes its last one is doubled. The root of no records,
// which the paper leaves open, is 32 zero bytes. It says nothing of how many records there are: see the package
// comment for what a verifier must add.
func AFRTree(digests []Hash) Hash {
	if len(digests) == 0 {
		return Hash{}
	}
	level := append([]Hash(nil), digests...)
	for len(level) > 1 {
		if len(level)%2 == 1 {
			level = append(level, level[len(level)-1])
		}
		for i := range len(level) / 2 {
			level[i] = afrNode(&level[2*i], &level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0]
}

// AFRRoot is R_t = SHA-256(M_t ‖ R_{t−1}); R_{−1} is 32 zero bytes.
func AFRRoot(m, prev Hash) Hash { return afrNode(&m, &prev) }

func afrNode(left, right *Hash) Hash {
	var b [2 * sha256.Size]byte
	copy(b[:], left[:])
	copy(b[sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// AFRProof is the path from a record's digest to M_t: one sibling per level, the node itself where it was doubled.
func AFRProof(digests []Hash, index int) []Hash {
	var proof []Hash
	level := append([]Hash(nil), digests...)
	for len(level) > 1 {
		if len(level)%2 == 1 {
			level = append(level, level[len(level)-1])
		}
		proof = append(proof, level[index^1])
		for i := range len(level) / 2 {
			level[i] = afrNode(&level[2*i], &level[2*i+1])
		}
		level, index = level[:len(level)/2], index/2
	}
	return proof
}

// VerifyAFRProof checks a path to M_t. The published tree commits neither to the number of records nor to their
// order within the path's shape, so this demands what closes its holes: the index is below the count, the path has
// exactly the length that the count calls for, and where the count says that a node was doubled its sibling is
// itself. That the count is true, and that the record's sequence number is the epoch's first plus the index, the
// caller must check: both stand in the epoch's header.
func VerifyAFRProof(digest Hash, index, count uint64, proof []Hash, m Hash) error {
	if index >= count {
		return fmt.Errorf("%w: index %d in an epoch of %d records", merkle.ErrProof, index, count)
	}
	if want := bits.Len64(count - 1); len(proof) != want {
		return fmt.Errorf("%w: %d hashes where an epoch of %d records needs %d", merkle.ErrProof, len(proof), count, want)
	}
	h := digest
	for i := range proof {
		sibling := &proof[i]
		switch {
		case index%2 == 1:
			h = afrNode(sibling, &h)
		case index == count-1 && *sibling != h:
			return fmt.Errorf("%w: the last node of level %d isn't doubled", merkle.ErrProof, i)
		default:
			h = afrNode(&h, sibling)
		}
		index, count = index/2, (count+1)/2
	}
	if h != m {
		return fmt.Errorf("%w: it leads to another root", merkle.ErrProof)
	}
	return nil
}
