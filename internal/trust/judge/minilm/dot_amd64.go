package minilm

import "golang.org/x/sys/cpu"

var useAVX2 = cpu.X86.HasAVX2

// dotAVX2 sets sums to the dot products of n int8 at w (a multiple of 16) with each of four rows of n int16 at x. It
// returns what dotGo returns.
//
//go:noescape
func dotAVX2(w *int8, x *int16, n int, sums *[group]int32)
