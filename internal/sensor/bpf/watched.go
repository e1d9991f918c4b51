package bpf

import "github.com/bodycam-dev/bodycam"

// Watches tells whether a failing call of that number, not counting x32's bit, is recorded. The errno of a call through
// an ABI that isn't there is recorded too, for every number.
func Watches(abi bodycam.ABI, nr int32) bool {
	t, err := calls()
	if err != nil || nr < 0 || nr >= maxCalls {
		return false
	}
	if abi == bodycam.ABII386 {
		return t.watched[nr]&2 != 0
	}
	return t.watched[nr]&1 != 0
}
