package main

import (
	"math"

	"github.com/bodycam-dev/bodycam/internal/trust/judge"
)

// sample is one row to fit on.
type sample struct {
	x      []float64
	class  int
	weight float64
	group  string // what is left out together in cross-validation
	kind   string // for reports
}

// regress fits a softmax regression with a ridge penalty on standardised features. Each step solves against Böhning's
// fixed bound of the Hessian, so that it never overshoots; the result doesn't depend on the machine.
func regress(classes, features []string, samples []sample, ridge float64, steps int) judge.Head {
	n, k := len(features), len(classes)
	mean, dev, total := make([]float64, n), make([]float64, n), 0.0
	for _, s := range samples {
		total += s.weight
		for i, v := range s.x {
			mean[i] += float64(s.weight * v)
		}
	}
	for i := range mean {
		mean[i] /= total
	}
	for _, s := range samples {
		for i, v := range s.x {
			d := v - mean[i]
			dev[i] += float64(float64(d*d) * s.weight)
		}
	}
	for i := range dev {
		if dev[i] = math.Sqrt(dev[i] / total); dev[i] < 1e-9 {
			dev[i] = 1
		}
	}
	rows := make([][]float64, len(samples))
	for r, s := range samples {
		rows[r] = make([]float64, n+1)
		for i, v := range s.x {
			rows[r][i] = (v - mean[i]) / dev[i]
		}
		rows[r][n] = 1
	}
	l := bound(rows, samples, ridge, k)
	h := judge.Head{Classes: classes, Features: features}
	for range k {
		h.Weights = append(h.Weights, make([]float64, n+1))
	}
	for range steps {
		step(&h, rows, samples, l, ridge)
	}
	for _, w := range h.Weights { // back to raw features, rounded to what matters
		for i := range n {
			w[i] /= dev[i]
			w[n] -= float64(w[i] * mean[i])
		}
		for i := range w {
			w[i] = round(w[i])
		}
	}
	return h
}

// bound is the Cholesky factor of ½·XᵀX + ridge, which bounds every class's Hessian. The bias has no penalty to speak of.
func bound(rows [][]float64, samples []sample, ridge float64, classes int) [][]float64 {
	n := len(rows[0])
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n)
	}
	half := .5
	for r, x := range rows {
		for i := range n {
			w := float64(float64(x[i]*samples[r].weight) * half)
			for j := 0; j <= i; j++ {
				a[i][j] += float64(w * x[j])
			}
		}
	}
	for i := range n {
		a[i][i] += penalty(ridge, i, n)
		for j := 0; j <= i; j++ {
			s := a[i][j]
			for m := range j {
				s -= float64(a[i][m] * a[j][m])
			}
			if i == j {
				a[i][i] = math.Sqrt(s)
			} else {
				a[i][j] = s / a[j][j]
			}
		}
	}
	return a
}

func penalty(ridge float64, i, n int) float64 {
	if i == n-1 {
		return 1e-3
	}
	return ridge
}

func step(h *judge.Head, rows [][]float64, samples []sample, l [][]float64, ridge float64) {
	n := len(rows[0])
	gradient := make([][]float64, len(h.Classes))
	for c := range gradient {
		gradient[c] = make([]float64, n)
		for i, w := range h.Weights[c] {
			gradient[c][i] = -float64(penalty(ridge, i, n) * w)
		}
	}
	for r, x := range rows {
		for c, p := range h.Predict(x[:n-1]) {
			y := 0.0
			if samples[r].class == c {
				y = 1
			}
			g := float64((y - p) * samples[r].weight)
			for i, v := range x {
				gradient[c][i] += float64(g * v)
			}
		}
	}
	for c := range gradient {
		for i, d := range solve(l, gradient[c]) {
			h.Weights[c][i] += d
		}
	}
}

// solve returns x of L·Lᵀ·x = b.
func solve(l [][]float64, b []float64) []float64 {
	n := len(b)
	x := make([]float64, n)
	for i := range n {
		s := b[i]
		for j := range i {
			s -= float64(l[i][j] * x[j])
		}
		x[i] = s / l[i][i]
	}
	for i := n - 1; i >= 0; i-- {
		s := x[i]
		for j := i + 1; j < n; j++ {
			s -= float64(l[j][i] * x[j])
		}
		x[i] = s / l[i][i]
	}
	return x
}

// round keeps five significant digits.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := 1.0
	for a := math.Abs(v); a*scale < 1e4; {
		scale *= 10
	}
	return math.RoundToEven(float64(v*scale)) / scale
}
