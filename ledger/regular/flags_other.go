//go:build !unix

package regular

// A platform without named pipes in folders, or without flags about them: what was opened is looked at all the same.
const (
	nonblock = 0
	nofollow = 0
)
