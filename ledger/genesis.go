package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// Profile chooses the equations.
type Profile uint64

// The profiles.
const (
	// ProfileDefault: RFC 9162 trees, salted commitments.
	ProfileDefault Profile = 1
	// ProfileAFR: the equations of the Agent Flight Recorder as published (arXiv 2609.01931). Commitments aren't
	// salted: who can guess a payload can test the guess, even after its key was destroyed.
	ProfileAFR Profile = 2
)

func (p Profile) String() string {
	switch p {
	case ProfileDefault:
		return "default"
	case ProfileAFR:
		return "afr"
	}
	return fmt.Sprintf("profile %d", uint64(p))
}

const genesisTag = "bodycam-ledger/v1 genesis\n"

// PublicKey is a signing key of a log. The log's origin is its name.
type PublicKey struct {
	Alg    checkpoint.Algorithm
	Public []byte
}

// Genesis is what a log declares of itself when it is made. Its digest is the log's identity.
type Genesis struct {
	Profile  Profile
	Name     string // begins the log's origin
	Recorder string // who keeps the log
	Created  int64  // nanoseconds since 1970 UTC
	Nonce    [32]byte
	// Keys sign the checkpoints: every one of them must, so that none can be stripped.
	Keys []PublicKey
	// EpochRecords and EpochAge close an epoch, whichever comes first.
	EpochRecords uint64
	EpochAge     time.Duration
	// Heartbeat is the longest time between two seals. A longer silence within an incarnation is a finding.
	Heartbeat time.Duration
	// AnchorEvery is the longest time between two anchors of the log; 0: it isn't anchored regularly.
	AnchorEvery time.Duration
}

// maxKeys bounds the signing keys of a log.
const maxKeys = 8

// AppendCBOR appends the genesis's one encoding.
func (g *Genesis) AppendCBOR(b []byte) []byte {
	b = dcbor.AppendMap(b, 10)
	b = dcbor.AppendUint(append(b, 1), uint64(g.Profile))
	b = dcbor.AppendText(append(b, 2), g.Name)
	b = dcbor.AppendText(append(b, 3), g.Recorder)
	b = dcbor.AppendInt(append(b, 4), g.Created)
	b = dcbor.AppendBytes(append(b, 5), g.Nonce[:])
	b = appendKeys(append(b, 6), g.Keys)
	b = dcbor.AppendUint(append(b, 7), g.EpochRecords)
	b = dcbor.AppendUint(append(b, 8), uint64(g.EpochAge))
	b = dcbor.AppendUint(append(b, 9), uint64(g.Heartbeat))
	return dcbor.AppendUint(append(b, 10), uint64(g.AnchorEvery))
}

func appendKeys(b []byte, keys []PublicKey) []byte {
	b = dcbor.AppendArray(b, len(keys))
	for _, k := range keys {
		b = dcbor.AppendArray(b, 2)
		b = dcbor.AppendUint(b, uint64(k.Alg))
		b = dcbor.AppendBytes(b, k.Public)
	}
	return b
}

func readKeys(d *dcbor.Decoder) []PublicKey {
	var keys []PublicKey
	for range d.Array() {
		if d.Array() != 2 && d.Err() == nil {
			return nil // the re-encoding of the whole differs
		}
		k := PublicKey{Alg: checkpoint.Algorithm(d.Uint()), Public: d.Bytes()}
		if d.Err() != nil {
			return nil
		}
		keys = append(keys, k)
	}
	return keys
}

// ParseGenesis reads a genesis's encoding. It accepts no other encoding of the same genesis.
func ParseGenesis(b []byte) (*Genesis, error) {
	d := dcbor.NewDecoder(b)
	var g Genesis
	d.Map()
	d.Key(1)
	g.Profile = Profile(d.Uint())
	d.Key(2)
	g.Name = d.Text()
	d.Key(3)
	g.Recorder = d.Text()
	d.Key(4)
	g.Created = d.Int()
	d.Key(5)
	d.Fixed(g.Nonce[:])
	d.Key(6)
	g.Keys = readKeys(d)
	d.Key(7)
	g.EpochRecords = d.Uint()
	d.Key(8)
	g.EpochAge = time.Duration(d.Uint())
	d.Key(9)
	g.Heartbeat = time.Duration(d.Uint())
	d.Key(10)
	g.AnchorEvery = time.Duration(d.Uint())
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("reading the genesis: %w", err)
	}
	if string(g.AppendCBOR(nil)) != string(b) {
		return nil, fmt.Errorf("reading the genesis: %w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	return &g, g.valid()
}

func (g *Genesis) valid() error {
	switch {
	case g.Profile != ProfileDefault && g.Profile != ProfileAFR:
		return fmt.Errorf("the genesis names an unknown %s", g.Profile)
	case !validLogName(g.Name):
		return fmt.Errorf("the log's name %.60q must have 1 to 128 ASCII letters, digits, dots, dashes, underscores and slashes", g.Name)
	case len(g.Recorder) > 255:
		return fmt.Errorf("the recorder's name has %d bytes, more than 255", len(g.Recorder))
	case g.EpochRecords == 0 || g.EpochRecords > MaxEpoch:
		return fmt.Errorf("an epoch of %d records: it must have 1 to %d", g.EpochRecords, MaxEpoch)
	case g.EpochAge <= 0 || g.Heartbeat <= 0 || g.AnchorEvery < 0:
		return fmt.Errorf("the times of the genesis must be positive: epoch %v, heartbeat %v, anchor %v", g.EpochAge, g.Heartbeat, g.AnchorEvery)
	}
	return validKeys(g.Origin(), g.Keys)
}

func validLogName(name string) bool {
	return len(name) > 0 && len(name) <= 128 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/") == ""
}

// validKeys demands at least one key, an algorithm that a log may sign with, and no algorithm twice: which signature
// is whose must never be in doubt.
func validKeys(origin string, keys []PublicKey) error {
	if len(keys) == 0 || len(keys) > maxKeys {
		return fmt.Errorf("%d signing keys: a log has 1 to %d", len(keys), maxKeys)
	}
	seen := map[checkpoint.Algorithm]bool{}
	for _, k := range keys {
		if k.Alg != checkpoint.Ed25519 && k.Alg != checkpoint.MLDSA44 {
			return fmt.Errorf("a log doesn't sign with %s", k.Alg)
		}
		if seen[k.Alg] {
			return fmt.Errorf("two signing keys of a log are %s", k.Alg)
		}
		seen[k.Alg] = true
		if err := k.named(origin).Valid(); err != nil {
			return err
		}
	}
	return nil
}

func (k PublicKey) named(origin string) checkpoint.Key {
	return checkpoint.Key{Name: origin, Alg: k.Alg, Public: k.Public}
}

// ID is the log's identity: SHA-256("bodycam-ledger/v1 genesis\n" ‖ encoding).
func (g *Genesis) ID() Hash { return sha256.Sum256(g.AppendCBOR([]byte(genesisTag))) }

// Origin is the first line of the log's checkpoints and the name of its keys: Name, a slash, the identity in
// hexadecimal.
func (g *Genesis) Origin() string {
	id := g.ID()
	return g.Name + "/" + hex.EncodeToString(id[:])
}
