package hostlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

func signers(t *testing.T, seed byte) []checkpoint.Signer {
	t.Helper()
	b := make([]byte, 32)
	b[0] = seed
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, b)
	if err != nil {
		t.Fatal(err)
	}
	return []checkpoint.Signer{s}
}

func newRun(t *testing.T, dir string) *ledger.Writer {
	t.Helper()
	w, err := ledger.Create(posixstore.New(dir), ledger.Options{Signers: signers(t, 9), Clear: true, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestConcurrentRuns(t *testing.T) {
	ctx := context.Background()
	l := &Log{Dir: filepath.Join(t.TempDir(), "host"), Signers: [][]checkpoint.Signer{signers(t, 1)}, Recorder: "test"}
	if _, err := Read(l.Dir); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	const runs = 12
	root := t.TempDir()
	var wg sync.WaitGroup
	for i := range runs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			dir := filepath.Join(root, fmt.Sprint(i))
			w, err := ledger.Create(posixstore.New(dir), ledger.Options{Signers: signers(t, 9), Clear: true, Recorder: "test"})
			if err == nil {
				err = errors.Join(l.OpenRun(ctx, fmt.Sprint(i), dir), w.Close(), l.CloseRun(ctx, fmt.Sprint(i), dir))
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	states, err := Read(l.Dir)
	if err != nil || len(states) != runs {
		t.Fatalf("%d states, %v", len(states), err)
	}
	for _, s := range states {
		head, ok := s.Head()
		if !ok || head.Size == 0 || s.Closed.IsZero() || s.Dir != filepath.Join(root, s.Run) {
			t.Errorf("%+v", s)
		}
	}
	verify(t, l, signers(t, 1))
}

func verify(t *testing.T, l *Log, by []checkpoint.Signer) {
	t.Helper()
	alg, pub := by[0].Public()
	rep, err := ledger.Verify(context.Background(), os.DirFS(l.Dir), ledger.VerifyOptions{Trust: ledger.Trust{Keys: []ledger.PublicKey{{Alg: alg, Public: pub}}}})
	if err != nil || rep.Claims.Integrity.Status != ledger.StatusVerified || rep.Claims.Identity.Status != ledger.StatusVerified {
		t.Errorf("%+v, %v", rep, err)
	}
}

// After a rotation of the ring the log goes on under the new keys, and both vouch for it.
func TestHandOver(t *testing.T) {
	ctx := context.Background()
	l := &Log{Dir: filepath.Join(t.TempDir(), "host"), Signers: [][]checkpoint.Signer{signers(t, 1)}, Recorder: "test"}
	if err := l.HandOver(ctx); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := newRun(t, dir)
	if err := errors.Join(l.OpenRun(ctx, "a", dir), w.Close()); err != nil {
		t.Fatal(err)
	}
	l.Signers = [][]checkpoint.Signer{signers(t, 2), signers(t, 1)}
	if err := errors.Join(l.HandOver(ctx), l.CloseRun(ctx, "a", dir)); err != nil {
		t.Fatal(err)
	}
	verify(t, l, signers(t, 1))
	verify(t, l, signers(t, 2))
	l.Signers = [][]checkpoint.Signer{signers(t, 3)}
	if err := l.CloseRun(ctx, "a", dir); err == nil {
		t.Error("foreign keys could write")
	}
}

// A log that was begun with other keys can't be continued; what to do is said.
func TestOtherKeys(t *testing.T) {
	ctx := context.Background()
	dir, run := filepath.Join(t.TempDir(), "host"), t.TempDir()
	if err := newRun(t, run).Close(); err != nil {
		t.Fatal(err)
	}
	first := &Log{Dir: dir, Signers: [][]checkpoint.Signer{signers(t, 1)}, Recorder: "test"}
	if err := first.OpenRun(ctx, "a", run); err != nil {
		t.Fatal(err)
	}
	other := &Log{Dir: dir, Signers: [][]checkpoint.Signer{signers(t, 2)}, Recorder: "test"}
	err := other.OpenRun(ctx, "b", run)
	if !errors.Is(err, ledger.ErrSigners) || !strings.Contains(err.Error(), "$BODYCAM_HOME") || !strings.Contains(err.Error(), "$BODYCAM_KEYS") {
		t.Errorf("%v", err)
	}
	if err := first.OpenRun(ctx, "c", run); err != nil {
		t.Errorf("with the keys that it was begun with: %v", err)
	}
}
