package query

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	_ "modernc.org/sqlite" // the driver
)

// The index tells which records can hold what is asked for. What they hold is then read in the ledger, so that a wrong
// index can't make a wrong answer come true; and an index that isn't of the ledger as it stands is made again.
//
//	record(seq, epoch, type, kind, wall, grp, count, first, access)   first: number of a batch's first event
//	term(id, path, value)                                             strings and words that occur
//	posting(term, seq)                                                in which records
//	zone(path, seq, low, high)                                        numbers of a record, from and to
//	life(seq, events)                                                 events of a batch that change what processes are

// IndexFile is the index's name in a run directory.
const IndexFile = "index.db"

const indexVersion = "4"

// longTerm bounds the strings that are indexed, in bytes; of longer ones the beginning is.
const longTerm = 200

// mostTerms bounds the terms of one record; beyond, the record is a candidate for everything.
const mostTerms = 20_000

const schema = `
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE record(seq INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, type TEXT NOT NULL, kind TEXT NOT NULL, wall INTEGER NOT NULL,
  grp INTEGER NOT NULL, count INTEGER NOT NULL, first INTEGER NOT NULL, access INTEGER NOT NULL, dense INTEGER NOT NULL);
CREATE INDEX record_type ON record(type, kind);
CREATE TABLE term(id INTEGER PRIMARY KEY, path TEXT NOT NULL, value TEXT NOT NULL, UNIQUE(path, value));
CREATE TABLE posting(term INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(term, seq)) WITHOUT ROWID;
CREATE TABLE zone(path TEXT NOT NULL, seq INTEGER NOT NULL, low REAL NOT NULL, high REAL NOT NULL, PRIMARY KEY(path, seq)) WITHOUT ROWID;
CREATE TABLE life(seq INTEGER PRIMARY KEY, events BLOB NOT NULL);
`

// index is an open index.
type index struct {
	db *sql.DB
}

func (x *index) close() error { return x.db.Close() }

// openIndex opens a run's index, made anew where it is missing or not of the ledger as it stands.
func openIndex(ctx context.Context, r *store.Run, lr *ledger.Reader) (*index, error) {
	path := filepath.Join(r.Dir, IndexFile)
	want := state(r, lr)
	if x, err := tryIndex(ctx, path, want); err == nil {
		return x, nil
	}
	if err := buildIndex(ctx, path, want, lr); err != nil {
		return nil, fmt.Errorf("making the index of %s: %w", r.Dir, err)
	}
	return tryIndex(ctx, path, want)
}

// state is what an index must have been made of: this log up to this record, with keys like these. Erasures add
// records, so that an index from before one is never used.
func state(r *store.Run, lr *ledger.Reader) string {
	gen := lr.Genesis()
	id := gen.ID()
	head := ""
	if n := lr.Len(); n > 0 {
		if rec, err := lr.Record(n - 1); err == nil {
			head = hex.EncodeToString(rec.Digest[:])
		}
	}
	return fmt.Sprintf("%s %x %d %s %d", indexVersion, id, lr.Len(), head, len(r.Identities))
}

func open(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("?", "%3f", "#", "%23", "%", "%25").Replace(path)+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

var errStale = errors.New("the index is of another state of the ledger")

func tryIndex(ctx context.Context, path, want string) (*index, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	db, err := open(path)
	if err != nil {
		return nil, err
	}
	var got string
	err = db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'state'").Scan(&got)
	if err == nil && got != want {
		err = errStale
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &index{db}, nil
}

// buildIndex writes an index beside the present one and puts it in its place.
func buildIndex(ctx context.Context, path, want string, lr *ledger.Reader) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".index-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := tmp.Close(); err != nil {
		return err
	}
	db, err := open(tmp.Name())
	if err != nil {
		return err
	}
	err = fill(ctx, db, want, lr)
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func fill(ctx context.Context, db *sql.DB, want string, lr *ledger.Reader) error {
	// It can be made again, so nothing need be durable while it is made.
	if _, err := db.ExecContext(ctx, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32000;"+schema); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	b, err := newBuilder(ctx, tx, lr)
	if err == nil {
		err = b.all()
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO meta VALUES('state', ?)", want)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

type builder struct {
	ctx  context.Context
	lr   *ledger.Reader
	open *opener

	record, term, find, posting, zone, life *sql.Stmt

	ids   map[string]int64 // of terms, the latest
	next  int64
	terms map[string]struct{} // of the record
	zones map[string]*[2]float64
	born  []byte // encoded events of the record that change what processes are
	path  []byte // scratch
	key   []byte
}

// keptIDs bounds the terms whose ids are kept in memory.
const keptIDs = 200_000

func newBuilder(ctx context.Context, tx *sql.Tx, lr *ledger.Reader) (*builder, error) {
	b := &builder{ctx: ctx, lr: lr, open: newOpener(lr), ids: map[string]int64{}, next: 1}
	for stmt, text := range map[**sql.Stmt]string{
		&b.record:  "INSERT INTO record VALUES(?,?,?,?,?,?,?,?,?,?)",
		&b.term:    "INSERT INTO term VALUES(?,?,?)",
		&b.find:    "SELECT id FROM term WHERE path = ? AND value = ?",
		&b.posting: "INSERT INTO posting VALUES(?,?)",
		&b.zone:    "INSERT INTO zone VALUES(?,?,?,?)",
		&b.life:    "INSERT INTO life VALUES(?,?)",
	} {
		s, err := tx.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		*stmt = s
	}
	var buf []byte
	b.open.life = func(e *bodycam.Event) {
		buf = e.AppendBinary(buf[:0])
		b.born = append(binary.AppendUvarint(b.born, uint64(len(buf))), buf...)
	}
	return b, nil
}

func (b *builder) all() error {
	first := uint64(1)
	for rec, err := range b.lr.Records(0) {
		if err != nil {
			return err
		}
		if !rec.Sealed {
			break
		}
		if err := b.add(rec, first); err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		if rec.Type == store.RecordEvents {
			first += rec.Count
		}
	}
	return nil
}

func (b *builder) add(rec *ledger.ReadRecord, first uint64) error {
	b.terms, b.zones, b.born = map[string]struct{}{}, map[string]*[2]float64{}, b.born[:0]
	acc, err := b.open.each(rec, true, func(_ int, d *Doc) error {
		b.path = b.path[:0]
		b.walk(d.Body)
		return nil
	})
	if err != nil {
		return err
	}
	if rec.Type != store.RecordEvents {
		first = 0
	}
	dense := len(b.terms) > mostTerms
	if _, err := b.record.ExecContext(b.ctx, int64(rec.Seq), int64(rec.Epoch), store.TypeName(rec.Type), rec.Kind, rec.Wall,
		int64(rec.Group), int64(rec.Count), int64(first), int(acc), dense); err != nil {
		return err
	}
	if len(b.born) > 0 {
		if _, err := b.life.ExecContext(b.ctx, int64(rec.Seq), b.born); err != nil {
			return err
		}
	}
	if !dense {
		for t := range b.terms {
			id, err := b.id(t)
			if err == nil {
				_, err = b.posting.ExecContext(b.ctx, id, int64(rec.Seq))
			}
			if err != nil {
				return err
			}
		}
	}
	for path, z := range b.zones {
		if _, err := b.zone.ExecContext(b.ctx, path, int64(rec.Seq), z[0], z[1]); err != nil {
			return err
		}
	}
	return nil
}

// id returns a term's number. A term is its path, a zero byte and its value.
func (b *builder) id(t string) (int64, error) {
	if id, ok := b.ids[t]; ok {
		return id, nil
	}
	path, v, _ := strings.Cut(t, "\x00")
	var id int64
	err := b.find.QueryRowContext(b.ctx, path, v).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		id = b.next
		b.next++
		_, err = b.term.ExecContext(b.ctx, id, path, v)
	}
	if err != nil {
		return 0, err
	}
	if len(b.ids) >= keptIDs {
		clear(b.ids)
	}
	b.ids[t] = id
	return id, nil
}

// walk collects what a document holds. Lists add nothing to a path. b.path is the path, b.key what is looked up: most
// of what an event says was said by the one before, and costs no allocation.
func (b *builder) walk(raw []byte) {
	raw = space(raw)
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '{':
		at := len(b.path)
		members(raw, func(key, v []byte) bool {
			if at > 0 {
				b.path = append(b.path, '.')
			}
			b.path = appendKey(b.path, key)
			if !unindexed(string(b.path)) {
				b.walk(v)
			}
			b.path = b.path[:at]
			return len(b.terms) > mostTerms
		})
	case '[':
		elements(raw, func(_ int, e []byte) bool { b.walk(e); return len(b.terms) > mostTerms })
	case '"':
		b.str(raw)
	default:
		if v, ok := scalar(raw); ok {
			b.scalar(&v)
		}
	}
}

// unindexed tells fields that would only swell the index: a file's text, and times, which no two events share.
func unindexed(path string) bool { return path == "text" || path == "time" }

func appendKey(path, quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return append(path, quoted[1:len(quoted)-1]...)
	}
	v, _ := scalar(quoted)
	return append(path, v.str...)
}

func (b *builder) str(raw []byte) {
	v := raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		s, ok := scalar(raw)
		if !ok {
			return
		}
		v = []byte(s.str)
	}
	b.key = append(append(b.key[:0], b.path...), 0)
	if len(v) > longTerm {
		b.key = append(append(b.key, v[:longTerm]...), "…"...)
	} else {
		b.key = append(b.key, v...)
	}
	if _, ok := b.terms[string(b.key)]; !ok {
		b.terms[string(b.key)] = struct{}{}
	}
}

func (b *builder) scalar(v *value) {
	switch v.kind {
	case kindNumber:
		z := b.zones[string(b.path)]
		if z == nil {
			z = &[2]float64{v.f, v.f}
			b.zones[string(b.path)] = z
		}
		z[0], z[1] = min(z[0], v.f), max(z[1], v.f)
	case kindBool:
		b.key = append(append(b.key[:0], b.path...), 0)
		b.terms[string(b.key)+termText(v)] = struct{}{}
	}
}

func termText(v *value) string {
	if v.kind == kindBool {
		return strconv.FormatBool(v.yes)
	}
	if len(v.str) > longTerm {
		return v.str[:longTerm] + "…"
	}
	return v.str
}

// lives reads the events of a batch that change what processes are, for a record that isn't looked at itself.
func (x *index) lives(ctx context.Context, seq uint64, f func(*bodycam.Event)) error {
	var b []byte
	err := x.db.QueryRowContext(ctx, "SELECT events FROM life WHERE seq = ?", int64(seq)).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("asking the index: %w", err)
	}
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return fmt.Errorf("the index is damaged at record %d: remove %s", seq, IndexFile)
		}
		var e bodycam.Event
		if err := bodycam.DecodeEvent(b[k:k+int(n)], &e); err != nil {
			return fmt.Errorf("the index is damaged at record %d: remove %s: %w", seq, IndexFile, err)
		}
		f(&e)
		b = b[k+int(n):]
	}
	return nil
}
