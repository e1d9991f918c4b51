package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/approval"
	"github.com/bodycam-dev/bodycam/internal/mirror"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// verification is what `verify` says. The report's verdict covers the copies and the mirror too.
type verification struct {
	*ledger.Report
	Kind      string             `json:"kind"` // run, bundle
	Path      string             `json:"path"`
	Trust     []string           `json:"trust"` // the roots of trust, in words
	Run       *runReport         `json:"run,omitempty"`
	Copies    *copiesReport      `json:"copies,omitempty"`
	Mirror    *mirror.Comparison `json:"mirror,omitempty"`
	Host      *hostNote          `json:"host,omitempty"`
	Anchors   *proof.Judgement   `json:"anchors,omitempty"`
	Disclosed []disclosedItem    `json:"disclosed,omitempty"`

	Delegations *delegation.Judgement `json:"delegations,omitempty"`
	Approvals   []approval.Item       `json:"approvals,omitempty"`
	// Equivocations are proofs that two histories of a log were vouched for.
	Equivocations []keptEquivocation `json:"equivocations,omitempty"`
}

// conclude lets what was compared besides the ledger weigh in.
func (v *verification) conclude() {
	lower := func(s ledger.Status) {
		switch {
		case s == ledger.StatusTampered:
			v.Verdict = ledger.Tampered
		case s == ledger.StatusIncomplete && v.Verdict == ledger.Verified:
			v.Verdict = ledger.Incomplete
		}
	}
	if c := v.Copies; c != nil {
		lower(c.Status)
		if c.missed { // whoever reads the copies must not take the ledger's word for them
			lower(ledger.StatusIncomplete)
		}
	}
	if v.Run != nil {
		lower(v.Run.Status)
	}
	if v.Mirror != nil {
		lower(v.Mirror.Status)
	}
	if v.Host != nil {
		lower(v.Host.Status)
	}
}

func (v *verification) status() error {
	switch v.Verdict {
	case ledger.Verified:
		return nil
	case ledger.Tampered:
		return &statusError{status: ExitGate}
	}
	return &statusError{status: ExitInconclusive}
}

// claimWords say what each claim means.
var claimWords = map[string]string{
	"integrity":  "nothing was changed, added or removed",
	"order":      "records stand in the order they were made",
	"existed_by": "they existed at a time that others vouch for",
	"identity":   "the log is that of whom it says",
	"content":    "what was recorded can be read and is what was sealed",
	"coverage":   "all that was to be recorded is there",
}

func (v *verification) text(s *streams) error {
	var b strings.Builder
	paint := func(st, text string) string {
		code := map[string]string{"verified": "32", "tampered": "31", "incomplete": "33", "unverifiable": "33"}[st]
		if !s.colour || code == "" {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	fmt.Fprintf(&b, "%s  %s\n", paint(string(v.Verdict), strings.ToUpper(string(v.Verdict))), bodycam.Printable(v.Path))
	if f := v.FirstBad; f != nil {
		where := fmt.Sprintf("record %d", f.Seq)
		if !f.Exact {
			where = fmt.Sprintf("at or after record %d", f.Seq)
		}
		fmt.Fprintf(&b, "first bad: %s (epoch %d): %s\n", where, f.Epoch, bodycam.Printable(f.What))
	}
	b.WriteByte('\n')
	line := func(name string, st ledger.Status, words string, reasons, rests []string) {
		fmt.Fprintf(&b, "  %-10s  %s  %s\n", name, paint(string(st), fmt.Sprintf("%-12s", st)), words)
		for _, r := range reasons {
			fmt.Fprintf(&b, "              but: %s\n", bodycam.Printable(r))
		}
		for _, r := range rests {
			fmt.Fprintf(&b, "              rests on %s\n", bodycam.Printable(r))
		}
	}
	v.Claims.Each(func(name string, c *ledger.Claim) {
		line(strings.ReplaceAll(name, "_", " "), c.Status, claimWords[name], c.Reasons, c.RestsOn)
	})
	if r := v.Run; r != nil && r.Status != ledger.StatusUnverifiable {
		line("run", r.Status, "it is "+bodycam.Printable(r.ID)+", as was sealed", r.reasons(), nil)
	} else if r != nil {
		line("run", r.Status, "which run it is", r.reasons(), nil)
	}
	if c := v.Copies; c != nil {
		line("copies", c.Status, "the run's working copies are what was sealed", c.reasons(), nil)
	}
	if m := v.Mirror; m != nil {
		line("mirror", m.Status, "the copy elsewhere is the same", m.Reasons, []string{m.Where})
	}
	if h := v.Host; h != nil {
		line("host log", h.Status, "this machine's log of runs knows it so", h.Reasons, nil)
	}
	if j := v.Anchors; j != nil {
		line("anchors", j.Status, j.Summary(), j.Reasons(), nil)
	}
	var convictions []*proof.Conviction
	for _, k := range v.Equivocations {
		convictions = append(convictions, k.Conviction)
	}
	for i, k := range v.Equivocations {
		told, more := proof.Alike(convictions, i)
		if told {
			continue
		}
		st := map[ledger.Status]ledger.Status{ledger.StatusVerified: ledger.StatusTampered}[k.Status]
		if st == "" {
			st = k.Status
		}
		var reasons []string
		if more > 0 {
			reasons = []string{fmt.Sprintf("there are %d more proofs of the same", more)}
		}
		line("equivocation", st, k.line(), reasons, nil)
	}
	if v.Delegations != nil {
		writeDelegations(&b, v.Delegations)
	}
	if len(v.Approvals) > 0 {
		writeApprovals(&b, v.Approvals)
	}
	fmt.Fprintf(&b, "\n  root of trust: %s\n", bodycam.Printable(strings.Join(v.Trust, "; ")))
	fmt.Fprintf(&b, "  log %s by %s: %s, %s, %s in batches", short(v.Log), bodycam.Printable(v.Recorder), count(v.Epochs, "epoch"), count(v.Records, "record"), count(v.Events, "event"))
	if v.Erased > 0 {
		fmt.Fprintf(&b, ", %s erased", count(v.Erased, "payload"))
	}
	b.WriteByte('\n')
	for _, d := range v.Disclosed {
		d.text(&b)
	}
	_, err := s.out.Write([]byte(b.String()))
	return err
}

// count is a number with its noun.
func count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func short(id string) string {
	if len(id) > 16 {
		return id[:16] + "…"
	}
	if id == "" {
		return "(none)"
	}
	return id
}

func (c *copiesReport) reasons() []string {
	const most = 10
	var out []string
	if c.Why != "" {
		out = append(out, c.Why)
	}
	for i, f := range c.Faults {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(c.Faults)-most))
			break
		}
		why := f.Name + " " + f.Why
		if f.Derived {
			why += " (derived: it may have been made again)"
		}
		out = append(out, why)
	}
	if c.Status == ledger.StatusTampered {
		out = append(out, "the ledger is the truth: bodycam restore writes them again, and keeps what is there aside")
	}
	return out
}

// disclosedItem is one thing that a bundle discloses.
type disclosedItem struct {
	Record uint64          `json:"record"`
	Index  *uint64         `json:"index,omitempty"`
	Type   string          `json:"type"`
	Kind   string          `json:"kind"`
	Value  json.RawMessage `json:"value,omitempty"` // nil: disclosed without its payload
	line   string
}

// disclosed decodes what a bundle opens. It is somebody else's bytes: what can't be decoded is shown as a string.
func disclosed(b *ledger.Bundle) []disclosedItem {
	out := []disclosedItem{}
	for i := range b.Items {
		it := &b.Items[i]
		rec := &it.Record
		d := disclosedItem{Record: rec.Seq, Type: store.TypeName(rec.Type), Kind: rec.Kind}
		for j := range it.Events {
			e := d
			e.Index = &it.Events[j].Index
			e.Value, e.line = disclosedEvent(rec.Type, it.Events[j].Event)
			out = append(out, e)
		}
		if it.Events != nil {
			continue
		}
		if it.Opened {
			doc, err := store.PayloadJSON(rec.Type, it.Payload, false)
			if err != nil || doc == nil {
				doc = it.Payload
			}
			d.Value = rawJSON(doc)
			d.line = bodycam.Printable(string(doc[:min(len(doc), 4<<10)]))
		} else {
			d.line = "(without its payload)"
		}
		out = append(out, d)
	}
	return out
}

func disclosedEvent(t ledger.Type, raw []byte) (json.RawMessage, string) {
	var e bodycam.Event
	if t == store.RecordEvents && bodycam.DecodeEvent(raw, &e) == nil {
		return e.AppendJSON(nil), string(eventLine(nil, &e))
	}
	return rawJSON(raw), bodycam.Printable(string(raw))
}

// rawJSON is bytes as JSON: as they are where they are JSON, else as an escaped string.
func rawJSON(b []byte) json.RawMessage {
	if json.Valid(b) {
		return b
	}
	s, err := json.Marshal(bodycam.Escape(string(b)))
	if err != nil {
		return json.RawMessage("null")
	}
	return s
}

func (d *disclosedItem) text(b *strings.Builder) {
	at := fmt.Sprintf("record %d", d.Record)
	if d.Index != nil {
		at += fmt.Sprintf(".%d", *d.Index)
	}
	fmt.Fprintf(b, "\n  %s  %s %s\n    %s\n", at, d.Type, bodycam.Printable(d.Kind), d.line)
}
