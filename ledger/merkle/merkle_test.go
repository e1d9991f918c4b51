package merkle_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// The leaves and heads of the test vectors of RFC 6962's reference implementation; RFC 9162 has the same tree.
var (
	vectorLeaves = []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	vectorHeads  = []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
)

func leaves(n int) []merkle.Hash {
	out := make([]merkle.Hash, n)
	for i := range out {
		out[i] = merkle.LeafHash(fmt.Append(nil, "leaf ", i))
	}
	return out
}

func TestVectors(t *testing.T) {
	var all []merkle.Hash
	var r merkle.Range
	for n, want := range vectorHeads {
		if n > 0 {
			leaf, err := hex.DecodeString(vectorLeaves[n-1])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, merkle.LeafHash(leaf))
			r.Append(all[n-1])
		}
		a, b := merkle.Root(all), r.Root()
		if hex.EncodeToString(a[:]) != want || a != b || r.Size() != uint64(n) {
			t.Errorf("%d leaves: %x and %x, want %s", n, a, b, want)
		}
	}
}

// TestProofs makes every proof up to 40 leaves, has the other implementation check it, and changes each part of it.
func TestProofs(t *testing.T) {
	h := rfc6962.DefaultHasher
	all := leaves(40)
	for n := 1; n <= len(all); n++ {
		root := merkle.Root(all[:n])
		for i := range n {
			p, err := merkle.Inclusion(all[:n], i)
			if err != nil {
				t.Fatal(err)
			}
			if err := merkle.VerifyInclusion(all[i], uint64(i), uint64(n), p, root); err != nil {
				t.Fatalf("leaf %d of %d: %v", i, n, err)
			}
			if err := proof.VerifyInclusion(h, uint64(i), uint64(n), all[i][:], slicesOf(p), root[:]); err != nil {
				t.Fatalf("leaf %d of %d: the other implementation: %v", i, n, err)
			}
			falsify(t, p, func(q []merkle.Hash) error {
				return merkle.VerifyInclusion(all[i], uint64(i), uint64(n), q, root)
			})
			for _, j := range []int{i - 1, i + 1, n} {
				if j >= 0 && merkle.VerifyInclusion(all[i], uint64(j), uint64(n), p, root) == nil {
					t.Fatalf("leaf %d of %d passes as leaf %d", i, n, j)
				}
			}
		}
		for old := range n + 1 {
			p, err := merkle.Consistency(all[:n], old)
			if err != nil {
				t.Fatal(err)
			}
			oldRoot := merkle.Root(all[:old])
			if err := merkle.VerifyConsistency(uint64(old), uint64(n), p, oldRoot, root); err != nil {
				t.Fatalf("%d to %d: %v", old, n, err)
			}
			if old > 0 {
				if err := proof.VerifyConsistency(h, uint64(old), uint64(n), slicesOf(p), oldRoot[:], root[:]); err != nil {
					t.Fatalf("%d to %d: the other implementation: %v", old, n, err)
				}
			}
			falsify(t, p, func(q []merkle.Hash) error {
				return merkle.VerifyConsistency(uint64(old), uint64(n), q, oldRoot, root)
			})
			if merkle.VerifyConsistency(uint64(old), uint64(n), p, merkle.Hash{1}, root) == nil {
				t.Fatalf("%d to %d: a false old head passes", old, n)
			}
		}
	}
	if err := merkle.VerifyConsistency(5, 4, nil, merkle.Hash{}, merkle.Hash{}); !errors.Is(err, merkle.ErrProof) {
		t.Fatalf("a tree that shrank: %v", err)
	}
}

// falsify checks that a proof passes neither shorter, nor longer, nor with any hash changed.
func falsify(t *testing.T, p []merkle.Hash, verify func([]merkle.Hash) error) {
	t.Helper()
	bad := [][]merkle.Hash{append(p[:len(p):len(p)], merkle.Hash{})}
	for i := range p {
		q := append([]merkle.Hash(nil), p...)
		q[i][0] ^= 1
		bad = append(bad, q, append(append([]merkle.Hash(nil), p[:i]...), p[i+1:]...))
	}
	for _, q := range bad {
		if err := verify(q); !errors.Is(err, merkle.ErrProof) {
			t.Fatalf("a false proof passes: %v", err)
		}
	}
}

func slicesOf(p []merkle.Hash) (out [][]byte) {
	for i := range p {
		out = append(out, p[i][:])
	}
	return out
}

// TestLastLeafTwice: the published tree's hole isn't one of this tree.
func TestLastLeafTwice(t *testing.T) {
	all := leaves(3)
	if merkle.Root(all) == merkle.Root(append(all, all[2])) {
		t.Fatal("three leaves and the last one twice have one head")
	}
}

func FuzzVerify(f *testing.F) {
	all := leaves(7)
	p, _ := merkle.Inclusion(all, 5)
	f.Add(uint64(5), uint64(7), join(p))
	c, _ := merkle.Consistency(all, 3)
	f.Add(uint64(3), uint64(7), join(c))
	root := merkle.Root(all)
	f.Fuzz(func(t *testing.T, a, b uint64, raw []byte) {
		var p []merkle.Hash
		for ; len(raw) >= 32; raw = raw[32:] {
			p = append(p, merkle.Hash(raw))
		}
		if merkle.VerifyInclusion(all[5], a, b, p, root) == nil && b == 7 && a != 5 {
			t.Fatalf("leaf 5 passes as leaf %d", a)
		}
		if merkle.VerifyConsistency(a, b, p, merkle.Hash{}, root) == nil {
			t.Fatal("an old head that isn't one passes")
		}
	})
}

func join(p []merkle.Hash) (out []byte) {
	for i := range p {
		out = append(out, p[i][:]...)
	}
	return out
}
