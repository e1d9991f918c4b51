//go:build !cgo

package cli

const static = true
