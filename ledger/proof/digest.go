package proof

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Digest is a signed digest: a head of a log with a time, chained to the digest before, and signed by whoever delivers
// it. Its text, of which every line ends with a newline, is
//
//	bodycam-digest/v1
//	origin
//	number of the digest, from 0
//	size
//	root in base64
//	time, RFC 3339 in UTC with seconds
//	SHA-256 of the whole digest before in base64, of 32 zero bytes for number 0
//	signature in base64, over the lines before, by an Ed25519 key
type Digest struct {
	checkpoint.Checkpoint
	Number    uint64
	Time      time.Time
	Previous  merkle.Hash
	Signature []byte
}

const digestHead = "bodycam-digest/v1"

// SignedText is what is signed.
func (d *Digest) SignedText() []byte {
	b64 := base64.StdEncoding.EncodeToString
	return []byte(strings.Join([]string{digestHead, d.Origin, strconv.FormatUint(d.Number, 10), strconv.FormatUint(d.Size, 10),
		b64(d.Root[:]), d.Time.UTC().Format(time.RFC3339), b64(d.Previous[:])}, "\n") + "\n")
}

// Marshal is the digest as text.
func (d *Digest) Marshal() []byte {
	return append(d.SignedText(), base64.StdEncoding.EncodeToString(d.Signature)+"\n"...)
}

// Hash is what the next digest names.
func (d *Digest) Hash() merkle.Hash { return sha256.Sum256(d.Marshal()) }

// ParseDigest reads a digest. It accepts no other form of the same digest.
func ParseDigest(b []byte) (*Digest, error) {
	bad := func(what string) (*Digest, error) { return nil, fmt.Errorf("%w: a signed digest: %s", ErrSyntax, what) }
	if len(b) > 4<<10 {
		return bad("it is too long")
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) != 9 || lines[0] != digestHead {
		return bad("it hasn't the eight lines that it should have")
	}
	d := &Digest{}
	d.Origin = lines[1]
	var err error
	if d.Number, err = strconv.ParseUint(lines[2], 10, 63); err != nil {
		return bad("its number")
	}
	if d.Size, err = strconv.ParseUint(lines[3], 10, 63); err != nil {
		return bad("its size")
	}
	root, err := hashes([]string{lines[4], lines[6]})
	if err != nil {
		return nil, err
	}
	d.Root, d.Previous = root[0], root[1]
	if d.Time, err = time.Parse(time.RFC3339, lines[5]); err != nil {
		return bad("its time")
	}
	if d.Signature, err = base64.StdEncoding.Strict().DecodeString(lines[7]); err != nil {
		return bad("its signature")
	}
	if string(d.Marshal()) != string(b) {
		return bad("it isn't in its one form")
	}
	return d, nil
}

// Verify checks the signature. That the digests before are those that it continues, who has them checks with
// [Digest.Follows].
func (d *Digest) Verify(k checkpoint.Key) error {
	if k.Alg != checkpoint.Ed25519 || !k.VerifyMessage(d.SignedText(), d.Signature) {
		return fmt.Errorf("signed digest %d of %s: %w", d.Number, d.Origin, checkpoint.ErrSignature)
	}
	return nil
}

// Follows checks that it is the digest after prev, which is nil for the first.
func (d *Digest) Follows(prev *Digest) error {
	want, number := merkle.Hash{}, uint64(0)
	if prev != nil {
		want, number = prev.Hash(), prev.Number+1
		if d.Origin != prev.Origin || d.Size < prev.Size || d.Time.Before(prev.Time) {
			return fmt.Errorf("signed digest %d of %s goes back behind the one before: %w", d.Number, d.Origin, merkle.ErrProof)
		}
	}
	if d.Number != number || d.Previous != want {
		return fmt.Errorf("signed digest %d of %s doesn't continue the one before: %w", d.Number, d.Origin, merkle.ErrProof)
	}
	return nil
}
