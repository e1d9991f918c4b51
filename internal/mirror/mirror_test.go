package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

func writer(t testing.TB, dir string) *ledger.Writer {
	t.Helper()
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	w, err := ledger.Create(posixstore.New(dir), ledger.Options{Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{id.Recipient()},
		Recorder: "test", SegmentBytes: 4 << 10, CheckpointEvery: time.Millisecond, FlushEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func add(t *testing.T, w *ledger.Writer, n int) {
	t.Helper()
	for i := range n {
		if _, err := w.Append(context.Background(), ledger.Entry{Type: ledger.TypeUser, Kind: "x", Payload: fmt.Appendf(nil, "payload %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func logID(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, genesisFile))
	if err != nil {
		t.Fatal(err)
	}
	g, err := ledger.ParseGenesis(b)
	if err != nil {
		t.Fatal(err)
	}
	id := g.ID()
	return fmt.Sprintf("%x", id[:])
}

// targets are the two kinds, which must behave alike.
func targets(t *testing.T) map[string]Target {
	t.Helper()
	dir := NewDir(t.TempDir())
	srv := httptest.NewTLSServer(Handler(NewDir(t.TempDir()), "token"))
	t.Cleanup(srv.Close)
	c, err := newClient(srv.URL, ClientOptions{Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	c.http = srv.Client()
	return map[string]Target{"dir": dir, "https": c}
}

// A log over several segments and with a payload in chunks is copied while it is written; the copy verifies alone.
func TestFollow(t *testing.T) {
	for name, to := range targets(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := writer(t, dir)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			done := make(chan error, 1)
			go func() { _, err := Send(ctx, dir, to, SendOptions{Follow: true}); done <- err }()
			for range 5 {
				add(t, w, 150)
				time.Sleep(5 * time.Millisecond)
			}
			if _, err := w.AppendReader(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "large"}, io.LimitReader(zeros{}, 3<<20)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			c, err := Compare(ctx, dir, to, CompareOptions{})
			if err != nil || c.Status != ledger.StatusVerified || len(c.Reasons) > 0 || c.Bytes < 3<<20 {
				t.Fatalf("%+v, %v", c, err)
			}
			if d, ok := to.(*Dir); ok {
				rep, err := ledger.Verify(ctx, os.DirFS(filepath.Join(d.root, logID(t, dir))), ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Payloads: true})
				if err != nil || rep.Verdict != ledger.Verified {
					t.Errorf("the copy: %+v, %v", rep, err)
				}
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// What is appended must continue what is there; what is there stays.
func TestAppendOnly(t *testing.T) {
	for name, to := range targets(t) {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			dir := t.TempDir()
			w := writer(t, dir)
			add(t, w, 10)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			log := logID(t, dir)
			if err := to.Append(ctx, log, "ledger/epochs", 0, []byte("x")); !errors.Is(err, errRefused) {
				t.Errorf("before the genesis: %v", err)
			}
			if err := to.Append(ctx, strings.Repeat("0", 64), genesisFile, 0, []byte("x")); !errors.Is(err, errRefused) {
				t.Errorf("a false genesis: %v", err)
			}
			if _, err := Send(ctx, dir, to, SendOptions{}); err != nil {
				t.Fatal(err)
			}
			before, err := to.Files(ctx, log)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				name   string
				offset int64
				data   string
				want   error
			}{
				{"ledger/epochs", 0, "other bytes", ErrConflict},
				{"ledger/epochs", before["ledger/epochs"] + 1, "x", ErrConflict},
				{"ledger/epochs", before["ledger/epochs"] - 1, "xy", ErrConflict},
				{genesisFile, 0, "x", errRefused},
				{"payload/aa/" + strings.Repeat("a", 64), 0, "not its digest", errRefused},
				{"ledger/../../etc/passwd", 0, "x", errRefused},
				{"run.json", 0, "x", errRefused},
				{"heads.jsonl", 0, "x", errRefused},
			} {
				err := to.Append(ctx, log, c.name, c.offset, []byte(c.data))
				if name == "https" && strings.Contains(c.name, "..") {
					if err == nil { // the router may not even let it through
						t.Errorf("%s was taken", c.name)
					}
					continue
				}
				if !errors.Is(err, c.want) {
					t.Errorf("%s at %d: %v, want %v", c.name, c.offset, err, c.want)
				}
			}
			after, err := to.Files(ctx, log)
			if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("files %v became %v (%v)", before, after, err)
			}
			// Checkpoints: not smaller, not another of the same size, not another log's.
			note, err := os.ReadFile(filepath.Join(dir, "ledger/checkpoint"))
			if err != nil {
				t.Fatal(err)
			}
			n, err := checkpoint.Parse(note)
			if err != nil {
				t.Fatal(err)
			}
			fork, shrunk, foreign := *n, *n, *n
			fork.Root[0] ^= 1
			shrunk.Size--
			foreign.Origin = "elsewhere/" + n.Origin
			for what, m := range map[string]*checkpoint.Note{"fork": &fork, "shrunk": &shrunk} {
				if err := to.Publish(ctx, log, m.Marshal()); !errors.Is(err, ErrConflict) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := to.Publish(ctx, log, foreign.Marshal()); !errors.Is(err, errRefused) {
				t.Errorf("foreign: %v", err)
			}
			if err := to.Publish(ctx, log, note); err != nil {
				t.Errorf("the same again: %v", err)
			}
			if heads, err := to.Heads(ctx, log); err != nil || len(heads) != 1 {
				t.Errorf("heads %v, %v", heads, err)
			}
		})
	}
}

// A log that was rolled back and went on otherwise is refused, not merged.
func TestRollback(t *testing.T) {
	ctx := context.Background()
	to := NewDir(t.TempDir())
	dir := t.TempDir()
	w := writer(t, dir)
	add(t, w, 120)
	if err := w.Detach(); err != nil {
		t.Fatal(err)
	}
	snapshot := t.TempDir()
	if err := os.CopyFS(snapshot, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	reopen := func(dir string, n int) {
		t.Helper()
		s, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		w, err := ledger.Open(posixstore.New(dir), ledger.Options{Signers: []checkpoint.Signer{s}, Recipients: []age.Recipient{recipient(t)}, Recorder: "test"})
		if err != nil {
			t.Fatal(err)
		}
		add(t, w, n)
		if err := w.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	reopen(dir, 200)
	if _, err := Send(ctx, dir, to, SendOptions{}); err != nil {
		t.Fatal(err)
	}
	reopen(snapshot, 50)
	if _, err := Send(ctx, snapshot, to, SendOptions{}); !errors.Is(err, ErrConflict) {
		t.Errorf("a shorter history: %v", err)
	}
	reopen(snapshot, 500)
	if _, err := Send(ctx, snapshot, to, SendOptions{}); !errors.Is(err, ErrConflict) {
		t.Errorf("a longer one: %v", err)
	}
	c, err := Compare(ctx, snapshot, to, CompareOptions{})
	if err != nil || c.Status != ledger.StatusTampered {
		t.Errorf("%+v, %v", c, err)
	}
}

func recipient(t *testing.T) age.Recipient {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id.Recipient()
}

// Outages at every request are waited out; what was stored though it failed is not stored twice.
func TestOutages(t *testing.T) {
	inner := Handler(NewDir(t.TempDir()), "token")
	var n atomic.Int64
	var well atomic.Bool
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if well.Load() {
			inner.ServeHTTP(w, r)
			return
		}
		switch n.Add(1) % 3 {
		case 0:
			http.Error(w, "out of order", http.StatusBadGateway)
		case 1: // stored, but the answer is lost
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			if r.Method == http.MethodPost {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(rec.Code)
			w.Write(rec.Body.Bytes())
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	defer srv.Close()
	c, err := newClient(srv.URL, ClientOptions{Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	c.http = srv.Client()
	dir := t.TempDir()
	w := writer(t, dir)
	add(t, w, 300)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	outages := 0
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := Send(ctx, dir, c, SendOptions{Told: func(p Progress) {
		if p.Outage != nil {
			outages++
		}
	}}); err != nil {
		t.Fatal(err)
	}
	well.Store(true)
	if got, err := Compare(ctx, dir, c, CompareOptions{}); err != nil || got.Status != ledger.StatusVerified || len(got.Reasons) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if outages == 0 {
		t.Error("there was no outage")
	}
	// One that lasts ends it.
	srv.Close()
	dir2 := t.TempDir()
	w = writer(t, dir2)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Send(ctx, dir2, c, SendOptions{Patience: time.Millisecond}); err == nil {
		t.Error("a mirror that is gone took a copy")
	}
}

// What waiting doesn't mend isn't waited out.
func TestLasting(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, dir)
	add(t, w, 3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	answer := func(first int) Target {
		inner := Handler(NewDir(t.TempDir()), "token")
		var n atomic.Int64
		srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 || first == http.StatusForbidden {
				http.Error(w, "not now", first)
				return
			}
			inner.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		c, err := newClient(srv.URL, ClientOptions{Token: "token"})
		if err != nil {
			t.Fatal(err)
		}
		c.http = srv.Client()
		return c
	}
	strange := httptest.NewTLSServer(http.NotFoundHandler())
	defer strange.Close()
	untrusted, err := newClient(strange.URL, ClientOptions{Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		to     Target
		waited bool
	}{
		"no place for folders": {NewDir("/proc/mirror"), false},
		"in a file":            {NewDir(filepath.Join(file, "mirror")), false},
		"forbidden":            {answer(http.StatusForbidden), false},
		"certificate":          {untrusted, false},
		"too many":             {answer(http.StatusTooManyRequests), true},
		"too slow":             {answer(http.StatusRequestTimeout), true},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		waited := false
		_, err := Send(ctx, dir, c.to, SendOptions{Told: func(p Progress) {
			waited = waited || p.Outage != nil && p.Wait > 0
			if waited && !c.waited {
				cancel()
			}
		}})
		cancel()
		if waited != c.waited || (err == nil) != c.waited {
			t.Errorf("%s: waited %v, %v", name, waited, err)
		}
	}
}

func TestToken(t *testing.T) {
	for _, token := range []string{"", "right"} {
		srv := httptest.NewTLSServer(Handler(NewDir(t.TempDir()), token))
		c, err := newClient(srv.URL, ClientOptions{Token: "wrong"})
		if err != nil {
			t.Fatal(err)
		}
		c.http = srv.Client()
		if _, err := c.Files(context.Background(), strings.Repeat("0", 64)); !errors.Is(err, errRefused) {
			t.Errorf("token %q: %v", token, err)
		}
		srv.Close()
	}
}

func FuzzParseHeads(f *testing.F) {
	f.Add([]byte(`{"time":1,"note":"x\n1\nAAAA\n\n"}` + "\n"))
	f.Add([]byte("{}\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		heads, err := parseHeads(b)
		if err == nil {
			for _, h := range heads {
				if _, err := checkpoint.Parse([]byte(h.Note)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
