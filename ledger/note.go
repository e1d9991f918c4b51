package ledger

import (
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// Notes are the payloads of the ledger's own records.

// OpenNote begins an incarnation.
type OpenNote struct {
	Recorder string // of this incarnation: program, version, host
	Boot     string // boot id of the machine, "" where it isn't known
	Before   uint64 // incarnation before; 0 for the first
	// What recovery found, where the incarnation before was cut off.
	Recovered  uint64 // whole records after the last sealed epoch
	TornLog    uint64 // bytes dropped from the log file
	TornBytes  uint64 // bytes dropped from the payload file
	LostEpochs uint64 // sealed epochs above the last checkpoint whose bytes weren't all there
}

// Torn tells whether the incarnation before left something that had to be dropped.
func (n OpenNote) Torn() bool { return n.TornLog+n.TornBytes+n.LostEpochs > 0 }

func (n OpenNote) append(b []byte) []byte {
	b = dcbor.AppendMap(b, 7)
	b = dcbor.AppendText(append(b, 1), n.Recorder)
	b = dcbor.AppendText(append(b, 2), n.Boot)
	b = dcbor.AppendUint(append(b, 3), n.Before)
	b = dcbor.AppendUint(append(b, 4), n.Recovered)
	b = dcbor.AppendUint(append(b, 5), n.TornLog)
	b = dcbor.AppendUint(append(b, 6), n.TornBytes)
	return dcbor.AppendUint(append(b, 7), n.LostEpochs)
}

// ParseOpenNote reads the payload of a [TypeOpen] record.
func ParseOpenNote(b []byte) (OpenNote, error) {
	d := dcbor.NewDecoder(b)
	var n OpenNote
	if d.Map() != 7 {
		d.Key(0)
	}
	d.Key(1)
	n.Recorder = d.Text()
	d.Key(2)
	n.Boot = d.Text()
	d.Key(3)
	n.Before = d.Uint()
	d.Key(4)
	n.Recovered = d.Uint()
	d.Key(5)
	n.TornLog = d.Uint()
	d.Key(6)
	n.TornBytes = d.Uint()
	d.Key(7)
	n.LostEpochs = d.Uint()
	if err := d.Done(); err != nil {
		return n, fmt.Errorf("reading an opening's note: %w", err)
	}
	return n, nil
}

// GapNote says what wasn't recorded for want of space.
type GapNote struct {
	Records uint64 // refused
	Events  uint64 // refused within batches
	From    int64  // wall clock of the first refusal
	To      int64  // and of the last
}

func (n GapNote) append(b []byte) []byte {
	b = dcbor.AppendMap(b, 4)
	b = dcbor.AppendUint(append(b, 1), n.Records)
	b = dcbor.AppendUint(append(b, 2), n.Events)
	b = dcbor.AppendInt(append(b, 3), n.From)
	return dcbor.AppendInt(append(b, 4), n.To)
}

// ParseGapNote reads the payload of a [TypeGap] record.
func ParseGapNote(b []byte) (GapNote, error) {
	d := dcbor.NewDecoder(b)
	var n GapNote
	if d.Map() != 4 {
		d.Key(0)
	}
	d.Key(1)
	n.Records = d.Uint()
	d.Key(2)
	n.Events = d.Uint()
	d.Key(3)
	n.From = d.Int()
	d.Key(4)
	n.To = d.Int()
	if err := d.Done(); err != nil {
		return n, fmt.Errorf("reading a gap's note: %w", err)
	}
	return n, nil
}
