package cli

import (
	"context"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/conduct"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// judgeConduct is the built-in analysis "conduct".
func judgeConduct(_ context.Context, r *store.Run, _ *kind.Plan) ([]bodycam.Finding, error) {
	s, err := conduct.Open(r, joinRows)
	if err != nil {
		return nil, err
	}
	return s.Findings()
}
