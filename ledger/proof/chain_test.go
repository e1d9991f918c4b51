package proof

import (
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
)

// chained are digests 0 to n-1, each an epoch larger and ten seconds later than the one before.
func (w *world) chained(t *testing.T, n int) (out []*Digest) {
	t.Helper()
	for i := range n {
		d := &Digest{Checkpoint: w.note(t, uint64(i+1), byte(i+1)).Checkpoint, Number: uint64(i), Time: at(int64(100 + 10*i))}
		if i > 0 {
			d.Previous = out[i-1].Hash()
		}
		w.signDigest(t, d)
		out = append(out, d)
	}
	return out
}

func (w *world) signDigest(t *testing.T, d *Digest) *Digest {
	t.Helper()
	var err error
	if d.Signature, err = w.dig.Sign(d.SignedText()); err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) delivered(t *testing.T, d *Digest) ledger.Anchor {
	t.Helper()
	n := w.note(t, d.Size, 0)
	n.Checkpoint = d.Checkpoint
	return ledger.Anchor{Kind: KindDigest, Data: (&Evidence{Kind: KindDigest, Note: n, Data: d.Marshal()}).Append(nil)}
}

// TestChain: a digest that is missing, put in, moved or signed twice shows, whatever the policy says.
func TestChain(t *testing.T) {
	w := newWorld(t, "")
	all := w.chained(t, 5)
	alter := func(i int, change func(*Digest)) *Digest {
		d := *all[i]
		change(&d)
		return w.signDigest(t, &d)
	}
	for name, c := range map[string]struct {
		list    []*Digest
		status  ledger.Status
		verdict ledger.Verdict
		why     string
	}{
		"whole":            {all, ledger.StatusVerified, ledger.Verified, ""},
		"in another order": {[]*Digest{all[3], all[0], all[4], all[1], all[2]}, ledger.StatusVerified, ledger.Verified, ""},
		"each twice":       {append(append([]*Digest{}, all...), all...), ledger.StatusVerified, ledger.Verified, ""},
		"one missing":      {[]*Digest{all[0], all[1], all[3], all[4]}, ledger.StatusIncomplete, ledger.Incomplete, "number 2 is missing"},
		"two missing":      {[]*Digest{all[0], all[3], all[4]}, ledger.StatusIncomplete, ledger.Incomplete, "numbers 1 to 2 are missing"},
		"the first":        {all[1:], ledger.StatusIncomplete, ledger.Incomplete, "number 0 is missing"},
		"two of a number":  {append([]*Digest{alter(2, func(d *Digest) { d.Time = at(121) })}, all...), ledger.StatusTampered, ledger.Tampered, "two follow number 1"},
		"one replaced": {[]*Digest{all[0], alter(1, func(d *Digest) { d.Time = at(111) }), all[2], all[3], all[4]}, ledger.StatusTampered, ledger.Tampered,
			"number 2 doesn't continue number 1"},
		"one moved": {[]*Digest{all[0], alter(2, func(d *Digest) { d.Number = 1; d.Previous = all[0].Hash() }), alter(1, func(d *Digest) { d.Number = 2 }), all[3]},
			ledger.StatusTampered, ledger.Tampered, "doesn't continue the one before"},
		"back over a gap": {[]*Digest{all[0], all[1], alter(3, func(d *Digest) { d.Time = at(1) })}, ledger.StatusTampered, ledger.Tampered, "number 3 doesn't continue number 1, or goes back behind it"},
	} {
		var anchors, raw []ledger.Anchor
		for _, d := range c.list {
			anchors = append(anchors, w.delivered(t, d))
			raw = append(raw, ledger.Anchor{Kind: KindDigest, Data: d.Marshal()})
		}
		for where, list := range map[string][]ledger.Anchor{"the run's": anchors, "the keeper's": raw, "both": append(anchors, raw...)} {
			j := Judge(testOrigin, list, w.manifest)
			j.Conclude(5, at(90), 0)
			if len(j.Chains) != 1 || j.Chains[0].Status != c.status || !strings.Contains(strings.Join(j.Chains[0].Why, "\n"), c.why) {
				t.Errorf("%s, %s: %+v, want %s because of %q", name, where, j.Chains, c.status, c.why)
			}
			if got := j.Lower(ledger.Verified); got != c.verdict {
				t.Errorf("%s, %s: the verdict is %s, want %s", name, where, got, c.verdict)
			}
			if c.why != "" && !strings.Contains(strings.Join(j.Reasons(), "\n"), c.why) {
				t.Errorf("%s, %s: the reasons are %q", name, where, j.Reasons())
			}
		}
	}
	// One key, two folders: each has a chain of its own, and that is no conflict. A gap in one of them shows.
	second := w.chained(t, 3)
	for i, d := range second {
		d.Time = d.Time.Add(5 * time.Second)
		if i > 0 {
			d.Previous = second[i-1].Hash()
		}
		w.signDigest(t, d)
	}
	for _, c := range []struct {
		list   []*Digest
		status ledger.Status
	}{{append(second, all...), ledger.StatusVerified}, {append([]*Digest{second[0], second[2]}, all...), ledger.StatusIncomplete}} {
		var anchors []ledger.Anchor
		for _, d := range c.list {
			anchors = append(anchors, w.delivered(t, d))
		}
		if j := Judge(testOrigin, anchors, w.manifest); j.Chains[0].Status != c.status {
			t.Errorf("two folders: %+v, want %s", j.Chains, c.status)
		}
	}
	// A digest of somebody else's isn't part of the chain.
	other := *w
	other.dig = signer(t, 1, 9)
	stranger := other.signDigest(t, &Digest{Checkpoint: all[0].Checkpoint, Number: 7, Time: at(100)})
	j := Judge(testOrigin, []ledger.Anchor{w.delivered(t, all[0]), {Kind: KindDigest, Data: stranger.Marshal()}}, w.manifest)
	if len(j.Chains) != 1 || j.Chains[0].Status != ledger.StatusVerified {
		t.Errorf("%+v", j.Chains)
	}
}
