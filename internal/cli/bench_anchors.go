package cli

import (
	"os"

	anchorsbench "github.com/bodycam-dev/bodycam/internal/bench/anchors"
	"github.com/spf13/cobra"
)

func benchAnchors(s *streams) *cobra.Command {
	p := anchorsbench.DefaultPrice
	var asJSON bool
	var heads int
	var only []string
	cmd := &cobra.Command{
		Use:   "anchors",
		Short: "Compare the ways of anchoring",
		Long: `Anchor a log in every way on this machine (a folder, a witness, a shared log with a witness, OpenSSL as time stamp
authority, anvil as chain), measure how long that takes and how large the proofs are, and attack: with every signing key,
edit, delete, reorder, fork, truncate and roll back the log; then verify each with what the outside holds, and let the
attacker anchor it. What it costs on a chain is reckoned from measured gas and given prices. Programs that aren't there
(openssl; anvil, from npm's @foundry-rs/anvil, in the path or in $ANVIL) leave their row unmeasured.` +
			exits("0  measured", "2  usage", "3  it couldn't be"),
		Example: "  bodycam bench anchors\n  bodycam bench anchors --ether 3000 --l1 1.5 --only tsa,evm --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.Rate <= 0 || p.Interval <= 0 || heads < 1 {
				return usage("--rate, --interval and --heads must be positive")
			}
			dir, err := os.MkdirTemp("", "bodycam-bench-")
			if err != nil {
				return environment(err)
			}
			defer os.RemoveAll(dir)
			r, err := anchorsbench.Run(cmd.Context(), dir, heads, p, only)
			if err != nil {
				return environment(err)
			}
			return result(s, asJSON, r, nil)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&asJSON, "json", false, "print JSON; times in nanoseconds")
	fl.IntVar(&heads, "heads", 10, "heads that are anchored one after the other")
	fl.StringSliceVar(&only, "only", nil, "mechanisms: none, digest, tlog, witness, tsa, evm")
	fl.Float64Var(&p.Ether, "ether", p.Ether, "USD per ether")
	fl.Float64Var(&p.L1, "l1", p.L1, "gwei per gas on layer 1")
	fl.Float64Var(&p.L2, "l2", p.L2, "gwei per gas on layer 2")
	fl.Float64Var(&p.Data, "l2-data", p.Data, "gwei per byte that layer 2 publishes in blobs of layer 1")
	fl.Float64Var(&p.Rate, "rate", p.Rate, "events a second in a burst")
	fl.DurationVar(&p.Interval, "interval", p.Interval, "shortest time between two anchors in a burst")
	return cmd
}
