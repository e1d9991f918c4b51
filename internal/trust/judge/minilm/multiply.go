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
	for r := range m.rows {
		w := m.w[r*m.cols : (r+1)*m.cols]
		scale, b := m.scale[r], bias[r]
		for t := 0; t < n; t += group {
			if useAVX2 {
				dotAVX2(&w[0], &in.q[t*m.cols], m.cols, &in.sums)
			} else {
				dotGo(w, in.pairs[t/2*m.cols:], &in.sums)
			}
			for i := range min(group, n-t) {
				y[(t+i)*m.rows+r] = float64(float64(in.sums[i])*float64(scale*in.scale[t+i])) + b
			}
		}
	}
}

// dotGo sets sums to the dot products of w with four tokens in two rows of pairs. The lower half of a sum may be
// negative and then has borrowed one from the upper.
func dotGo(w []int8, pairs []int64, sums *[group]int32) {
	var s, t int64
	a, b := pairs[:len(w)], pairs[len(w):2*len(w)]
	for ; len(w) >= 4 && len(a) >= 4 && len(b) >= 4; w, a, b = w[4:], a[4:], b[4:] { // the lengths spare bounds checks
		w0, w1, w2, w3 := int64(w[0]), int64(w[1]), int64(w[2]), int64(w[3])
		s += w0*a[0] + w1*a[1] + w2*a[2] + w3*a[3]
		t += w0*b[0] + w1*b[1] + w2*b[2] + w3*b[3]
	}
	sums[0], sums[1] = int32(s), int32((s-int64(int32(s)))>>32)
	sums[2], sums[3] = int32(t), int32((t-int64(int32(t)))>>32)
}
