package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

func signer(t *testing.T, alg checkpoint.Algorithm, n byte) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner(alg, bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keyOf(name string, s checkpoint.Signer) checkpoint.Key {
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = s.Public()
	return k
}

// world is a log with a witness, a digest key and a manifest that knows both.
type world struct {
	log, wit, dig checkpoint.Signer
	manifest      *Manifest
}

const testOrigin = "example.org/log"

func newWorld(t *testing.T, policy string) *world {
	w := &world{log: signer(t, checkpoint.Ed25519, 1), wit: signer(t, checkpoint.Cosignature, 2), dig: signer(t, checkpoint.Ed25519, 3)}
	b, err := json.Marshal(Manifest{Version: manifestVersion, Policy: policy, Roots: map[string]Root{
		"w1":    {Kind: KindWitness, Key: keyOf("w.example", w.wit).String()},
		"w2":    {Kind: KindWitness, Key: keyOf("v.example", signer(t, checkpoint.Cosignature, 4)).String()},
		"audit": {Kind: KindDigest, Key: keyOf("audit", w.dig).String()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if w.manifest, err = ParseManifest(b, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) note(t *testing.T, size uint64, root byte) *checkpoint.Note {
	t.Helper()
	n, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: testOrigin, Size: size, Root: merkle.Hash{root}}, testOrigin, 0, w.log)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) cosigned(t *testing.T, size uint64, root byte, sec int64) ledger.Anchor {
	t.Helper()
	n := w.note(t, size, root)
	c, err := checkpoint.Sign(n.Checkpoint, "w.example", sec, w.wit)
	if err != nil {
		t.Fatal(err)
	}
	n.Signatures = append(n.Signatures, c.Signatures...)
	e := &Evidence{Kind: KindWitness, Note: n}
	return ledger.Anchor{Kind: e.Kind, Data: e.Append(nil)}
}

func (w *world) digest(t *testing.T, size uint64, root byte, sec int64) ledger.Anchor {
	t.Helper()
	d := &Digest{Checkpoint: w.note(t, size, root).Checkpoint, Time: at(sec)}
	d.Signature, _ = w.dig.Sign(d.SignedText())
	e := &Evidence{Kind: KindDigest, Note: w.note(t, size, root), Data: d.Marshal()}
	return ledger.Anchor{Kind: e.Kind, Data: e.Append(nil)}
}

func TestJudge(t *testing.T) {
	w := newWorld(t, "w1 and audit")
	j := Judge(testOrigin, []ledger.Anchor{w.cosigned(t, 2, 2, 100), w.digest(t, 3, 3, 160), w.cosigned(t, 5, 5, 400), {Kind: "what", Data: []byte("x")}}, w.manifest)
	if got := len(j.Pinned()); got != 3 {
		t.Fatalf("%d heads were verified, want 3: %+v", got, j.Attestations)
	}
	j.Conclude(5, at(90), 50*time.Second)
	// At size 2 the policy is met at 160, at size 3 at 400 (the witness's next), at 5 not: no digest.
	if j.Anchored != 3 || j.Unanchored != 2 || j.Status != ledger.StatusIncomplete || j.WorstWindow != 240*time.Second || !j.Late {
		t.Errorf("%+v", j)
	}
	if j.Attestations[0].Status != ledger.StatusTampered {
		t.Errorf("what is no proof is %s", j.Attestations[0].Status)
	}

	if err := w.manifest.SetPolicy("w1 or audit"); err != nil {
		t.Fatal(err)
	}
	j = Judge(testOrigin, []ledger.Anchor{w.cosigned(t, 5, 5, 100)}, w.manifest)
	j.Conclude(5, at(90), 0)
	if j.Status != ledger.StatusVerified || j.WorstWindow != 10*time.Second {
		t.Errorf("%+v", j)
	}
	if err := w.manifest.SetPolicy("w9"); err == nil {
		t.Error("a policy of unknown roots was accepted")
	}
}

func TestJudgeRefuses(t *testing.T) {
	w := newWorld(t, "w1")
	for name, c := range map[string]struct {
		anchor ledger.Anchor
		status ledger.Status
		why    string
	}{
		"no root":   {w.cosigned(t, 2, 2, 100), ledger.StatusUnverifiable, "no root of this kind"},
		"other log": {ledger.Anchor{Data: (&Evidence{Kind: KindWitness, Note: &checkpoint.Note{Checkpoint: checkpoint.Checkpoint{Origin: "x", Size: 1}, Signatures: w.note(t, 1, 1).Signatures}}).Append(nil)}, ledger.StatusTampered, "another log"},
		"uncosigned": {ledger.Anchor{Data: (&Evidence{Kind: KindWitness, Note: w.note(t, 1, 1)}).Append(nil)}, ledger.StatusUnverifiable,
			"isn't cosigned by"},
	} {
		t.Run(name, func(t *testing.T) {
			m := w.manifest
			if name == "no root" {
				m = &Manifest{}
			}
			j := Judge(testOrigin, []ledger.Anchor{c.anchor}, m)
			j.Conclude(2, at(0), 0)
			if a := j.Attestations[0]; a.Status != c.status || !strings.Contains(a.Why, c.why) || j.Status == ledger.StatusVerified || len(j.Pinned()) != 0 {
				t.Errorf("%+v", j)
			}
		})
	}

	t.Run("conflict", func(t *testing.T) {
		j := Judge(testOrigin, []ledger.Anchor{w.cosigned(t, 2, 2, 100), w.cosigned(t, 2, 3, 100)}, w.manifest)
		j.Conclude(2, at(0), 0)
		if j.Status != ledger.StatusTampered || len(j.Conflicts) != 1 {
			t.Errorf("%+v", j)
		}
	})
	t.Run("swapped head", func(t *testing.T) {
		e, err := ParseEvidence(w.digest(t, 3, 3, 100).Data)
		if err != nil {
			t.Fatal(err)
		}
		e.Note = w.note(t, 3, 4)
		j := Judge(testOrigin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, w.manifest)
		if a := j.Attestations[0]; a.Status != ledger.StatusTampered || !strings.Contains(a.Why, "another head") {
			t.Errorf("%+v", a)
		}
	})
}

func TestManifest(t *testing.T) {
	w := newWorld(t, "w1")
	m := *w.manifest
	m.Operator = "example.org"
	op := signer(t, checkpoint.Ed25519, 9)
	b, err := m.Sign("example.org", op, signer(t, checkpoint.MLDSA44, 9))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if got, err := ParseManifest(b, &sum); err != nil || got.Operator != "example.org" || len(got.Roots) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseManifest(b, nil); !errors.Is(err, ErrNotPinned) {
		t.Errorf("without a pin: %v", err)
	}
	other := sum
	other[0]++
	if _, err := ParseManifest(b, &other); err == nil || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("with another pin: %v", err)
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		s := sha256.Sum256(c)
		if _, err := ParseManifest(c, &s); err == nil {
			t.Fatalf("with byte %d changed (%q) it was accepted", i, b[max(0, i-10):min(len(b), i+10)])
		}
	}
	cut := b[:bytes.LastIndex(b, []byte("— "))]
	s := sha256.Sum256(cut)
	if _, err := ParseManifest(cut, &s); !errors.Is(err, checkpoint.ErrSignature) {
		t.Errorf("with a signature stripped: %v", err)
	}
}

func TestDigestChain(t *testing.T) {
	w := newWorld(t, "")
	var prev *Digest
	var all []*Digest
	for i := range 3 {
		d := &Digest{Checkpoint: w.note(t, uint64(i), byte(i)).Checkpoint, Number: uint64(i), Time: at(int64(i))}
		if prev != nil {
			d.Previous = prev.Hash()
		}
		d.Signature, _ = w.dig.Sign(d.SignedText())
		got, err := ParseDigest(d.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(got.Verify(keyOf("audit", w.dig)), got.Follows(prev)); err != nil {
			t.Error(err)
		}
		prev = got
		all = append(all, got)
	}
	if all[2].Follows(all[0]) == nil || all[1].Follows(nil) == nil || all[0].Follows(all[1]) == nil {
		t.Error("a digest left out wasn't noticed")
	}
	if all[0].Verify(keyOf("other", w.log)) == nil {
		t.Error("another key's signature was accepted")
	}
}

func FuzzAnchors(f *testing.F) {
	f.Add([]byte("bodycam-digest/v1\n"), byte(0))
	f.Add([]byte{0xa4, 1, 0x60}, byte(1))
	f.Add([]byte{0x30, 0x03, 2, 1, 0}, byte(2))
	f.Add([]byte{0xc2, 0x80, 0x80}, byte(3))
	f.Add([]byte(`{"manifest":"bodycam-manifest/v1"}`), byte(4))
	f.Add([]byte{0xa9, 1, 0}, byte(5))
	f.Fuzz(func(t *testing.T, b []byte, which byte) {
		switch which % 6 {
		case 0:
			if d, err := ParseDigest(b); err == nil && !bytes.Equal(d.Marshal(), b) {
				t.Error("a digest has two forms")
			}
		case 1:
			if e, err := ParseEvidence(b); err == nil && !bytes.Equal(e.Append(nil), b) {
				t.Error("an evidence has two forms")
			}
		case 2:
			if ts, err := parseToken(b); err == nil {
				_, _ = ts.verifySignature()
			}
		case 3:
			_, _ = rlpList(b)
			_ = (&Anchored{}).entry(b, 0)
			_, _ = trieValue(Keccak(b), []byte{0x80}, [][]byte{b})
		case 4:
			_, _ = ParseManifest(b, nil)
		case 5:
			if r, err := ParseReceipt(b); err == nil {
				_, _ = r.Open()
			}
		}
	})
}
