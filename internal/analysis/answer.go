package analysis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Answer is what a command says.
type Answer struct {
	Version  string            `json:"version,omitempty"`
	Findings []bodycam.Finding `json:"findings"`
}

const (
	maxText   = 4000 // bytes of a finding's title, explanation, resource
	maxEvents = 1000 // listed with a finding
)

// ParseAnswer reads findings strictly: unknown members, missing ones, and events that the run doesn't have are
// errors. events is the number of the run's events; 0 where it isn't known.
func ParseAnswer(b []byte, events uint64) (*Answer, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, errors.New("it wrote nothing: an analysis that finds nothing writes []")
	}
	var a Answer
	var into any = &a
	if b[0] == '[' {
		into = &a.Findings
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return nil, fmt.Errorf("reading its findings: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows its findings")
	}
	if len(a.Findings) > maxFindings {
		return nil, fmt.Errorf("%d findings are more than %d", len(a.Findings), maxFindings)
	}
	if len(a.Version) > 200 {
		return nil, errors.New("its version is longer than 200 bytes")
	}
	for i := range a.Findings {
		if err := check(&a.Findings[i], events); err != nil {
			return nil, fmt.Errorf("findings[%d]: %w", i, err)
		}
	}
	return &a, nil
}

func check(f *bodycam.Finding, events uint64) error {
	switch {
	case f.Rule == "":
		return errors.New("it has no rule")
	case f.Title == "":
		return errors.New("it has no title")
	case len(f.Title) > maxText || len(f.Detail) > maxText || len(f.Resource) > maxText || len(f.Rule) > 200:
		return fmt.Errorf("a text of it is longer than %d bytes", maxText)
	case len(f.Events) > maxEvents:
		return fmt.Errorf("it rests on more than %d events: name the first, and count them", maxEvents)
	case f.Severity < bodycam.Info || f.Severity > bodycam.Critical:
		return errors.New("severity: want info, low, medium, high or critical")
	case f.Suppressed != "":
		return errors.New("suppressed: only a kind or task can suppress a finding")
	}
	switch f.Verdict {
	case "", "pass", "fail", "undecidable":
	default:
		return fmt.Errorf("verdict %q: want pass, fail or undecidable", f.Verdict)
	}
	for _, seq := range f.Events {
		if seq == 0 || events > 0 && seq > events {
			return fmt.Errorf("event %d: the run has events 1 to %d", seq, events)
		}
	}
	if f.Row != nil && *f.Row < 0 {
		return fmt.Errorf("row %d: rows count from 0; leave it out where there is none", *f.Row)
	}
	f.Title, f.Detail = bodycam.Printable(f.Title), bodycam.Printable(f.Detail)
	f.Count = max(f.Count, 1)
	return nil
}
