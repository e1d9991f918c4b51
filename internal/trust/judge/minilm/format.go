package minilm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// Magic begins a model file.
const Magic = "bcminilm1\n"

// Header says what a model file holds and where it comes from.
type Header struct {
	Source    string `json:"source"` // package and version
	SHA256    string `json:"sha256"` // of the wheel, in hex
	Licence   string `json:"licence"`
	Layers    int    `json:"layers"`
	Width     int    `json:"width"`
	Heads     int    `json:"heads"`
	Inner     int    `json:"inner"`     // width of the feed-forward layer
	Positions int    `json:"positions"` // the longest text in tokens
	Vocab     int    `json:"vocab"`     // number of tokens
	VocabLen  int    `json:"vocab_len"` // bytes of the vocabulary
}

// matrix is rows × cols int8 with one scale a row.
type matrix struct {
	rows, cols int
	w          []int8
	scale      []float64
}

type norm struct{ weight, bias []float64 }

type layer struct {
	qkv, out, up, down                 matrix
	qkvBias, outBias, upBias, downBias []float64
	outNorm, downNorm                  norm
}

// Model is a loaded encoder. It is safe for concurrent use.
type Model struct {
	Header Header

	vocab     map[string]int32
	words     matrix
	positions matrix
	kind      []float64 // the embedding of token type 0, the only one in use
	norm      norm
	layers    []layer
}

// reader takes tensors off a model file; the first error stays.
type reader struct {
	data string
	err  error
}

func (r *reader) take(n int) string {
	if r.err != nil {
		return ""
	}
	if n < 0 || n > len(r.data) {
		r.err = fmt.Errorf("%d bytes wanted, %d are left: the file is cut short", n, len(r.data))
		return ""
	}
	s := r.data[:n]
	r.data = r.data[n:]
	return s
}

func (r *reader) vector(n int) []float64 {
	b := r.take(4 * n)
	if r.err != nil {
		return nil
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32([]byte(b[4*i : 4*i+4]))))
		if math.IsNaN(v[i]) || math.IsInf(v[i], 0) {
			r.err = errors.New("a number isn't finite")
		}
	}
	return v
}

func (r *reader) matrix(rows, cols int) matrix {
	b := r.take(rows * cols)
	m := matrix{rows: rows, cols: cols, scale: r.vector(rows)}
	if r.err == nil && len(b) > 0 {
		// The file is embedded as a string, which nobody can write to, and int8 has no alignment: no copy of 22 MB.
		m.w = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.StringData(b))), len(b))
	}
	return m
}

func (r *reader) norm(n int) norm { return norm{weight: r.vector(n), bias: r.vector(n)} }

// load reads a model file, which must stay unchanged while the model is used.
func load(data string) (*Model, error) {
	r := &reader{data: data}
	if r.take(len(Magic)) != Magic {
		return nil, errors.New("read the encoder's model: it doesn't begin as a model file does; make it with scripts/minilm.sh")
	}
	m := new(Model)
	n := r.take(4)
	if r.err == nil {
		if err := json.Unmarshal([]byte(r.take(int(binary.LittleEndian.Uint32([]byte(n))))), &m.Header); err != nil && r.err == nil {
			r.err = err
		}
	}
	h := m.Header
	if r.err == nil && (h.Layers < 1 || h.Layers > 48 || h.Width < 16 || h.Width > 4096 || h.Width%16 != 0 || h.Heads < 1 || h.Width%h.Heads != 0 ||
		h.Inner < 16 || h.Inner > 4096 || h.Inner%16 != 0 || h.Positions < 2 || h.Positions > 4096 || h.Vocab < 1 || h.Vocab > 1<<20) {
		r.err = fmt.Errorf("the sizes %+v are out of range", h)
	}
	if r.err == nil {
		m.read(r)
	}
	if r.err != nil {
		return nil, fmt.Errorf("read the encoder's model: %w", r.err)
	}
	return m, nil
}

func (m *Model) read(r *reader) {
	h := m.Header
	lines := strings.Split(strings.TrimSuffix(r.take(h.VocabLen), "\n"), "\n")
	if r.err == nil && len(lines) != h.Vocab {
		r.err = fmt.Errorf("the vocabulary has %d tokens, %d were announced", len(lines), h.Vocab)
	}
	m.vocab = make(map[string]int32, len(lines))
	for i, s := range lines {
		m.vocab[s] = int32(i)
	}
	for _, s := range []string{unknown, first, last} {
		if _, ok := m.vocab[s]; !ok && r.err == nil {
			r.err = fmt.Errorf("the vocabulary lacks %s", s)
		}
	}
	m.words = r.matrix(h.Vocab, h.Width)
	m.positions = r.matrix(h.Positions, h.Width)
	m.kind = r.vector(h.Width)
	m.norm = r.norm(h.Width)
	for range h.Layers {
		m.layers = append(m.layers, layer{
			qkv: r.matrix(3*h.Width, h.Width), qkvBias: r.vector(3 * h.Width),
			out: r.matrix(h.Width, h.Width), outBias: r.vector(h.Width), outNorm: r.norm(h.Width),
			up: r.matrix(h.Inner, h.Width), upBias: r.vector(h.Inner),
			down: r.matrix(h.Width, h.Inner), downBias: r.vector(h.Width), downNorm: r.norm(h.Width),
		})
	}
	if r.err == nil && len(r.data) > 0 {
		r.err = fmt.Errorf("%d bytes are left over", len(r.data))
	}
}
