package minilm

import "sync"

// Tables of exp and GELU: see the package comment on why not math.Exp and math.Erf.
const (
	expSteps  = 4096 // steps of softmax's argument a unit
	expCoarse = 256
	geluSteps = 512
	geluRange = 6 // beyond it GELU is 0 or its argument, to 1e-8
)

type tables struct {
	coarse, fine [expCoarse]float64 // exp(-i/16), exp(-i/4096)
	gelu         []float64
}

var table = sync.OnceValue(func() *tables {
	t := new(tables)
	const e16, e4096 = 0.93941306281347578611971, 0.99975588917489722 // exp(-1/16), exp(-1/4096)
	t.coarse[0], t.fine[0] = 1, 1
	for i := 1; i < expCoarse; i++ {
		t.coarse[i], t.fine[i] = t.coarse[i-1]*e16, t.fine[i-1]*e4096
	}
	for i := -geluRange * geluSteps; i <= geluRange*geluSteps+1; i++ {
		x := float64(i) / geluSteps
		t.gelu = append(t.gelu, float64(x*.5)*(1+erf(x*0.70710678118654752440)))
	}
	return t
})

// erf is the Maclaurin series, good to 1e-8 in the range of the table.
func erf(z float64) float64 {
	square, term, sum := float64(z*z), z, z
	for n := 1; n < 160; n++ {
		term = -float64(term*square) / float64(n)
		sum += term / float64(2*n+1)
	}
	return float64(sum * 1.12837916709551257390) // 2/√π
}

// exp returns e^-x for x ≥ 0.
func (t *tables) exp(x float64) float64 {
	n := int(float64(x*expSteps) + .5)
	if n >= expCoarse*expCoarse {
		return 0
	}
	return t.coarse[n>>8] * t.fine[n&255]
}

func (t *tables) geluAt(x float64) float64 {
	if x <= -geluRange {
		return 0
	}
	if x >= geluRange {
		return x
	}
	at := float64((x + geluRange) * geluSteps)
	i := int(at)
	a := t.gelu[i]
	return a + float64((t.gelu[i+1]-a)*(at-float64(i)))
}
