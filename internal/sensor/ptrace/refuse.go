//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"fmt"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// A sandbox's own seccomp filter outranks the sensor's: a call that it answers with an errno stops for nobody, and the attempt
// would not be in the record. So the sandbox lets such calls stop ([Options.Refuses]), and the sensor refuses them.
//
// It doesn't go by what the filter says at the stop: a filter that the observed process installs later, and that lets the same
// call stop, would have its word there. It evaluates the sandbox's program itself, over the registers with which the call would
// be made; while the task is stopped nobody but the sensor can change them. The call is then taken out of the registers, which
// the kernel looks at again before it goes on. A task that dies meanwhile makes no call; one whose registers can't be read or
// written is killed.

// seccompData is the kernel's struct seccomp_data, as the words that a program loads.
type seccompData [64]byte

func dataOf(arch, nr uint32, args [6]uint64) *seccompData {
	var d seccompData
	binary.LittleEndian.PutUint32(d[dataNR:], nr)
	binary.LittleEndian.PutUint32(d[dataArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(d[dataArgs+8*i:], a)
	}
	return &d
}

// refuses tells with which errno the sandbox's filter refuses a call, 0 if it doesn't.
func (s *Sensor) refuses(c *call, arch uint32) unix.Errno {
	if len(s.box) == 0 {
		return 0
	}
	return Refusal(s.box, arch, uint32(c.nr), c.args)
}

// Refusal tells with which errno a sandbox's seccomp program refuses a call (arch as AUDIT_ARCH_…, the number with the x32 bit
// where it has one), 0 if it doesn't. The program must be one that [Sensor.Start] accepts.
func Refusal(program []unix.SockFilter, arch, nr uint32, args [6]uint64) unix.Errno {
	ret := evaluate(program, dataOf(arch, nr, args))
	if ret&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO {
		return 0
	}
	return unix.Errno(min(ret&unix.SECCOMP_RET_DATA, 4095))
}

// The instructions that evaluate knows.
const (
	opLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opJump = unix.BPF_JMP | unix.BPF_JA
	opEQ   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opGE   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opGT   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	opSet  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opRet  = unix.BPF_RET | unix.BPF_K
)

// checkProgram tells whether evaluate carries a program out as the kernel does: each instruction is known, and none leads
// outside. Programs only go forwards, so they end.
func checkProgram(p []unix.SockFilter) error {
	for i, ins := range p {
		last := i // the farthest instruction that it can lead to
		switch ins.Code {
		case opLoad:
			if ins.K%4 != 0 || ins.K >= uint32(len(seccompData{})) {
				return fmt.Errorf("instruction %d loads from %d, outside of what is known of a call", i, ins.K)
			}
			last = i + 1
		case opAnd:
			last = i + 1
		case opJump:
			last = i + 1 + int(min(ins.K, unix.BPF_MAXINSNS))
		case opEQ, opGE, opGT, opSet:
			last = i + 1 + int(max(ins.Jt, ins.Jf))
		case opRet:
		default:
			return fmt.Errorf("instruction %d has code %#x, which isn't known here", i, ins.Code)
		}
		if last >= len(p) {
			return fmt.Errorf("instruction %d leads past the end", i)
		}
	}
	return nil
}

// evaluate runs a program that checkProgram found good.
func evaluate(p []unix.SockFilter, d *seccompData) uint32 {
	var a uint32
	for i := 0; ; i++ {
		ins := &p[i]
		jump := func(yes bool) {
			if yes {
				i += int(ins.Jt)
			} else {
				i += int(ins.Jf)
			}
		}
		switch ins.Code {
		case opLoad:
			a = binary.LittleEndian.Uint32(d[ins.K:])
		case opAnd:
			a &= ins.K
		case opJump:
			i += int(ins.K)
		case opEQ:
			jump(a == ins.K)
		case opGE:
			jump(a >= ins.K)
		case opGT:
			jump(a > ins.K)
		case opSet:
			jump(a&ins.K != 0)
		case opRet:
			return ins.K
		}
	}
}

// refused answers a call that the sandbox refuses, and records the attempt as what it was to be.
func (t *task) refused(c *call, errno unix.Errno) {
	t.mend(c)
	t.made = false
	told := t.s.count.Seen
	var p *pending
	if c.def != nil {
		p = c.def.on(t, c)
	}
	ret := -int64(errno)
	t.answer(ret) // last: whatever the handler made of it, the call isn't made
	switch {
	case p != nil && p.ev != nil:
		p.call = c
		p.ev.Marks |= bodycam.MarkRefused
		t.leave(p, ret)
	case t.s.count.Seen == told: // nothing that is recorded where it succeeds
		typ := bodycam.TypeDenied
		if c.def != nil && (c.def.name == "clone" || c.def.name == "clone3") {
			typ = bodycam.TypeFork
		}
		e := t.event(typ, c)
		e.Errno, e.Marks = int32(errno), bodycam.MarkRefused
		t.s.emit(e)
	}
}
