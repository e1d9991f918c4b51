package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

const bundleTag = "bodycam-ledger/v1 bundle"

// Bundle is what is disclosed of a log to somebody who doesn't have it: records, their proofs up to a signed
// checkpoint, and, for the payloads that are opened, the salts of their commitments. It holds no key that opens
// anything else.
type Bundle struct {
	Genesis    *Genesis
	Checkpoint *checkpoint.Note
	Epochs     []BundleEpoch // ascending
	Items      []BundleItem  // ascending
	Anchors    []Anchor      // opaque here; see package proof
}

// BundleEpoch is an epoch's header with its proof under the checkpoint.
type BundleEpoch struct {
	Header Header
	Proof  []Hash
}

// BundleItem is a record with its proof under its epoch's header.
type BundleItem struct {
	Record Record
	Proof  []Hash
	// Opened: Payload is disclosed, with the salt of its commitment.
	Opened  bool
	Salt    []byte
	Payload []byte
	// Events are the disclosed events of a batch, ascending.
	Events []BundleEvent
}

// BundleEvent is one event of a batch with its proof under the record's commitment.
type BundleEvent struct {
	Index uint64
	Salt  []byte
	Event []byte
	Proof []Hash
}

// Anchor is a commitment to the log outside its keeper's reach, in a form that its kind defines.
type Anchor struct {
	Kind string
	Data []byte
}

// Append appends the bundle's one encoding.
func (b *Bundle) Append(dst []byte) []byte {
	dst = dcbor.AppendMap(dst, 6)
	dst = dcbor.AppendText(append(dst, 1), bundleTag)
	dst = dcbor.AppendBytes(append(dst, 2), b.Genesis.AppendCBOR(nil))
	dst = dcbor.AppendBytes(append(dst, 3), b.Checkpoint.Marshal())
	dst = dcbor.AppendArray(append(dst, 4), len(b.Epochs))
	for i := range b.Epochs {
		dst = dcbor.AppendArray(dst, 2)
		dst = dcbor.AppendBytes(dst, b.Epochs[i].Header.AppendCBOR(nil))
		dst = appendHashes(dst, b.Epochs[i].Proof)
	}
	dst = dcbor.AppendArray(append(dst, 5), len(b.Items))
	for i := range b.Items {
		dst = b.Items[i].append(dst)
	}
	dst = dcbor.AppendArray(append(dst, 6), len(b.Anchors))
	for _, a := range b.Anchors {
		dst = dcbor.AppendArray(dst, 2)
		dst = dcbor.AppendText(dst, a.Kind)
		dst = dcbor.AppendBytes(dst, a.Data)
	}
	return dst
}

// append writes [record, proof], [record, proof, salt, payload] or [record, proof, [[index, salt, event, proof]…]].
func (it *BundleItem) append(b []byte) []byte {
	n := 2
	switch {
	case it.Opened:
		n = 4
	case it.Events != nil:
		n = 3
	}
	b = dcbor.AppendArray(b, n)
	b = dcbor.AppendBytes(b, it.Record.AppendCBOR(nil))
	b = appendHashes(b, it.Proof)
	switch n {
	case 4:
		b = dcbor.AppendBytes(b, it.Salt)
		b = dcbor.AppendBytes(b, it.Payload)
	case 3:
		b = dcbor.AppendArray(b, len(it.Events))
		for i := range it.Events {
			e := &it.Events[i]
			b = dcbor.AppendArray(b, 4)
			b = dcbor.AppendUint(b, e.Index)
			b = dcbor.AppendBytes(b, e.Salt)
			b = dcbor.AppendBytes(b, e.Event)
			b = appendHashes(b, e.Proof)
		}
	}
	return b
}

func appendHashes(b []byte, list []Hash) []byte {
	b = dcbor.AppendArray(b, len(list))
	for i := range list {
		b = dcbor.AppendBytes(b, list[i][:])
	}
	return b
}

func readHashes(d *dcbor.Decoder) (list []Hash) {
	for range d.Array() {
		var h Hash
		d.Fixed(h[:])
		if d.Err() != nil {
			return nil
		}
		list = append(list, h)
	}
	return list
}

// IsBundle tells whether b begins as a bundle does: whether it was meant to be one.
func IsBundle(b []byte) bool {
	return bytes.HasPrefix(b, dcbor.AppendText(append(dcbor.AppendMap(nil, 6), 1), bundleTag))
}

// ParseBundle reads a bundle. It accepts no other encoding of the same bundle. What the bundle is worth,
// [Bundle.Verify] says.
func ParseBundle(b []byte) (*Bundle, error) {
	d := dcbor.NewDecoder(b)
	out := &Bundle{}
	err := out.read(d)
	if err == nil {
		err = d.Done()
	}
	if err == nil && string(out.Append(nil)) != string(b) {
		err = fmt.Errorf("%w: encoding it again gives other bytes", dcbor.ErrSyntax)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a bundle: %w", err)
	}
	return out, nil
}

func (b *Bundle) read(d *dcbor.Decoder) error {
	d.Map()
	d.Key(1)
	if tag := d.Text(); d.Err() == nil && tag != bundleTag {
		return fmt.Errorf("it begins with %.40q, not %q", tag, bundleTag)
	}
	d.Key(2)
	gen := d.Bytes()
	d.Key(3)
	note := d.Bytes()
	if d.Err() != nil {
		return d.Err()
	}
	var err error
	if b.Genesis, err = ParseGenesis(gen); err != nil {
		return err
	}
	if b.Checkpoint, err = checkpoint.Parse(note); err != nil {
		return err
	}
	d.Key(4)
	for range d.Array() {
		d.Array()
		enc := d.Bytes()
		proof := readHashes(d)
		if d.Err() != nil {
			return d.Err()
		}
		h, err := ParseHeader(enc)
		if err != nil {
			return err
		}
		b.Epochs = append(b.Epochs, BundleEpoch{*h, proof})
	}
	d.Key(5)
	for range d.Array() {
		it, err := readItem(d)
		if err != nil {
			return err
		}
		b.Items = append(b.Items, *it)
	}
	d.Key(6)
	for range d.Array() {
		d.Array()
		a := Anchor{d.Text(), d.Bytes()}
		if d.Err() != nil {
			return d.Err()
		}
		b.Anchors = append(b.Anchors, a)
	}
	return d.Err()
}

func readItem(d *dcbor.Decoder) (*BundleItem, error) {
	it := &BundleItem{}
	n := d.Array()
	enc := d.Bytes()
	it.Proof = readHashes(d)
	if d.Err() != nil {
		return nil, d.Err()
	}
	rec, err := ParseRecord(enc)
	if err != nil {
		return nil, err
	}
	it.Record = *rec
	switch n {
	case 4:
		it.Opened, it.Salt, it.Payload = true, d.Bytes(), d.Bytes()
	case 3:
		it.Events = []BundleEvent{}
		for range d.Array() {
			d.Array()
			e := BundleEvent{d.Uint(), d.Bytes(), d.Bytes(), readHashes(d)}
			if d.Err() != nil {
				return nil, d.Err()
			}
			it.Events = append(it.Events, e)
		}
	}
	return it, d.Err()
}

// Disclose names what goes into a bundle.
type Disclose struct {
	Seq uint64
	// Events opens single events of a batch, by index. For other records it must be empty.
	Events []int
	// Closed discloses the record without its payload.
	Closed bool
}

// Disclose makes a bundle of records. The reader needs the keys of the payloads that are opened. Rotations of the
// signing keys that lead to the checkpoint are added by themselves.
func (r *Reader) Disclose(what []Disclose, anchors ...Anchor) (*Bundle, error) {
	note, err := r.Checkpoint()
	if err != nil {
		return nil, err
	}
	if note == nil {
		return nil, errors.New("can't disclose: the log has no checkpoint yet")
	}
	b := &Bundle{Genesis: r.gen, Checkpoint: note, Anchors: anchors}
	d, err := r.discloser(b, what)
	if err != nil {
		return nil, fmt.Errorf("can't disclose: %w", err)
	}
	defer d.files.close()
	if err := d.run(); err != nil {
		return nil, fmt.Errorf("can't disclose: %w", err)
	}
	return b, nil
}

type discloser struct {
	r      *Reader
	b      *Bundle
	what   map[uint64]*Disclose
	hashes []Hash
	files  span

	rotated bool // the keys that signed the checkpoint aren't the genesis's
}

func (r *Reader) discloser(b *Bundle, what []Disclose) (*discloser, error) {
	d := &discloser{r: r, b: b, what: map[uint64]*Disclose{}, files: span{fsys: r.fsys}}
	for _, k := range r.gen.Keys {
		if _, err := k.named(r.gen.Origin()).Verify(b.Checkpoint); err != nil {
			d.rotated = true
		}
	}
	for i := range what {
		if d.what[what[i].Seq] != nil {
			return nil, fmt.Errorf("record %d is named twice", what[i].Seq)
		}
		d.what[what[i].Seq] = &what[i]
	}
	return d, nil
}

func (d *discloser) run() error {
	s, err := scanEpochs(d.r.fsys, d.r.gen)
	if err != nil {
		return err
	}
	defer s.close()
	var chosen []*entry
	left := len(d.what)
	for uint64(len(d.hashes)) < d.b.Checkpoint.Size {
		e, err := s.scan()
		if err != nil {
			return fmt.Errorf("%w: the checkpoint covers %d epochs: %w", ErrDamaged, d.b.Checkpoint.Size, err)
		}
		d.hashes = append(d.hashes, e.hash)
		n := 0
		for seq := range d.what {
			if seq >= e.First && seq-e.First < e.Count {
				n++
			}
		}
		left -= n
		if n > 0 || d.mayRotate(e) {
			chosen = append(chosen, e)
		}
	}
	if left > 0 {
		return fmt.Errorf("%d of the records aren't under the last checkpoint, which covers %d records", left, s.next)
	}
	if merkle.Root(d.hashes) != d.b.Checkpoint.Root {
		return fmt.Errorf("%w: its epochs don't lead to its checkpoint", ErrDamaged)
	}
	for _, e := range chosen {
		if err := d.epoch(e); err != nil {
			return err
		}
	}
	return nil
}

// mayRotate tells whether an epoch can hold a rotation that leads to the checkpoint: one ends its epoch, which was
// sealed because it was asked for, full, or found unsealed. Where the first keys signed the checkpoint, none does.
func (d *discloser) mayRotate(e *entry) bool {
	return d.rotated && e.Count > 0 && (e.Reason == SealAsked || e.Reason == SealCount || e.Reason == SealRecovered)
}

func (d *discloser) epoch(e *entry) error {
	recs, err := d.r.epochRecords(&d.files, e)
	if err != nil {
		return err
	}
	digests := make([]Hash, len(recs))
	for i := range recs {
		digests[i] = recs[i].Digest
	}
	before := len(d.b.Items)
	for i := range recs {
		rec := &recs[i]
		what := d.what[rec.Seq]
		if what == nil {
			if rec.Type != TypeRotate {
				continue
			}
			what = &Disclose{Seq: rec.Seq}
		}
		it, err := d.item(rec, what)
		if err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		if it.Proof, err = d.r.gen.Profile.prove(digests, i); err != nil {
			return err
		}
		d.b.Items = append(d.b.Items, *it)
	}
	if len(d.b.Items) == before {
		return nil
	}
	proof, err := merkle.Inclusion(d.hashes, int(e.Epoch))
	if err != nil {
		return err
	}
	d.b.Epochs = append(d.b.Epochs, BundleEpoch{e.Header, proof})
	return nil
}

func (d *discloser) item(rec *ReadRecord, what *Disclose) (*BundleItem, error) {
	it := &BundleItem{Record: rec.Record}
	if what.Closed {
		return it, nil
	}
	o, err := d.r.open(rec)
	if err != nil {
		return nil, err
	}
	if !rec.Form.Batch() {
		if len(what.Events) > 0 {
			return nil, errors.New("it is no batch and has no events")
		}
		return it, d.payload(it, rec, o)
	}
	events, digests, err := o.events(&rec.Record)
	if err != nil {
		return nil, err
	}
	index := what.Events
	if len(index) == 0 {
		for i := range events {
			index = append(index, i)
		}
	}
	sort.Ints(index)
	salts, err := o.salts(len(events))
	if err != nil {
		return nil, err
	}
	leaves := eventLeaves(rec.Form, digests)
	it.Events = []BundleEvent{}
	for _, i := range slices.Compact(index) {
		proof, err := proveEvent(rec.Form, digests, leaves, i)
		if err != nil {
			return nil, err
		}
		e := BundleEvent{Index: uint64(i), Event: events[i], Proof: proof}
		if salts != nil {
			e.Salt = salts[i*saltSize : (i+1)*saltSize : (i+1)*saltSize]
		}
		it.Events = append(it.Events, e)
	}
	return it, nil
}

// salts are those of a batch's n events, nil where there are none.
func (o *opened) salts(n int) ([]byte, error) {
	if o.m.salt == nil {
		return nil, nil
	}
	stream, err := eventSalts(o.m.salt)
	if err != nil {
		return nil, err
	}
	salts := make([]byte, n*saltSize)
	stream.XORKeyStream(salts, salts)
	return salts, nil
}

func (d *discloser) payload(it *BundleItem, rec *ReadRecord, o *opened) error {
	var out writeBuffer
	if err := o.payloadTo(d.r.gen.Profile, rec.Form, &rec.Commitment, d.r.chunk, &out); err != nil {
		return err
	}
	it.Opened, it.Payload = true, out
	switch {
	case rec.Form.Clear() || d.r.gen.Profile == ProfileAFR:
	case rec.Form.Kind() == FormInline:
		it.Salt = o.key[:]
	default:
		it.Salt = o.m.salt
	}
	return nil
}

// prove is the proof of a record under its epoch's root.
func (p Profile) prove(digests []Hash, i int) ([]Hash, error) {
	if p == ProfileAFR {
		return AFRProof(digests, i), nil
	}
	return merkle.Inclusion(digests, i)
}

func (p Profile) verifyRecord(digest Hash, index, count uint64, proof []Hash, root Hash) error {
	if p == ProfileAFR {
		return VerifyAFRProof(digest, index, count, proof, root)
	}
	return merkle.VerifyInclusion(digest, index, count, proof, root)
}
