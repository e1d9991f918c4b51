package store

import (
	"errors"
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger"
)

// RecordKept holds what survives of a batch after single events of it were erased: a bundle (docs/FORMAT.md) of the
// batch's record with the other events, their salts and their proofs. That they are the ones that were recorded
// follows from the batch's own commitment, so whoever makes such a record can't change them.
const RecordKept = ledger.TypeUser + 5

// Batches opens batches of a ledger, also such as lost single events to an erasure. It isn't safe for concurrent use.
type Batches struct {
	log  *ledger.Reader
	kept map[uint64]map[uint64][]byte // batch → index → event; nil until it is needed
}

// NewBatches returns what opens the batches of a ledger.
func NewBatches(lr *ledger.Reader) *Batches { return &Batches{log: lr} }

// Events returns a batch's events by index; nil where one was erased. A record that was erased altogether has none.
func (b *Batches) Events(rec *ledger.ReadRecord) ([][]byte, error) {
	events, err := b.log.Events(rec)
	if !errors.Is(err, ledger.ErrErased) {
		return events, err
	}
	if b.kept == nil {
		if err := b.load(); err != nil {
			return nil, err
		}
	}
	out := make([][]byte, rec.Count)
	for i, e := range b.kept[rec.Seq] {
		if i < rec.Count {
			out[i] = e
		}
	}
	return out, nil
}

func (b *Batches) load() error {
	b.kept = map[uint64]map[uint64][]byte{}
	for rec, err := range b.log.Records(0) {
		if err != nil {
			return err
		}
		if rec.Type != RecordKept {
			continue
		}
		payload, err := b.log.Payload(rec)
		if errors.Is(err, ledger.ErrErased) {
			continue // events of the same batch were erased once more
		}
		if err != nil {
			return err
		}
		if err := b.keep(payload); err != nil {
			return fmt.Errorf("record %d: what it keeps of a batch: %w", rec.Seq, err)
		}
	}
	return nil
}

// keep takes the events of a bundle that holds against the record that the log itself has.
func (b *Batches) keep(payload []byte) error {
	k, err := ledger.ParseBundle(payload)
	if err != nil {
		return err
	}
	gen := b.log.Genesis()
	if k.Genesis.ID() != gen.ID() {
		return errors.New("it is of another log")
	}
	if rep := k.Verify(ledger.Trust{Self: true}); rep.Verdict == ledger.Tampered {
		return fmt.Errorf("it doesn't verify: %v", rep.FirstBad)
	}
	for i := range k.Items {
		it := &k.Items[i]
		if it.Record.Type != RecordEvents {
			continue // a rotation of keys
		}
		rec, err := b.log.Record(it.Record.Seq)
		if err != nil {
			return err
		}
		if rec.Digest != it.Record.Digest(gen.Profile) {
			return fmt.Errorf("record %d in it isn't the log's", it.Record.Seq)
		}
		events := map[uint64][]byte{}
		for j := range it.Events {
			events[it.Events[j].Index] = it.Events[j].Event
		}
		b.kept[it.Record.Seq] = events
	}
	return nil
}

// Place names an event in the ledger.
type Place struct {
	Record uint64
	Index  int
}

// Locate finds the places of events by their sequence numbers in the run. It needs no key: events lie in the ledger
// in their order, and how many a record holds is said in the clear.
func Locate(lr *ledger.Reader, events []uint64) (map[uint64]Place, error) {
	out := make(map[uint64]Place, len(events))
	want := make(map[uint64]bool, len(events))
	for _, n := range events {
		want[n] = true
	}
	next := uint64(1)
	for rec, err := range lr.Records(0) {
		if err != nil {
			return nil, fmt.Errorf("looking for events in the ledger: %w", err)
		}
		if rec.Type != RecordEvents {
			continue
		}
		for n := range want {
			if n >= next && n-next < rec.Count {
				out[n] = Place{rec.Seq, int(n - next)}
				delete(want, n)
			}
		}
		next += rec.Count
	}
	for n := range want {
		return nil, fmt.Errorf("there is no event %d: the ledger holds events 1 to %d", n, next-1)
	}
	return out, nil
}

// TypeName names a type of record.
func TypeName(t ledger.Type) string {
	switch t {
	case RecordEvents:
		return "events"
	case RecordAction:
		return "action"
	case RecordFinding:
		return "finding"
	case RecordFile:
		return "file"
	case RecordRun:
		return "run"
	case RecordKept:
		return "kept"
	case RecordRow:
		return "row"
	case RecordDelegation:
		return "delegation"
	case RecordApproval:
		return "approval"
	}
	return t.String()
}
