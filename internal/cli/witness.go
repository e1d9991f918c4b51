package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/anchor/config"
	"github.com/bodycam-dev/bodycam/internal/anchor/sharedlog"
	"github.com/bodycam-dev/bodycam/internal/anchor/witness"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/spf13/cobra"
)

// webFlags are what every server here needs.
type webFlags struct{ listen, cert, key string }

func (w *webFlags) add(cmd *cobra.Command, address string) {
	cmd.Flags().StringVar(&w.listen, "listen", address, "address")
	cmd.Flags().StringVar(&w.cert, "tls-cert", "", "certificate chain, PEM (default: plain HTTP, for behind a proxy)")
	cmd.Flags().StringVar(&w.key, "tls-key", "", "its private key, PEM")
}

// serve answers until the context ends.
func (w *webFlags) serve(ctx context.Context, s *streams, what string, h http.Handler) error {
	l, err := net.Listen("tcp", w.listen)
	if err != nil {
		return environment(err)
	}
	server := &http.Server{Handler: h, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	scheme := "http"
	if w.cert != "" {
		scheme = "https"
	}
	fmt.Fprintf(s.err, "bodycam: %s at %s://%s\n", what, scheme, l.Addr())
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(end)
	})
	defer stop()
	if w.cert != "" {
		err = server.ServeTLS(l, w.cert, w.key)
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return environment(err)
}

func witnessCommand(s *streams) *cobra.Command {
	var web webFlags
	var dir, logs string
	var keys, runs, recorders []string
	cmd := &cobra.Command{
		Use:   "witness --dir DIR --key FILE --logs FILE|--recorder FILE",
		Short: "Cosign other operators' logs",
		Long: `Be a witness (c2sp.org/tlog-witness): cosign the checkpoints of the logs that FILE names, each only where it continues the
last one that was cosigned. That is stored before the answer leaves, so that no two histories of a log ever bear this
witness's name. FILE is a JSON object of origins with lists of verifier keys; --run takes them from a run's genesis.
--recorder names the keys of a recorder ("bodycam keys export") all of whose logs are cosigned: each run has a log of its
own, which nobody could name beforehand.` +
			exits("0  ended", "2  usage", "3  it couldn't listen or serve"),
		Example: "  bodycam anchor key w1.key --type witness --name w1.example\n  bodycam witness --dir ./w1 --key w1.key --logs logs.json --listen 127.0.0.1:8090\n  bodycam witness --dir ./w1 --key w1.key --recorder recorder.pub",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" || len(keys) == 0 {
				return usage("want --dir and --key")
			}
			w := &witness.Server{}
			for _, file := range keys {
				k, signer, err := config.ReadKey(file)
				if err != nil {
					return usage("%w", err)
				}
				if w.Name != "" && w.Name != k.Name {
					return usage("the keys are of two witnesses, %s and %s", w.Name, k.Name)
				}
				w.Name, w.Signers = k.Name, append(w.Signers, signer)
			}
			var err error
			if w.Logs, err = knownLogs(logs, runs); err != nil {
				return err
			}
			for _, file := range recorders {
				list, err := keyring.PublicKeys(file)
				if err != nil {
					return usage("--recorder: %w", err)
				}
				for _, k := range list {
					w.Recorders = append(w.Recorders, checkpoint.Key{Name: "recorder", Alg: k.Alg, Public: k.Public})
				}
			}
			if len(w.Logs)+len(w.Recorders) == 0 {
				return usage("want --logs, --run or --recorder: a witness cosigns for logs that it knows")
			}
			if err := w.Open(dir); err != nil {
				return usage("%w", err)
			}
			defer w.Close()
			for _, k := range w.Keys() {
				fmt.Fprintf(s.err, "bodycam: verifier key %s\n", k)
			}
			return web.serve(cmd.Context(), s, fmt.Sprintf("witness %s of %d logs and %d keys of recorders", w.Name, len(w.Logs), len(w.Recorders)), w)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "dir", "", "folder for what it remembers; to lose it is to have to retire the key")
	fl.StringArrayVar(&keys, "key", nil, "`file` with its private key (bodycam anchor key --type witness); repeatable")
	fl.StringVar(&logs, "logs", "", "file of the logs that it cosigns for")
	fl.StringArrayVar(&runs, "run", nil, "run whose log it cosigns for; repeatable")
	fl.StringArrayVar(&recorders, "recorder", nil, "file of a recorder's public keys, all of whose logs it cosigns for; repeatable")
	web.add(cmd, "127.0.0.1:8090")
	return cmd
}

// knownLogs reads a file and runs; nil where neither is given.
func knownLogs(file string, runs []string) (map[string][]checkpoint.Key, error) {
	if file == "" && len(runs) == 0 {
		return nil, nil
	}
	out := map[string][]checkpoint.Key{}
	if file != "" {
		var err error
		if out, err = logKeys(file); err != nil {
			return nil, err
		}
	}
	for _, run := range runs {
		if err := addRun(out, run); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func logCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "A transparency log that many recorders share",
		Long:  "A transparency log whose entries are the checkpoints of many recorders' logs." + exits("0  done", "2  usage", "3  it couldn't serve"),
	}
	cmd.AddCommand(logServe(s))
	return cmd
}

// warnings are what a library warns of, as lines of this program's. One that repeats itself is said once a minute.
type warnings struct {
	s    *streams
	mu   sync.Mutex
	last string
	said time.Time
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := strings.ReplaceAll(strings.TrimRight(string(b), "\n"), "\n", "; ")
	if line == w.last && time.Since(w.said) < time.Minute {
		return len(b), nil
	}
	w.last, w.said = line, time.Now()
	_, err := fmt.Fprintf(w.s.err, "bodycam: log: %s\n", bodycam.Printable(line))
	return len(b), err
}

func logServe(s *streams) *cobra.Command {
	var web webFlags
	var dir, key, policy, logs string
	var runs []string
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "serve --dir DIR --key FILE",
		Short: "Serve a transparency log",
		Long: `Keep a transparency log in C2SP's tile form (c2sp.org/tlog-tiles), with checkpoints of other logs as entries. POST /add
takes one and answers with its proof of inclusion; GET /checkpoint and /tile/… are for whoever follows the log. With
--witness-policy (c2sp.org/tlog-policy) a checkpoint is published only once the witnesses have cosigned it. With --logs
or --run only checkpoints of those logs are taken.` +
			exits("0  ended", "2  usage", "3  it couldn't listen or serve"),
		Example: "  bodycam anchor key log.key --type log --name log.example/shared\n  bodycam log serve --dir ./log --key log.key --witness-policy policy.txt",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" || key == "" {
				return usage("want --dir and --key")
			}
			name, alg, seed, err := config.ReadSeed(key)
			if err == nil && alg != checkpoint.Ed25519 {
				err = fmt.Errorf("a log signs with a key of type log, not %s", alg)
			}
			if err != nil {
				return usage("%w", err)
			}
			o := sharedlog.ServerOptions{Dir: dir, Name: name, Seed: seed, Interval: interval, Log: &warnings{s: s}}
			if policy != "" {
				if o.WitnessPolicy, err = os.ReadFile(policy); err != nil {
					return usage("%w", err)
				}
			}
			if o.Logs, err = knownLogs(logs, runs); err != nil {
				return err
			}
			life, end := context.WithCancel(context.WithoutCancel(cmd.Context()))
			defer end()
			l, err := sharedlog.Open(life, o)
			if err != nil {
				return environment(err)
			}
			fmt.Fprintf(s.err, "bodycam: verifier key %s\n", l.Key())
			err = web.serve(cmd.Context(), s, "log "+name, l)
			closing, stop := context.WithTimeout(life, 30*time.Second)
			defer stop()
			return errors.Join(err, environment(l.Close(closing)))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "dir", "", "folder of the log")
	fl.StringVar(&key, "key", "", "`file` with its private key (bodycam anchor key --type log)")
	fl.StringVar(&policy, "witness-policy", "", "file with a tlog-policy")
	fl.StringVar(&logs, "logs", "", "file of the logs whose checkpoints it takes (default: any)")
	fl.StringArrayVar(&runs, "run", nil, "run whose checkpoints it takes; repeatable")
	fl.DurationVar(&interval, "interval", time.Second, "time between two of its checkpoints")
	web.add(cmd, "127.0.0.1:8091")
	return cmd
}
