package cli

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// holder holds the runs that a command reads against their ledgers, with keys that are opened once.
type holder struct {
	ring ringFlags
	once sync.Once
	ids  []age.Identity
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
	r.Anew = slices.Contains(s.Remade, features.Kept)
	return s
}

// stands says on standard error what the record that was read lacks; that is no verdict then.
func stands(s *streams, arg string, c bodycam.Completeness) error {
	if c.Complete {
		return nil
	}
	fmt.Fprintf(s.err, "bodycam: %s: the record is incomplete: %s\n", bodycam.Printable(arg), bodycam.Printable(strings.Join(c.Reasons, "; ")))
	return &statusError{status: ExitInconclusive}
}
