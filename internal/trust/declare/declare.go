// Package declare reads what an agent says it can do, from wherever it says so, into one form.
package declare

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/a2a"
	"github.com/bodycam-dev/bodycam/internal/mcp"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// The kinds of declarations.
const (
	KindA2A      = "a2a"
	KindMCP      = "mcp"
	KindSkill    = "skill"
	KindYAML     = "yaml"
	KindExternal = "external"
)

// Options says what to read and as whom.
type Options struct {
	Target  string   // URL of an agent or card, a file or folder, or a command (MCP, external)
	Kind    string   // "": told from the target
	Command []string // MCP: the server's command; external: the parser, which gets Target as its last argument
	Env     []string // of Command
	HTTP    *http.Client
	Header  http.Header // credentials
	Keys    []a2a.Key   // that card signatures are checked with
	// Variants has the declaration fetched under several versions and callers.
	Variants bool
}

// Result is a declaration with all that was noticed while reading it.
type Result struct {
	Declaration *trust.Declaration
	Raw         []byte
	Findings    []bodycam.Finding
	Variants    []Variant
	Card        *a2a.Card // of an A2A agent
	Signatures  []a2a.SignatureCheck
}

// Variant pins one form in which the declaration was served.
type Variant struct {
	Version string   `json:"version,omitempty"` // A2A-Version that was asked for
	Caller  string   `json:"caller"`            // who asked: known, unknown, browser
	SHA256  string   `json:"sha256,omitempty"`
	Form    string   `json:"form,omitempty"`
	Skills  []string `json:"skills,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	Error   string   `json:"error,omitempty"`
	content string   // normalised skills
	urls    []string
}

// Read reads the declaration.
func Read(ctx context.Context, o Options) (*Result, error) {
	if o.HTTP == nil {
		o.HTTP = &http.Client{Timeout: 30 * time.Second}
	}
	if o.Kind == "" {
		o.Kind = guess(o)
	}
	var r *Result
	var err error
	switch o.Kind {
	case KindA2A:
		r, err = readA2A(ctx, o)
	case KindMCP:
		r, err = readMCP(ctx, o)
	case KindSkill:
		r, err = readSkill(o.Target)
	case KindYAML:
		r, err = readYAML(o.Target)
	case KindExternal:
		r, err = readExternal(ctx, o)
	default:
		return nil, fmt.Errorf("declaration of kind %q: want a2a, mcp, skill, yaml or external", o.Kind)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.Raw)
	r.Declaration.SHA256, r.Declaration.Source = hex.EncodeToString(sum[:]), o.Target
	return r, check(r.Declaration)
}

// check makes sure that an audit has something to hold the agent to.
func check(d *trust.Declaration) error {
	if len(d.Skills) == 0 {
		return fmt.Errorf("the declaration of %q names no skill: there is nothing that the agent could be held to", d.Name)
	}
	seen := map[string]bool{}
	for i, s := range d.Skills {
		if s.ID == "" || seen[s.ID] {
			return fmt.Errorf("skill %d of the declaration has no id of its own (%q)", i+1, s.ID)
		}
		seen[s.ID] = true
	}
	return nil
}

// guess tells the kind of a declaration from its target.
func guess(o Options) string {
	t := o.Target
	switch {
	case len(o.Command) > 0:
		return KindMCP
	case strings.HasPrefix(t, "http://"), strings.HasPrefix(t, "https://"), strings.HasSuffix(t, ".json"):
		return KindA2A
	case strings.HasSuffix(t, ".yaml"), strings.HasSuffix(t, ".yml"):
		return KindYAML
	}
	return KindSkill
}

func deviationFinding(place, rule, what string, s bodycam.Severity) bodycam.Finding {
	return bodycam.Finding{Analysis: "trust", Rule: "declaration-form", Class: "declaration", Severity: s, Count: 1,
		Title: bodycam.Escape(place + ": " + what), Detail: rule}
}

func readA2A(ctx context.Context, o Options) (*Result, error) {
	r := &Result{}
	if !strings.HasPrefix(o.Target, "http://") && !strings.HasPrefix(o.Target, "https://") {
		raw, err := os.ReadFile(o.Target)
		if err != nil {
			return nil, fmt.Errorf("reading the agent card: %w", err)
		}
		if r.Card, err = a2a.ParseCard(raw, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Target, err)
		}
		o.Variants = false
	} else {
		f, err := a2a.Discover(ctx, o.HTTP, o.Target, o.Header)
		if err != nil {
			return nil, err
		}
		r.Card = f.Card
		if o.Variants {
			r.variants(ctx, o, f)
		}
	}
	r.Raw, r.Declaration = r.Card.Raw, FromCard(r.Card)
	for _, d := range r.Card.Deviations {
		r.Findings = append(r.Findings, deviationFinding(d.Place, d.Rule, d.What, d.Severity))
	}
	r.Signatures = r.Card.Verify(o.Keys)
	for i, s := range r.Signatures {
		if len(o.Keys) > 0 && !s.Valid {
			r.Findings = append(r.Findings, bodycam.Finding{Analysis: "trust", Rule: "card-signature", Class: "declaration", Severity: bodycam.High, Count: 1,
				Title: fmt.Sprintf("signature %d of the agent card doesn't hold: %s", i+1, s.Why)})
		}
	}
	if len(o.Keys) > 0 && len(r.Signatures) == 0 {
		r.Findings = append(r.Findings, bodycam.Finding{Analysis: "trust", Rule: "card-signature", Class: "declaration", Severity: bodycam.Medium, Count: 1,
			Title: "the agent card isn't signed, though keys for it were given"})
	}
	return r, nil
}

// FromCard is a card's declaration.
func FromCard(c *a2a.Card) *trust.Declaration {
	d := &trust.Declaration{Kind: KindA2A, Name: c.Name, Description: c.Description, Version: c.Version}
	for _, s := range c.Skills {
		d.Skills = append(d.Skills, trust.Skill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags, Examples: s.Examples})
	}
	return d
}

// variants fetches the card as several callers and under several versions, and compares what is declared.
func (r *Result) variants(ctx context.Context, o Options, f *a2a.Fetched) {
	callers := []struct {
		name   string
		header http.Header
	}{{"known", o.Header}, {"unknown", nil}, {"browser", http.Header{"User-Agent": {"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}}}}
	if len(o.Header) == 0 {
		callers = callers[1:]
	}
	for _, c := range callers {
		for _, version := range []string{"", "0.3", "1.0"} {
			h := c.header.Clone()
			if h == nil {
				h = http.Header{}
			}
			if version != "" {
				h.Set("A2A-Version", version)
			}
			v := Variant{Version: version, Caller: c.name}
			g, err := a2a.Discover(ctx, o.HTTP, f.URL, h)
			if err != nil {
				v.Error = err.Error()
			} else {
				v.fill(g.Card)
			}
			r.Variants = append(r.Variants, v)
		}
	}
	if f.Extended && len(o.Header) > 0 && len(f.Interfaces) > 0 {
		v := Variant{Caller: "extended"}
		if g, err := a2a.Extended(ctx, o.HTTP, f.Interfaces[0], f.URL, o.Header); err != nil {
			v.Error = err.Error()
		} else {
			v.fill(g.Card)
		}
		r.Variants = append(r.Variants, v)
	}
	var base Variant
	base.fill(f.Card)
	r.Findings = append(r.Findings, Equivocations(base, r.Variants)...)
}

func (v *Variant) fill(c *a2a.Card) {
	sum := sha256.Sum256(c.Raw)
	v.SHA256, v.Form = hex.EncodeToString(sum[:]), c.Form
	var lines []string
	for _, s := range c.Skills {
		v.Skills = append(v.Skills, s.ID)
		lines = append(lines, normal(s.ID)+"\x00"+normal(s.Name)+"\x00"+normal(s.Description)+"\x00"+strings.Join(s.Tags, ","))
	}
	slices.Sort(v.Skills)
	slices.Sort(lines)
	v.content = strings.Join(lines, "\n")
	for _, i := range c.Interfaces {
		v.urls = append(v.urls, i.Binding+" "+strings.TrimSuffix(i.URL, "/"))
		host := i.URL
		if _, rest, ok := strings.Cut(host, "://"); ok {
			host, _, _ = strings.Cut(rest, "/")
		}
		if !slices.Contains(v.Hosts, host) {
			v.Hosts = append(v.Hosts, host)
		}
	}
	slices.Sort(v.urls)
	slices.Sort(v.Hosts)
}

// normal makes texts comparable that differ only in case and spaces.
func normal(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// Equivocations are the differences between what was declared to different callers and under different versions: other
// skills, other hosts, or, to another caller of the same version, other endpoints. Another wire form is none, nor is an
// extended card.
func Equivocations(base Variant, list []Variant) []bodycam.Finding {
	var out []bodycam.Finding
	find := func(v Variant, what string) {
		out = append(out, bodycam.Finding{Analysis: "trust", Rule: "equivocation", Class: "declaration", Severity: bodycam.High, Count: 1,
			Title: bodycam.Escape(fmt.Sprintf("the agent declares other %s to the caller %q with A2A-Version %q", what, v.Caller, v.Version))})
	}
	for i, v := range list {
		if v.Error != "" || v.Caller == "extended" {
			continue
		}
		if v.content != base.content {
			find(v, fmt.Sprintf("skills (%s, not %s)", strings.Join(v.Skills, ", "), strings.Join(base.Skills, ", ")))
			continue
		}
		if !slices.ContainsFunc(v.Hosts, func(h string) bool { return slices.Contains(base.Hosts, h) }) && len(v.Hosts) > 0 {
			find(v, "hosts ("+strings.Join(v.Hosts, ", ")+")")
			continue
		}
		for _, w := range list[:i] {
			if w.Error == "" && w.Version == v.Version && w.Caller != "extended" && !slices.Equal(v.urls, w.urls) {
				find(v, "endpoints ("+strings.Join(v.urls, ", ")+")")
				break
			}
		}
	}
	return out
}

func readMCP(ctx context.Context, o Options) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t := mcp.Target{Command: o.Command, Env: o.Env, HTTP: withHeader(o.HTTP, o.Header)}
	if len(o.Command) == 0 {
		t.URL = o.Target
	}
	s, err := mcp.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{Raw: d.Raw, Declaration: FromMCP(d)}
	for _, v := range d.Deviations {
		r.Findings = append(r.Findings, deviationFinding(v.Place, v.Rule, v.What, v.Severity))
	}
	return r, nil
}

// FromMCP is a tool server's declaration: each tool is a skill of its own.
func FromMCP(s *mcp.Server) *trust.Declaration {
	d := &trust.Declaration{Kind: KindMCP, Name: s.Name, Description: s.Instructions, Version: s.Version}
	for _, t := range s.Tools {
		name := t.Title
		if name == "" {
			name = strings.NewReplacer("_", " ", "-", " ").Replace(t.Name)
		}
		id := t.Name
		for n := 2; slices.ContainsFunc(d.Skills, func(s trust.Skill) bool { return s.ID == id }); n++ {
			id = fmt.Sprintf("%s-%d", t.Name, n)
		}
		d.Skills = append(d.Skills, trust.Skill{ID: id, Name: name, Description: t.Description, Tools: []string{t.Name}})
		d.Tools = append(d.Tools, trust.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema, ReadOnly: t.ReadOnly,
			Destructive: t.Destructive, OpenWorld: t.OpenWorld, Idempotent: t.Idempotent})
	}
	return d
}

// withHeader adds header fields to every request.
func withHeader(c *http.Client, h http.Header) *http.Client {
	if len(h) == 0 {
		return c
	}
	out := *c
	next := out.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	out.Transport = adder{h, next}
	return &out
}

type adder struct {
	h    http.Header
	next http.RoundTripper
}

func (a adder) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range a.h {
		r.Header[k] = v
	}
	return a.next.RoundTrip(r)
}

// readSkill reads a folder with a SKILL.md, such a file, or a folder of such folders.
func readSkill(target string) (*Result, error) {
	st, err := os.Stat(target)
	if err != nil {
		return nil, fmt.Errorf("reading the skill: %w", err)
	}
	files := []string{target}
	if st.IsDir() {
		files = []string{filepath.Join(target, "SKILL.md")}
		if _, err := os.Stat(files[0]); errors.Is(err, fs.ErrNotExist) {
			if files, err = filepath.Glob(filepath.Join(target, "*", "SKILL.md")); err != nil || len(files) == 0 {
				return nil, fmt.Errorf("%s holds no SKILL.md, nor do its folders", target)
			}
		}
	}
	r := &Result{Declaration: &trust.Declaration{Kind: KindSkill, Name: filepath.Base(strings.TrimSuffix(target, "/SKILL.md"))}}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading the skill: %w", err)
		}
		s, findings, err := ParseSkill(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if s.ID == "" {
			s.ID = filepath.Base(filepath.Dir(f))
			s.Name = s.ID
		}
		r.Raw = append(r.Raw, raw...)
		r.Findings = append(r.Findings, findings...)
		r.Declaration.Skills = append(r.Declaration.Skills, s)
	}
	if len(files) == 1 {
		r.Declaration.Name, r.Declaration.Description = r.Declaration.Skills[0].Name, r.Declaration.Skills[0].Description
	}
	return r, nil
}

// ParseSkill reads a SKILL.md: its front matter declares, its text doesn't.
func ParseSkill(raw []byte) (trust.Skill, []bodycam.Finding, error) {
	const rule = "Agent Skills, SKILL.md front matter"
	var out trust.Skill
	var found []bodycam.Finding
	text := bytes.ReplaceAll(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(text, []byte("---\n"))
	if !ok {
		return out, nil, errors.New("a SKILL.md begins with front matter: a line --- with name and description")
	}
	head, _, ok := bytes.Cut(rest, []byte("\n---"))
	if !ok {
		return out, nil, errors.New("the front matter has no end: a second line ---")
	}
	var m map[string]any
	if err := decode(head, &m); err != nil {
		return out, nil, fmt.Errorf("the front matter: %w", err)
	}
	str := func(k string, required bool) string {
		s, isText := m[k].(string)
		if required && strings.TrimSpace(s) == "" {
			what := "it is missing, and required"
			if m[k] != nil && !isText {
				what = "it is no text"
			}
			found = append(found, deviationFinding(k, rule, what, bodycam.Low))
		}
		return strings.TrimSpace(s)
	}
	out.ID = str("name", true)
	out.Name, out.Description = out.ID, str("description", true)
	switch t := m["allowed-tools"].(type) {
	case string:
		out.Tools = strings.FieldsFunc(t, func(r rune) bool { return r == ',' || r == ' ' })
	case []any:
		for _, e := range t {
			if s, ok := e.(string); ok {
				out.Tools = append(out.Tools, s)
			}
		}
	}
	return out, found, nil
}

func readYAML(file string) (*Result, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the declaration: %w", err)
	}
	d, err := ParseYAML(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &Result{Raw: raw, Declaration: d}, nil
}

// ParseYAML reads a declaration written by hand: name, description, skills with id, name, description, tags, examples and
// tools. Only a skill's name or id is required.
func ParseYAML(raw []byte) (*trust.Declaration, error) {
	var y struct {
		Name, Description, Version string
		Skills                     []struct {
			ID, Name, Description string
			Tags, Examples, Tools []string
		}
	}
	if err := decode(raw, &y); err != nil {
		return nil, err
	}
	d := &trust.Declaration{Kind: KindYAML, Name: y.Name, Description: y.Description, Version: y.Version}
	for _, s := range y.Skills {
		if s.ID == "" {
			s.ID = s.Name
		}
		if s.Name == "" {
			s.Name = s.ID
		}
		d.Skills = append(d.Skills, trust.Skill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags, Examples: s.Examples, Tools: s.Tools})
	}
	return d, nil
}

// decode reads YAML strictly. The YAML package panics on some malformed input; that is an error of the input.
func decode(raw []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML is malformed (%v)", p)
		}
	}()
	f, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return err
	}
	if len(f.Docs) == 0 || f.Docs[0].Body == nil {
		return errors.New("the YAML is empty")
	}
	return yaml.NodeToValue(f.Docs[0].Body, v, yaml.Strict())
}

// readExternal has a command read the declaration: it gets the target as its last argument and prints the JSON form of
// a [trust.Declaration].
func readExternal(ctx context.Context, o Options) (*Result, error) {
	if len(o.Command) == 0 {
		return nil, errors.New("an external declaration needs the command that reads it")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.Command[0], append(slices.Clone(o.Command[1:]), o.Target)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), o.Env...)
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the parser %s: %w: %s", o.Command[0], err, bodycam.Printable(stderr.String()))
	}
	d := new(trust.Declaration)
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(d); err != nil {
		return nil, fmt.Errorf("what the parser %s printed: %w", o.Command[0], err)
	}
	d.Kind = KindExternal
	return &Result{Raw: raw, Declaration: d}, nil
}
