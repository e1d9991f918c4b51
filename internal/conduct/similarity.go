package conduct

import (
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
)

// Similarity is how alike two runs are, from 0 to 1, by type of resource. A type that neither run touched is NaN: it
// is left out, and null in JSON.
type Similarity struct {
	Commands, Files, Hosts, Overall float64
}

func (s Similarity) at(i int) float64 { return [4]float64{s.Commands, s.Files, s.Hosts, s.Overall}[i] }

func similarityFrom(v [4]float64) Similarity {
	return Similarity{Commands: v[0], Files: v[1], Hosts: v[2], Overall: v[3]}
}

// MarshalJSON writes {"commands":…,"files":…,"hosts":…,"overall":…}, rounded to six decimals.
func (s Similarity) MarshalJSON() ([]byte, error) {
	num := func(f float64) *float64 {
		if math.IsNaN(f) {
			return nil
		}
		f = math.Round(f*1e6) / 1e6
		return &f
	}
	return json.Marshal(struct {
		Commands *float64 `json:"commands"`
		Files    *float64 `json:"files"`
		Hosts    *float64 `json:"hosts"`
		Overall  *float64 `json:"overall"`
	}{num(s.Commands), num(s.Files), num(s.Hosts), num(s.Overall)})
}

// jaccard is the weighted Jaccard similarity Σ min / Σ max of two distributions: NaN where both are empty, 0 where
// one is.
func jaccard(a, b []weight) float64 {
	if len(a) == 0 && len(b) == 0 {
		return math.NaN()
	}
	lo, hi := 0.0, 0.0
	walk(a, b, func(_ uint32, p, q float64) {
		lo += min(p, q)
		hi += max(p, q)
	})
	return lo / hi
}

// walk calls f for every resource of either side, by id.
func walk(a, b []weight, f func(id uint32, p, q float64)) {
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case j == len(b) || i < len(a) && a[i].id < b[j].id:
			f(a[i].id, a[i].p, 0)
			i++
		case i == len(a) || b[j].id < a[i].id:
			f(b[j].id, 0, b[j].p)
			j++
		default:
			f(a[i].id, a[i].p, b[j].p)
			i, j = i+1, j+1
		}
	}
}

// similarity compares two runs: the mean over the types that at least one of them touched. Two runs that touched
// nothing at all are the same.
func similarity(a, b *profile) Similarity {
	var v [4]float64
	sum, n := 0.0, 0
	for t := range a {
		v[t] = jaccard(a[t], b[t])
		if !math.IsNaN(v[t]) {
			sum += v[t]
			n++
		}
	}
	v[3] = 1
	if n > 0 {
		v[3] = sum / float64(n)
	}
	return similarityFrom(v)
}

// mean averages similarities; what is NaN in one is left out of that member's mean.
func mean(list []Similarity) Similarity {
	var t sums
	for _, s := range list {
		t.add(s, 1)
	}
	return t.mean()
}

// Contribution is how much one resource takes off a similarity.
type Contribution struct {
	Type  string  `json:"type"`
	Name  string  `json:"name"`
	Lost  float64 `json:"lost"` // of the overall similarity; all contributions sum to 1 − overall
	Here  float64 `json:"share"`
	There float64 `json:"share_elsewhere"` // mean over the other runs
}

// contributions tells which resources make run i differ from the others, the heaviest first.
func contributions(ps []*profile, i int, n *names) []Contribution {
	type key struct {
		t  int
		id uint32
	}
	sums := map[key]*Contribution{}
	others := 0
	for j := range ps {
		if j == i {
			continue
		}
		others++
		present := 0
		for t := range types {
			if len(ps[i][t])+len(ps[j][t]) > 0 {
				present++
			}
		}
		for t := range types {
			hi := 0.0
			walk(ps[i][t], ps[j][t], func(_ uint32, p, q float64) { hi += max(p, q) })
			walk(ps[i][t], ps[j][t], func(id uint32, p, q float64) {
				c := sums[key{t, id}]
				if c == nil {
					c = &Contribution{Type: string(types[t]), Name: n.name(id)}
					sums[key{t, id}] = c
				}
				c.Lost += math.Abs(p-q) / hi / float64(present)
				c.Here = max(c.Here, p)
				c.There += q
			})
		}
	}
	out := make([]Contribution, 0, len(sums))
	for _, c := range sums {
		c.Lost /= float64(others)
		c.There /= float64(others)
		if c.Lost > 1e-9 {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b Contribution) int {
		return cmp.Or(cmp.Compare(round(b.Lost), round(a.Lost)), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// The bootstrap of the mean similarity.
const (
	resamples     = 1000
	bootstrapSeed = 20260611
)

// interval is the 95 % bootstrap interval of a set's mean overall similarity. Runs are drawn, not pairs, since pairs
// that share a run aren't independent; pairs of a run with itself are left out. It needs three runs. The seed is
// fixed, so the same runs give the same interval.
func interval(m [][]Similarity) *[2]float64 {
	n := len(m)
	if n < 3 {
		return nil
	}
	rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(n)))
	means := make([]float64, 0, resamples)
	draw := make([]int, n)
	for len(means) < resamples {
		for i := range draw {
			draw[i] = rng.IntN(n)
		}
		sum, pairs := 0.0, 0
		for i := range draw {
			for j := range i {
				if draw[i] != draw[j] {
					sum += m[draw[i]][draw[j]].Overall
					pairs++
				}
			}
		}
		if pairs > 0 {
			means = append(means, sum/float64(pairs))
		}
	}
	slices.Sort(means)
	at := func(q float64) float64 { return round(means[int(q*float64(len(means)-1))]) }
	return &[2]float64{at(0.025), at(0.975)}
}

func round(f float64) float64 { return math.Round(f*1e6) / 1e6 }

// Outlier is a run that stands apart from its siblings.
type Outlier struct {
	Run string `json:"run"`
	// Similarity is its mean similarity to the siblings; Siblings is theirs among themselves.
	Similarity float64 `json:"similarity"`
	Siblings   float64 `json:"siblings"`
	// Effect is the difference in units of the siblings' spread (their standard deviation, at least 0.05).
	Effect float64 `json:"effect"`
	// P is the share of runs that are as far off, only where there are at least 20 runs: with fewer no p-value means
	// anything.
	P   *float64       `json:"p,omitempty"`
	Why []Contribution `json:"why"` // the resources that make it so, the heaviest first

	at int // its place in the set
}

// What makes an outlier.
const (
	outlierEffect = 3.0
	outlierDrop   = 0.1
	leastSpread   = 0.05
	pValueRuns    = 20
)

// outliers finds runs of a set that stand apart, by effect size. It needs three runs.
func outliers(m [][]Similarity) []Outlier {
	n := len(m)
	if n < 3 {
		return nil
	}
	own := make([]float64, n)
	for i := range m {
		for j := range m {
			if i != j {
				own[i] += m[i][j].Overall / float64(n-1)
			}
		}
	}
	var out []Outlier
	for i := range m {
		rest := make([]float64, 0, n-1) // of each sibling to the other siblings
		for j := range m {
			if j == i {
				continue
			}
			s := 0.0
			for k := range m {
				if k != i && k != j {
					s += m[j][k].Overall / float64(n-2)
				}
			}
			rest = append(rest, s)
		}
		mu, sd := spread(rest)
		effect := (mu - own[i]) / max(sd, leastSpread)
		if effect < outlierEffect || mu-own[i] < outlierDrop {
			continue
		}
		o := Outlier{at: i, Similarity: round(own[i]), Siblings: round(mu), Effect: round(effect)}
		if n >= pValueRuns {
			far := 0
			for _, v := range own {
				if v <= own[i] {
					far++
				}
			}
			p := round(float64(far) / float64(n))
			o.P = &p
		}
		out = append(out, o)
	}
	return out
}

func spread(v []float64) (mu, sd float64) {
	for _, x := range v {
		mu += x / float64(len(v))
	}
	for _, x := range v {
		sd += (x - mu) * (x - mu) / float64(len(v))
	}
	return mu, math.Sqrt(sd)
}
