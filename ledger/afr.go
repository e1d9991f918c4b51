package ledger

import "crypto/sha256"

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
