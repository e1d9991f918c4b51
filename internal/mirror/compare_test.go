package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
)

// A mirror that lost what its own checkpoint covers is no witness of it.
func TestMirrorThatLost(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	w := writer(t, dir)
	add(t, w, 150)
	if _, err := w.AppendReader(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "large"}, io.LimitReader(zeros{}, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	to := NewDir(t.TempDir())
	if _, err := Send(ctx, dir, to, SendOptions{}); err != nil {
		t.Fatal(err)
	}
	log := logID(t, dir)
	files, err := to.Files(ctx, log)
	if err != nil {
		t.Fatal(err)
	}
	names := append(sortedKeys(files), headsFile)
	if len(names) < 8 {
		t.Fatalf("only %q", names)
	}
	for _, name := range names {
		whole, err := os.ReadFile(to.path(log, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range [][]byte{nil, whole[:len(whole)-1]} {
			if rest == nil {
				err = os.Remove(to.path(log, name))
			} else {
				err = os.WriteFile(to.path(log, name), rest, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := Compare(ctx, dir, to, CompareOptions{Trusted: true})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			said := strings.Join(c.Reasons, "\n")
			// A line that is cut was never acknowledged: the mirror is behind then, or has no checkpoint.
			behind := name == headsFile && rest != nil && strings.Contains(said, "behind")
			if c.Status != ledger.StatusIncomplete && !behind || !strings.Contains(said, name) && !behind {
				t.Errorf("%s, %d of %d bytes: %s %q", name, len(rest), len(whole), c.Status, said)
			}
		}
		if err := os.WriteFile(to.path(log, name), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := Compare(ctx, dir, to, CompareOptions{Trusted: true}); err != nil || c.Status != ledger.StatusVerified || c.Pinned.Time == 0 {
		t.Errorf("as it was: %+v, %v", c, err)
	}
}

// The time at which a checkpoint arrived must be possible, and be somebody else's word.
func TestMirrorTimes(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	w := writer(t, dir)
	add(t, w, 3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, to := range targets(t) {
		if _, err := Send(ctx, dir, to, SendOptions{}); err != nil {
			t.Fatal(err)
		}
		c, err := Compare(ctx, dir, to, CompareOptions{})
		if err != nil || c.Status != ledger.StatusVerified {
			t.Fatalf("%s: %+v, %v", name, c, err)
		}
		if folder := name == "dir"; (c.Pinned.Time == 0) != folder || (c.Undated != "") != folder {
			t.Errorf("%s: dated %d, %q", name, c.Pinned.Time, c.Undated)
		}
		d, ok := to.(*Dir)
		if !ok {
			continue
		}
		path := d.path(logID(t, dir), headsFile)
		for at, want := range map[time.Time]string{
			time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC): "before the log began",
			time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC): "still to come",
			time.Now(): "",
		} {
			heads, err := d.Heads(ctx, logID(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for _, h := range heads {
				h.Time = at.UnixNano()
				if err := json.NewEncoder(&b).Encode(h); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Clean(path), b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Compare(ctx, dir, d, CompareOptions{Trusted: true})
			if err != nil {
				t.Fatal(err)
			}
			if bad := want != ""; (c.Status == ledger.StatusIncomplete) != bad || (c.Pinned.Time == 0) != bad || !strings.Contains(c.Undated, want) {
				t.Errorf("%v: %+v", at, c)
			}
		}
	}
}
