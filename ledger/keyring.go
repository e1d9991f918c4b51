package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"filippo.io/age"
)

// keyring opens the wraps of epoch secrets. It keeps the last epochs' keys, as records come in order.
type keyring struct {
	fsys       fs.FS
	id         Hash
	identities []age.Identity

	mu     sync.Mutex
	index  map[uint64]map[uint64]*wrapAt // of a segment: where each epoch's wrap lies
	sizes  map[uint64]int64              // of the keys files when they were indexed
	opened map[uint64]*openedEpoch
	order  []uint64
}

type wrapAt struct {
	off, size int64
}

type openedEpoch struct {
	segment uint64 // whose keys file opened it: a wrap may be for epochs that came to lie in the next
	key     *epochKey
	events  map[uint64]EventKey
	err     error
}

const keptEpochs = 64

const maxKeysFile = 1 << 30

// errNoWrap: the epoch has no wrap at all.
var errNoWrap = fmt.Errorf("%w: no wrap of the epoch's secret is left", ErrErased)

// event returns the key of one record's payload.
func (k *keyring) event(segment, epoch uint64, rec *Record) (EventKey, error) {
	var e EventKey
	if len(k.identities) == 0 {
		return e, ErrNoKey
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.opened[epoch]
	if o == nil || o.segment != segment {
		o = k.load(segment, epoch)
		o.segment = segment
		k.keep(epoch, o)
	}
	switch {
	case o.err != nil:
		return e, o.err
	case o.events != nil:
		e, ok := o.events[rec.Seq]
		if !ok {
			return e, ErrErased
		}
		return e, nil
	}
	return e, o.key.event(rec.Seq, &rec.ID, &e)
}

func (k *keyring) keep(epoch uint64, o *openedEpoch) {
	if errors.Is(o.err, ErrErased) {
		return // a log that is being written may get its wrap yet
	}
	if k.opened == nil {
		k.opened = map[uint64]*openedEpoch{}
	}
	if was := k.opened[epoch]; was != nil {
		if was.key != nil {
			was.key.wipe()
		}
		k.opened[epoch] = o
		return
	}
	if len(k.order) == keptEpochs {
		old := k.order[0]
		if was := k.opened[old]; was != nil && was.key != nil {
			was.key.wipe()
		}
		delete(k.opened, old)
		k.order = k.order[1:]
	}
	k.opened[epoch] = o
	k.order = append(k.order, epoch)
}

func (k *keyring) load(segment, epoch uint64) *openedEpoch {
	w, err := k.wrap(segment, epoch)
	if err != nil {
		return &openedEpoch{err: err}
	}
	s, err := unwrap(w.age, k.identities)
	if err != nil {
		return &openedEpoch{err: err}
	}
	if s.log != k.id || s.events != nil && s.epoch != epoch || w.epochs > 1 && uint64(len(s.group)) != w.epochs || w.epochs == 1 && s.group != nil {
		return &openedEpoch{err: fmt.Errorf("%w: the wrap of epoch %d holds another's secret", ErrPayload, epoch)}
	}
	if s.events != nil {
		return &openedEpoch{events: s.events}
	}
	if s.group == nil {
		key, err := newEpochKey(&k.id, epoch, s.secret)
		clear(s.secret)
		return &openedEpoch{key: key, err: err}
	}
	var mine *openedEpoch
	at := k.index[segment][epoch]
	for i, secret := range s.group {
		n := w.first + uint64(i)
		key, err := newEpochKey(&k.id, n, secret)
		clear(secret)
		o := &openedEpoch{segment: segment, key: key, err: err}
		switch {
		case n == epoch:
			mine = o
		case k.opened[n] == nil && k.index[segment][n] == at: // no later wrap is for it
			k.keep(n, o)
		default:
			key.wipe()
		}
	}
	return mine
}

// wrap returns an epoch's wrap.
func (k *keyring) wrap(segment, epoch uint64) (w wrapped, err error) {
	name := keysName(segment)
	f, err := k.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return w, errNoWrap
	}
	if err != nil {
		return w, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return w, fmt.Errorf("reading %s: %w", name, err)
	}
	if k.index[segment] == nil || k.sizes[segment] != info.Size() {
		if err := k.read(segment, f, info.Size()); err != nil {
			return w, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	at := k.index[segment][epoch]
	if at == nil {
		return w, errNoWrap
	}
	b := make([]byte, at.size)
	ra, ok := f.(io.ReaderAt)
	if !ok {
		return w, fmt.Errorf("reading %s: the file system can't read at an offset", name)
	}
	if _, err := ra.ReadAt(b, at.off); err != nil {
		return w, fmt.Errorf("reading %s: %w", name, err)
	}
	if w, _, err = readWrap(b); err != nil || !w.covers(epoch) {
		return w, fmt.Errorf("%w: the wrap of epoch %d in %s is damaged", ErrPayload, epoch, name)
	}
	return w, nil
}

// read indexes a keys file. A torn end is left out.
func (k *keyring) read(segment uint64, f io.Reader, size int64) error {
	if size > maxKeysFile {
		return fmt.Errorf("%w: it has %d bytes, more than %d", ErrPayload, size, maxKeysFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return err
	}
	index := map[uint64]*wrapAt{}
	rest := b
	for len(rest) > 0 {
		w, after, err := readWrap(rest)
		if errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: its wrap at byte %d is damaged: %w", ErrPayload, len(b)-len(rest), err)
		}
		at := &wrapAt{int64(len(b) - len(rest)), int64(len(rest) - len(after))}
		for i := range w.epochs { // the last wrap counts: a number that a crash made free is used again
			index[w.first+i] = at
		}
		rest = after
	}
	if k.index == nil {
		k.index, k.sizes = map[uint64]map[uint64]*wrapAt{}, map[uint64]int64{}
	}
	clear(k.index) // one segment at a time: records come in order
	k.index[segment], k.sizes[segment] = index, size
	return nil
}

// forgetFrom wipes the keys of epochs that may yet get another wrap: those that weren't sealed when they were opened.
func (k *keyring) forgetFrom(epoch uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order = slices.DeleteFunc(k.order, func(n uint64) bool {
		if n < epoch {
			return false
		}
		if o := k.opened[n]; o.key != nil {
			o.key.wipe()
		}
		delete(k.opened, n)
		return true
	})
}

// forget wipes the keys that are open.
func (k *keyring) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.opened {
		if o.key != nil {
			o.key.wipe()
		}
	}
	k.opened, k.order = nil, nil
}
