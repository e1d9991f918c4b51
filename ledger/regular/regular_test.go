//go:build unix

package regular_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/regular"
)

func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "A", "d/b": "B"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fstest.TestFS(regular.FS(dir), "a", "d/b"); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Symlink("a", filepath.Join(dir, "link")), os.Symlink("d", filepath.Join(dir, "folder")))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, name := range []string{"pipe", "link", "folder/b"} {
			if _, err := regular.FS(dir).Open(name); !errors.Is(err, regular.ErrNot) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"pipe", "link", "d"} {
			if _, err := regular.ReadFile(filepath.Join(dir, name)); !errors.Is(err, regular.ErrNot) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if b, err := regular.ReadNamed(filepath.Join(dir, "link")); string(b) != "A" {
			t.Errorf("a link that the user named: %q, %v", b, err)
		}
		if _, err := regular.ReadNamed(filepath.Join(dir, "pipe")); !errors.Is(err, regular.ErrNot) {
			t.Errorf("a pipe that the user named: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a pipe's writer")
	}
}
