package session

import (
	"sync"
	"time"
)

// say tells the listener what the run is doing.
func (s *run) say(p Progress) {
	s.state.Store(&p)
	if s.o.Progress != nil {
		s.o.Progress(s.fill(p))
	}
}

func (s *run) fill(p Progress) Progress {
	p.Events, p.Calls = s.w.Counts()
	p.Lost = s.obs.lost()
	return p
}

// report tells the listener of the counts several times a second, until stop is called.
func (s *run) report() (stop func()) {
	if s.o.Progress == nil {
		return func() {}
	}
	return regularly(200*time.Millisecond, func() bool {
		_ = s.w.Flush() // for those who follow; a failure is sticky and shows at the end
		if p := s.state.Load(); p != nil {
			s.o.Progress(s.fill(*p))
		}
		return true
	})
}

// regularly calls f again and again, until it returns false or stop is called, which waits for the call under way and may be
// called again.
func regularly(every time.Duration, f func() (more bool)) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if !f() {
					return
				}
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}
