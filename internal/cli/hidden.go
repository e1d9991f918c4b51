package cli

import (
	"github.com/bodycam-dev/bodycam/internal/harness/builtin"
	"github.com/spf13/cobra"
)

// hiddenCommands are what bodycam runs of itself inside a sandbox.
func hiddenCommands(s *streams) []*cobra.Command {
	return []*cobra.Command{{
		Use:                builtin.Command,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if status := builtin.Main(args, s.in, s.out, s.err); status != 0 {
				return &statusError{status: status}
			}
			return nil
		},
	}}
}
