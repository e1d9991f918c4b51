package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Server is a witness. It remembers the newest checkpoint of every log that it cosigned, and cosigns only what continues
// that. The checkpoint is on stable storage before the answer leaves.
//
//	DIR/LOG.checkpoint      LOG is SHA-256 of the log's origin
//	DIR/LOG.refused         the last checkpoint, validly signed, that didn't continue it: evidence against the log
//	DIR/LOG.equivocation    where the two are of one size: the proof ([proof.Equivocation]) that convicts the log's key
type Server struct {
	// Name is the witness's, Signers its keys (cosignature, ML-DSA-44, or both).
	Name    string
	Signers []checkpoint.Signer
	// Logs are the keys of every log that it watches, by origin. One of them must have signed.
	Logs map[string][]checkpoint.Key
	// Recorders are keys, whatever their names, all of whose logs are watched.
	Recorders []checkpoint.Key

	Now func() time.Time // nil: time.Now

	dir  string
	lock *os.File
	mu   sync.Mutex
	// fault is for tests: called before the checkpoint is stored.
	fault func() error
}

// maxRequest bounds a request's body.
const maxRequest = 512 << 10

// Open makes the server ready. Two can't work in one folder.
func (s *Server) Open(dir string) error {
	for _, g := range s.Signers {
		k := checkpoint.Key{Name: s.Name}
		if k.Alg, k.Public = g.Public(); k.Alg == checkpoint.Ed25519 {
			return errors.New("a witness signs with a cosignature or ML-DSA-44 key, not with a plain one")
		}
		if err := k.Valid(); err != nil {
			return err
		}
	}
	if len(s.Signers) == 0 {
		return errors.New("a witness needs a key")
	}
	for origin, keys := range s.Logs {
		if len(keys) == 0 {
			return fmt.Errorf("the witness has no key of the log %s", origin)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the witness's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the witness's folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("another witness works in %s: %w", dir, err)
	}
	s.dir, s.lock = dir, f
	return nil
}

// Close lets another server work in the folder.
func (s *Server) Close() error { return s.lock.Close() }

// Keys are the witness's verifier keys.
func (s *Server) Keys() []checkpoint.Key {
	var out []checkpoint.Key
	for _, g := range s.Signers {
		k := checkpoint.Key{Name: s.Name}
		k.Alg, k.Public = g.Public()
		out = append(out, k)
	}
	return out
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/add-checkpoint" {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the request can't be read", http.StatusBadRequest)
		return
	}
	answer, err := s.Add(body)
	var refusal *refusal
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(answer)
	case !errors.As(err, &refusal):
		http.Error(w, "the checkpoint can't be stored", http.StatusInternalServerError)
	case refusal.size != nil:
		w.Header().Set("Content-Type", "text/x.tlog.size")
		w.WriteHeader(refusal.code)
		_, _ = io.WriteString(w, strconv.FormatUint(*refusal.size, 10)+"\n")
	default:
		http.Error(w, refusal.why, refusal.code)
	}
}

// refusal is an answer that isn't 200.
type refusal struct {
	code int
	why  string
	size *uint64 // of the newest checkpoint, where that is what is wrong
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.why) }

func refuse(code int, format string, args ...any) error {
	return &refusal{code: code, why: fmt.Sprintf(format, args...)}
}

// Add is the protocol without HTTP: it takes a request's body and returns signature lines.
func (s *Server) Add(body []byte) ([]byte, error) {
	a, err := proof.ParseAddCheckpoint(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	keys, ok := s.Logs[a.Note.Origin]
	recorder := s.ofRecorder(a.Note)
	if !ok && !recorder {
		return nil, refuse(http.StatusNotFound, "unknown log")
	}
	if !recorder && !signedByOne(a.Note, keys) {
		return nil, refuse(http.StatusForbidden, "no signature of a key that is known")
	}
	if a.Old > a.Note.Size {
		return nil, refuse(http.StatusBadRequest, "the old size is above the new one")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.advance(a)
}

func signedByOne(n *checkpoint.Note, keys []checkpoint.Key) bool {
	for _, k := range keys {
		if _, err := k.Verify(n); err == nil {
			return true
		}
	}
	return false
}

// advance checks against the newest checkpoint, stores and signs. The lock is held from the reading to the storing.
func (s *Server) advance(a *proof.AddCheckpoint) ([]byte, error) {
	last, err := s.Last(a.Note.Origin)
	if err != nil {
		return nil, err
	}
	size, root := uint64(0), merkle.Empty
	if last != nil {
		size, root = last.Size, last.Root
	}
	if a.Old != size {
		return nil, &refusal{http.StatusConflict, "another old size", &size}
	}
	if a.Old == a.Note.Size && a.Note.Root != root {
		return nil, errors.Join(&refusal{http.StatusConflict, "another head of this size", &size}, s.keep(a.Note, ".refused"), s.convict(last, a.Note))
	}
	if err := a.Verify(root); err != nil {
		return nil, errors.Join(refuse(http.StatusUnprocessableEntity, "%v", err), s.keep(a.Note, ".refused"))
	}
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	signed, err := checkpoint.Sign(a.Note.Checkpoint, s.Name, now().Unix(), s.Signers...)
	if err != nil {
		return nil, err
	}
	if s.fault != nil {
		if err := s.fault(); err != nil {
			return nil, err
		}
	}
	if err := s.keep(a.Note, ".checkpoint"); err != nil {
		return nil, err
	}
	return signed.Marshal()[len(signed.Text())+1:], nil
}

func (s *Server) path(origin, suffix string) string {
	sum := sha256.Sum256([]byte(origin))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:])+suffix)
}

// Last is the newest checkpoint of a log that was cosigned, nil where there is none.
func (s *Server) Last(origin string) (*checkpoint.Note, error) {
	b, err := os.ReadFile(s.path(origin, ".checkpoint"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the newest checkpoint of %s: %w", origin, err)
	}
	n, err := checkpoint.Parse(b)
	if err == nil && n.Origin != origin {
		err = fmt.Errorf("it is of %s", n.Origin)
	}
	if err != nil {
		return nil, fmt.Errorf("the newest checkpoint of %s is damaged: %w", origin, err)
	}
	return n, nil
}

// convict stores the proof that two heads of one size were signed.
func (s *Server) convict(a, b *checkpoint.Note) error {
	found, err := proof.FindEquivocations([]*proof.Evidence{{Kind: proof.KindCheckpoint, Note: a}, {Kind: proof.KindCheckpoint, Note: b}}, nil, nil)
	if err != nil || len(found) == 0 {
		return err
	}
	return s.store(a.Origin, proof.EquivocationSuffix, found[0].Append(nil))
}

// keep stores a checkpoint.
func (s *Server) keep(n *checkpoint.Note, suffix string) error {
	return s.store(n.Origin, suffix, n.Marshal())
}

// store stores a file in one piece, on stable storage.
func (s *Server) store(origin, suffix string, b []byte) error {
	f, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return fmt.Errorf("storing a checkpoint: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path(origin, suffix))
	}
	if err != nil {
		return fmt.Errorf("storing a checkpoint: %w", err)
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("storing a checkpoint: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
