package cli

import (
	"fmt"
	"io"
	"net"
	"os"

	"github.com/bodycam-dev/bodycam/internal/model"
	"github.com/spf13/cobra"
)

func modelCommand(s *streams) *cobra.Command {
	var script, listen, log string
	cmd := &cobra.Command{
		Use:   "model --script FILE",
		Short: "Serve a scripted model, for tests without cost",
		Long: `Play a YAML script of tool calls as if it were a model: OpenAI Responses and Chat Completions, Anthropic Messages and
Gemini, streaming and not. Every agent program that can be pointed at an endpoint of its own can be tested against it.
docs/MODEL.md is the reference of the script.` + exits("0  ended by an interrupt", "2  the script is wrong", "3  the address can't be used"),
		Example: "  bodycam model --script turns.yaml --listen 127.0.0.1:8099\n  OPENAI_BASE_URL=http://127.0.0.1:8099/v1 my-agent",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if script == "" {
				return withHint(usage("--script is missing"), "docs/MODEL.md has scripts to begin with")
			}
			sc, err := model.Load(script)
			if err != nil {
				return usage("%w", err)
			}
			var w io.Writer
			if log != "" {
				f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if err != nil {
					return usage("opening the log: %w", err)
				}
				defer f.Close()
				w = f
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return environment(fmt.Errorf("listening on %s: %w", listen, err))
			}
			fmt.Fprintf(s.out, "http://%s/v1\n", l.Addr())
			return model.Serve(cmd.Context(), l, sc, model.Options{Log: w})
		},
	}
	cmd.Flags().StringVar(&script, "script", "", "the script")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on; port 0: any free one, which is printed")
	cmd.Flags().StringVar(&log, "log", "", "append one JSON object a request to this file")
	return cmd
}
