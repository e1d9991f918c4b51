package bpf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pauser holds the target while the ring drains. At half fill it freezes the cgroup, which no process notices. Should
// the freeze come too late, the kernel side stops whoever still writes at three quarters; the pauser continues them.
// It works in a goroutine of its own: the write to cgroup.freeze may take long, and the reader must not.
type pauser struct {
	cgroup string
	prog   *programs
	ring   *ring
	size   uint64

	wake   chan struct{}
	quit   chan struct{}
	once   sync.Once
	frozen bool
	count  atomic.Uint64
	stops  uint64 // of the kernel's count, those dealt with
}

func newPauser(cgroup string, p *programs, r *ring, size uint64) *pauser {
	return &pauser{cgroup: cgroup, prog: p, ring: r, size: size, wake: make(chan struct{}, 1), quit: make(chan struct{})}
}

// look wakes the pauser where the ring is filling. Cheap: the reader calls it after each chunk.
func (p *pauser) look() {
	if p.ring.waiting() < p.size/2 {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pauser) pauses() uint64 { return p.count.Load() }

func (p *pauser) stop() { p.once.Do(func() { close(p.quit) }) }

func (p *pauser) run(wg *sync.WaitGroup) {
	defer wg.Done()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			p.release()
			return
		case <-p.wake:
		case <-tick.C:
		}
		switch n := p.ring.waiting(); {
		case n >= p.size/2:
			p.freeze()
			tick.Reset(time.Millisecond)
		case n <= p.size/16 && p.paused():
			p.release()
			tick.Reset(pollInterval)
		}
	}
}

func (p *pauser) freeze() {
	if p.frozen || p.write("1") != nil { // without the freeze, the kernel side's stop still holds
		return
	}
	p.frozen = true
	p.count.Add(1)
}

func (p *pauser) paused() bool {
	var n uint64
	_ = p.prog.objs.Stops.Get(&n)
	return p.frozen || n != p.stops
}

// release lets the target go on: all that the kernel side stopped, then the cgroup.
func (p *pauser) release() {
	_ = p.prog.objs.Stops.Get(&p.stops)
	var tgid uint32
	for p.prog.objs.Stopped.NextKey(nil, &tgid) == nil {
		if p.prog.objs.Stopped.Delete(tgid) != nil {
			break
		}
		if p.ours(tgid) {
			_ = unix.Kill(int(tgid), unix.SIGCONT)
		}
	}
	if p.frozen && p.write("0") == nil {
		p.frozen = false
	}
}

// ours tells whether a process is in the target's subtree: its id may be another's by now.
func (p *pauser) ours(tgid uint32) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", tgid))
	if err != nil {
		return false
	}
	mount, root, err := cgroupMount(p.cgroup)
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(mount, p.cgroup)
	if err != nil {
		return false
	}
	want := filepath.Join(root, rel)
	for line := range bytes.Lines(b) {
		if in, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok {
			in = strings.TrimSuffix(in, " (deleted)")
			return in == want || strings.HasPrefix(in, want+"/")
		}
	}
	return false
}

func (p *pauser) write(v string) error {
	return os.WriteFile(filepath.Join(p.cgroup, "cgroup.freeze"), []byte(v), 0)
}
