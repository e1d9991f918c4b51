package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"

	ledgerbench "github.com/bodycam-dev/bodycam/internal/bench/ledger"
	"github.com/spf13/cobra"
)

func benchCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure on this machine what bodycam claims",
		Long:  "Measure on this machine what bodycam claims. docs/PERFORMANCE.md has figures and says how they were measured." + exits("0  measured", "3  it couldn't be"),
		Example: `  bodycam bench tamper
  bodycam bench forensics --json
  bodycam bench ledger --once 1000000`,
	}
	cmd.AddCommand(benchTamper(s), benchForensics(s), benchLedger(s), benchAnchors(s))
	return cmd
}

// result prints what a bench came to.
func result(s *streams, asJSON bool, v interface{ Text() string }, err error) error {
	if err != nil {
		return environment(err)
	}
	if asJSON {
		return printJSON(s, v)
	}
	_, err = fmt.Fprint(s.out, v.Text())
	return err
}

func benchTamper(s *streams) *cobra.Command {
	var asJSON bool
	var n int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "tamper",
		Short: "Try to change logs unnoticed, under five configurations",
		Long: `Edit, delete, reorder and fork at ten positions of a log, and cut its tail, under five configurations: plain JSON,
JSON of a schema, a hash chain, a chain with Merkle roots, and the ledger. The ledger is attacked twice: in the bytes as
they lie, and by writing another history with the recorder's own keys.` + exits("0  measured", "2  usage", "3  it couldn't be"),
		Example: "  bodycam bench tamper --events 10000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ledgerbench.Tamper(cmd.Context(), n, seed)
			return result(s, asJSON, r, err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&n, "events", 10_000, "events in the log")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the workload")
	return cmd
}

func benchForensics(s *streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "forensics",
		Short: "Answer an investigator's questions from a ledger and by text search",
		Long: `Play three scenes and answer their questions: a prompt injection, a command that hit production, and a dispute between
two organisations. Precision and recall of structured queries stand beside those of searching the same events as lines
of JSON. The scenes are made up, with misleading words in ordinary events.` + exits("0  measured", "3  it couldn't be"),
		Example: "  bodycam bench forensics",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ledgerbench.Forensics(cmd.Context())
			return result(s, asJSON, r, err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func benchLedger(s *streams) *cobra.Command {
	var asJSON bool
	var o ledgerbench.SpeedOptions
	var files []string
	var large int
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Measure what an event in the ledger costs",
		Long: `Write a synthetic workload (eight classes of tools, 15 % of calls in groups that run at the same time) under each part
of the construction, beside encoding/json of the same events. --transcript takes the lines of real transcripts as events
instead. --large writes, verifies and queries a log of so many kernel events and tells the memory that took.` +
			exits("0  measured", "2  usage", "3  it couldn't be"),
		Example: "  bodycam bench ledger --sizes 100,1000,10000 --seeds 30 --once 1000000\n  bodycam bench ledger --large 10000000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Told = func(what string) { fmt.Fprintf(s.err, "bodycam: %s\n", what) }
			if large > 0 {
				r, err := ledgerbench.Large(cmd.Context(), large)
				return result(s, asJSON, r, err)
			}
			var err error
			if o.Lines, err = transcriptLines(files); err != nil {
				return err
			}
			r, err := ledgerbench.Speed(cmd.Context(), o)
			return result(s, asJSON, r, err)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	fl.IntSliceVar(&o.Sizes, "sizes", []int{100, 1000, 10_000}, "events in a log")
	fl.IntVar(&o.Seeds, "seeds", 30, "logs of each size, each with a seed of its own")
	fl.IntVar(&o.Once, "once", 0, "also a log of so many events, once")
	fl.StringArrayVar(&files, "transcript", nil, "file whose lines are the events; repeatable")
	fl.IntVar(&large, "large", 0, "only this: a log of so many kernel events, with the memory that it takes")
	return cmd
}

func transcriptLines(files []string) ([][]byte, error) {
	var out [][]byte
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, usage("--transcript: %w", err)
		}
		sc := bufio.NewScanner(bytes.NewReader(b))
		sc.Buffer(nil, len(b)+1)
		for sc.Scan() {
			if len(sc.Bytes()) > 0 {
				out = append(out, bytes.Clone(sc.Bytes()))
			}
		}
		if err := sc.Err(); err != nil {
			return nil, usage("--transcript %s: %w", name, err)
		}
	}
	if files != nil && out == nil {
		return nil, usage("--transcript: the files hold no line")
	}
	return out, nil
}
