package ledger_test

import (
	"crypto/sha256"
	"slices"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// bundle adds a vector of a bundle.
func (g *generator) bundle(name, what string, data []byte, want expect) {
	g.t.Helper()
	g.add(vector{Name: name, What: what, File: name + ".bundle"}, data, want)
}

func (g *generator) disclose(s *ledgertest.Store, what ...ledger.Disclose) *ledger.Bundle {
	g.t.Helper()
	r, err := ledger.OpenReader(s, g.id)
	g.must(err)
	defer r.Close()
	b, err := r.Disclose(what)
	g.must(err)
	return b
}

func (g *generator) bundles() {
	s, _ := g.base(g.both())
	what := []ledger.Disclose{{Seq: 1}, {Seq: 5, Closed: true}, {Seq: 7, Events: []int{0, 2, 33}}, {Seq: 9}}
	valid := g.disclose(s, what...).Append(nil)
	g.bundle("bundle-valid-two-algorithms", "record 1 with its payload, 5 without, three events of batch 7, the large payload of 9", valid, verified)
	stripped, err := ledger.ParseBundle(slices.Clone(valid))
	g.must(err)
	stripped.Checkpoint.Signatures = stripped.Checkpoint.Signatures[:1]
	g.bundle("bundle-signature-stripped", "the checkpoint lacks the ML-DSA-44 signature", stripped.Append(nil), expect{ledger.Tampered, -1, false, "integrity tampered"})
	s, _ = g.base(g.options())
	valid = g.disclose(s, what...).Append(nil)
	g.bundle("bundle-valid", "the same of a log signed with Ed25519 only", valid, verified)
	// changed parses the valid bundle, changes it and writes it again.
	changed := func(change func(b *ledger.Bundle)) []byte {
		b, err := ledger.ParseBundle(slices.Clone(valid))
		g.must(err)
		change(b)
		return b.Append(nil)
	}
	g.bundle("bundle-record-edit", "the kind of record 5 was changed", changed(func(b *ledger.Bundle) { b.Items[1].Record.Kind = "x" }), tampered(5, true))
	g.bundle("bundle-payload-edit", "a byte of the payload of record 1 was changed", changed(func(b *ledger.Bundle) { b.Items[0].Payload[0] ^= 1 }), tampered(1, true))
	g.bundle("bundle-salt-edit", "a byte of the salt of record 1 was changed", changed(func(b *ledger.Bundle) { b.Items[0].Salt[0] ^= 1 }), tampered(1, true))
	g.bundle("bundle-salt-stripped", "the salt of record 1 is missing", changed(func(b *ledger.Bundle) { b.Items[0].Salt = nil }), tampered(1, true))
	g.bundle("bundle-event-edit", "an event of batch 7 was changed", changed(func(b *ledger.Bundle) { b.Items[2].Events[0].Event[0] ^= 1 }), tampered(7, true))
	g.bundle("bundle-event-moved", "an event of batch 7 claims another index", changed(func(b *ledger.Bundle) { b.Items[2].Events[0].Index = 1 }), tampered(7, true))
	g.bundle("bundle-event-group", "an event of batch 7 claims its place in another group", changed(func(b *ledger.Bundle) {
		b.Items[2].Events = b.Items[2].Events[:1]
		b.Items[2].Events[0].Index = 16
	}), tampered(7, true))
	g.bundle("bundle-event-group-as-event", "the group of an event of batch 7 stands in place of the event, without its digests", changed(func(b *ledger.Bundle) {
		e := &b.Items[2].Events[2]
		digest := sha256.Sum256(slices.Concat([]byte{4}, e.Salt, e.Event))
		e.Event, e.Proof = slices.Concat(e.Proof[0][:], digest[:], e.Proof[1][:]), e.Proof[2:]
	}), tampered(7, true))
	g.bundle("bundle-event-proof-longer", "the proof of an event has a hash more", changed(func(b *ledger.Bundle) {
		b.Items[2].Events[2].Proof = append(b.Items[2].Events[2].Proof, merkle.Hash{})
	}), tampered(7, true))
	g.bundle("bundle-event-others-swapped", "two digests of an event's group have changed places", changed(func(b *ledger.Bundle) {
		p := b.Items[2].Events[0].Proof
		p[0], p[1] = p[1], p[0]
	}), tampered(7, true))
	g.bundle("bundle-record-proof-stripped", "a hash of the proof of record 1 is missing", changed(func(b *ledger.Bundle) { b.Items[0].Proof = b.Items[0].Proof[1:] }), tampered(1, true))
	g.bundle("bundle-record-proof-longer", "the proof of record 1 has a hash more", changed(func(b *ledger.Bundle) { b.Items[0].Proof = append(b.Items[0].Proof, merkle.Hash{}) }), tampered(1, true))
	g.bundle("bundle-epoch-proof-stripped", "a hash of the proof of epoch 0 is missing", changed(func(b *ledger.Bundle) { b.Epochs[0].Proof = b.Epochs[0].Proof[1:] }), tampered(0, false))
	g.bundle("bundle-event-proof-stripped", "a hash of the proof of an event is missing", changed(func(b *ledger.Bundle) { b.Items[2].Events[0].Proof = b.Items[2].Events[0].Proof[1:] }), tampered(7, true))
	g.bundle("bundle-header-edit", "the header of epoch 1 was changed", changed(func(b *ledger.Bundle) { b.Epochs[1].Header.Closed++ }), tampered(4, false))
	g.bundle("bundle-header-stripped", "the header of epoch 1 is missing", changed(func(b *ledger.Bundle) { b.Epochs = slices.Delete(b.Epochs, 1, 2) }), tampered(5, true))
	g.bundle("bundle-epoch-confusion", "record 1 of epoch 0 is given as record 5 of epoch 1 was: its proof under another epoch", changed(func(b *ledger.Bundle) {
		b.Items[0].Record.Seq, b.Items[0].Record.Incarnation = 5, b.Items[1].Record.Incarnation
		b.Items = slices.Delete(b.Items, 1, 2)
	}), tampered(5, true))
	g.bundle("bundle-duplicate-item", "record 1 stands there twice", changed(func(b *ledger.Bundle) { b.Items = slices.Insert(b.Items, 0, b.Items[0]) }), tampered(1, true))
	g.nodeAsLeaf(valid)
	g.encodedBundles(valid)
	g.afrBundles()
}

// nodeAsLeaf gives two digests in place of a record.
func (g *generator) nodeAsLeaf(valid []byte) {
	b, err := ledger.ParseBundle(valid)
	g.must(err)
	rec := b.Items[0].Record.AppendCBOR(nil)
	node := make([]byte, 64)
	copy(node, b.Items[0].Proof[0][:])
	out := slices.Clone(valid)
	i := indexOf(out, dcbor.AppendBytes(nil, rec))
	out = slices.Replace(out, i, i+len(dcbor.AppendBytes(nil, rec)), dcbor.AppendBytes(nil, node)...)
	g.bundle("bundle-node-as-leaf", "two digests of 32 bytes stand in place of record 1", out, tampered(0, false))
}

func indexOf(b, sub []byte) int {
	for i := range b {
		if len(b)-i >= len(sub) && string(b[i:i+len(sub)]) == string(sub) {
			return i
		}
	}
	return -1
}

// encodedBundles: the record inside, and the bundle itself, in CBOR that isn't deterministic.
func (g *generator) encodedBundles(valid []byte) {
	b, err := ledger.ParseBundle(valid)
	g.must(err)
	rec := b.Items[0].Record.AppendCBOR(nil)
	old := dcbor.AppendBytes(nil, rec)
	for _, name := range []string{"trailing", "long-int", "long-length", "indefinite", "duplicate", "unsorted"} {
		i := indexOf(valid, old)
		bad := slices.Replace(slices.Clone(valid), i, i+len(old), dcbor.AppendBytes(nil, nonCanonical[name](slices.Clone(rec)))...)
		g.bundle("bundle-record-"+name, "record 1, otherwise the same, in CBOR that isn't deterministic: "+name, bad, tampered(0, false))
	}
	g.bundle("bundle-trailing", "a byte follows the bundle", append(slices.Clone(valid), 0), tampered(0, false))
	g.bundle("bundle-cut", "the bundle ends early", valid[:len(valid)-7], tampered(0, false))
}

// afrBundles: the holes of the published tree.
func (g *generator) afrBundles() {
	opts := g.options()
	opts.Profile = ledger.ProfileAFR
	s := ledgertest.New()
	w, err := ledger.Create(s, opts)
	g.must(err)
	g.append(w, "a", "b")
	g.must(w.Seal()) // three records: the last leaf is doubled
	g.append(w, "c", "d")
	g.must(w.Close())
	valid := g.disclose(s, ledger.Disclose{Seq: 2}).Append(nil)
	g.bundle("bundle-afr-valid", "record 2, the third of three, whose node is doubled", valid, verified)
	changed := func(change func(b *ledger.Bundle)) []byte {
		b, err := ledger.ParseBundle(slices.Clone(valid))
		g.must(err)
		change(b)
		return b.Append(nil)
	}
	g.bundle("bundle-afr-duplicate-leaf", "the doubled record given as a fourth", changed(func(b *ledger.Bundle) {
		b.Items[0].Record.Seq = 3
	}), tampered(3, true))
	g.bundle("bundle-afr-count", "the same, and the header claims four records", changed(func(b *ledger.Bundle) {
		b.Items[0].Record.Seq = 3
		b.Epochs[0].Header.Count = 4
	}), tampered(0, false))
	two := g.disclose(s, ledger.Disclose{Seq: 2}, ledger.Disclose{Seq: 4})
	g.bundle("bundle-afr-epoch-confusion", "a record of epoch 0 with a path through R_0 to the root of epoch 1", changed(func(b *ledger.Bundle) {
		b.Epochs = two.Epochs[1:]
		b.Items[0].Proof = append(b.Items[0].Proof, merkle.Hash{}, two.Epochs[1].Header.Root)
	}), tampered(2, true))
}
