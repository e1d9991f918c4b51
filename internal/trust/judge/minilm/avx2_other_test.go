//go:build !amd64

package minilm

import "testing"

func withoutAVX2(testing.TB) {}
