package bodycam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// The binary form of an event: a uvarint with one bit a field (the order of the constants below, least significant
// bit first), then the fields whose bit is set, in that order. A field is absent exactly where it has its zero
// value, so there is one encoding of an event. Integers are uvarints (zigzag where they can be negative), strings
// and addresses are a uvarint length and bytes. An event needs no other event to be read.
const (
	fSeq = 1 << iota
	fTime
	fBoot
	fType
	fNR
	fABI
	fSensor
	fWindow
	fPID
	fStart
	fTID
	fPPID
	fPStart
	fUID
	fGID
	fSID
	fExe
	fArgv
	fCWD
	fScript
	fArgvLen
	fArgvHash
	fPath
	fPathGiven
	fPath2
	fPath2Given
	fDev
	fIno
	fAccess
	fFlags
	fBytes
	fBytesRead
	fBytesWritten
	fMapped
	fCount
	fLastBoot
	fProto
	fLocal
	fRemote
	fUnixAddr
	fHost
	fHostSource
	fAnswers
	fCookie
	fChildPID
	fChildStart
	fSignal
	fStatus
	fErrno
	fMarks
	fDetail
	fieldEnd
)

// ErrEvent is wrapped by all errors about bytes that are no event.
var ErrEvent = errors.New("not an event")

// MaxEvent is the largest binary event that DecodeEvent reads, in bytes. It has room for an argv of the kernel's
// limit.
const MaxEvent = 16 << 20

// AppendBinary appends the event's binary form to b.
//
// It is on the way of every event, so each field is looked at once: the fields are written behind room for the longest
// mask, which is known only then, and moved up to it.
func (e *Event) AppendBinary(b []byte) []byte {
	begin := len(b)
	b = slices.Grow(b, e.sizeLimit())
	b = b[:cap(b)]
	at, m := begin+maskLen, uint64(0)
	at, m = putU(b, at, m, fSeq, e.Seq)
	at, m = putU(b, at, m, fTime, zigzag(e.Time))
	at, m = putU(b, at, m, fBoot, e.Boot)
	at, m = putU(b, at, m, fType, uint64(e.Type))
	at, m = putU(b, at, m, fNR, zigzag(int64(e.NR)+1))
	at, m = putU(b, at, m, fABI, uint64(e.ABI))
	at, m = putS(b, at, m, fSensor, e.Sensor)
	at, m = putU(b, at, m, fWindow, uint64(e.Window))
	at, m = putU(b, at, m, fPID, zigzag(int64(e.Proc.PID)))
	at, m = putU(b, at, m, fStart, e.Proc.Start)
	at, m = putU(b, at, m, fTID, zigzag(int64(e.TID)))
	at, m = putU(b, at, m, fPPID, zigzag(int64(e.Parent.PID)))
	at, m = putU(b, at, m, fPStart, e.Parent.Start)
	at, m = putU(b, at, m, fUID, uint64(e.UID))
	at, m = putU(b, at, m, fGID, uint64(e.GID))
	at, m = putU(b, at, m, fSID, zigzag(int64(e.SID)))
	at, m = e.putProgram(b, at, m)
	at, m = putS(b, at, m, fPath, e.Path)
	at, m = putS(b, at, m, fPathGiven, e.PathGiven)
	at, m = putS(b, at, m, fPath2, e.Path2)
	at, m = putS(b, at, m, fPath2Given, e.Path2Given)
	at, m = putU(b, at, m, fDev, e.Dev)
	at, m = putU(b, at, m, fIno, e.Ino)
	at, m = putU(b, at, m, fAccess, uint64(e.Access))
	at, m = putU(b, at, m, fFlags, e.Flags)
	at, m = putU(b, at, m, fBytes, e.Bytes)
	at, m = putU(b, at, m, fBytesRead, e.BytesRead)
	at, m = putU(b, at, m, fBytesWritten, e.BytesWritten)
	if e.Mapped { // it is its bit
		m |= fMapped
	}
	at, m = putU(b, at, m, fCount, e.Count)
	at, m = putU(b, at, m, fLastBoot, e.LastBoot)
	at, m = e.putNetwork(b, at, m)
	at, m = putU(b, at, m, fChildPID, zigzag(int64(e.Child.PID)))
	at, m = putU(b, at, m, fChildStart, e.Child.Start)
	at, m = putU(b, at, m, fSignal, zigzag(int64(e.Signal)))
	at, m = putU(b, at, m, fStatus, zigzag(int64(e.Status)))
	at, m = putU(b, at, m, fErrno, zigzag(int64(e.Errno)))
	at, m = putU(b, at, m, fMarks, uint64(e.Marks))
	at, m = putS(b, at, m, fDetail, e.Detail)
	fields := b[begin+maskLen : at]
	at = putUvarint(b, begin, m)
	return b[:at+copy(b[at:], fields)]
}

// putProgram encodes the fields that an exec has.
func (e *Event) putProgram(b []byte, at int, m uint64) (int, uint64) {
	at, m = putS(b, at, m, fExe, e.Exe)
	if e.Argv != nil {
		m |= fArgv
		at = putUvarint(b, at, uint64(len(e.Argv)))
		for _, a := range e.Argv {
			at = putText(b, at, a)
		}
	}
	at, m = putS(b, at, m, fCWD, e.CWD)
	at, m = putS(b, at, m, fScript, e.Script)
	at, m = putU(b, at, m, fArgvLen, e.ArgvLen)
	if e.ArgvHash != ([32]byte{}) {
		m |= fArgvHash
		at += copy(b[at:], e.ArgvHash[:])
	}
	return at, m
}

// putNetwork encodes the fields that an event of the network has.
func (e *Event) putNetwork(b []byte, at int, m uint64) (int, uint64) {
	at, m = putU(b, at, m, fProto, uint64(e.Proto))
	if e.Local.IsValid() {
		m |= fLocal
		at = putUvarint(b, putAddr(b, at, e.Local.Addr()), uint64(e.Local.Port()))
	}
	if e.Remote.IsValid() {
		m |= fRemote
		at = putUvarint(b, putAddr(b, at, e.Remote.Addr()), uint64(e.Remote.Port()))
	}
	at, m = putS(b, at, m, fUnixAddr, e.UnixAddr)
	at, m = putS(b, at, m, fHost, e.Host)
	at, m = putU(b, at, m, fHostSource, uint64(e.HostSource))
	if len(e.Answers) > 0 {
		m |= fAnswers
		at = putUvarint(b, at, uint64(len(e.Answers)))
		for _, a := range e.Answers {
			at = putAddr(b, at, a)
		}
	}
	return putU(b, at, m, fCookie, e.Cookie)
}

// sizeLimit is at least the length of the event's binary form.
func (e *Event) sizeLimit() int {
	const numbers = maskLen + 7*maskLen*binary.MaxVarintLen64 + 32 + 2*17 // the mask, a number each field, the hash, two addresses
	n := numbers + len(e.Sensor) + len(e.Exe) + len(e.CWD) + len(e.Script) + len(e.Path) + len(e.PathGiven) + len(e.Path2) + len(e.Path2Given) +
		len(e.UnixAddr) + len(e.Host) + len(e.Detail) + 17*len(e.Answers)
	for _, a := range e.Argv {
		n += binary.MaxVarintLen64 + len(a)
	}
	return n
}

// maskLen is the length of the longest mask.
const maskLen = 8

const _ = uint(1<<(7*maskLen) - fieldEnd) // all bits fit

// putUvarint writes v to b from at on, and returns where it ends.
func putUvarint(b []byte, at int, v uint64) int {
	for v >= 1<<7 {
		b[at] = byte(v) | 1<<7
		v >>= 7
		at++
	}
	b[at] = byte(v)
	return at + 1
}

// putU writes a number, unless it is 0, and gathers its bit in m.
func putU(b []byte, at int, m, bit, v uint64) (int, uint64) {
	if v == 0 {
		return at, m
	}
	return putUvarint(b, at, v), m | bit
}

// putS writes a string, unless it is empty, and gathers its bit in m.
func putS(b []byte, at int, m, bit uint64, s string) (int, uint64) {
	if s == "" {
		return at, m
	}
	return putText(b, at, s), m | bit
}

func putText(b []byte, at int, s string) int {
	at = putUvarint(b, at, uint64(len(s)))
	return at + copy(b[at:], s)
}

// putAddr writes a length byte (4 or 16) and an address.
func putAddr(b []byte, at int, a netip.Addr) int {
	if a.Is4() {
		v := a.As4()
		b[at] = 4
		return at + 1 + copy(b[at+1:], v[:])
	}
	v := a.As16()
	b[at] = 16
	return at + 1 + copy(b[at+1:], v[:])
}

// DecodeEvent reads one event that fills all of b into e. Strings are copied; b may be used again.
// It accepts only what AppendBinary writes: other bytes are an error that wraps [ErrEvent], and e is unchanged.
func DecodeEvent(b []byte, e *Event) error {
	if len(b) > MaxEvent {
		return fmt.Errorf("%w: %d bytes are more than %d", ErrEvent, len(b), MaxEvent)
	}
	d := decoder{b: b}
	v := d.event()
	if d.err != nil {
		return d.err
	}
	if left := len(d.b) - d.off; left != 0 {
		return fmt.Errorf("%w: %d bytes follow it", ErrEvent, left)
	}
	*e = v
	return nil
}

type decoder struct {
	b    []byte
	off  int // of what is left: to cut b instead would cost a write barrier each time
	mask uint64
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrEvent, what)
	}
	d.off = len(d.b)
}

func (d *decoder) has(bit uint64) bool { return d.err == nil && d.mask&bit != 0 }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b[d.off:])
	if n <= 0 || n > 1 && d.b[d.off+n-1] == 0 {
		d.fail("a number is cut, too large or not in its shortest form")
		return 0
	}
	d.off += n
	return v
}

// u reads the number of a field whose bit is set; zero would have had no bit.
func (d *decoder) u(bit uint64, limit uint64) uint64 {
	if !d.has(bit) {
		return 0
	}
	v := d.uvarint()
	if v == 0 || v > limit {
		d.fail("a number is zero or out of range")
	}
	return v
}

func (d *decoder) z(bit uint64) int64 { return unzigzag(d.u(bit, 1<<64-1)) }

func (d *decoder) z32(bit uint64) int32 {
	v := d.z(bit)
	if int64(int32(v)) != v {
		d.fail("a number is out of range")
	}
	return int32(v)
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)-d.off) {
		d.fail("it is cut")
		return nil
	}
	out := d.b[d.off : d.off+int(n)]
	d.off += int(n)
	return out
}

func (d *decoder) s(bit uint64) string {
	if !d.has(bit) {
		return ""
	}
	n := d.uvarint()
	if n == 0 {
		d.fail("an empty string has no bit")
	}
	return string(d.take(n))
}

// sensor reads a sensor's name. Every event has one, and there are few.
func (d *decoder) sensor() string {
	if !d.has(fSensor) {
		return ""
	}
	b := d.take(d.uvarint())
	for _, known := range [...]string{"bpf", "ptrace", "names"} {
		if string(b) == known {
			return known
		}
	}
	if len(b) == 0 {
		d.fail("an empty string has no bit")
	}
	return string(b)
}

func (d *decoder) event() (e Event) {
	d.mask = d.uvarint()
	if d.mask >= fieldEnd {
		d.fail("it has fields of a newer schema")
	}
	const all = 1<<64 - 1
	e.Seq = d.u(fSeq, all)
	e.Time = d.z(fTime)
	e.Boot = d.u(fBoot, all)
	e.Type = Type(d.u(fType, uint64(typeCount)-1))
	e.NR = d.nr()
	e.ABI = ABI(d.u(fABI, uint64(ABIARM64)))
	e.Sensor = d.sensor()
	e.Window = Window(d.u(fWindow, uint64(len(windowNames)-1)))
	e.Proc.PID = d.z32(fPID)
	e.Proc.Start = d.u(fStart, all)
	e.TID = d.z32(fTID)
	e.Parent.PID = d.z32(fPPID)
	e.Parent.Start = d.u(fPStart, all)
	e.UID = uint32(d.u(fUID, 1<<32-1))
	e.GID = uint32(d.u(fGID, 1<<32-1))
	e.SID = d.z32(fSID)
	e.Exe = d.s(fExe)
	e.Argv = d.argv()
	e.CWD = d.s(fCWD)
	e.Script = d.s(fScript)
	e.ArgvLen = d.u(fArgvLen, all)
	if d.has(fArgvHash) {
		copy(e.ArgvHash[:], d.take(32))
		if e.ArgvHash == ([32]byte{}) {
			d.fail("an empty hash has no bit")
		}
	}
	e.Path = d.s(fPath)
	e.PathGiven = d.s(fPathGiven)
	e.Path2 = d.s(fPath2)
	e.Path2Given = d.s(fPath2Given)
	e.Dev = d.u(fDev, all)
	e.Ino = d.u(fIno, all)
	e.Access = Access(d.u(fAccess, 1<<16-1))
	e.Flags = d.u(fFlags, all)
	e.Bytes = d.u(fBytes, all)
	e.BytesRead = d.u(fBytesRead, all)
	e.BytesWritten = d.u(fBytesWritten, all)
	e.Mapped = d.has(fMapped)
	e.Count = d.u(fCount, all)
	e.LastBoot = d.u(fLastBoot, all)
	e.Proto = Proto(d.u(fProto, uint64(ProtoOther)))
	e.Local = d.addrPort(fLocal)
	e.Remote = d.addrPort(fRemote)
	e.UnixAddr = d.s(fUnixAddr)
	e.Host = d.s(fHost)
	e.HostSource = HostSource(d.u(fHostSource, uint64(HostLiteral)))
	e.Answers = d.answers()
	e.Cookie = d.u(fCookie, all)
	e.Child.PID = d.z32(fChildPID)
	e.Child.Start = d.u(fChildStart, all)
	e.Signal = d.z32(fSignal)
	e.Status = d.z32(fStatus)
	e.Errno = d.z32(fErrno)
	e.Marks = Mark(d.u(fMarks, 1<<32-1))
	e.Detail = d.s(fDetail)
	return e
}

func (d *decoder) nr() int32 {
	v := d.z(fNR) - 1
	if int64(int32(v)) != v {
		d.fail("a system call number is out of range")
	}
	return int32(v)
}

func (d *decoder) argv() []string {
	if !d.has(fArgv) {
		return nil
	}
	n := d.uvarint()
	if n > uint64(len(d.b)-d.off) {
		d.fail("it is cut")
		return nil
	}
	out := make([]string, 0, min(n, 1<<10)) // a hostile number must not cost more than it brings
	for range n {
		out = append(out, string(d.take(d.uvarint())))
	}
	return out
}

func (d *decoder) answers() []netip.Addr {
	if !d.has(fAnswers) {
		return nil
	}
	n := d.uvarint()
	if n == 0 || n > uint64(len(d.b)-d.off) {
		d.fail("a list of addresses is empty or cut")
		return nil
	}
	out := make([]netip.Addr, 0, min(n, 1<<10))
	for range n {
		out = append(out, d.addr())
	}
	return out
}

// addr reads a length byte (4 or 16) and an address.
func (d *decoder) addr() netip.Addr {
	n := d.uvarint()
	if n != 4 && n != 16 {
		d.fail("an address is neither 4 nor 16 bytes long")
		return netip.Addr{}
	}
	a, ok := netip.AddrFromSlice(d.take(n))
	if !ok {
		d.fail("it is cut")
	}
	return a
}

func (d *decoder) addrPort(bit uint64) netip.AddrPort {
	if !d.has(bit) {
		return netip.AddrPort{}
	}
	a := d.addr()
	port := d.uvarint()
	if port > 1<<16-1 {
		d.fail("a port is out of range")
	}
	return netip.AddrPortFrom(a, uint16(port))
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
