// Package interop holds witnesses and shared logs of ours against implementations that others wrote: the witness of the
// transparency-dev project (the one behind omniwitness) with its client, and torchwood, the tile client of Sunlight's author.
package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/torchwood"
	f_note "github.com/transparency-dev/formats/note"
	witnessclient "github.com/transparency-dev/witness/client/http"
	"github.com/transparency-dev/witness/persistence/inmemory"
	theirs "github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/sharedlog"
	"github.com/bodycam-dev/bodycam/internal/anchor/witness"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// verifier is theirs of a log's key.
func verifier(t *testing.T, k checkpoint.Key) note.Verifier {
	t.Helper()
	v, err := note.NewVerifier(k.String())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// foreign starts a witness of theirs that knows logs by origin, and returns its key as ours.
func foreign(t *testing.T, logs map[string]note.Verifier) (http.Handler, checkpoint.Key) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(nil, "theirs.example/witness")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := f_note.NewSignerForCosignatureV1(skey)
	if err == nil {
		vkey, err = f_note.VKeyToCosignatureV1(vkey)
	}
	if err != nil {
		t.Fatal(err)
	}
	k, err := checkpoint.ParseKey(vkey)
	if err != nil {
		t.Fatal(err)
	}
	w, err := theirs.New(t.Context(), theirs.Opts{Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			v, ok := logs[origin]
			return v, ok, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	h := theirs.NewHTTPHandler(w)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", h.AddCheckpoint)
	return mux, k
}

// TestTheirWitness: all that is asked of an anchor holds where their witness is the outside.
func TestTheirWitness(t *testing.T) {
	anchortest.Suite(t, func(t *testing.T, log *anchortest.Log) *anchortest.Fixture {
		h, key := foreign(t, map[string]note.Verifier{anchortest.Origin: verifier(t, log.Key())})
		var down atomic.Bool
		var mu sync.Mutex
		sizes := map[uint64]bool{}
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				http.Error(w, "down", http.StatusBadGateway)
				return
			}
			var body bytes.Buffer
			if _, err := body.ReadFrom(r.Body); err != nil {
				t.Error(err)
			}
			r.Body = http.NoBody
			next := r.Clone(r.Context())
			next.Body = nopCloser{bytes.NewReader(body.Bytes())}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, next)
			if a, err := proof.ParseAddCheckpoint(body.Bytes()); err == nil && rec.Code == http.StatusOK {
				mu.Lock()
				sizes[a.Note.Size] = true
				mu.Unlock()
			}
			for k, v := range rec.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
		}))
		t.Cleanup(web.Close)
		return &anchortest.Fixture{
			Mechanism: &witness.Mechanism{Witnesses: []witness.Witness{{URL: web.URL, Key: key}}}, Linear: true,
			Root: func() proof.Root { return proof.Root{Kind: proof.KindWitness, Key: key.String()} },
			Down: func(d bool) { down.Store(d) },
			Commitments: func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(sizes)
			},
		}
	})
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

// TestTheirClient: their client gets a cosignature from our witness that their verifier takes, and reads our refusals.
func TestTheirClient(t *testing.T) {
	log := anchortest.NewLog()
	s := ourWitness(t, map[string][]checkpoint.Key{anchortest.Origin: {log.Key()}})
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := witnessclient.NewWitness(u, http.DefaultClient)
	v, err := f_note.NewVerifierForCosignatureV1(s.key.String())
	if err != nil {
		t.Fatal(err)
	}
	var old uint64
	for range 3 {
		log.Grow("x")
		log.Grow("x")
		h, err := log.Head()
		if err != nil {
			t.Fatal(err)
		}
		way, err := h.Consistency(old)
		if err != nil {
			t.Fatal(err)
		}
		var raw [][]byte
		for i := range way {
			raw = append(raw, way[i][:])
		}
		sigs, _, err := c.Update(t.Context(), old, h.Marshal(), raw)
		if err != nil {
			t.Fatal(err)
		}
		n, err := note.Open(append([]byte(h.Text()+"\n"), sigs...), note.VerifierList(v))
		if err != nil || len(n.Sigs) != 1 {
			t.Fatalf("their verifier: %v", err)
		}
		if at, err := f_note.CoSigV1Timestamp(n.Sigs[0]); err != nil || time.Since(at) > time.Minute {
			t.Errorf("the cosignature's time: %v, %v", at, err)
		}
		if _, size, err := c.Update(t.Context(), old, h.Marshal(), raw); !errors.Is(err, theirs.ErrCheckpointStale) || size != h.Size {
			t.Errorf("an old size: %d, %v", size, err)
		}
		old = h.Size
	}
	fork := anchortest.NewLog()
	for range 9 {
		fork.Grow("y")
	}
	h, err := fork.Head()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Update(t.Context(), old, h.Marshal(), [][]byte{make([]byte, len(merkle.Hash{}))}); !errors.Is(err, theirs.ErrInvalidProof) {
		t.Errorf("a fork: %v", err)
	}
}

type served struct {
	*httptest.Server
	key checkpoint.Key
}

func ourWitness(t *testing.T, logs map[string][]checkpoint.Key) served {
	t.Helper()
	signer, err := checkpoint.NewSigner(checkpoint.Cosignature, bytes.Repeat([]byte{6}, 32))
	if err != nil {
		t.Fatal(err)
	}
	w := &witness.Server{Name: "ours.example", Signers: []checkpoint.Signer{signer}, Logs: logs}
	if err := w.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(w)
	t.Cleanup(web.Close)
	return served{web, w.Keys()[0]}
}

// TestTheirTileClient: a shared log of ours, cosigned by our witness and by theirs, is followed by torchwood, which verifies
// every entry and tile against the tree, and our proofs of inclusion under its own policy.
func TestTheirTileClient(t *testing.T) {
	const name = "shared.example/log"
	seed := bytes.Repeat([]byte{5}, 32)
	signer, err := checkpoint.NewSigner(checkpoint.Ed25519, seed)
	if err != nil {
		t.Fatal(err)
	}
	key := checkpoint.Key{Name: name}
	key.Alg, key.Public = signer.Public()
	ours := ourWitness(t, map[string][]checkpoint.Key{name: {key}})
	h, theirKey := foreign(t, map[string]note.Verifier{name: verifier(t, key)})
	other := httptest.NewServer(h)
	t.Cleanup(other.Close)
	policy := fmt.Appendf(nil, "witness ours %s %s\nwitness theirs %s %s\ngroup both all ours theirs\nquorum both\n", ours.key, ours.URL, theirKey, other.URL)
	life, end := context.WithCancel(context.Background())
	defer end()
	s, err := sharedlog.Open(life, sharedlog.ServerOptions{Dir: t.TempDir(), Name: name, Seed: seed, Interval: 100 * time.Millisecond, WitnessPolicy: policy})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)

	check, err := torchwood.ParsePolicy(append(fmt.Appendf(nil, "log %s\n", key), policy...))
	if err != nil {
		t.Fatal(err)
	}
	log := anchortest.NewLog()
	var entries [][]byte
	const n = 300 // more than a tile
	for range n {
		log.Grow("x")
		h, err := log.Head()
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, h.Marshal())
	}
	proofs := make([]*proof.Inclusion, n)
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() {
			p, err := s.Add(life, e)
			if err != nil {
				t.Error(err)
				return
			}
			proofs[i] = p
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, p := range proofs {
		if err := torchwood.VerifyProof(check, tlog.RecordHash(entries[i]), p.Marshal()); err != nil {
			t.Fatalf("proof of entry %d: %v", i, err)
		}
		if err := torchwood.VerifyProof(check, tlog.RecordHash(entries[(i+1)%n]), p.Marshal()); err == nil {
			t.Fatal("a proof holds for another entry")
		}
	}

	fetch, err := torchwood.NewTileFetcher(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := torchwood.NewClient(fetch)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := fetch.ReadEndpoint(t.Context(), "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := torchwood.VerifyCheckpoint(raw, check)
	if err != nil || c.N != n {
		t.Fatalf("%+v, %v", c, err)
	}
	found := map[string]bool{}
	for _, e := range client.AllEntries(t.Context(), c.Tree, 0) {
		found[string(e)] = true
	}
	if err := client.Err(); err != nil || len(found) != n {
		t.Fatalf("%d entries, %v", len(found), err)
	}
	for i, e := range entries {
		if !found[string(e)] {
			t.Fatalf("entry %d isn't there", i)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
