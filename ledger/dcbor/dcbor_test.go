package dcbor_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// appendixA holds the examples of RFC 8949, appendix A, that are deterministic.
var appendixA = strings.Fields(`
00 01 0a 17 1818 1819 1864 1903e8 1a000f4240 1b000000e8d4a51000 1bffffffffffffffff c249010000000000000000
3bffffffffffffffff c349010000000000000000 20 29 3863 3903e7 f90000 f98000 f93c00 fb3ff199999999999a f93e00 f97bff
fa47c35000 fa7f7fffff fb7e37e43c8800759c f90001 f90400 f9c400 fbc010666666666666 f97c00 f97e00 f9fc00
f4 f5 f6 f7 f0 f8ff c074323031332d30332d32315432303a30343a30305a c11a514b67b0 c1fb41d452d9e2000000
d74401020304 d818456449455446 d82076687474703a2f2f7777772e6578616d706c652e636f6d 40 4401020304 60 6161
6449455446 62225c 62c3bc 63e6b0b4 64f0908591 80 83010203 8301820203820405
98190102030405060708090a0b0c0d0e0f101112131415161718181819 a0 a201020304 a26161016162820203 826161a161626163
a56161614161626142616361436164614461656145`)

// notDeterministic holds those that aren't, and encodings of other kinds that must be refused.
var notDeterministic = map[string]string{
	"infinity in 32 bits":           "fa7f800000",
	"NaN in 32 bits":                "fa7fc00000",
	"minus infinity in 64 bits":     "fbfff0000000000000",
	"NaN in 64 bits":                "fb7ff8000000000000",
	"NaN with a payload":            "f97e01",
	"indefinite bytes":              "5f42010243030405ff",
	"indefinite text":               "7f657374726561646d696e67ff",
	"indefinite array":              "9f018202039f0405ffff",
	"empty indefinite array":        "9fff",
	"indefinite array in an array":  "83018202039f0405ff",
	"indefinite map":                "bf61610161629f0203ffff",
	"indefinite map in an array":    "826161bf61626163ff",
	"23 in two bytes":               "1817",
	"255 in three bytes":            "1900ff",
	"65535 in five bytes":           "1a0000ffff",
	"2^32-1 in nine bytes":          "1b00000000ffffffff",
	"long length of bytes":          "5800",
	"long length of an array":       "9800",
	"long length of a map":          "b800",
	"long tag":                      "d801f6",
	"1.5 in 32 bits":                "fa3fc00000",
	"100000 in 64 bits":             "fb40f86a0000000000",
	"duplicate key":                 "a201010102",
	"unsorted keys":                 "a202010101",
	"text before a longer integer":  "a26161011903e801",
	"duplicate key in an inner map": "a101a201010102",
	"simple value 24":               "f818",
	"simple value 31 in two bytes":  "f81f",
	"reserved information 28":       "1c",
	"break alone":                   "ff",
	"text that isn't UTF-8":         "61ff",
	"a surrogate in text":           "63eda080",
	"trailing byte":                 "0000",
	"nothing":                       "",
	"a head without its argument":   "19",
	"an argument cut":               "1a0001",
	"bytes cut":                     "42aa",
	"an array cut":                  "8201",
	"a map without its last value":  "a101",
	"an array of 2^64-1":            "9bffffffffffffffff",
	"a string of 2^64-1":            "5bffffffffffffffff",
	"a map of 2^63 pairs":           "bb8000000000000000",
}

func TestAppendixA(t *testing.T) {
	for _, h := range appendixA {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatalf("%s: %v", h, err)
		}
		if err := dcbor.Check(b); err != nil {
			t.Errorf("%s: %v", h, err)
		}
	}
	for what, h := range notDeterministic {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := dcbor.Check(b); !errors.Is(err, dcbor.ErrSyntax) {
			t.Errorf("%s (%s) passes: %v", what, h, err)
		}
	}
	deep := append(bytes.Repeat([]byte{0x81}, 10000), 0)
	if dcbor.Check(deep) == nil {
		t.Error("10,000 nested arrays pass")
	}
}

// TestEncode compares with the other implementation, value by value.
func TestEncode(t *testing.T) {
	em, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	same := func(got []byte, v any) {
		t.Helper()
		want, err := em.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%v: %x, want %x", v, got, want)
		}
	}
	for _, n := range []uint64{0, 1, 23, 24, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64} {
		same(dcbor.AppendUint(nil, n), n)
	}
	for _, n := range []int64{0, -1, -24, -25, -256, -257, math.MinInt64, math.MaxInt64} {
		same(dcbor.AppendInt(nil, n), n)
		d := dcbor.NewDecoder(dcbor.AppendInt(nil, n))
		if got := d.Int(); got != n || d.Done() != nil {
			t.Errorf("%d comes back as %d, %v", n, got, d.Done())
		}
	}
	floats := []float64{
		0, math.Copysign(0, -1), 1, 1.5, 65504, 65505, 5.960464477539063e-8, 2.98e-8, 0.00006103515625, 1.1, 100000, 3.4028234663852886e+38,
		1e300, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat64, -4.1, 0.000030517578125, 0.00006097555160522461,
	}
	for _, f := range floats {
		same(dcbor.AppendFloat(nil, f), f)
		d := dcbor.NewDecoder(dcbor.AppendFloat(nil, f))
		if got := d.Float(); got != f || d.Done() != nil {
			t.Errorf("%v comes back as %v, %v", f, got, d.Done())
		}
	}
	same(dcbor.AppendFloat(nil, math.NaN()), math.NaN())
	same(dcbor.AppendText(nil, "aü水"), "aü水")
	same(dcbor.AppendBytes(nil, []byte{1, 2}), []byte{1, 2})
	same(dcbor.AppendBool(nil, true), true)
	same(dcbor.AppendNull(nil), nil)
	m := dcbor.AppendMap(nil, 2)
	m = dcbor.AppendArray(dcbor.AppendUint(m, 1), 1)
	m = dcbor.AppendText(dcbor.AppendBool(m, false), "k")
	same(dcbor.AppendInt(m, -5), map[any]any{uint64(1): []any{false}, "k": -5})
}

func TestDecoderSticks(t *testing.T) {
	d := dcbor.NewDecoder([]byte{0x61, 0x61})
	if d.Uint(); !errors.Is(d.Err(), dcbor.ErrSyntax) {
		t.Fatalf("text read as an integer: %v", d.Err())
	}
	if s := d.Text(); s != "" || d.Done() == nil {
		t.Fatal("the error didn't stick")
	}
}

// FuzzCheck: what passes is what the other implementation decodes and encodes to the same bytes.
func FuzzCheck(f *testing.F) {
	for _, h := range appendixA {
		if b, err := hex.DecodeString(h); err == nil {
			f.Add(b)
		}
	}
	for _, h := range notDeterministic {
		b, _ := hex.DecodeString(h)
		f.Add(b)
	}
	em, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		f.Fatal(err)
	}
	dm, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, IntDec: cbor.IntDecConvertNone,
		MaxNestedLevels: 64, DefaultByteStringType: nil, BigIntDec: cbor.BigIntDecodeValue, TimeTag: cbor.DecTagIgnored,
	}.DecMode()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if dcbor.Check(b) != nil {
			return
		}
		if err := dm.Wellformed(b); err != nil {
			t.Fatalf("%x passes and isn't well formed: %v", b, err)
		}
		var v any
		if err := dm.Unmarshal(b, &v); err != nil {
			return // tags and keys that Go has no value for
		}
		again, err := em.Marshal(v)
		if err != nil || hasTag(b) {
			return
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x passes, and is encoded again as %x", b, again)
		}
	})
}

// hasTag tells whether there may be tags or simple values, which Go values don't keep.
func hasTag(b []byte) bool {
	for _, c := range b {
		if c >= 0xc0 {
			return true
		}
	}
	return false
}
