package bodycam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
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
func (e *Event) AppendBinary(b []byte) []byte {
	b = binary.AppendUvarint(b, e.mask())
	u := func(v uint64) {
		if v != 0 {
			b = binary.AppendUvarint(b, v)
		}
	}
	z := func(v int64) {
		if v != 0 {
			b = binary.AppendUvarint(b, zigzag(v))
		}
	}
	s := func(v string) {
		if v != "" {
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		}
	}
	u(e.Seq)
	z(e.Time)
	u(e.Boot)
	u(uint64(e.Type))
	z(int64(e.NR) + 1)
	u(uint64(e.ABI))
	s(e.Sensor)
	u(uint64(e.Window))
	z(int64(e.Proc.PID))
	u(e.Proc.Start)
	z(int64(e.TID))
	z(int64(e.Parent.PID))
	u(e.Parent.Start)
	u(uint64(e.UID))
	u(uint64(e.GID))
	z(int64(e.SID))
	s(e.Exe)
	if e.Argv != nil {
		b = binary.AppendUvarint(b, uint64(len(e.Argv)))
		for _, a := range e.Argv {
			b = append(binary.AppendUvarint(b, uint64(len(a))), a...)
		}
	}
	s(e.CWD)
	s(e.Script)
	u(e.ArgvLen)
	if e.ArgvHash != ([32]byte{}) {
		b = append(b, e.ArgvHash[:]...)
	}
	s(e.Path)
	s(e.PathGiven)
	s(e.Path2)
	s(e.Path2Given)
	u(e.Dev)
	u(e.Ino)
	u(uint64(e.Access))
	u(e.Flags)
	u(e.Bytes)
	u(e.BytesRead)
	u(e.BytesWritten)
	// Mapped is its bit.
	u(e.Count)
	u(e.LastBoot)
	u(uint64(e.Proto))
	b = appendAddrPort(b, e.Local)
	b = appendAddrPort(b, e.Remote)
	s(e.UnixAddr)
	s(e.Host)
	u(uint64(e.HostSource))
	if len(e.Answers) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Answers)))
		for _, a := range e.Answers {
			b = appendAddr(b, a)
		}
	}
	u(e.Cookie)
	z(int64(e.Child.PID))
	u(e.Child.Start)
	z(int64(e.Signal))
	z(int64(e.Status))
	z(int64(e.Errno))
	u(uint64(e.Marks))
	s(e.Detail)
	return b
}

func (e *Event) mask() uint64 {
	var m uint64
	set := func(bit uint64, on bool) {
		if on {
			m |= bit
		}
	}
	set(fSeq, e.Seq != 0)
	set(fTime, e.Time != 0)
	set(fBoot, e.Boot != 0)
	set(fType, e.Type != 0)
	set(fNR, e.NR != -1)
	set(fABI, e.ABI != 0)
	set(fSensor, e.Sensor != "")
	set(fWindow, e.Window != 0)
	set(fPID, e.Proc.PID != 0)
	set(fStart, e.Proc.Start != 0)
	set(fTID, e.TID != 0)
	set(fPPID, e.Parent.PID != 0)
	set(fPStart, e.Parent.Start != 0)
	set(fUID, e.UID != 0)
	set(fGID, e.GID != 0)
	set(fSID, e.SID != 0)
	set(fExe, e.Exe != "")
	set(fArgv, e.Argv != nil)
	set(fCWD, e.CWD != "")
	set(fScript, e.Script != "")
	set(fArgvLen, e.ArgvLen != 0)
	set(fArgvHash, e.ArgvHash != [32]byte{})
	set(fPath, e.Path != "")
	set(fPathGiven, e.PathGiven != "")
	set(fPath2, e.Path2 != "")
	set(fPath2Given, e.Path2Given != "")
	set(fDev, e.Dev != 0)
	set(fIno, e.Ino != 0)
	set(fAccess, e.Access != 0)
	set(fFlags, e.Flags != 0)
	set(fBytes, e.Bytes != 0)
	set(fBytesRead, e.BytesRead != 0)
	set(fBytesWritten, e.BytesWritten != 0)
	set(fMapped, e.Mapped)
	set(fCount, e.Count != 0)
	set(fLastBoot, e.LastBoot != 0)
	set(fProto, e.Proto != 0)
	set(fLocal, e.Local.IsValid())
	set(fRemote, e.Remote.IsValid())
	set(fUnixAddr, e.UnixAddr != "")
	set(fHost, e.Host != "")
	set(fHostSource, e.HostSource != 0)
	set(fAnswers, len(e.Answers) > 0)
	set(fCookie, e.Cookie != 0)
	set(fChildPID, e.Child.PID != 0)
	set(fChildStart, e.Child.Start != 0)
	set(fSignal, e.Signal != 0)
	set(fStatus, e.Status != 0)
	set(fErrno, e.Errno != 0)
	set(fMarks, e.Marks != 0)
	set(fDetail, e.Detail != "")
	return m
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

func appendAddr(b []byte, a netip.Addr) []byte {
	a = a.WithZone("")
	if a.Is4() {
		v := a.As4()
		return append(append(b, 4), v[:]...)
	}
	v := a.As16()
	return append(append(b, 16), v[:]...)
}

func appendAddrPort(b []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return b
	}
	return binary.AppendUvarint(appendAddr(b, a.Addr()), uint64(a.Port()))
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
