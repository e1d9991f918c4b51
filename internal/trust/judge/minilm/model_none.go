//go:build nomodel

package minilm

var modelFile string
