package cli

import (
	"errors"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/link"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// joinRows makes the look-up from events to rows of a run, as its session made it.
func joinRows(r *store.Run) (features.RowOf, error) {
	rows, err := r.Rows()
	if err != nil {
		return nil, err
	}
	links, err := r.Links()
	if err != nil {
		return nil, err
	}
	var harness bodycam.Proc
	for _, l := range links {
		if l.Row == link.HarnessRow && l.Confidence == 1 {
			harness = l.Root
			break
		}
	}
	j := link.New(rows)
	err = r.Raw(func(e *bodycam.Event) error {
		if link.Needs(e) {
			j.Observe(e)
		}
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrTorn) { // of a torn record what there is counts
		return nil, err
	}
	return j.Result(harness).Index().Row, nil
}
