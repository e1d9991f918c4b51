package minilm

// levels is the largest rounded input: 12 bits with the sign. int8 would do for speed but costs accuracy; more would not
// fit a sum over 1,536 products into 32 bits.
const levels = 2047

// group is how many tokens the kernels take at a time.
const group = 4

// inputs are the rows of a matrix product's input, rounded to integers with one scale a row.
type inputs struct {
	q      []int16   // rows, padded with zeros to a multiple of group
	pairs  []int64   // the same, two rows to a number, for the kernel in Go
	scale  []float64 // one a row
	sums   [group]int32
	padded int
}

// round fills in from n rows of x.
func (in *inputs) round(x []float64, n int) {
	width := len(x) / n
	in.padded = (n + group - 1) / group * group
	if cap(in.q) < in.padded*width {
		in.q = make([]int16, in.padded*width)
	}
	in.q = in.q[:in.padded*width]
	clear(in.q[n*width:])
	if cap(in.scale) < in.padded {
		in.scale = make([]float64, in.padded)
	}
	in.scale = in.scale[:in.padded]
	for t := range n {
		row, q := x[t*width:(t+1)*width], in.q[t*width:(t+1)*width]
		var largest float64
		for _, v := range row {
			largest = max(largest, v, -v)
		}
		if largest == 0 {
			in.scale[t] = 0
			clear(q)
			continue
		}
		in.scale[t] = largest / levels
		inv := levels / largest
		for i, v := range row { // to the nearest, halves up: adding before truncating keeps the argument positive
			q[i] = int16(int32(float64(v*inv)+(levels+1.5)) - (levels + 1))
		}
	}
	if !useAVX2 {
		in.pair(width)
	}
}

// pair puts two tokens into one number, 32 bits apart, so that one multiplication serves both.
func (in *inputs) pair(width int) {
	if cap(in.pairs) < len(in.q)/2 {
		in.pairs = make([]int64, len(in.q)/2)
	}
	in.pairs = in.pairs[:len(in.q)/2]
	for p := range in.padded / 2 {
		a, b := in.q[2*p*width:][:width], in.q[(2*p+1)*width:][:width]
		out := in.pairs[p*width:][:width]
		for i := range out {
			out[i] = int64(a[i]) + int64(b[i])<<32
		}
	}
}

// multiply sets y to x·mᵀ + bias for n rows.
func (m *matrix) multiply(y, x []float64, n int, bias []float64, in *inputs) {
	in.round(x, n)
	if !useAVX2 {
		m.multiplyGo(y, n, bias, in)
		return
	}
	for r := range m.rows {
		w := m.w[r*m.cols : (r+1)*m.cols]
		for t := 0; t < n; t += group {
			dotAVX2(&w[0], &in.q[t*m.cols], m.cols, &in.sums)
			m.store(y, r, t, n, bias, in, &in.sums)
		}
	}
}

// multiplyGo is the same without the kernel in assembly: two rows of the matrix at a time, which saves loads.
func (m *matrix) multiplyGo(y []float64, n int, bias []float64, in *inputs) {
	var last [group]int32
	for r := 0; r < m.rows; r += 2 {
		s := min(r+1, m.rows-1) // an odd last row is done twice
		v, w := m.w[r*m.cols:(r+1)*m.cols], m.w[s*m.cols:(s+1)*m.cols]
		for t := 0; t < n; t += group {
			dotGo(v, w, in.pairs[t/2*m.cols:], &in.sums, &last)
			m.store(y, r, t, n, bias, in, &in.sums)
			m.store(y, s, t, n, bias, in, &last)
		}
	}
}

// store turns the sums of row r and up to group tokens from t on into y.
func (m *matrix) store(y []float64, r, t, n int, bias []float64, in *inputs, sums *[group]int32) {
	scale, b := m.scale[r], bias[r]
	for i := range min(group, n-t) {
		y[(t+i)*m.rows+r] = float64(float64(sums[i])*float64(scale*in.scale[t+i])) + b
	}
}

// dotGo sets p and q to the dot products of v and w with four tokens in two rows of pairs.
func dotGo(v, w []int8, pairs []int64, p, q *[group]int32) {
	n := len(v)
	w, a, b := w[:n], pairs[:n], pairs[n:2*n] // the lengths spare bounds checks
	var va, vb, wa, wb int64
	for i := range v {
		x, y := int64(v[i]), int64(w[i])
		c, d := a[i], b[i]
		va += x * c
		vb += x * d
		wa += y * c
		wb += y * d
	}
	p[0], p[1] = halves(va)
	p[2], p[3] = halves(vb)
	q[0], q[1] = halves(wa)
	q[2], q[3] = halves(wb)
}

// halves takes two sums apart. The lower may be negative and then has borrowed one from the upper.
func halves(s int64) (lower, upper int32) {
	lower = int32(s)
	return lower, int32((s - int64(lower)) >> 32)
}
