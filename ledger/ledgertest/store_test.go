package ledgertest

import (
	"testing"

	"github.com/bodycam-dev/bodycam/ledger"
)

func TestMemory(t *testing.T) {
	s := New()
	TestStore(t, func() ledger.Store { return s })
}

func TestCrashDropsWhatWasNotSynced(t *testing.T) {
	s := New()
	f, err := s.Append("a")
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("synced"))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("lost"))
	if got := s.Crash(nil).Bytes("a"); string(got) != "synced" {
		t.Fatalf("a crash left %q", got)
	}
	if got := s.Crash(func(_ string, n int) int { return n / 2 }).Bytes("a"); string(got) != "syncedlo" {
		t.Fatalf("a crash that keeps half left %q", got)
	}
}
