package ledgertest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/bodycam-dev/bodycam/ledger"
)

// TestStore checks what [ledger.Store] demands. open returns the store in one place, as another process finds it.
func TestStore(t *testing.T, open func() ledger.Store) {
	s := open()
	t.Run("append", func(t *testing.T) {
		f := must(s.Append("ledger/00000000.log"))(t)
		for _, p := range []string{"one", "", "two"} {
			if n, err := f.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
			}
		}
		check(t, f.Sync())
		check(t, f.Close())
		f = must(s.Append("ledger/00000000.log"))(t)
		f.Write([]byte("three"))
		if n, err := f.Size(); n != 11 || err != nil {
			t.Fatalf("size %d, %v", n, err)
		}
		check(t, f.Truncate(5))
		f.Write([]byte("!"))
		check(t, f.Sync())
		check(t, f.Close())
		content(t, open(), "ledger/00000000.log", "onetw!")
	})
	t.Run("read at", func(t *testing.T) {
		f := must(open().Open("ledger/00000000.log"))(t)
		defer f.Close()
		b := make([]byte, 3)
		if _, err := f.(io.ReaderAt).ReadAt(b, 2); err != nil || string(b) != "etw" {
			t.Fatalf("read %q: %v", b, err)
		}
	})
	t.Run("put", func(t *testing.T) {
		for _, name := range []string{"ledger/checkpoint", "payload/ab/cd", "ledger/00000000.keys"} {
			check(t, s.Put(name, []byte("old and longer")))
			check(t, s.Put(name, []byte("new")))
			content(t, open(), name, "new")
		}
	})
	t.Run("remove", func(t *testing.T) {
		check(t, s.Put("ledger/erase", []byte("x")))
		check(t, s.Remove("ledger/erase"))
		check(t, s.Remove("ledger/erase"))
		if _, err := open().Open("ledger/erase"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("opening what was removed: %v", err)
		}
	})
	t.Run("names", func(t *testing.T) {
		for _, name := range []string{"../x", "/x", ""} {
			if f, err := s.Open(name); err == nil {
				f.Close()
				t.Errorf("opened %q", name)
			}
		}
	})
	t.Run("lock", func(t *testing.T) {
		l := must(s.Lock())(t)
		var locked *ledger.LockedError
		if _, err := open().Lock(); !errors.As(err, &locked) || locked.Holder == "" {
			t.Fatalf("second lock: %v", err)
		}
		check(t, l.Close())
		l = must(open().Lock())(t)
		check(t, l.Close())
	})
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, fsys fs.FS, name, want string) {
	t.Helper()
	b, err := fs.ReadFile(fsys, name)
	if err != nil || !bytes.Equal(b, []byte(want)) {
		t.Fatalf("%s holds %q (%v), want %q", name, b, err, want)
	}
}
