// Package toolcheck audits a tool server (Model Context Protocol): servers don't converse, so what their tools declare,
// schema and annotations, is held against what calls of them do under observation.
package toolcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/mcp"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// Options say how tools are called.
type Options struct {
	Timeout       time.Duration
	Seed          uint64
	Window        func(name string) // begins the window of one call; nil: nobody records
	Settle        time.Duration     // after a call
	ReadOnlyAlone bool              // call only tools that say they are read-only
	Progress      func(done, total int, tool string)
}

// Report is what came of it.
type Report struct {
	Server     string          `json:"server"`
	Version    string          `json:"version"`
	Gate       string          `json:"gate"`
	Reasons    []string        `json:"reasons"`
	Recorded   bool            `json:"kernel_record"`
	Tools      []Tool          `json:"tools"`
	Deviations []mcp.Deviation `json:"deviations,omitempty"`
	Changed    bool            `json:"tools_changed"` // the list of tools was another one after the calls
}

// Tool is one tool's verdict.
type Tool struct {
	Name        string         `json:"name"`
	ReadOnly    *bool          `json:"read_only,omitempty"`
	Destructive *bool          `json:"destructive,omitempty"`
	OpenWorld   *bool          `json:"open_world,omitempty"`
	Args        any            `json:"args,omitempty"`
	Called      bool           `json:"called"`
	Answer      string         `json:"answer,omitempty"` // its beginning
	Failed      bool           `json:"failed,omitempty"`
	Effects     []trust.Effect `json:"effects,omitempty"`
	Verdict     string         `json:"verdict"` // fine, violation, inconclusive
	Reason      string         `json:"reason"`
}

// Declares sums the annotations up.
func (t *Tool) Declares() string {
	var out []string
	for name, v := range map[string]*bool{"read-only": t.ReadOnly, "destructive": t.Destructive, "open world": t.OpenWorld} {
		if v != nil {
			if *v {
				out = append(out, name)
			} else {
				out = append(out, "not "+name)
			}
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Run lists the server's tools and calls each once, with arguments made from its schema.
func Run(ctx context.Context, target mcp.Target, o Options) (*Report, error) {
	s, err := mcp.Connect(ctx, target)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{Server: d.Name, Version: d.Version, Deviations: d.Deviations, Recorded: o.Window != nil}
	for i, t := range d.Tools {
		v := Tool{Name: t.Name, ReadOnly: t.ReadOnly, Destructive: t.Destructive, OpenWorld: t.OpenWorld}
		if o.Progress != nil {
			o.Progress(i+1, len(d.Tools), t.Name)
		}
		switch {
		case o.ReadOnlyAlone && (t.ReadOnly == nil || !*t.ReadOnly):
			v.Verdict, v.Reason = score.Unsettled, "not called: it doesn't say that it is read-only (--allow-side-effects calls it)"
		default:
			if err := v.call(ctx, s, t.Schema, o); err != nil {
				return nil, err
			}
		}
		r.Tools = append(r.Tools, v)
	}
	after, err := s.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the tools again: %w", err)
	}
	r.Changed = string(after.Raw) != string(d.Raw)
	return r, nil
}

func (v *Tool) call(ctx context.Context, s *mcp.Session, schema json.RawMessage, o Options) error {
	args, err := Arguments(schema, o.Seed)
	if err != nil {
		v.Verdict, v.Reason = score.Unsettled, "no arguments could be made from its schema: "+err.Error()
		return nil
	}
	v.Args, v.Called = args, true
	if o.Window != nil {
		o.Window(v.Name)
	}
	cctx, cancel := context.WithTimeout(ctx, o.Timeout)
	res, err := s.Call(cctx, v.Name, args)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		v.Failed, v.Answer = true, err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			v.Answer = "no answer within " + o.Timeout.String()
		}
	} else {
		v.Failed, v.Answer = res.Failed, res.Text
	}
	if len(v.Answer) > 500 {
		v.Answer = strings.ToValidUTF8(v.Answer[:500], "") + "…"
	}
	time.Sleep(o.Settle)
	return nil
}

// Judge holds the tools against what the kernel saw in their windows (nil: there was no record), and decides the gate.
func (r *Report) Judge(effects []trust.Effects) {
	byTool, idle := map[string]*trust.Effects{}, map[string]bool{}
	for i := range effects {
		byTool[effects[i].Probe] = &effects[i]
		if effects[i].Probe == "" {
			for _, f := range effects[i].Effects {
				idle[f.Kind+"\x00"+f.Name] = true
			}
		}
	}
	var convicted, doubts []string
	for i := range r.Tools {
		t := &r.Tools[i]
		if !t.Called {
			doubts = append(doubts, t.Name+": "+t.Reason)
			continue
		}
		x := byTool[t.Name]
		if x != nil {
			for _, f := range x.Effects {
				if !idle[f.Kind+"\x00"+f.Name] {
					t.Effects = append(t.Effects, f)
				}
			}
		}
		t.judge(x)
		switch t.Verdict {
		case score.Violation:
			convicted = append(convicted, t.Name+": "+t.Reason)
		case score.Unsettled:
			doubts = append(doubts, t.Name+": "+t.Reason)
		}
	}
	if r.Changed {
		convicted = append(convicted, "the list of tools was another one after they were called")
	}
	switch {
	case len(convicted) > 0:
		r.Gate, r.Reasons = score.Fail, convicted
	case len(doubts) > 0:
		r.Gate, r.Reasons = score.Inconclusive, doubts
	case len(r.Tools) == 0:
		r.Gate, r.Reasons = score.Inconclusive, []string{"the server has no tools"}
	default:
		r.Gate, r.Reasons = score.Pass, []string{fmt.Sprintf("all %d tools did what they declare", len(r.Tools))}
	}
}

func (t *Tool) judge(x *trust.Effects) {
	is := func(p *bool, v bool) bool { return p != nil && *p == v }
	var changed, deleted, hosts []string
	scratch := false
	for _, f := range t.Effects {
		switch f.Kind {
		case "file":
			changed = append(changed, f.Name)
		case "delete":
			deleted = append(deleted, f.Name)
		case "host":
			hosts = append(hosts, f.Name)
		case Scratch:
			scratch = true
		}
	}
	switch {
	case is(t.ReadOnly, true) && len(changed)+len(deleted) > 0:
		t.Verdict, t.Reason = score.Violation, "it says that it is read-only, and changed "+strings.Join(append(changed, deleted...), ", ")
	case is(t.OpenWorld, false) && len(hosts) > 0:
		t.Verdict, t.Reason = score.Violation, "it says that its world is closed, and contacted "+strings.Join(hosts, ", ")
	case is(t.Destructive, false) && len(deleted) > 0:
		t.Verdict, t.Reason = score.Violation, "it says that it is not destructive, and removed "+strings.Join(deleted, ", ")
	case x == nil:
		t.Verdict, t.Reason = score.Unsettled, "there is no kernel record of the call: run the server with -- COMMAND"
	case !x.Complete:
		t.Verdict, t.Reason = score.Unsettled, "the kernel's record is incomplete: "+x.Why
	case t.Failed:
		t.Verdict, t.Reason = score.Unsettled, "the call failed: "+t.Answer
	default:
		t.Verdict, t.Reason = score.Fine, "nothing that contradicts its annotations"
		if scratch {
			t.Reason += "; files in /tmp and /var/tmp are taken for scratch"
		}
	}
}

// Scratch is the kind of the effect that convicts nobody: a temporary file was changed or removed. Runtimes make such
// files by themselves, and nobody means them by "read-only".
const Scratch = "scratch"

// ExampleFile is the path that tools are given for a file.
const ExampleFile = "/tmp/example.txt"

// maxDepth bounds how deep arguments are made.
const maxDepth = 8

// Arguments makes arguments for a tool from its JSON schema: required properties only, with defaults, first choices and
// plain examples. The same schema and seed give the same arguments.
func Arguments(schema json.RawMessage, seed uint64) (any, error) {
	if len(schema) == 0 {
		return map[string]any{}, nil
	}
	var s map[string]any
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("its schema is no object: %w", err)
	}
	g := &maker{root: s, n: seed}
	v, err := g.value("", s, 0)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(map[string]any); !ok {
		return map[string]any{}, nil
	}
	return v, nil
}

type maker struct {
	root map[string]any
	n    uint64
}

func (g *maker) value(name string, s map[string]any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("its schema is nested too deep")
	}
	if ref, ok := s["$ref"].(string); ok {
		t, err := g.resolve(ref)
		if err != nil {
			return nil, err
		}
		return g.value(name, t, depth+1)
	}
	for _, k := range []string{"const", "default"} {
		if v, ok := s[k]; ok && v != nil {
			return v, nil
		}
	}
	for _, k := range []string{"examples", "enum"} {
		if l, ok := s[k].([]any); ok && len(l) > 0 {
			return l[0], nil
		}
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		if l, ok := s[k].([]any); ok && len(l) > 0 {
			if m, ok := l[0].(map[string]any); ok {
				return g.value(name, m, depth+1)
			}
		}
	}
	switch t := kind(s); t {
	case "object":
		return g.object(s, depth)
	case "array":
		items, ok := s["items"].(map[string]any)
		if n, _ := s["minItems"].(float64); !ok || n < 1 && depth > 1 {
			return []any{}, nil
		}
		v, err := g.value(name, items, depth+1)
		return []any{v}, err
	case "integer", "number":
		n := 1.0
		if v, ok := s["minimum"].(float64); ok {
			n = max(n, v)
		}
		if v, ok := s["maximum"].(float64); ok {
			n = min(n, v)
		}
		return n, nil
	case "boolean":
		return false, nil
	case "null":
		return nil, nil
	}
	return text(name, s), nil
}

func kind(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, e := range t {
			if n, ok := e.(string); ok && n != "null" {
				return n
			}
		}
	}
	if s["properties"] != nil {
		return "object"
	}
	return "string"
}

func (g *maker) object(s map[string]any, depth int) (any, error) {
	out := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	req, _ := s["required"].([]any)
	for _, r := range req {
		name, ok := r.(string)
		if !ok {
			continue
		}
		p, ok := props[name].(map[string]any)
		if !ok {
			p = map[string]any{}
		}
		v, err := g.value(name, p, depth+1)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (g *maker) resolve(ref string) (map[string]any, error) {
	rest, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, fmt.Errorf("its schema refers to %s, outside itself", ref)
	}
	at := g.root
	for _, part := range strings.Split(rest, "/") {
		next, ok := at[part].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("its schema refers to %s, which isn't there", ref)
		}
		at = next
	}
	return at, nil
}

// text is a plain text for a property, by its format or name.
func text(name string, s map[string]any) string {
	f, _ := s["format"].(string)
	low := strings.ToLower(name)
	v := "example"
	switch {
	case f == "uri" || f == "url" || strings.Contains(low, "url") || strings.Contains(low, "uri"):
		v = "https://example.com/"
	case f == "date":
		v = "2026-01-02"
	case f == "date-time":
		v = "2026-01-02T03:04:05Z"
	case f == "email" || strings.Contains(low, "email"):
		v = "someone@example.com"
	case strings.Contains(low, "path") || strings.Contains(low, "file"):
		v = ExampleFile
	case strings.Contains(low, "dir"):
		v = "/tmp"
	case strings.Contains(low, "city") || strings.Contains(low, "location"):
		v = "Oslo"
	}
	if n, ok := s["minLength"].(float64); ok && n < 10_000 {
		for len(v) < int(n) {
			v += "x"
		}
	}
	if n, ok := s["maxLength"].(float64); ok && n >= 0 && len(v) > int(n) {
		v = v[:int(n)]
	}
	return v
}
