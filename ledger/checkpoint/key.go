package checkpoint

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"filippo.io/mldsa"
)

// Algorithm is the signature type of a key, as C2SP numbers them.
type Algorithm uint8

// The algorithms.
const (
	Ed25519     Algorithm = 0x01 // a log's signature
	Cosignature Algorithm = 0x04 // a witness's, with its time
	MLDSA44     Algorithm = 0x06 // either's, with its time
)

func (a Algorithm) String() string {
	switch a {
	case Ed25519:
		return "ed25519"
	case Cosignature:
		return "ed25519-cosignature"
	case MLDSA44:
		return "ml-dsa-44"
	}
	return fmt.Sprintf("algorithm 0x%02x", uint8(a))
}

// Key is a public key under a name.
type Key struct {
	Name   string
	Alg    Algorithm
	Public []byte
}

// Valid returns an error unless the name may be one, the algorithm is known and the key has its length.
func (k Key) Valid() error {
	if !ValidName(k.Name) {
		return fmt.Errorf("key name %.60q may not be empty nor hold spaces or plus signs", k.Name)
	}
	want := 0
	switch k.Alg {
	case Ed25519, Cosignature:
		want = ed25519.PublicKeySize
	case MLDSA44:
		want = mldsa.MLDSA44PublicKeySize
	default:
		return fmt.Errorf("key %s has an unknown %s", k.Name, k.Alg)
	}
	if len(k.Public) != want {
		return fmt.Errorf("key %s has %d bytes where %s has %d", k.Name, len(k.Public), k.Alg, want)
	}
	return nil
}

// ID is the key's id: four bytes that tell keys of one name apart. It proves nothing.
func (k Key) ID() [4]byte {
	h := sha256.New()
	h.Write([]byte(k.Name))
	h.Write([]byte{'\n', byte(k.Alg)})
	h.Write(k.Public)
	var id [4]byte
	copy(id[:], h.Sum(nil))
	return id
}

// String is the key in the form of C2SP: name+id in hexadecimal+base64 of algorithm and key.
func (k Key) String() string {
	id := k.ID()
	return k.Name + "+" + hex.EncodeToString(id[:]) + "+" + base64.StdEncoding.EncodeToString(append([]byte{byte(k.Alg)}, k.Public...))
}

// ParseKey reads what [Key.String] wrote.
func ParseKey(s string) (Key, error) {
	name, rest, _ := strings.Cut(s, "+")
	id, b64, ok := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.Strict().DecodeString(b64)
	if !ok || err != nil || len(raw) < 2 {
		return Key{}, fmt.Errorf("%.60q is no verifier key of the form name+id+base64", s)
	}
	k := Key{Name: name, Alg: Algorithm(raw[0]), Public: raw[1:]}
	if err := k.Valid(); err != nil {
		return Key{}, err
	}
	if got := k.ID(); hex.EncodeToString(got[:]) != id {
		return Key{}, fmt.Errorf("verifier key %s: its id is %x, not %s", name, got, id)
	}
	return k, nil
}

// Verify checks the signature of that key on a note and returns the time it was made (seconds since 1970 UTC), 0
// where the algorithm has none. It wraps [ErrSignature] where the note bears no signature of that key or a false one;
// a second signature of one key is refused.
func (k Key) Verify(n *Note) (int64, error) {
	id := k.ID()
	var found *Signature
	for i := range n.Signatures {
		s := &n.Signatures[i]
		if s.Name != k.Name || s.KeyID != id {
			continue
		}
		if found != nil {
			return 0, fmt.Errorf("%w: two of key %s (%s)", ErrSignature, k.Name, k.Alg)
		}
		found = s
	}
	if found == nil {
		return 0, fmt.Errorf("%w: none of key %s (%s)", ErrSignature, k.Name, k.Alg)
	}
	time, ok := k.check(n.Checkpoint, found.Bytes)
	if !ok {
		return 0, fmt.Errorf("%w: that of key %s (%s) is false", ErrSignature, k.Name, k.Alg)
	}
	return time, nil
}

func (k Key) check(c Checkpoint, sig []byte) (int64, bool) {
	if k.Alg == Ed25519 {
		return 0, len(k.Public) == ed25519.PublicKeySize && ed25519.Verify(k.Public, []byte(c.Text()), sig)
	}
	if len(sig) < 8 {
		return 0, false
	}
	time, sig := binary.BigEndian.Uint64(sig), sig[8:]
	if time > math.MaxInt64 {
		return 0, false
	}
	switch k.Alg {
	case Cosignature:
		return int64(time), len(k.Public) == ed25519.PublicKeySize && ed25519.Verify(k.Public, cosigned(c, time), sig)
	case MLDSA44:
		pub, err := mldsa.NewPublicKey(mldsa.MLDSA44(), k.Public)
		if err != nil {
			return 0, false
		}
		msg, err := subtree(k.Name, c, time)
		return int64(time), err == nil && mldsa.Verify(pub, msg, sig, nil) == nil
	}
	return 0, false
}

func cosigned(c Checkpoint, time uint64) []byte {
	return []byte("cosignature/v1\ntime " + strconv.FormatUint(time, 10) + "\n" + c.Text())
}

// subtree is the cosigned_message of c2sp.org/tlog-cosignature for a whole tree.
func subtree(name string, c Checkpoint, time uint64) ([]byte, error) {
	if len(name) > 255 || len(c.Origin) > 255 || name == "" || c.Origin == "" {
		return nil, fmt.Errorf("name %.60q and origin %.60q must have 1 to 255 bytes each", name, c.Origin)
	}
	b := append([]byte("subtree/v1\n\x00"), byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint64(b, time)
	b = append(b, byte(len(c.Origin)))
	b = append(b, c.Origin...)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint64(b, c.Size)
	return append(b, c.Root[:]...), nil
}

// Signer holds a private key, or reaches one that lives elsewhere. It has no name: the same key may sign for several
// logs, each under the log's origin. Callers separate domains: what is signed begins with a text that no other use
// begins with.
type Signer interface {
	// Public is the algorithm and the public key.
	Public() (Algorithm, []byte)
	// Sign signs the message. It MUST be safe for concurrent use.
	Sign(msg []byte) ([]byte, error)
}

// VerifyMessage checks what [Signer.Sign] returned for bytes that aren't a checkpoint.
func (k Key) VerifyMessage(msg, sig []byte) bool {
	switch k.Alg {
	case Ed25519, Cosignature:
		return len(k.Public) == ed25519.PublicKeySize && ed25519.Verify(k.Public, msg, sig)
	case MLDSA44:
		pub, err := mldsa.NewPublicKey(mldsa.MLDSA44(), k.Public)
		return err == nil && mldsa.Verify(pub, msg, sig, nil) == nil
	}
	return false
}

// Equal tells whether two keys are the same in name, algorithm and bytes.
func (k Key) Equal(o Key) bool {
	return k.Name == o.Name && k.Alg == o.Alg && bytes.Equal(k.Public, o.Public)
}

// NewSigner returns a signer for a private key kept in memory: seed is the 32-byte seed of an Ed25519 or ML-DSA-44
// key. Both sign deterministically.
func NewSigner(alg Algorithm, seed []byte) (Signer, error) {
	if len(seed) != 32 {
		return nil, fmt.Errorf("the seed of a key has %d bytes, not 32", len(seed))
	}
	switch alg {
	case Ed25519, Cosignature:
		return &edSigner{alg, ed25519.NewKeyFromSeed(seed)}, nil
	case MLDSA44:
		priv, err := mldsa.NewPrivateKey(mldsa.MLDSA44(), seed)
		if err != nil {
			return nil, fmt.Errorf("making a key from its seed: %w", err)
		}
		return &mldsaSigner{priv}, nil
	}
	return nil, fmt.Errorf("can't sign with an unknown %s", alg)
}

type edSigner struct {
	alg  Algorithm
	priv ed25519.PrivateKey
}

func (s *edSigner) Public() (Algorithm, []byte)     { return s.alg, s.priv.Public().(ed25519.PublicKey) }
func (s *edSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.priv, msg), nil }

type mldsaSigner struct{ priv *mldsa.PrivateKey }

func (s *mldsaSigner) Public() (Algorithm, []byte)     { return MLDSA44, s.priv.PublicKey().Bytes() }
func (s *mldsaSigner) Sign(msg []byte) ([]byte, error) { return s.priv.SignDeterministic(msg, nil) }

// Sign signs a checkpoint under one name with every signer, in their order. time is in seconds since 1970 UTC; a log
// signs under its origin, a witness under its own name.
func Sign(c Checkpoint, name string, time int64, signers ...Signer) (*Note, error) {
	if time < 0 {
		return nil, fmt.Errorf("can't sign checkpoint of size %d at %d, before 1970", c.Size, time)
	}
	n := &Note{Checkpoint: c}
	for _, s := range signers {
		k := Key{Name: name}
		k.Alg, k.Public = s.Public()
		if err := k.Valid(); err != nil {
			return nil, err
		}
		var stamp []byte
		var msg []byte
		switch k.Alg {
		case Ed25519:
			msg = []byte(c.Text())
		case Cosignature:
			stamp = binary.BigEndian.AppendUint64(nil, uint64(time))
			msg = cosigned(c, uint64(time))
		case MLDSA44:
			stamp = binary.BigEndian.AppendUint64(nil, uint64(time))
			var err error
			if msg, err = subtree(name, c, uint64(time)); err != nil {
				return nil, err
			}
		}
		sig, err := s.Sign(msg)
		if err != nil {
			return nil, fmt.Errorf("signing checkpoint of size %d with %s: %w", c.Size, k.Alg, err)
		}
		n.Signatures = append(n.Signatures, Signature{Name: name, KeyID: k.ID(), Bytes: append(stamp, sig...)})
	}
	return n, nil
}
