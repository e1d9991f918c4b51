package rules

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/bodycam-dev/bodycam"
)

// A run makes the same calls again and again: the same kind of call, on the same names, with the same result. What that
// alone says of the rules is worked out once and kept: most rules can't match such a call, whichever process makes it and
// when. Only the others are asked about the event itself.

// origins say what a value is taken from, as bits.
type origins uint8

const (
	fromEvent   origins = 1 << iota // what form takes in
	fromEnds                        // the ends of a connection with both ports, where the event has any
	fromProgram                     // the program that the process runs, and its arguments
	fromFamily                      // the same of the processes that it descends from
	fromMore                        // anything else: counts, times, the transcript, explanations
)

// eventFields are taken from what form takes in, programFields from that of an exec event; familyFields stay the same as
// programFields do, until a program changes. A field that stands in no table is asked for each time: an omission costs time
// and nothing else.
var (
	eventFields = setOf("evt.type", "syscall.type", "evt.dir", "evt.source", "evt.category", "evt.res", "evt.rawres", "evt.arg.res", "evt.rawarg.res", "evt.arg.fd", "evt.rawarg.fd",
		"evt.failed", "evt.count.error", "evt.is_open_read", "evt.is_open_write", "evt.is_open_create", "evt.arg.flags", "evt.rawarg.flags", "evt.arg.mode", "evt.rawarg.mode",
		"evt.arg.request", "evt.rawarg.request", "evt.arg.sig", "evt.rawarg.sig", "evt.rawarg.name", "evt.rawarg.path", "evt.rawarg.dev", "evt.rawarg.oldpath", "evt.rawarg.pathname",
		"evt.rawarg.filename", "evt.rawarg.newpath", "evt.rawarg.linkpath", "evt.rawarg.dir", "evt.arg.target", "evt.rawarg.target",
		"evt.arg.name", "evt.arg.path", "evt.arg.pathname", "evt.arg.filename", "evt.arg.oldpath", "evt.arg.dir", "evt.arg.newpath", "evt.arg.linkpath", "evt.arg.dev",
		"fs.path.name", "fs.path.source", "fs.path.target", "fs.path.nameraw", "fs.path.sourceraw", "fs.path.targetraw",
		"fd.directory", "fd.filename", "fd.nameraw", "fd.num", "fd.type", "fd.typechar", "fd.l4proto", "fd.sockfamily", "fd.sip.name", "fd.rip.name", "fd.is_server", "fd.connected", "fd.name_changed",
		"fd.ip", "fd.net", "fd.cip", "fd.cnet", "fd.sip", "fd.snet", "fd.lip", "fd.lnet", "fd.rip", "fd.rnet", "fd.rport",
		"body.type", "body.path", "body.path2", "body.names", "body.path_canonical", "body.path_given", "body.path2_given", "body.access", "body.marks", "body.errno", "body.flags", "body.signal",
		"body.window", "body.detail", "body.unix_addr", "host.name", "host.source", "host.named", "host.local", "host.addr")
	programFields = setOf("proc.name", "proc.exe", "proc.exepath", "proc.args", "proc.cmdline", "proc.exeline", "proc.cmdnargs", "proc.exe_written", "proc.script_written", "proc.exe_writer",
		"proc.is_exe_from_memfd", "proc.is_harness")
	familyFields = setOf("proc.argv", "proc.script", "proc.aname", "proc.aexe", "proc.aexepath", "proc.acmdline", "proc.aargs", "proc.pname", "proc.pexe", "proc.pexepath", "proc.pcmdline",
		"proc.tree", "proc.tree_commands")
)

func setOf(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, n := range names {
		out[n] = true
	}
	return out
}

func originOf(f *Field, name string) origins {
	switch {
	case f.Const:
		return 0
	case name == "fd.name":
		return fromEvent | fromEnds
	case eventFields[name]:
		return fromEvent
	case programFields[name]:
		return fromProgram
	case familyFields[name]:
		return fromFamily
	}
	return fromMore
}

// settled are the origins that an event's form takes in.
func settled(t bodycam.Type) origins {
	o := fromEvent
	if !netTypes.has(t) {
		o |= fromEnds
	}
	if t == bodycam.TypeExec {
		o |= fromProgram
	}
	return o
}

// bound builds what a condition can be at most (upper) or is at least, as far as an event's form says. What it is exactly
// lies between.
func (b *builder) bound(c *compiled, t int, upper bool) built {
	typ := bodycam.Type(t)
	switch {
	case !c.may.has(typ):
		return built{}
	case !c.mayNot.has(typ):
		return built{value: true}
	case c.from&^settled(typ) == 0:
		return b.build(c, t)
	}
	switch c.op {
	case opAnd, opOr:
		return b.join(c, func(k *compiled) built { return b.bound(k, t, upper) })
	case opNot:
		return b.bound(c.kids[0], t, !upper).not()
	case opMemo:
		key := builtBound{c, t, upper}
		x, ok := b.bounds[key]
		if !ok {
			if x = b.bound(c.kids[0], t, upper); x.ok != nil {
				x.ok = remember(b.slots, x.ok)
				b.slots++
			}
			b.bounds[key] = x
		}
		return x
	}
	return built{value: upper}
}

// sieve keeps, by the form of an event, which of its type's rules can match such an event. A form that isn't kept takes the
// place of another: nothing grows.
type sieve struct {
	seed  maphash.Seed // made anew each time, as start is, so that nobody can choose names which are taken for one another
	start uint64
	forms []sifted
}

type sifted struct {
	form uint64
	may  uint64 // a bit for each of the first rules of the type
}

const (
	siftedForms = 1 << 15
	siftedRules = 64 // of one type; rules beyond are always asked
	// fewBounds need no sieve: to ask is quicker.
	fewBounds = 6
)

func newSieve() sieve {
	return sieve{seed: maphash.MakeSeed(), start: rand.Uint64(), forms: make([]sifted, siftedForms)}
}

// may tells which rules of the plan can match the event.
func (s *sieve) may(m *machine, p *plan) uint64 {
	form := s.form(m)
	i := form & (siftedForms - 1)
	first, second := &s.forms[i], &s.forms[i^1]
	switch form {
	case first.form:
		return first.may
	case second.form:
		return second.may
	}
	var may uint64
	for i, r := range p.asked[:min(len(p.asked), siftedRules)] {
		if !r.never && (r.bound == nil || r.bound(m)) {
			may |= 1 << i
		}
	}
	*second = *first // the older one goes
	*first = sifted{form, may}
	return may
}

// form is a hash of what an event itself says, apart from who did it, when, and how much.
func (s *sieve) form(m *machine) uint64 {
	e, seed := m.ev, s.seed
	object, object2 := m.object(), m.object2()
	h := mix(s.start^(uint64(e.Type)|uint64(uint16(m.call))<<8|uint64(uint32(e.Errno))<<24|uint64(e.Window)<<56), uint64(e.Access)|uint64(e.Marks)<<16|uint64(e.Proto)<<48|uint64(e.HostSource)<<56)
	h = mix(h^e.Flags, uint64(len(object))|uint64(len(object2))<<12|uint64(uint32(e.Signal))<<24|
		uint64(b2i(e.Path != ""))<<56|uint64(b2i(e.Path2 != ""))<<57|uint64(b2i(e.PathGiven != ""))<<58|uint64(b2i(e.Path2Given != ""))<<59)
	for _, n := range object {
		h = mix(h, maphash.String(seed, n))
	}
	for _, n := range object2 {
		h = mix(h, maphash.String(seed, n))
	}
	if e.PathGiven != "" && (len(object) == 0 || e.PathGiven != object[0]) {
		h = mix(h^1, maphash.String(seed, e.PathGiven))
	}
	if e.Path2Given != "" && (len(object2) == 0 || e.Path2Given != object2[0]) {
		h = mix(h^2, maphash.String(seed, e.Path2Given))
	}
	for i, t := range [...]string{e.Host, e.UnixAddr, e.Detail} {
		if t != "" {
			h = mix(h^uint64(3+i), maphash.String(seed, t))
		}
	}
	if e.Remote.IsValid() {
		h = mix(h^6, uint64(e.Remote.Port()))
		h = mixAddr(h, seed, e.Remote.Addr())
	}
	if e.Local.IsValid() {
		h = mixAddr(h^7, seed, e.Local.Addr())
	}
	if e.Type == bodycam.TypeExec {
		h = m.program(h, seed)
	}
	return h | 1 // 0 is that of no event
}

// program takes in what the program of an exec event is.
func (m *machine) program(h uint64, seed maphash.Seed) uint64 {
	p := m.proc
	p.make()
	h = mix(h^8, uint64(len(p.Argv))<<4|uint64(b2i(p.Written))|uint64(b2i(p.ScriptWritten))<<1|uint64(b2i(p.Memfd))<<2|uint64(b2i(p.Harness))<<3)
	for _, s := range [...]string{p.Name, p.Exe, p.Writer, p.argv0(), p.args} {
		h = mix(h, maphash.String(seed, s))
	}
	return h
}

func mixAddr(h uint64, seed maphash.Seed, a netip.Addr) uint64 {
	b := a.As16()
	h = mix(h^uint64(a.BitLen()), maphash.Bytes(seed, b[:]))
	if z := a.Zone(); z != "" {
		h = mix(h, maphash.String(seed, z))
	}
	return h
}

// mix takes x into a hash: both halves of a product, which depends on every bit of either.
func mix(h, x uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, x^0xd6e8feb86659fd93)
	return hi ^ lo
}
