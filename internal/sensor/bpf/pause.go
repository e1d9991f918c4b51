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
	frozen atomic.Bool
	busy   atomic.Bool // the reader is at a step
	count  atomic.Uint64
	stops  atomic.Uint64 // of the kernel's count, those dealt with
}

func newPauser(cgroup string, p *programs, r *ring, size uint64) *pauser {
	return &pauser{cgroup: cgroup, prog: p, ring: r, size: size, wake: make(chan struct{}, 1), quit: make(chan struct{})}
}

// stepLong is how long the reader may be at one step before the pauser looks after the ring.
const stepLong = 20 * time.Millisecond

// look wakes the pauser where the ring is filling. Cheap: the reader calls it after each step.
func (p *pauser) look() {
	if p.ring.waiting() >= p.size/2 || p.frozen.Load() {
		p.rouse()
	}
}

// check is look where nothing waits: a process may have been stopped late, by what it wrote when the ring was fuller.
func (p *pauser) check() {
	if p.paused() {
		p.rouse()
	}
}

// rouse has the pauser watch the ring as long as the reader is busy or the target is paused.
func (p *pauser) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pauser) pauses() uint64 { return p.count.Load() }

func (p *pauser) stop() { p.once.Do(func() { close(p.quit) }) }

// run waits for the reader's sign that the ring is filling, then watches until the target can go on.
func (p *pauser) run(wg *sync.WaitGroup) {
	defer wg.Done()
	for {
		select {
		case <-p.quit:
			p.release(true)
			return
		case <-p.wake:
			p.hold()
		}
	}
}

// hold keeps the target from writing until the ring has drained, and no stopped process is left.
func (p *pauser) hold() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		switch n := p.ring.waiting(); {
		case n >= p.size/2:
			p.freeze()
		case n <= p.size/16:
			if p.paused() {
				p.release(false)
			} else if !p.busy.Load() {
				return
			}
		}
		select {
		case <-p.quit:
			return
		case <-tick.C:
		}
	}
}

func (p *pauser) freeze() {
	if p.frozen.Load() || p.write("1") != nil { // without the freeze, the kernel side's stop still holds
		return
	}
	p.frozen.Store(true)
	p.count.Add(1)
}

func (p *pauser) paused() bool {
	var n uint64
	_ = p.prog.objs.Stops.Get(&n)
	return p.frozen.Load() || n != p.stops.Load()
}

// release lets the target go on: all that the kernel side stopped, then the cgroup. Those who go on first may fill the
// ring again before the last is reached: then the rest waits, unless it is the end.
func (p *pauser) release(end bool) {
	var stops uint64
	_ = p.prog.objs.Stops.Get(&stops)
	var held []uint32
	var tgid uint32
	var start uint64
	for it := p.prog.objs.Stopped.Iterate(); it.Next(&tgid, &start); {
		held = append(held, tgid)
	}
	for _, tgid := range held {
		if !end && p.ring.waiting() > p.size/4 {
			return
		}
		_ = p.prog.objs.Stopped.Delete(tgid)
		if p.ours(tgid) {
			_ = unix.Kill(int(tgid), unix.SIGCONT)
		}
	}
	p.stops.Store(stops)
	if p.frozen.Load() && p.write("0") == nil {
		p.frozen.Store(false)
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
