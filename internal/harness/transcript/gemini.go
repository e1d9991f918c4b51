package transcript

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// gemini reads Gemini CLI's stream-json (and that of its relatives, which have the same events).
type gemini struct {
	list
	delta int // row of the message that is being streamed, plus 1
}

func (p *gemini) Line(at time.Time, line []byte) error {
	p.line++
	if blank(line) {
		return nil
	}
	var ev struct {
		Type      string          `json:"type"`
		Timestamp json.RawMessage `json:"timestamp"`
		SessionID string          `json:"session_id"`
		Model     string          `json:"model"`
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		Delta     bool            `json:"delta"`
		ToolName  string          `json:"tool_name"`
		ToolID    string          `json:"tool_id"`
		Params    json.RawMessage `json:"parameters"`
		Status    string          `json:"status"`
		Output    json.RawMessage `json:"output"`
		Error     json.RawMessage `json:"error"`
		Message   string          `json:"message"`
		Stats     json.RawMessage `json:"stats"`
	}
	if err := p.decode(line, &ev); err != nil {
		p.raw(at, line)
		return err
	}
	claimed := clock(ev.Timestamp)
	if ev.Type == "message" && ev.Role == "assistant" && ev.Delta && p.delta > 0 {
		r := &p.rows[p.delta-1]
		r.Text += p.keep(text(ev.Content), p.o.MaxText-len(r.Text), &r.Cut)
		r.Ended = at
		return nil
	}
	p.delta = 0
	switch ev.Type {
	case "init":
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: strings.TrimSpace("init " + ev.SessionID + " " + ev.Model), Claimed: claimed})
	case "message":
		r := bodycam.Row{Kind: bodycam.RowMessage, Text: text(ev.Content), Claimed: claimed}
		if ev.Role != "assistant" {
			r.Kind, r.Text = bodycam.RowMeta, ev.Role+": "+r.Text
		}
		i := p.add(at, r)
		if ev.Role == "assistant" && ev.Delta && p.overflow == 0 {
			p.delta = i + 1
		}
	case "thought":
		if p.o.KeepReasoning {
			p.add(at, bodycam.Row{Kind: bodycam.RowMessage, Reason: text(ev.Content), Claimed: claimed})
		}
	case "tool_use":
		r := call(ev.ToolID, ev.ToolName, ev.Params)
		r.Claimed = claimed
		p.add(at, r)
	case "tool_result":
		out := text(ev.Output)
		if out == "" {
			out = errorText(ev.Error)
		}
		p.result(at, ev.ToolID, out, nil, ev.Status != "success")
	case "error":
		msg := ev.Message
		if msg == "" {
			msg = errorText(ev.Error)
		}
		p.add(at, bodycam.Row{Kind: bodycam.RowError, Text: msg, Failed: true, Claimed: claimed})
	case "result":
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: strings.TrimSpace("result " + ev.Status + " " + errorText(ev.Error)),
			Args: string(ev.Stats), Failed: ev.Status != "success", Claimed: claimed})
	default:
		p.raw(at, line)
	}
	return nil
}

// errorText reads an error object's message.
func errorText(raw json.RawMessage) string {
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &e) == nil && e.Message != "" {
		return e.Message
	}
	return text(raw)
}

func (p *gemini) Finish(time.Time) []bodycam.Row { return p.rows }
