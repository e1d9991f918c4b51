package posixstore

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mostVectors is IOV_MAX.
const mostVectors = 1024

// Gather implements [ledger.Gatherer].
func (f *file) Gather(bufs [][]byte) (n int, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	bufs = append([][]byte(nil), bufs...)
	for len(bufs) > 0 {
		var k int
		var werr error
		if err := c.Control(func(fd uintptr) { k, werr = unix.Writev(int(fd), bufs[:min(len(bufs), mostVectors)]) }); err != nil {
			return n, err
		}
		if errors.Is(werr, unix.EINTR) {
			continue
		}
		if werr == nil && k <= 0 {
			werr = errors.New("it takes no byte")
		}
		if werr != nil {
			return n, noSpace(fmt.Errorf("writev %s: %w", f.Name(), werr))
		}
		n += k
		for len(bufs) > 0 && k >= len(bufs[0]) {
			k -= len(bufs[0])
			bufs = bufs[1:]
		}
		if k > 0 {
			bufs[0] = bufs[0][k:]
		}
	}
	return n, nil
}
