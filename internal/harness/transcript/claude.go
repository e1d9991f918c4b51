package transcript

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// claude reads Claude Code's stream-json, and its session files, which have the same messages with a clock.
type claude struct{ list }

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

func (p *claude) Line(at time.Time, line []byte) error {
	p.line++
	if blank(line) {
		return nil
	}
	var ev struct {
		Type      string          `json:"type"`
		Subtype   string          `json:"subtype"`
		Timestamp json.RawMessage `json:"timestamp"`
		SessionID string          `json:"session_id"`
		Model     string          `json:"model"`
		Version   string          `json:"claude_code_version"`
		IsError   bool            `json:"is_error"`
		Result    string          `json:"result"`
		Usage     json.RawMessage `json:"usage"`
		Summary   string          `json:"summary"`
		Message   struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"message"`
	}
	if err := p.decode(line, &ev); err != nil {
		p.raw(at, line)
		return err
	}
	claimed := clock(ev.Timestamp)
	meta := func(s string) {
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: strings.TrimSpace(s), Claimed: claimed})
	}
	switch ev.Type {
	case "assistant", "user":
		return p.message(at, claimed, ev.Type, ev.Message.Content, line)
	case "result":
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: ev.Result, Failed: ev.IsError, Args: string(ev.Usage), Claimed: claimed})
	case "system":
		meta(strings.Join([]string{"system", ev.Subtype, ev.SessionID, ev.Model, ev.Version}, " "))
	case "summary":
		meta("summary: " + ev.Summary)
	case "file-history-snapshot", "queue-operation", "last-prompt", "permission-mode", "mode":
		meta(ev.Type)
	default:
		p.raw(at, line)
	}
	return nil
}

var claudeExit = regexp.MustCompile(`^(?:Error: )?Exit code (\d+)\b`)

func (p *claude) message(at, claimed time.Time, role string, content json.RawMessage, line []byte) error {
	var blocks []claudeBlock
	if json.Unmarshal(content, &blocks) != nil {
		var s string
		if json.Unmarshal(content, &s) != nil {
			p.raw(at, line)
			return fmt.Errorf("line %d: %s message without content", p.line, role)
		}
		blocks = []claudeBlock{{Type: "text", Text: s}}
	}
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case "text":
			r := bodycam.Row{Kind: bodycam.RowMessage, Text: b.Text, Claimed: claimed}
			if role == "user" {
				r.Kind, r.Text = bodycam.RowMeta, "user: "+b.Text
			}
			p.add(at, r)
		case "thinking", "redacted_thinking":
			if p.o.KeepReasoning && b.Thinking != "" {
				p.add(at, bodycam.Row{Kind: bodycam.RowMessage, Reason: b.Thinking, Claimed: claimed})
			}
		case "tool_use", "server_tool_use":
			r := call(b.ID, b.Name, b.Input)
			if b.Name == "TodoWrite" {
				r.Kind, r.Text = bodycam.RowPlan, r.Args
			}
			r.Claimed = claimed
			i := p.add(at, r)
			if b.ID != "" && r.Kind == bodycam.RowPlan {
				p.calls[clip(p.restore(b.ID), 1<<10)] = i
			}
		case "tool_result":
			out := text(b.Content)
			var exit *int
			if m := claudeExit.FindStringSubmatch(out); m != nil && b.IsError {
				if n, err := strconv.Atoi(m[1]); err == nil {
					exit = &n
				}
			}
			p.result(at, b.ToolUseID, out, exit, b.IsError)
		default:
			p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: role + " block " + b.Type, Claimed: claimed})
		}
	}
	return nil
}

func (p *claude) Finish(time.Time) []bodycam.Row { return p.rows }
