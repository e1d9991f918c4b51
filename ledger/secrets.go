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

// group holds the secrets of the open epoch and of those that follow, all under one wrap. The committer makes the wrap,
// before anything that was encrypted under one of them leaves the process: no append waits for public-key cryptography.
type group struct {
	from    uint64   // the epoch of the first
	secrets [][]byte // nil once used
	asked   bool     // the committer knows that it is to be wrapped
}

func (g *group) wipe() {
	for _, s := range g.secrets {
		clear(s)
	}
	g.secrets = nil
}

// needKey makes sure that the open epoch has a key, and that its wrap is on its way to the store before any record
// that needs it. The lock is held.
func (w *Writer) needKey() error {
	if w.epoch.key != nil {
		return nil
	}
	g := &w.group
	if w.number-g.from >= uint64(len(g.secrets)) {
		w.newGroup()
	}
	if !g.asked {
		g.asked = true
		ch := w.pending.last()
		ch.jobs = append(ch.jobs, job{wraps: g.clone()})
		w.pending.wraps = true
		w.weigh(ch, wrapWeight)
	}
	i := int(w.number - g.from)
	if g.secrets[i] == nil {
		return errors.New("the epoch's secret was used")
	}
	var err error
	if w.epoch.key, err = newEpochKey(&w.id, w.number, g.secrets[i]); err != nil { // wiped when the epoch is sealed
		return err
	}
	for n, s := range g.secrets[:i+1] { // also those of epochs in which nothing was encrypted
		clear(s)
		g.secrets[n] = nil
	}
	return nil
}

// wrapWeight is what a wrap takes, about.
const wrapWeight = 4 << 10

// newGroup begins a new group with the open epoch. The lock is held, but for a writer that nobody has yet.
func (w *Writer) newGroup() {
	w.group.wipe()
	all := randomBytes(max(w.opts.perWrap, 1) * keySize)
	w.group = group{from: w.number, secrets: make([][]byte, 0, len(all)/keySize)}
	for secret := range slices.Chunk(all, keySize) {
		w.group.secrets = append(w.group.secrets, secret)
	}
}

// clone is the committer's copy.
func (g *group) clone() *group {
	c := &group{from: g.from, secrets: make([][]byte, 0, len(g.secrets))}
	room := make([]byte, 0, len(g.secrets)*keySize)
	for _, s := range g.secrets {
		n := len(room)
		room = append(room, s...)
		c.secrets = append(c.secrets, room[n:])
	}
	return c
}

// appendWrapTo appends the frame that wraps a group's secrets, and wipes them.
func (g *group) appendWrapTo(b []byte, log *Hash, recipients []age.Recipient) ([]byte, error) {
	defer g.wipe()
	s := secrets{log: *log, secret: g.secrets[0]}
	if len(g.secrets) > 1 {
		s.secret, s.group = nil, g.secrets
	}
	file, err := s.wrap(recipients)
	if err != nil {
		return nil, err
	}
	return appendWrap(b, wrapped{g.from, uint64(len(g.secrets)), file}), nil
}
