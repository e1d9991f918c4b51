package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// The types of records in a run's ledger. Numbers are part of the format (docs/FORMAT.md).
const (
	RecordEvents  = ledger.TypeUser + 0 // batch: each event is a binary [bodycam.Event]
	RecordAction  = ledger.TypeUser + 1 // a [bodycam.Action]; Kind is the tool's name
	RecordFinding = ledger.TypeUser + 2 // a [bodycam.Finding]; Kind is the rule
	RecordFile    = ledger.TypeUser + 3 // a file of the run directory: a [payload.FileHead], then its content
	RecordRun     = ledger.TypeUser + 4 // run.json as it was at the end
	RecordRow     = ledger.TypeUser + 8 // a [bodycam.Row] of the agent's account
)

// Sealing says how a run's ledger is kept.
type Sealing struct {
	Signers    []checkpoint.Signer
	Recipients []age.Recipient
	Recorder   string // who records: a name for people
	// AnchorEvery is the longest time between two anchors that the ledger promises; 0: none.
	AnchorEvery time.Duration
	// Only leaves out working copies: what the run holds is in the ledger alone, encrypted.
	Only bool
}

// A batch is sealed when it has so many events or bytes, or when the writer is flushed.
const (
	batchEvents = 512
	batchBytes  = 96 << 10
)

// sealer puts what a run holds into its ledger.
type sealer struct {
	log     *ledger.Writer
	only    bool
	batch   *ledger.Batch
	scratch []byte // of a payload
}

func newSealer(dir string, s *Sealing) (*sealer, error) {
	log, err := ledger.Create(posixstore.New(dir), ledger.Options{
		Name: "bodycam/run", Recorder: s.Recorder, Signers: s.Signers, Recipients: s.Recipients,
		AnchorEvery: s.AnchorEvery,
	})
	if err != nil {
		return nil, fmt.Errorf("beginning the ledger: %w", err)
	}
	return &sealer{log: log, only: s.Only, batch: log.NewBatch(), scratch: make([]byte, 0, ledger.MaxInline)}, nil
}

// event adds an event to the batch, and tells whether that is to be sealed.
func (s *sealer) event(e *bodycam.Event) (full bool) {
	s.batch.AddFunc(e.AppendBinary)
	return s.batch.Len() >= batchEvents || s.batch.Size() >= batchBytes
}

// flush seals the batch, and writes it as a block of the working copy before it is encrypted where it lies.
func (s *sealer) flush(copy *segmentWriter) error {
	if s.batch.Len() == 0 {
		return nil
	}
	if copy != nil {
		if err := copy.write(s.batch.Bytes(headLen)); err != nil {
			return err
		}
	}
	if _, err := s.batch.Append(context.Background(), ledger.Entry{Type: RecordEvents, Kind: "events"}); err != nil {
		return fmt.Errorf("sealing events: %w", err)
	}
	return nil
}

// item seals a payload of its own.
func (s *sealer) item(t ledger.Type, kind string, b []byte) error {
	s.scratch = b // its room is used again
	if len(kind) > ledger.MaxKind {
		kind = kind[:ledger.MaxKind]
	}
	if _, err := s.log.Append(context.Background(), ledger.Entry{Type: t, Kind: strings.ToValidUTF8(kind, "?"), Payload: b}); err != nil {
		return fmt.Errorf("sealing %s: %w", kind, err)
	}
	return nil
}

// rows seals the agent's account, a record each.
func (s *sealer) rows(rows []bodycam.Row) error {
	for i := range rows {
		if err := s.item(RecordRow, "row", payload.AppendRow(s.scratch[:0], &rows[i])); err != nil {
			return err
		}
	}
	return nil
}

// files seals every file of the run directory that isn't the ledger's own, run.json (sealed last) or the working copy
// of the events (sealed as they came) or, where withRows says so, of the rows.
func (s *sealer) files(dir string, withRows bool) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(path, dir), string(filepath.Separator)))
		switch {
		case d.IsDir() && (name == "ledger" || name == "payload"):
			return fs.SkipDir
		case !d.Type().IsRegular() || name == InfoFile || name == EventsFile || withRows && name == RowsFile || strings.HasPrefix(name, "."):
			return nil
		}
		return s.file(path, name)
	})
}

func (s *sealer) file(path, name string) error {
	f, err := regular.Open(path)
	if err != nil {
		return fmt.Errorf("sealing a file: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("sealing %s: %w", name, err)
	}
	head := payload.AppendFileHead(nil, payload.FileHead{Name: bodycam.Escape(name), Size: n, SHA256: hex.EncodeToString(h.Sum(nil))})
	r := io.MultiReader(bytes.NewReader(head), f)
	if _, err := s.log.AppendReader(context.Background(), ledger.Entry{Type: RecordFile, Kind: "file"}, r); err != nil {
		return fmt.Errorf("sealing %s: %w", name, err)
	}
	return nil
}

// Action seals one tool call with what the kernel saw of it.
func (w *Writer) Action(a *bodycam.Action) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seal == nil {
		return nil
	}
	return w.seal.item(RecordAction, a.Intent.Tool, payload.AppendAction(w.seal.scratch[:0], a))
}

// Findings seals what the analyses found and writes its working copy.
func (w *Writer) Findings(fs []bodycam.Finding) error {
	w.mu.Lock()
	if w.seal != nil {
		for i := range fs {
			if err := w.seal.item(RecordFinding, fs[i].Rule, payload.AppendFinding(w.seal.scratch[:0], &fs[i])); err != nil {
				w.mu.Unlock()
				return err
			}
		}
	}
	w.mu.Unlock()
	return w.JSON(FindingsFile, fs)
}

// Coverage tells the ledger what a sensor has counted so far; it becomes part of the next epoch's header.
func (w *Writer) Coverage(h bodycam.Health) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seal == nil {
		return nil
	}
	// Folded calls are kept: an event stands for each of them.
	return w.seal.log.Coverage(h.Sensor, h.Total.Seen, h.Total.Emitted+h.Total.Folded, h.Total.Lost)
}

// ErrSealedOnly tells that a run has no working copies and that no key to open its ledger is at hand.
var ErrSealedOnly = errors.New("the run is sealed and no key for it is at hand")

// rawSealed reads the events out of the ledger.
func (r *Run) rawSealed(f func(*bodycam.Event) error) error {
	lr, err := r.Ledger()
	if err != nil {
		return err
	}
	defer lr.Close()
	open := Batches{log: lr}
	var e bodycam.Event
	for rec, err := range lr.Records(0) {
		if err != nil {
			return fmt.Errorf("reading the ledger of %s: %w", r.Dir, err)
		}
		if rec.Type != RecordEvents {
			continue
		}
		events, err := open.Events(rec)
		if errors.Is(err, ledger.ErrNoKey) {
			return fmt.Errorf("%s: record %d: %w", r.Dir, rec.Seq, ErrSealedOnly)
		}
		if err != nil {
			return fmt.Errorf("opening record %d of %s: %w", rec.Seq, r.Dir, err)
		}
		for i, b := range events {
			if b == nil {
				continue // erased
			}
			if err := bodycam.DecodeEvent(b, &e); err != nil {
				return fmt.Errorf("record %d of %s, event %d: %w", rec.Seq, r.Dir, i, err)
			}
			if err := f(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ledger opens the run's ledger with the run's identities.
func (r *Run) Ledger() (*ledger.Reader, error) {
	lr, err := ledger.OpenReader(regular.FS(r.Dir), r.Identities...)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger of %s: %w", r.Dir, err)
	}
	return lr, nil
}

// HasLedger tells whether the run has one.
func (r *Run) HasLedger() bool {
	_, err := os.Stat(filepath.Join(r.Dir, "ledger"))
	return err == nil
}

// HasCopies tells whether the run has working copies in the clear.
func (r *Run) HasCopies() bool {
	_, err := os.Stat(filepath.Join(r.Dir, EventsFile))
	return err == nil
}
