package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bodycam-dev/bodycam/internal/mirror"
	"github.com/spf13/cobra"
)

func mirrorCommand(s *streams) *cobra.Command {
	var to, ca string
	var o mirror.SendOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mirror RUN --to DIR|URL | mirror serve",
		Short: "Copy a run's ledger to where this machine can't change it",
		Long: `Copy what the ledger's last checkpoint covers, and the checkpoint, to an append-only store: a directory (on another
machine's disk, best), or a mirror served by "bodycam mirror serve" over TLS, which refuses to shrink or overwrite. The
copy is encrypted as the ledger is. --follow goes on while the run does. An outage is waited out, each try is told of, and
a copy that was begun is continued. What waiting doesn't mend (no permission, no such folder, a refusal) ends it at once. "bodycam verify RUN --mirror" compares.

The wraps of the keys stay here, so that an erasure here is one; --with-keys copies them too, and then whoever has the
reading key can read the mirror when this machine is gone, and what is erased here.

The token for a mirror behind TLS is read from $BODYCAM_MIRROR_TOKEN.` +
			exits("0  the mirror has everything that is under the last checkpoint", "1  the mirror has something else: one of the two was changed",
				"2  usage", "3  the mirror couldn't be reached, or refused, or the run can't be read"),
		Example: `  bodycam mirror RUN --to /mnt/other/mirror
  BODYCAM_MIRROR_TOKEN=… bodycam mirror RUN --to https://mirror.example:8443 --follow
  bodycam mirror serve --dir ./mirror --listen :8443 --cert cert.pem --key key.pem --token-file token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usage("want --to DIR or --to https://HOST:PORT")
			}
			if err := mayRead(args[0]); err != nil {
				return err
			}
			if !isRunOrBundle(args[0]) {
				return usage("%s has no ledger", args[0])
			}
			m, err := openMirror(to, ca)
			if err != nil {
				return err
			}
			s.outlive()
			o.Told = func(p mirror.Progress) {
				if p.Outage != nil {
					fmt.Fprintf(s.err, "bodycam: %v (trying again in %v)\n", p.Outage, p.Wait.Round(100*time.Millisecond))
				}
			}
			done, err := mirror.Send(cmd.Context(), args[0], m, o)
			switch {
			case errors.Is(err, mirror.ErrConflict):
				return &statusError{status: ExitGate, err: fmt.Errorf("mirroring %s: %w", args[0], err)}
			case errors.Is(err, context.Canceled):
				return environment(fmt.Errorf("mirroring %s was interrupted: %w", args[0], err))
			case err != nil:
				return environment(fmt.Errorf("mirroring %s: %w", args[0], err))
			case asJSON:
				return printJSON(s, map[string]any{"mirror": m.String(), "epochs": done.Epochs, "bytes_sent": done.Bytes})
			}
			_, err = fmt.Fprintf(s.out, "%s: %s, %s sent\n", m, count(done.Epochs, "epoch"), count(uint64(done.Bytes), "byte"))
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&to, "to", "", "directory, or https://HOST:PORT")
	fl.StringVar(&ca, "ca", "", "file of certificates that the mirror's is checked against (default: the system's)")
	fl.BoolVarP(&o.Follow, "follow", "f", false, "go on until the run has ended")
	fl.BoolVar(&o.Keys, "with-keys", false, "copy the wraps of the keys too: an erasure here doesn't reach them")
	fl.DurationVar(&o.Patience, "patience", 10*time.Minute, "how long an outage may last; 0: for ever")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(mirrorServe(s))
	return cmd
}

func mirrorServe(s *streams) *cobra.Command {
	var dir, listen, cert, key, token string
	cmd := &cobra.Command{
		Use:   "serve --dir DIR --listen ADDRESS --cert FILE --key FILE --token-file FILE",
		Short: "Be a mirror for other machines' ledgers",
		Long: `Take copies of ledgers over TLS and keep them in a directory that only ever grows: nothing is overwritten, nothing
shrinks, no checkpoint goes back. Whoever has the token may append and read; the copies are encrypted as the ledgers
are. It ends when it is interrupted.` +
			exits("0  ended", "2  usage", "3  it couldn't listen or serve"),
		Example: "  bodycam mirror serve --dir ./mirror --listen 127.0.0.1:8443 --cert cert.pem --key key.pem --token-file token",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" || cert == "" || key == "" {
				return usage("want --dir, --cert and --key")
			}
			secret, err := readToken(token)
			if err != nil {
				return usage("%w", err)
			}
			if len(secret) < 16 {
				return usage("want a token of at least 16 characters: --token-file, or $%s", mirrorTokenEnv)
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return environment(err)
			}
			fmt.Fprintf(s.err, "bodycam: mirror in %s at https://%s\n", dir, l.Addr())
			return environment(mirror.Serve(cmd.Context(), l, mirror.ServerOptions{Dir: mirror.NewDir(dir), Token: secret, CertFile: cert, KeyFile: key}))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "dir", "", "folder for the copies")
	fl.StringVar(&listen, "listen", "127.0.0.1:8443", "address")
	fl.StringVar(&cert, "cert", "", "certificate chain, PEM")
	fl.StringVar(&key, "key", "", "its private key, PEM")
	fl.StringVar(&token, "token-file", "", "file whose first line is the token (default: $"+mirrorTokenEnv+")")
	return cmd
}
