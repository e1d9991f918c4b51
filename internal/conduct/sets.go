package conduct

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/bodycam-dev/bodycam"
)

// inParallel calls f for 0 … n−1 on all processors.
func inParallel(n int, f func(int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// RQ1 holds homogeneous sets against mixed ones: a homogeneous set with one or more runs replaced by runs of another
// task with the same model and agent. AgentSpy's first research question; the paper reports that 92.2 % of the
// comparisons favour the homogeneous set.
type RQ1 struct {
	Sets        int      `json:"sets"` // homogeneous sets of at least two runs that have a counterpart
	Comparisons int      `json:"comparisons"`
	Overall     Versus   `json:"overall"`
	Commands    Versus   `json:"commands"`
	Files       Versus   `json:"files"`
	Hosts       Versus   `json:"hosts"`
	Published   Versus   `json:"agentspy_overall"`
	Losses      []string `json:"losses,omitempty"` // mixed sets at least as similar as the homogeneous one: the first few
}

// Versus counts comparisons of a homogeneous with a mixed set.
type Versus struct {
	Comparisons int     `json:"comparisons"` // in which both sides have a value
	Favour      int     `json:"favour"`      // the homogeneous set is strictly more similar
	Share       float64 `json:"share"`
	Margin      float64 `json:"mean_margin"`
	Least       float64 `json:"least_margin"`
}

func (v *Versus) add(pure, mixed float64) {
	if math.IsNaN(pure) || math.IsNaN(mixed) {
		return
	}
	d := pure - mixed
	if math.Abs(d) < 1e-12 {
		d = 0 // sums in another order
	}
	if v.Comparisons == 0 || d < v.Least {
		v.Least = d
	}
	v.Comparisons++
	v.Margin += d
	if d > 0 {
		v.Favour++
	}
}

func (v *Versus) merge(o Versus) {
	if o.Comparisons == 0 {
		return
	}
	if v.Comparisons == 0 || o.Least < v.Least {
		v.Least = o.Least
	}
	v.Comparisons += o.Comparisons
	v.Favour += o.Favour
	v.Margin += o.Margin
}

func (v *Versus) finish() {
	if v.Comparisons > 0 {
		v.Share, v.Margin = round(float64(v.Favour)/float64(v.Comparisons)), round(v.Margin/float64(v.Comparisons))
		v.Least = round(v.Least)
	}
}

// mixedDraws is how many mixed sets with k ≥ 2 foreign runs are drawn for each pair of sets and each k; those with
// one foreign run are all made.
const mixedDraws = 3

const mostLosses = 20

// homogeneity makes the RQ1 table.
func (c *Comparison) homogeneity(sets []*Set) *RQ1 {
	parts := make([]RQ1, len(sets))
	inParallel(len(sets), func(i int) {
		g := sets[i]
		if len(g.members) < 2 {
			return
		}
		rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(i)))
		for _, h := range sets {
			if counterpart(g, h) {
				mixed(g, h, rng, &parts[i])
			}
		}
		if parts[i].Comparisons > 0 {
			parts[i].Sets = 1
		}
	})
	out := &RQ1{}
	for _, p := range parts {
		out.Sets += p.Sets
		out.Comparisons += p.Comparisons
		out.Overall.merge(p.Overall)
		out.Commands.merge(p.Commands)
		out.Files.merge(p.Files)
		out.Hosts.merge(p.Hosts)
		out.Published.merge(p.Published)
		if room := mostLosses - len(out.Losses); room > 0 {
			out.Losses = append(out.Losses, p.Losses[:min(len(p.Losses), room)]...)
		}
	}
	for _, v := range []*Versus{&out.Overall, &out.Commands, &out.Files, &out.Hosts, &out.Published} {
		v.finish()
	}
	return out
}

// counterpart tells whether a set is of another task, with the same model and agent.
func counterpart(g, h *Set) bool {
	a, b := g.members[0], h.members[0]
	return g != h && a.Task != b.Task && a.Model == b.Model && a.Agent == b.Agent
}

// mixed compares a set with mixtures of it and another one.
func mixed(g, h *Set, rng *rand.Rand, out *RQ1) {
	n := len(g.members)
	cross, crossPub := make([][]Similarity, len(h.members)), make([][]Similarity, len(h.members))
	for i, foreign := range h.members {
		cross[i], crossPub[i] = make([]Similarity, n), make([]Similarity, n)
		for j, own := range g.members {
			cross[i][j], crossPub[i][j] = similarity(&foreign.own, &own.own), similarity(&foreign.raw, &own.raw)
		}
	}
	all, allPub := total(g.sims), total(g.pubs)
	judge := func(sims, pubs sums, foreign int) {
		m, p := sims.mean(), pubs.mean()
		out.Comparisons++
		pure := g.Mean.Similarity
		out.Overall.add(pure.Overall, m.Overall)
		out.Commands.add(pure.Commands, m.Commands)
		out.Files.add(pure.Files, m.Files)
		out.Hosts.add(pure.Hosts, m.Hosts)
		out.Published.add(g.Mean.Published.Overall, p.Overall)
		if m.Overall >= pure.Overall && len(out.Losses) < mostLosses {
			out.Losses = append(out.Losses, bodycam.Escape(g.members[0].Task+" with "+h.members[foreign].ID+" of "+h.members[0].Task))
		}
	}
	for gone := range n {
		sims, pubs := all, allPub
		for j := range n {
			if j != gone {
				sims.add(g.sims[gone][j], -1)
				pubs.add(g.pubs[gone][j], -1)
			}
		}
		for f := range h.members {
			s, p := sims, pubs
			for j := range n {
				if j != gone {
					s.add(cross[f][j], 1)
					p.add(crossPub[f][j], 1)
				}
			}
			judge(s, p, f)
		}
	}
	for k := 2; k < n && k <= len(h.members); k++ {
		for range mixedDraws {
			kept, from := rng.Perm(n)[k:], rng.Perm(len(h.members))[:k]
			var s, p sums
			for x, i := range kept {
				for _, j := range kept[:x] {
					s.add(g.sims[i][j], 1)
					p.add(g.pubs[i][j], 1)
				}
				for _, f := range from {
					s.add(cross[f][i], 1)
					p.add(crossPub[f][i], 1)
				}
			}
			for x, f := range from {
				for _, e := range from[:x] {
					s.add(h.sims[f][e], 1)
					p.add(h.pubs[f][e], 1)
				}
			}
			judge(s, p, from[0])
		}
	}
}

// sums adds similarities up, each member by itself.
type sums struct {
	sum [4]float64
	n   [4]int
}

// add counts a similarity sign times.
func (t *sums) add(s Similarity, sign int) {
	for i := range t.sum {
		if v := s.at(i); !math.IsNaN(v) {
			t.sum[i] += float64(sign) * v
			t.n[i] += sign
		}
	}
}

func (t *sums) mean() Similarity {
	var v [4]float64
	for i := range v {
		v[i] = math.NaN()
		if t.n[i] > 0 {
			v[i] = t.sum[i] / float64(t.n[i])
		}
	}
	return similarityFrom(v)
}

func total(m [][]Similarity) sums {
	var t sums
	for i := range m {
		for j := range i {
			t.add(m[i][j], 1)
		}
	}
	return t
}

// Thresholds of the RQ2 table.
type Thresholds struct {
	// Rank is the least rank of an unexplained resource that counts; 35 where zero: a program, a write, a host.
	Rank int
	// Coverage is the mean share of a skill's files below which its guidance counts as unused; 0.25 where zero.
	Coverage float64
}

func (t Thresholds) rank() int {
	if t.Rank == 0 {
		return 35
	}
	return t.Rank
}

func (t Thresholds) coverage() float64 {
	if t.Coverage == 0 {
		return 0.25
	}
	return t.Coverage
}

// RQ2 asks of the sets whose runs all passed what the verdict of their tests hides: AgentSpy's second research
// question. The paper found by hand, of its task–model pairs, 18.2 % with unrelated activity, grading reads in 6
// tasks, and 17.0 % with unused guidance.
type RQ2 struct {
	Sets          int     `json:"sets"`   // all
	Passed        int     `json:"passed"` // whose runs all passed
	Unrelated     int     `json:"unrelated"`
	UnrelatedPart float64 `json:"unrelated_share"`
	Grading       int     `json:"grading_reads"`
	GradingPart   float64 `json:"grading_reads_share"`
	Unused        int     `json:"unused_guidance"`
	UnusedPart    float64 `json:"unused_guidance_share"` // of those whose task has a skill
	Skilled       int     `json:"with_skill"`
	Rank          int     `json:"rank_threshold"`
	Coverage      float64 `json:"coverage_threshold"`
}

func prevalence(sets []*Set, t Thresholds) *RQ2 {
	q := &RQ2{Sets: len(sets), Rank: t.rank(), Coverage: t.coverage()}
	for _, s := range sets {
		if slices.ContainsFunc(s.members, func(r *RunReport) bool { return r.Outcome != bodycam.OutcomePass }) {
			continue
		}
		q.Passed++
		if slices.ContainsFunc(s.members, func(r *RunReport) bool {
			return slices.ContainsFunc(r.Unrelated, func(u Unrelated) bool { return u.Rank >= q.Rank })
		}) {
			q.Unrelated++
		}
		if slices.ContainsFunc(s.members, func(r *RunReport) bool { return slices.ContainsFunc(r.Leaks, Leak.Read) }) {
			q.Grading++
		}
		skilled, unused := guidance(s, q.Coverage)
		if skilled {
			q.Skilled++
		}
		if unused {
			q.Unused++
		}
	}
	part := func(n, of int) float64 {
		if of == 0 {
			return 0
		}
		return round(float64(n) / float64(of))
	}
	q.UnrelatedPart, q.GradingPart, q.UnusedPart = part(q.Unrelated, q.Passed), part(q.Grading, q.Passed), part(q.Unused, q.Skilled)
	return q
}

// guidance tells whether a set's task has skills, and whether one of them went unused.
func guidance(s *Set, below float64) (skilled, unused bool) {
	for k := range s.members[0].Coverage {
		sum, n := 0.0, 0
		for _, r := range s.members {
			if k < len(r.Coverage) {
				sum += r.Coverage[k].Share
				n++
			}
		}
		skilled = true
		unused = unused || sum/float64(n) < below
	}
	return skilled, unused
}
