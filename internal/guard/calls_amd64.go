package guard

import (
	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const (
	abi   = bodycam.ABIAMD64
	creat = unix.SYS_CREAT
)

// flagsAt says which argument of a call holds the flags of open.
var flagsAt = map[int32]int{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2}
