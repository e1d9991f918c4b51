package minilm

import "testing"

// withoutAVX2 makes the rest of a test use the kernel in Go.
func withoutAVX2(t testing.TB) {
	was := useAVX2
	useAVX2 = false
	t.Cleanup(func() { useAVX2 = was })
}
