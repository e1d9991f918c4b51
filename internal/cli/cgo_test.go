//go:build cgo

package cli

const static = false
