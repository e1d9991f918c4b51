package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// Erasure names what is to be erased of a run.
type Erasure struct {
	Epochs  []uint64
	Records []uint64
	Events  []uint64 // by sequence number in the run
	All     bool     // every epoch that still has a payload; names nothing besides
	Reason  string
}

// Erased says what an erasure did.
type Erased struct {
	Epochs  []uint64 `json:"epochs"`
	Records []uint64 `json:"records"` // besides the epochs'
	Events  int      `json:"events"`  // kernel events that can't be read any more
	Kept    int      `json:"kept"`    // kernel events of the same batches that were kept, with their proofs
	// Derived are records that rest on the erased events and went with them.
	Derived []uint64 `json:"derived,omitempty"`
	// Mention are records that stay and may say something of what was erased.
	Mention []Mention `json:"mention,omitempty"`
}

// Mention is a record that may say something of what was erased.
type Mention struct {
	Record uint64 `json:"record"`
	What   string `json:"what"`
}

// perErasure is how many epochs and records one erasure names; the ledger bounds it.
const perErasure = 400

// PlanErase says what an erasure would do.
func (r *Run) PlanErase(e Erasure) (*Erased, error) {
	p, err := r.planErase(e)
	if err != nil {
		return nil, err
	}
	return &p.done, nil
}

// Erase destroys the keys of what the erasure names, keeps what else the same batches hold, and rebuilds the working
// copies from what is left. opts holds the log's signers and the recipients of what is kept; the run needs its
// identities. It destroys keys and copies here and claims nothing else: not that there are no other copies.
func (r *Run) Erase(ctx context.Context, e Erasure, opts ledger.Options) (*Erased, error) {
	p, err := r.planErase(e)
	if err != nil {
		return nil, err
	}
	if err := p.findMentions(r); err != nil {
		return nil, err
	}
	w, err := ledger.Open(posixstore.New(r.Dir), opts) // nobody writes it, or this fails before anything is lost
	if err != nil {
		return nil, err
	}
	// The copies first: what a crash leaves undone here, the ledger can give back.
	had, err := r.purge()
	if err != nil {
		err = fmt.Errorf("purging the working copies: %w", err)
	} else {
		err = p.destroy(ctx, w, r, e.Reason)
	}
	if err = errors.Join(err, w.Close(), r.rebuild(had, e.Reason)); err != nil {
		return nil, err
	}
	return &p.done, nil
}

// readable makes sure that the run's identities open it: without them the working copies couldn't be made again.
func (r *Run) readable(lr *ledger.Reader) error {
	for rec, err := range lr.Records(0) {
		if err != nil {
			return fmt.Errorf("reading the ledger: %w", err)
		}
		if rec.Type < ledger.TypeUser || rec.Form.Clear() {
			continue
		}
		if rec.Form.Batch() {
			_, err = lr.Events(rec)
		} else {
			err = lr.PayloadTo(rec, io.Discard)
		}
		if !errors.Is(err, ledger.ErrErased) {
			return err
		}
	}
	return nil
}

// erasePlan is what will be done.
type erasePlan struct {
	done    Erased
	batches map[uint64]map[int]bool // batch → indexes to go
	kept    map[uint64]*ledger.Bundle
}

func (r *Run) planErase(e Erasure) (*erasePlan, error) {
	lr, err := r.Ledger()
	if err != nil {
		return nil, err
	}
	defer lr.Close()
	if err := r.readable(lr); err != nil {
		return nil, fmt.Errorf("the working copies couldn't be made again: %w", err)
	}
	places, err := Locate(lr, e.Events)
	if err != nil {
		return nil, err
	}
	p := &erasePlan{batches: map[uint64]map[int]bool{}, kept: map[uint64]*ledger.Bundle{}}
	p.done.Epochs, p.done.Records = slices.Compact(slices.Sorted(slices.Values(e.Epochs))), []uint64{}
	if e.All {
		if p.done.Epochs, err = fullEpochs(lr); err != nil {
			return nil, err
		}
	}
	if p.done.Epochs == nil {
		p.done.Epochs = []uint64{}
	}
	for _, n := range p.done.Epochs {
		if n >= lr.Epochs() {
			return nil, fmt.Errorf("there is no epoch %d: the ledger has epochs 0 to %d", n, int64(lr.Epochs())-1)
		}
	}
	for _, at := range places {
		if p.batches[at.Record] == nil {
			p.batches[at.Record] = map[int]bool{}
		}
		p.batches[at.Record][at.Index] = true
	}
	return p, p.walk(lr, e)
}

// fullEpochs are those with a payload that isn't erased.
func fullEpochs(lr *ledger.Reader) ([]uint64, error) {
	var out []uint64
	for rec, err := range lr.Records(0) {
		if err != nil {
			return nil, fmt.Errorf("reading the ledger: %w", err)
		}
		if rec.Type < ledger.TypeUser || rec.Form.Clear() || !rec.Sealed || len(out) > 0 && out[len(out)-1] == rec.Epoch {
			continue
		}
		if rec.Form.Batch() {
			_, err = lr.Events(rec)
		} else {
			err = lr.PayloadTo(rec, io.Discard)
		}
		if err == nil {
			out = append(out, rec.Epoch)
		} else if !errors.Is(err, ledger.ErrErased) {
			return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
	}
	if out == nil {
		return nil, errors.New("nothing is left to erase")
	}
	return out, nil
}

// walk looks at every record once.
func (p *erasePlan) walk(lr *ledger.Reader, e Erasure) error {
	gone := map[uint64]bool{}
	open := Batches{log: lr}
	found := 0
	for rec, err := range lr.Records(0) {
		if err != nil {
			return fmt.Errorf("reading the ledger: %w", err)
		}
		named := slices.Contains(e.Records, rec.Seq)
		if named {
			found++
		}
		switch whole := slices.Contains(p.done.Epochs, rec.Epoch) && rec.Sealed; {
		case rec.Type < ledger.TypeUser:
			if named {
				return fmt.Errorf("record %d is the ledger's own and holds nothing that could be erased", rec.Seq)
			}
		case whole:
			gone[rec.Seq] = true
			if rec.Type == RecordEvents {
				p.done.Events += int(rec.Count)
			}
		case named:
			gone[rec.Seq] = true
			p.done.Records = append(p.done.Records, rec.Seq)
			if rec.Type == RecordEvents {
				p.done.Events += int(rec.Count)
			}
		case p.batches[rec.Seq] != nil:
			gone[rec.Seq] = true
			if err := p.batch(lr, &open, rec); err != nil {
				return fmt.Errorf("record %d: %w", rec.Seq, err)
			}
		}
	}
	if found != len(slices.Compact(slices.Sorted(slices.Values(e.Records)))) {
		return fmt.Errorf("the ledger has not all of the records %v", e.Records)
	}
	return p.replaced(lr, gone)
}

// batch plans how the other events of a batch are kept.
func (p *erasePlan) batch(lr *ledger.Reader, open *Batches, rec *ledger.ReadRecord) error {
	out := p.batches[rec.Seq]
	events, err := open.Events(rec)
	if err != nil {
		return err
	}
	var keep []int
	for i, b := range events {
		switch {
		case b == nil && out[i]:
			return fmt.Errorf("its event %d was erased before", i)
		case b != nil && !out[i]:
			keep = append(keep, i)
		}
	}
	p.done.Events += len(out)
	p.done.Kept += len(keep)
	bundle, err := lr.Disclose([]ledger.Disclose{{Seq: rec.Seq, Events: keep, Closed: len(keep) == 0}})
	if err == nil {
		p.done.Records = append(p.done.Records, rec.Seq)
	} else if errors.Is(err, ledger.ErrErased) {
		bundle, err = p.again(lr, rec.Seq, keep)
	}
	if err != nil {
		return err
	}
	if len(keep) > 0 {
		p.kept[rec.Seq] = bundle
	}
	return nil
}

// again takes the kept events out of the record that an earlier erasure left.
func (p *erasePlan) again(lr *ledger.Reader, batch uint64, keep []int) (*ledger.Bundle, error) {
	for rec, err := range lr.Records(batch) {
		if err != nil {
			return nil, err
		}
		if rec.Type != RecordKept {
			continue
		}
		payload, err := lr.Payload(rec)
		if errors.Is(err, ledger.ErrErased) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b, err := ledger.ParseBundle(payload)
		if err != nil {
			return nil, err
		}
		for i := range b.Items {
			it := &b.Items[i]
			if it.Record.Seq != batch {
				continue
			}
			it.Events = slices.DeleteFunc(it.Events, func(e ledger.BundleEvent) bool { return !slices.Contains(keep, int(e.Index)) })
			p.done.Records = append(p.done.Records, rec.Seq)
			return b, nil
		}
	}
	return nil, errors.New("what was kept of it is gone")
}

// replaced looks for records that only repeat what goes: what was kept of batches that go as a whole, findings that
// rest on erased events, and the file that lists the findings.
func (p *erasePlan) replaced(lr *ledger.Reader, gone map[uint64]bool) error {
	lost, err := p.lostEvents(lr, gone)
	if err != nil {
		return err
	}
	add := func(seq uint64) {
		p.done.Derived = append(p.done.Derived, seq)
	}
	var list []uint64 // records that hold findings.json
	for rec, err := range lr.Records(0) {
		if err != nil {
			return err
		}
		if gone[rec.Seq] || slices.Contains(p.done.Records, rec.Seq) {
			continue
		}
		switch rec.Type {
		case RecordFinding:
			f, err := openItem(lr, rec, payload.ParseFinding)
			if errors.Is(err, ledger.ErrErased) {
				continue
			}
			if err != nil {
				return err
			}
			if slices.ContainsFunc(f.Events, lost) {
				add(rec.Seq)
			}
		case RecordFile:
			if head, err := readHead(lr, rec); err == nil && bodycam.Unescape(head.Name) == FindingsFile {
				list = append(list, rec.Seq)
			}
		case RecordKept:
			payload, err := lr.Payload(rec)
			if errors.Is(err, ledger.ErrErased) {
				continue
			}
			if err != nil {
				return err
			}
			b, err := ledger.ParseBundle(payload)
			if err != nil {
				return fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			for i := range b.Items {
				if seq := b.Items[i].Record.Seq; gone[seq] && p.batches[seq] == nil {
					add(rec.Seq)
				}
			}
		}
	}
	if len(p.done.Derived) > 0 {
		p.done.Derived = append(p.done.Derived, list...)
	}
	slices.Sort(p.done.Records)
	return nil
}

// lostEvents returns a test for the events that go, by sequence number.
func (p *erasePlan) lostEvents(lr *ledger.Reader, gone map[uint64]bool) (func(uint64) bool, error) {
	type span struct {
		from, n uint64
		only    map[int]bool
	}
	var spans []span
	next := uint64(1)
	for rec, err := range lr.Records(0) {
		if err != nil {
			return nil, err
		}
		if rec.Type != RecordEvents {
			continue
		}
		if gone[rec.Seq] {
			spans = append(spans, span{next, rec.Count, p.batches[rec.Seq]})
		}
		next += rec.Count
	}
	return func(n uint64) bool {
		return slices.ContainsFunc(spans, func(s span) bool {
			return n >= s.from && n-s.from < s.n && (s.only == nil || s.only[int(n-s.from)])
		})
	}, nil
}

// findMentions lists what stays and may speak of erased events: actions linked to them and files of the run.
func (p *erasePlan) findMentions(r *Run) error {
	if p.done.Events == 0 {
		return nil
	}
	lr, err := r.Ledger()
	if err != nil {
		return err
	}
	defer lr.Close()
	gone := map[uint64]bool{}
	for _, list := range [][]uint64{p.done.Records, p.done.Derived} {
		for _, n := range list {
			gone[n] = true
		}
	}
	lost, err := p.lostEvents(lr, gone)
	if err != nil {
		return err
	}
	for rec, err := range lr.Records(0) {
		if err != nil {
			return err
		}
		if gone[rec.Seq] || slices.Contains(p.done.Epochs, rec.Epoch) {
			continue
		}
		what := ""
		switch rec.Type {
		case RecordAction:
			if a, err := openItem(lr, rec, payload.ParseAction); err == nil && slices.ContainsFunc(a.Effects.Events, func(r [2]uint64) bool {
				return r[1]-r[0] < 1<<20 && slices.ContainsFunc(upTo(r), lost)
			}) {
				what = "the action " + bodycam.Printable(a.Intent.Tool) + ", which is linked to it"
			}
		case RecordFile:
			if head, err := readHead(lr, rec); err == nil {
				what = "the file " + bodycam.Printable(head.Name)
			}
		case RecordRow:
			what = "a row of the agent's account"
		case RecordRun:
			what = "run.json"
		}
		if what != "" {
			p.done.Mention = append(p.done.Mention, Mention{rec.Seq, what})
		}
	}
	return nil
}

func upTo(r [2]uint64) []uint64 {
	var out []uint64
	for n := r[0]; n <= r[1]; n++ {
		out = append(out, n)
	}
	return out
}

// destroy keeps what stays, then destroys the keys.
func (p *erasePlan) destroy(ctx context.Context, w *ledger.Writer, r *Run, reason string) error {
	for _, seq := range slices.Sorted(keysOf(p.kept)) {
		e := ledger.Entry{Type: RecordKept, Kind: "kept"}
		if _, err := w.AppendReader(ctx, e, bytes.NewReader(p.kept[seq].Append(nil))); err != nil {
			return fmt.Errorf("keeping the other events of record %d: %w", seq, err)
		}
	}
	if err := w.Seal(); err != nil {
		return err
	}
	epochs, records := p.done.Epochs, slices.Concat(p.done.Records, p.done.Derived)
	for len(epochs)+len(records) > 0 {
		n := min(len(epochs), perErasure)
		m := min(len(records), perErasure-n)
		note := ledger.EraseNote{Epochs: slices.Clone(epochs[:n]), Events: slices.Clone(records[:m]), Reason: reason}
		if err := w.Erase(ctx, note, r.Identities...); err != nil {
			return err
		}
		epochs, records = epochs[n:], records[m:]
	}
	return nil
}

func keysOf[V any](m map[uint64]V) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// openItem opens a record's payload and reads it.
func openItem[V any](lr *ledger.Reader, rec *ledger.ReadRecord, parse func([]byte) (*V, error)) (*V, error) {
	b, err := lr.Payload(rec)
	if err != nil {
		return nil, err
	}
	v, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	return v, nil
}

// readHead reads which file a record holds.
func readHead(lr *ledger.Reader, rec *ledger.ReadRecord) (payload.FileHead, error) {
	w := headWriter{sum: sha256.New()}
	if err := lr.PayloadTo(rec, &w); err != nil {
		return payload.FileHead{}, err
	}
	return w.parse()
}

// purge overwrites and removes everything in the run directory but its ledger and run.json, and tells whether the
// run had working copies.
func (r *Run) purge() (had bool, err error) {
	_, serr := os.Stat(r.Path(EventsFile))
	had = serr == nil
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return had, err
	}
	for _, e := range entries {
		switch e.Name() {
		case "ledger", "payload", "anchors", InfoFile: // an anchor's proof holds heads, nothing that was recorded
			continue
		}
		if err := shred(filepath.Join(r.Dir, e.Name())); err != nil {
			return had, err
		}
	}
	return had, nil
}

// shred overwrites files before it removes them. On copy-on-write file systems and flash the old bytes may stay.
func shred(path string) error {
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		zeros := make([]byte, 64<<10)
		for left := info.Size(); left > 0 && err == nil; left -= int64(len(zeros)) {
			_, err = f.Write(zeros[:min(left, int64(len(zeros)))])
		}
		return errors.Join(err, f.Sync(), f.Close())
	})
	return errors.Join(err, os.RemoveAll(path))
}

// rebuild writes the working copies again from what the ledger still gives.
func (r *Run) rebuild(copies bool, reason string) error {
	lr, err := r.Ledger()
	if err != nil {
		return err
	}
	defer lr.Close()
	var info, rows []byte
	var findings []bodycam.Finding
	listed, ended := false, false
	for rec, err := range lr.Records(0) {
		if err != nil {
			return fmt.Errorf("rebuilding the working copies: %w", err)
		}
		switch rec.Type {
		case RecordRun:
			ended = true
			if info, err = lr.Payload(rec); errors.Is(err, ledger.ErrErased) {
				err = nil
			}
		case RecordFinding:
			var f *bodycam.Finding
			if f, err = openItem(lr, rec, payload.ParseFinding); err == nil {
				findings = append(findings, *f)
			} else if errors.Is(err, ledger.ErrErased) {
				err = nil
			}
		case RecordRow:
			rows, err = appendSealedRow(rows, lr, rec)
		case RecordFile:
			if copies {
				var name string
				name, err = r.restore(lr, rec)
				listed = listed || name == FindingsFile
			}
		}
		if err != nil {
			return fmt.Errorf("rebuilding the working copies: record %d: %w", rec.Seq, err)
		}
	}
	if copies {
		if err := r.rebuildEvents(); err != nil {
			return fmt.Errorf("rebuilding the events: %w", err)
		}
		if rows != nil {
			if err := writeFile(r.Path(RowsFile), rows); err != nil {
				return err
			}
		}
		if !listed && findings != nil {
			b, err := encodeFindings(findings)
			if err == nil {
				err = writeFile(r.Path(FindingsFile), b)
			}
			if err != nil {
				return err
			}
		}
	}
	if !ended {
		return nil // cut off: run.json is all there is
	}
	return r.rebuildInfo(info, reason)
}

func encodeFindings(fs []bodycam.Finding) ([]byte, error) {
	b, err := json.MarshalIndent(fs, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", FindingsFile, err)
	}
	return append(b, '\n'), nil
}

// restore writes a sealed file again and returns its name; "" where it was erased.
func (r *Run) restore(lr *ledger.Reader, rec *ledger.ReadRecord) (string, error) {
	tmp, err := os.CreateTemp(r.Dir, ".new-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) // in vain once it has its name
	w := headWriter{sum: sha256.New(), rest: tmp}
	err = lr.PayloadTo(rec, &w)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, ledger.ErrErased) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	head, err := w.parse()
	if err != nil {
		return "", err
	}
	name := bodycam.Unescape(head.Name)
	if !filepath.IsLocal(name) || strings.HasPrefix(name, "ledger/") || strings.HasPrefix(name, "payload/") {
		return "", fmt.Errorf("it names a file outside the run's copies: %q", name)
	}
	if err := os.MkdirAll(filepath.Dir(r.Path(name)), 0o700); err != nil {
		return "", err
	}
	return name, os.Rename(tmp.Name(), r.Path(name))
}

func (r *Run) rebuildEvents() error {
	seg, err := createSegment(r.Path(EventsFile + ".new"))
	if err != nil {
		return err
	}
	var buf []byte
	err = r.rawSealed(func(e *bodycam.Event) error {
		buf = e.AppendBinary(buf[:0])
		if seg.append(buf) {
			return seg.flush()
		}
		return nil
	})
	if err := errors.Join(err, seg.close()); err != nil {
		return err
	}
	return os.Rename(r.Path(EventsFile+".new"), r.Path(EventsFile))
}

// rebuildInfo writes run.json as it was sealed or, where that was erased, what must stay to name the run.
func (r *Run) rebuildInfo(sealed []byte, reason string) error {
	if sealed != nil {
		return writeFile(r.Path(InfoFile), sealed)
	}
	bare := bodycam.Run{
		Schema: r.Info.Schema, Events: r.Info.Events, ID: r.Info.ID, Tool: r.Info.Tool,
		Started: r.Info.Started, Ended: r.Info.Ended, BootOffset: r.Info.BootOffset,
		Complete: bodycam.Completeness{Reasons: []string{"parts of the record were erased"}},
		Notes:    []string{time.Now().UTC().Format(time.RFC3339) + ": what was recorded of the run was erased: " + bodycam.Printable(reason)},
	}
	b, err := encodeInfo(bare)
	if err != nil {
		return err
	}
	return writeFile(r.Path(InfoFile), b)
}
