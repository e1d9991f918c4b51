package transcript

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bodycam-dev/bodycam"
)

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
