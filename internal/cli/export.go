package cli

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/export"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/spf13/cobra"
)

func exportCommand(s *streams) *cobra.Command {
	var format, out string
	var f ringFlags
	cmd := &cobra.Command{
		Use:   "export RUN --format in-toto|aat|otel",
		Short: "Write a run's record in a format of others",
		Long: `Write what a run's ledger holds in another format:

  in-toto   a statement with a runtime trace (runtime-trace v0.2): processes, network, files
  aat       records of an Agent Audit Trail (draft-sharif-agent-audit-trail-06), one JSON object a line
  otel      OpenTelemetry spans with the GenAI conventions, in OTLP's JSON

The same ledger gives the same bytes. Each form names the ledger and its records; proofs stay in the ledger. What was
erased is left out.` + exits("0  written", "2  usage", "3  the ledger can't be read", "4  part of the ledger is closed to the keys at hand and nothing was written; or it was, of a run whose record is incomplete, of which parts were erased or which isn't what was sealed, as is said"),
		Example: "  bodycam export RUN --format otel | curl -H 'Content-Type: application/json' -d @- http://127.0.0.1:4318/v1/traces\n  bodycam export RUN --format in-toto -o statement.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			write := export.Formats[format]
			if write == nil {
				known := strings.Join(slices.Sorted(maps.Keys(export.Formats)), ", ")
				if format == "" {
					return usage("--format is missing: want %s", known)
				}
				return usage("--format %s: want %s", format, known)
			}
			r, err := f.open(args[0])
			if err != nil {
				return err
			}
			lr, err := r.Ledger()
			if err != nil {
				return usage("%w", err)
			}
			defer lr.Close()
			var b bytes.Buffer
			standing := (&holder{ring: f}).stand(r)
			src, err := export.Open(r, lr)
			if err == nil {
				src.Info.Complete = standing.Complete(src.Info.Whole())
				err = write(&b, src)
			}
			switch {
			case errors.Is(err, export.ErrClosed) && errors.Is(err, ledger.ErrNoKey):
				return &statusError{status: ExitInconclusive, err: err, hint: "none of this machine's keys reads that run: see --keys"}
			case err != nil:
				return environment(err)
			case out == "":
				if _, err = s.out.Write(b.Bytes()); err != nil {
					return environment(err)
				}
				return stands(s, args[0], src.Info.Complete)
			}
			if err := writeNewFile(out, b.Bytes(), 0o600); err != nil {
				return usage("writing the export: %w", err)
			}
			return stands(s, args[0], src.Info.Complete)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&format, "format", "", "in-toto, aat or otel")
	fl.StringVarP(&out, "out", "o", "", "file to write; it must not exist (default: standard output)")
	f.add(fl)
	return cmd
}
