package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/anchor/config"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/spf13/cobra"
)

func anchorDeploy(s *streams) *cobra.Command {
	var node, design, key string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "deploy --design DESIGN --node URL --key FILE",
		Short: "Create an anchoring contract on a chain",
		Long: `Create the contract of a design on an Ethereum-like chain: head (one head per sender and log), super (one head over many
logs), mapping (the Agent Flight Recorder's). It costs gas, once; many recorders can share one contract.` +
			exits("0  created", "2  usage", "3  it couldn't be created"),
		Example: "  bodycam anchor deploy --design head --node http://127.0.0.1:8545 --key account.hex",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := evm.Bytecode(design); err != nil || node == "" || key == "" {
				return usage("want --node, --key and --design head, super or mapping")
			}
			b, err := os.ReadFile(key)
			if err != nil {
				return usage("%w", err)
			}
			k, err := crypto.HexToECDSA(strings.TrimPrefix(strings.TrimSpace(string(b)), "0x"))
			if err != nil {
				return usage("the account's key in %s: %w", key, err)
			}
			ctx, stop := context.WithTimeout(cmd.Context(), patience)
			defer stop()
			contract, chain, err := evm.Deploy(ctx, node, design, k)
			if err != nil {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "chain %d, contract %s, sender %s\n", chain, strings.ToLower(contract.Hex()), strings.ToLower(crypto.PubkeyToAddress(k.PublicKey).Hex()))
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&node, "node", "", "JSON-RPC endpoint")
	fl.StringVar(&design, "design", "head", "head, super or mapping")
	fl.StringVar(&key, "key", "", "file with the account's private key, 64 hexadecimal digits")
	fl.DurationVar(&patience, "patience", 5*time.Minute, "how long it may take")
	return cmd
}

func anchorSuper(s *streams) *cobra.Command {
	var to, state string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "super RUN… --to FILE --state FILE",
		Short: "Anchor many runs in one transaction",
		Long: `Anchor the newest heads of many runs by one super-root in one transaction; each run gets its own proof. FILE names one
anchor of kind evm and design super. The state file holds the transaction while it is under way: called again with it,
the command goes on with that one first.` + exits("0  final", "1  the contract holds another history", "2  usage", "3  not final yet; to call again goes on"),
		Example: "  bodycam anchor super runs/* --to super.yaml --state super.state",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" || state == "" {
				return usage("want --to and --state")
			}
			list, err := config.Read(to)
			if err != nil {
				return usage("%w", err)
			}
			if len(list) != 1 || list[0].Design != "super" {
				return usage("%s must name one anchor, of kind evm and design super", to)
			}
			cl, err := list[0].Client(cmd.Context())
			if err != nil {
				return usage("%w", err)
			}
			ctx, stop := context.WithTimeout(cmd.Context(), patience)
			defer stop()
			job := superJob{s: &evm.Super{Client: cl}, name: list[0].Name, state: state, runs: args}
			b, err := job.run(ctx)
			switch {
			case errors.Is(err, anchor.ErrConflict):
				return &statusError{status: ExitGate, err: err}
			case err != nil:
				return environment(err)
			}
			already := ""
			if b.Known {
				already = "already anchored: "
			}
			_, err = fmt.Fprintf(s.out, "%s%d runs, %.9f ether, %s\n", already, len(b.Evidence), b.Cost, b.Detail)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&to, "to", "", "file with the anchor")
	fl.StringVar(&state, "state", "", "file that holds the transaction while it is under way")
	fl.DurationVar(&patience, "patience", 30*time.Minute, "how long it may take")
	return cmd
}

type superJob struct {
	s           *evm.Super
	name, state string
	runs        []string
}

// run prepares a super-root, unless one is under way, and follows it until it is final.
func (j *superJob) run(ctx context.Context) (evm.Batch, error) {
	dirs, notes, err := j.heads()
	if err != nil {
		return evm.Batch{}, err
	}
	ticket, err := os.ReadFile(j.state)
	if errors.Is(err, fs.ErrNotExist) {
		if ticket, err = j.s.Prepare(ctx, notes); err == nil {
			err = anchor.Replace(j.state, ticket)
		}
	}
	if err != nil {
		return evm.Batch{}, err
	}
	for {
		b, err := j.s.Advance(ctx, ticket)
		if err == nil && b.Ticket != nil {
			ticket = b.Ticket
			err = anchor.Replace(j.state, ticket)
		}
		if errors.Is(err, anchor.ErrConflict) {
			return b, err
		}
		if err == nil && b.State == anchor.Final {
			if err := j.keep(dirs, b); err != nil {
				return b, err
			}
			return b, os.Remove(j.state)
		}
		select {
		case <-ctx.Done():
			return b, fmt.Errorf("the super-root isn't final yet (%s %s): %w", b.State, b.Detail, errors.Join(ctx.Err(), err))
		case <-time.After(time.Second):
		}
	}
}

// heads are the newest heads of the runs, and which run each origin is of.
func (j *superJob) heads() (map[string]string, []*checkpoint.Note, error) {
	dirs := map[string]string{}
	var notes []*checkpoint.Note
	for _, run := range j.runs {
		log, err := anchor.OpenLog(run)
		if err != nil {
			return nil, nil, err
		}
		h, err := log.Head()
		if err = errors.Join(err, log.Close()); err != nil {
			return nil, nil, err
		}
		if h.Note == nil {
			continue
		}
		dirs[h.Origin] = run
		notes = append(notes, h.Note)
	}
	return dirs, notes, nil
}

func (j *superJob) keep(dirs map[string]string, b evm.Batch) error {
	var errs []error
	for _, e := range b.Evidence {
		run, ok := dirs[e.Note.Origin]
		if !ok {
			errs = append(errs, fmt.Errorf("the super-root has log %s, whose run wasn't named: call again with it", e.Note.Origin))
			continue
		}
		errs = append(errs, anchor.Keep(run, j.name, e))
	}
	return errors.Join(errs...)
}
