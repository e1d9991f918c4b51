package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
)

// The names inside a run directory.
const (
	InfoFile      = "run.json"
	EventsFile    = "events.bin"
	RowsFile      = "rows.jsonl"
	LinksFile     = "links.json"
	FindingsFile  = "findings.json"
	AgentDir      = "agent"
	VerifierDir   = "verifier"
	ArtifactsDir  = "artifacts"
	NetworkDir    = "network" // what passed through the proxy in the clear: bodies, and a list of them
	ExchangesFile = "network/exchanges.jsonl"
	DecoysFile    = "decoys.json"  // credentials without use that were planted
	StoppedFile   = "stopped.json" // why a run was stopped, and its processes as they stood
	WorkspaceDir  = "workspace"    // before and after: files of the workspace that the run changed
	reserveFile   = ".reserve"
)

// reserveSize is kept free on disk while a run is written, so that run.json can still be completed when the disk
// is full.
const reserveSize = 1 << 20

// Writer writes a run directory. Its methods may be used by several goroutines.
type Writer struct {
	dir string

	mu     sync.Mutex
	info   bodycam.Run
	seg    *segmentWriter
	buf    []byte // of an event; used where there is no ledger
	seq    uint64
	counts bodycam.RunCounts
	types  [256]uint64   // calls, by an event's type
	rows   []bodycam.Row // as they will be sealed
	seal   *sealer       // nil: the run has no ledger
	err    error         // the first failure to record: sticky
}

// NewID makes a run's name: the time, so that names sort, and 40 random bits.
func NewID(at time.Time) string {
	var r [5]byte
	rand.Read(r[:])
	at = at.UTC()
	return fmt.Sprintf("%s-%03d-%x", at.Format("20060102-150405"), at.Nanosecond()/1e6, r)
}

var idForm = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}-[0-9]{3}-[0-9a-f]{10}$`)

// IsID tells whether a name is of the form of [NewID].
func IsID(name string) bool { return idForm.MatchString(name) }

// Create makes a run directory, which must not exist, and begins to write into it. Without sealing it has no ledger.
func Create(dir string, info bodycam.Run, sealing *Sealing) (_ *Writer, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder for runs: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("run directory %s is already there: choose another with --out", dir)
		}
		return nil, fmt.Errorf("making the run directory: %w", err)
	}
	defer func() {
		if err != nil { // what was made of it is no run
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	w := &Writer{dir: dir, info: info}
	for _, sub := range []string{AgentDir, VerifierDir, ArtifactsDir} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("making the run directory: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, reserveFile), make([]byte, reserveSize), 0o600); err != nil {
		return nil, fmt.Errorf("reserving space in the run directory: %w", err)
	}
	if sealing != nil {
		if w.seal, err = newSealer(dir, sealing); err != nil {
			return nil, err
		}
	}
	if sealing == nil || !sealing.Only {
		if w.seg, err = createSegment(filepath.Join(dir, EventsFile)); err != nil {
			return nil, err
		}
	}
	w.info.Schema, w.info.Events = bodycam.RunSchema, bodycam.EventSchema
	return w, w.Save()
}

// Dir is the run directory.
func (w *Writer) Dir() string { return w.dir }

// Update changes run.json's content and saves it.
func (w *Writer) Update(change func(*bodycam.Run)) error {
	w.mu.Lock()
	change(&w.info)
	w.mu.Unlock()
	return w.Save()
}

// Info returns a copy of what run.json says.
func (w *Writer) Info() bodycam.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.info
}

// Save writes run.json, whole or not at all.
func (w *Writer) Save() error {
	w.mu.Lock()
	w.count()
	b, err := encodeInfo(w.info)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		err = writeFile(filepath.Join(w.dir, InfoFile), b)
		full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
		if !full || !w.giveBack() {
			return err
		}
	}
}

// giveBack frees half of what is reserved: the other half is for what is still to be written, since whatever else the
// run keeps may fill the disk again. It tells whether there was anything to free.
func (w *Writer) giveBack() bool {
	path := filepath.Join(w.dir, reserveFile)
	st, err := os.Stat(path)
	if err != nil {
		return false
	}
	if half := st.Size() / 2; half >= 4096 {
		return os.Truncate(path, half) == nil
	}
	return os.Remove(path) == nil
}

// Event appends an event, gives it its place in the run (Seq) and counts it. After a failure it returns the same
// error for ever: a record must not go on behind a hole.
func (w *Writer) Event(e *bodycam.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.seq++
	e.Seq = w.seq
	w.counts.Events++
	w.counts.Calls += e.N()
	w.types[e.Type] += e.N()
	if w.seal != nil {
		if !w.seal.event(e) {
			return nil
		}
	} else {
		w.buf = e.AppendBinary(w.buf[:0])
		if !w.seg.append(w.buf) {
			return nil
		}
	}
	return w.flush()
}

// Sync is Flush, and waits until a reader of the run finds all that was written so far, also where the ledger alone
// holds it.
func (w *Writer) Sync(ctx context.Context) error {
	if err := w.Flush(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seal == nil || w.seg != nil {
		return nil
	}
	if err := w.seal.log.Sync(ctx); err != nil {
		return w.fail(fmt.Errorf("sealing: %w", err))
	}
	return nil
}

func (w *Writer) fail(err error) error {
	w.err = fmt.Errorf("recording: %w", err)
	return w.err
}

// Flush writes what is buffered, so that a follower sees it.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	if w.err != nil {
		return w.err
	}
	if err := w.batch(); err != nil {
		return w.fail(err)
	}
	return nil
}

// batch seals and writes the events that wait.
func (w *Writer) batch() error {
	if w.seal != nil {
		return w.seal.flush(w.seg)
	}
	return w.seg.flush()
}

// Counts says how many events and calls were written.
func (w *Writer) Counts() (events, calls uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts.Events, w.counts.Calls
}

// Rows writes the agent's account: its working copy now, its records when the run is closed. A second call replaces
// the first's.
func (w *Writer) Rows(rows []bodycam.Row) error {
	said := make([]bodycam.Row, len(rows))
	var b []byte
	for i := range rows {
		said[i] = saidRow(rows[i])
		line, err := encodeRow(&said[i])
		if err != nil {
			return err
		}
		b = append(b, line...)
	}
	w.mu.Lock()
	w.rows = said
	w.mu.Unlock()
	return writeFile(filepath.Join(w.dir, RowsFile), b)
}

// encodeRow is a line of the working copy.
func encodeRow(r *bodycam.Row) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding row %d: %w", r.Index, err)
	}
	return append(line, '\n'), nil
}

// JSON writes a value as a file of the run directory.
func (w *Writer) JSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return w.File(name, append(b, '\n'))
}

// File writes a file of the run directory, whole or not at all.
func (w *Writer) File(name string, b []byte) error {
	return writeFile(filepath.Join(w.dir, name), b)
}

// Close ends the run: everything is on disk, sealed and signed, when it returns nil. run.json is completed before it is
// sealed: were the recorder killed between, the ledger would hold less than the copy, which is a cut, and never something else.
func (w *Writer) Close() error {
	saved := w.Save()
	rerr := os.Remove(filepath.Join(w.dir, reserveFile)) // the log's end may need the room
	if errors.Is(rerr, fs.ErrNotExist) {
		rerr = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.err, saved, rerr, w.closeRecord())
}

func (w *Writer) closeRecord() error {
	var errs []error
	if w.err == nil {
		errs = append(errs, w.batch())
	}
	if w.seg != nil {
		errs = append(errs, w.seg.close())
	}
	if w.seal == nil {
		return errors.Join(errs...)
	}
	if w.err == nil {
		errs = append(errs, w.seal.rows(w.rows), w.seal.files(w.dir, len(w.rows) > 0))
		w.count()
		b, err := encodeInfo(w.info)
		if err == nil {
			_, err = w.seal.log.AppendReader(context.Background(), ledger.Entry{Type: RecordRun, Kind: "run"}, bytes.NewReader(b))
		}
		errs = append(errs, err)
	}
	errs = append(errs, w.seal.log.Close())
	if w.seal.only {
		errs = append(errs, w.purge())
	}
	return errors.Join(errs...)
}

// purge removes the working copies of a run that is kept in its ledger alone: everything else that lies there.
func (w *Writer) purge() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if name := e.Name(); !isBeside(name) {
			errs = append(errs, os.RemoveAll(filepath.Join(w.dir, name)))
		}
	}
	return errors.Join(errs...)
}

// count puts the counters into run.json's content.
func (w *Writer) count() {
	w.info.Counts.Events, w.info.Counts.Calls = w.counts.Events, w.counts.Calls
	w.info.Counts.ByType = map[string]uint64{}
	for t, n := range w.types {
		if n > 0 {
			w.info.Counts.ByType[bodycam.Type(t).String()] += n
		}
	}
}

func encodeInfo(r bodycam.Run) ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", InfoFile, err)
	}
	return append(b, '\n'), nil
}

// writeFile replaces a file: a reader sees the old or the new content, never a part.
func writeFile(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// saidRow is a row as it is recorded: its bytes made UTF-8 without loss, since text is UTF-8 in JSON and CBOR, its
// times without a zone.
func saidRow(r bodycam.Row) bodycam.Row {
	r.Arrived, r.Ended, r.Claimed = payload.UTC(r.Arrived), payload.UTC(r.Ended), payload.UTC(r.Claimed)
	return mapRow(r, bodycam.Escape)
}

func mapRow(r bodycam.Row, f func(string) string) bodycam.Row {
	for _, s := range []*string{&r.CallID, &r.Tool, &r.Command, &r.Args, &r.Text, &r.Output, &r.Reason} {
		*s = f(*s)
	}
	files := make([]string, len(r.Files))
	for i, s := range r.Files {
		files[i] = f(s)
	}
	if len(files) > 0 {
		r.Files = files
	}
	return r
}
