package ledger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

const rotateTag = "bodycam-ledger/v1 rotate\n"

// RotateNote hands the log over to other signing keys. Both the old and the new keys sign
//
//	"bodycam-ledger/v1 rotate\n" ‖ CBOR [log, sequence number, predecessor digest, old keys, new keys]
//
// which binds the hand-over to the whole history before it: the new keys alone can't sign another past. From the
// epoch after the one that holds the record, checkpoints are signed by the new keys.
type RotateNote struct {
	Old, New         []PublicKey
	OldSigs, NewSigs [][]byte
}

func (n *RotateNote) append(b []byte) []byte {
	b = dcbor.AppendMap(b, 4)
	b = appendKeys(append(b, 1), n.Old)
	b = appendKeys(append(b, 2), n.New)
	b = appendList(append(b, 3), n.OldSigs)
	return appendList(append(b, 4), n.NewSigs)
}

func appendList(b []byte, list [][]byte) []byte {
	b = dcbor.AppendArray(b, len(list))
	for _, s := range list {
		b = dcbor.AppendBytes(b, s)
	}
	return b
}

func readList(d *dcbor.Decoder) (list [][]byte) {
	for range d.Array() {
		s := d.Bytes()
		if d.Err() != nil {
			return nil
		}
		list = append(list, s)
	}
	return list
}

// ParseRotateNote reads the payload of a [TypeRotate] record.
func ParseRotateNote(b []byte) (*RotateNote, error) {
	d := dcbor.NewDecoder(b)
	var n RotateNote
	d.Map()
	d.Key(1)
	n.Old = readKeys(d)
	d.Key(2)
	n.New = readKeys(d)
	d.Key(3)
	n.OldSigs = readList(d)
	d.Key(4)
	n.NewSigs = readList(d)
	err := d.Done()
	if err == nil && string(n.append(nil)) != string(b) {
		err = fmt.Errorf("%w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a rotation's note: %w", err)
	}
	return &n, nil
}

func (n *RotateNote) message(log *Hash, seq uint64, prev *Hash) []byte {
	b := dcbor.AppendArray([]byte(rotateTag), 5)
	b = dcbor.AppendBytes(b, log[:])
	b = dcbor.AppendUint(b, seq)
	b = dcbor.AppendBytes(b, prev[:])
	b = appendKeys(b, n.Old)
	return appendKeys(b, n.New)
}

// verify checks that the keys in force handed over in that record.
func (n *RotateNote) verify(origin string, rec *Record, inForce []PublicKey) error {
	if !sameKeys(n.Old, inForce) {
		return errors.New("the keys that hand over aren't those in force")
	}
	if err := validKeys(origin, n.New); err != nil {
		return fmt.Errorf("the keys that take over: %w", err)
	}
	msg := n.message(&rec.Log, rec.Seq, &rec.Prev)
	for _, set := range []struct {
		keys []PublicKey
		sigs [][]byte
	}{{n.Old, n.OldSigs}, {n.New, n.NewSigs}} {
		if len(set.keys) != len(set.sigs) {
			return errors.New("a signature of the hand-over is missing")
		}
		for i, k := range set.keys {
			if !k.named(origin).VerifyMessage(msg, set.sigs[i]) {
				return fmt.Errorf("the hand-over's %s signature is false", k.Alg)
			}
		}
	}
	return nil
}

// Rotate hands the log over to other signers: the hand-over is recorded, signed by the old and the new keys, and
// the epoch is sealed. Checkpoints from then on are signed by the new ones.
func (w *Writer) Rotate(signers []checkpoint.Signer) error {
	next := Options{Signers: signers}
	keys := next.publicKeys()
	if err := validKeys(w.origin, keys); err != nil {
		return fmt.Errorf("rotating the log's keys: %w", err)
	}
	w.commit.mu.Lock() // the hand-over needs the chain's head, so that nothing may wait
	w.mu.Lock()
	err := w.usable()
	if err == nil {
		err = w.chainAll()
	}
	if err == nil {
		err = w.handOver(signers, keys)
	}
	w.mu.Unlock()
	w.commit.mu.Unlock()
	if err != nil {
		return fmt.Errorf("rotating the log's keys: %w", err)
	}
	w.kick(w.now)
	return w.manualCommit()
}

// chainAll chains every record that waits. Both locks are held.
func (w *Writer) chainAll() error {
	for _, k := range append(slices.Clone(w.commit.backlog), &w.pending) {
		for _, ch := range k.chunks {
			if err := w.commit.finish(ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// handOver records the rotation. The lock is held.
func (w *Writer) handOver(signers []checkpoint.Signer, keys []PublicKey) error {
	n := &RotateNote{Old: w.opts.publicKeys(), New: keys}
	msg := n.message(&w.id, w.next, &w.commit.cur.prev)
	var err error
	if n.OldSigs, err = signAll(w.opts.Signers, msg); err != nil {
		return err
	}
	if n.NewSigs, err = signAll(signers, msg); err != nil {
		return err
	}
	payload := n.append(nil)
	last := w.epoch.count+1 == w.gen.EpochRecords
	if _, err := w.place(&Entry{Type: TypeRotate, Payload: payload}, nil); err != nil {
		return err
	}
	if !last { // the record itself didn't fill the epoch
		w.seal(SealAsked)
	}
	w.pending.seals[len(w.pending.seals)-1].signers = signers
	w.opts.Signers = signers
	return nil
}

func signAll(signers []checkpoint.Signer, msg []byte) ([][]byte, error) {
	var out [][]byte
	for _, s := range signers {
		sig, err := s.Sign(msg)
		if err != nil {
			alg, _ := s.Public()
			return nil, fmt.Errorf("signing with the %s key: %w", alg, err)
		}
		out = append(out, sig)
	}
	return out, nil
}

// noteRotation looks for a rotation above the last checkpoint: it says which keys signed that and which are in
// force.
func (r *recovery) noteRotation(s *stored, payload []byte) error {
	if s.Type != TypeRotate {
		return nil
	}
	n, err := ParseRotateNote(payload[:s.size])
	if err != nil {
		return fmt.Errorf("%w: record %d: %w", ErrDamaged, s.Seq, err)
	}
	if r.old == nil {
		r.old = n.Old
	}
	r.keys = n.New
	return nil
}
