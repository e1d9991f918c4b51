package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/hostlog"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// holder holds the runs that a command reads against their ledgers, with keys that are opened once, and the ledgers against
// what the machine's log of runs knows.
type holder struct {
	ring ringFlags
	once sync.Once
	ids  []age.Identity

	host   sync.Once
	states []*hostlog.State
	unread error // the machine has such a log, and it can't be read
}

// hold is stand, and takes from what the run says of its own record what its standing doesn't bear out: whoever judges the
// run finds it incomplete.
func (h *holder) hold(r *store.Run) *store.Standing {
	s := h.stand(r)
	r.Info.Complete = s.Complete(r.Info.Whole())
	return s
}

// stand says how a run stands to its ledger. It is safe for concurrent use.
func (h *holder) stand(r *store.Run) *store.Standing {
	if len(r.Identities) == 0 {
		h.once.Do(func() { h.ids, _ = h.ring.identities() }) // keys that don't open are no keys, which is said
		r.Identities = h.ids
	}
	s := r.Standing()
	if r.HasLedger() {
		s.Unsealed = append(s.Unsealed, h.ledger(r)...)
	}
	r.Anew = slices.Contains(s.Remade, features.Kept)
	return s
}

// ledger says what is wrong with a run's ledger itself: whether it is whole, under its own keys' signatures, and the one that the
// machine's log knows. Payloads aren't opened, so that this costs little beside reading them. Of a run that this machine doesn't
// know it finds damage and not forgery: whose keys those are is for bodycam verify to say.
func (h *holder) ledger(r *store.Run) []string {
	gen, err := runGenesis(r.Dir)
	if err != nil {
		return nil // reading the ledger has said so
	}
	h.host.Do(func() {
		dir, err := h.ring.directory()
		if err != nil {
			return
		}
		h.states, err = hostlog.Read(hostlog.Dir(dir))
		if err != nil && !errors.Is(err, hostlog.ErrNone) && !errors.Is(err, fs.ErrPermission) {
			h.unread = err
		}
	})
	if h.unread != nil {
		return []string{"whether it is what this machine recorded can't be told: " + h.unread.Error()}
	}
	st := stateOf(h.states, gen)
	if st == nil && slices.ContainsFunc(h.states, func(o *hostlog.State) bool { return o.Run == r.Info.ID }) {
		return []string{"this machine's log of runs knows " + r.Info.ID + " with another ledger"}
	}
	damage, err := damaged(context.Background(), r.Dir, knownHead(st, gen))
	switch {
	case err != nil:
		return []string{err.Error()}
	case damage != "":
		return []string{"its ledger: " + damage}
	}
	return nil
}

// stands says on standard error what the record that was read lacks; that is no verdict then.
func stands(s *streams, arg string, c bodycam.Completeness) error {
	if c.Complete {
		return nil
	}
	fmt.Fprintf(s.err, "bodycam: %s: the record is incomplete: %s\n", bodycam.Printable(arg), bodycam.Printable(strings.Join(c.Reasons, "; ")))
	return &statusError{status: ExitInconclusive}
}
