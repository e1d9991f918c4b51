package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Equivocation proves that two histories of one log were vouched for: two heads that can't both be right. Whoever signed,
// cosigned or anchored both is convicted by it, before anybody who has the file, without a network. It is one CBOR map:
//
//	1  text   "bodycam-equivocation/v1"
//	2  bytes  the log's genesis; empty where the log isn't a ledger
//	3  bytes  a statement on the log: an evidence, as an anchor leaves it, or one of kind "checkpoint", with nothing but the note
//	4  bytes  another one, of the same size or a larger one
//	5  bytes  the head that the history of the second one had at the size of the first; empty where the sizes are one
//	6  array  hashes: consistency proof from there to the second one
//
// Where the sizes are one, the two heads differ. Where they aren't, key 5 differs from the first one's head, and key 6 proves
// that it is a prefix of the second one's.
type Equivocation struct {
	Genesis       *ledger.Genesis
	First, Second *Evidence
	Prefix        merkle.Hash
	Consistency   []merkle.Hash
}

// KindCheckpoint is the kind of a statement that is a signed checkpoint and nothing else.
const KindCheckpoint = "checkpoint"

const equivocationHead = "bodycam-equivocation/v1"

// EquivocationSuffix is what the names of such files end with.
const EquivocationSuffix = ".equivocation"

// IsEquivocation tells by its name or its beginning whether a file is one, or was meant to be: [ParseEquivocation] says.
func IsEquivocation(name string, b []byte) bool {
	return strings.HasSuffix(name, EquivocationSuffix) || bytes.HasPrefix(b, dcbor.AppendText(append(dcbor.AppendMap(nil, 6), 1), equivocationHead))
}

// Append appends the one encoding.
func (q *Equivocation) Append(b []byte) []byte {
	b = dcbor.AppendMap(b, 6)
	b = dcbor.AppendText(append(b, 1), equivocationHead)
	var genesis, prefix []byte
	if q.Genesis != nil {
		genesis = q.Genesis.AppendCBOR(nil)
	}
	if q.First.Note.Size != q.Second.Note.Size {
		prefix = q.Prefix[:]
	}
	b = dcbor.AppendBytes(append(b, 2), genesis)
	b = dcbor.AppendBytes(append(b, 3), q.First.Append(nil))
	b = dcbor.AppendBytes(append(b, 4), q.Second.Append(nil))
	b = dcbor.AppendBytes(append(b, 5), prefix)
	b = dcbor.AppendArray(append(b, 6), len(q.Consistency))
	for i := range q.Consistency {
		b = dcbor.AppendBytes(b, q.Consistency[i][:])
	}
	return b
}

// Name is a file's name for it: two of the same content have the same.
func (q *Equivocation) Name() string {
	sum := sha256.Sum256(q.Append(nil))
	return hex.EncodeToString(sum[:8]) + EquivocationSuffix
}

// ParseEquivocation reads one. It accepts no other encoding, and nothing in which the two statements don't contradict each
// other; who made them, [Equivocation.Judge] says.
func ParseEquivocation(b []byte) (*Equivocation, error) {
	if len(b) > 3*maxEvidence {
		return nil, fmt.Errorf("%w: a proof of equivocation of %d bytes", ErrSyntax, len(b))
	}
	d := dcbor.NewDecoder(b)
	q := &Equivocation{}
	d.Map()
	d.Key(1)
	head := d.Text()
	d.Key(2)
	genesis := d.Bytes()
	d.Key(3)
	first := d.Bytes()
	d.Key(4)
	second := d.Bytes()
	d.Key(5)
	prefix := d.Bytes()
	d.Key(6)
	for range d.Array() {
		var h merkle.Hash
		if d.Fixed(h[:]); d.Err() != nil {
			break
		}
		q.Consistency = append(q.Consistency, h)
	}
	err := d.Done()
	if err == nil && head != equivocationHead {
		err = fmt.Errorf("it begins with %.40q", head)
	}
	if err == nil && len(genesis) > 0 {
		q.Genesis, err = ledger.ParseGenesis(genesis)
	}
	if err == nil {
		q.First, err = parseEvidence(first, KindCheckpoint)
	}
	if err == nil {
		q.Second, err = parseEvidence(second, KindCheckpoint)
	}
	if err == nil && len(prefix) > 0 && copy(q.Prefix[:], prefix) != len(prefix) {
		err = fmt.Errorf("a head of %d bytes", len(prefix))
	}
	if err == nil && !bytes.Equal(q.Append(nil), b) {
		err = errors.New("encoding it again gives other bytes")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: a proof of equivocation: %w", ErrSyntax, err)
	}
	return q, q.contradicts()
}

// contradicts checks that the two heads can't be of one history.
func (q *Equivocation) contradicts() error {
	a, b := q.First.Note.Checkpoint, q.Second.Note.Checkpoint
	wrong := func(what string) error {
		return fmt.Errorf("%w: a proof of equivocation: %s", merkle.ErrProof, what)
	}
	switch {
	case a.Origin != b.Origin:
		return wrong("it is of two logs")
	case q.Genesis != nil && q.Genesis.Origin() != a.Origin:
		return wrong("its genesis is of another log")
	case a.Size == 0 || a.Size > b.Size:
		return wrong("the first head must be of the smaller size, and of a log that has begun")
	case a.Size == b.Size && (a.Root == b.Root || len(q.Consistency) > 0):
		return wrong("the two heads are one")
	case a.Size == b.Size:
		return nil
	case a.Root == q.Prefix:
		return wrong("the second head continues the first one")
	}
	return merkle.VerifyConsistency(a.Size, b.Size, q.Consistency, q.Prefix, b.Root)
}

// Accused is somebody who vouched for both heads.
type Accused struct {
	Who string `json:"who"`
	// Key is the verifier key, where it is one.
	Key     string `json:"key,omitempty"`
	RestsOn string `json:"rests_on"`
}

// Statement is what there is to know of one of the two.
type Statement struct {
	Kind string `json:"kind"`
	Size uint64 `json:"size"`
	Head string `json:"head"` // hexadecimal
	// Attestations are what the verifier's roots say of it.
	Attestations []Attestation `json:"attestations"`
}

// Conviction is what a proof of equivocation comes to.
type Conviction struct {
	Log string `json:"log"`
	// Status is verified where somebody is convicted, else unverifiable.
	Status     ledger.Status `json:"status"`
	Accused    []Accused     `json:"accused"`
	Statements []Statement   `json:"statements"`
	// Counts tells which of two anchors on a chain counts, where that is known: 0 the first of Statements, 1 the second.
	Counts *int   `json:"counts,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Judge says who is convicted: keys that are named by the genesis, whose hash is in the log's name, or by the verifier, and
// roots of the verifier's that vouch for both heads. The heads are known to contradict each other ([ParseEquivocation]).
func (q *Equivocation) Judge(keys []ledger.PublicKey, m *Manifest) *Conviction {
	origin := q.First.Note.Origin
	c := &Conviction{Log: origin, Status: ledger.StatusUnverifiable, Accused: []Accused{}}
	if m == nil {
		m = &Manifest{}
	}
	q.signers(c, keys, m)
	sides := [2][]Attestation{}
	for i, e := range []*Evidence{q.First, q.Second} {
		sides[i] = []Attestation{}
		if e.Kind != KindCheckpoint {
			sides[i] = attest(origin, e, m)
		}
		c.Statements = append(c.Statements, Statement{e.Kind, e.Note.Size, hex.EncodeToString(e.Note.Root[:]), sides[i]})
	}
	for _, a := range sides[0] {
		for _, b := range sides[1] {
			if a.Status != ledger.StatusVerified || b.Status != ledger.StatusVerified || a.Root != b.Root {
				continue
			}
			switch a.Kind {
			case KindEVM:
				c.accuse("the account "+m.Roots[a.Root].Sender, "", "your root "+a.Root)
				counts := 0
				if b.place.before(a.place) {
					counts = 1
				}
				c.Counts = &counts
			case KindDigest:
				c.accuse("whoever signs the digests", m.Roots[a.Root].Key, "your root "+a.Root)
			}
		}
	}
	if len(c.Accused) == 0 {
		c.Why = "no key or root of yours is of anybody who vouched for both heads"
		for _, s := range sides {
			for _, a := range s {
				if a.Why != "" {
					c.Why += "; " + a.Why
				}
			}
		}
	}
	return c
}

// signers convicts the keys that signed both notes.
func (q *Equivocation) signers(c *Conviction, keys []ledger.PublicKey, m *Manifest) {
	both := func(k checkpoint.Key) bool {
		_, a := k.Verify(q.First.Note)
		_, b := k.Verify(q.Second.Note)
		return a == nil && b == nil
	}
	seen := map[string]bool{}
	try := func(k checkpoint.Key, what, restsOn string) {
		if s := k.String(); !seen[s] && both(k) {
			seen[s] = true
			c.accuse(fmt.Sprintf("%s's %s key %x", what, k.Alg, k.ID()), s, restsOn)
		}
	}
	if q.Genesis != nil {
		for _, k := range q.Genesis.Keys {
			try(checkpoint.Key{Name: c.Log, Alg: k.Alg, Public: k.Public}, "the log", "the log's name, which is the hash of the genesis that names the key")
		}
	}
	for _, k := range slices.Concat(keys, m.keys) {
		try(checkpoint.Key{Name: c.Log, Alg: k.Alg, Public: k.Public}, "the log", "a key that you gave")
	}
	for _, name := range m.names() {
		r := m.Roots[name]
		k, err := checkpoint.ParseKey(r.Key)
		if err != nil {
			continue
		}
		switch r.Kind {
		case KindLog:
			if k.Name == c.Log {
				try(k, "the log", "your root "+name)
			}
			for _, w := range r.Witnesses {
				if k, err := checkpoint.ParseKey(w); err == nil {
					try(k, "the witness "+printable([]byte(k.Name)), "your root "+name)
				}
			}
		case KindWitness:
			try(k, "the witness "+printable([]byte(k.Name)), "your root "+name)
		}
	}
}

func (c *Conviction) accuse(who, key, restsOn string) {
	c.Accused = append(c.Accused, Accused{who, key, restsOn})
	c.Status = ledger.StatusVerified
}

// Same tells whether the other says the same of the same log's same signer, only by other statements: one is enough for people.
func (c *Conviction) Same(o *Conviction) bool {
	return c.Log == o.Log && c.Status == o.Status && (len(c.Accused) == 0 || len(o.Accused) > 0 && c.Accused[0] == o.Accused[0])
}

// Alike tells of one of some convictions whether one before it says the same, and where none does, how many after it do.
func Alike(list []*Conviction, i int) (told bool, more int) {
	c := list[i]
	if slices.ContainsFunc(list[:i], c.Same) {
		return true, 0
	}
	for _, o := range list[i+1:] {
		if c.Same(o) {
			more++
		}
	}
	return false, more
}

// Text is the conviction for people.
func (c *Conviction) Text() string {
	var b strings.Builder
	title := map[ledger.Status]string{ledger.StatusVerified: "EQUIVOCATION PROVED", ledger.StatusUnverifiable: "equivocation, by somebody whom you have no key of"}[c.Status]
	fmt.Fprintf(&b, "%s: two histories of log %s\n", title, printable([]byte(c.Log)))
	for i, s := range c.Statements {
		fmt.Fprintf(&b, "  %s: %d epochs under head %s\n", s.Kind, s.Size, s.Head)
		for _, a := range s.Attestations {
			at := ""
			if a.Time != nil {
				at = a.Time.UTC().Format(time.RFC3339) + " "
			}
			fmt.Fprintf(&b, "    %s %s%s %s\n", a.Status, at, a.Root, a.Why)
		}
		if c.Counts != nil && *c.Counts == i {
			b.WriteString("    included first: this one counts\n")
		}
	}
	for _, a := range c.Accused {
		fmt.Fprintf(&b, "  vouched for both: %s\n    which rests on %s\n", a.Who, a.RestsOn)
	}
	if c.Why != "" {
		fmt.Fprintf(&b, "  %s\n", c.Why)
	}
	return b.String()
}

// History is a log as somebody has it, to hold statements on it against.
type History struct {
	Note        *checkpoint.Note
	RootAt      func(size uint64) (merkle.Hash, error)
	Consistency func(old uint64) ([]merkle.Hash, error)
}

// FindEquivocations looks for statements that contradict each other, or one of the histories that are at hand: one proof for each
// log and pair of kinds. gens are the geneses of ledgers among them. Statements on the transparency logs that entries are in
// are looked at too. What is on a ledger whose genesis is given must bear the signature of one of its keys, or of one of keys, to
// which it may have been handed over, or bind the account or deliverer that anchored it, so that nobody is accused by a text that
// anybody can write.
func FindEquivocations(list []*Evidence, histories []*History, keys []ledger.PublicKey, gens ...*ledger.Genesis) ([]*Equivocation, error) {
	f := finder{keys: keys, gens: map[string]*ledger.Genesis{}, at: map[position]bool{}, seen: map[string]bool{}}
	for _, g := range gens {
		f.gens[g.Origin()] = g
	}
	for _, e := range list {
		f.take(e)
		if p, err := ParseInclusion(e.Data); err == nil && e.Kind == KindLog {
			f.take(&Evidence{Kind: KindCheckpoint, Note: p.Note})
		}
	}
	for _, h := range histories {
		f.take(&Evidence{Kind: KindCheckpoint, Note: h.Note})
	}
	for i, e := range f.all {
		for _, o := range f.all[i+1:] {
			if o.Note.Size == e.Note.Size && o.Note.Root != e.Note.Root && o.Note.Origin == e.Note.Origin {
				f.add(&Equivocation{First: e, Second: o})
			}
		}
	}
	for _, h := range histories {
		if !f.binds(&Evidence{Kind: KindCheckpoint, Note: h.Note}) {
			continue
		}
		for _, e := range f.all {
			if err := f.compare(e, h); err != nil {
				return f.out, err
			}
		}
	}
	return f.out, nil
}

type finder struct {
	keys []ledger.PublicKey
	gens map[string]*ledger.Genesis // by origin
	all  []*Evidence
	at   map[position]bool
	seen map[string]bool
	out  []*Equivocation
}

type position struct {
	origin string
	size   uint64
	root   merkle.Hash
	kind   string
}

// take takes a statement up, unless it is one that binds nobody, or says what others of its kind say.
func (f *finder) take(e *Evidence) {
	p := position{e.Note.Origin, e.Note.Size, e.Note.Root, e.Kind}
	if e.Note.Size == 0 || f.at[p] || !f.binds(e) {
		return
	}
	f.at[p] = true
	f.all = append(f.all, e)
}

func (f *finder) binds(e *Evidence) bool {
	gen := f.gens[e.Note.Origin]
	if gen == nil || e.Kind == KindEVM || e.Kind == KindDigest {
		return true
	}
	for _, k := range slices.Concat(gen.Keys, f.keys) {
		if _, err := (checkpoint.Key{Name: e.Note.Origin, Alg: k.Alg, Public: k.Public}).Verify(e.Note); err == nil {
			return true
		}
	}
	return false
}

// compare holds a statement against a history that is longer.
func (f *finder) compare(e *Evidence, h *History) error {
	if e.Note.Origin != h.Note.Origin || e.Note.Size >= h.Note.Size {
		return nil
	}
	root, err := h.RootAt(e.Note.Size)
	if err != nil || root == e.Note.Root {
		return err
	}
	way, err := h.Consistency(e.Note.Size)
	if err != nil {
		return err
	}
	f.add(&Equivocation{First: e, Second: &Evidence{Kind: KindCheckpoint, Note: h.Note}, Prefix: root, Consistency: way})
	return nil
}

func (f *finder) add(q *Equivocation) {
	// Two of one size stand in one order, whoever was looked at first: the proof is one file.
	if a, b := q.First, q.Second; a.Note.Size == b.Note.Size && bytes.Compare(a.Note.Root[:], b.Note.Root[:]) > 0 {
		q.First, q.Second = b, a
	}
	key := q.First.Note.Origin + "\n" + q.First.Kind + "\n" + q.Second.Kind
	if f.seen[key] {
		return
	}
	q.Genesis = f.gens[q.First.Note.Origin]
	q.First, q.Second = bare(q.First), bare(q.Second)
	if q.contradicts() == nil {
		f.seen[key] = true
		f.out = append(f.out, q)
	}
}

// bare is an evidence as it lies in a run's directory: consistency with a bundle proves nothing here.
func bare(e *Evidence) *Evidence { return &Evidence{Kind: e.Kind, Note: e.Note, Data: e.Data} }

// Statements are what a run's directory, or a mirror of it, holds of its log: the proofs of its anchors and its own checkpoint,
// and its history, nil where its epochs don't lead to that checkpoint. A log without a genesis that can be read says nothing.
func Statements(run fs.FS) (*ledger.Genesis, []*Evidence, *History, error) {
	r, err := ledger.OpenReader(run)
	if err != nil {
		return nil, nil, nil, err
	}
	defer r.Close()
	gen := r.Genesis()
	anchors, err := Read(run)
	if err != nil {
		return nil, nil, nil, err
	}
	list := ParseAnchors(anchors)
	note, err := r.Checkpoint()
	if err != nil || note == nil {
		return &gen, list, nil, nil // what is damaged, verifying the log says
	}
	list = append(list, &Evidence{Kind: KindCheckpoint, Note: note})
	var hashes []merkle.Hash
	var tree merkle.Range
	roots := []merkle.Hash{tree.Root()} // by size
	for h, err := range r.Headers(0) {
		if err != nil || tree.Size() == note.Size {
			break
		}
		hashes = append(hashes, h.Hash())
		tree.Append(h.Hash())
		roots = append(roots, tree.Root())
	}
	if tree.Size() != note.Size || tree.Root() != note.Root {
		return &gen, list, nil, nil
	}
	return &gen, list, &History{note,
		func(n uint64) (merkle.Hash, error) { return roots[n], nil },
		func(n uint64) ([]merkle.Hash, error) { return merkle.Consistency(hashes, int(n)) }}, nil
}

// BundleStatements are what a bundle holds of its log: the proofs of its anchors, and the checkpoint that it leads to.
func BundleStatements(b *ledger.Bundle) []*Evidence {
	return append(ParseAnchors(b.Anchors), &Evidence{Kind: KindCheckpoint, Note: b.Checkpoint})
}

// ParseAnchors reads those anchors that can be read.
func ParseAnchors(anchors []ledger.Anchor) []*Evidence {
	var out []*Evidence
	for _, a := range anchors {
		if e, err := ParseEvidence(a.Data); err == nil {
			out = append(out, e)
		}
	}
	return out
}
