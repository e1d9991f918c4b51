package conduct

import (
	"fmt"
	"io"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Flattened is a result as `bodycam compare --json` prints it. What concerns pairs, coverage, leaks, unexplained
// resources and outliers stands in lists of its own, each entry with its run, so that a reader needs no knowledge of
// sets.
type Flattened struct {
	Version     int            `json:"version"`
	Metric      string         `json:"metric"`
	Level       string         `json:"level"`
	FileKey     string         `json:"file_key"`
	Failed      bool           `json:"failed_calls"`
	Baseline    []string       `json:"baseline,omitempty"`
	Runs        []*RunReport   `json:"runs"`
	Pairs       []Pair         `json:"pairs"` // within the sets
	Mean        Mean           `json:"mean"`  // over all pairs within the sets; the interval only where there is one set
	Coverage    []runCoverage  `json:"coverage"`
	Leaks       []runLeak      `json:"leaks"`
	Unexplained []runUnrelated `json:"unexplained"`
	Outliers    []Outlier      `json:"outliers"`
	Obligations []runVerdict   `json:"obligations"`
	Differences []Difference   `json:"differences,omitempty"` // where there is one set
	Sets        []*Set         `json:"sets,omitempty"`        // where there are several
	RQ1         *RQ1           `json:"rq1,omitempty"`
	RQ2         *RQ2           `json:"rq2,omitempty"`
}

type runCoverage struct {
	Run string `json:"run"`
	Coverage
}

type runLeak struct {
	Run string `json:"run"`
	Leak
}

type runUnrelated struct {
	Run string `json:"run"`
	Unrelated
}

type runVerdict struct {
	Run string `json:"run"`
	Verdict
}

// Flat makes the JSON form. With published the published metric is "similarity" too.
func Flat(res *Result, published bool) *Flattened {
	f := &Flattened{Version: 1, Metric: "bodycam", Level: string(res.Level), FileKey: res.FileKey, Failed: res.Failed, Baseline: res.Baseline,
		Runs: res.Runs, Pairs: []Pair{}, Coverage: []runCoverage{}, Leaks: []runLeak{}, Unexplained: []runUnrelated{}, Outliers: []Outlier{},
		Obligations: []runVerdict{}, RQ1: res.RQ1, RQ2: res.RQ2}
	if published {
		f.Metric = "agentspy"
		for _, s := range res.Sets {
			for i := range s.Pairs {
				s.Pairs[i].Similarity = s.Pairs[i].Published
			}
			s.Mean.Similarity, s.Mean.Interval = s.Mean.Published, nil
		}
	}
	var sims, pubs []Similarity
	for _, s := range res.Sets {
		f.Pairs = append(f.Pairs, s.Pairs...)
		f.Outliers = append(f.Outliers, s.Outliers...)
		for _, p := range s.Pairs {
			sims, pubs = append(sims, p.Similarity), append(pubs, p.Published)
		}
	}
	f.Mean = Mean{Similarity: mean(sims), Published: mean(pubs), Pairs: len(sims)}
	if len(res.Sets) == 1 {
		f.Mean.Interval, f.Differences = res.Sets[0].Mean.Interval, res.Sets[0].Differences
	}
	if len(res.Sets) > 1 || res.RQ1 != nil {
		f.Sets = res.Sets
	}
	for _, r := range res.Runs {
		for _, c := range r.Coverage {
			f.Coverage = append(f.Coverage, runCoverage{r.ID, c})
		}
		for _, l := range r.Leaks {
			f.Leaks = append(f.Leaks, runLeak{r.ID, l})
		}
		for _, u := range r.Unrelated {
			f.Unexplained = append(f.Unexplained, runUnrelated{r.ID, u})
		}
		for _, v := range r.Verdicts {
			f.Obligations = append(f.Obligations, runVerdict{r.ID, v})
		}
	}
	return f
}

// WriteDrafts writes what the texts of a run's skills name as obligations, in YAML, with the verdict on the run as a
// comment: a beginning to edit, not a judgement.
func WriteDrafts(w io.Writer, s *Subject) error {
	p := &printer{w: w}
	p.f("# Drafts from the texts of the skills: keep what a run really must do.\nobligations:\n")
	n := 0
	for i := range s.Plan.Skills {
		k := &s.Plan.Skills[i]
		for _, step := range s.adherence(k).Steps {
			key, v := step.Act.verb()
			p.f("  - %s: %s  # %s, SKILL.md line %d; this run: %s\n", key, yamlQuote(v), bodycam.Printable(k.Name), step.Line, step.Verdict)
			n++
		}
	}
	if n == 0 {
		p.f("  []  # the skills name nothing that a record can show\n")
	}
	return p.err
}

// yamlQuote writes text in YAML's double quotes.
func yamlQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range bodycam.Escape(s) {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
