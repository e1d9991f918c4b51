package tsa

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest"
	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest/authority"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

func newAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.New(t.TempDir())
	if errors.Is(err, authority.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSuite(t *testing.T) {
	anchortest.Suite(t, func(t *testing.T, _ *anchortest.Log) *anchortest.Fixture {
		a := newAuthority(t)
		var down atomic.Bool
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				http.Error(w, "down", http.StatusServiceUnavailable)
				return
			}
			a.ServeHTTP(w, r)
		}))
		t.Cleanup(web.Close)
		root := proof.Root{Kind: proof.KindTSA, Certificates: a.Root, TSAPolicy: authority.Policy, Accuracy: 1}
		return &anchortest.Fixture{
			Mechanism: &Mechanism{URL: web.URL, Root: &root},
			Root:      func() proof.Root { return root },
			Down:      func(d bool) { down.Store(d) },
		}
	})
}

// TestLies: what an authority says that isn't an answer, or not from whom it should be, is no anchor.
func TestLies(t *testing.T) {
	h, other := newAuthority(t), newAuthority(t).Root
	for name, c := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"garbage":     {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("yes")) }), "answer"},
		"rejection":   {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0x30, 5, 0x30, 3, 2, 1, 2}) }), "refused: status 2"},
		"stranger":    {h, "doesn't lead to a root"},
		"endless":     {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }), "answer"},
		"not allowed": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "pay", http.StatusPaymentRequired) }), "402"},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(c.handler)
			defer web.Close()
			log := anchortest.NewLog()
			log.Grow("x")
			head, err := log.Head()
			if err != nil {
				t.Fatal(err)
			}
			m := &Mechanism{URL: web.URL, Root: &proof.Root{Kind: proof.KindTSA, Certificates: other}}
			ticket, err := m.Prepare(t.Context(), head, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Advance(t.Context(), head, ticket); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q in it", err, c.want)
			}
		})
	}
}
