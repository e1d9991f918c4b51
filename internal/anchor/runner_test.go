package anchor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// paid anchors at once, at a price.
type paid struct{ sizes []uint64 }

func (p *paid) Kind() string { return proof.KindDigest }
func (p *paid) Prepare(context.Context, anchor.Head, []byte) ([]byte, error) {
	return []byte("ticket"), nil
}
func (p *paid) Advance(_ context.Context, h anchor.Head, _ []byte) (anchor.Step, error) {
	p.sizes = append(p.sizes, h.Size)
	return anchor.Step{State: anchor.Final, Cost: 2, Evidence: &proof.Evidence{Kind: proof.KindDigest, Note: h.Note}}, nil
}

// TestBudget: what may be spent widens the interval, up to what the log promises.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name     string
		every    time.Duration
		budget   float64
		promised time.Duration
		want     int // anchors in 24 hours, with a new head every minute
	}{
		{"no budget", time.Hour, 0, 0, 24},
		{"enough", time.Hour, 1000, 0, 24},
		{"half", time.Hour, 24, 0, 12},
		{"none to speak of", time.Hour, 1, 0, 1},
		{"promised", time.Hour, 1, 4 * time.Hour, 6},
		{"promised more than asked for", 3 * time.Hour, 0, 2 * time.Hour, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			log := anchortest.NewLog()
			log.Promise(c.promised)
			m := &paid{}
			r, err := anchor.NewRunner(t.TempDir(), m, log, anchor.Options{Name: "a", Every: c.every, Budget: c.budget, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for range 24 * 60 / 10 {
				log.Grow("x")
				if err := r.Step(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				now = now.Add(10 * time.Minute)
			}
			if len(m.sizes) != c.want {
				t.Errorf("%d anchors in a day, want %d: %v", len(m.sizes), c.want, m.sizes)
			}
			if s := r.Status(); s.Count != c.want || s.Spent != 2*float64(c.want) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestOneRunner(t *testing.T) {
	dir := t.TempDir()
	log := anchortest.NewLog()
	r, err := anchor.NewRunner(dir, &paid{}, log, anchor.Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anchor.NewRunner(dir, &paid{}, log, anchor.Options{Name: "a"}); err == nil {
		t.Error("two runners are at work on one anchor")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a/b", "..", "-x"} {
		if _, err := anchor.NewRunner(dir, &paid{}, log, anchor.Options{Name: name}); err == nil {
			t.Errorf("an anchor may be called %q", name)
		}
	}
}

// TestConflict: a fork is an alarm that stays, not something to try again.
func TestConflict(t *testing.T) {
	dir := t.TempDir()
	log := anchortest.NewLog()
	log.Grow("x")
	for range 2 {
		r, err := anchor.NewRunner(dir, forked{}, log, anchor.Options{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, anchor.ErrConflict) {
			t.Errorf("%v", err)
		}
		if s := r.Status(); s.Way == nil || s.Way.State != anchor.Conflict {
			t.Errorf("%+v", s)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

type forked struct{}

func (forked) Advance(context.Context, anchor.Head, []byte) (anchor.Step, error) {
	return anchor.Step{}, anchor.ErrConflict
}
func (forked) Kind() string { return proof.KindDigest }
func (forked) Prepare(context.Context, anchor.Head, []byte) ([]byte, error) {
	return nil, nil
}
