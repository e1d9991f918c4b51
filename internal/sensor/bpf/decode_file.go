package bpf

import (
	"github.com/bodycam-dev/bodycam"
)

// Bits of struct file's f_mode and of open's flags (linux/fs.h, asm-generic/fcntl.h).
const (
	fmodeRead    = 1
	fmodeWrite   = 2
	fmodeCreated = 0x100000

	oCreat     = 0x40
	oTrunc     = 0x200
	oAppend    = 0x400
	oDirectory = 0x10000
	oPath      = 0x200000
	oTmpfile   = 0x400000

	sIFMT  = 0o170000
	sIFDIR = 0o040000

	atRemoveDir = 0x200
	mapExec     = 1
	mapShared   = 2
)

// accessOf tells how an open file may be used: from the file itself, and from the flags given for what the kernel
// does not keep.
func accessOf(fmode, fflags uint32, imode uint16, given uint64) bodycam.Access {
	var a bodycam.Access
	if fmode&fmodeRead != 0 {
		a |= bodycam.Read
	}
	if fmode&fmodeWrite != 0 {
		a |= bodycam.Write
	}
	if fflags&oPath != 0 {
		a = bodycam.PathRef
	}
	if fflags&oAppend != 0 {
		a |= bodycam.Append
	}
	if imode&sIFMT == sIFDIR {
		a |= bodycam.Dir
	}
	return a | bodycam.AccessAsked(given)&(bodycam.Create|bodycam.Trunc|bodycam.Temp)
}

// accessAsked is accessOf for an open that failed: only the flags are known.
func accessAsked(flags uint64) bodycam.Access {
	a := bodycam.AccessAsked(flags)
	if flags&(oDirectory|oTmpfile|oPath) == oDirectory {
		a |= bodycam.Dir
	}
	return a
}

// open reports an open that worked, and remembers the file for what its slot tells later. A K_FILE record only does
// the latter.
func (d *decoder) open(r record) error {
	o, path, given, err := r.opened()
	if err != nil {
		return err
	}
	sl := d.taskFor(int32(r.Tid)).slot(o.Slot)
	*sl = slot{dev: dev(o.Dev), ino: o.Ino, nr: r.Nr, abi: bodycam.ABI(r.Abi), typ: bodycam.Type(r.Type)}
	sl.ownOpening = sensorKind(r.Kind) == sensorKindK_OPEN
	if sl.ownOpening {
		sl.flags = d.tables.openFlags(sl.abi, r.Nr, uint64(o.Asked))
	}
	sl.access = accessOf(o.Fmode, o.Fflags, o.Imode, sl.flags)
	sl.path = d.place(r, path)
	if sl.ownOpening {
		sl.given = d.given(given, sl.path)
	}
	sl.marks = walkMarks(uint32(o.Walk))
	if sl.typ == bodycam.TypeCreate {
		sl.access |= bodycam.Create | bodycam.Temp
	}
	if sl.access&bodycam.Temp != 0 { // it never had a name: that it has none now says nothing
		sl.marks &^= bodycam.MarkDeleted
	}
	if sl.ownOpening && o.Fmode&fmodeCreated != 0 {
		sl.detail = "new"
	}
	sl.oid = (r.Seq+1)<<12 | uint64(r.Stream)&0xfff // as oid_of in cache.h makes it
	if !sl.ownOpening {
		return nil
	}
	e := d.begin(r, sl.typ)
	sl.describe(e)
	d.restarted()
	return d.deliver(r.Source)
}

// raced reports an open whose descriptor led to another file before it was read: what it was asked for is all that is known.
func (d *decoder) raced(r record, b *sensorBody, s *[4][]byte) error {
	e := d.begin(r, bodycam.Type(r.Type))
	e.PathGiven = string(s[0])
	e.Path = join(d.place(r, s[1]), e.PathGiven)
	e.Flags = d.tables.openFlags(e.ABI, r.Nr, d.tables.flagsOf(e.ABI, r.Nr, &b.Arg))
	e.Access = accessAsked(e.Flags)
	if e.Type == bodycam.TypeCreate {
		e.Access |= bodycam.Create | bodycam.Temp
	}
	e.Marks |= bodycam.MarkRaced | bodycam.MarkUnverified
	d.restarted()
	return d.deliver(r.Source)
}

// describe says of an event which file it is about, and how that was opened.
func (sl *slot) describe(e *bodycam.Event) {
	e.Path, e.PathGiven = sl.path, sl.given
	e.Dev, e.Ino = sl.dev, sl.ino
	e.Access, e.Flags = sl.access, sl.flags
	e.Marks |= sl.marks
	e.Detail = sl.detail
}

// slotOf finds the file that a slot held when it was given the name oid.
func (d *decoder) slotOf(r record, index uint16, oid uint64) *slot {
	if t := d.taskOf(int32(r.Tid)); t != nil {
		if sl := t.slots[index%cacheSlots]; sl != nil && sl.oid == oid {
			return sl
		}
	}
	d.scratch = slot{typ: bodycam.TypeOpen, nr: -1, marks: bodycam.MarkTruncated}
	return &d.scratch
}

// flush reports what slots gathered.
func (d *decoder) flush(r record) error {
	all, err := r.flushes()
	if err != nil {
		return err
	}
	for i := range all {
		if err := d.flushed(r, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// flushed reports what a slot gathered: repeated opens, mappings, and what went through the file.
func (d *decoder) flushed(r record, f *sensorFlush) error {
	sl := d.slotOf(r, f.Slot, f.Oid)
	if sl.oid == 0 {
		sl.dev, sl.ino = dev(f.Dev), f.Ino
		sl.access = accessOf(f.Fmode, f.Fflags, f.Imode, 0)
	}
	if f.Opens > 0 {
		e := d.begin(r, sl.typ)
		sl.describe(e)
		e.NR, e.ABI = sl.nr, sl.abi
		if !sl.ownOpening {
			e.Flags = uint64(f.Fflags)
		}
		e.Detail = ""
		d.repeated(f.Opens, f.FirstOpen, f.LastOpen)
		if err := d.deliver(uint8(sensorSourceSRC_OPEN)); err != nil {
			return err
		}
	}
	if f.Mmaps > 0 {
		e := d.begin(r, bodycam.TypeMmap)
		sl.describe(e)
		e.PathGiven, e.Detail, e.Mapped = "", "", true
		e.Access = mapAccess(f.Prot)
		d.repeated(f.Mmaps, f.LastMmap, f.LastMmap)
		if err := d.deliver(uint8(sensorSourceSRC_MMAP)); err != nil {
			return err
		}
	}
	if f.Closes == 0 {
		return nil
	}
	e := d.begin(r, bodycam.TypeClose)
	sl.describe(e)
	e.PathGiven, e.Detail = "", ""
	e.BytesRead, e.BytesWritten, e.Mapped = f.Rd, f.Wr, f.Mapped != 0
	d.repeated(f.Closes, f.FirstClose, f.LastClose)
	return d.deliver(uint8(sensorSourceSRC_CLOSE))
}

func (d *decoder) repeated(n, first, last uint64) {
	d.at(first)
	d.ev.Count = n
	if n > 1 {
		d.ev.LastBoot = max(first, last)
	}
}

func mapAccess(how uint8) bodycam.Access {
	a := bodycam.Read
	if how&mapExec != 0 {
		a |= bodycam.Exec
	}
	if how&mapShared != 0 {
		a |= bodycam.Write
	}
	return a
}

func (d *decoder) mmap(r record) error {
	m, _, err := cut[sensorMapped](r)
	if err != nil {
		return err
	}
	sl := d.slotOf(r, m.Slot, m.Oid)
	if sl.oid == 0 {
		sl.dev, sl.ino = dev(m.Dev), m.Ino
	}
	e := d.begin(r, bodycam.TypeMmap)
	sl.describe(e)
	e.PathGiven, e.Detail, e.Mapped = "", "", true
	var how uint8
	if m.Prot&4 != 0 {
		how |= mapExec
	}
	if m.Prot&2 != 0 && m.Flags&15 != 2 {
		how |= mapShared
	}
	e.Access = mapAccess(how)
	e.Flags = uint64(m.Flags)
	return d.deliver(r.Source)
}

func (d *decoder) passed(r record, b *sensorBody, s *[4][]byte) error {
	e := d.begin(r, bodycam.TypePassFD)
	e.Path = d.place(r, s[1])
	e.Dev, e.Ino = dev(b.Dev), b.Ino
	e.Access = accessOf(b.Fmode, b.Fflags, b.Imode, 0)
	e.Marks |= walkMarks(b.Walk)
	e.Detail = "sent"
	if b.Arg[0] != 0 {
		e.Detail = "received"
	}
	return d.deliver(r.Source)
}
