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
	Target  string       // URL of an agent or card, a file or folder, or a command (MCP, external)
	Kind    string       // "": told from the target
	Command []string     // MCP: the server's command; external: the parser, which gets Target as its last argument
	Env     []string     // of Command
	HTTP    *http.Client // with credentials, where there are any
	Keys    []a2a.Key    // that card signatures are checked with
	// Variants has an agent card fetched under several versions and by several callers.
	Variants bool
	// Nobody is a client without the credentials that HTTP has; nil: HTTP has none.
	Nobody *http.Client
	// From are clients without credentials that ask from other addresses, by a name for each.
	From map[string]*http.Client
	GRPC a2a.Dialling // how gRPC endpoints are reached, with credentials
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
		f, err := a2a.Discover(ctx, o.HTTP, o.Target, nil)
		if err != nil {
			return nil, err
		}
		r.Card = f.Card
		if o.Variants {
			r.variants(ctx, o, f)
		}
	}
	r.Raw, r.Declaration = r.Card.Raw, FromCard(r.Card)
	if o.Variants {
		r.extended(ctx, o)
	}
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

func readMCP(ctx context.Context, o Options) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t := mcp.Target{Command: o.Command, Env: o.Env, HTTP: o.HTTP}
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
