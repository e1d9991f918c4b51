package proof_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// forked is a ledger of which two histories are signed: they part at epoch 3.
type forked struct {
	gen      *ledger.Genesis
	signer   checkpoint.Signer
	one, two []merkle.Hash
}

func newForked(t testing.TB) *forked {
	t.Helper()
	f := &forked{signer: signer(t, checkpoint.Ed25519, 1), one: leaves(8), two: leaves(8)}
	for i := 3; i < 8; i++ {
		f.two[i] = merkle.LeafHash([]byte{'o', byte(i)})
	}
	k := ledger.PublicKey{}
	k.Alg, k.Public = f.signer.Public()
	f.gen = &ledger.Genesis{Profile: ledger.ProfileDefault, Name: "example.org", Created: 1, Keys: []ledger.PublicKey{k},
		EpochRecords: 100, EpochAge: time.Second, Heartbeat: time.Minute}
	if _, err := ledger.ParseGenesis(f.gen.AppendCBOR(nil)); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *forked) note(t testing.TB, tree []merkle.Hash, size int) *checkpoint.Note {
	t.Helper()
	n, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: f.gen.Origin(), Size: uint64(size), Root: merkle.Root(tree[:size])}, f.gen.Origin(), 0, f.signer)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (f *forked) statement(t testing.TB, tree []merkle.Hash, size int) *proof.Evidence {
	t.Helper()
	return &proof.Evidence{Kind: proof.KindCheckpoint, Note: f.note(t, tree, size)}
}

func (f *forked) history(t testing.TB, tree []merkle.Hash, size int) *proof.History {
	return &proof.History{
		Note:        f.note(t, tree, size),
		RootAt:      func(n uint64) (merkle.Hash, error) { return merkle.Root(tree[:n]), nil },
		Consistency: func(n uint64) ([]merkle.Hash, error) { return merkle.Consistency(tree[:size], int(n)) },
	}
}

func one(t testing.TB, list []*proof.Equivocation, err error) *proof.Equivocation {
	t.Helper()
	if err != nil || len(list) != 1 {
		t.Fatalf("%d proofs, %v; want one", len(list), err)
	}
	b := list[0].Append(nil)
	q, err := proof.ParseEquivocation(b)
	if err != nil || !proof.IsEquivocation("x", b) {
		t.Fatalf("what was found can't be read back: %v", err)
	}
	return q
}

// TestEquivocation: a stranger with nothing but the file is convinced, for the log's name is the hash of its genesis.
func TestEquivocation(t *testing.T) {
	f := newForked(t)
	a5, b5, a3 := f.statement(t, f.one, 5), f.statement(t, f.two, 5), f.statement(t, f.one, 3)
	find := func(h *proof.History, list ...*proof.Evidence) ([]*proof.Equivocation, error) {
		if h == nil {
			return proof.FindEquivocations(list, nil, nil, f.gen)
		}
		return proof.FindEquivocations(list, []*proof.History{h}, nil, f.gen)
	}
	list, err := find(nil, a5, b5)
	same := one(t, list, err)
	list, err = find(f.history(t, f.two, 8), a5)
	grown := one(t, list, err)
	for name, q := range map[string]*proof.Equivocation{"one size": same, "two sizes": grown} {
		c := q.Judge(nil, nil)
		if c.Status != ledger.StatusVerified || len(c.Accused) != 1 || !strings.Contains(c.Accused[0].Who, "the log's ed25519 key") || !strings.Contains(c.Accused[0].Key, f.gen.Origin()) {
			t.Errorf("%s: %+v", name, c)
		}
		if s := c.Text(); !strings.Contains(s, "EQUIVOCATION PROVED") || !strings.Contains(s, "hash of the genesis") {
			t.Errorf("%s: %s", name, s)
		}
		bare := *q
		bare.Genesis = nil
		if c := bare.Judge(nil, nil); c.Status != ledger.StatusUnverifiable || len(c.Accused) != 0 {
			t.Errorf("%s: without the genesis and a key it is %s", name, c.Status)
		}
		if c := bare.Judge(f.gen.Keys, nil); c.Status != ledger.StatusVerified {
			t.Errorf("%s: with a key of the verifier's it is %s", name, c.Status)
		}
	}
	// Honest logs accuse nobody, however many statements there are.
	for name, h := range map[string]*proof.History{"none": nil, "longer": f.history(t, f.one, 8), "the same": f.history(t, f.one, 5), "shorter": f.history(t, f.one, 2)} {
		if list, err := find(h, a5, a3, a5); err != nil || len(list) != 0 {
			t.Errorf("history %s: %d proofs, %v", name, len(list), err)
		}
	}
	// What no key of the log's signed accuses nobody either.
	forged := *b5.Note
	forged.Signatures = nil
	other := signer(t, checkpoint.Ed25519, 9)
	if n, err := checkpoint.Sign(b5.Note.Checkpoint, f.gen.Origin(), 0, other); err != nil {
		t.Fatal(err)
	} else {
		forged.Signatures = n.Signatures
	}
	if list, err := find(nil, a5, &proof.Evidence{Kind: proof.KindCheckpoint, Note: &forged}); err != nil || len(list) != 0 {
		t.Errorf("a forged checkpoint: %d proofs, %v", len(list), err)
	}
	if c := (&proof.Equivocation{Genesis: f.gen, First: a5, Second: &proof.Evidence{Kind: proof.KindCheckpoint, Note: &forged}}).Judge(nil, nil); c.Status != ledger.StatusUnverifiable {
		t.Errorf("a forged checkpoint convicts: %+v", c)
	}
}

// TestEquivocationRefuses: every part is needed.
func TestEquivocationRefuses(t *testing.T) {
	f := newForked(t)
	a5, b5, b8 := f.statement(t, f.one, 5), f.statement(t, f.two, 5), f.statement(t, f.two, 8)
	way, err := merkle.Consistency(f.two[:8], 5)
	if err != nil {
		t.Fatal(err)
	}
	stranger := newForked(t)
	stranger.gen.Name = "elsewhere"
	zero := &proof.Evidence{Kind: proof.KindCheckpoint, Note: note(t, 0)}
	for name, q := range map[string]*proof.Equivocation{
		"one head twice":           {First: a5, Second: a5},
		"another log":              {First: a5, Second: stranger.statement(t, f.two, 5)},
		"another log's genesis":    {Genesis: stranger.gen, First: a5, Second: b5},
		"sizes the wrong way":      {First: b8, Second: a5, Prefix: merkle.Root(f.two[:5]), Consistency: way},
		"no consistency":           {First: a5, Second: b8, Prefix: merkle.Root(f.two[:5])},
		"another prefix":           {First: a5, Second: b8, Prefix: merkle.Hash{1}, Consistency: way},
		"the first is the prefix":  {First: b5, Second: b8, Prefix: b5.Note.Root, Consistency: way},
		"a proof where none fits":  {First: a5, Second: b5, Consistency: way},
		"an empty log":             {First: zero, Second: zero},
		"a hash of the way turned": {First: a5, Second: b8, Prefix: merkle.Root(f.two[:5]), Consistency: append([]merkle.Hash{{2}}, way[1:]...)},
	} {
		if _, err := proof.ParseEquivocation(q.Append(nil)); !errors.Is(err, merkle.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := (&proof.Equivocation{Genesis: f.gen, First: a5, Second: b8, Prefix: merkle.Root(f.two[:5]), Consistency: way}).Append(nil)
	q, err := proof.ParseEquivocation(good)
	if err != nil || q.Judge(nil, nil).Status != ledger.StatusVerified {
		t.Fatalf("%v", err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		q, err := proof.ParseEquivocation(bad)
		if err == nil && q.Judge(nil, nil).Status == ledger.StatusVerified {
			t.Fatalf("with byte %d changed it still convicts", i)
		}
	}
	for i := range good {
		if _, err := proof.ParseEquivocation(good[:i]); err == nil {
			t.Fatalf("cut to %d bytes it is read", i)
		}
	}
}

// TestEquivocatingWitness: a witness that cosigned both is convicted by its key, and so is a shared log that showed two heads.
func TestEquivocatingWitness(t *testing.T) {
	f := newForked(t)
	w := signer(t, checkpoint.Cosignature, 3)
	cosigned := func(tree []merkle.Hash) *proof.Evidence {
		n := f.note(t, tree, 5)
		c, err := checkpoint.Sign(n.Checkpoint, "w.example", 100, w)
		if err != nil {
			t.Fatal(err)
		}
		n.Signatures = append(n.Signatures, c.Signatures...)
		return &proof.Evidence{Kind: proof.KindWitness, Note: n}
	}
	list, err := proof.FindEquivocations([]*proof.Evidence{cosigned(f.one), cosigned(f.two)}, nil, nil, f.gen)
	q := one(t, list, err)
	m := &proof.Manifest{Roots: map[string]proof.Root{"w": {Kind: proof.KindWitness, Key: key("w.example", w).String()}}}
	if c := q.Judge(nil, m); len(c.Accused) != 2 || !strings.Contains(c.Accused[1].Who, "witness w.example") || len(c.Statements[0].Attestations) != 1 {
		t.Errorf("%+v", c)
	}

	shared := signer(t, checkpoint.Ed25519, 5)
	entered := func(size int, tree []merkle.Hash) *proof.Evidence {
		n, err := checkpoint.Sign(checkpoint.Checkpoint{Origin: "shared.example", Size: 5, Root: merkle.Root(tree[:5])}, "shared.example", 0, shared)
		if err != nil {
			t.Fatal(err)
		}
		p := proof.Inclusion{Index: 1, Note: n}
		return &proof.Evidence{Kind: proof.KindLog, Note: f.note(t, f.one, size), Data: p.Marshal()}
	}
	list, err = proof.FindEquivocations([]*proof.Evidence{entered(4, f.one), entered(5, f.two)}, nil, nil, f.gen)
	q = one(t, list, err)
	if q.First.Note.Origin != "shared.example" || q.Genesis != nil {
		t.Fatalf("it is of %s", q.First.Note.Origin)
	}
	if c := q.Judge(nil, nil); c.Status != ledger.StatusUnverifiable {
		t.Errorf("without its key it is %s", c.Status)
	}
	m = &proof.Manifest{Roots: map[string]proof.Root{"shared": {Kind: proof.KindLog, Key: key("shared.example", shared).String()}}}
	if c := q.Judge(nil, m); c.Status != ledger.StatusVerified || len(c.Accused) != 1 {
		t.Errorf("%+v", c)
	}
}

// TestEquivocationAfterHandOver: keys to which the log was handed over are found out too, by who knows them.
func TestEquivocationAfterHandOver(t *testing.T) {
	f := newForked(t)
	f.signer = signer(t, checkpoint.Ed25519, 8)
	k := ledger.PublicKey{}
	k.Alg, k.Public = f.signer.Public()
	pair := []*proof.Evidence{f.statement(t, f.one, 5), f.statement(t, f.two, 5)}
	if list, err := proof.FindEquivocations(pair, nil, nil, f.gen); err != nil || len(list) != 0 {
		t.Errorf("by an unknown key: %d proofs, %v", len(list), err)
	}
	list, err := proof.FindEquivocations(pair, nil, []ledger.PublicKey{k}, f.gen)
	q := one(t, list, err)
	if c := q.Judge(nil, nil); c.Status != ledger.StatusUnverifiable {
		t.Errorf("a stranger who doesn't know the key: %s", c.Status)
	}
	if c := q.Judge([]ledger.PublicKey{k}, nil); c.Status != ledger.StatusVerified {
		t.Errorf("with the key: %s", c.Status)
	}
}

// TestEquivocationExample keeps the example of docs/FORMAT.md true. UPDATE_FORMAT=1 prints it.
func TestEquivocationExample(t *testing.T) {
	f := newForked(t)
	list, err := proof.FindEquivocations([]*proof.Evidence{f.statement(t, f.one, 5)}, []*proof.History{f.history(t, f.two, 8)}, nil, f.gen)
	want := one(t, list, err).Append(nil)
	if os.Getenv("UPDATE_FORMAT") != "" {
		s := hex.EncodeToString(want)
		for len(s) > 0 {
			n := min(96, len(s))
			t.Log(s[:n])
			s = s[n:]
		}
		t.Log(f.gen.Origin())
	}
	doc, err := os.ReadFile("../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "\n```equivocation\n")
	text, _, _ := strings.Cut(rest, "\n```")
	got, err := hex.DecodeString(strings.ReplaceAll(text, "\n", ""))
	if !ok || err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the example isn't what it should be (%v)", err)
	}
	q, err := proof.ParseEquivocation(got)
	if err != nil {
		t.Fatal(err)
	}
	if c := q.Judge(nil, nil); c.Status != ledger.StatusVerified {
		t.Errorf("%+v", c)
	}
}

func FuzzEquivocation(f *testing.F) {
	k := newForked(f)
	list, err := proof.FindEquivocations([]*proof.Evidence{k.statement(f, k.one, 5)}, []*proof.History{k.history(f, k.two, 8)}, nil, k.gen)
	f.Add(one(f, list, err).Append(nil))
	list, err = proof.FindEquivocations([]*proof.Evidence{k.statement(f, k.one, 5), k.statement(f, k.two, 5)}, nil, nil, k.gen)
	f.Add(one(f, list, err).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := proof.ParseEquivocation(b)
		if err != nil {
			return
		}
		if !bytes.Equal(q.Append(nil), b) {
			t.Fatal("it has two encodings")
		}
		q.Judge(nil, nil)
	})
}
