package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/spf13/cobra"
)

type destroyFlags struct {
	epochs, events, records []string
	all, dry, json          bool
	consent                 consent
	reason                  string
	ring                    ringFlags
}

func keysDestroy(s *streams) *cobra.Command {
	var f destroyFlags
	cmd := &cobra.Command{
		Use:   "destroy RUN --event N…|--record N…|--epoch N…|--all --reason TEXT",
		Short: "Erase parts of a run by destroying their keys",
		Long: `Destroy the keys of events, records or whole epochs of a run. What they held can't be read any more, by anyone, from
this ledger; that it was there, and when, still verifies. The other events of a batch are kept with their proofs.
Findings that rest on erased events go with them. The working copies are purged and made again from what is left; so
are indexes and features, when they are next needed. The erasure itself is recorded, with its reason.

This destroys keys and copies in this run directory. It doesn't reach backups, mirrors that were given the keys, bundles
that were disclosed, or whoever read it before; other records may mention what was erased, and are listed. It doesn't
claim to be enough for any law. It can't be undone: on a terminal it says what will go and asks, elsewhere it needs --yes.` +
			exits("0  erased", "2  usage, or it wasn't confirmed", "3  the erasure failed; run it again"),
		Example: `  bodycam keys destroy RUN --event 17 --reason "personal data"
  bodycam keys destroy RUN --all --yes --reason "retention period over"
  bodycam keys destroy RUN --event 17 --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.ring.open(args[0])
			if err != nil {
				return err
			}
			e, err := f.erasure()
			if err != nil {
				return err
			}
			plan, err := r.PlanErase(*e)
			if err != nil {
				return usage("%w", err)
			}
			if f.dry {
				return f.say(s, plan, "would erase")
			}
			if f.reason == "" {
				return usage("--reason: say why; it is recorded")
			}
			if err := f.consent.confirm(s, "erase", fmt.Sprintf("This destroys the keys of %s in %s for good: nobody reads that from this ledger again, and its\nworking copies are purged. The run's record is called incomplete from then on.", describe(plan), bodycam.Printable(r.Dir))); err != nil {
				return err
			}
			return f.destroy(cmd, s, r, *e)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVarP(&f.events, "event", "e", nil, "event's number in the run, or a range; repeatable")
	fl.StringSliceVar(&f.records, "record", nil, "record's number in the ledger, or a range; repeatable")
	fl.StringSliceVar(&f.epochs, "epoch", nil, "epoch's number, or a range; repeatable")
	fl.BoolVar(&f.all, "all", false, "everything that the run holds")
	fl.StringVar(&f.reason, "reason", "", "why; at most 255 bytes, recorded in the clear")
	fl.BoolVar(&f.dry, "dry-run", false, "say what would be erased, and stop")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	f.consent.add(fl)
	f.ring.add(fl)
	return cmd
}

func (f *destroyFlags) erasure() (*store.Erasure, error) {
	e := &store.Erasure{Reason: f.reason}
	var err error
	if e.Events, err = numbers("--event", f.events); err != nil {
		return nil, err
	}
	if e.Records, err = numbers("--record", f.records); err != nil {
		return nil, err
	}
	if e.Epochs, err = numbers("--epoch", f.epochs); err != nil {
		return nil, err
	}
	if len(f.reason) > 255 {
		return nil, usage("--reason has %d bytes: at most 255", len(f.reason))
	}
	if f.all {
		if len(e.Events)+len(e.Records)+len(e.Epochs) > 0 {
			return nil, usage("--all leaves nothing to name besides")
		}
		e.All = true
		return e, nil
	}
	if len(e.Events)+len(e.Records)+len(e.Epochs) == 0 {
		return nil, usage("say what to erase: --event, --record, --epoch or --all")
	}
	return e, nil
}

func describe(p *store.Erased) string {
	var parts []string
	if n := len(p.Epochs); n > 0 {
		parts = append(parts, count(uint64(n), "epoch"))
	}
	if n := len(p.Records); n > 0 {
		parts = append(parts, count(uint64(n), "record"))
	}
	if len(p.Derived) > 0 {
		parts = append(parts, fmt.Sprintf("%d that rest on them", len(p.Derived)))
	}
	text := strings.Join(parts, " and ")
	if p.Events > 0 {
		text += " with " + count(uint64(p.Events), "event")
	}
	if p.Kept > 0 {
		text += fmt.Sprintf(" (other events of the same batches that are kept: %d)", p.Kept)
	}
	return text
}

func (f *destroyFlags) destroy(cmd *cobra.Command, s *streams, r *store.Run, e store.Erasure) error {
	ring, err := f.ring.ring()
	if err != nil {
		return err
	}
	sets, err := f.ring.signers()
	if err != nil {
		return err
	}
	signers, err := signersOf(r, sets)
	if err != nil {
		return err
	}
	seen, err := f.ring.seen(r)
	if err != nil {
		return environment(err)
	}
	done, err := r.Erase(cmd.Context(), e, ledger.Options{Recorder: recorderName(), Signers: signers, Recipients: ring.Recipients, Seen: seen})
	switch {
	case errors.Is(err, ledger.ErrRolledBack):
		return &statusError{status: ExitGate, err: err, hint: "the machine's log of runs knows more of it: `bodycam verify --host`"}
	case err != nil:
		return environment(err)
	}
	if err := f.ring.noteRun(cmd.Context(), r); err != nil {
		return environment(err)
	}
	return f.say(s, done, "erased")
}

func (f *destroyFlags) say(s *streams, p *store.Erased, verb string) error {
	if f.json {
		return printJSON(s, p)
	}
	fmt.Fprintf(s.out, "%s: %s\n", verb, describe(p))
	if len(p.Mention) > 0 {
		fmt.Fprintf(s.out, "these stay and may say something of it (--record N erases one):\n")
		for _, m := range p.Mention {
			fmt.Fprintf(s.out, "  record %d: %s\n", m.Record, m.What)
		}
	}
	return nil
}
