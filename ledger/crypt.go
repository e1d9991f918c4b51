package ledger

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

const (
	keySize  = 32 // AES-256
	saltSize = 16 // of an event within a batch
	tagSize  = 16 // of GCM
)

// EventKey opens one record's payload and nothing else. It is the salt of the payload's commitment, and the
// payload's cipher key is derived from it.
type EventKey [keySize]byte

// The texts that separate the uses of HMAC and of the commitments.
const (
	eventInfo  = "bodycam-ledger/v1 event"
	cipherInfo = "bodycam-ledger/v1 cipher"
	saltedTag  = 0x02
	clearedTag = 0x03
)

// epochKey derives the keys of an epoch's events. It isn't safe for concurrent use.
//
// HMAC is done by hand over saved states of SHA-256, for two reasons: to begin from a state is three times faster
// than from the key, and crypto/hmac keeps its states where they can't be wiped.
type epochKey struct {
	hash  hash.Hash
	inner []byte // state of SHA-256 after PRK ⊕ ipad
	outer []byte // and after PRK ⊕ opad
	info  [len(eventInfo) + 8 + 16 + 1]byte
	sum   [sha256.Size]byte
}

// newEpochKey computes PRK = HKDF-Extract(salt: log ‖ epoch, secret).
func newEpochKey(log *Hash, epoch uint64, secret []byte) (*epochKey, error) {
	var salt [len(log) + 8]byte
	copy(salt[:], log[:])
	binary.BigEndian.PutUint64(salt[len(log):], epoch)
	prk := hmacSHA256(salt[:], secret)
	defer clear(prk[:])
	k := &epochKey{hash: sha256.New()}
	copy(k.info[:], eventInfo)
	var err error
	if k.inner, err = k.padded(prk[:], 0x36); err != nil {
		return nil, err
	}
	k.outer, err = k.padded(prk[:], 0x5c)
	return k, err
}

// padded is the state of SHA-256 after the key, padded to a block.
func (k *epochKey) padded(key []byte, pad byte) ([]byte, error) {
	var block [sha256.BlockSize]byte
	copy(block[:], key)
	for i := range block {
		block[i] ^= pad
	}
	k.hash.Reset()
	k.hash.Write(block[:])
	clear(block[:])
	return k.hash.(encoding.BinaryMarshaler).MarshalBinary()
}

// event is HKDF-Expand(PRK, "bodycam-ledger/v1 event" ‖ seq ‖ id, 32). The random id is what keeps two copies of one
// process, continued from one snapshot of its memory, from encrypting two payloads under one key.
func (k *epochKey) event(seq uint64, id *[16]byte, e *EventKey) error {
	u := k.hash.(encoding.BinaryUnmarshaler)
	binary.BigEndian.PutUint64(k.info[len(eventInfo):], seq)
	copy(k.info[len(eventInfo)+8:], id[:])
	k.info[len(k.info)-1] = 1
	if err := u.UnmarshalBinary(k.inner); err != nil {
		return fmt.Errorf("the epoch's key was wiped: %w", err)
	}
	k.hash.Write(k.info[:])
	k.hash.Sum(k.sum[:0])
	if err := u.UnmarshalBinary(k.outer); err != nil {
		return fmt.Errorf("the epoch's key was wiped: %w", err)
	}
	k.hash.Write(k.sum[:])
	k.hash.Sum(e[:0])
	return nil
}

// wipe overwrites everything the key is made of.
func (k *epochKey) wipe() {
	clear(k.inner)
	clear(k.outer)
	clear(k.sum[:])
	var block [sha256.BlockSize]byte
	k.hash.Write(block[:])
	k.hash.Reset()
}

// cipher is AES-256-GCM under HKDF-Expand(event key, "bodycam-ledger/v1 cipher", 32).
func (e *EventKey) cipher() (cipher.AEAD, error) {
	var info [len(cipherInfo) + 1]byte
	copy(info[:], cipherInfo)
	info[len(cipherInfo)] = 1
	key := hmacSHA256(e[:], info[:])
	defer clear(key[:])
	return newGCM(key[:])
}

// hmacSHA256 is HMAC with a key of at most a block, for short messages. It takes half the time of crypto/hmac, which
// an epoch's first append would wait for.
func hmacSHA256(key, msg []byte) Hash {
	const block = sha256.BlockSize
	var room [2 * block]byte
	inner := append(room[:block], msg...)
	var outer [block + sha256.Size]byte
	copy(inner, key)
	copy(outer[:], key)
	for i := range block {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	sum := sha256.Sum256(inner)
	copy(outer[block:], sum[:])
	out := sha256.Sum256(outer[:])
	clear(inner)
	clear(outer[:])
	return out
}

var zeroNonce [12]byte

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// chunkNonce is the nonce of a chunk of a large payload: its number. Every key encrypts one payload only.
func chunkNonce(i uint32) []byte {
	n := make([]byte, 12)
	binary.BigEndian.PutUint32(n[8:], i)
	return n
}

// commitInline is the commitment to a single payload; scratch has room for it and the salt.
//
//	default profile, encrypted  SHA-256(0x02 ‖ salt ‖ payload), the salt being the event key
//	default profile, clear      SHA-256(0x03 ‖ payload)
//	afr profile                 SHA-256(payload)
func commitInline(p Profile, f Form, salt, payload, scratch []byte) Hash {
	switch {
	case p == ProfileAFR:
		return sha256.Sum256(payload)
	case f.Clear():
		scratch = append(scratch, clearedTag)
	default:
		scratch = append(append(scratch, saltedTag), salt...)
	}
	return sha256.Sum256(append(scratch, payload...))
}

// committer is commitInline for a payload that comes in parts.
type committer struct{ hash.Hash }

func newCommitter(p Profile, f Form, salt []byte) committer {
	c := committer{sha256.New()}
	switch {
	case p == ProfileAFR:
	case f.Clear():
		c.Write([]byte{clearedTag})
	default:
		c.Write([]byte{saltedTag})
		c.Write(salt)
	}
	return c
}

func (c committer) sum() (h Hash) {
	c.Sum(h[:0])
	return h
}

// Errors of opening payloads.
var (
	// ErrNoKey: none of the identities opens the wraps of the epoch's secret.
	ErrNoKey = errors.New("no key for it")
	// ErrErased: there is no wrap of the epoch's secret any more, or none that covers the record.
	ErrErased = errors.New("its keys were destroyed")
	// ErrMissing: the payload's bytes aren't there.
	ErrMissing = errors.New("its bytes are missing")
	// ErrPayload: the payload doesn't fit its record's commitment.
	ErrPayload = errors.New("the payload doesn't fit its commitment")
)
