package bpf

import (
	"errors"
	"unsafe"

	"github.com/bodycam-dev/bodycam"
)

var errShort = errors.New("a record is shorter than it says")

// record is one record as it came from the kernel: a view into the ring.
type record struct {
	*sensorRec
	b []byte // the whole record
}

const (
	recSize   = int(unsafe.Sizeof(sensorRec{}))
	bodySize  = int(unsafe.Sizeof(sensorBody{}))
	flushSize = int(unsafe.Sizeof(sensorFlush{}))
	netSize   = int(unsafe.Sizeof(sensorNet{}))
)

// view checks a record's length and looks at its head.
func view(b []byte) (record, error) {
	if len(b) < recSize {
		return record{}, errShort
	}
	r := record{sensorRec: (*sensorRec)(unsafe.Pointer(&b[0])), b: b}
	if int(r.Len) > len(b) || int(r.Len) < recSize {
		return record{}, errShort
	}
	if sensorSource(r.Source) >= sensorSourceSRC_NUM || r.Abi > uint8(bodycam.ABIX32) || !known(r.Type) {
		return record{}, errShort
	}
	r.b = b[:r.Len]
	return r, nil
}

// body returns the record's body and its four strings.
func (r record) body() (*sensorBody, [4][]byte, error) {
	var s [4][]byte
	if len(r.b) < recSize+bodySize {
		return nil, s, errShort
	}
	body := (*sensorBody)(unsafe.Pointer(&r.b[recSize]))
	rest := r.b[recSize+bodySize:]
	for _, j := range order(r.Kind) {
		n := int(body.Len[j])
		if n > len(rest) {
			return nil, s, errShort
		}
		s[j], rest = rest[:n], rest[n:]
	}
	return body, s, nil
}

// order is how the strings lie in the record: exec has its resolved paths first.
func order(kind uint8) *[4]int {
	if sensorKind(kind) == sensorKindK_EXEC {
		return &execOrder
	}
	return &usualOrder
}

var (
	usualOrder = [4]int{0, 1, 2, 3}
	execOrder  = [4]int{1, 3, 0, 2}
)

func (r record) flush() (*sensorFlush, error) {
	if len(r.b) < recSize+flushSize {
		return nil, errShort
	}
	return (*sensorFlush)(unsafe.Pointer(&r.b[recSize])), nil
}

// net returns the record's description of a socket, and the path or packet that follows it.
func (r record) net() (*sensorNet, []byte, error) {
	if len(r.b) < recSize+netSize {
		return nil, nil, errShort
	}
	n := (*sensorNet)(unsafe.Pointer(&r.b[recSize]))
	rest := r.b[recSize+netSize:]
	if int(n.Plen) > len(rest) || int(n.Ulen) > len(n.Upath) {
		return nil, nil, errShort
	}
	return n, rest[:n.Plen], nil
}

// known tells whether there is an event type of that number.
func known(t uint8) bool { return t == 0 || bodycam.Type(t).String() != bodycam.TypeUnknown.String() }
