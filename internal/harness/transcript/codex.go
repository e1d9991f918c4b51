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

// codexExec reads what `codex exec --json` prints.
type codexExec struct{ list }

type codexItem struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Command  string          `json:"command"`
	Output   string          `json:"aggregated_output"`
	Exit     *int            `json:"exit_code"`
	Status   string          `json:"status"`
	Text     string          `json:"text"`
	Message  string          `json:"message"`
	Server   string          `json:"server"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"arguments"`
	Result   json.RawMessage `json:"result"`
	Error    json.RawMessage `json:"error"`
	Query    string          `json:"query"`
	Changes  []codexChange   `json:"changes"`
	TodoList json.RawMessage `json:"items"`
}

type codexChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

func (p *codexExec) Line(at time.Time, line []byte) error {
	p.line++
	if blank(line) {
		return nil
	}
	var ev struct {
		Type    string          `json:"type"`
		Thread  string          `json:"thread_id"`
		Item    *codexItem      `json:"item"`
		Usage   json.RawMessage `json:"usage"`
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if err := p.decode(line, &ev); err != nil {
		p.raw(at, line)
		return err
	}
	switch ev.Type {
	case "thread.started":
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: strings.TrimSpace(ev.Type + " " + ev.Thread)})
	case "turn.started", "turn.completed":
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: ev.Type, Args: string(ev.Usage)})
	case "turn.failed", "error":
		msg := ev.Message
		if msg == "" {
			msg = text(ev.Error)
		}
		p.add(at, bodycam.Row{Kind: bodycam.RowError, Text: msg, Failed: true})
	case "item.started", "item.updated", "item.completed":
		if ev.Item == nil {
			p.raw(at, line)
			return fmt.Errorf("line %d: %s has no item", p.line, ev.Type)
		}
		p.item(at, ev.Item, ev.Type == "item.completed", line)
	default:
		p.raw(at, line)
	}
	return nil
}

func (p *codexExec) item(at time.Time, it *codexItem, done bool, line []byte) {
	i, known := p.calls[it.ID]
	if !known || it.ID == "" {
		row := bodycam.Row{Kind: bodycam.RowTool, CallID: it.ID, Tool: it.Type}
		switch it.Type {
		case "command_execution":
			row.Command = bodycam.Unwrap(it.Command)
			if row.Command != it.Command {
				row.Args = jsonOf(map[string]string{"command": it.Command})
			}
		case "file_change":
			row.Args = jsonOf(it.Changes)
		case "mcp_tool_call", "collab_tool_call":
			row.Tool, row.Args = strings.TrimPrefix(it.Server+"."+it.Tool, "."), string(it.Args)
		case "web_search":
			row.Args = jsonOf(map[string]string{"query": it.Query})
		case "todo_list":
			row.Kind = bodycam.RowPlan
		case "agent_message":
			row.Kind, row.Text, row.Tool = bodycam.RowMessage, it.Text, ""
		case "error":
			row.Kind, row.Text, row.Tool, row.Failed = bodycam.RowError, it.Message, "", true
		case "reasoning":
			if !p.o.KeepReasoning {
				return
			}
			row.Kind, row.Reason, row.Tool = bodycam.RowMessage, it.Text, ""
		default:
			if done {
				p.raw(at, line)
			}
			return
		}
		if i = p.add(at, row); p.overflow > 0 {
			return
		}
	}
	r := &p.rows[i]
	if len(it.Changes) > 0 {
		r.Files = nil
		for _, c := range it.Changes {
			if len(r.Files) < 1000 {
				r.Files = append(r.Files, p.keep(c.Path, 4096, &r.Cut))
			}
		}
	}
	if r.Kind == bodycam.RowPlan {
		r.Text = p.keep(string(it.TodoList), p.o.MaxText, &r.Cut)
	}
	if !done {
		return
	}
	out := it.Output
	if out == "" && len(it.Result) > 0 && string(it.Result) != "null" {
		out = resultText(it.Result)
	}
	if out == "" && len(it.Error) > 0 && string(it.Error) != "null" {
		out = text(it.Error)
	}
	p.finish(at, i, out, it.Exit, r.Failed || it.Status == "failed" || it.Status == "declined")
}

// resultText reads an MCP result: its content parts where it has some, else the JSON.
func resultText(raw json.RawMessage) string {
	var r struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &r) == nil && len(r.Content) > 0 {
		return text(r.Content)
	}
	return text(raw)
}

func (p *codexExec) Finish(time.Time) []bodycam.Row { return p.rows }

// codexRollout reads codex's own session file.
type codexRollout struct{ list }

type rolloutItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments json.RawMessage `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	CallID    string          `json:"call_id"`
	Output    json.RawMessage `json:"output"`
	Action    json.RawMessage `json:"action"`
	Summary   json.RawMessage `json:"summary"`
	ID        string          `json:"id"`
	CLI       string          `json:"cli_version"`
	Status    string          `json:"status"`
	Message   string          `json:"message"`
	Text      string          `json:"text"`
}

func (p *codexRollout) Line(at time.Time, line []byte) error {
	p.line++
	if blank(line) {
		return nil
	}
	var ev struct {
		Timestamp json.RawMessage `json:"timestamp"`
		Type      string          `json:"type"`
		Payload   json.RawMessage `json:"payload"`
	}
	if err := p.decode(line, &ev); err != nil {
		p.raw(at, line)
		return err
	}
	var it rolloutItem
	payload := ev.Payload
	if len(payload) == 0 { // files of 2025 have the item itself on the line
		payload = line
	}
	raised := p.raised
	if err := json.Unmarshal(payload, &it); err != nil {
		p.raw(at, line)
		return fmt.Errorf("line %d: %s: %w", p.line, ev.Type, err)
	}
	p.raised = raised
	claimed := clock(ev.Timestamp)
	switch ev.Type {
	case "session_meta":
		p.row(at, claimed, bodycam.Row{Kind: bodycam.RowMeta, Text: strings.TrimSpace("session " + it.ID + " codex " + it.CLI)})
	case "turn_context", "world_state", "token_usage_record":
		p.row(at, claimed, bodycam.Row{Kind: bodycam.RowMeta, Text: ev.Type})
	case "compacted":
		p.row(at, claimed, bodycam.Row{Kind: bodycam.RowMeta, Text: "compacted: " + it.Message})
	case "event_msg":
		p.event(at, claimed, &it)
	case "response_item", "":
		if !p.responseItem(at, claimed, &it) {
			p.raw(at, line)
		}
	default:
		if !p.responseItem(at, claimed, &it) {
			p.raw(at, line)
		}
	}
	return nil
}

func (p *codexRollout) row(at, claimed time.Time, r bodycam.Row) int {
	r.Claimed = claimed
	return p.add(at, r)
}

// event reads codex's account of what it showed; most of it repeats response items.
func (p *codexRollout) event(at, claimed time.Time, it *rolloutItem) {
	switch it.Type {
	case "agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break":
	case "error", "stream_error", "turn_aborted":
		p.row(at, claimed, bodycam.Row{Kind: bodycam.RowError, Text: strings.TrimSpace(it.Type + " " + it.Message), Failed: true})
	default:
		p.row(at, claimed, bodycam.Row{Kind: bodycam.RowMeta, Text: "event " + it.Type})
	}
}

func (p *codexRollout) responseItem(at, claimed time.Time, it *rolloutItem) bool {
	name := it.Name
	if it.Namespace != "" {
		name = it.Namespace + "." + name
	}
	switch it.Type {
	case "message":
		r := bodycam.Row{Kind: bodycam.RowMessage, Text: text(it.Content)}
		if it.Role != "assistant" {
			r.Kind, r.Text = bodycam.RowMeta, it.Role+": "+r.Text
		}
		p.row(at, claimed, r)
	case "reasoning":
		if p.o.KeepReasoning {
			if s := text(it.Summary) + text(it.Content); s != "" {
				p.row(at, claimed, bodycam.Row{Kind: bodycam.RowMessage, Reason: s})
			}
		}
	case "function_call":
		args := it.Arguments
		var inner string // arguments are JSON in a string
		if json.Unmarshal(args, &inner) == nil {
			args = json.RawMessage(inner)
		}
		p.row(at, claimed, call(it.CallID, name, args))
	case "custom_tool_call":
		p.row(at, claimed, call(it.CallID, name, it.Input))
	case "local_shell_call":
		p.row(at, claimed, call(it.CallID, "local_shell", it.Action))
	case "web_search_call":
		p.row(at, claimed, bodycam.Row{Kind: bodycam.RowTool, CallID: it.ID, Tool: "web_search", Args: string(it.Action)})
	case "function_call_output", "custom_tool_call_output":
		out, exit, failed := codexOutput(it.Output)
		p.result(at, it.CallID, out, exit, failed)
	default:
		return false
	}
	return true
}

var codexExit = regexp.MustCompile(`(?m)^(?:Process exited with code|Exit code:) (-?\d+)$`)

// codexOutput reads a tool's output: text with a header, or JSON {"output", "metadata":{"exit_code"}}.
func codexOutput(raw json.RawMessage) (out string, exit *int, failed bool) {
	out = text(raw)
	var o struct {
		Output   *string `json:"output"`
		Content  *string `json:"content"`
		Success  *bool   `json:"success"`
		Metadata struct {
			Exit *int `json:"exit_code"`
		} `json:"metadata"`
	}
	if strings.HasPrefix(out, "{") && json.Unmarshal([]byte(out), &o) == nil && (o.Output != nil || o.Content != nil) {
		if o.Output != nil {
			out = *o.Output
		} else {
			out = *o.Content
		}
		exit = o.Metadata.Exit
		failed = o.Success != nil && !*o.Success
	} else {
		header, body, ok := strings.Cut(out, "\nOutput:\n")
		if m := codexExit.FindStringSubmatch(header); m != nil && ok {
			if n, err := strconv.Atoi(m[1]); err == nil {
				exit, out = &n, body
			}
		}
	}
	return out, exit, failed || exit != nil && *exit != 0
}

func (p *codexRollout) Finish(time.Time) []bodycam.Row { return p.rows }

func blank(line []byte) bool {
	return len(strings.TrimSpace(string(line[:min(len(line), 64)]))) == 0 && len(line) <= 64
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
