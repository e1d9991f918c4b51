package conduct

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// printer writes until the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func number(f float64) string {
	if math.IsNaN(f) {
		return "  – "
	}
	return fmt.Sprintf("%.2f", f)
}

func (s Similarity) text() string {
	return fmt.Sprintf("overall %s   commands %s  files %s  hosts %s", number(s.Overall), number(s.Commands), number(s.Files), number(s.Hosts))
}

// Text writes the result for people. published shows the published metric's matrix instead of the default one.
func (res *Result) Text(w io.Writer, published bool) error {
	p := &printer{w: w}
	for i, s := range res.Sets {
		if i > 0 {
			p.f("\n")
		}
		res.set(p, s, published)
	}
	if res.RQ1 != nil {
		res.RQ1.text(p)
	}
	if res.RQ2 != nil {
		res.RQ2.text(p)
	}
	return p.err
}

const (
	matrixRuns = 12 // larger sets have no matrix on a screen
	textItems  = 12
)

func (res *Result) set(p *printer, s *Set, published bool) {
	title := "COMPARISON"
	if len(s.By) > 0 {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(s.By)) {
			parts = append(parts, k+" "+bodycam.Printable(s.By[k]))
		}
		title = strings.Join(parts, ", ")
	}
	p.f("%s: %d run(s)\n", title, len(s.members))
	for i, m := range s.members {
		note := ""
		if !m.Complete {
			note = "  record incomplete"
		}
		p.f("  R%-3d %s  %s  agent %s  model %s  tests %s%s\n", i+1, m.ID, bodycam.Printable(m.Task), bodycam.Printable(m.Agent), bodycam.Printable(m.Model), m.Outcome, note)
	}
	if len(s.members) > 1 {
		res.similarities(p, s, published)
	}
	noiseText(p, s)
	res.guidance(p, s)
	res.leaks(p, s)
	res.unexplained(p, s)
	res.obligations(p, s)
}

func (res *Result) similarities(p *printer, s *Set, published bool) {
	m, mean := s.sims, s.Mean.Similarity
	if published {
		m, mean = s.pubs, s.Mean.Published
	}
	if n := len(s.members); n <= matrixRuns {
		p.f("\nSIMILARITY (1: the same resources in the same proportions)\n      ")
		for j := range n {
			p.f(" R%-4d", j+1)
		}
		for i := range n {
			p.f("\n  R%-3d", i+1)
			for j := range n {
				p.f(" %s ", number(m[i][j].Overall))
			}
		}
		p.f("\n")
	}
	p.f("  mean       %s\n", mean.text())
	if iv := s.Mean.Interval; iv != nil && !published {
		p.f("  95 %%       overall %.2f to %.2f (bootstrap over runs)\n", iv[0], iv[1])
	}
	if !published {
		p.f("  published  %s (raw counts, noise included)\n", s.Mean.Published.text())
	}
	for _, o := range s.Outliers {
		p.f("\nOUTLIER R%d: %.2f to its siblings, which have %.2f among themselves (effect %.1f)", o.at+1, o.Similarity, o.Siblings, o.Effect)
		if o.P != nil {
			p.f(", p %.3f", *o.P)
		}
		p.f("\n")
		for _, c := range o.Why {
			p.f("  −%.3f  %-8s %s  share %.2f here, %.2f elsewhere\n", c.Lost, c.Type, bodycam.Printable(c.Name), c.Here, c.There)
		}
	}
	if len(s.Differences) == 0 || len(s.members) > matrixRuns {
		return
	}
	p.f("\nDIFFERENCES (counts by run, the heaviest first)\n")
	for i, d := range s.Differences {
		if i == textItems {
			p.f("  … and %d more (--json)\n", len(s.Differences)-i)
			break
		}
		p.f("  −%.3f  %-8s", d.Lost, d.Type)
		for _, c := range d.Counts {
			p.f(" %4d", c)
		}
		p.f("  %s\n", bodycam.Printable(d.Name))
	}
}

// noiseText says what was counted apart, so that nothing is dropped in silence.
func noiseText(p *printer, s *Set) {
	least, most, calls := math.MaxInt, 0, uint64(0)
	for _, m := range s.members {
		n := 0
		for _, c := range m.Noise {
			n += c.Resources
			calls += c.Calls
		}
		least, most = min(least, n), max(most, n)
	}
	each := fmt.Sprintf("%d to %d", least, most)
	if least == most {
		each = strconv.Itoa(most)
	}
	if most > 0 {
		p.f("\nCOUNTED APART  %s resources a run, %d calls in all: the system's and the harness's own (--json: noise)\n", each, calls)
	}
}

func (res *Result) guidance(p *printer, s *Set) {
	head := false
	for i, m := range s.members {
		for _, c := range m.Coverage {
			if !head {
				p.f("\nGUIDANCE (files of each skill that were used)\n")
				head = true
			}
			p.f("  R%-3d %-24s %d of %d files  procedure %s\n", i+1, bodycam.Printable(c.Skill), c.Used, len(c.Files), c.Adherence.Verdict)
			for _, f := range c.Files {
				if len(s.members) <= 3 {
					row := ""
					if f.Row >= 0 {
						row = fmt.Sprintf("  row %d", f.Row)
					}
					how := f.How
					if how == "" && f.ByHarness {
						how = "the harness itself read it, which doesn't count"
					}
					p.f("         %-9s %s%s  %s\n", f.Degree, bodycam.Printable(f.Path), row, bodycam.Printable(how))
				}
			}
		}
	}
}

func (res *Result) leaks(p *printer, s *Set) {
	head := false
	for i, m := range s.members {
		for _, l := range m.Leaks {
			if !head {
				p.f("\nGRADING MATERIAL\n")
				head = true
			}
			p.f("  R%-3d %s\n", i+1, l.finding().Title)
		}
	}
}

func (res *Result) unexplained(p *printer, s *Set) {
	head := false
	for i, m := range s.members {
		for k, u := range m.Unrelated {
			if !head {
				p.f("\nUNEXPLAINED (nothing in the task, the kind or a baseline asks for it)\n")
				head = true
			}
			if k == textItems {
				p.f("  R%-3d … and %d more (--json)\n", i+1, len(m.Unrelated)-k)
				break
			}
			row := "no row"
			if u.Row != nil {
				row = fmt.Sprintf("row %d", *u.Row)
			}
			p.f("  R%-3d %3d  %-7s %s  (%s) %s\n", i+1, u.Rank, u.Kind, bodycam.Printable(u.Name), row, u.Why)
			for _, soft := range u.Softened {
				p.f("             less surprising: %s\n", bodycam.Printable(soft.Why))
			}
		}
	}
}

func (res *Result) obligations(p *printer, s *Set) {
	head := false
	for i, m := range s.members {
		for _, v := range m.Verdicts {
			if !head {
				p.f("\nOBLIGATIONS\n")
				head = true
			}
			p.f("  R%-3d %-11s %s: %s\n", i+1, v.Verdict, bodycam.Printable(v.Demand), bodycam.Printable(v.Why))
		}
	}
}

func (q *RQ1) text(p *printer) {
	p.f("\nHOMOGENEOUS SETS AGAINST MIXED ONES: %d sets, %d comparisons\n", q.Sets, q.Comparisons)
	for _, r := range []struct {
		name string
		v    *Versus
	}{{"overall", &q.Overall}, {"commands", &q.Commands}, {"files", &q.Files}, {"hosts", &q.Hosts}, {"overall, published metric", &q.Published}} {
		if r.v.Comparisons > 0 {
			p.f("  %-26s %5.1f %% favour the homogeneous set (%d of %d), mean margin %+.3f, least %+.3f\n", r.name, 100*r.v.Share, r.v.Favour, r.v.Comparisons, r.v.Margin, r.v.Least)
		}
	}
	for _, l := range q.Losses {
		p.f("  not favoured: %s\n", bodycam.Printable(l))
	}
}

func (q *RQ2) text(p *printer) {
	p.f("\nBEHIND PASSED TESTS: %d of %d sets passed in all runs\n", q.Passed, q.Sets)
	p.f("  unrelated activity  %d (%.1f %%)  an unexplained resource of rank %d or more in a run\n", q.Unrelated, 100*q.UnrelatedPart, q.Rank)
	p.f("  grading reads       %d (%.1f %%)\n", q.Grading, 100*q.GradingPart)
	p.f("  unused guidance     %d (%.1f %% of %d with a skill)  mean coverage of a skill under %.2f\n", q.Unused, 100*q.UnusedPart, q.Skilled, q.Coverage)
}
