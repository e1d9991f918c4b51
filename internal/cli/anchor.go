package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/config"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/spf13/cobra"
)

func anchorCommand(s *streams) *cobra.Command {
	var to []string
	var follow, asJSON bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "anchor RUN --to FILE",
		Short: "Commit a run's log where its operator can't change it",
		Long: `Commit the newest checkpoint of a run's log, which covers all of it so far, by every anchor that FILE names: signed
digests, witnesses, a shared transparency log, time stamps (RFC 3161), an Ethereum-like chain. docs/ANCHORS.md says what
each is worth. What proves it stays in RUN/anchors, for "bodycam verify", which checks it without a network.

An outage is waited out, and what was begun is continued, also after a crash: no head is anchored twice. --follow goes on
while the run does, as a kind's "anchors:" does by itself.` +
			exits("0  the newest head is anchored by all, finally", "1  an anchor holds another history of this log", "2  usage",
				"3  not all are final yet; to call again goes on"),
		Example: `  bodycam anchor RUN --to anchors.yaml
  bodycam anchor status RUN
  bodycam verify RUN --roots roots.json --policy "tsa and (w1 or w2)"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(to) == 0 {
				return usage("want --to FILE with anchors")
			}
			if err := wantLedger(args[0]); err != nil {
				return err
			}
			list, err := openAnchors(cmd.Context(), to)
			if err != nil {
				return err
			}
			if err := anchorRun(cmd.Context(), args[0], list, follow, patience); err != nil {
				return err
			}
			return anchorStatus(s, args[0], asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&to, "to", nil, "file, YAML or JSON, with a list named anchors; repeatable")
	fl.BoolVarP(&follow, "follow", "f", false, "go on until the run has ended, or until interrupted, then anchor the last head")
	fl.DurationVar(&patience, "patience", 10*time.Minute, "how long the last head may take")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(anchorStatusCommand(s), anchorKey(s), anchorManifest(s), anchorWatch(s), anchorDeploy(s), anchorSuper(s), anchorEquivocation(s))
	return cmd
}

// openAnchors opens what files name.
func openAnchors(ctx context.Context, files []string) ([]anchor.Named, error) {
	var all []config.Config
	for _, name := range files {
		list, err := config.Read(name)
		if err != nil {
			return nil, usage("%w", err)
		}
		all = append(all, list...)
	}
	return openConfigs(ctx, all)
}

func openConfigs(ctx context.Context, all []config.Config) ([]anchor.Named, error) {
	var out []anchor.Named
	for _, c := range all {
		m, err := c.Open(ctx)
		if err != nil {
			return nil, usage("%w", err)
		}
		o, err := c.Options()
		if err != nil {
			return nil, usage("%w", err)
		}
		out = append(out, anchor.Named{Mechanism: m, Options: o})
	}
	if len(out) == 0 {
		return nil, usage("there is no anchor in it")
	}
	return out, nil
}

func anchorRun(ctx context.Context, run string, list []anchor.Named, follow bool, patience time.Duration) error {
	var err error
	if follow {
		b := anchor.Start(ctx, run, list)
		untilEnded(ctx, run)
		end, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, impatient(patience))
		defer stop()
		err = b.Finish(end)
	} else {
		end, stop := context.WithTimeoutCause(ctx, patience, impatient(patience))
		defer stop()
		err = anchor.Flush(end, run, list)
	}
	switch {
	case errors.Is(err, anchor.ErrConflict):
		return &statusError{status: ExitGate, err: fmt.Errorf("anchoring %s: %w", run, err)}
	case errors.Is(err, anchor.ErrForeign):
		return foreignAnchors(fmt.Errorf("anchoring %s: %w", run, err))
	case err != nil:
		return environment(fmt.Errorf("anchoring %s: %w", run, err))
	}
	return nil
}

// foreignAnchors is said where a run has another log's state of anchors.
func foreignAnchors(err error) error {
	return withHint(environment(err), "it was copied from another run, and proves nothing of this one: move the files of that name out of the run's folder anchors, and anchor again")
}

// impatient says that an anchor took longer than it may. What was begun lies with the run.
func impatient(patience time.Duration) error {
	return fmt.Errorf("%v have passed; `bodycam anchor` goes on with it", patience)
}

// untilEnded waits until a run has ended or the context does. A directory that isn't a run's, such as a mirror's copy, never ends.
func untilEnded(ctx context.Context, run string) {
	for {
		if r, err := store.Open(run); err == nil && !r.Info.Ended.IsZero() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func anchorStatusCommand(s *streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status RUN",
		Short:   "Say how far a run's anchors are",
		Long:    "Say how far a run's anchors are: which head each holds, what is under way, and what failed. It reads files only." + exits("0  printed", "2  usage", "3  what is there is of another log"),
		Example: "  bodycam anchor status RUN --json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return anchorStatus(s, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// wantLedger refuses what isn't the directory of a run, or of a copy of one, with a ledger.
func wantLedger(run string) error {
	if _, err := os.Stat(filepath.Join(run, "ledger", "genesis")); err != nil {
		return withHint(unopened(fmt.Errorf("%s has no ledger that can be read: %w", run, err)), "`bodycam run` prints where it leaves its run directories")
	}
	return nil
}

func anchorStatus(s *streams, run string, asJSON bool) error {
	if err := wantLedger(run); err != nil {
		return err
	}
	list, err := anchor.Statuses(run)
	if errors.Is(err, anchor.ErrForeign) {
		return foreignAnchors(err)
	}
	if err != nil {
		return usage("%w", err)
	}
	if asJSON {
		if list == nil {
			list = []anchor.Status{}
		}
		return printJSON(s, list)
	}
	var b strings.Builder
	if len(list) == 0 {
		b.WriteString("no anchor was tried\n")
	}
	for _, st := range list {
		fmt.Fprintf(&b, "%-12s %-8s ", st.Name, st.Kind)
		if st.Count > 0 {
			fmt.Fprintf(&b, "%s, final %s, %s", count(st.Size, "epoch"), st.At.Format(time.RFC3339), count(uint64(st.Count), "anchor"))
			if st.Spent > 0 {
				fmt.Fprintf(&b, ", %.9f ether", st.Spent)
			}
		} else {
			b.WriteString("nothing yet")
		}
		b.WriteByte('\n')
		trouble := st.Trouble
		if w := st.Way; w != nil {
			fmt.Fprintf(&b, "             under way: %s, %s %s\n", count(w.Size, "epoch"), w.State, w.Detail)
			trouble = w.Trouble
		}
		if trouble.Error != "" {
			fmt.Fprintf(&b, "             failed %d times, next try %s: %s\n", trouble.Attempts, trouble.Next.Format(time.RFC3339), trouble.Error)
		}
	}
	_, err = s.out.Write([]byte(b.String()))
	return err
}

// keyTypes are the private keys that anchors need.
var keyTypes = map[string]checkpoint.Algorithm{
	"digest": checkpoint.Ed25519, "log": checkpoint.Ed25519, "manifest": checkpoint.Ed25519, "approver": checkpoint.Ed25519,
	"witness": checkpoint.Cosignature, "witness-ml-dsa": checkpoint.MLDSA44,
}

func anchorKey(s *streams) *cobra.Command {
	var name, kind string
	cmd := &cobra.Command{
		Use:   "key FILE --type TYPE --name NAME",
		Short: "Make a key for a witness, a shared log, signed digests, a manifest or an approver",
		Long: `Make a private key in a new file, and print the verifier key that belongs to it: what verifiers put among their roots.
TYPE is digest, log, manifest, approver, witness or witness-ml-dsa. The name of a log's key is the log's origin.` +
			exits("0  made", "2  usage, or the file exists"),
		Example: "  bodycam anchor key w1.key --type witness --name w1.example",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			alg, ok := keyTypes[kind]
			if !ok || name == "" {
				return usage("want --name, and --type digest, log, manifest, approver, witness or witness-ml-dsa")
			}
			seed := make([]byte, 32)
			if _, err := rand.Read(seed); err != nil {
				return environment(err)
			}
			k, err := config.CreateKey(args[0], name, alg, seed)
			if err != nil {
				return usage("%w", err)
			}
			_, err = fmt.Fprintln(s.out, k)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the key's name: a host name or URL without scheme, as example.org/log")
	cmd.Flags().StringVar(&kind, "type", "", "what for")
	return cmd
}

func anchorManifest(s *streams) *cobra.Command {
	var keys []string
	var out string
	cmd := &cobra.Command{
		Use:   "manifest ROOTS --key FILE -o MANIFEST",
		Short: "Sign an operator's manifest, and print the digest to publish",
		Long: `Sign a file of roots (docs/ANCHORS.md) as the operator's manifest, and print its digest. Publish the digest somewhere else
than the manifest: verifiers pin it.` + exits("0  written", "2  usage, or the roots aren't valid"),
		Example: "  bodycam anchor manifest roots.json --key operator.key -o manifest.txt",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(keys) == 0 || out == "" {
				return usage("want --key and -o")
			}
			b, err := readRoots(args[0])
			if err != nil {
				return err
			}
			m, err := proof.ParseManifest(b, nil)
			if err != nil {
				return usage("%w", err)
			}
			var signers []checkpoint.Signer
			name := ""
			for _, file := range keys {
				k, signer, err := config.ReadKey(file)
				if err != nil {
					return usage("%w", err)
				}
				if name != "" && k.Name != name {
					return usage("the keys are of two operators, %s and %s", name, k.Name)
				}
				name, signers = k.Name, append(signers, signer)
			}
			signed, err := m.Sign(name, signers...)
			if err != nil {
				return usage("%w", err)
			}
			if err := os.WriteFile(out, signed, 0o644); err != nil {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "sha256:%x\n", sha256.Sum256(signed))
			return err
		},
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "`file` with an operator's key (bodycam anchor key); repeatable, all under one name")
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write")
	return cmd
}

// besideRun anchors a run while it is recorded, where its kind says so, and lets its ledger promise what the kind does. What
// it returns waits for the last head. Paths are relative to the folder of the kind's file.
func besideRun(ctx context.Context, s *streams, plan *kind.Plan, run string, sealing *store.Sealing) (func(), error) {
	if len(plan.Anchors) == 0 {
		return func() {}, nil
	}
	dir := ""
	if n := len(plan.Kind.Sources); n > 0 && !strings.HasPrefix(plan.Kind.Sources[n-1].Path, "builtin:") {
		dir = filepath.Dir(plan.Kind.Sources[n-1].Path)
	}
	list, err := config.Parse(plan.Anchors, dir)
	if err != nil {
		return nil, usage("the kind's anchors: %w", err)
	}
	if sealing.AnchorEvery, err = config.Promised(list); err != nil {
		return nil, usage("the kind's anchors: %w", err)
	}
	named, err := openConfigs(ctx, list)
	if err != nil {
		return nil, err
	}
	b := anchor.Start(ctx, run, named)
	return func() {
		const patience = 2 * time.Minute
		end, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, impatient(patience))
		defer stop()
		if err := b.Finish(end); err != nil {
			fmt.Fprintf(s.err, "bodycam: anchoring %s: %v\n", run, err)
		}
	}, nil
}

// logKeys reads which logs a witness or a shared log knows: a JSON object of origins with lists of verifier keys, or the
// genesis of every run in a folder.
func logKeys(file string) (map[string][]checkpoint.Key, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("reading the logs: %w", err)
	}
	var raw map[string][]string
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, usage("reading the logs from %s: %w", file, err)
	}
	out := map[string][]checkpoint.Key{}
	for origin, keys := range raw {
		for _, k := range keys {
			p, err := proof.ParsePublicKey(k)
			if err != nil {
				return nil, usage("log %s: %w", origin, err)
			}
			out[origin] = append(out[origin], checkpoint.Key{Name: origin, Alg: p.Alg, Public: p.Public})
		}
	}
	return out, nil
}

// addRun adds a run's log, with the keys that its genesis names.
func addRun(logs map[string][]checkpoint.Key, run string) error {
	gen, err := runGenesis(run)
	if err != nil {
		return usage("%s: %w", filepath.Base(run), err)
	}
	for _, k := range gen.Keys {
		logs[gen.Origin()] = append(logs[gen.Origin()], checkpoint.Key{Name: gen.Origin(), Alg: k.Alg, Public: k.Public})
	}
	return nil
}
