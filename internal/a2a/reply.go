package a2a

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The states of a task, in one spelling.
const (
	StateSubmitted     = "submitted"
	StateWorking       = "working"
	StateCompleted     = "completed"
	StateFailed        = "failed"
	StateCanceled      = "canceled"
	StateRejected      = "rejected"
	StateInputRequired = "input-required"
	StateAuthRequired  = "auth-required"
)

// Reply is what came back for one message, whichever version and way it came.
type Reply struct {
	Text    string // everything that the agent said in this turn, in order
	State   string // of the task; "" where the agent answered with a message
	Context string // contextId, to go on with
	Task    string // taskId
	Data    []DataPart
	Events  int // how many results came: more than one is a stream
}

// Waiting tells whether the task goes on by itself: its result must be asked for.
func (r *Reply) Waiting() bool { return r.State == StateSubmitted || r.State == StateWorking }

// DataPart is structured content of a reply.
type DataPart struct {
	Data, Metadata map[string]any
}

// ToolCall is a tool call that a reply shows in a data part.
type ToolCall struct {
	ID, Tool, Args string
	Failed         bool
	Rule           string // which convention it follows
}

// ToolCalls reads the tool calls out of the data parts: those of Gemini CLI's server, of Google's ADK, and parts that
// simply say tool, tool_name or function.
func (r *Reply) ToolCalls() []ToolCall {
	var out []ToolCall
	at := map[string]int{}
	for _, p := range r.Data {
		c, ok := toolCall(p)
		if !ok {
			continue
		}
		if i, seen := at[c.ID]; c.ID != "" && seen {
			out[i].Failed = out[i].Failed || c.Failed
			continue
		}
		at[c.ID] = len(out)
		out = append(out, c)
	}
	return out
}

func toolCall(p DataPart) (ToolCall, bool) {
	text := func(m map[string]any, k string) string { s, _ := m[k].(string); return s }
	args := func(v any) string {
		if v == nil {
			return ""
		}
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(b)
	}
	if req, ok := p.Data["request"].(map[string]any); ok && text(req, "name") != "" {
		s := text(p.Data, "status")
		return ToolCall{text(req, "callId"), text(req, "name"), args(req["args"]), s == "error" || s == "cancelled", "data.request.name"}, true
	}
	for _, k := range []string{"adk_type", "type"} {
		if t := text(p.Metadata, k); (t == "function_call" || t == "tool_call") && text(p.Data, "name") != "" {
			return ToolCall{text(p.Data, "id"), text(p.Data, "name"), args(p.Data["args"]), false, "metadata." + k}, true
		}
	}
	for _, k := range []string{"tool", "tool_name", "toolName", "function"} {
		name := text(p.Data, k)
		if m, ok := p.Data[k].(map[string]any); ok {
			name = text(m, "name")
		}
		if name != "" {
			a := p.Data["args"]
			if a == nil {
				a = p.Data["arguments"]
			}
			return ToolCall{text(p.Data, "id"), name, args(a), p.Data["error"] != nil, "data." + k}, true
		}
	}
	return ToolCall{}, false
}

// RPCError is an error that the agent's protocol layer answered with.
type RPCError struct {
	Code    int
	Message string
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("the agent answered with error %d: %s", e.Code, e.Message)
}

// builder puts a reply together from the results that come.
type builder struct {
	sent  string // our messageId
	r     Reply
	parts []segment
}

type segment struct {
	id   string // artifact or message it belongs to; "": none
	text string
}

var errShape = errors.New("the result is neither a task nor a message nor an update")

// add takes one result: a JSON-RPC response, a bare result, or a stream response.
func (b *builder) add(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("the result is no JSON: %w", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("the result is %s: %w", kindOf(v), errShape)
	}
	if e, ok := m["error"].(map[string]any); ok && m["result"] == nil {
		code, _ := e["code"].(float64)
		msg, _ := e["message"].(string)
		return &RPCError{int(code), msg}
	}
	if _, rpc := m["jsonrpc"]; rpc || m["result"] != nil {
		inner, ok := m["result"].(map[string]any)
		if !ok {
			return fmt.Errorf("the response has no result: %w", errShape)
		}
		m = inner
	}
	b.r.Events++
	return b.result(m)
}

func (b *builder) result(m map[string]any) error {
	for _, k := range []string{"task", "message", "msg", "statusUpdate", "status_update", "artifactUpdate", "artifact_update"} {
		if inner, ok := m[k].(map[string]any); ok && m["kind"] == nil && m["parts"] == nil && m["status"] == nil {
			return b.result(inner)
		}
	}
	str := func(keys ...string) string {
		for _, k := range keys {
			if s, ok := m[k].(string); ok && s != "" {
				return s
			}
		}
		return ""
	}
	if v := str("contextId", "context_id", "sessionId"); v != "" {
		b.r.Context = v
	}
	_, parts := m["parts"].([]any)
	_, content := m["content"].([]any)
	status, hasStatus := m["status"].(map[string]any)
	switch artifact, isArtifact := m["artifact"].(map[string]any); {
	case isArtifact:
		if v := str("taskId", "task_id"); v != "" {
			b.r.Task = v
		}
		app, _ := m["append"].(bool)
		b.artifact(artifact, app)
	case hasStatus:
		if v := str("taskId", "task_id"); v != "" {
			b.r.Task = v
		} else if v := str("id"); v != "" {
			b.r.Task = v
		}
		b.task(m, status)
	case parts || content:
		if v := str("taskId", "task_id"); v != "" {
			b.r.Task = v
		}
		b.message(m)
	default:
		return errShape
	}
	return nil
}

// task takes a task or the update of its status.
func (b *builder) task(m, status map[string]any) {
	if s, ok := status["state"].(string); ok {
		b.r.State = stateName(s)
	}
	// Of the history only what came after our own message is of this turn.
	if history, ok := m["history"].([]any); ok {
		from := 0
		for i, h := range history {
			if hm, ok := h.(map[string]any); ok && isUser(hm) {
				from = i + 1
			}
		}
		for _, h := range history[from:] {
			if hm, ok := h.(map[string]any); ok {
				b.message(hm)
			}
		}
	}
	if list, ok := m["artifacts"].([]any); ok {
		for _, a := range list {
			if am, ok := a.(map[string]any); ok {
				b.artifact(am, false)
			}
		}
	}
	for _, k := range []string{"message", "update"} {
		if sm, ok := status[k].(map[string]any); ok {
			b.message(sm)
		}
	}
}

func isUser(m map[string]any) bool {
	r, _ := m["role"].(string)
	return strings.EqualFold(r, "user") || r == "ROLE_USER"
}

func (b *builder) message(m map[string]any) {
	if isUser(m) {
		return
	}
	id, ok := m["messageId"].(string)
	if !ok {
		id, _ = m["message_id"].(string)
	}
	b.put("m:"+id, b.read(m), false)
}

func (b *builder) artifact(m map[string]any, appended bool) {
	id, ok := m["artifactId"].(string)
	if !ok {
		id, _ = m["artifact_id"].(string)
	}
	if n, ok := m["index"].(float64); ok && id == "" {
		id = fmt.Sprint(n)
	}
	b.put("a:"+id, b.read(m), appended)
}

// put keeps a text under its id: what comes again under it replaces or continues what was there.
func (b *builder) put(id, text string, appended bool) {
	if text == "" {
		return
	}
	for i := len(b.parts) - 1; i >= 0; i-- {
		p := &b.parts[i]
		same := p.id == id && len(id) > 2
		switch {
		case same && appended:
			p.text += text
			return
		case same && strings.Contains(text, p.text): // a later, fuller form
			p.text = text
			return
		case p.text == text: // servers repeat the last message in status and history
			return
		}
	}
	b.parts = append(b.parts, segment{id, text})
}

// read takes the parts of a message or artifact: their text, and data parts.
func (b *builder) read(m map[string]any) string {
	list, ok := m["parts"].([]any)
	if !ok {
		list, _ = m["content"].([]any)
	}
	var text strings.Builder
	for _, e := range list {
		p, ok := e.(map[string]any)
		if !ok {
			continue
		}
		if root, ok := p["root"].(map[string]any); ok { // a Python SDK's own wrapper
			p = root
		}
		if t, ok := p["text"].(string); ok {
			text.WriteString(t)
		}
		if d, ok := p["data"].(map[string]any); ok {
			if inner, ok := d["data"].(map[string]any); ok && len(d) == 1 {
				d = inner
			}
			meta, _ := p["metadata"].(map[string]any)
			b.r.Data = append(b.r.Data, DataPart{d, meta})
		}
	}
	return text.String()
}

func (b *builder) reply() *Reply {
	texts := make([]string, len(b.parts))
	for i, p := range b.parts {
		texts[i] = p.text
	}
	b.r.Text = strings.Join(texts, "\n")
	return &b.r
}

// stateName turns TASK_STATE_INPUT_REQUIRED and input-required into one.
func stateName(s string) string {
	s = strings.ToLower(strings.TrimPrefix(s, "TASK_STATE_"))
	s = strings.ReplaceAll(s, "_", "-")
	if s == "cancelled" {
		return StateCanceled
	}
	return s
}
