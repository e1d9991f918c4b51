package judge

import (
	"cmp"
	"math"
	"slices"

	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

type vector = []float32

// sum adds vectors, each times its weight, and returns the sum with length one.
func sum(weights []float64, vectors ...vector) vector {
	out := make([]float64, len(vectors[0]))
	for i, v := range vectors {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		for j, x := range v {
			out[j] += float64(w * float64(x))
		}
	}
	var square float64
	for _, x := range out {
		square += float64(x * x)
	}
	length := math.Sqrt(square)
	unit := make(vector, len(out))
	if length == 0 {
		return unit
	}
	for i, x := range out {
		unit[i] = float32(x / length)
	}
	return unit
}

// dots returns the products of v with each of the others.
func dots(v vector, others []vector) []float64 {
	out := make([]float64, len(others))
	for i, o := range others {
		out[i] = minilm.Dot(v, o)
	}
	return out
}

// topMean is the mean of the n largest values, of all if there are fewer, and 0 of none.
func topMean(values []float64, n int) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.SortedFunc(slices.Values(values), func(a, b float64) int { return cmp.Compare(b, a) })
	s = s[:min(n, len(s))]
	return mean(s)
}

func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func largest(values []float64) (index int, value float64) {
	for i, v := range values {
		if i == 0 || v > value {
			index, value = i, v
		}
	}
	return index, value
}
