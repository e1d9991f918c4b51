package report

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

func mapsKeys(m map[string]float64) iter.Seq[string] { return maps.Keys(m) }

// Drift is what has changed since an earlier audit.
type Drift struct {
	Since       time.Time  `json:"since"`
	Declaration string     `json:"declaration"` // same, changed
	Skills      Change     `json:"skills"`
	Tools       Change     `json:"tools"`
	Effects     Change     `json:"effects"`
	Score       [2]float64 `json:"score"` // then, now
	Gate        [2]string  `json:"gate"`
	// Beyond tells that the score's intervals don't overlap: more than chance.
	Beyond   bool     `json:"beyond_chance"`
	Patterns Change   `json:"patterns"`
	Probes   []string `json:"probes,omitempty"` // those, asked both times, whose verdict is another
}

// Change is what came and what went.
type Change struct {
	New  []string `json:"new"`
	Gone []string `json:"gone"`
}

func (c Change) empty() bool { return len(c.New)+len(c.Gone) == 0 }

func change(old, now []string) Change {
	c := Change{New: []string{}, Gone: []string{}}
	for _, n := range now {
		if !slices.Contains(old, n) && !slices.Contains(c.New, n) {
			c.New = append(c.New, n)
		}
	}
	for _, o := range old {
		if !slices.Contains(now, o) && !slices.Contains(c.Gone, o) {
			c.Gone = append(c.Gone, o)
		}
	}
	slices.Sort(c.New)
	slices.Sort(c.Gone)
	return c
}

// Read reads a report's JSON form, from an audit's directory or a file.
func Read(path string) (*Report, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, audit.ReportFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the earlier audit: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("reading the earlier audit %s: %w", path, err)
	}
	if r.Result == nil || r.Declaration == nil || r.Schema > Schema {
		return nil, fmt.Errorf("%s is no report of a trust audit that this bodycam can read", path)
	}
	return r, nil
}

// Compare says what has changed since an earlier report.
func (r *Report) Compare(old *Report) *Drift {
	d := &Drift{Since: old.Started, Declaration: "same", Score: [2]float64{old.Score, r.Score}, Gate: [2]string{old.Gate, r.Gate}}
	if old.Declaration.SHA256 != r.Declaration.SHA256 {
		d.Declaration = "changed"
	}
	skills := func(x *trust.Declaration) (out []string) {
		for _, s := range x.Skills {
			out = append(out, s.ID)
		}
		return out
	}
	tools := func(x *Report) (out []string) {
		for _, t := range x.Tools {
			out = append(out, t.Name)
		}
		return out
	}
	d.Skills, d.Tools = change(skills(old.Declaration), skills(r.Declaration)), change(tools(old), tools(r))
	effects := func(x *Report) (out []string) {
		for _, p := range x.Probes {
			out = append(out, p.Effects...)
		}
		return out
	}
	d.Effects = change(effects(old), effects(r))
	patterns := func(x *Report) (out []string) {
		for _, p := range x.Patterns {
			out = append(out, p.Pattern+" "+p.Scope)
		}
		return out
	}
	d.Patterns = change(patterns(old), patterns(r))
	d.Beyond = r.Interval.High < old.Interval.Low || r.Interval.Low > old.Interval.High
	before := map[string]string{}
	for _, p := range old.Probes {
		before[p.Prompt] = p.Verdict
	}
	for _, p := range r.Probes {
		if v, ok := before[p.Prompt]; ok && v != p.Verdict {
			d.Probes = append(d.Probes, fmt.Sprintf("%s: %s, now %s", p.ID, v, p.Verdict))
		}
	}
	return d
}

func (d *Drift) text(t *printer) {
	t.linef("\nsince %s: declaration %s, score %.1f → %.1f, gate %s → %s", d.Since.Format(time.DateOnly), d.Declaration, d.Score[0], d.Score[1], d.Gate[0], d.Gate[1])
	for name, c := range map[string]Change{"skills": d.Skills, "tools": d.Tools, "effects": d.Effects, "patterns": d.Patterns} {
		if !c.empty() {
			t.linef("  %s: new %s; gone %s", name, clip(strings.Join(c.New, ", "), 300), clip(strings.Join(c.Gone, ", "), 300))
		}
	}
	for _, p := range d.Probes {
		t.linef("  %s", p)
	}
}

// Contract is what an audit has learned of an agent, for enforcement later.
type Contract struct {
	Schema   int      `json:"schema"`
	Agent    string   `json:"agent"`
	Target   string   `json:"target"`
	Card     string   `json:"card_sha256"`
	Skills   []string `json:"skills"`
	Tools    []string `json:"tools"`    // that belong to declared skills and were seen or declared
	Denied   []string `json:"denied"`   // tools that belong to none
	Commands []string `json:"commands"` // of in-scope work, by the kernel's record
	Files    []string `json:"files"`    //
	Hosts    []string `json:"hosts"`    //
	// What was seen and is not learned: hosts that nobody declared, and findings of the security rules.
	Undeclared []string  `json:"undeclared"`
	Prohibited []string  `json:"prohibited"`
	Recorded   bool      `json:"recorded"` // whether there was a kernel record: without one commands, files and hosts are unknown
	Gate       string    `json:"gate"`     // of the audit
	Score      float64   `json:"score"`    //
	Audited    time.Time `json:"audited"`  //
	Expires    time.Time `json:"expires"`  //
	Evidence   string    `json:"evidence"` // what the verdict rests on
	Report     string    `json:"report,omitempty"`
}

// Contract writes down what was learned. It holds for so long after the audit.
func (r *Report) Contract(holds time.Duration, recorded bool, effects map[string]*trust.Effects) Contract {
	c := Contract{Schema: 1, Agent: r.Agent, Target: r.Target, Card: r.Declaration.SHA256, Tools: []string{}, Denied: []string{}, Commands: []string{}, Files: []string{}, Hosts: []string{}, Undeclared: []string{}, Prohibited: []string{},
		Recorded: recorded, Gate: r.Gate, Score: r.Score, Audited: r.Ended, Expires: r.Ended.Add(holds), Evidence: r.Evidence}
	for _, s := range r.Declaration.Skills {
		c.Skills = append(c.Skills, s.ID)
	}
	for _, t := range r.Tools {
		switch t.Fit {
		case trust.Fits:
			c.Tools = append(c.Tools, t.Name)
		case trust.FitsNot:
			c.Denied = append(c.Denied, t.Name)
		}
	}
	scope := map[string]trust.Scope{"": trust.In} // the idle window is part of what is normal
	convicted := map[string]bool{}
	for _, p := range r.Probes {
		scope[p.ID] = p.Scope
		convicted[p.ID] = p.Verdict == score.Violation
	}
	also := map[string]bool{}
	for _, x := range r.Also {
		also[x] = true
	}
	put := func(into *[]string, what string) {
		if !slices.Contains(*into, what) {
			*into = append(*into, what)
		}
	}
	for id, e := range effects {
		for _, f := range e.Prohibited {
			put(&c.Prohibited, f.Rule+": "+f.Title)
		}
		for _, f := range e.Effects {
			into := map[string]*[]string{"command": &c.Commands, "file": &c.Files, "host": &c.Hosts}[f.Kind]
			switch {
			case into == nil || scope[id] != trust.In:
			case f.Kind == "host" && also["host "+f.Name]:
				put(&c.Undeclared, "host "+f.Name)
			case convicted[id]: // what convicts is not how the agent is to be
			default:
				put(into, f.Name)
			}
		}
	}
	for _, l := range [][]string{c.Tools, c.Denied, c.Commands, c.Files, c.Hosts, c.Undeclared, c.Prohibited} {
		slices.Sort(l)
	}
	return c
}

// JSON writes the contract.
func (c *Contract) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(c)
}
