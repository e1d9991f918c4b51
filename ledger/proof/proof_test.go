package proof_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

const origin = "example.org/log"

func signer(t testing.TB, alg checkpoint.Algorithm, n byte) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner(alg, bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(name string, s checkpoint.Signer) checkpoint.Key {
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = s.Public()
	return k
}

func leaves(n int) (out []merkle.Hash) {
	for i := range n {
		out = append(out, merkle.LeafHash(fmt.Append(nil, i)))
	}
	return out
}

func note(t testing.TB, n int) *checkpoint.Note {
	t.Helper()
	c := checkpoint.Checkpoint{Origin: origin, Size: uint64(n), Root: merkle.Root(leaves(n))}
	out, err := checkpoint.Sign(c, origin, 0, signer(t, checkpoint.Ed25519, 1))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// witnesses cosign at 100, 200 and 300 seconds.
func witnesses(t testing.TB, n *checkpoint.Note) []checkpoint.Key {
	t.Helper()
	var keys []checkpoint.Key
	for i, alg := range []checkpoint.Algorithm{checkpoint.Cosignature, checkpoint.MLDSA44, checkpoint.Cosignature} {
		s := signer(t, alg, byte(10+i))
		name := fmt.Sprint("witness.example/w", i)
		got, err := checkpoint.Sign(n.Checkpoint, name, int64(100*(i+1)), s)
		if err != nil {
			t.Fatal(err)
		}
		answer := bytes.SplitN(got.Marshal(), []byte("\n\n"), 2)[1]
		if err := proof.AddCosignatures(n, answer, key(name, s)); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key(name, s))
	}
	return keys
}

func TestPolicy(t *testing.T) {
	n := note(t, 5)
	w := witnesses(t, n)
	if len(n.Signatures) != 4 {
		t.Fatalf("%d signatures", len(n.Signatures))
	}
	p := proof.Policy{Log: []checkpoint.Key{key(origin, signer(t, checkpoint.Ed25519, 1))}, Witnesses: w}
	for quorum, want := range map[int]int64{0: 100, 1: 100, 2: 200, 3: 300} {
		p.Quorum = quorum
		cosigs, when, err := p.Check(n)
		if err != nil || len(cosigs) != 3 || !when.Equal(time.Unix(want, 0)) {
			t.Fatalf("quorum %d: %v, %v, %v", quorum, cosigs, when, err)
		}
	}
	n.Signatures[1].Bytes[20] ^= 1
	p.Quorum = 3
	if _, when, err := p.Check(n); err == nil {
		t.Fatalf("two of three with a quorum of three pass, at %v", when)
	}
	p.Quorum = 2
	if _, when, err := p.Check(n); err != nil || !when.Equal(time.Unix(300, 0)) {
		t.Fatalf("two of three: %v, %v", when, err)
	}
	n.Signatures = n.Signatures[1:]
	if _, _, err := p.Check(n); !errors.Is(err, checkpoint.ErrSignature) {
		t.Fatalf("without the log's signature: %v", err)
	}
}

func TestAddCheckpoint(t *testing.T) {
	all := leaves(7)
	p, err := merkle.Consistency(all, 3)
	if err != nil {
		t.Fatal(err)
	}
	a := &proof.AddCheckpoint{Old: 3, Proof: p, Note: note(t, 7)}
	b, err := proof.ParseAddCheckpoint(a.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(merkle.Root(all[:3])); err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(merkle.Root(all[:4])); !errors.Is(err, merkle.ErrProof) {
		t.Fatalf("from another head: %v", err)
	}
	other := signer(t, checkpoint.Cosignature, 99)
	if err := proof.AddCosignatures(note(t, 7), []byte("— x AAAAAAA=\n"), key("x", other)); !errors.Is(err, checkpoint.ErrSignature) {
		t.Fatalf("a false cosignature: %v", err)
	}
}

func TestInclusion(t *testing.T) {
	all := leaves(6)
	n := note(t, 6)
	policy := proof.Policy{Log: []checkpoint.Key{key(origin, signer(t, checkpoint.Ed25519, 1))}, Witnesses: witnesses(t, n), Quorum: 2}
	p, err := merkle.Inclusion(all, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, extra := range [][]byte{nil, []byte("more")} {
		in := &proof.Inclusion{Extra: extra, Index: 4, Proof: p, Note: n}
		back, err := proof.ParseInclusion(in.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.Extra, extra) {
			t.Fatalf("extra %q", back.Extra)
		}
		if err := back.Verify(all[4], policy); err != nil {
			t.Fatal(err)
		}
		if err := back.Verify(all[3], policy); !errors.Is(err, merkle.ErrProof) {
			t.Fatalf("another leaf: %v", err)
		}
	}
	text := string((&proof.Inclusion{Index: 4, Proof: p, Note: n}).Marshal())
	for what, bad := range map[string]string{
		"another head line": strings.Replace(text, "@v1", "@v2", 1),
		"leading zero":      strings.Replace(text, "index 4", "index 04", 1),
		"no index":          strings.Replace(text, "index 4\n", "", 1),
		"cut hash":          strings.Replace(text, "=\n", "\n", 1),
		"no checkpoint":     text[:strings.Index(text, "\n\n")+2],
	} {
		if _, err := proof.ParseInclusion([]byte(bad)); !errors.Is(err, proof.ErrSyntax) {
			t.Errorf("%s passes: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	n := note(f, 6)
	p, _ := merkle.Inclusion(leaves(6), 4)
	f.Add((&proof.Inclusion{Index: 4, Proof: p, Note: n}).Marshal())
	f.Add((&proof.Inclusion{Extra: []byte("x"), Note: n}).Marshal())
	f.Add((&proof.AddCheckpoint{Old: 3, Proof: p, Note: n}).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if in, err := proof.ParseInclusion(b); err == nil && !bytes.Equal(in.Marshal(), b) {
			t.Fatalf("%q is accepted and written again as %q", b, in.Marshal())
		}
		if a, err := proof.ParseAddCheckpoint(b); err == nil && !bytes.Equal(a.Marshal(), b) {
			t.Fatalf("%q is accepted and written again as %q", b, a.Marshal())
		}
	})
}
