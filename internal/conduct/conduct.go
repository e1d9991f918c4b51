// Package conduct judges how reliably an agent works: whether repeated runs of a task do the same, whether the
// guidance that it was given is used, whether it read the material that grades it, and whether it did what nothing
// asked for.
//
// It reads run directories alone, through package features, and is deterministic: the same runs give the same
// answer, and where chance is used (the bootstrap) its seed is fixed.
package conduct

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// Name is the analysis's name in findings.
const Name = "conduct"

// Version is that of the analysis: it grows with every change of what it finds.
const Version = "1.1.0"

// Subject is one run that is judged.
type Subject struct {
	Info     *bodycam.Run
	Dir      string
	Plan     *features.Plan
	Features *features.Features
	Explain  *features.Explainer
}

// Open reads a run and its features.
func Open(r *store.Run, join features.Join) (*Subject, error) {
	plan, err := features.ParsePlan(r.Info.Plan)
	if err != nil {
		return nil, err
	}
	f, err := features.Load(r, join)
	if err != nil {
		return nil, err
	}
	return &Subject{Info: &r.Info, Dir: r.Dir, Plan: plan, Features: f, Explain: features.NewExplainer(plan)}, nil
}

// Complete tells whether "nothing found" can be said of the run.
func (s *Subject) Complete() bool { return s.whole().Complete }

// Lacks says why "nothing found" can't be said of the run.
func (s *Subject) Lacks() []string { return s.whole().Reasons }

// whole is what the run says of its record, with what reading it showed. A run without an end is judged as one that goes on.
func (s *Subject) whole() bodycam.Completeness {
	c := s.Info.Complete
	if s.Features.Torn {
		c = c.Lacking("its events end in the middle of one")
	}
	if s.Features.OneManifest {
		c = c.Lacking("what changed in the workspace is not known, since its state before or after the run was not recorded")
	}
	return c
}

// Findings are all that the analysis says of one run: the gravest first, then in the order of the events.
func (s *Subject) Findings() ([]bodycam.Finding, error) {
	out := []bodycam.Finding{}
	for _, l := range s.Leaks() {
		out = append(out, l.finding())
	}
	for _, u := range s.Unrelated() {
		out = append(out, u.finding())
	}
	out = atMost(out)
	for _, c := range s.Coverage() {
		out = append(out, c.finding(s))
	}
	verdicts, err := s.Obligations()
	if err != nil {
		return out, err
	}
	for _, v := range verdicts {
		out = append(out, v.finding())
	}
	for i := range out {
		out[i].Analysis = Name
		s.suppress(&out[i])
		if r := out[i].Row; r != nil && *r < 0 {
			out[i].Row = nil
		}
	}
	slices.SortStableFunc(out, func(a, b bodycam.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(firstEvent(a), firstEvent(b)), cmp.Compare(a.Resource, b.Resource))
	})
	return out, nil
}

// mostAlike bounds the findings of one rule and class. The rest is one more, which says how many and where.
const mostAlike = 200

// atMost keeps the first of each rule and class, the gravest, and puts the rest together.
func atMost(all []bodycam.Finding) []bodycam.Finding {
	type kind struct{ rule, class string }
	seen, rest := map[kind]int{}, map[kind]*bodycam.Finding{}
	names := map[kind]int{}
	out := all[:0]
	var further []*bodycam.Finding
	for i := range all {
		f := all[i]
		k := kind{f.Rule, f.Class}
		if len(f.Tags) > 1 {
			k.class = f.Tags[1]
		}
		if seen[k]++; seen[k] <= mostAlike {
			out = append(out, f)
			continue
		}
		r := rest[k]
		if r == nil {
			r = &f
			r.Detail = "The first " + fmt.Sprint(mostAlike) + " of this kind stand by themselves; these are the others. The first of them: " + f.Title + ". " + f.Detail
			rest[k], further = r, append(further, r)
		} else {
			r.Count += f.Count
			r.Resource = common(r.Resource, f.Resource)
		}
		names[k]++
		r.Title = fmt.Sprintf("%d more resources of this kind (%s)", names[k], k.class)
		if r.Resource != "" {
			r.Title += " under " + bodycam.Printable(r.Resource)
		}
	}
	for _, r := range further {
		out = append(out, *r)
	}
	return out
}

// common is the directory that two paths lie in, "" where there is none.
func common(a, b string) string {
	for a != "" && b != a && !strings.HasPrefix(b, a+"/") {
		a = a[:max(strings.LastIndexByte(a, '/'), 0)]
	}
	return a
}

func firstEvent(f bodycam.Finding) uint64 {
	if len(f.Events) == 0 {
		return 0
	}
	return f.Events[0]
}

// suppress keeps a finding that the kind or task accepts from counting. It stays visible, with the reason. A
// suppression counts up to the day on which the run was made.
func (s *Subject) suppress(f *bodycam.Finding) {
	day := s.Info.Started.UTC().Format("2006-01-02")
	for _, p := range s.Plan.Judge.Suppressions {
		if p.Expires != "" && day > p.Expires || !bodycam.Glob(p.Rule, f.Rule) {
			continue
		}
		if p.Resource == "" || bodycam.Glob(p.Resource, f.Resource) || p.Resource == f.Resource {
			f.Suppressed = p.Reason
			return
		}
	}
}

// rowOf is a pointer to the first row that caused a resource; nil where none did.
func rowOf(r *features.Resource) *int {
	if len(r.Rows) == 0 {
		return nil
	}
	row := r.Rows[0].Row
	return &row
}
