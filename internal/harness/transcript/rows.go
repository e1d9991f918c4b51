package transcript

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// RowLine is one line of bodycam's own transcript format, which the harnesses that live in bodycam print. Event is
// "start" for a tool call that begins, "end" for the result of the call with the same CallID, "row" for a row that
// is complete in itself. The other fields are those of [bodycam.Row]; Index, Arrived, Ended, Source and Line are the
// reader's and not written.
type RowLine struct {
	Event   string           `json:"event"`
	Kind    bodycam.RowKind  `json:"kind,omitempty"`
	CallID  string           `json:"call_id,omitempty"`
	Tool    string           `json:"tool,omitempty"`
	Command string           `json:"command,omitempty"`
	Args    string           `json:"args,omitempty"`
	Text    string           `json:"text,omitempty"`
	Files   []string         `json:"files,omitempty"`
	Output  string           `json:"output,omitempty"`
	Cut     bool             `json:"cut,omitempty"`
	Exit    *int             `json:"exit,omitempty"`
	Failed  bool             `json:"failed,omitempty"`
	Reason  string           `json:"reasoning,omitempty"`
	Claimed *json.RawMessage `json:"claimed,omitempty"`
}

// rowReader reads RowLines.
type rowReader struct{ list }

func (p *rowReader) Line(at time.Time, line []byte) error {
	p.line++
	if blank(line) {
		return nil
	}
	var ev RowLine
	if err := p.decode(line, &ev); err != nil {
		p.raw(at, line)
		return err
	}
	row := bodycam.Row{Kind: ev.Kind, CallID: ev.CallID, Tool: ev.Tool, Command: ev.Command, Args: ev.Args, Text: ev.Text,
		Files: ev.Files, Output: ev.Output, Cut: ev.Cut, Exit: ev.Exit, Failed: ev.Failed, Reason: ev.Reason}
	if ev.Claimed != nil {
		row.Claimed = clock(*ev.Claimed)
	}
	switch row.Kind {
	case bodycam.RowTool, bodycam.RowMessage, bodycam.RowPlan, bodycam.RowError, bodycam.RowMeta:
	default:
		row.Kind = bodycam.RowMeta
	}
	switch ev.Event {
	case "start", "row":
		// Line prints bytes as bodycam.Escape does; here they become bytes again.
		for _, s := range []*string{&row.Command, &row.Args, &row.Text, &row.Output, &row.Reason} {
			*s = bodycam.Unescape(*s)
		}
		p.add(at, row)
	case "end":
		p.result(at, ev.CallID, bodycam.Unescape(ev.Output), ev.Exit, ev.Failed)
		if i, ok := p.calls[ev.CallID]; ok {
			p.rows[i].Cut = p.rows[i].Cut || ev.Cut
			if ev.Files != nil {
				p.rows[i].Files = ev.Files[:min(len(ev.Files), 1000)]
			}
		}
	default:
		p.raw(at, line)
		return fmt.Errorf("line %d: unknown event %q", p.line, clip(ev.Event, 40))
	}
	return nil
}

func (p *rowReader) Finish(time.Time) []bodycam.Row { return p.rows }

// lines keeps every line of an output that is no transcript.
type lines struct{ list }

func (p *lines) Line(at time.Time, line []byte) error {
	p.line++
	if !blank(line) {
		p.raw(at, line)
	}
	return nil
}

func (p *lines) Finish(time.Time) []bodycam.Row { return p.rows }
