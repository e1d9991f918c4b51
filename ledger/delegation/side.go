package delegation

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Side is what is shown of one log: the whole of it, or a bundle.
type Side struct {
	ID      ledger.Hash
	Genesis *ledger.Genesis
	Source  string // for people: where it comes from
	// Whole: it is the whole log, so that what isn't there was left out. A bundle shows what it was given.
	Whole bool
	// Trusted: whose log it is was judged apart, or its keys are known from elsewhere.
	Trusted bool
	// Size is how many epochs of it are under the checkpoint that it was shown with.
	Size uint64

	records []record
	keys    [][]ledger.PublicKey // that took over from the genesis's
	proofs  []embedded
}

// record is one record of a delegation.
type record struct {
	seq, incarnation uint64
	digest           ledger.Hash
	kind             string
	payload          []byte // nil: closed
	why              string // why it is closed
	sealed           bool
}

// embedded is a bundle of another log.
type embedded struct {
	seq    uint64
	bundle *ledger.Bundle
}

// Records tells how many records of delegations it has.
func (s *Side) Records() int { return len(s.records) }

// FromLog reads a log's records of delegations. Payloads for which the reader has no key stay closed.
func FromLog(r *ledger.Reader, source string) (*Side, error) {
	s := NewSide(r, source)
	for rec, err := range r.Records(0) {
		if err == nil {
			err = s.Take(r, rec)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the delegations of %s: %w", source, err)
		}
	}
	return s, nil
}

// NewSide begins to show a whole log, whose records are then all taken, in their order.
func NewSide(r *ledger.Reader, source string) *Side {
	gen := r.Genesis()
	return &Side{ID: gen.ID(), Genesis: &gen, Source: source, Whole: true, Trusted: true, Size: r.Epochs()}
}

// Take takes a record; those that aren't of delegations are passed over.
func (s *Side) Take(r *ledger.Reader, rec *ledger.ReadRecord) error {
	if rec.Type != RecordType && rec.Type != ledger.TypeRotate {
		return nil
	}
	e := record{seq: rec.Seq, incarnation: rec.Incarnation, digest: rec.Digest, kind: rec.Kind, sealed: rec.Sealed}
	b, err := r.Payload(rec)
	switch {
	case errors.Is(err, ledger.ErrErased):
		e.why = "it was erased"
	case errors.Is(err, ledger.ErrNoKey):
		e.why = "no key at hand opens it"
	case err != nil:
		return err
	default:
		e.payload = b
	}
	if rec.Type == ledger.TypeRotate {
		s.rotated(e.payload)
	} else {
		s.add(e)
	}
	return nil
}

// FromBundle takes a bundle's records of delegations. The bundle must have been verified.
func FromBundle(b *ledger.Bundle, source string) *Side {
	s := &Side{ID: b.Genesis.ID(), Genesis: b.Genesis, Source: source, Trusted: true, Size: b.Checkpoint.Size}
	for i := range b.Items {
		it := &b.Items[i]
		if it.Record.Type == ledger.TypeRotate {
			s.rotated(it.Payload)
		}
		if it.Record.Type != RecordType {
			continue
		}
		e := record{seq: it.Record.Seq, incarnation: it.Record.Incarnation, digest: it.Record.Digest(b.Genesis.Profile), kind: it.Record.Kind, sealed: true}
		if it.Opened {
			e.payload = it.Payload
		} else {
			e.why = "the bundle holds it closed"
		}
		s.add(e)
	}
	return s
}

func (s *Side) add(e record) {
	if e.payload == nil && e.why == "" {
		e.payload = []byte{}
	}
	s.records = append(s.records, e)
	if e.kind != KindProof || e.payload == nil {
		return
	}
	if b, err := ledger.ParseBundle(e.payload); err == nil {
		s.proofs = append(s.proofs, embedded{e.seq, b})
	}
}

// rotated takes note of keys that took over. A hand-over counts only in a log that was verified.
func (s *Side) rotated(payload []byte) {
	if n, err := ledger.ParseRotateNote(payload); err == nil {
		s.keys = append(s.keys, n.New)
	}
}

func (s *Side) at(seq uint64) *record {
	for i := range s.records {
		if s.records[i].seq == seq {
			return &s.records[i]
		}
	}
	return nil
}

// holds tells whether the record that a receipt names stands where the receipt says. found is false where the side
// doesn't show that place.
func (s *Side) holds(r *Receipt) (is, found bool) {
	e := s.at(r.Seq)
	if e == nil {
		return false, s.Whole
	}
	return e.digest == r.Record && e.incarnation == r.Incarnation, true
}

// Heads are the heads of another log that this one's embedded proofs hold, signed by that log's own keys, for
// [ledger.Trust]: it must lead to them now.
func (s *Side) Heads(of ledger.Hash) (out []ledger.Pinned) {
	for _, p := range s.held(of) {
		out = append(out, ledger.Pinned{Checkpoint: p.bundle.Checkpoint.Checkpoint, Source: fmt.Sprintf("the proof in record %d of %s", p.seq, s.Source)})
	}
	return out
}

// Notes are the same heads with their signatures: where the log shows another history, each is half of a proof of that.
func (s *Side) Notes(of ledger.Hash) (out []*checkpoint.Note) {
	for _, p := range s.held(of) {
		out = append(out, p.bundle.Checkpoint)
	}
	return out
}

// held are the embedded proofs of a log that stand under its own keys.
func (s *Side) held(of ledger.Hash) (out []embedded) {
	for _, p := range s.proofs {
		if p.bundle.Genesis.ID() == of && p.bundle.Verify(ledger.Trust{Self: true}).Claims.Integrity.Status == ledger.StatusVerified {
			out = append(out, p)
		}
	}
	return out
}

// Disclose lists the records that go into a bundle for the other side: all of delegations but the proofs that are embedded.
func (s *Side) Disclose() []ledger.Disclose {
	var out []ledger.Disclose
	for i := range s.records {
		if e := &s.records[i]; e.sealed && e.kind != KindProof {
			out = append(out, ledger.Disclose{Seq: e.seq, Closed: e.payload == nil})
		}
	}
	return out
}

// name is a log's name for people.
func name(id ledger.Hash) string { return hex.EncodeToString(id[:8]) + "…" }

// Owed is what one log should still embed of another.
type Owed struct {
	Acks  []Ack // acceptances that the other log holds and this one doesn't
	Proof bool  // no proof of the other log's records is there, or one that doesn't cover them all
}

// Ack is a request with its acceptance.
type Ack struct{ Request, Accept *Receipt }

// Owes says what the log of s should still embed of the log of o. accept signs for the record of o, of that number, that
// accepted a request of s; nil: nobody can.
func (s *Side) Owes(o *Side, accept func(request *Receipt, seq uint64) (*Receipt, error)) (owed Owed, err error) {
	acked := map[ledger.Hash]bool{}
	for i := range s.records {
		if e := &s.records[i]; e.kind == KindAck && e.payload != nil {
			if req, _, err := parseAck(e.payload); err == nil {
				acked[req.Hash()] = true
			}
		}
	}
	mine := false
	for i := range o.records {
		e := &o.records[i]
		if e.payload == nil {
			continue
		}
		switch e.kind {
		case KindAccept:
			req, err := ParseReceipt(e.payload)
			if err != nil || req.Log() != s.ID {
				continue
			}
			mine = true
			if acked[req.Hash()] || accept == nil {
				continue
			}
			ack, err := accept(req, e.seq)
			if err != nil {
				return owed, err
			}
			owed.Acks = append(owed.Acks, Ack{req, ack})
		case KindAck:
			if _, acc, err := parseAck(e.payload); err == nil && acc.Log() == s.ID {
				mine = true
			}
		}
	}
	owed.Proof = mine && !s.proves(o)
	return owed, nil
}

// Contested is an error that wraps [ErrReplay] where two logs accepted one request, as these sides show it: by their own
// records, or by the answers that they embed. The first of them is the one that was named first.
func Contested(sides ...*Side) error {
	by := map[ledger.Hash]ledger.Hash{} // requests, with the log that accepted
	for _, s := range sides {
		for i := range s.records {
			e := &s.records[i]
			if e.payload == nil {
				continue
			}
			var req *Receipt
			var err error
			log := s.ID
			switch e.kind {
			case KindAccept:
				req, err = ParseReceipt(e.payload)
			case KindAck:
				var acc *Receipt
				if req, acc, err = parseAck(e.payload); err == nil {
					log = acc.Log()
				}
			default:
				continue
			}
			if err != nil {
				continue // what isn't one, judging says
			}
			first, ok := by[req.Hash()]
			if ok && first != log {
				return fmt.Errorf("%w, by log %s; log %s accepted it too (%s)", ErrReplay, name(first), name(log), s.Source)
			}
			by[req.Hash()] = log
		}
	}
	return nil
}

// proves tells whether the proofs of o that s embeds hold all of o's records that matter.
func (s *Side) proves(o *Side) bool {
	have := map[uint64]bool{}
	for _, p := range s.proofs {
		if p.bundle.Genesis.ID() != o.ID {
			continue
		}
		for i := range p.bundle.Items {
			have[p.bundle.Items[i].Record.Seq] = true
		}
	}
	for _, d := range o.Disclose() {
		if !have[d.Seq] {
			return false
		}
	}
	return len(have) > 0
}

// SignAccept signs for an acceptance that a log holds already, where the other side never got the answer. The reader is
// that log's, and the signers are its.
func SignAccept(lr *ledger.Reader, signers []checkpoint.Signer, request *Receipt, seq uint64) (*Receipt, error) {
	rec, err := lr.Record(seq)
	if err != nil {
		return nil, err
	}
	b, err := lr.Payload(rec)
	if err != nil {
		return nil, err
	}
	if rec.Type != RecordType || rec.Kind != KindAccept || !bytes.Equal(b, request.Append(nil)) {
		return nil, fmt.Errorf("record %d isn't the acceptance of that request", seq)
	}
	gen, hash := lr.Genesis(), request.Hash()
	r := &Receipt{Role: Accept, Genesis: &gen, Incarnation: rec.Incarnation, Seq: seq, Record: rec.Digest, Content: hash[:], Time: time.Now().UnixNano()}
	return r, r.sign(signers)
}
