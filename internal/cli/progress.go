package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/internal/session"
)

// progress shows what a run is doing on standard error: one line that is rewritten on a terminal, one line a phase
// elsewhere.
type progress struct {
	s     *streams
	quiet bool
	label string
	mu    sync.Mutex
	phase string
	width int
}

func newProgress(s *streams, quiet bool, i, of int) *progress {
	p := &progress{s: s, quiet: quiet}
	if of > 1 {
		p.label = fmt.Sprintf("run %d of %d: ", i+1, of)
	}
	return p
}

func (p *progress) update(u session.Progress) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.s.progress {
		if u.Phase != p.phase {
			p.phase = u.Phase
			fmt.Fprintf(p.s.err, "bodycam: %s%s\n", p.label, u.Phase)
		}
		return
	}
	line := fmt.Sprintf("%s%-9s %5.1f s  %d events, %d lost", p.label, u.Phase, time.Since(u.Since).Seconds(), u.Events, u.Lost)
	fmt.Fprintf(p.s.err, "\r%-*s", p.width, line)
	p.width = len(line)
}

func (p *progress) done() {
	if !p.quiet && p.s.progress {
		fmt.Fprintf(p.s.err, "\r%*s\r", p.width, "")
	}
}
