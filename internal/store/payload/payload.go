// Package payload has the forms of what a run seals beside its events: actions, findings, the heads of files. They
// are maps of deterministic CBOR with integer keys, as docs/FORMAT.md lists them. Runs recorded before that held
// JSON, which is told by its first byte and still read.
//
// In every map a field that has its zero value is left out, so that one value has one encoding. Text is UTF-8: bytes
// that aren't become U+FFFD, as in encoding/json. A digest that is given in 64 lower-case hexadecimal digits is a byte
// string of 32, any other text is itself. JSON within a value (a tool's arguments) is a text that holds it as it was
// given.
package payload

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// ErrForm is wrapped by every error about bytes that are no payload of that form.
var ErrForm = errors.New("not a payload of this form")

// isJSON tells the older form: a JSON object. A map in CBOR begins with a byte of 0xa0 or more.
func isJSON(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// encoder appends maps. A map's head is a byte that counts its entries: none has more than 23.
type encoder struct{ b []byte }

func (e *encoder) begin() (m int) {
	e.b = append(e.b, 0xa0)
	return len(e.b) - 1
}

// key begins an entry of the map at m.
func (e *encoder) key(m int, k byte) {
	e.b[m]++
	e.b = append(e.b, k)
}

// sub begins an entry that is a map; end takes it back where it got no entries.
func (e *encoder) sub(m int, k byte) int {
	e.key(m, k)
	return e.begin()
}

func (e *encoder) end(m, sub int) {
	if e.b[sub] == 0xa0 {
		e.b = e.b[:sub-1]
		e.b[m]--
	}
}

func (e *encoder) text(m int, k byte, s string) {
	if s != "" {
		e.key(m, k)
		e.b = dcbor.AppendText(e.b, valid(s))
	}
}

func (e *encoder) json(m int, k byte, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	e.key(m, k)
	if utf8.Valid(raw) {
		e.b = dcbor.AppendText(e.b, raw)
		return
	}
	e.b = dcbor.AppendText(e.b, valid(string(raw)))
}

func (e *encoder) bytes(m int, k byte, v []byte) {
	if len(v) > 0 {
		e.key(m, k)
		e.b = dcbor.AppendBytes(e.b, v)
	}
}

func (e *encoder) int(m int, k byte, v int64) {
	if v != 0 {
		e.key(m, k)
		e.b = dcbor.AppendInt(e.b, v)
	}
}

func (e *encoder) uint(m int, k byte, v uint64) {
	if v != 0 {
		e.key(m, k)
		e.b = dcbor.AppendUint(e.b, v)
	}
}

func (e *encoder) uints(m int, k byte, list []uint64) {
	if len(list) == 0 {
		return
	}
	e.key(m, k)
	e.b = dcbor.AppendArray(e.b, len(list))
	for _, v := range list {
		e.b = dcbor.AppendUint(e.b, v)
	}
}

func (e *encoder) digest(m int, k byte, s string) {
	if s != "" {
		e.key(m, k)
		e.b = appendDigest(e.b, s)
	}
}

func appendDigest(b []byte, s string) []byte {
	var raw [32]byte
	if len(s) == 2*len(raw) {
		bad := uint64(0)
		for i := 0; i < len(raw); i += 4 {
			four, wrong := unhex8(s[2*i : 2*i+8])
			binary.LittleEndian.PutUint32(raw[i:], four)
			bad |= wrong
		}
		if bad == 0 {
			return dcbor.AppendBytes(b, raw[:])
		}
	}
	return dcbor.AppendText(b, valid(s))
}

// unhex8 reads eight lower-case hexadecimal digits at once; wrong isn't zero where they aren't such. An action has
// several digests, and digit by digit they would be a quarter of what it costs.
func unhex8(s string) (four uint32, wrong uint64) {
	const each = 0x0101010101010101
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	n := x&(0x0f*each) + 9*(x>>6&each)               // the digits' values, if they are digits
	again := n + 0x30*each + 39*((n+6*each)>>4&each) // and the digits of these values
	wrong = again ^ x | n&(0xf0*each)
	y := (n<<4 | n>>8) & 0x00ff00ff00ff00ff
	y = (y | y>>8) & 0x0000ffff0000ffff
	return uint32(y | y>>16), wrong
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// byEncoding orders the keys of a map as CBOR wants them: shorter ones first.
func byEncoding(x, y string) int {
	if c := cmp.Compare(len(x), len(y)); c != 0 {
		return c
	}
	return strings.Compare(x, y)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		if utf8.ValidString(k) { // no program of ours makes another
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, byEncoding)
	return keys
}

// decoder reads what encoder wrote. The first error sticks.
type decoder struct {
	*dcbor.Decoder
	unknown error
}

// fields calls f with every key of a map; f reads the value and tells whether it knows the key.
func (d *decoder) fields(f func(key uint64) bool) {
	for range d.Map() {
		k := d.Uint()
		if d.Err() != nil || d.unknown != nil {
			return
		}
		if !f(k) {
			d.unknown = fmt.Errorf("%w: key %d is unknown: a newer bodycam may have written it", ErrForm, k)
			return
		}
	}
}

// list calls f so often as an array has items.
func (d *decoder) list(f func()) {
	for range d.Array() {
		if d.Err() != nil || d.unknown != nil {
			return
		}
		f()
	}
}

func (d *decoder) json() json.RawMessage { return json.RawMessage(d.Text()) }

func (d *decoder) bytes() []byte { return slices.Clone(d.Bytes()) }

func (d *decoder) uints() (out []uint64) {
	d.list(func() { out = append(out, d.Uint()) })
	return out
}

func (d *decoder) digest() string {
	if d.NextIsBytes() {
		var raw [32]byte
		d.Fixed(raw[:])
		return hex.EncodeToString(raw[:])
	}
	return d.Text()
}

// parse reads b, which is one map and nothing else, by read, and makes sure that encoding the value again by again
// gives b.
func parse(what string, b []byte, read func(*decoder), again func() []byte) error {
	d := &decoder{Decoder: dcbor.NewDecoder(b)}
	read(d)
	err := d.Done()
	if d.unknown != nil {
		err = d.unknown
	}
	if err != nil {
		return fmt.Errorf("%w: reading %s: %w", ErrForm, what, err)
	}
	if string(again()) != string(b) {
		return fmt.Errorf("%w: reading %s: encoding it again gives other bytes", ErrForm, what)
	}
	return nil
}
