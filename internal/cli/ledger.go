package cli

import "github.com/spf13/cobra"

// ledgerCommands are those that work on a run's ledger.
func ledgerCommands(s *streams) []*cobra.Command {
	return []*cobra.Command{verifyCommand(s), restoreCommand(s), discloseCommand(s), queryCommand(s), keysCommand(s), mirrorCommand(s), anchorCommand(s), delegateCommand(s), approveCommand(s), witnessCommand(s), logCommand(s), exportCommand(s), benchCommand(s)}
}
