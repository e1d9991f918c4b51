package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// CopyFault is a working copy that isn't what was sealed.
type CopyFault struct {
	Name string `json:"name"`
	Why  string `json:"why"`
	// Derived copies can be rebuilt from the ledger: a different one may be younger, and is no sign of tampering.
	Derived bool `json:"derived,omitempty"`

	differs bool // from what was sealed, where copies that are only ahead or behind don't
	stray   bool // it was never sealed
}

// isDerived tells of working copies that later commands may write again.
func isDerived(name string) bool { return strings.HasPrefix(name, "features/") }

// isBeside tells of what lies in a run directory and is no copy of what was sealed: the ledger itself, the two that are
// compared in their own way, what later commands put there (an index, proofs of anchors), and names with a dot, such as
// a temporary file that a kill left.
func isBeside(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "ledger", "payload", "anchors":
		return true
	}
	return name == InfoFile || name == EventsFile || strings.HasPrefix(name, "index.db") || strings.HasPrefix(name, ".")
}

// CompareCopies holds the working copies of a run against its ledger, which must have been verified before. It needs
// the run's identities. A run that is still being written, or was cut off, has copies that the ledger doesn't know.
func (r *Run) CompareCopies() ([]CopyFault, error) {
	lr, err := r.Ledger()
	if err != nil {
		return nil, err
	}
	defer lr.Close()
	c := newComparer(r, lr)
	err = c.all()
	return c.faults, err
}

func newComparer(r *Run, lr *ledger.Reader) *comparer {
	return &comparer{run: r, log: lr, open: Batches{log: lr}, known: map[string]bool{}}
}

// all compares everything.
func (c *comparer) all() error {
	c.begin()
	if c.seg != nil {
		defer c.seg.close()
	}
	for rec, err := range c.log.Records(0) {
		if err != nil {
			return fmt.Errorf("reading the ledger of %s: %w", c.run.Dir, err)
		}
		err := c.record(rec)
		if errors.Is(err, ledger.ErrErased) {
			c.erased = append(c.erased, erasedRecord{rec.Seq, rec.Epoch})
			err = nil
		}
		if err != nil {
			return fmt.Errorf("record %d of %s: %w", rec.Seq, c.run.Dir, err)
		}
	}
	return c.end()
}

// SealedID is the run's id as it was sealed when the run ended; empty where it didn't end. It needs the run's
// identities; without the right one the error wraps [ledger.ErrNoKey].
func (r *Run) SealedID() (string, error) {
	lr, err := r.Ledger()
	if err != nil {
		return "", err
	}
	defer lr.Close()
	id := ""
	for rec, err := range lr.Records(0) {
		if err != nil {
			return "", fmt.Errorf("reading the ledger of %s: %w", r.Dir, err)
		}
		if rec.Type != RecordRun {
			continue
		}
		var info struct {
			ID string `json:"id"`
		}
		b, err := lr.Payload(rec)
		if err == nil {
			err = json.Unmarshal(b, &info)
		}
		if err != nil {
			return "", fmt.Errorf("record %d of %s: what was sealed of the run: %w", rec.Seq, r.Dir, err)
		}
		id = info.ID
	}
	return id, nil
}

type comparer struct {
	run    *Run
	log    *ledger.Reader
	open   Batches
	seg    *segmentReader // nil: there is no working copy of the events
	copies bool           // the run keeps working copies: one that was sealed is there
	gone   []string       // sealed and not there, which means something where the run keeps copies
	bad    bool           // the events differ already
	known  map[string]bool
	ended  bool // run.json was sealed
	// findings are those that were sealed: findings.json is made of them where an erasure took the file itself.
	findings []bodycam.Finding
	rows     hash.Hash // of what rows.jsonl should be; nil: no row was sealed
	faults   []CopyFault

	erased     []erasedRecord
	batches    int // of them, batches of events
	lostEvents uint64
}

// erasedRecord is a record whose keys, or some of them, are gone.
type erasedRecord struct{ seq, epoch uint64 }

func (c *comparer) fault(name, why string) {
	c.faults = append(c.faults, CopyFault{Name: name, Why: why, Derived: isDerived(name)})
}

func (c *comparer) begin() {
	seg, err := openSegment(filepath.Join(c.run.Dir, EventsFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.gone = append(c.gone, EventsFile)
	case err != nil:
		c.copies = true
		c.fault(EventsFile, err.Error())
	default:
		c.seg, c.copies = seg, true
	}
}

// record compares what a record holds. The error wraps [ledger.ErrErased] where its keys are gone: what it held was
// purged from the copies, and one that is there was never sealed.
func (c *comparer) record(rec *ledger.ReadRecord) error {
	switch rec.Type {
	case RecordEvents:
		events, err := c.open.Events(rec)
		if err != nil {
			return err
		}
		c.events(rec, events)
		if lost := missing(events); lost > 0 {
			c.batches++
			c.lostEvents += lost
			return ledger.ErrErased
		}
	case RecordFile:
		return c.file(rec)
	case RecordFinding:
		f, err := openItem(c.log, rec, payload.ParseFinding)
		if err != nil {
			return err
		}
		c.findings = append(c.findings, *f)
	case RecordRow:
		line, err := appendSealedRow(nil, c.log, rec)
		if err != nil {
			return err
		}
		if line == nil {
			return ledger.ErrErased
		}
		if c.rows == nil {
			c.rows = sha256.New()
		}
		c.rows.Write(line)
	case RecordRun:
		c.ended = true
		b, err := c.log.Payload(rec)
		if err != nil {
			return err // erased: what run.json says now was written by the erasure
		}
		now, err := regular.ReadFile(filepath.Join(c.run.Dir, InfoFile))
		if err != nil || !bytes.Equal(b, now) {
			c.fault(InfoFile, "differs from what was sealed when the run ended")
		}
	}
	return nil
}

func (c *comparer) events(rec *ledger.ReadRecord, events [][]byte) {
	if c.seg == nil || c.bad {
		return
	}
	for i, want := range events {
		if want == nil {
			continue // erased, and no longer in the working copy
		}
		got, err := c.seg.nextRaw()
		if err == nil && bytes.Equal(got, want) {
			continue
		}
		c.bad = true
		var e bodycam.Event
		where := fmt.Sprintf("record %d, event %d", rec.Seq, i)
		if bodycam.DecodeEvent(want, &e) == nil {
			where = fmt.Sprintf("event %d (%s)", e.Seq, where)
		}
		if err != nil {
			c.fault(EventsFile, where+" is missing: "+err.Error())
		} else {
			c.fault(EventsFile, where+" differs from what was sealed")
			c.faults[len(c.faults)-1].differs = true
		}
		return
	}
}

// missing counts a batch's events that were erased.
func missing(events [][]byte) (n uint64) {
	for _, e := range events {
		if e == nil {
			n++
		}
	}
	return n
}

// file compares a file's digest now with the one that was sealed, and the sealed digest with the sealed content.
func (c *comparer) file(rec *ledger.ReadRecord) error {
	var w headWriter
	w.sum = sha256.New()
	if err := c.log.PayloadTo(rec, &w); err != nil {
		return err
	}
	head, err := w.parse()
	if err != nil {
		return err
	}
	name := bodycam.Unescape(head.Name)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("it names a file outside the run: %q", name)
	}
	if got := hex.EncodeToString(w.sum.Sum(nil)); got != head.SHA256 || w.size != head.Size {
		c.fault(name, "the sealed content isn't what its digest says")
	}
	return c.compare(name, head.SHA256)
}

// compare holds a working copy against the digest of what was sealed.
func (c *comparer) compare(name, want string) error {
	c.known[name] = true
	f, err := regular.Open(filepath.Join(c.run.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		c.gone = append(c.gone, name)
		return nil
	}
	c.copies = true
	if err != nil {
		c.fault(name, "can't be read: "+err.Error())
		return nil
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		c.fault(name, "can't be read: "+err.Error()) // a folder stands in its place, for one
		return nil
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		c.fault(name, "differs from what was sealed")
	}
	return nil
}

// end looks for what is there and was never sealed.
func (c *comparer) end() error {
	if c.rows != nil && c.ended {
		if err := c.compare(RowsFile, hex.EncodeToString(c.rows.Sum(nil))); err != nil {
			return err
		}
	}
	if c.copies {
		for _, name := range c.gone {
			c.fault(name, "was sealed and is gone")
		}
	}
	if c.seg != nil && !c.bad && c.ended {
		if _, err := c.seg.nextRaw(); !errors.Is(err, io.EOF) {
			c.fault(EventsFile, "has more than was sealed")
		}
	}
	if !c.ended {
		return nil // cut off: the verdict on the ledger says so
	}
	err := filepath.WalkDir(c.run.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == c.run.Dir {
			return err
		}
		rel, err := filepath.Rel(c.run.Dir, path)
		name := filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case isBeside(name) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || isBeside(name) || c.known[name]:
			return nil
		case name == FindingsFile:
			return c.remade()
		}
		c.fault(name, "is there and was never sealed")
		c.faults[len(c.faults)-1].stray = true
		return nil
	})
	return err
}

// remade compares findings.json with the findings that were sealed.
func (c *comparer) remade() error {
	now, err := regular.ReadFile(filepath.Join(c.run.Dir, FindingsFile))
	if err != nil {
		return err
	}
	want, err := encodeFindings(c.findings)
	if err == nil && !bytes.Equal(now, want) {
		c.fault(FindingsFile, "isn't made of the findings that were sealed")
	}
	return err
}

// headWriter splits a RecordFile's payload into its head and the digest of the rest.
type headWriter struct {
	buf  []byte // until the head is whole
	head payload.FileHead
	done bool
	sum  hash.Hash
	size int64     // of the content
	rest io.Writer // where the content goes besides; may be nil
}

func (w *headWriter) Write(b []byte) (int, error) {
	n := len(b)
	if !w.done {
		w.buf = append(w.buf, b...)
		head, size, err := payload.ParseFileHead(w.buf)
		if errors.Is(err, payload.ErrMore) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		w.head, w.done = head, true
		b, w.buf = w.buf[size:], nil
	}
	w.sum.Write(b)
	w.size += int64(len(b))
	if w.rest != nil {
		if _, err := w.rest.Write(b); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// parse returns the head once all was written.
func (w *headWriter) parse() (payload.FileHead, error) {
	if !w.done {
		return payload.FileHead{}, payload.ErrMore
	}
	return w.head, nil
}

// ReadFile reads a file of the run by its name there, slash-separated: its working copy, or what was sealed where the
// run keeps none. A file that the run doesn't have is fs.ErrNotExist.
func (r *Run) ReadFile(name string) ([]byte, error) {
	b, err := regular.ReadFile(filepath.Join(r.Dir, name))
	if !errors.Is(err, fs.ErrNotExist) || !r.HasLedger() {
		return b, err
	}
	if _, eerr := os.Stat(filepath.Join(r.Dir, EventsFile)); eerr == nil {
		return nil, err // it has working copies, this one was never there
	}
	return r.sealedFile(name)
}

func (r *Run) sealedFile(name string) ([]byte, error) {
	lr, err := r.Ledger()
	if err != nil {
		return nil, err
	}
	defer lr.Close()
	var rows []byte
	for rec, err := range lr.Records(0) {
		if err != nil {
			return nil, fmt.Errorf("reading the ledger of %s: %w", r.Dir, err)
		}
		if rec.Type == RecordRow && name == RowsFile {
			if rows, err = appendSealedRow(rows, lr, rec); errors.Is(err, ledger.ErrNoKey) {
				return nil, fmt.Errorf("%s: %w", r.Dir, ErrSealedOnly)
			} else if err != nil {
				return nil, err
			}
		}
		if rec.Type != RecordFile {
			continue
		}
		var content bytes.Buffer
		w := headWriter{sum: sha256.New(), rest: &content}
		if err := lr.PayloadTo(rec, &w); errors.Is(err, ledger.ErrNoKey) {
			return nil, fmt.Errorf("%s: %w", r.Dir, ErrSealedOnly)
		} else if err != nil {
			return nil, fmt.Errorf("record %d of %s: %w", rec.Seq, r.Dir, err)
		}
		head, err := w.parse()
		if err != nil {
			return nil, fmt.Errorf("record %d of %s: %w", rec.Seq, r.Dir, err)
		}
		if bodycam.Unescape(head.Name) == name {
			return content.Bytes(), nil
		}
	}
	if rows != nil {
		return rows, nil
	}
	return nil, fmt.Errorf("%s: %w", filepath.Join(r.Dir, name), fs.ErrNotExist)
}

// appendSealedRow appends a row's line; nothing where it was erased.
func appendSealedRow(b []byte, lr *ledger.Reader, rec *ledger.ReadRecord) ([]byte, error) {
	r, err := openItem(lr, rec, payload.ParseRow)
	if errors.Is(err, ledger.ErrErased) {
		return b, nil
	}
	var line []byte
	if err == nil {
		line, err = encodeRow(r)
	}
	return append(b, line...), err
}
