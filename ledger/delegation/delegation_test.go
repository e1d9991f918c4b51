package delegation_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// log is a recorder with its log, in the clear so that the test reads it without keys.
type log struct {
	t       *testing.T
	name    string
	dir     string
	signers []checkpoint.Signer
	w       *ledger.Writer
	*delegation.Party
}

func newLog(t *testing.T, name string, seed byte) *log {
	t.Helper()
	l := &log{t: t, name: name, dir: t.TempDir()}
	for _, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44} {
		s, err := checkpoint.NewSigner(alg, []byte(strings.Repeat(string(rune(seed)), 32)))
		l.must(err)
		l.signers = append(l.signers, s)
	}
	w, err := ledger.Create(posixstore.New(l.dir), l.options())
	l.must(err)
	return l.with(w)
}

func (l *log) options() ledger.Options {
	return ledger.Options{Name: "test/" + l.name, Recorder: l.name, Signers: l.signers, Clear: true, CheckpointEvery: time.Millisecond}
}

func (l *log) with(w *ledger.Writer) *log {
	l.w, l.Party = w, delegation.New(w, os.DirFS(l.dir), l.signers)
	l.t.Cleanup(func() { l.Party.Close(); w.Close() })
	return l
}

// copyOf is a second history that begins as the first stands now, under the same keys.
func (l *log) copyOf() *log {
	l.t.Helper()
	o := &log{t: l.t, name: l.name, dir: l.t.TempDir(), signers: l.signers}
	o.must(os.CopyFS(o.dir, os.DirFS(l.dir)))
	w, err := ledger.Open(posixstore.New(o.dir), o.options())
	o.must(err)
	return o.with(w)
}

func (l *log) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("%s: %v", l.name, err)
	}
}

func (l *log) note(what string) {
	l.t.Helper()
	_, err := l.w.Append(l.t.Context(), ledger.Entry{Type: ledger.TypeUser, Kind: "x", Payload: []byte(what), Durability: ledger.DurableEvent})
	l.must(err)
}

// sealed seals what there is and waits until a checkpoint covers it.
func (l *log) sealed() *log {
	l.t.Helper()
	l.must(l.w.Seal())
	for {
		if n := l.w.Checkpoint(); n != nil {
			r, err := ledger.OpenReader(os.DirFS(l.dir))
			l.must(err)
			done := n.Size == r.Epochs()
			l.must(r.Close())
			if done {
				return l
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (l *log) end() *log {
	l.t.Helper()
	l.must(l.w.Close())
	return l
}

func (l *log) side() *delegation.Side {
	l.t.Helper()
	r, err := ledger.OpenReader(os.DirFS(l.dir))
	l.must(err)
	defer r.Close()
	s, err := delegation.FromLog(r, l.name)
	l.must(err)
	return s
}

func (l *log) bundle() *ledger.Bundle {
	l.t.Helper()
	r, err := ledger.OpenReader(os.DirFS(l.dir))
	l.must(err)
	defer r.Close()
	b, err := r.Disclose(l.side().Disclose())
	l.must(err)
	return b
}

func (l *log) keys() (out []ledger.PublicKey) {
	for _, s := range l.signers {
		alg, pub := s.Public()
		out = append(out, ledger.PublicKey{Alg: alg, Public: pub})
	}
	return out
}

func (l *log) request(scope string) *delegation.Receipt {
	l.t.Helper()
	subject := ledger.Hash(sha256.Sum256([]byte("body")))
	r, err := l.Request(l.t.Context(), delegation.Terms{To: "b.example:80", Scope: scope, Subject: &subject})
	l.must(err)
	return r
}

func (l *log) accept(r *delegation.Receipt) *delegation.Receipt {
	l.t.Helper()
	a, err := l.Accept(l.t.Context(), r, time.Minute, nil)
	l.must(err)
	return a
}

// handOver carries a whole delegation out.
func handOver(a, b *log, scope string) (req, acc *delegation.Receipt) {
	a.t.Helper()
	req = a.request(scope)
	// What goes over the wire is the header's value.
	got, err := delegation.ParseHeaderValue(req.HeaderValue())
	b.must(err)
	acc, err = delegation.ParseHeaderValue(b.accept(got).HeaderValue())
	a.must(err)
	a.must(a.Acknowledge(a.t.Context(), req, acc))
	return req, acc
}

func expect(t *testing.T, j *delegation.Judgement, want delegation.Status, why string) {
	t.Helper()
	if j.Status != want || !slices.ContainsFunc(j.Delegations, func(d delegation.Delegation) bool {
		return d.Status == want && (why == "" || strings.Contains(strings.Join(d.Why, "\n"), why))
	}) {
		t.Fatalf("it is %s, want %s because of %q: %+v", j.Status, want, why, j.Delegations)
	}
}

// TestHonest: both logs shown; one with the other's bundle; one with the other's proof embedded; one alone.
func TestHonest(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	a.note("before")
	handOver(a, b, "read only")
	handOver(a, b, "write to /w")
	b.note("after")
	ab, bb := a.sealed().bundle(), b.sealed().bundle()
	a.must(a.Prove(t.Context(), bb))
	b.must(b.Prove(t.Context(), ab))
	a.end()
	b.end()

	j := delegation.Judge(nil, a.side(), b.side())
	expect(t, j, delegation.Verified, "")
	if len(j.Delegations) != 2 || j.Delegations[1].Scope != "write to /w" || *j.Delegations[1].Accept == 0 || j.Lower(ledger.Verified) != ledger.Verified {
		t.Errorf("%+v", j.Delegations)
	}
	expect(t, delegation.Judge(nil, b.side(), a.side()), delegation.Verified, "")
	expect(t, delegation.Judge(nil, a.side(), delegation.FromBundle(b.bundle(), "b.bundle")), delegation.Verified, "")
	expect(t, delegation.Judge(nil, delegation.FromBundle(a.bundle(), "a.bundle"), b.side()), delegation.Verified, "")
	expect(t, delegation.Judge(nil, a.side()), delegation.Unverifiable, "you haven't said whose keys")
	expect(t, delegation.Judge(b.keys(), a.side()), delegation.Verified, "")
	expect(t, delegation.Judge(a.keys(), b.side()), delegation.Verified, "")
	expect(t, delegation.Judge(a.keys(), a.side()), delegation.Unverifiable, "")

	// What each embeds of the other pins it: the logs as they are lead there.
	heads := a.side().Heads(b.side().ID)
	report, err := ledger.Verify(t.Context(), os.DirFS(b.dir), ledger.VerifyOptions{Trust: ledger.Trust{Keys: b.keys(), Pinned: heads}})
	if err != nil || report.Verdict != ledger.Verified || len(heads) != 1 {
		t.Fatalf("%+v, %v, %d heads", report, err, len(heads))
	}
}

// TestClosed: one side's log can't be read here. What it signed, as the other side embeds it, is held against its digests.
func TestClosed(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	handOver(a, b, "x")
	closed := func(l *log) *delegation.Side {
		l.sealed()
		r, err := ledger.OpenReader(os.DirFS(l.dir))
		l.must(err)
		defer r.Close()
		what := l.side().Disclose()
		for i := range what {
			what[i].Closed = true
		}
		bundle, err := r.Disclose(what)
		l.must(err)
		return delegation.FromBundle(bundle, l.name+".bundle")
	}
	j := delegation.Judge(nil, a.side(), closed(b))
	expect(t, j, delegation.Verified, "")
	if len(j.Delegations) != 1 {
		t.Errorf("%+v", j.Delegations)
	}
	expect(t, delegation.Judge(nil, closed(a), closed(b)), delegation.Unverifiable, "stays closed")
}

func TestAlone(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	handOver(a, b, "x")
	expect(t, delegation.Judge(nil, a.side()), delegation.Unverifiable, "the other side")
	expect(t, delegation.Judge(nil, b.side()), delegation.Unverifiable, "the side that asked")
	if j := delegation.Judge(nil, a.side()); j.Lower(ledger.Verified) != ledger.Verified {
		t.Error("a log that is whole is called incomplete since another isn't shown")
	}
}

// TestLeftOut: each side in turn goes on from a copy that lacks what it signed.
func TestLeftOut(t *testing.T) {
	t.Run("b", func(t *testing.T) {
		a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
		forked := b.copyOf()
		handOver(a, b, "x")
		forked.note("nothing happened")
		expect(t, delegation.Judge(nil, a.side(), forked.end().side()), delegation.Tampered, "accepts this, and b has no such record")
	})
	t.Run("a", func(t *testing.T) {
		a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
		forked := a.copyOf()
		handOver(a, b, "x")
		forked.note("nothing happened")
		j := delegation.Judge(nil, forked.end().side(), b.side())
		expect(t, j, delegation.Tampered, "hands this over, and a has no such record")
		if j.Lower(ledger.Verified) != ledger.Tampered {
			t.Error("it lowers nothing")
		}
	})
	t.Run("the answer", func(t *testing.T) {
		a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
		b.accept(a.request("x"))
		expect(t, delegation.Judge(nil, a.side(), b.side()), delegation.Incomplete, "doesn't embed the answer")
		// As `delegate prove` mends it.
		owed, err := a.side().Owes(b.side(), func(r *delegation.Receipt, seq uint64) (*delegation.Receipt, error) {
			lr, err := ledger.OpenReader(os.DirFS(b.dir))
			b.must(err)
			defer lr.Close()
			return delegation.SignAccept(lr, b.signers, r, seq)
		})
		if err != nil || len(owed.Acks) != 1 || !owed.Proof {
			t.Fatalf("%+v, %v", owed, err)
		}
		a.must(a.Acknowledge(t.Context(), owed.Acks[0].Request, owed.Acks[0].Accept))
		expect(t, delegation.Judge(nil, a.side(), b.side()), delegation.Verified, "")
	})
	t.Run("never came", func(t *testing.T) {
		a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
		a.request("x")
		expect(t, delegation.Judge(nil, a.side(), b.side()), delegation.Incomplete, "no log that is shown accepted it")
		expect(t, delegation.Judge(nil, a.side()), delegation.Unverifiable, "")
	})
}

// TestFork: B shows its partner one history and the verifier another, in which the same request was accepted too.
func TestFork(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	forked := b.copyOf()
	req, _ := handOver(a, b, "x")
	forked.note("something else first")
	forked.accept(req)
	forked.end()
	expect(t, delegation.Judge(nil, a.side(), forked.side()), delegation.Tampered, "has no such record")

	// And where A holds a proof from B, the head in it convicts the fork by itself.
	a.must(a.Prove(t.Context(), b.sealed().bundle()))
	pins := a.side().Heads(b.side().ID)
	report, err := ledger.Verify(t.Context(), os.DirFS(forked.dir), ledger.VerifyOptions{Trust: ledger.Trust{Keys: b.keys(), Pinned: pins}})
	if err != nil || report.Verdict != ledger.Tampered {
		t.Fatalf("the fork is %v, %v", report.Verdict, err)
	}
}

// TestReplay: a receipt serves once, and in one log.
func TestReplay(t *testing.T) {
	a, b, c := newLog(t, "a", 'a'), newLog(t, "b", 'b'), newLog(t, "c", 'c')
	req, _ := handOver(a, b, "x")
	if _, err := b.Accept(t.Context(), req, 0, nil); !errors.Is(err, delegation.ErrReplay) {
		t.Errorf("accepted again: %v", err)
	}
	if _, err := a.Accept(t.Context(), req, 0, nil); !errors.Is(err, delegation.ErrReplay) {
		t.Errorf("accepted by the log that asked: %v", err)
	}
	c.accept(req) // C can't know
	j := delegation.Judge(nil, a.side(), c.side())
	expect(t, j, delegation.Replayed, "another log answered")
	if j.Lower(ledger.Verified) != ledger.Incomplete {
		t.Error("a replay is called verified")
	}
	// A recorder that forgot: a new party over the same log.
	b.with(b.w).accept(req)
	expect(t, delegation.Judge(nil, a.side(), b.side()), delegation.Replayed, "had accepted before")

	time.Sleep(2 * time.Millisecond)
	if _, err := c.Accept(t.Context(), a.request("y"), time.Nanosecond, nil); !errors.Is(err, delegation.ErrStale) {
		t.Errorf("an old receipt: %v", err)
	}
	other := ledger.Hash(sha256.Sum256([]byte("another body")))
	if _, err := c.Accept(t.Context(), a.request("y"), 0, &other); !errors.Is(err, delegation.ErrSubject) {
		t.Errorf("a receipt for something else: %v", err)
	}
}

// TestEdited: every byte of a receipt is signed, and another log's key doesn't do.
func TestEdited(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	req := a.request("read only")
	terms, err := req.Terms()
	b.must(err)
	terms.Scope = "everything"
	edited := *req
	edited.Content = terms.Append(nil)
	mallory := newLog(t, "mallory", 'm')
	resigned := mallory.request("everything")
	resigned.Genesis = req.Genesis
	for name, r := range map[string]*delegation.Receipt{"scope": &edited, "another log's key": resigned} {
		if _, err := b.Accept(t.Context(), r, 0, nil); !errors.Is(err, delegation.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	raw := req.Append(nil)
	for i := range raw {
		raw[i] ^= 1
		if r, err := delegation.ParseReceipt(raw); err == nil && r.Verify() == nil {
			t.Fatalf("with byte %d changed it still holds", i)
		}
		raw[i] ^= 1
	}
	b.must(b.Asserted(t.Context(), []byte(base64.StdEncoding.EncodeToString(edited.Append(nil)))))
	expect(t, delegation.Judge(nil, a.side(), b.side()), delegation.Asserted, "without a receipt")
	// An answer to one request isn't one to another.
	acc := b.accept(req)
	if err := a.Acknowledge(t.Context(), a.request("z"), acc); !errors.Is(err, delegation.ErrSubject) {
		t.Errorf("an answer to another request: %v", err)
	}
}

// TestSignedLater: a side that cut its record out signs a receipt anew for one that it made later.
func TestSignedLater(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	forked := a.copyOf()
	req := a.request("read only")
	b.accept(req)
	terms, err := req.Terms()
	b.must(err)
	forked.note("something else")
	again, err := forked.Request(t.Context(), *terms) // the same nonce
	b.must(err)
	if again.Record == req.Record {
		t.Fatal("the record is the same")
	}
	expect(t, delegation.Judge(nil, forked.side(), b.side()), delegation.Tampered, "left out, moved or changed")

	// B does so: its record of the acceptance is made again in another place.
	a2, b2 := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	fork2 := b2.copyOf()
	req2, _ := handOver(a2, b2, "x")
	fork2.note("first")
	fork2.accept(req2)
	expect(t, delegation.Judge(nil, a2.side(), fork2.side()), delegation.Tampered, "left out, moved or changed")
}

// TestAtOnce: many hand over and accept at the same time, while epochs are sealed.
func TestAtOnce(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	var all sync.WaitGroup
	const n = 40
	for i := range n {
		all.Go(func() {
			req, err := a.Request(t.Context(), delegation.Terms{To: "b", Scope: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
				return
			}
			// Of two that bring the same receipt one is refused.
			var got [2]*delegation.Receipt
			var errs [2]error
			var both sync.WaitGroup
			for k := range got {
				both.Go(func() { got[k], errs[k] = b.Accept(t.Context(), req, time.Minute, nil) })
			}
			both.Wait()
			k := 0
			if errs[0] != nil {
				k = 1
			}
			if errs[k] != nil || !errors.Is(errs[1-k], delegation.ErrReplay) {
				t.Errorf("%v, %v", errs[0], errs[1])
				return
			}
			if err := a.Acknowledge(t.Context(), req, got[k]); err != nil {
				t.Error(err)
			}
			if i%8 == 0 {
				if err := errors.Join(a.w.Seal(), b.w.Seal()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	j := delegation.Judge(nil, a.end().side(), b.end().side())
	if j.Status != delegation.Verified || len(j.Delegations) != n {
		t.Errorf("%s, %d delegations: %s", j.Status, len(j.Delegations), j.Summary())
	}
}

// TestRotated: a receipt that was signed after the log's keys were handed over is verified with the log at hand.
func TestRotated(t *testing.T) {
	a, b := newLog(t, "a", 'a'), newLog(t, "b", 'b')
	next := newLog(t, "other", 'n').signers
	b.must(b.w.Rotate(next))
	b.Party = delegation.New(b.w, os.DirFS(b.dir), next)
	req := a.request("x")
	acc := b.accept(req)
	if err := a.Acknowledge(context.Background(), req, acc); !errors.Is(err, delegation.ErrSignature) {
		t.Errorf("who sees the receipt alone can't know the new keys: %v", err)
	}
	side := b.side()
	expect(t, delegation.Judge(nil, a.side(), side), delegation.Incomplete, "doesn't embed the answer")
}

func FuzzReceipt(f *testing.F) {
	seed, err := os.ReadFile("testdata/receipt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := delegation.ParseReceipt(b)
		if err == nil {
			if string(r.Append(nil)) != string(b) {
				t.Fatal("two encodings of one receipt")
			}
			_ = r.Verify()
		}
		if j, err := delegation.JSON(b); err != nil || !json.Valid(j) {
			t.Fatalf("%s, %v", j, err)
		}
		if tm, err := delegation.ParseTerms(b); err == nil && string(tm.Append(nil)) != string(b) {
			t.Fatal("two encodings of the same terms")
		}
	})
}

// TestReceipt keeps the committed receipt true to the format.
func TestReceipt(t *testing.T) {
	b, err := os.ReadFile("testdata/receipt")
	if err != nil {
		t.Fatal(err)
	}
	r, err := delegation.ParseReceipt(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(); err != nil {
		t.Fatal(err)
	}
	if terms, err := r.Terms(); err != nil || terms.Scope != "read only" || terms.To != "b.example:80" {
		t.Errorf("%+v, %v", terms, err)
	}
}
