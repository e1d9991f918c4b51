package keyring

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// generations lists a file of the ring and those that were put aside when it was rotated, newest first.
func generations(dir, name string) ([]string, error) {
	old, err := filepath.Glob(filepath.Join(dir, name+".*"))
	if err != nil {
		return nil, err
	}
	old = slices.DeleteFunc(old, func(p string) bool {
		_, err := time.Parse(stampForm, strings.TrimPrefix(filepath.Base(p), name+"."))
		return err != nil
	})
	slices.Sort(old)
	slices.Reverse(old)
	return append([]string{filepath.Join(dir, name)}, old...), nil
}

// stampForm names what was put aside.
const stampForm = "20060102T150405"

// Trusted reads the public signing keys of a ring: the present ones first, then those it signed with before.
// ErrNone is returned where the directory has no ring.
func Trusted(dir string) ([]ledger.PublicKey, error) {
	files, err := generations(dir, PublicFile)
	if err != nil {
		return nil, err
	}
	var out []ledger.PublicKey
	for i, f := range files {
		keys, err := PublicKeys(f)
		if i == 0 && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w: make them with `bodycam keys init`", dir, ErrNone)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
	return out, nil
}

// Identities reads what opens payloads, and nothing else of a ring. There are none where identity.key was moved away.
func Identities(dir string, ask Passphrase) ([]age.Identity, error) {
	return IdentitiesIn(filepath.Join(dir, IdentityFile), ask)
}

// IdentitiesIn reads a file of age identities. There are none where it doesn't exist.
func IdentitiesIn(path string, ask Passphrase) ([]age.Identity, error) {
	b, err := readSecret(path, ask)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids, err := age.ParseIdentities(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ids, nil
}

// Signers reads the ring's signing keys, present and former, newest first: a log goes on under the keys it has.
func Signers(dir string, ask Passphrase) ([][]checkpoint.Signer, error) {
	files, err := generations(dir, SigningFile)
	if err != nil {
		return nil, err
	}
	var out [][]checkpoint.Signer
	for _, f := range files {
		b, err := readSecret(f, ask)
		if err != nil {
			return nil, fmt.Errorf("reading a signing key: %w", err)
		}
		s, err := parseSigning(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// RotateIdentity makes a new identity that reads what is recorded from now on. The old ones stay in identity.key, to
// read what was recorded before; recipients that aren't of this ring stay too.
func RotateIdentity(dir, passphrase string, ask Passphrase, now time.Time) error {
	path := filepath.Join(dir, IdentityFile)
	old, err := readSecret(path, ask)
	if err != nil {
		return fmt.Errorf("rotating the identity: %w", err)
	}
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		return fmt.Errorf("making an identity: %w", err)
	}
	mine := map[string]bool{}
	ids, err := age.ParseIdentities(bytes.NewReader(old))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, i := range ids {
		if h, ok := i.(*age.HybridIdentity); ok {
			mine[h.Recipient().String()] = true
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, RecipientsFile))
	if err != nil {
		return fmt.Errorf("rotating the identity: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !mine[strings.TrimSpace(line)] {
			lines = append(lines, line)
		}
	}
	lines = append(lines, id.Recipient().String()+"\n")
	suffix := "." + now.UTC().Format(stampForm)
	for _, f := range []string{path, filepath.Join(dir, RecipientsFile)} {
		if err := os.Rename(f, f+suffix); err != nil {
			return fmt.Errorf("putting the old identity aside: %w", err)
		}
	}
	fresh := "# since " + now.UTC().Format(time.RFC3339) + "\n" + id.String() + "\n"
	if err := writeSecret(path, passphrase, append([]byte(fresh), old...)); err != nil {
		return err
	}
	if err := writeNew(filepath.Join(dir, RecipientsFile), []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	return os.Remove(path + suffix) // its identities are in the new file
}
