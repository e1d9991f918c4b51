package score

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a two-sided 95 % interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const z95 = 1.959963984540054

// Wilson is Wilson's score interval for c successes of n. Without trials nothing is known.
func Wilson(c, n float64) Interval {
	if n <= 0 {
		return Interval{0, 1}
	}
	p, z2 := c/n, z95*z95
	mid := (p + z2/(2*n)) / (1 + z2/n)
	half := z95 / (1 + z2/n) * math.Sqrt(p*(1-p)/n+z2/(4*n*n))
	return Interval{max(0, mid-half), min(1, mid+half)}
}

// PassHatK is the chance that k tries drawn from n, of which c passed, all pass: C(c,k)/C(n,k).
func PassHatK(c, n, k int) float64 {
	if k <= 0 || k > n || c < 0 || c > n {
		return math.NaN()
	}
	p := 1.0
	for i := range k {
		p *= float64(c-i) / float64(n-i)
	}
	return max(0, p)
}

// Unseen estimates what observation has not shown yet, from incidences: for each tool, in how many probes it was seen.
type Unseen struct {
	Seen       int     `json:"seen"`        // tools observed
	Once       int     `json:"once"`        // Q1: seen in one probe only
	Twice      int     `json:"twice"`       // Q2
	GoodTuring float64 `json:"good_turing"` // chance that the next incidence is a new tool
	Chao2      float64 `json:"chao2"`       // estimated number of tools, seen and unseen
}

// EstimateUnseen computes the estimates over m probes.
func EstimateUnseen(incidences map[string]int, m int) Unseen {
	u := Unseen{Seen: len(incidences)}
	total := 0
	for _, n := range incidences {
		total += n
		switch n {
		case 1:
			u.Once++
		case 2:
			u.Twice++
		}
	}
	if total > 0 {
		u.GoodTuring = float64(u.Once) / float64(total)
	}
	u.Chao2 = float64(u.Seen)
	if m > 0 {
		u.Chao2 += float64(m-1) / float64(m) * float64(u.Once*(u.Once-1)) / float64(2*(u.Twice+1))
	}
	return u
}

// value is what one sending of a probe is worth: between Low and High where the judge abstained. Judged tells that the
// judge's opinion alone makes it.
type value struct {
	Interval
	Judged bool
}

// cluster is the values of one probe: one for each repeat.
type cluster []value

// means are a scope's: of what evidence settled and of what the judge said, each weighed by its share of the scope.
type means struct {
	settled Interval // already times its share
	judged  Interval // not yet
	share   float64  // of the judged
}

// corrected is the mean of a scope, with what the judge said corrected by correct.
func (m means) corrected(correct func(low, high float64) (float64, float64)) Interval {
	if m.share == 0 {
		return m.settled
	}
	low, high := correct(m.judged.Low, m.judged.High)
	return Interval{m.settled.Low + m.share*low, m.settled.High + m.share*high}
}

// resamples is how often the bootstrap draws.
const resamples = 2000

// bootstrap is the 95 % interval of combine over scopes whose probes are drawn again with replacement, whole probes at a
// time. A scope in which all probes pass, or all fail, has no spread to draw from, and would show a certainty that
// nobody has: its mean is drawn from the distribution of rates that could have given it, as Wilson's interval does.
func bootstrap(seed uint64, scopes [][]cluster, combine func(rng *rand.Rand, m []means) Interval) Interval {
	rng := rand.New(rand.NewPCG(seed, 0x626f6479))
	low, high := make([]float64, resamples), make([]float64, resamples)
	drawn := make([]means, len(scopes))
	for r := range resamples {
		for i, list := range scopes {
			drawn[i] = resample(rng, list)
		}
		c := combine(rng, drawn)
		low[r], high[r] = c.Low, c.High
	}
	slices.Sort(low)
	slices.Sort(high)
	return Interval{low[resamples*25/1000], high[resamples*975/1000-1]}
}

func resample(rng *rand.Rand, list []cluster) means {
	n := len(list)
	if v, flat := same(list); flat {
		u := math.Pow(rng.Float64(), 1/float64(n+1))
		if v == 0 {
			u = 1 - u
		}
		if list[0][0].Judged {
			return means{judged: Interval{u, u}, share: 1}
		}
		return means{settled: Interval{u, u}}
	}
	again := make([]cluster, n)
	for i := range again {
		again[i] = list[rng.IntN(n)]
	}
	return average(again)
}

// average is the mean of some values.
func average(list []cluster) (m means) {
	all, judged := 0.0, 0.0
	for _, c := range list {
		for _, v := range c {
			all++
			if v.Judged {
				judged++
				m.judged.Low += v.Low
				m.judged.High += v.High
			} else {
				m.settled.Low += v.Low
				m.settled.High += v.High
			}
		}
	}
	if judged > 0 {
		m.judged.Low /= judged
		m.judged.High /= judged
	}
	m.settled.Low /= all
	m.settled.High /= all
	m.share = judged / all
	return m
}

// same tells whether all values are 1, or all 0, and all of one source.
func same(list []cluster) (float64, bool) {
	first := list[0][0]
	if first.Low != first.High || first.Low != 0 && first.Low != 1 {
		return 0, false
	}
	for _, c := range list {
		for _, x := range c {
			if x != first {
				return 0, false
			}
		}
	}
	return first.Low, true
}

func mean(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	s := 0.0
	for _, v := range list {
		s += v
	}
	return s / float64(len(list))
}
