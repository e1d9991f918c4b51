package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/spf13/pflag"
)

// ringFlags are the flags of commands that use this machine's keys.
type ringFlags struct {
	dir, phrase string
}

func (f *ringFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.dir, "keys", "", "folder of keys (default: $BODYCAM_KEYS, or bodycam/keys in the user's configuration)")
	fl.StringVar(&f.phrase, "passphrase-file", "", "file whose first line is the passphrase of encrypted keys (default: $"+passphraseEnv+")")
}

func (f *ringFlags) directory() (string, error) {
	if f.dir != "" {
		return f.dir, nil
	}
	dir, err := keyring.Dir()
	if err != nil {
		return "", environment(err)
	}
	return dir, nil
}

// ask implements [keyring.Passphrase].
func (f *ringFlags) ask(file string) (string, error) {
	if f.phrase == "" {
		return askPassphrase(file)
	}
	return readPhrase(f.phrase)
}

func readPhrase(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the passphrase: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	line = strings.TrimSuffix(line, "\r")
	if line == "" {
		return "", fmt.Errorf("the first line of %s is empty: it should be the passphrase", file)
	}
	return line, nil
}

// identities are this machine's, if it has any.
func (f *ringFlags) identities() ([]age.Identity, error) {
	dir, err := f.directory()
	if err != nil {
		return nil, err
	}
	ids, err := keyring.Identities(dir, f.ask)
	if err != nil {
		return nil, usage("%w", err)
	}
	return ids, nil
}

// open opens a run with this machine's identities.
func (f *ringFlags) open(arg string) (*store.Run, error) {
	r, err := openRun(arg)
	if err != nil {
		return nil, err
	}
	r.Identities, err = f.identities()
	return r, err
}

// ring opens all of it. There must be one.
func (f *ringFlags) ring() (*keyring.Ring, error) {
	dir, err := f.directory()
	if err != nil {
		return nil, err
	}
	r, err := keyring.Open(dir, f.ask)
	if errors.Is(err, keyring.ErrNone) {
		return nil, usage("%w", err)
	}
	if err != nil {
		return nil, usage("opening the keys: %w", err)
	}
	return r, nil
}

// signers are the ring's signing keys, present and former.
func (f *ringFlags) signers() ([][]checkpoint.Signer, error) {
	dir, err := f.directory()
	if err != nil {
		return nil, err
	}
	s, err := keyring.Signers(dir, f.ask)
	if err != nil {
		return nil, usage("%w", err)
	}
	return s, nil
}

// signersOf chooses the signing keys that a run's ledger stands under.
func signersOf(r *store.Run, sets [][]checkpoint.Signer) ([]checkpoint.Signer, error) {
	lr, err := r.Ledger()
	if err != nil {
		return nil, usage("%w", err)
	}
	defer lr.Close()
	note, err := lr.Checkpoint()
	if err != nil {
		return nil, environment(err)
	}
	gen := lr.Genesis()
	for _, set := range sets {
		if signsLog(set, gen, note) {
			return set, nil
		}
	}
	return nil, usage("the ledger of %s stands under other signing keys than this machine's: only who has them can extend it", r.Dir)
}

// signsLog tells whether all of a set signed the log's last checkpoint or, before the first, are the keys it names.
func signsLog(set []checkpoint.Signer, gen ledger.Genesis, note *checkpoint.Note) bool {
	for _, s := range set {
		alg, pub := s.Public()
		k := checkpoint.Key{Name: gen.Origin(), Alg: alg, Public: pub}
		if note != nil {
			if _, err := k.Verify(note); err != nil {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(gen.Keys, func(o ledger.PublicKey) bool { return o.Alg == alg && bytes.Equal(o.Public, pub) }) {
			return false
		}
	}
	return len(set) > 0
}
