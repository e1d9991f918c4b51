package conduct

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// RunReport is what one run brings to a comparison.
type RunReport struct {
	ID        string       `json:"id"`
	Dir       string       `json:"dir"`
	Task      string       `json:"task"`
	Model     string       `json:"model,omitempty"`
	Agent     string       `json:"agent"`
	Kind      string       `json:"kind,omitempty"`
	Digest    string       `json:"task_digest,omitempty"`
	Version   string       `json:"agent_version,omitempty"`
	Started   time.Time    `json:"started"`
	Outcome   string       `json:"outcome"`
	Complete  bool         `json:"complete"`
	Lacks     []string     `json:"incomplete_because,omitempty"` // as the record's own and its ledger's word
	Coverage  []Coverage   `json:"-"`                            // these four: in lists of their own, see [Flattened]
	Leaks     []Leak       `json:"-"`
	Unrelated []Unrelated  `json:"-"`
	Verdicts  []Verdict    `json:"-"`
	Noise     []NoiseCount `json:"noise"` // counted apart, by why

	own, raw profile
	touched  []uint32 // every resource of the run, for its siblings
}

// NoiseCount is what was counted apart for one reason.
type NoiseCount struct {
	Why       string `json:"why"`
	Resources int    `json:"resources"`
	Calls     uint64 `json:"calls"`
}

// Comparison gathers runs. Add them one by one: of each only what is compared is kept.
type Comparison struct {
	opts  Options
	names *names
	runs  []*RunReport
}

// NewComparison begins.
func NewComparison(o Options) *Comparison {
	if o.Level == "" {
		o.Level = features.LevelSubcommand
	}
	return &Comparison{opts: o, names: newNames()}
}

// Add takes a run's features in. The order in which runs are added is that of the result.
func (c *Comparison) Add(s *Subject) error {
	verdicts, err := s.Obligations()
	if err != nil {
		return fmt.Errorf("run %s: %w", s.Dir, err)
	}
	i := s.Info
	r := &RunReport{ID: i.ID, Dir: s.Dir, Task: i.Task.Name, Model: i.Agent.Model, Agent: i.Agent.Harness, Kind: i.Kind, Digest: i.Task.Digest,
		Version: i.Agent.Version, Started: i.Started, Outcome: i.Outcome.Status, Complete: s.Complete(), Lacks: s.Lacks(),
		Coverage: s.Coverage(), Leaks: s.Leaks(), Unrelated: s.Unrelated(), Verdicts: verdicts, Noise: noiseOf(s.Features)}
	r.own = profileOf(s.Features, c.opts, false, c.names)
	r.raw = profileOf(s.Features, c.opts, true, c.names)
	seen := map[uint32]struct{}{}
	for _, res := range s.Features.Resources {
		if res.Noise == "" && res.Total()+res.Tried() > 0 {
			seen[c.names.of(touchedName(res.Kind, res.Key))] = struct{}{}
		}
	}
	for id := range seen {
		r.touched = append(r.touched, id)
	}
	slices.Sort(r.touched)
	c.runs = append(c.runs, r)
	return nil
}

func touchedName(kind bodycam.ResourceKind, key string) string { return string(kind) + "\x00" + key }

func noiseOf(f *features.Features) []NoiseCount {
	by := map[string]*NoiseCount{}
	for _, r := range f.Resources {
		if r.Noise == "" {
			continue
		}
		n := by[r.Noise]
		if n == nil {
			n = &NoiseCount{Why: r.Noise}
			by[r.Noise] = n
		}
		n.Resources++
		n.Calls += r.Uses.Total() + r.Vain.Total()
	}
	out := []NoiseCount{}
	for _, n := range by {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b NoiseCount) int { return strings.Compare(a.Why, b.Why) })
	return out
}

// Keys by which runs are put together.
var Keys = []string{"task", "model", "agent", "kind", "digest", "version"}

func (r *RunReport) key(name string) string {
	switch name {
	case "task":
		return r.Task
	case "model":
		return r.Model
	case "agent":
		return r.Agent
	case "kind":
		return r.Kind
	case "digest":
		return r.Digest
	case "version":
		return r.Version
	}
	return ""
}

// Pair is how alike two runs are.
type Pair struct {
	A          string     `json:"a"`
	B          string     `json:"b"`
	Similarity Similarity `json:"similarity"` // noise left out
	Published  Similarity `json:"agentspy"`   // the published formula: raw counts
}

// Mean is a set's mean over its pairs.
type Mean struct {
	Similarity Similarity  `json:"similarity"`
	Published  Similarity  `json:"agentspy"`
	Interval   *[2]float64 `json:"interval,omitempty"` // 95 %, of similarity.overall; from three runs on
	Pairs      int         `json:"pairs"`
}

// Difference is a resource that runs of a set use differently.
type Difference struct {
	Type   string    `json:"type"`
	Name   string    `json:"name"`
	Lost   float64   `json:"lost"`   // of the set's mean similarity
	Shares []float64 `json:"shares"` // in the order of the set's runs
	Counts []uint64  `json:"counts"`
}

// Set is runs that should do the same.
type Set struct {
	By          map[string]string `json:"by,omitempty"`
	Runs        []string          `json:"runs"`
	Pairs       []Pair            `json:"pairs"`
	Mean        Mean              `json:"mean"`
	Outliers    []Outlier         `json:"outliers"`
	Differences []Difference      `json:"differences"`

	members []*RunReport
	sims    [][]Similarity
	pubs    [][]Similarity
}

// Members are the set's runs.
func (s *Set) Members() []*RunReport { return s.members }

const (
	mostDifferences = 30
	mostReasons     = 8
)

// Result is a finished comparison.
type Result struct {
	Runs []*RunReport `json:"runs"`
	Sets []*Set       `json:"sets"`
	RQ1  *RQ1         `json:"rq1,omitempty"`
	RQ2  *RQ2         `json:"rq2,omitempty"`
	// Options that the numbers rest on.
	Level    features.Level `json:"level"`
	FileKey  string         `json:"file_key"`
	Failed   bool           `json:"failed_calls"`
	Baseline []string       `json:"baseline,omitempty"`
}

// Finish compares. Without keys all runs are one set; with keys each set has the runs that agree in them, and the
// tables over sets are made.
func (c *Comparison) Finish(by []string, t Thresholds) *Result {
	res := &Result{Runs: c.runs, Level: c.opts.Level, FileKey: "path", Failed: c.opts.Failed, Sets: []*Set{}}
	if c.opts.ByAction {
		res.FileKey = "path and action"
	}
	index := map[string]*Set{}
	for _, r := range c.runs {
		values := map[string]string{}
		var key strings.Builder
		for _, k := range by {
			values[k] = bodycam.Escape(r.key(k))
			fmt.Fprintf(&key, "%q ", r.key(k))
		}
		s := index[key.String()]
		if s == nil {
			s = &Set{By: values}
			index[key.String()] = s
			res.Sets = append(res.Sets, s)
		}
		s.members = append(s.members, r)
		s.Runs = append(s.Runs, r.ID)
	}
	inParallel(len(res.Sets), func(i int) { c.finish(res.Sets[i]) })
	for _, s := range res.Sets {
		c.siblings(s)
	}
	if len(by) > 0 {
		res.RQ1 = c.homogeneity(res.Sets)
		res.RQ2 = prevalence(res.Sets, t)
	}
	for _, r := range c.runs {
		r.escape()
	}
	return res
}

func (c *Comparison) finish(s *Set) {
	n := len(s.members)
	s.sims, s.pubs = matrix(n), matrix(n)
	s.Pairs, s.Outliers, s.Differences = []Pair{}, []Outlier{}, []Difference{}
	var sims, pubs []Similarity
	for i := range n {
		for j := i + 1; j < n; j++ {
			a, b := s.members[i], s.members[j]
			p := Pair{A: a.ID, B: b.ID, Similarity: similarity(&a.own, &b.own), Published: similarity(&a.raw, &b.raw)}
			s.sims[i][j], s.sims[j][i] = p.Similarity, p.Similarity
			s.pubs[i][j], s.pubs[j][i] = p.Published, p.Published
			s.Pairs = append(s.Pairs, p)
			sims, pubs = append(sims, p.Similarity), append(pubs, p.Published)
		}
	}
	s.Mean = Mean{Similarity: mean(sims), Published: mean(pubs), Interval: interval(s.sims), Pairs: len(s.Pairs)}
	own := make([]*profile, n)
	for i, m := range s.members {
		own[i] = &m.own
	}
	for _, o := range outliers(s.sims) {
		o.Run = s.members[o.at].ID
		o.Why = contributions(own, o.at, c.names)
		o.Why = o.Why[:min(len(o.Why), mostReasons)]
		for i := range o.Why {
			o.Why[i].escape()
		}
		s.Outliers = append(s.Outliers, o)
	}
	s.Differences = c.differences(own)
}

func matrix(n int) [][]Similarity {
	m := make([][]Similarity, n)
	for i := range m {
		m[i] = make([]Similarity, n)
		m[i][i] = Similarity{1, 1, 1, 1}
	}
	return m
}

// differences sums the contributions of all runs and puts the resources side by side.
func (c *Comparison) differences(own []*profile) []Difference {
	out := []Difference{}
	if len(own) < 2 {
		return out
	}
	type key struct{ t, name string }
	lost := map[key]float64{}
	for i := range own {
		for _, x := range contributions(own, i, c.names) {
			lost[key{x.Type, x.Name}] += x.Lost / float64(len(own))
		}
	}
	for k, l := range lost {
		out = append(out, Difference{Type: k.t, Name: k.name, Lost: l})
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(round(b.Lost), round(a.Lost)), strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
	})
	out = out[:min(len(out), mostDifferences)]
	for i := range out {
		d := &out[i]
		t := slices.Index(types[:], bodycam.ResourceKind(d.Type))
		id := c.names.ids[d.Name]
		for _, p := range own {
			w, ok := slices.BinarySearchFunc(p[t], id, func(w weight, id uint32) int { return cmp.Compare(w.id, id) })
			if !ok {
				d.Shares, d.Counts = append(d.Shares, 0), append(d.Counts, 0)
				continue
			}
			d.Shares, d.Counts = append(d.Shares, round(p[t][w].p)), append(d.Counts, uint64(p[t][w].n))
		}
		d.Name, d.Lost = bodycam.Escape(d.Name), round(d.Lost)
	}
	return out
}

func (c *Contribution) escape() {
	c.Name, c.Lost, c.Here, c.There = bodycam.Escape(c.Name), round(c.Lost), round(c.Here), round(c.There)
}

// siblings makes what several runs of a set do less surprising. It clears nothing.
func (c *Comparison) siblings(s *Set) {
	runs := map[uint32]int{}
	for _, m := range s.members {
		for _, id := range m.touched {
			runs[id]++
		}
	}
	for _, m := range s.members {
		for i := range m.Unrelated {
			u := &m.Unrelated[i]
			id, ok := c.names.ids[touchedName(u.Kind, u.Key)]
			if n := runs[id] - 1; ok && n > 0 {
				u.Softened = append(u.Softened, features.Reason{By: features.BySiblings, Why: fmt.Sprintf("%d of %d other runs of the set did it too", n, len(s.members)-1)})
				u.Rank = max(u.Rank-softSiblings, 1)
			}
		}
		slices.SortStableFunc(m.Unrelated, func(a, b Unrelated) int { return cmp.Compare(b.Rank, a.Rank) })
	}
}

// escape makes a report's raw bytes fit for JSON.
func (r *RunReport) escape() {
	for i := range r.Unrelated {
		u := &r.Unrelated[i]
		u.Name, u.Key, u.Programs = bodycam.Escape(u.Name), bodycam.Escape(u.Key), bodycam.EscapeAll(u.Programs)
	}
	for i := range r.Leaks {
		l := &r.Leaks[i]
		l.Path, l.Of, l.Programs = bodycam.Escape(l.Path), bodycam.Escape(l.Of), bodycam.EscapeAll(l.Programs)
	}
	for i := range r.Coverage {
		for j := range r.Coverage[i].Files {
			f := &r.Coverage[i].Files[j]
			f.Path, f.How = bodycam.Escape(f.Path), bodycam.Escape(f.How)
		}
	}
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		v.Why, v.Resource = bodycam.Escape(v.Why), bodycam.Escape(v.Resource)
	}
}
