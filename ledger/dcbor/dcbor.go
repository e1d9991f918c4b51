// Package dcbor writes and reads deterministic CBOR: RFC 8949 with the core deterministic encoding requirements
// of its section 4.2.1.
//
//   - integers, lengths and tags take the shortest form; floats the shortest of 16, 32 and 64 bits that keeps
//     the value; NaN is f97e00
//   - lengths are definite
//   - keys of a map are sorted by the bytes of their encoding and don't repeat
//   - text is valid UTF-8
//   - nothing follows the item
//
// An encoder appends to a byte slice and allocates nothing else. The [Decoder] refuses what an encoder of this
// package would not have written: what is decoded and encoded again gives the same bytes.
package dcbor

import (
	"encoding/binary"
	"math"
)

// The major types.
const (
	majorUint  = 0
	majorNint  = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
	majorOther = 7
)

func appendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return append(b, major|25, byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// AppendUint appends an unsigned integer.
func AppendUint(b []byte, n uint64) []byte { return appendHead(b, majorUint, n) }

// AppendInt appends a signed integer.
func AppendInt(b []byte, n int64) []byte {
	if n < 0 {
		return appendHead(b, majorNint, uint64(^n))
	}
	return appendHead(b, majorUint, uint64(n))
}

// AppendBytes appends a byte string.
func AppendBytes(b, s []byte) []byte { return append(appendHead(b, majorBytes, uint64(len(s))), s...) }

// AppendText appends a text string. The caller makes sure that it is valid UTF-8.
func AppendText[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

// AppendArray appends the head of an array; n items follow.
func AppendArray(b []byte, n int) []byte { return appendHead(b, majorArray, uint64(n)) }

// AppendMap appends the head of a map; n keys, each with its value, follow in ascending order.
func AppendMap(b []byte, n int) []byte { return appendHead(b, majorMap, uint64(n)) }

// AppendTag appends a tag; the item that it tags follows.
func AppendTag(b []byte, n uint64) []byte { return appendHead(b, majorTag, n) }

// AppendBool appends a truth value.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xf5)
	}
	return append(b, 0xf4)
}

// AppendNull appends null.
func AppendNull(b []byte) []byte { return append(b, 0xf6) }

// AppendFloat appends a float in its shortest form.
func AppendFloat(b []byte, f float64) []byte {
	if f != f {
		return append(b, 0xf9, 0x7e, 0x00)
	}
	f32 := float32(f)
	if float64(f32) != f {
		return binary.BigEndian.AppendUint64(append(b, 0xfb), math.Float64bits(f))
	}
	if h, ok := halfOf(f32); ok {
		return append(b, 0xf9, byte(h>>8), byte(h))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xfa), math.Float32bits(f32))
}

// halfOf returns the 16-bit float of the same value, where there is one.
func halfOf(f float32) (uint16, bool) {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	exp := int(bits>>23&0xff) - 127
	frac := bits & 0x7fffff
	switch {
	case exp == 128: // infinity; NaN is the caller's
		return sign | 0x7c00, frac == 0
	case exp == -127: // zero; a subnormal of 32 bits is too small
		return sign, frac == 0
	case exp >= -14 && exp <= 15:
		return sign | uint16(exp+15)<<10 | uint16(frac>>13), frac&0x1fff == 0
	case exp >= -24 && exp < -14: // subnormal of 16 bits
		shift := uint(-exp - 14 + 13)
		full := frac | 0x800000
		return sign | uint16(full>>shift), full&(1<<shift-1) == 0
	}
	return 0, false
}

// halfValue is the value of a 16-bit float.
func halfValue(h uint16) float64 {
	exp := int(h >> 10 & 0x1f)
	frac := float64(h & 0x3ff)
	var v float64
	switch exp {
	case 0:
		v = math.Ldexp(frac, -24)
	case 31:
		if h&0x3ff != 0 {
			return math.NaN()
		}
		v = math.Inf(1)
	default:
		v = math.Ldexp(frac+1024, exp-25)
	}
	if h&0x8000 != 0 {
		v = -v
	}
	return v
}
