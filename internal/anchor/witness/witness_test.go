package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

func newSigner(t *testing.T, alg checkpoint.Algorithm, n byte) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner(alg, bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newServer(t *testing.T, dir string, key checkpoint.Key, alg checkpoint.Algorithm) *Server {
	t.Helper()
	s := &Server{Name: "w.example", Signers: []checkpoint.Signer{newSigner(t, alg, 2)}, Logs: map[string][]checkpoint.Key{key.Name: {key}}}
	if err := s.Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSuite(t *testing.T) {
	for _, alg := range []checkpoint.Algorithm{checkpoint.Cosignature, checkpoint.MLDSA44} {
		t.Run(alg.String(), func(t *testing.T) {
			anchortest.Suite(t, func(t *testing.T, log *anchortest.Log) *anchortest.Fixture {
				s := newServer(t, t.TempDir(), log.Key(), alg)
				var down atomic.Bool
				sizes := map[uint64]bool{}
				web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if down.Load() {
						http.Error(w, "down", http.StatusBadGateway)
						return
					}
					s.ServeHTTP(w, r)
					if n, err := s.Last(anchortest.Origin); err == nil && n != nil {
						sizes[n.Size] = true
					}
				}))
				t.Cleanup(web.Close)
				return &anchortest.Fixture{
					Mechanism: &Mechanism{Witnesses: []Witness{{web.URL, s.Keys()[0]}}}, Linear: true,
					Root:        func() proof.Root { return proof.Root{Kind: proof.KindWitness, Key: s.Keys()[0].String()} },
					Down:        func(d bool) { down.Store(d) },
					Commitments: func() int { return len(sizes) },
				}
			})
		})
	}
}

// tree is a log of n leaves.
type tree []merkle.Hash

func newTree(n int, what string) (out tree) {
	for i := range n {
		out = append(out, merkle.LeafHash(fmt.Appendf(nil, "%s %d", what, i)))
	}
	return out
}

// request asks for the head of the first n leaves, from old on, signed by a key.
func (tr tree) request(t *testing.T, old, n int, origin string, s checkpoint.Signer) []byte {
	t.Helper()
	c := checkpoint.Checkpoint{Origin: origin, Size: uint64(n), Root: merkle.Root(tr[:n])}
	note, err := checkpoint.Sign(c, origin, 0, s)
	if err != nil {
		t.Fatal(err)
	}
	a := &proof.AddCheckpoint{Old: uint64(old), Note: note}
	if old <= n {
		if a.Proof, err = merkle.Consistency(tr[:n], old); err != nil {
			t.Fatal(err)
		}
	}
	return a.Marshal()
}

// TestStatusCodes holds the server to every answer that c2sp.org/tlog-witness names.
func TestStatusCodes(t *testing.T) {
	log := newSigner(t, checkpoint.Ed25519, 1)
	key := checkpoint.Key{Name: "log"}
	key.Alg, key.Public = log.Public()
	s := newServer(t, t.TempDir(), key, checkpoint.Cosignature)
	web := httptest.NewServer(s)
	defer web.Close()
	good, other := newTree(9, "x"), newTree(9, "y")
	swap := func(b []byte, old, with string) []byte {
		t.Helper()
		if !bytes.Contains(b, []byte(old)) {
			t.Fatalf("no %q in %q", old, b)
		}
		return bytes.Replace(b, []byte(old), []byte(with), 1)
	}
	for _, c := range []struct {
		name string
		body []byte
		code int
		size string // the body of a 409
	}{
		{"not a request", []byte("what\n"), 400, ""},
		{"unknown log", good.request(t, 0, 3, "elsewhere", log), 404, ""},
		{"unsigned", good.request(t, 0, 3, "log", newSigner(t, checkpoint.Ed25519, 9)), 403, ""},
		{"old size wrong, nothing cosigned", good.request(t, 1, 3, "log", log), 409, "0\n"},
		{"first", good.request(t, 0, 3, "log", log), 200, ""},
		{"a proof where none may be", swap(good.request(t, 3, 3, "log", log), "\n\n", "\n"+strings.Repeat("A", 43)+"=\n\n"), 422, ""},
		{"again", good.request(t, 3, 3, "log", log), 200, ""},
		{"old above new", swap(good.request(t, 3, 3, "log", log), "old 3", "old 4"), 400, ""},
		{"leading zero", swap(good.request(t, 3, 3, "log", log), "old 3", "old 03"), 400, ""},
		{"old size wrong", good.request(t, 0, 5, "log", log), 409, "3\n"},
		{"fork of the same size", other.request(t, 3, 3, "log", log), 409, "3\n"},
		{"fork", other.request(t, 3, 5, "log", log), 422, ""},
		{"no proof", swap(good.request(t, 0, 5, "log", log), "old 0", "old 3"), 422, ""},
		{"next", good.request(t, 3, 8, "log", log), 200, ""},
		{"back", good.request(t, 3, 5, "log", log), 409, "8\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, answer, err := post(context.Background(), nil, web.URL, c.body)
			if err != nil || code != c.code {
				t.Fatalf("%d %q, %v; want %d", code, answer, err, c.code)
			}
			if c.size != "" && string(answer) != c.size {
				t.Errorf("it says %q, want %q", answer, c.size)
			}
			if c.code != 200 {
				return
			}
			a, err := proof.ParseAddCheckpoint(c.body)
			if err != nil {
				t.Fatal(err)
			}
			if err := proof.AddCosignatures(a.Note, answer, s.Keys()[0]); err != nil {
				t.Error(err)
			}
			if n, err := s.Last("log"); err != nil || n.Checkpoint != a.Note.Checkpoint {
				t.Errorf("it remembers %v, %v", n, err)
			}
		})
	}
	refused, err := os.ReadFile(s.path("log", ".refused"))
	if err != nil || !strings.HasPrefix(string(refused), "log\n5\n") {
		t.Errorf("the fork that it refused wasn't kept: %q, %v", refused, err)
	}
	b, err := os.ReadFile(s.path("log", proof.EquivocationSuffix))
	if err != nil {
		t.Fatalf("two heads of one size left no proof: %v", err)
	}
	if q, err := proof.ParseEquivocation(b); err != nil || q.First.Note.Size != 3 ||
		q.Judge([]ledger.PublicKey{{Alg: key.Alg, Public: key.Public}}, nil).Status != ledger.StatusVerified {
		t.Errorf("the proof convicts nobody: %v", err)
	}
	res, err := http.Post(web.URL+"/add-checkpoint", "", bytes.NewReader(good.request(t, 0, 9, "log", log)))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/x.tlog.size" {
		t.Errorf("a conflict comes as %q", got)
	}
}

// TestStoredBeforeAnswer: what isn't stored isn't signed, and what was signed is known after a restart.
func TestStoredBeforeAnswer(t *testing.T) {
	log := newSigner(t, checkpoint.Ed25519, 1)
	key := checkpoint.Key{Name: "log"}
	key.Alg, key.Public = log.Public()
	dir := t.TempDir()
	s := newServer(t, dir, key, checkpoint.Cosignature)
	s.fault = func() error { return errors.New("disk full") }
	tr := newTree(5, "x")
	if answer, err := s.Add(tr.request(t, 0, 3, "log", log)); err == nil {
		t.Fatalf("it answered %q without having stored", answer)
	}
	s.fault = nil
	if _, err := s.Add(tr.request(t, 0, 3, "log", log)); err != nil {
		t.Fatal(err)
	}
	if err := (&Server{Name: "x", Signers: s.Signers}).Open(dir); err == nil {
		t.Fatal("two witnesses work in one folder")
	}
	s.Close()
	again := newServer(t, dir, key, checkpoint.Cosignature)
	var r *refusal
	if _, err := again.Add(newTree(5, "y").request(t, 3, 5, "log", log)); !errors.As(err, &r) || r.code != 422 {
		t.Fatalf("after a restart it cosigned a fork: %v", err)
	}
	if err := os.WriteFile(again.path("log", ".checkpoint"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Add(tr.request(t, 0, 3, "log", log)); err == nil || errors.As(err, &r) && r.code < 500 {
		t.Fatalf("with its memory damaged it answers %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
}

// TestRace: of many who race, those who win make one history.
func TestRace(t *testing.T) {
	log := newSigner(t, checkpoint.Ed25519, 1)
	key := checkpoint.Key{Name: "log"}
	key.Alg, key.Public = log.Public()
	s := newServer(t, t.TempDir(), key, checkpoint.Cosignature)
	web := httptest.NewServer(s)
	defer web.Close()
	tr := newTree(12, "x")
	var wg sync.WaitGroup
	for n := 1; n <= 12; n++ {
		h := anchortestHead(t, tr, n, log)
		wg.Go(func() {
			ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
			defer stop()
			_ = Cosign(ctx, nil, Witness{web.URL, s.Keys()[0]}, h, h.Note)
		})
	}
	wg.Wait()
	last, err := s.Last("log")
	if err != nil || last == nil || last.Root != merkle.Root(tr[:last.Size]) {
		t.Fatalf("%v, %v", last, err)
	}
}

func anchortestHead(t *testing.T, tr tree, n int, s checkpoint.Signer) anchor.Head {
	t.Helper()
	note, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: "log", Size: uint64(n), Root: merkle.Root(tr[:n])}, "log", 0, s)
	if err != nil {
		t.Fatal(err)
	}
	return anchor.Head{Note: note, Consistency: func(old uint64) ([]merkle.Hash, error) { return merkle.Consistency(tr[:n], int(old)) }}
}

func FuzzAdd(f *testing.F) {
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		f.Fatal(err)
	}
	key := checkpoint.Key{Name: "log"}
	key.Alg, key.Public = s.Public()
	server := &Server{Name: "w", Logs: map[string][]checkpoint.Key{"log": {key}}}
	f.Add([]byte("old 0\n\nlog\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n— log AAAAAAAA\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r *refusal
		if _, err := server.Add(b); !errors.As(err, &r) || r.code < 400 || r.code > 404 {
			t.Errorf("%v", err)
		}
	})
}
