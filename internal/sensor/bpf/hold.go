package bpf

import (
	"cmp"
	"slices"

	"github.com/bodycam-dev/bodycam"
)

// heldEvent is an event that waits for something that comes later, with the source that counts it.
type heldEvent struct {
	ev     bodycam.Event
	source uint8
	told   bool // delivered before its other half came, which tells nothing more
}

// Error numbers that stay within the kernel: the call is started again, or fails with EINTR, as the signal's
// handler was set up (linux/errno.h).
const (
	restartFirst = 512
	restartLast  = 516
	eINTR        = 4
)

func interrupted(ret int64) bool { return ret <= -restartFirst && ret >= -restartLast }

// leave delivers what waits for its other half, of a process's thread that executes another program: told later, it would be
// taken for what that does.
func (d *decoder) leave(p bodycam.Proc, tid int32) error {
	if err := d.notRestarted(tid); err != nil {
		return err
	}
	var due []*heldEvent
	for _, h := range d.net.connects {
		if h.ev.Proc == p && !h.told {
			due = append(due, h)
		}
	}
	slices.SortFunc(due, func(a, b *heldEvent) int { return cmp.Compare(a.ev.Boot, b.ev.Boot) })
	for _, h := range due {
		if err := d.release(h); err != nil {
			return err
		}
	}
	return nil
}

// interrupt keeps a call that a signal interrupted: if the thread makes the same call next, it was started again and
// is one attempt. What a program repeats itself looks the same.
func (d *decoder) interrupt(source sensorSource) error {
	tid := d.ev.TID
	d.ev.Errno = eINTR
	next := d.ev
	if err := d.notRestarted(tid); err != nil {
		return err
	}
	d.stopped[tid] = &heldEvent{ev: next, source: uint8(source)}
	return nil
}

// restarted forgets the interrupted call of a thread if the current event is it again.
func (d *decoder) restarted() {
	if len(d.stopped) == 0 {
		return
	}
	e, h := &d.ev, d.stopped[d.ev.TID]
	if h != nil && h.ev.NR == e.NR && h.ev.ABI == e.ABI && h.ev.Flags == e.Flags && h.ev.PathGiven == e.PathGiven && h.ev.Remote == e.Remote {
		delete(d.stopped, e.TID)
	}
}

// notRestarted delivers the interrupted call of a thread, if there is one: it failed.
func (d *decoder) notRestarted(tid int32) error {
	h := d.stopped[tid]
	if h == nil {
		return nil
	}
	delete(d.stopped, tid)
	d.ev = h.ev
	d.count[h.source].Seen++ // the kernel side could not tell whether it is an attempt of its own
	return d.deliver(h.source)
}
