//go:build !amd64

package minilm

const useAVX2 = false

func dotAVX2(*int8, *int16, int, *[group]int32) { panic("minilm: no AVX2 here") } // never reached: useAVX2 is false
