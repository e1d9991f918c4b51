package judge

import (
	"fmt"
	"math"
	"slices"
)

// Head is a fitted softmax regression over named features. Heads are written by the program in fit and never by hand.
type Head struct {
	Classes  []string    `json:"classes"`
	Features []string    `json:"features"`
	Weights  [][]float64 `json:"weights"` // one row a class: a weight a feature, then the bias
}

func (h *Head) check(name string, features []string) error {
	if !slices.Equal(h.Features, features) {
		return fmt.Errorf("the head %s was fitted to other features than this program has", name)
	}
	if len(h.Classes) < 2 || len(h.Weights) != len(h.Classes) {
		return fmt.Errorf("the head %s has %d classes and %d rows", name, len(h.Classes), len(h.Weights))
	}
	for _, row := range h.Weights {
		if len(row) != len(h.Features)+1 {
			return fmt.Errorf("the head %s has %d features and a row of %d weights", name, len(h.Features), len(row))
		}
	}
	return nil
}

// Predict returns a probability a class. The sums run in a fixed order, without fused operations, so that they are the
// same everywhere.
func (h *Head) Predict(x []float64) []float64 {
	out := make([]float64, len(h.Classes))
	highest := math.Inf(-1)
	for c, row := range h.Weights {
		sum := row[len(x)]
		for i, v := range x {
			sum += float64(v * row[i])
		}
		out[c] = sum
		highest = max(highest, sum)
	}
	var total float64
	for c := range out {
		out[c] = Exp(out[c] - highest)
		total += out[c]
	}
	for c := range out {
		out[c] /= total
	}
	return out
}

// Exp is e^x to 1e-12, the same to the bit on every machine, which math.Exp isn't.
func Exp(x float64) float64 {
	if x < -700 {
		return 0
	}
	x = min(x, 700)
	n := math.Floor(float64(x/math.Ln2) + .5)
	r := x - float64(n*math.Ln2)
	term, sum := 1.0, 1.0
	for i := 1; i < 16; i++ {
		term = float64(term*r) / float64(i)
		sum += term
	}
	return math.Ldexp(sum, int(n))
}
