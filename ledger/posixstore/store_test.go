//go:build unix

package posixstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/ledgertest"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

func TestStore(t *testing.T) {
	dir := t.TempDir()
	ledgertest.TestStore(t, func() ledger.Store { return posixstore.New(dir) })
	info, err := os.Stat(filepath.Join(dir, "ledger", "00000000.keys"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
}

func TestLockNamesHolder(t *testing.T) {
	dir := t.TempDir()
	l, err := posixstore.New(dir).Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = posixstore.New(dir).Lock()
	var locked *ledger.LockedError
	if !errors.As(err, &locked) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Fatalf("the second lock's error doesn't name process %d: %v", os.Getpid(), err)
	}
}

// TestOldKeysAreOverwritten keeps a second name on the old keys file: its bytes must be gone there too.
func TestOldKeysAreOverwritten(t *testing.T) {
	dir := t.TempDir()
	s := posixstore.New(dir)
	if err := s.Put("ledger/00000000.keys", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "ledger", "00000000.keys")
	if err := os.Link(name, name+".link"); err != nil {
		t.Fatal(err)
	}
	if err := s.Put("ledger/00000000.keys", []byte("others")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name + ".link")
	if err != nil || string(b) != "\x00\x00\x00\x00\x00\x00" {
		t.Fatalf("the old keys are still there: %q, %v", b, err)
	}
}

// TestNoSpace writes to a full device.
func TestNoSpace(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "ledger"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dir, "ledger", "00000000.log")); err != nil {
		t.Fatal(err)
	}
	f, err := posixstore.New(dir).Append("ledger/00000000.log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("x")); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("writing to a full device: %v", err)
	}
}

// TestGather appends more byte strings at once than one system call takes.
func TestGather(t *testing.T) {
	dir := t.TempDir()
	f, err := posixstore.New(dir).Append("ledger/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, ok := f.(ledger.Gatherer)
	if !ok {
		t.Skip("this system's store doesn't gather")
	}
	var bufs [][]byte
	var want []byte
	for i := range 3000 {
		b := []byte(strings.Repeat(strconv.Itoa(i), i%7))
		bufs, want = append(bufs, b), append(want, b...)
	}
	n, err := g.Gather(bufs)
	got, rerr := os.ReadFile(filepath.Join(dir, "ledger", "x"))
	if err != nil || rerr != nil || n != len(want) || string(got) != string(want) {
		t.Fatalf("%d of %d bytes, %v, %v", n, len(want), err, rerr)
	}
}
