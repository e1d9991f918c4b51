package harness

import (
	"fmt"
	"path"
	"sort"
	"strings"
	"time"
)

// params reads a request's parameters. Each getter notes the name; done refuses what nothing asked for.
type params struct {
	harness string
	m       map[string]any
	known   []string
	err     error
}

func newParams(harness string, r Request) *params { return &params{harness: harness, m: r.Params} }

func (p *params) wrong(name, want string, v any) {
	if p.err == nil {
		p.err = fmt.Errorf("agent %s: parameter %s must be %s, not %v (%T)", p.harness, name, want, v, v)
	}
}

func (p *params) get(name string) (any, bool) {
	p.known = append(p.known, name)
	v, ok := p.m[name]
	return v, ok && v != nil
}

func (p *params) text(name, fallback string) string {
	v, ok := p.get(name)
	if !ok {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		p.wrong(name, "a text", v)
	}
	return s
}

func (p *params) number(name string, fallback int) int {
	v, ok := p.get(name)
	if !ok {
		return fallback
	}
	switch n := v.(type) {
	case int:
		return n
	case int64:
		return int(n)
	case uint64:
		return int(n)
	case float64:
		if n == float64(int(n)) {
			return int(n)
		}
	}
	p.wrong(name, "a whole number", v)
	return fallback
}

// duration takes "90s" or a number of seconds.
func (p *params) duration(name string, fallback time.Duration) time.Duration {
	v, ok := p.get(name)
	if !ok {
		return fallback
	}
	var d time.Duration
	var err error
	switch n := v.(type) {
	case int:
		d = time.Duration(n) * time.Second
	case int64:
		d = time.Duration(n) * time.Second
	case uint64:
		d = time.Duration(n) * time.Second
	case float64:
		d = time.Duration(n * float64(time.Second))
	case time.Duration:
		d = n
	case string:
		d, err = time.ParseDuration(n)
	default:
		err = fmt.Errorf("wrong type")
	}
	if err != nil || d <= 0 {
		p.wrong(name, "a time such as 90s", v)
		return fallback
	}
	return d
}

func (p *params) boolean(name string) (value, set bool) {
	v, ok := p.get(name)
	if !ok {
		return false, false
	}
	b, ok := v.(bool)
	if !ok {
		p.wrong(name, "true or false", v)
	}
	return b, true
}

func (p *params) list(name string) []string {
	v, ok := p.get(name)
	if !ok {
		return nil
	}
	switch l := v.(type) {
	case []string:
		return l
	case []any:
		out := make([]string, 0, len(l))
		for _, e := range l {
			s, ok := e.(string)
			if !ok {
				p.wrong(name, "a list of texts", v)
				return nil
			}
			out = append(out, s)
		}
		return out
	}
	p.wrong(name, "a list of texts", v)
	return nil
}

// done returns the first error, or one for a parameter that the harness doesn't have.
func (p *params) done() error {
	if p.err != nil {
		return p.err
	}
	var unknown []string
	for name := range p.m {
		found := false
		for _, k := range p.known {
			found = found || k == name
		}
		if !found {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	sort.Strings(unknown)
	sort.Strings(p.known)
	msg := fmt.Sprintf("agent %s: unknown parameter %q", p.harness, unknown[0])
	best, distance := "", 3
	for _, k := range p.known {
		if d := edits(unknown[0], k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Errorf("%s (did you mean %q?)", msg, best)
	}
	if len(p.known) == 0 {
		return fmt.Errorf("%s: it has none", msg)
	}
	return fmt.Errorf("%s: there are %s", msg, strings.Join(p.known, ", "))
}

// check refuses what no harness can work with.
func (r Request) check(harness string, needsModel bool) error {
	for name, p := range map[string]string{"working directory": r.Workdir, "home": r.Home} {
		if !path.IsAbs(p) {
			return fmt.Errorf("agent %s: the %s inside the box must be an absolute path, not %q", harness, name, p)
		}
	}
	if needsModel && r.Model == "" {
		return fmt.Errorf("agent %s needs a model: name one with --model", harness)
	}
	if needsModel && !strings.HasPrefix(r.ModelURL, "http://") && !strings.HasPrefix(r.ModelURL, "https://") {
		return fmt.Errorf("agent %s needs the model's URL (http://HOST/v1), not %q", harness, r.ModelURL)
	}
	return nil
}

// root is ModelURL without the version part.
func (r Request) root() string {
	u := strings.TrimSuffix(r.ModelURL, "/")
	return strings.TrimSuffix(u, "/v1")
}

func (r Request) key() string {
	if r.APIKey == "" {
		return "bodycam"
	}
	return r.APIKey
}

// env is the environment that every harness gets.
func (r Request) env(more map[string]string) map[string]string {
	p := r.Path
	if p == "" {
		p = DefaultPath
	}
	env := map[string]string{"PATH": p, "HOME": r.Home, "TERM": "dumb", "LANG": "C.UTF-8"}
	for k, v := range more {
		env[k] = v
	}
	return env
}

// skills returns one directory for each skill that the harness doesn't find by itself. Copies of a skill have the
// same last part; where one of them lies right below a directory that the harness searches, the skill is left out.
func (r Request) skills(searched ...string) []string {
	found := map[string]bool{}
	for _, s := range r.Skills {
		for _, dir := range searched {
			if path.Dir(s) == dir {
				found[path.Base(s)] = true
			}
		}
	}
	var out []string
	for _, s := range r.Skills {
		if name := path.Base(s); !found[name] {
			found[name] = true
			out = append(out, s)
		}
	}
	return out
}

// skillNote is what a harness's file of general instructions says of skills that it doesn't find by itself.
func skillNote(dirs []string) []byte {
	var b strings.Builder
	b.WriteString("# Skills\n\nThese directories hold guidance for some tasks. Read a directory's SKILL.md before you do what it is about.\n\n")
	for _, d := range dirs {
		fmt.Fprintf(&b, "- %s: %s\n", path.Base(d), path.Join(d, "SKILL.md"))
	}
	return []byte(b.String())
}
