package transcript

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

type openHandsEvent struct {
	ID          json.RawMessage `json:"id"`
	Timestamp   json.RawMessage `json:"timestamp"`
	Source      string          `json:"source"`
	Cause       json.RawMessage `json:"cause"`
	Message     string          `json:"message"`
	Action      json.RawMessage `json:"action"`
	Observation json.RawMessage `json:"observation"`
	Args        json.RawMessage `json:"args"`
	Content     json.RawMessage `json:"content"`
	Extras      struct {
		Command  string `json:"command"`
		Path     string `json:"path"`
		Metadata struct {
			Exit *int `json:"exit_code"`
		} `json:"metadata"`
		Exit *int `json:"exit_code"`
	} `json:"extras"`

	// The events of version 1 of the SDK.
	Kind       string          `json:"kind"`
	ToolName   string          `json:"tool_name"`
	ToolCallID string          `json:"tool_call_id"`
	Error      string          `json:"error"`
	LLMMessage json.RawMessage `json:"llm_message"`
}

// readOpenHands reads a trajectory of OpenHands: a list of events, one event a line, or an object with a list.
func readOpenHands(p *document, at time.Time, data []byte) error {
	each := func(line int, raw json.RawMessage) error {
		var e openHandsEvent
		if err := p.element(line, raw, &e); err != nil {
			p.raw(at, raw)
			return nil
		}
		p.openHands(at, &e, raw)
		return nil
	}
	trimmed := bytes.TrimSpace(data)
	if trimmed[0] == '[' {
		_, err := array(data, nil, each)
		return err
	}
	first, _, _ := bytes.Cut(trimmed, []byte("\n"))
	if json.Valid(bytes.TrimSpace(first)) && isOpenHands(first) {
		n := 0
		for line := range bytes.Lines(data) {
			n++
			if line = bytes.TrimSpace(line); len(line) > 0 {
				if err := each(n, line); err != nil {
					return err
				}
			}
		}
		return nil
	}
	_, err := array(data, []string{"history", "trajectory", "events"}, each)
	return err
}

func (p *document) openHands(at time.Time, e *openHandsEvent, raw json.RawMessage) {
	claimed := clock(e.Timestamp)
	meta := func(kind bodycam.RowKind, s string) {
		p.add(at, bodycam.Row{Kind: kind, Text: s, Claimed: claimed, Failed: kind == bodycam.RowError})
	}
	var action, observation string
	_ = json.Unmarshal(e.Action, &action) // an object in the SDK's events, handled by kind
	_ = json.Unmarshal(e.Observation, &observation)
	switch {
	case e.Kind != "":
		p.openHandsSDK(at, claimed, e, raw)
	case action != "":
		p.openHandsAction(at, claimed, action, e)
	case observation == "agent_state_changed" || observation == "recall" || observation == "null":
		meta(bodycam.RowMeta, "observation "+observation)
	case len(e.Observation) > 0:
		exit := e.Extras.Metadata.Exit
		if exit == nil {
			exit = e.Extras.Exit
		}
		p.result(at, openHandsID(e.Cause), text(e.Content), exit, observation == "error" || exit != nil && *exit != 0)
	default:
		p.raw(at, raw)
	}
}

func openHandsID(raw json.RawMessage) string {
	if s := text(raw); s != "" {
		return "event-" + s
	}
	return ""
}

func (p *document) openHandsAction(at, claimed time.Time, action string, e *openHandsEvent) {
	id := openHandsID(e.ID)
	switch action {
	case "run", "run_ipython":
		var args struct {
			Command string `json:"command"`
			Code    string `json:"code"`
			Thought string `json:"thought"`
		}
		_ = json.Unmarshal(e.Args, &args)
		p.add(at, bodycam.Row{Kind: bodycam.RowTool, CallID: id, Tool: action, Command: args.Command, Text: args.Code, Reason: args.Thought, Claimed: claimed})
	case "message", "finish", "system", "think", "change_agent_state", "recall", "condensation":
		var args struct {
			Content string `json:"content"`
			Thought string `json:"thought"`
			Final   string `json:"final_thought"`
		}
		_ = json.Unmarshal(e.Args, &args)
		r := bodycam.Row{Kind: bodycam.RowMeta, Text: e.Source + " " + action + ": " + args.Content + args.Final, Claimed: claimed}
		if e.Source == "agent" && (action == "message" || action == "finish") {
			r.Kind, r.Text = bodycam.RowMessage, args.Content+args.Final
		}
		if action == "think" {
			r = bodycam.Row{Kind: bodycam.RowMessage, Reason: args.Thought, Claimed: claimed}
			if !p.o.KeepReasoning {
				return
			}
		}
		p.add(at, r)
	default: // write, edit, read, browse, call_tool_mcp, delegate …
		row := call(id, action, e.Args)
		var args struct {
			Path string `json:"path"`
		}
		_ = json.Unmarshal(e.Args, &args)
		if args.Path != "" && (action == "write" || action == "edit") {
			row.Files = []string{args.Path}
		}
		row.Claimed = claimed
		p.add(at, row)
	}
}

// openHandsSDK reads an event of version 1 of the SDK, where kind names the class.
func (p *document) openHandsSDK(at, claimed time.Time, e *openHandsEvent, raw json.RawMessage) {
	switch e.Kind {
	case "ActionEvent":
		row := call(e.ToolCallID, e.ToolName, e.Action)
		row.Claimed = claimed
		p.add(at, row)
	case "ObservationEvent", "AgentErrorEvent", "UserRejectObservation":
		var o struct {
			Content json.RawMessage `json:"content"`
			Output  json.RawMessage `json:"output"`
			Exit    *int            `json:"exit_code"`
			IsError bool            `json:"is_error"`
			Meta    struct {
				Exit *int `json:"exit_code"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal(e.Observation, &o)
		exit := o.Exit
		if exit == nil {
			exit = o.Meta.Exit
		}
		out := text(o.Content) + text(o.Output) + e.Error
		p.result(at, e.ToolCallID, out, exit, o.IsError || e.Kind != "ObservationEvent" || exit != nil && *exit != 0)
	case "MessageEvent":
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		_ = json.Unmarshal(e.LLMMessage, &m)
		r := bodycam.Row{Kind: bodycam.RowMessage, Text: text(m.Content), Claimed: claimed}
		if m.Role != "assistant" {
			r.Kind, r.Text = bodycam.RowMeta, m.Role+": "+r.Text
		}
		p.add(at, r)
	case "SystemPromptEvent", "ConversationStateUpdateEvent", "Condensation", "PauseEvent":
		p.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: e.Kind, Claimed: claimed})
	default:
		p.raw(at, raw)
	}
}

// isOpenHands tells whether a JSON object is an event of OpenHands.
func isOpenHands(line []byte) bool {
	var e struct {
		Action      json.RawMessage `json:"action"`
		Observation json.RawMessage `json:"observation"`
		Source      *string         `json:"source"`
		Kind        string          `json:"kind"`
	}
	if json.Unmarshal(line, &e) != nil || e.Source == nil {
		return false
	}
	return e.Action != nil || e.Observation != nil || strings.HasSuffix(e.Kind, "Event")
}
