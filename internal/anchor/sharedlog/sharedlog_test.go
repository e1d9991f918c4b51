package sharedlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/transparency-dev/tessera/client"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/witness"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

const name = "shared.example/log"

func open(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Name, o.Seed, o.Interval = name, bytes.Repeat([]byte{5}, 32), 100*time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	s, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end, enough := context.WithTimeout(context.Background(), 2*time.Second)
		defer enough()
		if err := s.Close(end); err != nil {
			t.Log(err) // a test may have closed it, or taken its witness away
		}
		stop()
	})
	return s
}

// witnessed starts a witness of ours, which Tessera's own client asks, and returns the policy that names it and its key.
func witnessed(t *testing.T) (*httptest.Server, []byte, checkpoint.Key) {
	t.Helper()
	wit, err := checkpoint.NewSigner(checkpoint.Cosignature, bytes.Repeat([]byte{6}, 32))
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := noteSigner(name, bytes.Repeat([]byte{5}, 32))
	if err != nil {
		t.Fatal(err)
	}
	w := &witness.Server{Name: "w.example", Signers: []checkpoint.Signer{wit}, Logs: map[string][]checkpoint.Key{name: {key}}}
	if err := w.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(w)
	t.Cleanup(web.Close)
	return web, fmt.Appendf(nil, "witness w1 %s %s\nquorum w1\n", w.Keys()[0], web.URL), w.Keys()[0]
}

// watched is a shared log with a witness.
func watched(t *testing.T, log *anchortest.Log) (*Server, proof.Root) {
	t.Helper()
	_, policy, key := witnessed(t)
	s := open(t, ServerOptions{Dir: t.TempDir(), WitnessPolicy: policy, Logs: map[string][]checkpoint.Key{anchortest.Origin: {log.Key()}}})
	return s, proof.Root{Kind: proof.KindLog, Key: s.Key().String(), Witnesses: []string{key.String()}}
}

func TestSuite(t *testing.T) {
	anchortest.Suite(t, func(t *testing.T, log *anchortest.Log) *anchortest.Fixture {
		s, root := watched(t, log)
		var down atomic.Bool
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				http.Error(w, "down", http.StatusBadGateway)
				return
			}
			s.ServeHTTP(w, r)
		}))
		t.Cleanup(web.Close)
		return &anchortest.Fixture{
			Mechanism: &Mechanism{URL: web.URL, Root: root},
			Root:      func() proof.Root { return root },
			Down:      func(d bool) { down.Store(d) },
			Commitments: func() int {
				n, err := s.reader.IntegratedSize(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				return int(n)
			},
		}
	})
}

// TestOtherClients: clients that we didn't write read the log: x/mod's tlog and Tessera's.
func TestOtherClients(t *testing.T) {
	s := open(t, ServerOptions{Dir: t.TempDir()})
	web := httptest.NewServer(s)
	defer web.Close()
	log := anchortest.NewLog()
	var last *proof.Inclusion
	var entry []byte
	for range 5 {
		log.Grow("x")
		h, err := log.Head()
		if err != nil {
			t.Fatal(err)
		}
		entry = h.Marshal()
		if last, err = s.Add(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(web.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	f, err := client.NewHTTPFetcher(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(s.Key().String())
	if err != nil {
		t.Fatal(err)
	}
	c, _, _, err := client.FetchCheckpoint(t.Context(), f.ReadCheckpoint, v, name)
	if err != nil || c.Size != 5 {
		t.Fatalf("%+v, %v", c, err)
	}
	bundle, err := client.GetEntryBundle(t.Context(), f.ReadEntryBundle, 0, c.Size)
	if err != nil || !bytes.Equal(bundle.Entries[4], entry) {
		t.Fatalf("the last entry isn't what was added: %v", err)
	}
	record := tlog.RecordProof{}
	for _, h := range last.Proof {
		record = append(record, tlog.Hash(h))
	}
	if err := tlog.CheckRecord(record, int64(last.Note.Size), tlog.Hash(last.Note.Root), int64(last.Index), tlog.RecordHash(entry)); err != nil {
		t.Error(err)
	}
}

// TestOnce: an entry is in the log once, also after a restart.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	log := anchortest.NewLog()
	log.Grow("x")
	h, err := log.Head()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, ServerOptions{Dir: dir})
	first, err := s.Add(t.Context(), h.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = open(t, ServerOptions{Dir: dir})
	again, err := s.Add(t.Context(), h.Marshal())
	if err != nil || again.Index != first.Index || again.Note.Size != first.Note.Size {
		t.Fatalf("%+v, %v", again, err)
	}
}

func TestRefuses(t *testing.T) {
	log := anchortest.NewLog()
	log.Grow("x")
	h, err := log.Head()
	if err != nil {
		t.Fatal(err)
	}
	other := log.Key()
	other.Public = bytes.Repeat([]byte{1}, 32)
	s := open(t, ServerOptions{Dir: t.TempDir(), Logs: map[string][]checkpoint.Key{anchortest.Origin: {other}}})
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/add", "hello", 400},
		{"POST", "/add", string(bytes.Repeat([]byte("x"), maxEntry+1)), 400},
		{"POST", "/add", string(h.Marshal()), 403},
		{"POST", "/add", "elsewhere" + string(h.Marshal()), 404},
		{"PUT", "/add", "", 405},
		{"GET", "/.state/treeState", "", 404},
		{"GET", "/tile/../.state/treeState", "", 404},
		{"GET", "/tile/", "", 404},
		{"GET", "/", "", 404},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(c.method, c.path, bytes.NewReader([]byte(c.body))))
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
		}
	}
}

// lines is what somebody who listens hears.
type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(b)
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// TestWarnings: that the log's witness doesn't answer is told to who listens, and written nowhere else.
func TestWarnings(t *testing.T) {
	web, policy, _ := witnessed(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = w
	heard := &lines{}
	s := open(t, ServerOptions{Dir: t.TempDir(), Log: heard, WitnessPolicy: policy})
	web.Close()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	log := anchortest.NewLog()
	log.Grow("x")
	h, err := log.Head()
	if err != nil {
		t.Fatal(err)
	}
	go func() { // until the checkpoint can't be published
		for heard.String() == "" && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		stop()
	}()
	if _, err := s.Add(ctx, h.Marshal()); err == nil {
		t.Error("a checkpoint was published without its witness")
	}
	stop()
	os.Stderr = stderr
	w.Close()
	written, err := io.ReadAll(r)
	if err != nil || len(written) > 0 {
		t.Errorf("it wrote to standard error: %q, %v", written, err)
	}
	if s := heard.String(); !strings.Contains(s, "heckpoint") || strings.Contains(s, "] ") {
		t.Errorf("heard: %q", s)
	}
}
