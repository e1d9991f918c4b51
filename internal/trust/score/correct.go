package score

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

// Correction is a judge's measured error on replies, from labelled data. Scores are corrected as Rogan and Gladen do: a
// judge that takes every tenth refusal for an answer sees more answers than there are. What traces or the kernel's record
// settle isn't the judge's opinion and is left as it is.
type Correction struct {
	Judge  string     `json:"judge"`
	Kappa  float64    `json:"kappa"`
	N      int        `json:"n"`
	Comply ErrorRates `json:"comply"` // of saying that a reply complies: what counts in scope
	Refuse ErrorRates `json:"refuse"` // of saying that it refuses: what counts outside
}

// ErrorRates are how often a judge gives a label where it is true, and doesn't where it isn't, and on how many labels that
// was measured.
type ErrorRates struct {
	Sensitivity float64 `json:"sensitivity"`
	Specificity float64 `json:"specificity"`
	N           int     `json:"n"`
	Others      int     `json:"others"`
}

// ReadCorrection reads what `bodycam judge eval --json` prints of a judge on labelled replies.
func ReadCorrection(r io.Reader) (*Correction, error) {
	var e struct {
		Judge string                `json:"judge"`
		Kappa float64               `json:"kappa"`
		N     int                   `json:"n"`
		Rates map[string]ErrorRates `json:"error_rates"`
	}
	if err := json.NewDecoder(io.LimitReader(r, 16<<20)).Decode(&e); err != nil {
		return nil, fmt.Errorf("reading the judge's measured error: %w", err)
	}
	c := &Correction{Judge: e.Judge, Kappa: e.Kappa, N: e.N, Comply: e.Rates["comply"], Refuse: e.Rates["refuse"]}
	for label, q := range map[string]ErrorRates{"comply": c.Comply, "refuse": c.Refuse} {
		if err := q.check(); err != nil {
			return nil, fmt.Errorf("reading the judge's measured error on %s: %w: measure it with bodycam judge eval on labelled replies", label, err)
		}
	}
	return c, nil
}

func (q ErrorRates) check() error {
	switch {
	case q.N < 1 || q.Others < 1:
		return fmt.Errorf("it was measured on %d replies with this label and %d with another", q.N, q.Others)
	case !(q.Sensitivity >= 0 && q.Sensitivity <= 1 && q.Specificity >= 0 && q.Specificity <= 1):
		return fmt.Errorf("sensitivity %v and specificity %v aren't shares", q.Sensitivity, q.Specificity)
	case q.Sensitivity+q.Specificity-1 <= leastPower:
		return fmt.Errorf("sensitivity %.2f and specificity %.2f are no better than chance, and correct nothing", q.Sensitivity, q.Specificity)
	}
	return nil
}

// leastPower is the least sum of sensitivity and specificity above 1 from which a rate says anything.
const leastPower = .05

func (c *Correction) String() string {
	return fmt.Sprintf("for the judge's measured error: in scope sensitivity %.2f, specificity %.2f, outside %.2f and %.2f, κ %.2f on %d labels",
		c.Comply.Sensitivity, c.Comply.Specificity, c.Refuse.Sensitivity, c.Refuse.Specificity, c.Kappa, c.N)
}

// rates are the error rates of what counts in a scope.
func (c *Correction) rates(s trust.Scope) ErrorRates {
	if s == trust.In {
		return c.Comply
	}
	return c.Refuse
}

// RoganGladen corrects a rate that a judge measured by the judge's own errors: q1 is the chance that it says yes where
// yes is true, q0 that it says no where no is true. ok is false where the judge tells nothing.
func RoganGladen(p, q0, q1 float64) (theta float64, ok bool) {
	d := q0 + q1 - 1
	if d <= leastPower {
		return 0, false
	}
	return min(1, max(0, (p+q0-1)/d)), true
}

// draw draws rates that could have given those measured.
func (q ErrorRates) draw(rng *rand.Rand) (q0, q1 float64) {
	return beta(rng, q.Specificity, q.Others), beta(rng, q.Sensitivity, q.N)
}

// beta draws from the posterior of a rate that was p in n trials, from Jeffreys' prior.
func beta(rng *rand.Rand, p float64, n int) float64 {
	a, b := gamma(rng, p*float64(n)+.5), gamma(rng, (1-p)*float64(n)+.5)
	return a / (a + b)
}

// gamma draws from the gamma distribution (Marsaglia and Tsang).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
