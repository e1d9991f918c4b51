// Package sharedlog is both sides of a transparency log that many recorders share: its entries are their checkpoints, as
// signed notes. The log is a C2SP tile log (c2sp.org/tlog-tiles) on Tessera's POSIX driver, whose own checkpoints may be
// cosigned by witnesses (c2sp.org/tlog-policy), so that any tile client can follow and any monitor can audit it.
//
//	POST /add          body: a checkpoint; answer: a proof of its inclusion (c2sp.org/tlog-proof)
//	GET  /checkpoint   GET /tile/…
package sharedlog

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// ServerOptions are what a log needs.
type ServerOptions struct {
	Dir  string
	Name string // the log's origin
	Seed []byte // of its Ed25519 key, 32 bytes
	// Logs are the recorders' logs that it takes checkpoints of, by origin; one of the keys must have signed. Nil: any
	// well-formed checkpoint, for whoever may reach the server.
	Logs map[string][]checkpoint.Key
	// WitnessPolicy is a tlog-policy whose witnesses must cosign before a checkpoint is published; "": none.
	WitnessPolicy []byte
	// Interval is the time between two checkpoints. Default: 1 s, and at least 100 ms.
	Interval time.Duration
	// Log takes what Tessera warns of, a line each; nil: nobody does. There is one for the process: that of the last log opened.
	Log io.Writer
}

// Server is a shared log.
type Server struct {
	opts     ServerOptions
	key      checkpoint.Key
	appender *tessera.Appender
	reader   tessera.LogReader
	await    *tessera.PublicationAwaiter
	shutdown func(context.Context) error
	files    http.Handler

	mu   sync.Mutex
	seen map[merkle.Hash]tessera.IndexFuture // by leaf hash: an entry is taken once
}

// maxEntry bounds a checkpoint that is added. Entries of a tile log have at most 65,535 bytes.
const maxEntry = 32 << 10

// Open opens a log, or makes it. ctx is the log's life.
func Open(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if err := redirect(o.Log); err != nil {
		return nil, err
	}
	signer, key, err := noteSigner(o.Name, o.Seed)
	if err != nil {
		return nil, err
	}
	driver, err := posix.New(ctx, posix.Config{Path: o.Dir})
	if err != nil {
		return nil, fmt.Errorf("opening the log in %s: %w", o.Dir, err)
	}
	opts := tessera.NewAppendOptions().WithCheckpointSigner(signer).WithBatching(256, min(o.Interval, 250*time.Millisecond)).
		WithCheckpointInterval(max(o.Interval, 100*time.Millisecond))
	if len(o.WitnessPolicy) > 0 {
		group, err := tessera.NewWitnessGroupFromPolicy(o.WitnessPolicy)
		if err != nil {
			return nil, fmt.Errorf("the log's witness policy: %w", err)
		}
		opts = opts.WithWitnesses(group, nil)
	}
	s := &Server{opts: o, key: key, seen: map[merkle.Hash]tessera.IndexFuture{}}
	if s.appender, s.shutdown, s.reader, err = tessera.NewAppender(ctx, driver, opts); err != nil {
		return nil, fmt.Errorf("opening the log in %s: %w", o.Dir, err)
	}
	s.await = tessera.NewPublicationAwaiter(ctx, s.reader.ReadCheckpoint, 50*time.Millisecond)
	s.files = http.FileServerFS(os.DirFS(o.Dir))
	if err := s.remember(ctx); err != nil {
		return nil, errors.Join(err, s.shutdown(ctx))
	}
	return s, nil
}

// noteSigner makes the signer that Tessera wants from a seed.
func noteSigner(name string, seed []byte) (note.Signer, checkpoint.Key, error) {
	ed, err := checkpoint.NewSigner(checkpoint.Ed25519, seed)
	if err != nil {
		return nil, checkpoint.Key{}, err
	}
	k := checkpoint.Key{Name: name}
	k.Alg, k.Public = ed.Public()
	if err := k.Valid(); err != nil {
		return nil, k, err
	}
	id := k.ID()
	private := base64.StdEncoding.EncodeToString(append([]byte{byte(checkpoint.Ed25519)}, seed...))
	s, err := note.NewSigner(fmt.Sprintf("PRIVATE+KEY+%s+%x+%s", name, id, private))
	if err != nil {
		return nil, k, fmt.Errorf("the log's key: %w", err)
	}
	return s, k, nil
}

// Key is the log's verifier key.
func (s *Server) Key() checkpoint.Key { return s.key }

// Close waits until everything that was taken is in the log.
func (s *Server) Close(ctx context.Context) error { return s.shutdown(ctx) }

// remember reads which entries the log has, so that none is taken twice. The log is the only record of that.
func (s *Server) remember(ctx context.Context) error {
	size, err := s.reader.IntegratedSize(ctx)
	if err != nil || size == 0 {
		return err
	}
	hashes, err := client.FetchLeafHashes(ctx, s.reader.ReadTile, 0, size, size)
	if err != nil {
		return fmt.Errorf("reading the log's entries: %w", err)
	}
	for i, h := range hashes {
		index := tessera.Index{Index: uint64(i)}
		s.seen[merkle.Hash(h)] = func() (tessera.Index, error) { return index, nil }
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/add" && r.Method == http.MethodPost:
		s.add(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "GET, or POST /add", http.StatusMethodNotAllowed)
	case r.URL.Path == "/checkpoint":
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		s.files.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, "/tile/") && path.Clean(r.URL.Path) == r.URL.Path:
		w.Header().Set("Content-Type", "application/octet-stream")
		s.files.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) add(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEntry))
	if err != nil {
		http.Error(w, "the checkpoint can't be read, or is too long", http.StatusBadRequest)
		return
	}
	if code, why := s.acceptable(body); code != 0 {
		http.Error(w, why, code)
		return
	}
	p, err := s.Add(r.Context(), body)
	switch {
	case errors.Is(err, tessera.ErrPushback):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many entries at once", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, "the entry couldn't be logged", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(p.Marshal())
	}
}

// acceptable says why an entry isn't, as an HTTP status.
func (s *Server) acceptable(body []byte) (int, string) {
	n, err := checkpoint.Parse(body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	if s.opts.Logs == nil {
		return 0, ""
	}
	keys, ok := s.opts.Logs[n.Origin]
	if !ok {
		return http.StatusNotFound, "unknown log"
	}
	for _, k := range keys {
		if _, err := k.Verify(n); err == nil {
			return 0, ""
		}
	}
	return http.StatusForbidden, "no signature of a key that is known"
}

// Add puts an entry into the log, unless it has it, and returns the proof under a published checkpoint.
func (s *Server) Add(ctx context.Context, entry []byte) (*proof.Inclusion, error) {
	leaf := merkle.LeafHash(entry)
	s.mu.Lock()
	future, ok := s.seen[leaf]
	if !ok {
		future = s.appender.Add(context.WithoutCancel(ctx), tessera.NewEntry(entry))
		s.seen[leaf] = future
	}
	s.mu.Unlock()
	index, raw, err := s.await.Await(ctx, future)
	if err != nil {
		if ctx.Err() == nil {
			s.mu.Lock()
			delete(s.seen, leaf) // it didn't get in: the next may try
			s.mu.Unlock()
		}
		return nil, fmt.Errorf("adding an entry: %w", err)
	}
	n, err := checkpoint.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the log's own checkpoint: %w", err)
	}
	b, err := client.NewProofBuilder(ctx, n.Size, s.reader.ReadTile)
	if err != nil {
		return nil, fmt.Errorf("proving entry %d: %w", index.Index, err)
	}
	hashes, err := b.InclusionProof(ctx, index.Index)
	if err != nil {
		return nil, fmt.Errorf("proving entry %d: %w", index.Index, err)
	}
	p := &proof.Inclusion{Index: index.Index, Note: n}
	for _, h := range hashes {
		p.Proof = append(p.Proof, merkle.Hash(h))
	}
	return p, nil
}
