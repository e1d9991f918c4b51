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

// RoganGladen corrects a rate that a judge measured by the judge's own errors: q1 is the chance that it says yes where
// yes is true, q0 that it says no where no is true. ok is false where the judge tells nothing.
func RoganGladen(p, q0, q1 float64) (theta float64, ok bool) {
	d := q0 + q1 - 1
	if d <= 0 {
		return 0, false
	}
	return min(1, max(0, (p+q0-1)/d)), true
}

// cluster is the values of one probe: one for each repeat, each between low and high where the judge abstained.
type cluster []Interval

// resamples is how often the bootstrap draws.
const resamples = 2000

// bootstrap is the 95 % interval of combine over scopes whose probes are drawn again with replacement, whole probes at a
// time. A scope in which all probes pass, or all fail, has no spread to draw from, and would show a certainty that
// nobody has: its mean is drawn from the distribution of rates that could have given it, as Wilson's interval does.
func bootstrap(seed uint64, scopes [][]cluster, combine func(means []float64) float64) Interval {
	rng := rand.New(rand.NewPCG(seed, 0x626f6479))
	low, high := make([]float64, resamples), make([]float64, resamples)
	lows, highs := make([]float64, len(scopes)), make([]float64, len(scopes))
	for r := range resamples {
		for i, list := range scopes {
			lows[i], highs[i] = resample(rng, list)
		}
		low[r], high[r] = combine(lows), combine(highs)
	}
	slices.Sort(low)
	slices.Sort(high)
	return Interval{low[resamples*25/1000], high[resamples*975/1000-1]}
}

func resample(rng *rand.Rand, list []cluster) (low, high float64) {
	n := len(list)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	if v, flat := same(list); flat {
		u := math.Pow(rng.Float64(), 1/float64(n+1))
		if v == 0 {
			u = 1 - u
		}
		return u, u
	}
	weight := 0.0
	for range n {
		for _, v := range list[rng.IntN(n)] {
			low += v.Low
			high += v.High
			weight++
		}
	}
	return low / weight, high / weight
}

// same tells whether all values are 1, or all 0.
func same(list []cluster) (float64, bool) {
	v := list[0][0].Low
	if v != 0 && v != 1 {
		return 0, false
	}
	for _, c := range list {
		for _, x := range c {
			if x.Low != v || x.High != v {
				return 0, false
			}
		}
	}
	return v, true
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
