// Package digest delivers signed digests: one file per anchored head, chained and signed, in a folder that the operator
// of the log can't change: another machine's, or one behind object lock.
//
//	DIR/LOG/NNNNNNNNNNNN.digest      LOG is SHA-256 of the log's origin
//
// What it proves is what the keeper of folder and key is worth: see docs/ANCHORS.md.
package digest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Mechanism delivers digests to a folder.
type Mechanism struct {
	Dir    string
	Signer checkpoint.Signer // Ed25519
	Now    func() time.Time  // nil: time.Now
}

// Kind implements [anchor.Mechanism].
func (m *Mechanism) Kind() string { return proof.KindDigest }

// Prepare signs the digest that continues the one before. The ticket is the digest.
func (m *Mechanism) Prepare(_ context.Context, h anchor.Head, last []byte) ([]byte, error) {
	d := &proof.Digest{Checkpoint: h.Checkpoint, Time: m.now().UTC().Truncate(time.Second)}
	if last == nil {
		// The state was lost, or there is none yet: the folder knows.
		var err error
		if last, err = m.newest(h.Origin); err != nil {
			return nil, err
		}
	}
	if last != nil {
		prev, err := proof.ParseDigest(last)
		if err != nil {
			return nil, fmt.Errorf("the digest before: %w", err)
		}
		if err := continues(h, prev.Checkpoint); err != nil {
			return nil, fmt.Errorf("%w: digest %d is of size %d, head %x: %w", anchor.ErrConflict, prev.Number, prev.Size, prev.Root[:8], err)
		}
		d.Number, d.Previous = prev.Number+1, prev.Hash()
		if h.Size == prev.Size {
			return last, nil // delivered already
		}
		if d.Time.Before(prev.Time) {
			d.Time = prev.Time // the clock went back
		}
	}
	if alg, _ := m.Signer.Public(); alg != checkpoint.Ed25519 {
		return nil, fmt.Errorf("a digest is signed by an Ed25519 key, not by %s", alg)
	}
	var err error
	if d.Signature, err = m.Signer.Sign(d.SignedText()); err != nil {
		return nil, fmt.Errorf("signing a digest: %w", err)
	}
	return d.Marshal(), nil
}

// continues checks that a head is of the history of one before.
func continues(h anchor.Head, prev checkpoint.Checkpoint) error {
	if h.Size < prev.Size {
		return merkle.VerifyConsistency(prev.Size, h.Size, nil, prev.Root, h.Root)
	}
	hashes, err := h.Consistency(prev.Size)
	if err != nil {
		return err
	}
	return merkle.VerifyConsistency(prev.Size, h.Size, hashes, prev.Root, h.Root)
}

func (m *Mechanism) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

func (m *Mechanism) folder(origin string) string {
	log := proof.ChainLog(origin)
	return filepath.Join(m.Dir, hex.EncodeToString(log[:]))
}

func (m *Mechanism) newest(origin string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(m.folder(origin), "*.digest"))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	b, err := os.ReadFile(names[len(names)-1]) // Glob sorts
	if err != nil {
		return nil, fmt.Errorf("reading the digest before: %w", err)
	}
	return b, nil
}

// Advance delivers the digest. One that is there already is left alone.
func (m *Mechanism) Advance(_ context.Context, h anchor.Head, ticket []byte) (anchor.Step, error) {
	d, err := proof.ParseDigest(ticket)
	if err != nil {
		return anchor.Step{}, err
	}
	dir := m.folder(h.Origin)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return anchor.Step{}, fmt.Errorf("making the folder for digests: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%012d.digest", d.Number))
	if err := deliver(path, ticket); err != nil {
		return anchor.Step{}, err
	}
	return anchor.Step{
		State: anchor.Final, Detail: path,
		Evidence: &proof.Evidence{Kind: proof.KindDigest, Note: h.Note, Data: ticket},
	}, nil
}

// deliver writes a file that mustn't be there, or must be the same. It appears whole or not at all.
func deliver(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("delivering a digest: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("delivering a digest: %w", err)
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		have, rerr := os.ReadFile(path)
		if rerr == nil && !bytes.Equal(have, data) {
			rerr = fmt.Errorf("%w: %s is there and isn't ours", anchor.ErrConflict, path)
		}
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("delivering a digest: %w", err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
