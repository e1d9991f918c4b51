package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

// secrets is what a wrap holds: the secret of an epoch, those of several that follow each other, or, after events were
// erased, the keys of those that are left.
type secrets struct {
	log    Hash
	epoch  uint64 // only with events
	secret []byte
	group  [][]byte
	events map[uint64]EventKey
}

func (s *secrets) append(b []byte) []byte {
	if s.events == nil {
		b = dcbor.AppendMap(b, 2)
		b = dcbor.AppendBytes(append(b, 1), s.log[:])
		if s.group == nil {
			return dcbor.AppendBytes(append(b, 2), s.secret)
		}
		b = dcbor.AppendArray(append(b, 5), len(s.group))
		for _, secret := range s.group {
			b = dcbor.AppendBytes(b, secret)
		}
		return b
	}
	b = dcbor.AppendMap(b, 3)
	b = dcbor.AppendBytes(append(b, 1), s.log[:])
	b = dcbor.AppendUint(append(b, 3), s.epoch)
	b = dcbor.AppendArray(append(b, 4), len(s.events))
	for _, seq := range slices.Sorted(maps.Keys(s.events)) {
		e := s.events[seq]
		b = dcbor.AppendArray(b, 2)
		b = dcbor.AppendUint(b, seq)
		b = dcbor.AppendBytes(b, e[:])
	}
	return b
}

func parseSecrets(b []byte) (*secrets, error) {
	d := dcbor.NewDecoder(b)
	s := &secrets{}
	n := d.Map()
	d.Key(1)
	d.Fixed(s.log[:])
	switch {
	case n == 2 && d.NextIs(5):
		d.Key(5)
		s.group = [][]byte{}
		for range d.Array() {
			secret := make([]byte, keySize)
			d.Fixed(secret)
			s.group = append(s.group, secret)
		}
	case n == 2:
		d.Key(2)
		s.secret = d.Bytes()
	default:
		s.events = map[uint64]EventKey{}
		d.Key(3)
		s.epoch = d.Uint()
		d.Key(4)
		for range d.Array() {
			if d.Array() != 2 || d.Err() != nil {
				break
			}
			var e EventKey
			seq := d.Uint()
			d.Fixed(e[:])
			s.events[seq] = e
		}
	}
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("reading a wrapped secret: %w", err)
	}
	if !bytes.Equal(s.append(nil), b) {
		return nil, fmt.Errorf("reading a wrapped secret: %w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	return s, nil
}

// wrap encrypts secrets to recipients, as an age file.
func (s *secrets) wrap(recipients []age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipients...)
	if err != nil {
		return nil, fmt.Errorf("wrapping an epoch's secret to %d recipients: %w", len(recipients), err)
	}
	plain := s.append(nil)
	defer clear(plain)
	if _, err := w.Write(plain); err != nil {
		return nil, fmt.Errorf("wrapping an epoch's secret: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("wrapping an epoch's secret: %w", err)
	}
	return out.Bytes(), nil
}

// unwrap opens an age file. It wraps ErrNoKey where no identity fits.
func unwrap(file []byte, identities []age.Identity) (*secrets, error) {
	if len(identities) == 0 {
		return nil, ErrNoKey
	}
	r, err := age.Decrypt(bytes.NewReader(file), identities...)
	if err != nil {
		var none *age.NoIdentityMatchError
		if errors.As(err, &none) {
			return nil, fmt.Errorf("%w: %w", ErrNoKey, err)
		}
		return nil, fmt.Errorf("unwrapping an epoch's secret: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxWrap))
	if err != nil {
		return nil, fmt.Errorf("unwrapping an epoch's secret: %w", err)
	}
	return parseSecrets(plain)
}

// perWrap is how many epochs' secrets a wrap holds. Public-key cryptography costs more than a hundred records do: a
// wrap for each epoch would bound what a log can take.
const perWrap = 16

// maxPerWrap bounds what a reader takes.
const maxPerWrap = 64

// freshSecrets are the secrets of epochs to come, wrapped before they are needed.
type freshSecrets struct {
	secrets [][]byte
	first   uint64      // the epoch that they probably begin with
	keys    []*epochKey // if it is
	wrap    []byte
	err     error
}

func (f *freshSecrets) wipe() {
	for _, s := range f.secrets {
		clear(s)
	}
	for _, k := range f.keys {
		if k != nil {
			k.wipe()
		}
	}
	f.secrets, f.keys = nil, nil
}

// makeSecrets makes secrets for epochs from first on, and wraps them.
func (w *Writer) makeSecrets(first uint64) freshSecrets {
	n := max(w.opts.perWrap, 1)
	f := freshSecrets{first: first}
	s := secrets{log: w.id}
	for i := range n {
		secret := randomBytes(keySize)
		f.secrets = append(f.secrets, secret)
		key, err := newEpochKey(&w.id, first+uint64(i), secret)
		if err != nil {
			f.err = err
			return f
		}
		f.keys = append(f.keys, key)
	}
	if s.secret = f.secrets[0]; n > 1 {
		s.secret, s.group = nil, f.secrets
	}
	f.wrap, f.err = s.wrap(w.opts.Recipients)
	return f
}

// stockSecrets keeps secrets ready, so that no append waits for public-key cryptography. They open nothing until
// epochs use them.
func (w *Writer) stockSecrets() {
	defer w.done.Done()
	for {
		f := w.makeSecrets(w.nextGroup.Load() + uint64(len(w.fresh)*w.opts.perWrap))
		select {
		case w.fresh <- f:
		case <-w.quit:
			f.wipe()
			return
		}
	}
}

// group holds the secrets of the open epoch and of those that follow, all under one wrap.
type group struct {
	freshSecrets
	from uint64 // the epoch of the first
}

// needKey makes sure that the open epoch has a key, and that its wrap is on its way to the store before any record
// that needs it. The lock is held.
func (w *Writer) needKey() error {
	if w.epoch.key != nil {
		return nil
	}
	g := &w.group
	if w.number-g.from >= uint64(len(g.secrets)) {
		if err := w.takeGroup(); err != nil {
			return err
		}
	}
	i := int(w.number - g.from)
	for n := range i { // of epochs in which nothing was encrypted
		g.forget(n)
	}
	key := g.keys[i]
	if key == nil {
		if g.secrets[i] == nil {
			return errors.New("the epoch's secret was used")
		}
		var err error
		if key, err = newEpochKey(&w.id, w.number, g.secrets[i]); err != nil {
			return err
		}
	}
	w.epoch.key, g.keys[i] = key, nil // wiped when the epoch is sealed
	g.forget(i)
	return nil
}

func (g *group) forget(i int) {
	clear(g.secrets[i])
	g.secrets[i] = nil
	if g.keys[i] != nil {
		g.keys[i].wipe()
		g.keys[i] = nil
	}
}

// takeGroup begins a new group with the open epoch.
func (w *Writer) takeGroup() error {
	w.group.wipe()
	var f freshSecrets
	if w.opts.manual {
		f = w.makeSecrets(w.number)
	} else {
		f = <-w.fresh
	}
	if f.err != nil {
		return f.err
	}
	if f.first != w.number {
		for i, k := range f.keys {
			k.wipe()
			f.keys[i] = nil
		}
	}
	w.group = group{f, w.number}
	w.nextGroup.Store(w.number + uint64(len(f.secrets)))
	ch := w.pending.last()
	ch.keys = appendWrap(ch.keys, wrapped{w.number, uint64(len(f.secrets)), f.wrap})
	w.weigh(ch, len(f.wrap))
	return nil
}
