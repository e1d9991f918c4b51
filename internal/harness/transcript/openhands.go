package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// readATIF reads Harbor's Agent Trajectory Interchange Format, versions 1.0 to 1.7.
func readATIF(p *document, at time.Time, data []byte) error { return p.atif(at, data, "", 0) }

type atifStep struct {
	Timestamp json.RawMessage `json:"timestamp"`
	Source    string          `json:"source"`
	Message   json.RawMessage `json:"message"`
	Reasoning string          `json:"reasoning_content"`
	Calls     []struct {
		ID   string          `json:"tool_call_id"`
		Name string          `json:"function_name"`
		Args json.RawMessage `json:"arguments"`
	} `json:"tool_calls"`
	Observation *struct {
		Results []struct {
			Call    *string         `json:"source_call_id"`
			Content json.RawMessage `json:"content"`
			Extra   struct {
				IsError bool `json:"is_error"`
				Exit    *int `json:"exit_code"`
			} `json:"extra"`
		} `json:"results"`
	} `json:"observation"`
}

// atif reads one trajectory; those of subagents are read below it, their calls prefixed so that ids stay apart.
func (p *document) atif(at time.Time, data []byte, prefix string, depth int) error {
	if depth > 8 {
		return fmt.Errorf("subagent trajectories are nested more than 8 deep")
	}
	rest, err := array(data, []string{"steps"}, func(line int, raw json.RawMessage) error {
		var s atifStep
		if depth > 0 {
			line = 0 // counted within the subagent's part only
		}
		if err := p.element(line, raw, &s); err != nil {
			p.raw(at, raw)
			return nil
		}
		p.atifStep(at, &s, prefix)
		return nil
	})
	var subs []json.RawMessage
	if raw := rest["subagent_trajectories"]; err == nil && len(raw) > 0 && json.Unmarshal(raw, &subs) == nil {
		for i, sub := range subs {
			if e := p.atif(at, sub, fmt.Sprintf("%ssub-%d/", prefix, i+1), depth+1); e != nil && err == nil {
				err = e
			}
		}
	}
	return err
}

func (p *document) atifStep(at time.Time, s *atifStep, prefix string) {
	claimed, msg := clock(s.Timestamp), text(s.Message)
	reason := s.Reasoning
	if msg != "" || reason != "" && p.o.KeepReasoning && len(s.Calls) == 0 {
		r := bodycam.Row{Kind: bodycam.RowMessage, Text: msg, Reason: reason, Claimed: claimed}
		if s.Source != "agent" {
			r.Kind, r.Text = bodycam.RowMeta, s.Source+": "+msg
		}
		p.add(at, r)
		reason = ""
	}
	last := ""
	for _, c := range s.Calls {
		args := c.Args
		var inner string
		if json.Unmarshal(args, &inner) == nil {
			args = json.RawMessage(inner)
		}
		last = prefix + c.ID
		row := call(last, c.Name, args)
		row.Command = trimLine(row.Command)
		row.Claimed, row.Reason = claimed, reason
		p.add(at, row)
	}
	if s.Observation == nil {
		return
	}
	for _, r := range s.Observation.Results {
		id := last
		if r.Call != nil {
			id = prefix + *r.Call
		}
		p.result(at, id, text(r.Content), r.Extra.Exit, r.Extra.IsError || r.Extra.Exit != nil && *r.Extra.Exit != 0)
	}
}
