package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// outlive has a command that records go on when whoever reads its output goes away (bodycam run --follow … | head): what
// is then printed is dropped, and that is said once. Its exit status is that of the recording.
func (s *streams) outlive() {
	// Not ignored, which the agent would inherit: delivered, to nobody. The write fails with EPIPE then.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	s.err = &parting{w: s.err}
	s.out = &parting{w: s.out, told: func() {
		fmt.Fprintln(s.err, "bodycam: nobody reads the standard output any more: nothing more is printed, the recording goes on")
	}}
}

// parting drops what nobody reads any more.
type parting struct {
	w    io.Writer
	told func() // called when the reader has gone, once; nil: nobody is told
	gone atomic.Bool
}

func (p *parting) Write(b []byte) (int, error) {
	if p.gone.Load() {
		return len(b), nil
	}
	n, err := p.w.Write(b)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
		return n, err
	}
	if !p.gone.Swap(true) && p.told != nil {
		p.told()
	}
	return len(b), nil
}
