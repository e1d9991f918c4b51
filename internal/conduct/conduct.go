// Package conduct judges how reliably an agent works: whether repeated runs of a task do the same, whether the
// guidance that it was given is used, whether it read the material that grades it, and whether it did what nothing
// asked for.
//
// It reads run directories alone, through package features, and is deterministic: the same runs give the same
// answer, and where chance is used (the bootstrap) its seed is fixed.
package conduct

import (
	"cmp"
	"slices"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// Name is the analysis's name in findings.
const Name = "conduct"

// Version is that of the analysis: it grows with every change of what it finds.
const Version = "1.0.0"

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
func (s *Subject) Complete() bool { return s.Info.Complete.Complete && !s.Features.Torn }

// Findings are all that the analysis says of one run: the gravest first, then in the order of the events.
func (s *Subject) Findings() ([]bodycam.Finding, error) {
	out := []bodycam.Finding{}
	for _, l := range s.Leaks() {
		out = append(out, l.finding())
	}
	for _, u := range s.Unrelated() {
		out = append(out, u.finding())
	}
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
