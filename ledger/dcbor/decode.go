package dcbor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// ErrSyntax is wrapped by every error of this package: the input isn't one item of deterministic CBOR, or not the
// one that was asked for.
var ErrSyntax = errors.New("not deterministic CBOR")

// maxDepth bounds nesting. No format of this module needs more than six levels.
const maxDepth = 32

// Decoder reads items one after another from a byte slice. The first error sticks: the methods then return zero
// values, and [Decoder.Done] returns the error. Byte strings are returned as slices of the input.
type Decoder struct {
	in  []byte
	off int
	err error
	// short tells that the error is that the input ended.
	short bool
}

// NewDecoder returns a decoder over b.
func NewDecoder(b []byte) *Decoder { return &Decoder{in: b} }

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// Short tells whether the first error is that the input ended inside an item: with more input it might be whole.
func (d *Decoder) Short() bool { return d.short }

// NextIs tells whether the next item is an unsigned integer below 24 of that value.
func (d *Decoder) NextIs(n byte) bool { return d.err == nil && d.off < len(d.in) && d.in[d.off] == n }

// NextIsBytes tells whether the next item is a byte string.
func (d *Decoder) NextIsBytes() bool {
	return d.err == nil && d.off < len(d.in) && d.in[d.off]>>5 == majorBytes
}

// Offset returns how many bytes have been read.
func (d *Decoder) Offset() int { return d.off }

// Done returns the first error, or an error if input is left.
func (d *Decoder) Done() error {
	if d.err == nil && d.off != len(d.in) {
		d.fail("%d bytes follow the item", len(d.in)-d.off)
	}
	return d.err
}

// ends is fail for input that ended.
func (d *Decoder) ends(format string, args ...any) {
	d.short = d.short || d.err == nil
	d.fail(format, args...)
}

func (d *Decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: byte %d: %s", ErrSyntax, d.off, fmt.Sprintf(format, args...))
	}
}

// head reads the initial byte and the argument of an item. For major type 7 the argument isn't interpreted.
func (d *Decoder) head() (major byte, arg uint64) {
	if d.err != nil {
		return 0, 0
	}
	if d.off >= len(d.in) {
		d.ends("the input ends where an item should begin")
		return 0, 0
	}
	first := d.in[d.off]
	major, info := first>>5, first&31
	if info < 24 {
		d.off++
		return major, uint64(info)
	}
	if info > 27 {
		if info == 31 {
			d.fail("indefinite length")
		} else {
			d.fail("reserved additional information %d", info)
		}
		return 0, 0
	}
	size := 1 << (info - 24)
	if len(d.in)-d.off-1 < size {
		d.ends("the input ends inside an item")
		return 0, 0
	}
	rest := d.in[d.off+1:]
	switch info {
	case 24:
		arg = uint64(rest[0])
	case 25:
		arg = uint64(binary.BigEndian.Uint16(rest))
	case 26:
		arg = uint64(binary.BigEndian.Uint32(rest))
	default:
		arg = binary.BigEndian.Uint64(rest)
	}
	if major == majorOther {
		if info == 24 && arg < 32 {
			d.fail("simple value %d in two bytes", arg)
			return 0, 0
		}
		return major, arg // the caller looks at the width again
	}
	if info == 24 && arg < 24 || info == 25 && arg <= math.MaxUint8 || info == 26 && arg <= math.MaxUint16 ||
		info == 27 && arg <= math.MaxUint32 {
		d.fail("%d isn't in its shortest form", arg)
		return 0, 0
	}
	d.off += 1 + size
	return major, arg
}

func (d *Decoder) want(major byte, name string) uint64 {
	start := d.off
	got, n := d.head()
	if d.err == nil && got != major {
		d.off = start
		d.fail("major type %d where a %s should stand", got, name)
		return 0
	}
	return n
}

// Uint reads an unsigned integer.
func (d *Decoder) Uint() uint64 { return d.want(majorUint, "unsigned integer") }

// Int reads an integer that fits in 64 bits with sign.
func (d *Decoder) Int() int64 {
	start := d.off
	major, n := d.head()
	if d.err != nil {
		return 0
	}
	if major > majorNint || n > math.MaxInt64 {
		d.off = start
		d.fail("no integer of 64 bits with sign")
		return 0
	}
	if major == majorNint {
		return ^int64(n)
	}
	return int64(n)
}

// Bytes reads a byte string.
func (d *Decoder) Bytes() []byte { return d.take(d.want(majorBytes, "byte string")) }

// Fixed reads a byte string of exactly len(dst) bytes into dst.
func (d *Decoder) Fixed(dst []byte) {
	b := d.Bytes()
	if d.err == nil && len(b) != len(dst) {
		d.fail("%d bytes where %d should stand", len(b), len(dst))
		return
	}
	copy(dst, b)
}

// Text reads a text string.
func (d *Decoder) Text() string {
	b := d.take(d.want(majorText, "text string"))
	if d.err == nil && !utf8.Valid(b) {
		d.fail("text is not UTF-8")
		return ""
	}
	return string(b)
}

func (d *Decoder) take(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.in)-d.off) {
		d.ends("a string of %d bytes in %d bytes of input", n, len(d.in)-d.off)
		return nil
	}
	b := d.in[d.off : d.off+int(n) : d.off+int(n)]
	d.off += int(n)
	return b
}

// Array reads the head of an array and returns how many items follow. Every item takes at least a byte, so the
// number never exceeds what is left of the input.
func (d *Decoder) Array() int { return d.count(d.want(majorArray, "array"), 1) }

// Map reads the head of a map and returns how many keys follow. The caller checks the keys' order; [Decoder.Key]
// does it for integer keys.
func (d *Decoder) Map() int { return d.count(d.want(majorMap, "map"), 2) }

func (d *Decoder) count(n, each uint64) int {
	if d.err == nil && n > uint64(len(d.in)-d.off)/each {
		d.ends("%d items in %d bytes of input", n, len(d.in)-d.off)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// Key reads the integer key of a map entry, which must be want.
func (d *Decoder) Key(want uint64) {
	start := d.off
	if got := d.Uint(); d.err == nil && got != want {
		d.off = start
		d.fail("key %d where key %d should stand", got, want)
	}
}

// Bool reads a truth value.
func (d *Decoder) Bool() bool {
	if d.err == nil && d.off < len(d.in) && d.in[d.off]&^1 == 0xf4 {
		d.off++
		return d.in[d.off-1] == 0xf5
	}
	d.fail("no truth value")
	return false
}

// Raw reads one item of any kind, checks it, and returns its bytes.
func (d *Decoder) Raw() []byte {
	start := d.off
	d.skip(0)
	if d.err != nil {
		return nil
	}
	return d.in[start:d.off:d.off]
}

// Check returns an error unless b is exactly one item of deterministic CBOR.
func Check(b []byte) error {
	d := NewDecoder(b)
	d.skip(0)
	return d.Done()
}

func (d *Decoder) skip(depth int) {
	if depth > maxDepth {
		d.fail("nested deeper than %d", maxDepth)
		return
	}
	start := d.off
	major, n := d.head()
	if d.err != nil {
		return
	}
	switch major {
	case majorBytes:
		d.take(n)
	case majorText:
		if !utf8.Valid(d.take(n)) {
			d.fail("text is not UTF-8")
		}
	case majorArray:
		for range d.count(n, 1) {
			if d.skip(depth + 1); d.err != nil {
				return
			}
		}
	case majorMap:
		d.skipMap(d.count(n, 2), depth)
	case majorTag:
		d.skip(depth + 1)
	case majorOther:
		d.skipOther(start)
	}
}

func (d *Decoder) skipMap(n, depth int) {
	var last []byte
	for i := range n {
		from := d.off
		if d.skip(depth + 1); d.err != nil {
			return
		}
		key := d.in[from:d.off]
		if i > 0 {
			switch bytes.Compare(last, key) {
			case 0:
				d.off = from
				d.fail("key %d repeats", i)
				return
			case 1:
				d.off = from
				d.fail("key %d is out of order", i)
				return
			}
		}
		last = key
		if d.skip(depth + 1); d.err != nil {
			return
		}
	}
}

// skipOther checks a float or simple value. Its head has been read, but where an argument follows, not consumed.
func (d *Decoder) skipOther(start int) {
	d.off = start
	info := d.in[start] & 31
	rest := d.in[start+1:]
	var size int
	var f float64
	switch info {
	case 25:
		h := binary.BigEndian.Uint16(rest)
		size, f = 2, halfValue(h)
	case 26:
		size, f = 4, float64(math.Float32frombits(binary.BigEndian.Uint32(rest)))
	case 27:
		size, f = 8, math.Float64frombits(binary.BigEndian.Uint64(rest))
	case 24:
		d.off += 2
		return
	default:
		d.off++
		return
	}
	var short [9]byte
	if !bytes.Equal(AppendFloat(short[:0], f), d.in[start:start+1+size]) {
		d.fail("a float that isn't in its shortest form")
		return
	}
	d.off += 1 + size
}

// Float reads a float.
func (d *Decoder) Float() float64 {
	start := d.off
	if d.err != nil {
		return 0
	}
	if start >= len(d.in) || d.in[start] < 0xf9 || d.in[start] > 0xfb {
		d.fail("no float")
		return 0
	}
	if d.skip(0); d.err != nil {
		return 0
	}
	b := d.in[start+1 : d.off]
	switch len(b) {
	case 2:
		return halfValue(binary.BigEndian.Uint16(b))
	case 4:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}
