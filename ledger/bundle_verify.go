package ledger

import (
	"crypto/sha256"
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Verify verifies a bundle against what the verifier trusts. It needs nothing but the bundle.
//
// The coverage claim stays open: a bundle shows what it was given, not what was left out.
func (b *Bundle) Verify(trust Trust, require ...string) *Report {
	r := &Report{}
	for _, claim := range r.Claims.all() {
		claim.Status = StatusVerified
	}
	v := &verification{gen: b.Genesis, note: b.Checkpoint, opts: VerifyOptions{Trust: trust}, report: r}
	id := b.Genesis.ID()
	r.Log, r.Origin, r.Recorder, r.Profile = hexOf(id), b.Genesis.Origin(), b.Genesis.Recorder, b.Genesis.Profile.String()
	r.Checkpoint, r.Epochs = b.Checkpoint.Size, uint64(len(b.Epochs))
	c := &r.Claims
	if want := trust.LogID; want != nil && id != *want {
		c.Identity.worse(StatusTampered, "this is another log: its identity is %s, not %s", hexOf(id), hexOf(*want))
	}
	if b.Checkpoint.Origin != r.Origin {
		c.Integrity.worse(StatusTampered, "the checkpoint is that of another log, %s", b.Checkpoint.Origin)
	}
	b.verifyRecords(v)
	b.verifyHeads(v)
	c.Coverage.worse(StatusUnverifiable, "a bundle shows what it was given, not what was left out")
	r.conclude(append([]string{"integrity", "order", "identity"}, require...))
	return r
}

// verifyRecords checks every proof and every payload.
func (b *Bundle) verifyRecords(v *verification) {
	r := v.report
	epochs := map[uint64]*Header{}
	used := map[uint64]bool{}
	for i := range b.Epochs {
		e := &b.Epochs[i]
		h := &e.Header
		bad := func(err error) { r.tampered(&Flaw{h.Epoch, h.First, false, err.Error()}) }
		if i > 0 && h.Epoch <= b.Epochs[i-1].Header.Epoch {
			bad(fmt.Errorf("its header is out of order"))
		}
		if err := b.verifyEpoch(e); err != nil {
			bad(err)
		}
		epochs[h.Epoch] = h
	}
	for i := range b.Items {
		it := &b.Items[i]
		rec := &it.Record
		h := headerOf(b.Epochs, rec.Seq)
		if h == nil {
			r.tampered(&Flaw{0, rec.Seq, true, "no epoch of the bundle holds it"})
			continue
		}
		used[h.Epoch] = true
		bad := func(err error) { r.tampered(&Flaw{h.Epoch, rec.Seq, true, err.Error()}) }
		if i > 0 && rec.Seq <= b.Items[i-1].Record.Seq {
			bad(fmt.Errorf("it is out of order"))
		}
		if err := b.verifyItem(it, h); err != nil {
			bad(err)
		}
		b.verifyContent(v, it, h)
		r.Records++
		r.Events += rec.Count
		if rec.Type == TypeRotate && it.Opened {
			v.notes = append(v.notes, systemNote{*rec, h.Epoch, it.Payload})
		}
	}
	for epoch, h := range epochs {
		if !used[epoch] && r.FirstBad == nil {
			r.tampered(&Flaw{epoch, h.First, false, "its header stands for no record of the bundle"})
		}
	}
	if len(b.Items) == 0 {
		r.Claims.Content.worse(StatusIncomplete, "the bundle holds no record")
	}
}

// headerOf is the header of the epoch that holds a record.
func headerOf(epochs []BundleEpoch, seq uint64) *Header {
	for i := range epochs {
		if h := &epochs[i].Header; seq >= h.First && seq-h.First < h.Count {
			return h
		}
	}
	return nil
}

func (b *Bundle) verifyEpoch(e *BundleEpoch) error {
	h := &e.Header
	switch {
	case h.Log != b.Genesis.ID():
		return fmt.Errorf("its header belongs to another log")
	case (h.AFR != nil) != (b.Genesis.Profile == ProfileAFR):
		return fmt.Errorf("its header isn't of profile %s", b.Genesis.Profile)
	case h.Count > b.Genesis.EpochRecords:
		return fmt.Errorf("it claims %d records, more than the genesis allows", h.Count)
	}
	return merkle.VerifyInclusion(h.Hash(), h.Epoch, b.Checkpoint.Size, e.Proof, b.Checkpoint.Root)
}

func (b *Bundle) verifyItem(it *BundleItem, h *Header) error {
	rec := &it.Record
	if rec.Log != h.Log || rec.Incarnation != h.Incarnation {
		return fmt.Errorf("it belongs to another log or incarnation than its epoch")
	}
	return b.Genesis.Profile.verifyRecord(rec.Digest(b.Genesis.Profile), rec.Seq-h.First, h.Count, it.Proof, h.Root)
}

// verifyContent compares what is disclosed with the record's commitment.
func (b *Bundle) verifyContent(v *verification, it *BundleItem, h *Header) {
	r, rec, p := v.report, &it.Record, b.Genesis.Profile
	c := &r.Claims.Content
	bad := func(format string, args ...any) {
		f := &Flaw{h.Epoch, rec.Seq, true, fmt.Sprintf(format, args...)}
		r.bad(f)
		c.worse(StatusTampered, "%s", f.Error())
	}
	batch := rec.Form.Batch()
	salted := p != ProfileAFR && !rec.Form.Clear()
	switch {
	case it.Opened && batch, it.Events != nil && !batch:
		bad("what is disclosed isn't of the record's form")
	case it.Opened:
		if salted != (len(it.Salt) == keySize) || !salted && len(it.Salt) != 0 {
			bad("its salt has %d bytes", len(it.Salt))
			return
		}
		k := newCommitter(p, rec.Form, it.Salt)
		k.Write(it.Payload)
		if k.sum() != rec.Commitment {
			bad("the payload doesn't fit its commitment")
			return
		}
		r.Opened++
	case it.Events != nil:
		for i := range it.Events {
			e := &it.Events[i]
			if salted != (len(e.Salt) == saltSize) || !salted && len(e.Salt) != 0 || i > 0 && e.Index <= it.Events[i-1].Index {
				bad("event %d is out of order or has a salt of %d bytes", e.Index, len(e.Salt))
				return
			}
			digest := sha256.Sum256(append(appendEventPrefix(nil, rec.Form, e.Salt), e.Event...))
			if err := verifyEvent(rec.Form, digest, e.Index, rec.Count, e.Proof, rec.Commitment); err != nil {
				bad("event %d: %v", e.Index, err)
				return
			}
			r.Opened++
		}
	default:
		c.restsOn("record %d is disclosed without its payload", rec.Seq)
	}
}

// verifyHeads checks the checkpoint's signatures and the roots of trust.
func (b *Bundle) verifyHeads(v *verification) {
	r := v.report
	c := &r.Claims
	r.Heads = []Head{{b.Checkpoint.Size, hexOf(b.Checkpoint.Root), "the bundle's checkpoint", 0}}
	keys := v.keysAt(b.Checkpoint.Size)
	if v.signed(keys) {
		c.Integrity.restsOn("the log's keys, over a checkpoint of %s", count(b.Checkpoint.Size, "epoch"))
	}
	pinned := v.opts.Pinned
	v.opts.Pinned = nil
	for _, p := range pinned {
		switch {
		case p.Origin != r.Origin:
			c.Identity.worse(StatusTampered, "%s is of another log, %s", p.Source, p.Origin)
		case p.Size == b.Checkpoint.Size && p.Root != b.Checkpoint.Root:
			r.tampered(&Flaw{What: "the checkpoint isn't that of " + p.Source})
		case p.Size == b.Checkpoint.Size:
			v.opts.Pinned = append(v.opts.Pinned, p)
			c.Integrity.restsOn("%s, over %s", p.Source, count(p.Size, "epoch"))
		default:
			c.Integrity.restsOn("the bundle has no proof to %s, which covers %s", p.Source, count(p.Size, "epoch"))
		}
	}
	v.judgeIdentity(keys)
	if c.Content.Status == StatusVerified && r.Opened > 0 {
		c.Content.restsOn("payloads and events compared with their commitments: %d", r.Opened)
	}
	c.Order.restsOn("sequence numbers, which follow from the place in the epoch's tree")
	v.judgeTime(b.Checkpoint.Size)
}
