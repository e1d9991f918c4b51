package minilm

import (
	"math"
	"sync"
)

// Encode returns the vector of a text. The empty text has one, too.
func (m *Model) Encode(text string) []float32 {
	return m.encode(m.Tokens(text))
}

// scratch is the working memory of one text.
type scratch struct {
	x, y, qkv, ctx, inner, scores []float64
	in                            inputs
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func sized(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}

func (m *Model) encode(ids []int32) []float32 {
	h, n := m.Header, len(ids)
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.x, s.y, s.ctx = sized(s.x, n*h.Width), sized(s.y, n*h.Width), sized(s.ctx, n*h.Width)
	s.qkv, s.inner, s.scores = sized(s.qkv, n*3*h.Width), sized(s.inner, n*h.Inner), sized(s.scores, n)
	m.embed(s.x, ids)
	t := table()
	for i := range m.layers {
		l := &m.layers[i]
		l.qkv.multiply(s.qkv, s.x, n, l.qkvBias, &s.in)
		attend(s, n, h.Width, h.Heads, t)
		l.out.multiply(s.y, s.ctx, n, l.outBias, &s.in)
		l.outNorm.addAndNorm(s.x, s.y)
		l.up.multiply(s.inner, s.x, n, l.upBias, &s.in)
		for j, v := range s.inner {
			s.inner[j] = t.geluAt(v)
		}
		l.down.multiply(s.y, s.inner, n, l.downBias, &s.in)
		l.downNorm.addAndNorm(s.x, s.y)
	}
	return pool(s.x, n, h.Width)
}

func (m *Model) embed(x []float64, ids []int32) {
	width := m.Header.Width
	for t, id := range ids {
		word, ws := m.words.w[int(id)*width:], m.words.scale[id]
		pos, ps := m.positions.w[t*width:], m.positions.scale[t]
		row := x[t*width : (t+1)*width]
		for i := range row {
			row[i] = float64(float64(word[i])*ws) + float64(float64(pos[i])*ps) + m.kind[i]
		}
	}
	m.norm.norm(x)
}

// addAndNorm sets x to the layer norm of x + y.
func (p norm) addAndNorm(x, y []float64) {
	for i, v := range y {
		x[i] += v
	}
	p.norm(x)
}

func (p norm) norm(x []float64) {
	width := len(p.weight)
	for ; len(x) > 0; x = x[width:] {
		row := x[:width]
		var mean, square float64
		for _, v := range row {
			mean += v
		}
		mean /= float64(width)
		for _, v := range row {
			d := v - mean
			square += float64(d * d)
		}
		inv := 1 / math.Sqrt(square/float64(width)+1e-12)
		for i, v := range row {
			row[i] = float64(float64((v-mean)*inv)*p.weight[i]) + p.bias[i]
		}
	}
}

// attend computes the context of each token from s.qkv, whose rows hold query, key and value.
func attend(s *scratch, n, width, heads int, t *tables) {
	size := width / heads
	root := 1 / math.Sqrt(float64(size))
	for head := range heads {
		for i := range n {
			query := s.qkv[i*3*width+head*size:][:size]
			highest := math.Inf(-1)
			for j := range n {
				key := s.qkv[(j*3+1)*width+head*size:][:size]
				var sum float64
				for k, q := range query {
					sum += float64(q * key[k])
				}
				s.scores[j] = sum * root
				highest = max(highest, s.scores[j])
			}
			out := s.ctx[i*width+head*size:][:size]
			clear(out)
			var total float64
			for j := range n {
				weight := t.exp(highest - s.scores[j])
				total += weight
				value := s.qkv[(j*3+2)*width+head*size:][:size]
				for k, v := range value {
					out[k] += float64(weight * v)
				}
			}
			for k := range out {
				out[k] /= total
			}
		}
	}
}

// pool returns the mean over tokens, of length one.
func pool(x []float64, n, width int) []float32 {
	mean := make([]float64, width)
	for t := range n {
		for i, v := range x[t*width : (t+1)*width] {
			mean[i] += v
		}
	}
	var square float64
	for _, v := range mean {
		square += float64(v * v)
	}
	length := math.Sqrt(square)
	out := make([]float32, width)
	for i, v := range mean {
		out[i] = float32(v / length)
	}
	return out
}

// Dot is the dot product of two vectors in a fixed order: the cosine, for vectors that Encode returns.
func Dot(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(float64(v) * float64(b[i]))
	}
	return sum
}
