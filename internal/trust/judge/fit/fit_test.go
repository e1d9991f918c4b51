package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust/judge"
	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

// The committed heads and vectors are what the committed data gives, to the byte.
func TestRebuildsIdentically(t *testing.T) {
	if testing.Short() {
		t.Skip("fitting takes a minute")
	}
	m, err := minilm.Default()
	if errors.Is(err, minilm.ErrNoModel) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	vectors := judge.PackBackground(m)
	l, err := judge.NewLocalWith(nil, string(vectors))
	if err != nil {
		t.Fatal(err)
	}
	heads, err := fitAll(l)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := home()
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"background.bin": vectors, "heads.json": heads} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what its data gives: run go generate ./internal/trust/judge", name)
		}
	}
}

// A head on separable data separates it, and a ridge keeps it finite.
func TestRegress(t *testing.T) {
	var samples []sample
	for i := range 40 {
		samples = append(samples, sample{x: []float64{float64(i%2*2 - 1), float64(i % 5)}, class: i % 2, weight: 1})
	}
	h := regress([]string{"a", "b"}, []string{"x", "y"}, samples, 1, 100)
	if p := h.Predict([]float64{-1, 2}); p[0] < .9 {
		t.Errorf("class a gets %.2f", p[0])
	}
	if p := h.Predict([]float64{1, 2}); p[1] < .9 {
		t.Errorf("class b gets %.2f", p[1])
	}
}
