package cli

import (
	"fmt"
	"os"

	"github.com/bodycam-dev/bodycam/internal/keyring"
)

// passphraseEnv names the variable that holds the passphrase of encrypted key files.
const passphraseEnv = "BODYCAM_PASSPHRASE"

// openRing opens this machine's keys, and makes them where there are none.
func openRing() (*keyring.Ring, bool, error) {
	dir, err := keyring.Dir()
	if err != nil {
		return nil, false, environment(err)
	}
	r, created, err := keyring.OpenOrCreate(dir, askPassphrase)
	if err != nil {
		return nil, false, environment(fmt.Errorf("opening the keys: %w", err))
	}
	return r, created, nil
}

func askPassphrase(file string) (string, error) {
	if p := os.Getenv(passphraseEnv); p != "" {
		return p, nil
	}
	return "", fmt.Errorf("%s is encrypted: set %s", file, passphraseEnv)
}

// recorderName says for people who records: the machine.
func recorderName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "bodycam"
	}
	return name
}
