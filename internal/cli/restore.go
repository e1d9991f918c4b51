package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/regular"
	"github.com/spf13/cobra"
)

type restoreFlags struct {
	verifyFlags
	dry, all bool
}

func restoreCommand(s *streams) *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore RUN",
		Short: "Write a run's working copies again as they were sealed",
		Long: `Write every working copy of a run that isn't what was sealed again from its ledger, and name what differed: the events
(events.bin), the agent's account (rows.jsonl), run.json, the findings, and every file that was sealed. The ledger is verified
first, with this machine's keys or those of --key: from one that was tampered with, or that nobody vouches for, nothing is
written.

Nothing is lost: what stood in a copy's place, and what was never sealed, is moved to a folder of the run whose name begins
with .replaced-. What was erased stays erased. The index and features/ aren't copies: whoever needs them makes them again.

A run that was cut off has copies that may hold more than its ledger does, and is left as it is. One that is kept in its ledger
alone (run --sealed) gets working copies with --all, in the clear.` +
			exits("0  the copies are what was sealed", "1  the ledger was tampered with", "2  usage, or the run has no ledger", "3  reading or writing failed",
				"4  nothing was written: nobody vouches for the ledger's keys, no key at hand reads it, or the run was cut off"),
		Example: "  bodycam restore RUN --dry-run\n  bodycam restore RUN\n  bodycam restore RUN --key recorder.pub --identity reader.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.restore(cmd.Context(), s, args[0])
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.dry, "dry-run", false, "say what would be done, and stop")
	fl.BoolVar(&f.all, "all", false, "write all copies, also of a run that keeps none")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.StringArrayVar(&f.keys, "key", nil, "file of the recorder's public signing keys (\"bodycam keys export\"; default: this machine's); repeatable")
	fl.StringVar(&f.identity, "identity", "", "file of age identities that open payloads (default: this machine's)")
	f.ring.add(fl)
	return cmd
}

func (f *restoreFlags) restore(ctx context.Context, s *streams, dir string) error {
	if err := mayRead(dir); err != nil {
		return err
	}
	r, err := store.Open(dir)
	if err != nil {
		if r = (&store.Run{Dir: dir}); !r.HasLedger() {
			return unopened(err)
		}
		// run.json is a copy as well.
	}
	if r.Identities, err = f.identities(); err != nil {
		return err
	}
	if err := f.vouched(ctx, r); err != nil {
		return err
	}
	done, err := r.Restore(store.RestoreOptions{All: f.all, Dry: f.dry, Now: time.Now(), Fine: func(k store.CopyFault) bool {
		if k.Name != features.Kept {
			return false
		}
		same, err := features.Genuine(r, joinRows)
		return err == nil && same
	}})
	if perr := f.say(s, dir, done); perr != nil {
		return environment(perr)
	}
	switch {
	case errors.Is(err, ledger.ErrNoKey):
		return &statusError{status: ExitInconclusive, err: err, hint: "the key that reads what was sealed is needed: see --identity"}
	case errors.Is(err, store.ErrUnended):
		return &statusError{status: ExitInconclusive, err: err}
	}
	return environment(err)
}

// vouched is the error for a ledger that isn't the truth that copies could be made of.
func (f *restoreFlags) vouched(ctx context.Context, r *store.Run) error {
	trust, _, err := f.trust()
	if err != nil {
		return err
	}
	rep, err := ledger.Verify(ctx, regular.FS(r.Dir), ledger.VerifyOptions{Trust: trust, Identities: r.Identities, Payloads: true})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage("%s has no ledger to restore from", r.Dir)
	case err != nil:
		return environment(fmt.Errorf("verifying %s: %w", r.Dir, err))
	case rep.Verdict == ledger.Tampered:
		return &statusError{status: ExitGate, err: fmt.Errorf("the ledger of %s was tampered with itself: nothing is written from it", r.Dir), hint: "bodycam verify " + r.Dir + " says what was changed"}
	case rep.Claims.Identity.Status != ledger.StatusVerified:
		return &statusError{status: ExitInconclusive, err: fmt.Errorf("nothing is written: whose ledger %s has isn't known: %s", r.Dir, strings.Join(rep.Claims.Identity.Reasons, "; ")),
			hint: "name the recorder's public keys with --key"}
	}
	return nil
}

func (f *restoreFlags) say(s *streams, dir string, done []store.Restored) error {
	if f.json {
		if done == nil {
			done = []store.Restored{}
		}
		return printJSON(s, struct {
			Run      string           `json:"run"`
			Dry      bool             `json:"dry_run,omitempty"`
			Restored []store.Restored `json:"restored"`
		}{dir, f.dry, done})
	}
	var b strings.Builder
	if len(done) == 0 {
		fmt.Fprintf(&b, "%s: every working copy is what was sealed\n", bodycam.Printable(dir))
	}
	written, moved := "written as it was sealed", "moved to "
	if f.dry {
		written, moved = "would be written as it was sealed", "would be moved to "
	}
	for _, d := range done {
		what := written
		switch {
		case d.Stray:
			what = moved + d.Aside
		case d.Aside != "":
			what += "; what stood there " + moved + d.Aside
		}
		fmt.Fprintf(&b, "%s %s: %s\n", bodycam.Printable(d.Name), bodycam.Printable(d.Why), bodycam.Printable(what))
	}
	_, err := s.out.Write([]byte(b.String()))
	return err
}
