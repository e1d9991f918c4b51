package checkpoint_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// example is the checkpoint of c2sp.org/tlog-checkpoint with the cosignature of c2sp.org/tlog-cosignature.
const example = `example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
`

func TestExample(t *testing.T) {
	n, err := checkpoint.Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if n.Origin != "example.com/behind-the-sofa" || n.Size != 20852163 || len(n.Signatures) != 2 {
		t.Fatalf("%+v", n)
	}
	if got := string(n.Marshal()); got != example {
		t.Fatalf("written again:\n%s", got)
	}
}

func signers(t testing.TB) (ed, cosigner, pq checkpoint.Signer) {
	t.Helper()
	var out []checkpoint.Signer
	for i, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.Cosignature, checkpoint.MLDSA44} {
		s, err := checkpoint.NewSigner(alg, bytes.Repeat([]byte{byte(100 + i)}, 32))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out[0], out[1], out[2]
}

func keyOf(name string, s checkpoint.Signer) checkpoint.Key {
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = s.Public()
	return k
}

func TestSign(t *testing.T) {
	ed, cosigner, pq := signers(t)
	c := checkpoint.Checkpoint{Origin: "example.org/log", Size: 3, Root: [32]byte{7}}
	n, err := checkpoint.Sign(c, "example.org/log", 1_790_000_000, ed, cosigner, pq)
	if err != nil {
		t.Fatal(err)
	}
	n, err = checkpoint.Parse(n.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []checkpoint.Signer{ed, cosigner, pq} {
		k := keyOf("example.org/log", s)
		when, err := k.Verify(n)
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(1_790_000_000); (k.Alg == checkpoint.Ed25519) != (when == 0) || when != 0 && when != want {
			t.Fatalf("%s: time %d", k.Alg, when)
		}
		for _, change := range map[string]func(n *checkpoint.Note){
			"size":      func(n *checkpoint.Note) { n.Size++ },
			"root":      func(n *checkpoint.Note) { n.Root[31]++ },
			"origin":    func(n *checkpoint.Note) { n.Origin += "x" },
			"signature": func(n *checkpoint.Note) { n.Signatures[i].Bytes[20] ^= 1 },
			"short":     func(n *checkpoint.Note) { n.Signatures[i].Bytes = n.Signatures[i].Bytes[:5] },
			"gone":      func(n *checkpoint.Note) { n.Signatures = append(n.Signatures[:i:i], n.Signatures[i+1:]...) },
			"twice":     func(n *checkpoint.Note) { n.Signatures = append(n.Signatures, n.Signatures[i]) },
			"key id":    func(n *checkpoint.Note) { n.Signatures[i].KeyID[0]++ },
		} {
			m, err := checkpoint.Parse(n.Marshal())
			if err != nil {
				t.Fatal(err)
			}
			change(m)
			if _, err := k.Verify(m); !errors.Is(err, checkpoint.ErrSignature) {
				t.Fatalf("%s: a changed note verifies: %v", k.Alg, err)
			}
		}
		back, err := checkpoint.ParseKey(k.String())
		if err != nil || !back.Equal(k) {
			t.Fatalf("%s comes back as %+v, %v", k, back, err)
		}
		if sig, err := s.Sign([]byte("m")); err != nil || !k.VerifyMessage([]byte("m"), sig) || k.VerifyMessage([]byte("n"), sig) {
			t.Fatalf("%s: message signature, %v", k.Alg, err)
		}
	}
}

// TestOtherImplementation has golang.org/x/mod/sumdb/note open what was signed here.
func TestOtherImplementation(t *testing.T) {
	ed, _, pq := signers(t)
	c := checkpoint.Checkpoint{Origin: "example.org/log", Size: 3}
	n, err := checkpoint.Sign(c, c.Origin, 1_790_000_000, ed, pq)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(keyOf(c.Origin, ed).String())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := note.Open(n.Marshal(), note.VerifierList(v))
	if err != nil || opened.Text != c.Text() || len(opened.Sigs) != 1 || len(opened.UnverifiedSigs) != 1 {
		t.Fatalf("%+v, %v", opened, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for what, change := range map[string]func(string) string{
		"leading zero":        func(s string) string { return strings.Replace(s, "\n2085", "\n02085", 1) },
		"plus sign":           func(s string) string { return strings.Replace(s, "\n2085", "\n+2085", 1) },
		"huge size":           func(s string) string { return strings.Replace(s, "20852163", "9223372036854775808", 1) },
		"extension line":      func(s string) string { return strings.Replace(s, "\n\n", "\nextension\n\n", 1) },
		"carriage return":     func(s string) string { return strings.Replace(s, "\n", "\r\n", 1) },
		"short root":          func(s string) string { return strings.Replace(s, "CsUY", "", 1) },
		"loose base64":        func(s string) string { return strings.Replace(s, "jxq2I=", "jxq2J=", 1) },
		"no signature":        func(s string) string { return s[:strings.Index(s, "—")] },
		"unfinished line":     func(s string) string { return s[:len(s)-1] },
		"trailing line":       func(s string) string { return s + "\n" },
		"hyphen for a dash":   func(s string) string { return strings.Replace(s, "—", "-", 1) },
		"empty name":          func(s string) string { return strings.Replace(s, "— witness.example.com/w1", "— ", 1) },
		"signature too short": func(s string) string { return s + "— x AAAA\n" },
		"no UTF-8":            func(s string) string { return "\xff" + s },
	} {
		if n, err := checkpoint.Parse([]byte(change(example))); !errors.Is(err, checkpoint.ErrSyntax) {
			t.Errorf("%s passes: %+v, %v", what, n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("a\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— a AAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := checkpoint.Parse(b)
		if err != nil {
			return
		}
		if !bytes.Equal(n.Marshal(), b) {
			t.Fatalf("written again: %q", n.Marshal())
		}
		ed, cosigner, pq := signers(t)
		for _, s := range []checkpoint.Signer{ed, cosigner, pq} {
			k := keyOf(n.Origin, s)
			if _, err := k.Verify(n); err == nil {
				t.Fatal("a note that nobody signed verifies")
			}
		}
	})
}
