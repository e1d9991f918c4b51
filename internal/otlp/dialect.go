package otlp

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed dialects.yaml
var dialectFile []byte

type sign struct {
	Rule   string `yaml:"rule"`
	Attr   string `yaml:"attr"`
	Value  string `yaml:"value"`
	Unless string `yaml:"unless"` // another attribute that must not be there
}

type dialects struct {
	Tool      []sign   `yaml:"tool"`
	ToolLogs  []string `yaml:"tool_logs"`
	Agent     []sign   `yaml:"agent"`
	Name      []string `yaml:"name"`
	AgentName []string `yaml:"agent_name"`
	CallID    []string `yaml:"call_id"`
	Args      []string `yaml:"args"`
	Session   []string `yaml:"session"`
	Text      []string `yaml:"text"`
	Offered   []string `yaml:"offered"`
	Failed    []sign   `yaml:"failed"`
}

var table = sync.OnceValue(func() *dialects {
	d := new(dialects)
	if err := yaml.UnmarshalWithOptions(dialectFile, d, yaml.Strict()); err != nil {
		panic("otlp: dialects.yaml: " + err.Error()) // it is part of the program; the tests read it
	}
	return d
})

// Call is a tool call, or a call to a further agent, that spans or logs tell of.
type Call struct {
	Tool   string
	ID     string // the call's own, where it has one
	Span   string
	Trace  string
	Args   string
	Failed bool // by the status or any other sign
	Agent  bool // a further agent was called
	At     time.Time
	Rule   string // of the dialect table
}

// Offered is a tool that was offered to a model.
type Offered struct {
	Name, Description string
	Schema            json.RawMessage
}

// Account is what the spans and logs of one conversation say.
type Account struct {
	Calls    []Call
	Offered  []Offered
	Sessions []string
	Texts    []string // inputs: the probe's text should be in one
}

// HasRoot tells whether the root span has come, and so, as it ends last, most likely all others: one without a parent, or
// whose parent is the span that the caller sent along.
func HasRoot(spans []Span, sent string) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return !s.End.IsZero() && (s.Parent == "" || sent != "" && s.Parent == sent) })
}

// Read reads the spans and logs of one trace or conversation.
func Read(spans []Span, logs []Log) Account {
	d := table()
	var a Account
	byID := map[string]*Span{}
	for i := range spans {
		byID[spans[i].ID] = &spans[i]
	}
	seen := map[string]int{} // call id → index in a.Calls
	add := func(c Call) {
		if i, ok := seen[c.ID]; ok && c.ID != "" {
			a.Calls[i].Failed = a.Calls[i].Failed || c.Failed
			return
		}
		if c.ID != "" {
			seen[c.ID] = len(a.Calls)
		}
		a.Calls = append(a.Calls, c)
	}
	for i := range spans {
		s := &spans[i]
		a.collect(d, s.Attrs)
		for _, e := range s.Events {
			a.collect(d, e.Attrs)
		}
		if rule, ok := match(d.Tool, s.Attrs); ok {
			c := Call{Tool: toolName(d, s), ID: first(d.CallID, s.Attrs), Span: s.ID, Trace: s.Trace, Args: first(d.Args, s.Attrs),
				Failed: s.Failed || failed(d, s), At: s.Start, Rule: rule}
			if p := byID[s.Parent]; p != nil && sameTool(d, p, c.Tool) {
				if c.Failed {
					markFailed(a.Calls, p.ID)
				}
				continue // the same call, told of by two layers
			}
			add(c)
		} else if rule, ok := match(d.Agent, s.Attrs); ok && (s.Kind == 3 || hasAgentAbove(d, s, byID)) {
			name := first(d.AgentName, s.Attrs)
			if name == "" {
				name = s.Name
			}
			add(Call{Tool: name, Span: s.ID, Trace: s.Trace, Agent: true, Failed: s.Failed, At: s.Start, Args: first(d.Args, s.Attrs), Rule: rule})
		}
	}
	for i := range logs {
		l := &logs[i]
		a.collect(d, l.Attrs)
		rule, ok := match(d.Tool, l.Attrs)
		if !ok && slices.Contains(d.ToolLogs, l.Name) {
			rule, ok = "log "+l.Name, true
		}
		if ok {
			name := first(d.Name, l.Attrs)
			if name == "" {
				name = l.Name
			}
			add(Call{Tool: name, ID: first(d.CallID, l.Attrs), Trace: l.Trace, Args: first(d.Args, l.Attrs), Failed: match1(d.Failed, l.Attrs), At: l.Time, Rule: rule})
		}
	}
	return a
}

func (a *Account) collect(d *dialects, m map[string]any) {
	if s := first(d.Session, m); s != "" && !slices.Contains(a.Sessions, s) {
		a.Sessions = append(a.Sessions, s)
	}
	for _, k := range d.Text {
		if s := str(m[k]); s != "" && !slices.Contains(a.Texts, s) {
			a.Texts = append(a.Texts, s)
		}
	}
	for _, k := range d.Offered {
		for _, o := range offered(m[k]) {
			if !slices.ContainsFunc(a.Offered, func(x Offered) bool { return x.Name == o.Name }) {
				a.Offered = append(a.Offered, o)
			}
		}
	}
}

// offered reads tool definitions: a list, or a JSON text of one, in the forms of OpenAI, Anthropic and Gemini.
func offered(v any) []Offered {
	if s, ok := v.(string); ok {
		var list any
		if json.Unmarshal([]byte(s), &list) != nil {
			return nil
		}
		v = list
	}
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	var out []Offered
	for _, e := range list {
		if s, ok := e.(string); ok && strings.HasPrefix(s, "{") { // a list of JSON texts
			var m map[string]any
			if json.Unmarshal([]byte(s), &m) == nil {
				e = m
			}
		}
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		if fd, ok := get(m, "functionDeclarations").([]any); ok {
			out = append(out, offered(fd)...)
			continue
		}
		if f, ok := m["function"].(map[string]any); ok {
			m = f
		}
		if f, ok := m["tool.json_schema"].(string); ok { // OpenInference
			out = append(out, offered([]any{f})...)
			continue
		}
		o := Offered{Name: text(m["name"]), Description: text(m["description"])}
		for _, k := range []string{"parameters", "input_schema", "inputSchema"} {
			if m[k] != nil && o.Schema == nil {
				if b, err := json.Marshal(m[k]); err == nil {
					o.Schema = b
				}
			}
		}
		if o.Name != "" {
			out = append(out, o)
		}
	}
	return out
}

func match(signs []sign, m map[string]any) (string, bool) {
	for _, s := range signs {
		v := str(m[s.Attr])
		if v == "" || s.Unless != "" && m[s.Unless] != nil {
			continue
		}
		if s.Value == "" || strings.EqualFold(v, s.Value) {
			return s.Rule, true
		}
	}
	return "", false
}

func match1(signs []sign, m map[string]any) bool { _, ok := match(signs, m); return ok }

func failed(d *dialects, s *Span) bool {
	if match1(d.Failed, s.Attrs) {
		return true
	}
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Name == "exception" })
}

func markFailed(calls []Call, span string) {
	for i := range calls {
		if calls[i].Span == span {
			calls[i].Failed = true
		}
	}
}

// toolName is the tool's name, by attribute or, where frameworks put it there, the span's name.
func toolName(d *dialects, s *Span) string {
	if n := first(d.Name, s.Attrs); n != "" {
		return n
	}
	for _, p := range []string{"execute_tool ", "tools/call ", "tool.", "Tool: "} {
		if rest, ok := strings.CutPrefix(s.Name, p); ok && rest != "" {
			return strings.TrimSuffix(rest, ".tool")
		}
	}
	return strings.TrimSuffix(s.Name, ".tool")
}

func sameTool(d *dialects, p *Span, name string) bool {
	_, ok := match(d.Tool, p.Attrs)
	return ok && toolName(d, p) == name
}

func hasAgentAbove(d *dialects, s *Span, byID map[string]*Span) bool {
	for n := 0; n < 1000; n++ { // a hostile trace may be a ring
		p := byID[s.Parent]
		if p == nil || p == s {
			return false
		}
		if match1(d.Agent, p.Attrs) {
			return true
		}
		s = p
	}
	return false
}

func first(keys []string, m map[string]any) string {
	for _, k := range keys {
		if s := str(m[k]); s != "" {
			return s
		}
	}
	return ""
}

// str is an attribute's value as text. A JSON text that holds a text (MLflow) is that text.
func str(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if len(v) > 1 && v[0] == '"' {
			var inner string
			if json.Unmarshal([]byte(v), &inner) == nil {
				return inner
			}
		}
		return v
	case map[string]any, []any:
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(b)
	}
	return fmt.Sprint(v)
}
