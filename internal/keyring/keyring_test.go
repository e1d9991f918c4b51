package keyring

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRing(t *testing.T) {
	for _, phrase := range []string{"", "correct horse"} {
		dir := filepath.Join(t.TempDir(), "keys")
		if _, err := Open(dir, nil); !errors.Is(err, ErrNone) {
			t.Fatalf("an empty folder: %v", err)
		}
		if err := Create(dir, phrase); err != nil {
			t.Fatal(err)
		}
		if err := Create(dir, phrase); err == nil {
			t.Fatal("keys were overwritten")
		}
		ask := func(string) (string, error) { return phrase, nil }
		r, err := Open(dir, ask)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Signers) != 2 || len(r.Recipients) != 1 || len(r.Identities) != 1 {
			t.Errorf("the ring has %d signers, %d recipients, %d identities", len(r.Signers), len(r.Recipients), len(r.Identities))
		}
		if phrase != "" {
			if _, err := Open(dir, nil); err == nil {
				t.Error("encrypted keys were opened without a passphrase")
			}
			if _, err := Open(dir, func(string) (string, error) { return "wrong", nil }); err == nil {
				t.Error("a wrong passphrase opened the keys")
			}
		}
		keys, err := PublicKeys(filepath.Join(dir, PublicFile))
		if err != nil || len(keys) != 2 {
			t.Errorf("public keys: %v, %v", keys, err)
		}
		if err := RotateSigning(dir, phrase, time.Now()); err != nil {
			t.Fatal(err)
		}
		r2, err := Open(dir, ask)
		if err != nil {
			t.Fatal(err)
		}
		_, a := r.Signers[0].Public()
		_, b := r2.Signers[0].Public()
		if string(a) == string(b) {
			t.Error("the signing key is still the same")
		}
		// Without the identity one can still record.
		if err := os.Remove(filepath.Join(dir, IdentityFile)); err != nil {
			t.Fatal(err)
		}
		if r, err = Open(dir, ask); err != nil || len(r.Identities) != 0 || len(r.Recipients) != 1 {
			t.Errorf("without identity.key: %+v, %v", r, err)
		}
	}
}

func TestLoosePermissions(t *testing.T) {
	dir := t.TempDir()
	if err := Create(dir, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, SigningFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, nil); err == nil {
		t.Error("a key that others can read was taken")
	}
}

func FuzzParseSigning(f *testing.F) {
	f.Add([]byte("1 AAAA"))
	f.Add([]byte("# x\n1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseSigning(b); err == nil && len(s) == 0 {
			t.Fatal("no key and no error")
		}
	})
}
