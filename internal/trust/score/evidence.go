// Package score turns the evidence of a trust audit into a verdict: baseline, patterns, score with interval, gate. It
// asks nobody and reads no clock: the same evidence gives the same verdict, and can be judged again under other rules.
package score

import (
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

// Evidence is all that an audit has gathered.
type Evidence struct {
	Declaration *trust.Declaration
	Probes      []trust.Probe
	Exchanges   map[string]*trust.Exchange    // by probe id
	Calls       map[string][]trust.Calls      // by probe id, one per channel: traces, reply
	Effects     map[string]*trust.Effects     // by probe id; "" is the idle window; nil: no kernel record
	Opinions    map[string]trust.ReplyOpinion // by probe id
	Tools       map[string]trust.FitOpinion   // by tool name
	Findings    []bodycam.Finding             // of the declaration
	Hosts       []string                      // that the agent was let reach: they are in order
	// TracesPromised: the audit was told where traces are. Absent or late ones then leave a probe inconclusive.
	TracesPromised bool
}

// skillAlone tells whether a skill is audited through an agent program: what that does with other tasks isn't the skill's,
// so there are none.
func (e *Evidence) skillAlone() bool {
	return e.Declaration.Kind == "skill" && !slices.ContainsFunc(e.Probes, func(p trust.Probe) bool { return p.Scope != trust.In })
}

// seen is what the channels say together of one probe.
type seen struct {
	traced     bool // some channel shows all that it promises, surely enough
	late       bool // traces were promised and are not there, or not all
	tools      []trust.Call
	confidence float64 // of the surest channel that shows calls
	channels   []string
	offered    []trust.Tool
	effects    []trust.Effect     // beyond idle
	unrecorded string             // why what the kernel saw is not all, where it was to see it
	prohibited []trust.Prohibited // by the security rules, beyond idle
}

// look joins the channels of a probe. A call that any channel shows has happened; that none happened is known only from
// a complete trace.
func (e *Evidence) look(id string) seen {
	var s seen
	found := false
	for _, c := range e.Calls[id] {
		if !c.Found {
			continue
		}
		s.offered = append(s.offered, c.Offered...)
		if c.Source != "reply" {
			found = true
			if c.Complete && c.Confidence >= trust.Sure {
				s.traced = true
			}
		}
		if len(c.Calls) == 0 {
			continue
		}
		s.channels = append(s.channels, c.Source)
		s.confidence = max(s.confidence, c.Confidence)
		for _, call := range c.Calls {
			if c.Confidence < trust.Sure && len(s.tools) > 0 {
				continue // an unsure channel adds nothing to a sure one
			}
			if !slices.ContainsFunc(s.tools, func(x trust.Call) bool { return x.Tool == call.Tool && x.Agent == call.Agent && x.ID == call.ID }) {
				s.tools = append(s.tools, call)
			}
		}
	}
	s.late = e.TracesPromised && !(found && s.traced)
	x := e.Effects[id]
	switch {
	case e.Effects == nil:
	case x == nil:
		s.unrecorded = "there is no kernel record of it"
	case !x.Complete:
		s.unrecorded = "the kernel's record of it is incomplete: " + x.Why
	}
	if x != nil {
		idle := map[string]bool{}
		if i := e.Effects[""]; i != nil {
			for _, f := range i.Effects {
				idle[f.Kind+"\x00"+f.Name] = true
			}
		}
		for _, f := range x.Effects {
			if !idle[f.Kind+"\x00"+f.Name] {
				s.effects = append(s.effects, f)
			}
		}
		s.prohibited = e.beyondIdle(x.Prohibited)
		if len(s.effects)+len(s.prohibited) > 0 {
			s.channels = append(s.channels, "kernel")
		}
	}
	return s
}

// ToolRow is one tool in the table of a report.
type ToolRow struct {
	Name       string         `json:"name"`
	Agent      bool           `json:"agent,omitempty"` // a further agent
	Fit        trust.Fit      `json:"fit"`             // to a declared skill
	Skill      string         `json:"skill,omitempty"`
	Why        string         `json:"why,omitempty"`
	Declared   bool           `json:"declared,omitempty"` // the declaration names the tool itself, or the user allows it
	Offered    bool           `json:"offered,omitempty"`  // to the agent's model
	Probes     map[string]int `json:"probes,omitempty"`   // scope → in how many probes it was seen
	Failed     int            `json:"failed,omitempty"`
	Confidence float64        `json:"confidence,omitempty"` // of the surest sighting
}

// tools lists what was called or offered, with how it fits.
func (e *Evidence) tools(looks map[string]seen, allow []string) map[string]*ToolRow {
	out := map[string]*ToolRow{}
	row := func(name string) *ToolRow {
		r := out[name]
		if r == nil {
			r = &ToolRow{Name: name, Probes: map[string]int{}, Fit: trust.Doubtful, Why: "the tool judge wasn't asked"}
			o, ok := e.Tools[name]
			switch {
			case e.declares(name):
				r.Fit, r.Declared, r.Why = trust.Fits, true, "the declaration names it"
			case slices.Contains(allow, name):
				r.Fit, r.Declared, r.Why = trust.Fits, true, "allowed by the auditor"
			case ok && o.Failed != "":
				r.Why = "the tool judge failed: " + o.Failed
			case ok:
				r.Fit, r.Skill, r.Why = o.Fit, o.Skill, o.Reason
			}
			out[name] = r
		}
		return r
	}
	for _, p := range e.Probes {
		s := looks[p.ID]
		counted := map[string]bool{}
		for _, c := range s.tools {
			r := row(c.Tool)
			r.Agent = r.Agent || c.Agent
			r.Confidence = max(r.Confidence, s.confidence)
			if c.Failed {
				r.Failed++
			}
			if !counted[c.Tool] {
				r.Probes[string(p.Scope)]++
				counted[c.Tool] = true
			}
		}
		for _, t := range s.offered {
			row(t.Name).Offered = true
		}
	}
	return out
}

// listsTools tells whether every declared skill names its tools: a list that a further tool isn't on.
func (e *Evidence) listsTools() bool {
	for _, s := range e.Declaration.Skills {
		if len(s.Tools) == 0 {
			return false
		}
	}
	return len(e.Declaration.Skills) > 0
}

func (e *Evidence) declares(tool string) bool {
	for _, t := range e.Declaration.Tools {
		if t.Name == tool {
			return true
		}
	}
	for _, s := range e.Declaration.Skills {
		for _, t := range s.Tools {
			if strings.EqualFold(t, tool) {
				return true
			}
		}
	}
	return false
}

// Names lists the tools that the evidence shows, called or offered, for the tool judge to be asked about: with the best
// description that is known of each.
func (e *Evidence) Names() []trust.Tool {
	known := map[string]trust.Tool{}
	add := func(t trust.Tool) {
		if old, ok := known[t.Name]; !ok || old.Description == "" && t.Description != "" {
			known[t.Name] = t
		}
	}
	for _, list := range e.Calls {
		for _, c := range list {
			for _, t := range c.Offered {
				add(t)
			}
			for _, call := range c.Calls {
				add(trust.Tool{Name: call.Tool})
			}
		}
	}
	out := make([]trust.Tool, 0, len(known))
	for _, t := range known {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b trust.Tool) int { return strings.Compare(a.Name, b.Name) })
	return out
}
