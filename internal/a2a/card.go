package a2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// MaxCard bounds an agent card, in bytes.
const MaxCard = 4 << 20

// The protocol bindings.
const (
	JSONRPC = "JSONRPC"
	GRPC    = "GRPC"
	REST    = "HTTP+JSON"
)

// Card is an agent card in one form, whichever version it was written in.
type Card struct {
	Form         string // the version whose form it has: "0.2", "0.3" or "1.0"
	Name         string
	Description  string
	Version      string // of the agent
	Interfaces   []Interface
	Streaming    bool
	Extended     bool // there is a card for callers that are known
	Skills       []Skill
	Signatures   []Signature
	Extensions   []string // URIs
	NeedsAuth    bool     // it declares security requirements
	Raw          []byte   // as served
	Deviations   []Deviation
	unsignedForm map[string]any // what a signature covers: the card without signatures
}

// Interface is one way to reach the agent.
type Interface struct {
	URL     string // absolute where it could be made so
	Binding string
	Version string // of the protocol: "0.3", "1.0"; "": not said
	Tenant  string
}

// Skill is one declared skill.
type Skill struct {
	ID, Name, Description string
	Tags, Examples        []string
	Input, Output         []string // media types
}

// Signature is one JWS of a card, detached.
type Signature struct {
	Protected string // base64url
	Signature string // base64url
}

// Deviation is one departure from the specification.
type Deviation struct {
	Place    string           `json:"place"` // JSON path: skills[2].tags
	Rule     string           `json:"rule"`  // where the specification says so
	What     string           `json:"what"`
	Severity bodycam.Severity `json:"severity"`
}

func (d Deviation) String() string { return d.Place + ": " + d.What + " (" + d.Rule + ")" }

// The places in the specification that deviations name.
const (
	ruleCard      = "A2A 1.0 §4.4.1 AgentCard"
	ruleInterface = "A2A 1.0 §4.4.6 AgentInterface"
	ruleSkill     = "A2A 1.0 §4.4.5 AgentSkill"
	ruleSign      = "A2A 1.0 §8.4 Agent Card Signing"
	ruleURL03     = "A2A 0.3 §5.5 AgentCard.url"
	ruleDiscovery = "A2A 1.0 §8.2 Discovery"
	ruleJSON      = "RFC 8259"
)

// ParseCard reads a card. at is where it was served: relative URLs are resolved against it; nil where that isn't known.
// An error means that it is no card at all.
func ParseCard(data []byte, at *url.URL) (*Card, error) {
	if len(data) > MaxCard {
		return nil, fmt.Errorf("the agent card has %d bytes, more than %d", len(data), MaxCard)
	}
	c := &Card{Raw: data}
	trimmed := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(trimmed) != len(data) {
		c.deviate("$", ruleJSON, "it begins with a byte order mark", bodycam.Low)
	}
	d := json.NewDecoder(bytes.NewReader(trimmed))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("the agent card is no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		c.deviate("$", ruleJSON, "something follows the card", bodycam.Low)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the agent card is %s, not an object", kindOf(v))
	}
	if inner, ok := m["agentCard"].(map[string]any); ok && m["name"] == nil {
		c.deviate("$", ruleCard, "the card is wrapped in agentCard", bodycam.Low)
		m = inner
	}
	c.unsignedForm = m
	o := object{c: c, m: m, at: ""}
	c.Name = o.text("name", ruleCard, true)
	c.Description = o.text("description", ruleCard, true)
	c.Version = o.text("version", ruleCard, true)
	c.form(m)
	c.interfaces(o, at)
	caps := o.object("capabilities", ruleCard, true)
	c.Streaming = caps.flag("streaming", ruleCard)
	c.Extended = caps.flag("extendedAgentCard", ruleCard) || o.flag("supportsAuthenticatedExtendedCard", ruleCard) || o.flag("supportsExtendedAgentCard", ruleCard)
	for _, e := range caps.objects("extensions", ruleCard, false) {
		c.Extensions = append(c.Extensions, e.text("uri", ruleCard, true))
	}
	for _, k := range []string{"security", "securityRequirements"} {
		if l, ok := m[k].([]any); ok && len(l) > 0 {
			c.NeedsAuth = true
		}
	}
	for _, k := range []string{"defaultInputModes", "defaultOutputModes"} {
		o.texts(k, ruleCard, true)
	}
	c.skills(o)
	for _, s := range o.objects("signatures", ruleSign, false) {
		c.Signatures = append(c.Signatures, Signature{s.text("protected", ruleSign, true), s.text("signature", ruleSign, true)})
	}
	if c.Name == "" && len(c.Skills) == 0 && len(c.Interfaces) == 0 {
		return nil, errors.New("the document names no agent, no skill and no interface: it is no agent card")
	}
	return c, nil
}

// form tells the version whose form the card has.
func (c *Card) form(m map[string]any) {
	_, ifaces := m["supportedInterfaces"]
	_, preferred := m["preferredTransport"]
	_, more := m["additionalInterfaces"]
	pv, _ := m["protocolVersion"].(string)
	switch {
	case ifaces:
		c.Form = "1.0"
	case preferred || more || strings.HasPrefix(pv, "0.3"):
		c.Form = "0.3"
	default:
		c.Form = "0.2"
	}
}

func (c *Card) deviate(place, rule, what string, s bodycam.Severity) {
	c.Deviations = append(c.Deviations, Deviation{place, rule, what, s})
}

// interfaces reads the endpoints of either form, the preferred first.
func (c *Card) interfaces(o object, at *url.URL) {
	for _, i := range o.objects("supportedInterfaces", ruleInterface, false) {
		c.addInterface(i, at, i.text("url", ruleInterface, true), i.text("protocolBinding", ruleInterface, true),
			i.text("protocolVersion", ruleInterface, true), i.text("tenant", ruleInterface, false))
	}
	if len(c.Interfaces) > 0 && o.m["url"] == nil {
		return
	}
	pv := o.text("protocolVersion", ruleCard, false)
	if u := o.text("url", ruleURL03, c.Form != "1.0"); u != "" {
		binding := o.text("preferredTransport", ruleURL03, false) // absent means JSONRPC
		if binding == "" {
			binding = JSONRPC
		}
		c.addInterface(o, at, u, binding, pv, "")
	}
	for _, i := range o.objects("additionalInterfaces", ruleURL03, false) {
		c.addInterface(i, at, i.text("url", ruleURL03, true), i.text("transport", ruleURL03, true), pv, "")
	}
	if len(c.Interfaces) == 0 {
		c.deviate("$", ruleInterface, "it names no usable endpoint", bodycam.Medium)
	}
}

func (c *Card) addInterface(o object, at *url.URL, raw, binding, version, tenant string) {
	if raw == "" {
		return
	}
	b := strings.ToUpper(strings.TrimSpace(binding))
	switch b {
	case JSONRPC, GRPC, REST:
	case "JSON-RPC", "JSON-RPC 2.0", "HTTP+JSONRPC", "":
		o.note("protocolBinding", ruleInterface, fmt.Sprintf("binding %q is taken for JSONRPC", binding), bodycam.Low)
		b = JSONRPC
	case "REST", "HTTP", "HTTP_JSON", "HTTPJSON":
		o.note("protocolBinding", ruleInterface, fmt.Sprintf("binding %q is taken for HTTP+JSON", binding), bodycam.Low)
		b = REST
	}
	if host, port, err := net.SplitHostPort(strings.TrimSpace(raw)); b == GRPC && err == nil { // gRPC's endpoints need no scheme
		if at != nil && (isAnyHost(host) || isLoopback(host) && !isLoopback(at.Hostname())) {
			o.note("url", ruleInterface, fmt.Sprintf("the card names %s, which no caller can reach; %s is used", raw, at.Hostname()), bodycam.Medium)
			host = at.Hostname()
		}
		c.keep(Interface{URL: net.JoinHostPort(host, port), Binding: b, Version: version, Tenant: tenant})
		return
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		o.note("url", ruleInterface, fmt.Sprintf("%q is no URL", bodycam.Escape(raw)), bodycam.Medium)
		return
	}
	if b != GRPC && !u.IsAbs() {
		if at == nil {
			o.note("url", ruleInterface, "the URL is relative, and nothing is known to resolve it against", bodycam.Medium)
			return
		}
		o.note("url", ruleInterface, "the URL is relative", bodycam.Low)
		u = at.ResolveReference(u)
	}
	if b != GRPC && u.Scheme != "http" && u.Scheme != "https" {
		o.note("url", ruleInterface, fmt.Sprintf("scheme %q of %s can't be used", bodycam.Escape(u.Scheme), b), bodycam.Medium)
		return
	}
	if at != nil && b != GRPC {
		if isAnyHost(u.Hostname()) || isLoopback(u.Hostname()) && !isLoopback(at.Hostname()) {
			o.note("url", ruleInterface, fmt.Sprintf("the card names %s, which no caller can reach; %s is used", u.Host, at.Host), bodycam.Medium)
			u.Host, u.Scheme = at.Host, at.Scheme
		}
	}
	i := Interface{URL: u.String(), Binding: b, Version: version, Tenant: tenant}
	if b == GRPC && u.Host == "" {
		i.URL = raw
	}
	c.keep(i)
}

func (c *Card) keep(i Interface) {
	if !slices.Contains(c.Interfaces, i) {
		c.Interfaces = append(c.Interfaces, i)
	}
}

func isAnyHost(h string) bool { return h == "0.0.0.0" || h == "::" || h == "" }

func isLoopback(h string) bool { return h == "localhost" || strings.HasPrefix(h, "127.") || h == "::1" }

func (c *Card) skills(o object) {
	seen := map[string]bool{}
	list := o.objects("skills", ruleCard, true)
	if o.m["skills"] != nil && len(list) == 0 {
		c.deviate("skills", ruleCard, "no skill is declared", bodycam.Medium)
	}
	for i, s := range list {
		k := Skill{ID: s.text("id", ruleSkill, true), Name: s.text("name", ruleSkill, true), Description: s.text("description", ruleSkill, true),
			Tags: s.texts("tags", ruleSkill, true), Examples: s.texts("examples", ruleSkill, false),
			Input: s.texts("inputModes", ruleSkill, false), Output: s.texts("outputModes", ruleSkill, false)}
		if k.Name == "" {
			k.Name = k.ID
		}
		if k.ID == "" {
			k.ID = k.Name
		}
		if k.ID == "" {
			k.ID = fmt.Sprintf("skill-%d", i+1)
		}
		for id, n := k.ID, 2; seen[k.ID]; n++ {
			if n == 2 {
				s.note("id", ruleSkill, fmt.Sprintf("id %q is not unique", bodycam.Escape(id)), bodycam.Medium)
			}
			k.ID = fmt.Sprintf("%s-%d", id, n)
		}
		seen[k.ID] = true
		c.Skills = append(c.Skills, k)
	}
}

// object reads the members of a JSON object leniently, and notes what is wrong with them.
type object struct {
	c  *Card
	m  map[string]any
	at string
}

func (o object) place(key string) string {
	if o.at == "" {
		return key
	}
	return o.at + "." + key
}

func (o object) note(key, rule, what string, s bodycam.Severity) {
	o.c.deviate(o.place(key), rule, what, s)
}

// missing notes that a required member isn't there or is null.
func (o object) missing(key, rule string, required bool) bool {
	v, there := o.m[key]
	if there && v != nil {
		return false
	}
	switch {
	case required && there:
		o.note(key, rule, "it is null, and required", bodycam.Low)
	case required && o.m != nil:
		o.note(key, rule, "it is missing, and required", bodycam.Low)
	case there:
		o.note(key, rule, "it is null: leave it out instead", bodycam.Info)
	}
	return true
}

func (o object) text(key, rule string, required bool) string {
	if o.missing(key, rule, required) {
		return ""
	}
	switch v := o.m[key].(type) {
	case string:
		if required && strings.TrimSpace(v) == "" {
			o.note(key, rule, "it is empty, and required", bodycam.Low)
		}
		return v
	case json.Number:
		o.note(key, rule, "it is a number, not a text", bodycam.Low)
		return v.String()
	default:
		o.note(key, rule, "it is "+kindOf(v)+", not a text", bodycam.Low)
		return ""
	}
}

func (o object) texts(key, rule string, required bool) []string {
	if o.missing(key, rule, required) {
		return nil
	}
	switch v := o.m[key].(type) {
	case []any:
		var out []string
		for i, e := range v {
			if t, ok := e.(string); ok {
				out = append(out, t)
				continue
			}
			o.note(fmt.Sprintf("%s[%d]", key, i), rule, "it is "+kindOf(e)+", not a text", bodycam.Low)
		}
		return out
	case string:
		o.note(key, rule, "it is one text, not a list", bodycam.Low)
		return []string{v}
	default:
		o.note(key, rule, "it is "+kindOf(v)+", not a list", bodycam.Low)
		return nil
	}
}

func (o object) flag(key, rule string) bool {
	if o.missing(key, rule, false) {
		return false
	}
	switch v := o.m[key].(type) {
	case bool:
		return v
	case string:
		o.note(key, rule, "it is a text, not true or false", bodycam.Low)
		return strings.EqualFold(v, "true")
	default:
		o.note(key, rule, "it is "+kindOf(v)+", not true or false", bodycam.Low)
		return false
	}
}

func (o object) object(key, rule string, required bool) object {
	out := object{c: o.c, at: o.place(key)}
	if o.missing(key, rule, required) {
		return out
	}
	m, ok := o.m[key].(map[string]any)
	if !ok {
		o.note(key, rule, "it is "+kindOf(o.m[key])+", not an object", bodycam.Low)
	}
	out.m = m
	return out
}

func (o object) objects(key, rule string, required bool) []object {
	if o.missing(key, rule, required) {
		return nil
	}
	var list []any
	switch v := o.m[key].(type) {
	case []any:
		list = v
	case map[string]any:
		o.note(key, rule, "it is one object, not a list", bodycam.Low)
		list = []any{v}
	default:
		o.note(key, rule, "it is "+kindOf(v)+", not a list", bodycam.Low)
	}
	var out []object
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", o.place(key), i)
		m, ok := e.(map[string]any)
		if !ok {
			o.c.deviate(at, rule, "it is "+kindOf(e)+", not an object", bodycam.Low)
			continue
		}
		out = append(out, object{c: o.c, m: m, at: at})
	}
	return out
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a text"
	case json.Number, float64:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	}
	return "an object"
}
