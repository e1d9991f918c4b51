// Package export writes what a run's ledger holds in the formats of others: an in-toto runtime trace, the records of
// an Agent Audit Trail, OpenTelemetry GenAI spans. The same ledger gives the same bytes. Every form names the ledger
// and its records, so that what it says can be held against them; none of them proves anything by itself.
package export

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
)

// Formats are the formats by name.
var Formats = map[string]func(io.Writer, *Source) error{"in-toto": InToto, "aat": AAT, "otel": OTel}

// Source is a run that is exported.
type Source struct {
	Info    bodycam.Run // as sealed, or run.json of a run that was cut off
	Log     ledger.Hash
	Head    string // root of the last checkpoint, hexadecimal; "" before the first
	Size    uint64 // epochs under it
	Actions []Action
	lr      *ledger.Reader
}

// Action is an action with its record.
type Action struct {
	bodycam.Action
	Record *ledger.ReadRecord
	Raw    []byte // the payload as it was sealed
}

// ErrClosed tells that something of the ledger can't be read, so that an export would pass it over.
var ErrClosed = errors.New("part of the ledger can't be read")

// Open collects what the formats need. The reader must stay open while the source is used. A payload that no key at
// hand opens is an error; one that was erased is left out.
func Open(r *store.Run, lr *ledger.Reader) (*Source, error) {
	gen := lr.Genesis()
	s := &Source{Info: r.Info, Log: gen.ID(), lr: lr}
	note, err := lr.Checkpoint()
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	if note != nil {
		s.Head, s.Size = hex.EncodeToString(note.Root[:]), note.Size
	}
	for rec, err := range lr.Records(0) {
		if err != nil {
			return nil, fmt.Errorf("reading the ledger: %w", err)
		}
		if rec.Type != store.RecordAction && rec.Type != store.RecordRun {
			continue
		}
		b, err := lr.Payload(rec)
		if errors.Is(err, ledger.ErrErased) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrClosed, rec.Seq, err)
		}
		if err := s.take(rec, b); err != nil {
			return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
	}
	return s, nil
}

func (s *Source) take(rec *ledger.ReadRecord, b []byte) error {
	if rec.Type == store.RecordRun {
		s.Info = bodycam.Run{}
		return json.Unmarshal(b, &s.Info)
	}
	a, err := payload.ParseAction(b)
	if err != nil {
		return err
	}
	s.Actions = append(s.Actions, Action{Action: *a, Record: rec, Raw: b})
	return nil
}

// events calls f with every event that wasn't erased, with its process filled in.
func (s *Source) events(f func(*bodycam.Event)) error {
	batches := store.NewBatches(s.lr)
	var procs bodycam.Processes
	for rec, err := range s.lr.Records(0) {
		if err != nil {
			return fmt.Errorf("reading the ledger: %w", err)
		}
		if rec.Type != store.RecordEvents {
			continue
		}
		events, err := batches.Events(rec)
		if err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrClosed, rec.Seq, err)
		}
		for i, b := range events {
			if b == nil {
				continue
			}
			var e bodycam.Event
			if err := bodycam.DecodeEvent(b, &e); err != nil {
				return fmt.Errorf("record %d, event %d: %w", rec.Seq, i, err)
			}
			procs.Observe(&e)
			f(&e)
		}
	}
	return nil
}

func (s *Source) logID() string { return hex.EncodeToString(s.Log[:]) }

// agent names the agent.
func (s *Source) agent() (name, version string) {
	name, version = s.Info.Agent.Harness, s.Info.Agent.Version
	if name == "" {
		name = "agent"
	}
	if version == "" {
		version = "unknown"
	}
	return name, version
}

// times are when an action began and ended, by the transcript, or when it was recorded.
func (a *Action) times() (from, to int64) {
	from, to = a.Execution.Started, a.Execution.Ended
	if from <= 0 {
		from = a.Record.Wall
	}
	return from, max(from, to)
}

// failed tells whether the call failed, and why.
func (a *Action) failed() (bool, string) {
	switch {
	case a.denied():
		return true, "denied"
	case a.Effects.Error != "":
		return true, a.Effects.Error
	case a.Effects.Exit != nil && *a.Effects.Exit != 0:
		return true, fmt.Sprintf("exit status %d", *a.Effects.Exit)
	}
	return false, ""
}

func (a *Action) denied() bool { return a.verdict("deny") }

func (a *Action) verdict(v string) bool {
	for _, p := range a.Policy {
		if p.Verdict == v {
			return true
		}
	}
	return false
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
