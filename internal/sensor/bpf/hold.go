package bpf

import (
	"slices"

	"github.com/bodycam-dev/bodycam"
)

// heldEvent is an event that waits for something that comes later, with the source that counts it.
type heldEvent struct {
	ev     bodycam.Event
	source uint8
}

// scriptHold keeps back what a process does between starting a script's interpreter and the interpreter's opening
// of the script: only then the script's canonical path is known, and it belongs to the exec.
type scriptHold struct {
	want   string // the name by which the interpreter will open it
	since  uint64 // boot time
	events []heldEvent
}

const (
	scriptEvents = 256         // an interpreter that does more than this first is not waited for
	scriptWait   = 200_000_000 // ns
)

// holdBack keeps the current event with those before it, and lets all go once the script was opened or will not be.
func (d *decoder) holdBack(h *scriptHold, source uint8) error {
	e := &d.ev
	first := len(h.events) == 0
	if !first && e.Type == bodycam.TypeExec && e.Errno == 0 && slices.Contains(e.Argv, h.want) && e.Script == "" {
		e.Script = h.events[0].ev.Script // as env starts the interpreter proper
	}
	h.events = append(h.events, heldEvent{ev: *e, source: source})
	switch {
	case first:
		return nil
	case e.Type == bodycam.TypeOpen && e.Errno == 0 && e.PathGiven == h.want:
		return d.letGo(h, e.Path)
	case len(h.events) >= scriptEvents, e.Type == bodycam.TypeExit, e.Type == bodycam.TypeFork,
		e.Type == bodycam.TypeExec && e.Errno == 0 && e.Script != h.events[0].ev.Script:
		return d.letGo(h, "")
	}
	return nil
}

// letGo delivers what was held, with the script's path where it is known. The path from the name as given stays
// otherwise, and is marked.
func (d *decoder) letGo(h *scriptHold, script string) error {
	delete(d.scripts, h.events[0].ev.Proc.PID)
	for i := range h.events {
		d.ev = h.events[i].ev
		if d.ev.Script != "" {
			if script != "" {
				d.ev.Script = script
			} else {
				d.ev.Marks |= bodycam.MarkUnverified
			}
		}
		if err := d.emit(h.events[i].source); err != nil {
			return err
		}
	}
	return nil
}

// overdue lets go what has waited too long at boot time now.
func (d *decoder) overdue(now uint64) error {
	for _, h := range d.scripts {
		if now > h.since+scriptWait {
			if err := d.letGo(h, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// Error numbers that stay within the kernel: the call is started again, or fails with EINTR, as the signal's
// handler was set up (linux/errno.h).
const (
	restartFirst = 512
	restartLast  = 516
	eINTR        = 4
)

func interrupted(ret int64) bool { return ret <= -restartFirst && ret >= -restartLast }

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

// restarted forgets the interrupted call of a thread if this is it again.
func (d *decoder) restarted(r record) {
	if h := d.stopped[int32(r.Tid)]; h != nil && h.ev.NR == r.Nr && h.ev.ABI == bodycam.ABI(r.Abi) {
		delete(d.stopped, int32(r.Tid))
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
