// Package keyring keeps a recorder's keys in files: those that sign a ledger's checkpoints, and those that can read
// what is recorded.
//
//	signing.key       secret: seeds of an Ed25519 and an ML-DSA-44 key
//	signing.pub       what a verifier needs (`bodycam verify --key`)
//	identity.key      secret: an age identity, hybrid post-quantum
//	recipients.txt    public: every recorded payload is wrapped to each of them
//
// A secret file has mode 0600 and may be encrypted with a passphrase (age's scrypt). To keep the key that reads off
// this machine, move identity.key away: recording needs only recipients.txt.
package keyring

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// The files of a ring.
const (
	SigningFile    = "signing.key"
	PublicFile     = "signing.pub"
	IdentityFile   = "identity.key"
	RecipientsFile = "recipients.txt"
)

// algorithms that a ring's signing key has a seed for, in this order.
var algorithms = []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44}

// ErrNone tells that there is no ring in a directory.
var ErrNone = errors.New("there are no keys")

// Ring is a recorder's keys.
type Ring struct {
	Dir        string
	Signers    []checkpoint.Signer
	Recipients []age.Recipient
	Identities []age.Identity // empty where identity.key was moved away
}

// Passphrase is asked for where a secret file is encrypted. nil: such a file is an error.
type Passphrase func(file string) (string, error)

// Dir is where keys are kept where nothing else is said: $BODYCAM_KEYS, or bodycam/keys in the user's configuration.
func Dir() (string, error) {
	if d := os.Getenv("BODYCAM_KEYS"); d != "" {
		return d, nil
	}
	c, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("finding the folder for keys: %w: set BODYCAM_KEYS", err)
	}
	return filepath.Join(c, "bodycam", "keys"), nil
}

// Open reads a ring. ErrNone is returned where the directory has none.
func Open(dir string, ask Passphrase) (*Ring, error) {
	r := &Ring{Dir: dir}
	seeds, err := readSecret(filepath.Join(dir, SigningFile), ask)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: make them with `bodycam keys init`", dir, ErrNone)
	}
	if err != nil {
		return nil, err
	}
	if r.Signers, err = parseSigning(seeds); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, SigningFile), err)
	}
	text, err := os.ReadFile(filepath.Join(dir, RecipientsFile))
	if err != nil {
		return nil, fmt.Errorf("reading who may read what is recorded: %w", err)
	}
	if r.Recipients, err = age.ParseRecipients(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, RecipientsFile), err)
	}
	switch id, err := readSecret(filepath.Join(dir, IdentityFile), ask); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if r.Identities, err = age.ParseIdentities(bytes.NewReader(id)); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, IdentityFile), err)
		}
	}
	return r, nil
}

// OpenOrCreate opens a ring, and makes one where there is none.
func OpenOrCreate(dir string, ask Passphrase) (r *Ring, created bool, err error) {
	r, err = Open(dir, ask)
	if !errors.Is(err, ErrNone) {
		return r, false, err
	}
	if err := Create(dir, ""); err != nil && !errors.Is(err, fs.ErrExist) { // another process was quicker
		return nil, false, err
	}
	r, err = Open(dir, ask)
	return r, true, err
}

// Create makes a ring; with a passphrase its secrets are encrypted. Nothing that exists is overwritten.
func Create(dir, passphrase string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder for keys: %w", err)
	}
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		return fmt.Errorf("making an identity: %w", err)
	}
	if err := writeSecret(filepath.Join(dir, IdentityFile), passphrase, []byte("# reads what is recorded: keep it secret, keep a copy\n"+id.String()+"\n")); err != nil {
		return err
	}
	if err := writeNew(filepath.Join(dir, RecipientsFile), []byte("# every recorded payload is wrapped to each of these (age recipients)\n"+id.Recipient().String()+"\n"), 0o644); err != nil {
		return err
	}
	return newSigning(dir, passphrase)
}

// RotateSigning puts a new signing key in place of the ring's, and keeps the old file beside it, named by date. The
// hand-over in a log that goes on is signed by the log's writer.
func RotateSigning(dir, passphrase string, now time.Time) error {
	suffix := "." + now.UTC().Format(stampForm)
	for _, name := range []string{SigningFile, PublicFile} {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, name+suffix)); err != nil {
			return fmt.Errorf("putting the old signing key aside: %w", err)
		}
	}
	return newSigning(dir, passphrase)
}

func newSigning(dir, passphrase string) error {
	var text, pub bytes.Buffer
	text.WriteString("# signs a ledger's checkpoints: keep it secret\n")
	for _, alg := range algorithms {
		seed := make([]byte, 32)
		rand.Read(seed)
		s, err := checkpoint.NewSigner(alg, seed)
		if err != nil {
			return fmt.Errorf("making a signing key: %w", err)
		}
		fmt.Fprintf(&text, "%d %s\n", alg, base64.StdEncoding.EncodeToString(seed))
		_, key := s.Public()
		fmt.Fprintf(&pub, "%s\n", checkpoint.Key{Name: KeyName, Alg: alg, Public: key})
	}
	if err := writeSecret(filepath.Join(dir, SigningFile), passphrase, text.Bytes()); err != nil {
		return err
	}
	return writeNew(filepath.Join(dir, PublicFile), pub.Bytes(), 0o644)
}

// PublicKeys reads a file of public signing keys, one a line.
func PublicKeys(path string) ([]ledger.PublicKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading public keys: %w", err)
	}
	var out []ledger.PublicKey
	sc := bufio.NewScanner(bytes.NewReader(b))
	for line := 1; sc.Scan(); line++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		k, err := checkpoint.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		out = append(out, ledger.PublicKey{Alg: k.Alg, Public: k.Public})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no public key", path)
	}
	return out, sc.Err()
}

func parseSigning(b []byte) ([]checkpoint.Signer, error) {
	var out []checkpoint.Signer
	sc := bufio.NewScanner(bytes.NewReader(b))
	for line := 1; sc.Scan(); line++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		var alg uint8
		var enc string
		if n, err := fmt.Sscanf(text, "%d %s", &alg, &enc); n != 2 || err != nil {
			return nil, fmt.Errorf("line %d is no signing key", line)
		}
		seed, err := base64.StdEncoding.Strict().DecodeString(enc)
		if err != nil {
			return nil, fmt.Errorf("line %d is no signing key", line)
		}
		s, err := checkpoint.NewSigner(checkpoint.Algorithm(alg), seed)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no signing key")
	}
	return out, sc.Err()
}

const ageHeader = "age-encryption.org/"

func readSecret(path string, ask Passphrase) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 it", path, st.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a secret key: %w", err)
	}
	if !bytes.HasPrefix(b, []byte(ageHeader)) {
		return b, nil
	}
	if ask == nil {
		return nil, fmt.Errorf("%s is encrypted: give its passphrase in a file with --passphrase-file", path)
	}
	phrase, err := ask(path)
	if err != nil {
		return nil, err
	}
	id, err := age.NewScryptIdentity(phrase)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r, err := age.Decrypt(bytes.NewReader(b), id)
	if err != nil {
		return nil, fmt.Errorf("decrypting %s: %w", path, err)
	}
	return io.ReadAll(r)
}

func writeSecret(path, passphrase string, b []byte) error {
	if passphrase == "" {
		return writeNew(path, b, 0o600)
	}
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return fmt.Errorf("encrypting %s: %w", path, err)
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, r)
	if err != nil {
		return fmt.Errorf("encrypting %s: %w", path, err)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("encrypting %s: %w", path, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("encrypting %s: %w", path, err)
	}
	return writeNew(path, out.Bytes(), 0o600)
}

// writeNew makes a file that doesn't exist, durably.
func writeNew(path string, b []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// KeyName is the name of this machine's keys in files of public keys. Nothing rests on it.
const KeyName = "bodycam"
