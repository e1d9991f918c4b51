package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/ledger"
)

// Standing is how what a run directory holds stands to its ledger.
type Standing struct {
	Unsealed []string // what isn't what was sealed, and why
	Remade   []string // derived copies that differ, and may have been made again
	Erased   string   // what was erased, by whom, when and why, as the ledger tells it; "" where nothing was
	Refused  []string // what the ledger itself says that it was given and could not take
	Unknown  string   // why the copies can't be compared; "" where they were
}

// mostUnsealed is how many faults, and how many erasures, are named.
const mostUnsealed = 4

// Reasons are why the run's record can't be called complete; none where all that was sealed is there, and as it was.
func (s *Standing) Reasons() []string {
	var out []string
	for _, u := range s.Unsealed {
		out = append(out, "not what was sealed: "+u)
	}
	out = append(out, s.Refused...)
	if s.Erased != "" {
		out = append(out, s.Erased)
	}
	if s.Unknown != "" {
		out = append(out, s.Unknown)
	}
	return out
}

// Complete is what the run says of its record, with what its standing takes from that.
func (s *Standing) Complete(c bodycam.Completeness) bodycam.Completeness {
	return c.Lacking(s.Reasons()...)
}

// Standing holds the run against its ledger, as far as its identities reach. It doesn't verify the ledger itself. Of a
// run that was cut off or is still written, copies may be ahead of the ledger or behind it: there, only what differs counts.
func (r *Run) Standing() *Standing {
	s := new(Standing)
	lr, err := r.Ledger()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("its ledger isn't there, the files beside it are nobody's word")
		}
		s.Unsealed = append(s.Unsealed, err.Error())
		return s
	}
	defer lr.Close()
	c := newComparer(r, lr)
	if len(r.Identities) > 0 {
		err = c.all()
	} else {
		err = ledger.ErrNoKey
	}
	for _, k := range c.faults {
		switch {
		case k.Derived:
			s.Remade = append(s.Remade, k.Name)
		case c.ended || !r.Cut() || k.differs:
			s.Unsealed = append(s.Unsealed, k.Name+" "+k.Why)
		}
	}
	switch {
	case errors.Is(err, ledger.ErrNoKey):
		s.Unknown = "it could not be compared with the ledger: no key at hand reads what was sealed"
	case err != nil:
		s.Unsealed = append(s.Unsealed, err.Error())
	case !c.ended && !r.Cut():
		s.Unsealed = append(s.Unsealed, InfoFile+" says that the run ended, and its ledger holds no end")
	}
	if err := s.missing(lr, c); err != nil {
		s.Unsealed = append(s.Unsealed, err.Error())
	}
	if n := len(s.Unsealed); n > mostUnsealed {
		s.Unsealed = append(s.Unsealed[:mostUnsealed], fmt.Sprintf("and %d more: bodycam verify lists them", n-mostUnsealed))
	}
	return s
}

// missing reads what the ledger tells of what could not be sealed and of erasures, and holds these against the keys that are gone.
func (s *Standing) missing(lr *ledger.Reader, c *comparer) error {
	var told []string
	epochs, records := map[uint64]bool{}, map[uint64]bool{}
	for rec, err := range lr.Records(0) {
		if err != nil {
			return fmt.Errorf("reading the ledger: %w", err)
		}
		if rec.Type != ledger.TypeErase && rec.Type != ledger.TypeGap {
			continue
		}
		b, err := lr.Payload(rec)
		if err != nil {
			return fmt.Errorf("reading what record %d says of what isn't there: %w", rec.Seq, err)
		}
		if rec.Type == ledger.TypeGap {
			n, err := ledger.ParseGapNote(b)
			if err != nil {
				return fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			s.Refused = append(s.Refused, fmt.Sprintf("record %d: the storage was full: %s, with %s, could not be sealed", rec.Seq, counted(int(n.Records), "record"), counted(int(n.Events), "event")))
			continue
		}
		n, err := ledger.ParseEraseNote(b)
		if err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		for _, e := range n.Epochs {
			epochs[e] = true
		}
		for _, q := range n.Events {
			records[q] = true
		}
		told = append(told, fmt.Sprintf("record %d, %s: %q", rec.Seq, time.Unix(0, rec.Wall).UTC().Format(time.RFC3339), bodycam.Printable(n.Reason)))
	}
	unrecorded := 0
	for _, rec := range c.erased {
		if !epochs[rec.epoch] && !records[rec.seq] {
			unrecorded++
		}
	}
	if unrecorded > 0 {
		s.Unsealed = append(s.Unsealed, fmt.Sprintf("keys of %s are gone, and no erasure of them is recorded", counted(unrecorded, "record")))
	}
	if len(told) == 0 {
		return nil
	}
	what := "parts were"
	if s.Unknown == "" {
		what = counted(int(c.lostEvents), "event")
		if other := len(c.erased) - c.batches; other > 0 {
			what += " and " + counted(other, "other record")
		}
		if what += " were"; what == "1 event were" {
			what = "1 event was"
		}
	}
	if n := len(told); n > mostUnsealed {
		told = append(told[:mostUnsealed], fmt.Sprintf("and %d more erasures", n-mostUnsealed))
	}
	s.Erased = fmt.Sprintf("%s erased by who holds the keys of recorder %s (%s)",
		what, bodycam.Printable(lr.Genesis().Recorder), strings.Join(told, "; "))
	return nil
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
