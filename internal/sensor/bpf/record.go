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

const recSize = int(unsafe.Sizeof(sensorRec{}))

// view checks a record's length and looks at its head.
func view(b []byte) (record, error) {
	if len(b) < recSize {
		return record{}, errShort
	}
	r := record{sensorRec: (*sensorRec)(unsafe.Pointer(&b[0])), b: b}
	if sensorSource(r.Source) >= sensorSourceSRC_NUM || r.Abi > uint8(bodycam.ABIX32) || !known(r.Type) {
		return record{}, errShort
	}
	return r, nil
}

// cut returns what follows a record's head, and the bytes behind that.
func cut[T any](r record) (*T, []byte, error) {
	n := recSize + int(unsafe.Sizeof(*new(T)))
	if len(r.b) < n {
		return nil, nil, errShort
	}
	return (*T)(unsafe.Pointer(&r.b[recSize])), r.b[n:], nil
}

// split cuts a record's strings apart.
func split(b []byte, lengths *[4]uint16) (s [4][]byte, err error) {
	for i, n := range lengths {
		if int(n) > len(b) {
			return s, errShort
		}
		s[i], b = b[:n], b[n:]
	}
	return s, nil
}

// body returns the record's body and its four strings.
func (r record) body() (*sensorBody, [4][]byte, error) {
	b, rest, err := cut[sensorBody](r)
	if err != nil {
		return nil, [4][]byte{}, err
	}
	s, err := split(rest, &b.Len)
	return b, s, err
}

// opened returns what a record tells of an open file, its path, and the name as given.
func (r record) opened() (o *sensorOpened, path, given []byte, err error) {
	o, rest, err := cut[sensorOpened](r)
	if err != nil || int(o.Path)+int(o.Given) > len(rest) {
		return nil, nil, nil, errShort
	}
	return o, rest[:o.Path], rest[o.Path:][:o.Given], nil
}

// executed returns what a record tells of a program: the strings are its path, the working directory, the name as given and
// the script. args is its argv, or empty where that comes in pieces.
func (r record) executed() (x *sensorExecuted, s [4][]byte, args []byte, err error) {
	x, rest, err := cut[sensorExecuted](r)
	if err != nil {
		return nil, s, nil, err
	}
	if s, err = split(rest, &[4]uint16{x.Exe, x.Cwd, x.Given, x.Script}); err != nil {
		return nil, s, nil, err
	}
	rest = rest[int(x.Exe)+int(x.Cwd)+int(x.Given)+int(x.Script):]
	if int(x.Args) > len(rest) {
		return nil, s, nil, errShort
	}
	return x, s, rest[:x.Args], nil
}

// flushes returns what the slots gathered that a record tells of.
func (r record) flushes() ([]sensorFlush, error) {
	size := int(unsafe.Sizeof(sensorFlush{}))
	n := (len(r.b) - recSize) / size
	if n == 0 || recSize+n*size != len(r.b) {
		return nil, errShort
	}
	return unsafe.Slice((*sensorFlush)(unsafe.Pointer(&r.b[recSize])), n), nil
}

// net returns the record's description of a socket, and the path or packet that follows it.
func (r record) net() (*sensorNet, []byte, error) {
	n, rest, err := cut[sensorNet](r)
	if err != nil || int(n.Plen) > len(rest) || int(n.Ulen) > len(n.Upath) {
		return nil, nil, errShort
	}
	return n, rest[:n.Plen], nil
}

// known tells whether there is an event type of that number.
func known(t uint8) bool { return t == 0 || bodycam.Type(t).String() != bodycam.TypeUnknown.String() }
