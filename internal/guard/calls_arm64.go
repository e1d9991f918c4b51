package guard

import (
	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const (
	abi   = bodycam.ABIARM64
	creat = -2 // there is no such call
)

// flagsAt says which argument of a call holds the flags of open.
var flagsAt = map[int32]int{unix.SYS_OPENAT: 2}
