package digest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

func TestSuite(t *testing.T) {
	anchortest.Suite(t, func(t *testing.T, _ *anchortest.Log) *anchortest.Fixture {
		dir := filepath.Join(t.TempDir(), "out")
		s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{3}, 32))
		if err != nil {
			t.Fatal(err)
		}
		k := checkpoint.Key{Name: "audit"}
		k.Alg, k.Public = s.Public()
		m := &Mechanism{Dir: dir, Signer: s}
		count := func() int {
			names, err := filepath.Glob(filepath.Join((&Mechanism{Dir: dir}).folder(anchortest.Origin), "*.digest"))
			if err != nil {
				t.Fatal(err)
			}
			var prev *proof.Digest
			for _, name := range names {
				b, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				d, err := proof.ParseDigest(b)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Follows(prev); err != nil {
					t.Fatal(err)
				}
				prev = d
			}
			return len(names)
		}
		return &anchortest.Fixture{
			Mechanism: m, Linear: true, Commitments: count,
			Root: func() proof.Root { return proof.Root{Kind: proof.KindDigest, Key: k.String()} },
			Down: func(down bool) {
				m.Dir = dir
				if down {
					m.Dir = filepath.Join(os.DevNull, "unreachable")
				}
			},
		}
	})
}
