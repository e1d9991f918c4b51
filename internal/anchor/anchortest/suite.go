// Package anchortest is the suite that every mechanism of package anchor passes.
package anchortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// Origin is that of the suite's log.
const Origin = "anchortest.example/log"

// Log is a log that grows when it is told to. It implements [anchor.Source].
type Log struct {
	signer   checkpoint.Signer
	leaves   []merkle.Hash
	promised time.Duration
}

// NewLog makes a log. All of them have one key and origin, so that two of them are a fork.
func NewLog() *Log {
	s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		panic(err) // of constants
	}
	return &Log{signer: s}
}

// Key is the log's verifier key.
func (l *Log) Key() checkpoint.Key {
	k := checkpoint.Key{Name: Origin}
	k.Alg, k.Public = l.signer.Public()
	return k
}

// Grow adds an epoch; what tells forks apart.
func (l *Log) Grow(what string) {
	l.leaves = append(l.leaves, merkle.LeafHash(fmt.Appendf(nil, "%s %d", what, len(l.leaves))))
}

// Promise sets what the log's genesis promises.
func (l *Log) Promise(d time.Duration) { l.promised = d }

// Origin implements [anchor.Source].
func (l *Log) Origin() string { return Origin }

// Promised implements [anchor.Source].
func (l *Log) Promised() time.Duration { return l.promised }

// Head implements [anchor.Source].
func (l *Log) Head() (anchor.Head, error) {
	if len(l.leaves) == 0 {
		return anchor.Head{}, nil
	}
	c := checkpoint.Checkpoint{Origin: Origin, Size: uint64(len(l.leaves)), Root: merkle.Root(l.leaves)}
	n, err := checkpoint.Sign(c, Origin, 0, l.signer)
	if err != nil {
		return anchor.Head{}, err
	}
	return l.At(n), nil
}

// At implements [anchor.Source].
func (l *Log) At(n *checkpoint.Note) anchor.Head {
	return anchor.Head{
		Note:        n,
		Consistency: func(old uint64) ([]merkle.Hash, error) { return merkle.Consistency(l.leaves[:n.Size], int(old)) },
		RootAt:      func(size uint64) (merkle.Hash, error) { return merkle.Root(l.leaves[:size]), nil },
	}
}

// Fixture is a mechanism with its outside, fresh.
type Fixture struct {
	Mechanism anchor.Mechanism
	// Root verifies what it leaves behind. It is asked for after the anchor, when the verifier would look.
	Root func() proof.Root
	// Down makes the outside unreachable, and reachable again.
	Down func(bool)
	// Commitments counts what the outside holds of the log, where it holds anything.
	Commitments func() int
	// Turn lets the outside go on: a block is made. It may be nil.
	Turn func()
	// Linear outsides refuse a second history.
	Linear bool
}

type run struct {
	t   *testing.T
	f   *Fixture
	log *Log
	dir string
}

func (r *run) runner(fault func(string) error) *anchor.Runner {
	r.t.Helper()
	k, err := anchor.NewRunner(r.dir, r.f.Mechanism, r.log, anchor.Options{
		Name: "a", Poll: time.Millisecond, Retry: 50 * time.Millisecond, RetryMax: 400 * time.Millisecond, Fault: fault,
		Told: func(anchor.Status) {
			if r.f.Turn != nil {
				r.f.Turn()
			}
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { k.Close() })
	return k
}

func (r *run) flush(k *anchor.Runner) error {
	ctx, stop := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer stop()
	return k.Flush(ctx)
}

func (r *run) mustFlush() {
	r.t.Helper()
	k := r.runner(nil)
	if err := r.flush(k); err != nil {
		r.t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// verified checks that the newest head is verified from what lies in the run's directory, and by nobody without a root.
func (r *run) verified() {
	r.t.Helper()
	anchors, err := proof.Read(os.DirFS(r.dir))
	if err != nil {
		r.t.Fatal(err)
	}
	j := r.judge(anchors, &proof.Manifest{Roots: map[string]proof.Root{"root": r.f.Root()}})
	if size := uint64(len(r.log.leaves)); j.Status != ledger.StatusVerified || j.Anchored != size {
		r.t.Fatalf("it is %s, with %d of %d epochs anchored: %+v", j.Status, j.Anchored, size, j.Attestations)
	}
	if j := r.judge(anchors, &proof.Manifest{}); j.Status != ledger.StatusUnverifiable {
		r.t.Fatalf("without a root it is %s", j.Status)
	}
}

func (r *run) judge(anchors []ledger.Anchor, m *proof.Manifest) *proof.Judgement {
	j := proof.Judge(Origin, anchors, m)
	j.Conclude(uint64(len(r.log.leaves)), time.Time{}, 0)
	return j
}

func (r *run) commitments(want int) {
	r.t.Helper()
	if r.f.Commitments == nil {
		return
	}
	if got := r.f.Commitments(); got != want {
		r.t.Fatalf("the outside holds %d commitments, want %d", got, want)
	}
}

// Suite runs the suite. make is called for every part of it.
func Suite(t *testing.T, make func(t *testing.T, log *Log) *Fixture) {
	part := func(name string, f func(*run)) {
		t.Run(name, func(t *testing.T) {
			log := NewLog()
			f(&run{t: t, f: make(t, log), log: log, dir: t.TempDir()})
		})
	}
	part("nothing to anchor", func(r *run) {
		r.mustFlush()
		r.commitments(0)
	})
	part("anchor and verify", func(r *run) {
		for i := range 3 {
			r.log.Grow("x")
			r.mustFlush()
			r.mustFlush() // the same head again: nothing
			r.commitments(i + 1)
			r.verified()
		}
	})
	part("swapped heads", swapped)
	part("crash at every write", crashes)
	part("outage", outage)
	part("lost state", func(r *run) {
		r.log.Grow("x")
		r.mustFlush()
		if err := os.Remove(filepath.Join(r.dir, proof.Dir, "a.json")); err != nil {
			r.t.Fatal(err)
		}
		r.mustFlush()
		r.commitments(1)
		r.log.Grow("x")
		r.mustFlush()
		r.commitments(2)
		r.verified()
	})
	part("fork", func(r *run) {
		if !r.f.Linear {
			return // this outside keeps no history of a log: what it holds of two, the verifier compares
		}
		r.log.Grow("x")
		r.log.Grow("x")
		r.mustFlush()
		r.log, r.dir = NewLog(), r.t.TempDir()
		for range 3 {
			r.log.Grow("y")
		}
		if err := r.flush(r.runner(nil)); !errors.Is(err, anchor.ErrConflict) {
			r.t.Fatalf("another history was anchored: %v", err)
		}
		r.commitments(1)
	})
}

// swapped: evidence of one head mustn't pass for another.
func swapped(r *run) {
	r.log.Grow("x")
	r.mustFlush()
	anchors, err := proof.Read(os.DirFS(r.dir))
	if err != nil || len(anchors) != 1 {
		r.t.Fatalf("%d proofs, %v", len(anchors), err)
	}
	other := NewLog()
	other.Grow("y")
	h, err := other.Head()
	if err != nil {
		r.t.Fatal(err)
	}
	e, err := proof.ParseEvidence(anchors[0].Data)
	if err != nil {
		r.t.Fatal(err)
	}
	e.Note.Root = h.Root
	j := r.judge([]ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, &proof.Manifest{Roots: map[string]proof.Root{"root": r.f.Root()}})
	if j.Status == ledger.StatusVerified || len(j.Pinned()) > 0 {
		r.t.Fatalf("a swapped head is %s", j.Status)
	}
	data := e.Data
	e.Note.Root = merkle.Hash{}
	for i := range len(data) {
		e.Data = bytes.Clone(data)
		e.Data[i] ^= 1
		j := proof.Judge(Origin, []ledger.Anchor{{Kind: e.Kind, Data: e.Append(nil)}}, &proof.Manifest{Roots: map[string]proof.Root{"root": r.f.Root()}})
		if len(j.Pinned()) > 0 {
			r.t.Fatalf("with byte %d changed a false head is verified", i)
		}
	}
}

// crashes lets the process die at every single write, before it is done, and go on.
func crashes(r *run) {
	died := errors.New("the process died")
	for at := 0; ; at++ {
		r.log.Grow("x")
		n := 0
		reached := false
		k := r.runner(func(string) error {
			if n++; n > at {
				reached = true
				return died
			}
			return nil
		})
		ctx, stop := context.WithCancel(r.t.Context())
		for range 200 {
			if err := k.Step(ctx, true); errors.Is(err, died) || k.Status().Way == nil && k.Status().Size == uint64(len(r.log.leaves)) {
				break
			}
			if r.f.Turn != nil {
				r.f.Turn()
			}
		}
		stop()
		if err := k.Close(); err != nil {
			r.t.Fatal(err)
		}
		r.mustFlush()
		r.commitments(at + 1)
		r.verified()
		if !reached {
			if at < 3 {
				r.t.Fatalf("an anchor took only %d writes", at)
			}
			return
		}
	}
}

// outage: heads that come while the outside can't be reached cost one anchor late, and the newest.
func outage(r *run) {
	r.log.Grow("x")
	r.mustFlush()
	r.f.Down(true)
	k := r.runner(nil)
	var pauses []time.Duration
	for range 5 {
		r.log.Grow("x")
		for range 10 {
			before := k.Status()
			_ = k.Step(r.t.Context(), true)
			if s := k.Status(); attempts(s) > attempts(before) {
				pauses = append(pauses, time.Until(next(s)))
			}
			time.Sleep(8 * time.Millisecond)
		}
	}
	r.commitments(1)
	if n := len(pauses); n < 3 || pauses[n-1] < 3*pauses[0]/2 {
		r.t.Errorf("during the outage it paused %v: that is no back-off", pauses)
	}
	r.f.Down(false)
	if err := r.flush(k); err != nil {
		r.t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.verified()
	if r.f.Commitments != nil {
		if got := r.f.Commitments(); got < 2 || got > 3 {
			r.t.Errorf("after the outage the outside holds %d commitments, want 2 or 3: heads are to be coalesced", got)
		}
	}
}

func attempts(s anchor.Status) int {
	if s.Way != nil {
		return s.Way.Attempts
	}
	return s.Attempts
}

func next(s anchor.Status) time.Time {
	if s.Way != nil {
		return s.Way.Next
	}
	return s.Next
}
