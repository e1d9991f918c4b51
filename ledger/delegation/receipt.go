// Package delegation proves who handed work to whom, where both sides are recorded: the one that asks and the one that
// does it each have a log of their own, and each log embeds what the other signed.
//
// Two recorders, A's and B's, go through four steps; the agents that they record take no part in them and can neither
// forge nor omit one:
//
//	request   A appends the [Terms] to its log, and signs a receipt of that record: it goes to B with the request
//	accept    B checks the receipt, appends it to its log, and signs a receipt of that record: it goes back with the answer
//	ack       A appends both receipts
//	proof     once an epoch is sealed: each side appends the other's record with its proof up to a signed checkpoint
//
// A receipt names the record by its place and its digest, and so the whole chain before it: a side that takes the record
// out, moves it, or shows somebody another history contradicts what it signed. [Judge] says so, from the logs or bundles
// that it is shown, without a network.
//
// # A receipt
//
// One CBOR map in the deterministic form of docs/FORMAT.md:
//
//	1  text     "bodycam-delegation/v1 request" or "bodycam-delegation/v1 accept"
//	2  bytes    genesis of the log of whoever signs
//	3  uint     incarnation
//	4  uint     sequence number of the record
//	5  bytes32  digest of the record
//	6  bytes    request: the record's payload, which is the terms; accept: H of the request's receipt
//	7  int      time, nanoseconds since 1970 UTC, on the clock of whoever signs
//	8  array    signatures by all keys of the genesis, in their order
//
// What is signed is the text of key 1, a line feed, and the map of the keys 2 to 7: Ed25519 plainly, ML-DSA-44 with an
// empty context. A receipt's hash is SHA-256 of its one encoding. In HTTP it is the base64 (standard, padded) in a header
// field called Bodycam-Delegation.
package delegation

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// Header is the header field that carries a receipt: a request's on the way there, an acceptance's on the way back.
const Header = "Bodycam-Delegation"

// Role says which side signed.
type Role string

// The roles.
const (
	Request Role = "bodycam-delegation/v1 request"
	Accept  Role = "bodycam-delegation/v1 accept"
)

// Errors that a caller may tell apart.
var (
	ErrSyntax    = errors.New("it isn't of the form that it should be")
	ErrSignature = errors.New("no valid signature of that log's keys")
)

// The bounds of what is parsed.
const (
	maxReceipt = 64 << 10
	maxText    = 1024
)

// Terms are what is handed over: the payload of A's record.
type Terms struct {
	To      string       // how A calls the other side: host and port, a name
	Scope   string       // what it may do, in A's words
	Subject *ledger.Hash // SHA-256 of what was handed over, such as the request's body; nil: it wasn't bound
	Nonce   [16]byte     // random: no two requests are the same
	Parent  *uint64      // sequence number of the record of A's log that led to it; nil: none is named
}

// Append appends the one encoding, a CBOR map: 1 to, 2 scope, 3 nonce, 4 subject (if any), 5 parent (if any).
func (t *Terms) Append(b []byte) []byte {
	n := 3
	if t.Subject != nil {
		n++
	}
	if t.Parent != nil {
		n++
	}
	b = dcbor.AppendMap(b, n)
	b = dcbor.AppendText(append(b, 1), t.To)
	b = dcbor.AppendText(append(b, 2), t.Scope)
	b = dcbor.AppendBytes(append(b, 3), t.Nonce[:])
	if t.Subject != nil {
		b = dcbor.AppendBytes(append(b, 4), t.Subject[:])
	}
	if t.Parent != nil {
		b = dcbor.AppendUint(append(b, 5), *t.Parent)
	}
	return b
}

// ParseTerms reads terms. It accepts no other encoding of the same terms.
func ParseTerms(b []byte) (*Terms, error) {
	d := dcbor.NewDecoder(b)
	t := &Terms{}
	n := d.Map()
	d.Key(1)
	t.To = d.Text()
	d.Key(2)
	t.Scope = d.Text()
	d.Key(3)
	d.Fixed(t.Nonce[:])
	if rest := b[min(d.Offset(), len(b)):]; n > 3 && len(rest) > 0 && rest[0] == 4 {
		d.Key(4)
		t.Subject = new(ledger.Hash)
		d.Fixed(t.Subject[:])
		n--
	}
	if n > 3 {
		d.Key(5)
		p := d.Uint()
		t.Parent = &p
	}
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("%w: the terms of a delegation: %w", ErrSyntax, err)
	}
	if !bytes.Equal(t.Append(nil), b) {
		return nil, fmt.Errorf("%w: the terms of a delegation: encoding them again gives other bytes", ErrSyntax)
	}
	return t, t.valid()
}

func (t *Terms) valid() error {
	for what, s := range map[string]string{"name": t.To, "scope": t.Scope} {
		if len(s) > maxText || !utf8.ValidString(s) {
			return fmt.Errorf("%w: the %s of a delegation has %d bytes, at most %d of UTF-8 are allowed", ErrSyntax, what, len(s), maxText)
		}
	}
	return nil
}

// Receipt is what one side signs of its record, for the other.
type Receipt struct {
	Role        Role
	Genesis     *ledger.Genesis
	Incarnation uint64
	Seq         uint64
	Record      ledger.Hash
	Content     []byte // see the package's comment
	Time        int64
	Signatures  [][]byte
}

func (r *Receipt) appendFields(b []byte) []byte {
	b = dcbor.AppendBytes(append(b, 2), r.Genesis.AppendCBOR(nil))
	b = dcbor.AppendUint(append(b, 3), r.Incarnation)
	b = dcbor.AppendUint(append(b, 4), r.Seq)
	b = dcbor.AppendBytes(append(b, 5), r.Record[:])
	b = dcbor.AppendBytes(append(b, 6), r.Content)
	return dcbor.AppendInt(append(b, 7), r.Time)
}

// Append appends the one encoding.
func (r *Receipt) Append(b []byte) []byte {
	b = dcbor.AppendMap(b, 8)
	b = dcbor.AppendText(append(b, 1), string(r.Role))
	b = r.appendFields(b)
	b = dcbor.AppendArray(append(b, 8), len(r.Signatures))
	for _, s := range r.Signatures {
		b = dcbor.AppendBytes(b, s)
	}
	return b
}

// message is what is signed. The role separates it from all else that a log's keys sign.
func (r *Receipt) message() []byte {
	return r.appendFields(dcbor.AppendMap([]byte(string(r.Role)+"\n"), 6))
}

// ParseReceipt reads a receipt. It accepts no other encoding. What its signatures are worth, [Receipt.Verify] says.
func ParseReceipt(b []byte) (*Receipt, error) {
	bad := func(err error) (*Receipt, error) {
		return nil, fmt.Errorf("%w: a delegation's receipt: %w", ErrSyntax, err)
	}
	if len(b) > maxReceipt {
		return bad(fmt.Errorf("%d bytes", len(b)))
	}
	d := dcbor.NewDecoder(b)
	r := &Receipt{}
	d.Map()
	d.Key(1)
	r.Role = Role(d.Text())
	d.Key(2)
	gen := d.Bytes()
	d.Key(3)
	r.Incarnation = d.Uint()
	d.Key(4)
	r.Seq = d.Uint()
	d.Key(5)
	d.Fixed(r.Record[:])
	d.Key(6)
	r.Content = bytes.Clone(d.Bytes())
	d.Key(7)
	r.Time = d.Int()
	d.Key(8)
	for range d.Array() {
		s := d.Bytes()
		if d.Err() != nil {
			break
		}
		r.Signatures = append(r.Signatures, bytes.Clone(s))
	}
	err := d.Done()
	if err == nil {
		r.Genesis, err = ledger.ParseGenesis(gen)
	}
	if err != nil {
		return bad(err)
	}
	if !bytes.Equal(r.Append(nil), b) {
		return bad(errors.New("encoding it again gives other bytes"))
	}
	switch r.Role {
	case Request:
		_, err = ParseTerms(r.Content)
	case Accept:
		if len(r.Content) != len(ledger.Hash{}) {
			err = fmt.Errorf("it names a request by %d bytes", len(r.Content))
		}
	default:
		err = fmt.Errorf("it begins with %.60q", r.Role)
	}
	if err != nil {
		return bad(err)
	}
	return r, nil
}

// Verify checks that every key of the log signed it: those of the genesis, or all of another set that took over from them.
func (r *Receipt) Verify(later ...[]ledger.PublicKey) error {
	msg := r.message()
	for _, keys := range append([][]ledger.PublicKey{r.Genesis.Keys}, later...) {
		if r.signed(msg, keys) {
			return nil
		}
	}
	return fmt.Errorf("a receipt of %s: %w", r.Genesis.Origin(), ErrSignature)
}

func (r *Receipt) signed(msg []byte, keys []ledger.PublicKey) bool {
	if len(keys) == 0 || len(keys) != len(r.Signatures) {
		return false
	}
	for i, k := range keys {
		if !(checkpoint.Key{Name: "key", Alg: k.Alg, Public: k.Public}).VerifyMessage(msg, r.Signatures[i]) {
			return false
		}
	}
	return true
}

func (r *Receipt) sign(signers []checkpoint.Signer) error {
	msg := r.message()
	r.Signatures = nil
	for _, s := range signers {
		sig, err := s.Sign(msg)
		if err != nil {
			return fmt.Errorf("signing a delegation's receipt: %w", err)
		}
		r.Signatures = append(r.Signatures, sig)
	}
	return nil
}

// Hash is what an acceptance names a request by.
func (r *Receipt) Hash() ledger.Hash { return sha256.Sum256(r.Append(nil)) }

// Terms are those of a request.
func (r *Receipt) Terms() (*Terms, error) {
	if r.Role != Request {
		return nil, fmt.Errorf("%w: a receipt of an acceptance has no terms", ErrSyntax)
	}
	return ParseTerms(r.Content)
}

// Log is the identity of the log whose record it is of.
func (r *Receipt) Log() ledger.Hash { return r.Genesis.ID() }

// When is the signer's clock.
func (r *Receipt) When() time.Time { return time.Unix(0, r.Time).UTC() }

// HeaderValue is the receipt as the value of a header field.
func (r *Receipt) HeaderValue() string { return base64.StdEncoding.EncodeToString(r.Append(nil)) }

// ParseHeaderValue reads what [Receipt.HeaderValue] wrote.
func ParseHeaderValue(s string) (*Receipt, error) {
	if len(s) > 2*maxReceipt {
		return nil, fmt.Errorf("%w: a header field of %d bytes", ErrSyntax, len(s))
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%w: a header field: %w", ErrSyntax, err)
	}
	return ParseReceipt(b)
}
