// Package checkpoint is the C2SP checkpoint (c2sp.org/tlog-checkpoint): a tree head as a signed note
// (c2sp.org/signed-note), with the two kinds of signature that a ledger uses.
//
//	origin
//	size in decimal
//	root in base64
//	(empty line)
//	— name base64(key id ‖ signature)
//
// A key has a name, an algorithm and a public key. Its id is the first four bytes of
// SHA-256(name ‖ "\n" ‖ algorithm ‖ public key). The algorithms are
//
//	0x01  Ed25519 over the note's text
//	0x04  Ed25519 cosignature (c2sp.org/tlog-cosignature): an 8-byte time, then a signature over
//	      "cosignature/v1\ntime N\n" ‖ text
//	0x06  ML-DSA-44 cosignature: an 8-byte time, then a signature over a structure of name, time, origin, size, root
//
// A log signs with 0x01 and 0x06, a witness with 0x04 or 0x06. Other signature lines are kept and ignored.
package checkpoint

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrSyntax is wrapped by the errors of [Parse]: the input is no checkpoint.
var ErrSyntax = errors.New("not a checkpoint")

// ErrSignature is wrapped where a signature is missing or false.
var ErrSignature = errors.New("signature missing or false")

// The bounds of what is parsed. The note specification asks for at least 16 signatures.
const (
	maxNote       = 256 << 10
	maxSignatures = 64
)

// Checkpoint is a tree head.
type Checkpoint struct {
	Origin string
	Size   uint64
	Root   [32]byte
}

// Signature is one signature line.
type Signature struct {
	Name  string
	KeyID [4]byte
	Bytes []byte // what follows the key id
}

// Note is a checkpoint with its signatures.
type Note struct {
	Checkpoint
	Signatures []Signature
}

// Text is the part that is signed, up to and with the last line's end.
func (c Checkpoint) Text() string {
	return c.Origin + "\n" + strconv.FormatUint(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

// Marshal is the note as bytes.
func (n *Note) Marshal() []byte {
	var b bytes.Buffer
	b.WriteString(n.Text())
	b.WriteByte('\n')
	for _, s := range n.Signatures {
		b.WriteString(s.line())
	}
	return b.Bytes()
}

func (s Signature) line() string {
	raw := append(s.KeyID[:len(s.KeyID):len(s.KeyID)], s.Bytes...)
	return "— " + s.Name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
}

// Parse reads a note that is a checkpoint without extension lines. It checks the form, not the signatures. What it
// accepts, [Note.Marshal] gives back byte by byte.
func Parse(b []byte) (*Note, error) {
	if len(b) > maxNote {
		return nil, fmt.Errorf("%w: %d bytes", ErrSyntax, len(b))
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrSyntax)
	}
	for _, c := range b {
		if c < 0x20 && c != '\n' {
			return nil, fmt.Errorf("%w: control character 0x%02x", ErrSyntax, c)
		}
	}
	text, sigs, ok := strings.Cut(string(b), "\n\n")
	if !ok {
		return nil, fmt.Errorf("%w: no empty line before the signatures", ErrSyntax)
	}
	c, err := parseText(text)
	if err != nil {
		return nil, err
	}
	n := &Note{Checkpoint: c}
	for line := range strings.Lines(sigs) {
		if len(n.Signatures) == maxSignatures {
			return nil, fmt.Errorf("%w: more than %d signatures", ErrSyntax, maxSignatures)
		}
		s, err := parseSignature(line)
		if err != nil {
			return nil, err
		}
		n.Signatures = append(n.Signatures, s)
	}
	if len(n.Signatures) == 0 {
		return nil, fmt.Errorf("%w: no signature", ErrSyntax)
	}
	if !bytes.Equal(n.Marshal(), b) {
		return nil, fmt.Errorf("%w: not in its one form", ErrSyntax)
	}
	return n, nil
}

func parseText(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 3 || lines[0] == "" {
		return Checkpoint{}, fmt.Errorf("%w: %d lines of text where origin, size and root should stand", ErrSyntax, len(lines))
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: size: %w", ErrSyntax, err)
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != 32 {
		return Checkpoint{}, fmt.Errorf("%w: root isn't 32 bytes in base64", ErrSyntax)
	}
	c := Checkpoint{Origin: lines[0], Size: size}
	copy(c.Root[:], root)
	return c, nil
}

func parseSignature(line string) (Signature, error) {
	rest, ok := strings.CutPrefix(line, "— ")
	rest, end := strings.CutSuffix(rest, "\n")
	name, b64, cut := strings.Cut(rest, " ")
	if !ok || !end || !cut || !ValidName(name) {
		return Signature{}, fmt.Errorf("%w: signature line %.60q", ErrSyntax, line)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(b64)
	if err != nil || len(raw) < 5 {
		return Signature{}, fmt.Errorf("%w: signature of %.60q isn't base64 of a key id and a signature", ErrSyntax, name)
	}
	s := Signature{Name: name, Bytes: raw[4:]}
	copy(s.KeyID[:], raw)
	return s, nil
}

// ValidName tells whether a key may have that name: not empty, no space, no plus sign, no control character.
func ValidName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || r == '+' || r < 0x20
	})
}
