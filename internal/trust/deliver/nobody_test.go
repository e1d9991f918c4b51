package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

// refusing refuses the first connections, -1: all.
type refusing struct {
	n    int64
	seen atomic.Int64
}

func (r *refusing) Say(_ context.Context, m Message) (*Answer, error) {
	if n := r.seen.Add(1); r.n < 0 || n <= r.n {
		return nil, fmt.Errorf("asking: %w", syscall.ECONNREFUSED)
	}
	return &Answer{Text: "yes", Session: m.Session}, nil
}

// Where nobody listens it ends soon, and hands nothing over; one refusal is no absence.
func TestNobody(t *testing.T) {
	probes := make([]trust.Probe, 20)
	for i := range probes {
		probes[i].ID, probes[i].Text = fmt.Sprint(i), "hello"
	}
	for _, c := range []struct {
		refuse int64
		probes int
		handed int
		err    error
	}{{-1, 20, 0, ErrNobody}, {-1, 2, 0, ErrNobody}, {2, 20, 20, nil}} {
		a := &refusing{n: c.refuse}
		handed := 0
		err := Run(context.Background(), a, probes[:c.probes], Options{Concurrency: 1}, func(*trust.Exchange) error { handed++; return nil })
		if !errors.Is(err, c.err) || handed != c.handed || a.seen.Load() > int64(c.probes) {
			t.Errorf("%+v: %v, %d handed over, %d asked", c, err, handed, a.seen.Load())
		}
	}
}
