package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// EraseNote records that keys were destroyed. It claims nothing of the law: copies of payloads outside the ledger,
// and keys that somebody kept, are beyond it.
type EraseNote struct {
	Epochs []uint64 // whole epochs
	Events []uint64 // single records, by sequence number
	Reason string
}

func (n *EraseNote) append(b []byte) []byte {
	b = dcbor.AppendMap(b, 3)
	b = appendUints(append(b, 1), n.Epochs)
	b = appendUints(append(b, 2), n.Events)
	return dcbor.AppendText(append(b, 3), n.Reason)
}

func appendUints(b []byte, list []uint64) []byte {
	b = dcbor.AppendArray(b, len(list))
	for _, n := range list {
		b = dcbor.AppendUint(b, n)
	}
	return b
}

func readUints(d *dcbor.Decoder) (list []uint64) {
	for range d.Array() {
		n := d.Uint()
		if d.Err() != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}

// ParseEraseNote reads the payload of a [TypeErase] record.
func ParseEraseNote(b []byte) (*EraseNote, error) {
	d := dcbor.NewDecoder(b)
	var n EraseNote
	d.Map()
	d.Key(1)
	n.Epochs = readUints(d)
	d.Key(2)
	n.Events = readUints(d)
	d.Key(3)
	n.Reason = d.Text()
	err := d.Done()
	if err == nil && string(n.append(nil)) != string(b) {
		err = fmt.Errorf("%w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an erasure's note: %w", err)
	}
	return &n, nil
}

// An erasure is done in steps, each durable before the next:
//
//	1. the epochs concerned lie in segments that are closed
//	2. new keys files, with the wraps of what survives, are stored beside the old ones
//	3. the intent is stored: from here on the erasure will be completed, by Open if need be
//	4. the erasure is recorded
//	5. the new keys files replace the old, whose bytes are overwritten
//	6. the intent is removed

const eraseName = "ledger/erase"

func newKeysName(segment uint64) string { return keysName(segment) + ".new" }

// intent is what step 3 stores.
type intent struct {
	segments []uint64
	note     []byte
}

func (i *intent) append(b []byte) []byte {
	b = dcbor.AppendMap(b, 2)
	b = appendUints(append(b, 1), i.segments)
	return dcbor.AppendBytes(append(b, 2), i.note)
}

func parseIntent(b []byte) (*intent, error) {
	d := dcbor.NewDecoder(b)
	var i intent
	d.Map()
	d.Key(1)
	i.segments = readUints(d)
	d.Key(2)
	i.note = d.Bytes()
	err := d.Done()
	if err == nil && string(i.append(nil)) != string(b) {
		err = fmt.Errorf("%w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	return &i, err
}

// maxErase bounds an erasure, so that its note fits a record.
const maxErase = 400

// Erase destroys the keys of whole epochs and of single records. Every proof still verifies; the payloads can't be
// opened any more by anyone. For single records the keys of the epoch's other records are wrapped again first, and so
// are the secrets of epochs that share a wrap with one that goes: for that, identities must open the present wraps. The caller purges what was derived from the payloads.
func (w *Writer) Erase(ctx context.Context, note EraseNote, identities ...age.Identity) error {
	slices.Sort(note.Epochs)
	slices.Sort(note.Events)
	if w.opts.Clear {
		return errors.New("can't erase: the log is in the clear and has no keys to destroy")
	}
	note.Epochs, note.Events = slices.Compact(note.Epochs), slices.Compact(note.Events)
	if n := len(note.Epochs) + len(note.Events); n == 0 || n > maxErase || len(note.Reason) > 255 {
		return fmt.Errorf("an erasure names 1 to %d epochs and records and a reason of at most 255 bytes", maxErase)
	}
	w.erasing.Lock()
	defer w.erasing.Unlock()
	if err := w.leaveOpenSegment(ctx); err != nil {
		return fmt.Errorf("erasing: %w", err)
	}
	e := &eraser{w: w, note: &note, identities: identities, files: span{fsys: w.store}}
	defer e.files.close()
	if err := e.run(ctx); err != nil {
		return fmt.Errorf("erasing: %w", err)
	}
	return nil
}

// leaveOpenSegment seals the open epoch and begins a new segment, so that no wrap is added to the old ones.
func (w *Writer) leaveOpenSegment(ctx context.Context) error {
	w.mu.Lock()
	if err := w.usable(); err != nil {
		w.mu.Unlock()
		return err
	}
	w.roll = true
	w.seal(SealAsked)
	w.mu.Unlock()
	if err := w.Sync(ctx); err != nil {
		return err
	}
	return w.commitAll(false) // Sync returns at once where no record waits; the seal must be written too
}

type eraser struct {
	w          *Writer
	note       *EraseNote
	identities []age.Identity
	files      span
	ends       map[uint64]uint64 // last epoch of each segment
}

func (e *eraser) run(ctx context.Context) error {
	whole, single, err := e.locate()
	if err != nil {
		return err
	}
	segments := map[uint64]bool{}
	for _, en := range whole {
		segments[en.segment] = true
	}
	for _, en := range single {
		segments[en.segment] = true
	}
	in := &intent{segments: slices.Sorted(maps.Keys(segments)), note: e.note.append(nil)}
	for _, seg := range in.segments {
		keys, err := e.survivors(seg, whole, single)
		if err != nil {
			return err
		}
		if err := e.w.store.Put(newKeysName(seg), keys); err != nil {
			return err
		}
	}
	if err := e.w.store.Put(eraseName, in.append(nil)); err != nil {
		return err
	}
	e.w.mu.Lock()
	if err = e.w.usable(); err == nil {
		_, err = e.w.place(&Entry{Type: TypeErase, Payload: in.note}, nil)
	}
	e.w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := e.w.Sync(ctx); err != nil {
		return err
	}
	if err := swapKeys(e.w.store, in); err != nil {
		return err
	}
	return e.w.store.Remove(eraseName)
}

// locate finds the epochs that are concerned: those to go whole, and those that hold single records.
func (e *eraser) locate() (whole, single map[uint64]*entry, err error) {
	s, err := scanEpochs(e.w.store, e.w.gen)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	whole, single = map[uint64]*entry{}, map[uint64]*entry{}
	e.ends = map[uint64]uint64{}
	found := 0
	for {
		en, err := s.scan()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		e.ends[en.segment] = en.Epoch
		if slices.Contains(e.note.Epochs, en.Epoch) {
			whole[en.Epoch] = en
		}
		for _, seq := range e.note.Events {
			if seq >= en.First && seq-en.First < en.Count {
				single[en.Epoch] = en
				found++
			}
		}
	}
	if len(whole) != len(e.note.Epochs) || found != len(e.note.Events) {
		return nil, nil, errors.New("the log has not all of these epochs and records")
	}
	for epoch := range single {
		if whole[epoch] != nil {
			return nil, nil, fmt.Errorf("epoch %d is named as a whole and by a record of it", epoch)
		}
	}
	return whole, single, nil
}

// survivors is a segment's keys file without what is erased.
func (e *eraser) survivors(segment uint64, whole, single map[uint64]*entry) ([]byte, error) {
	b, err := readFile(e.w.store, keysName(segment), 1<<32)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	last := map[uint64]*wrapped{} // an epoch number that a crash made free has two wraps: the last counts
	var order []*wrapped
	for len(b) > 0 {
		w, rest, err := readWrap(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, keysName(segment), err)
		}
		for i := range w.epochs {
			last[w.first+i] = &w
		}
		order = append(order, &w)
		b = rest
	}
	touched := map[*wrapped]bool{}
	for _, part := range []map[uint64]*entry{whole, single} {
		for epoch, en := range part {
			if en.segment != segment {
				continue
			}
			if last[epoch] == nil {
				return nil, fmt.Errorf("epoch %d has no keys to destroy: nothing in it is encrypted, or it is erased", epoch)
			}
			touched[last[epoch]] = true
		}
	}
	var out []byte
	for _, w := range order {
		if !touched[w] {
			if slices.ContainsFunc(w.all(), func(n uint64) bool { return last[n] == w }) {
				out = appendWrap(out, *w)
			}
			continue
		}
		for _, epoch := range w.all() {
			if last[epoch] != w || whole[epoch] != nil || epoch > e.ends[segment] {
				continue
			}
			one := w
			if en := single[epoch]; en != nil {
				one, err = e.rewrap(en, w)
			} else if w.epochs > 1 {
				one, err = e.alone(epoch, w)
			}
			if err != nil {
				return nil, fmt.Errorf("epoch %d: %w", epoch, err)
			}
			out = appendWrap(out, *one)
		}
	}
	return out, nil
}

// secretsOf opens the secrets of one epoch.
func (e *eraser) secretsOf(epoch uint64, w *wrapped) (*secrets, error) {
	s, err := unwrap(w.age, e.identities)
	if err != nil {
		return nil, err
	}
	if s.group != nil {
		if uint64(len(s.group)) != w.epochs {
			return nil, fmt.Errorf("%w: a wrap for %d epochs holds %d secrets", ErrDamaged, w.epochs, len(s.group))
		}
		s.secret = s.group[epoch-w.first]
		for i, secret := range s.group {
			if uint64(i) != epoch-w.first {
				clear(secret)
			}
		}
		s.group = nil
	}
	return s, nil
}

// alone wraps the secret of an epoch that stays where others under the same wrap go.
func (e *eraser) alone(epoch uint64, w *wrapped) (*wrapped, error) {
	s, err := e.secretsOf(epoch, w)
	if err != nil {
		return nil, err
	}
	defer clear(s.secret)
	file, err := s.wrap(e.w.opts.Recipients)
	return &wrapped{epoch, 1, file}, err
}

// rewrap replaces an epoch's secret by the keys of the records that stay.
func (e *eraser) rewrap(en *entry, w *wrapped) (*wrapped, error) {
	old, err := e.secretsOf(en.Epoch, w)
	if err != nil {
		return nil, err
	}
	next := &secrets{log: e.w.id, epoch: en.Epoch, events: map[uint64]EventKey{}}
	if old.events != nil {
		maps.Copy(next.events, old.events)
	} else {
		key, err := newEpochKey(&e.w.id, en.Epoch, old.secret)
		clear(old.secret)
		if err != nil {
			return nil, err
		}
		defer key.wipe()
		data, err := e.files.read(logName(en.segment), int64(en.logOff), int64(en.logLen), nil)
		if err != nil {
			return nil, err
		}
		var c cursor
		err = en.walk(e.w.gen, data, &c, func(s *stored, _ uint64) error {
			if s.Form.Clear() {
				return nil
			}
			var k EventKey
			err := key.event(s.Seq, &s.ID, &k)
			next.events[s.Seq] = k
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, seq := range e.note.Events {
		if seq < en.First || seq-en.First >= en.Count {
			continue
		}
		if _, ok := next.events[seq]; !ok {
			return nil, fmt.Errorf("record %d has no key to destroy: it is in the clear, or erased", seq)
		}
		delete(next.events, seq)
	}
	file, err := next.wrap(e.w.opts.Recipients)
	return &wrapped{en.Epoch, 1, file}, err
}

// swapKeys does step 5. To do it again does no harm.
func swapKeys(store Store, in *intent) error {
	for _, seg := range in.segments {
		b, err := readFile(store, newKeysName(seg), 1<<32)
		if errors.Is(err, fs.ErrNotExist) {
			continue // done before
		}
		if err != nil {
			return err
		}
		if err := store.Put(keysName(seg), b); err != nil {
			return err
		}
		if err := store.Remove(newKeysName(seg)); err != nil {
			return err
		}
	}
	return nil
}

// pendingErasure returns an erasure that a crash interrupted after its intent was stored.
func pendingErasure(store Store) (*intent, error) {
	b, err := readFile(store, eraseName, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in, err := parseIntent(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, eraseName, err)
	}
	return in, nil
}

// dropNewKeys removes what an erasure left that never got as far as its intent.
func dropNewKeys(store Store, last uint64) error {
	for seg := range last + 1 {
		if _, err := fs.Stat(store, newKeysName(seg)); err == nil {
			if err := store.Remove(newKeysName(seg)); err != nil {
				return err
			}
		}
	}
	return nil
}
