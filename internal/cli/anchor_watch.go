package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/anchor/watch"
	"github.com/spf13/cobra"
)

func anchorWatch(s *streams) *cobra.Command {
	var trust anchorTrust
	var every, maxAge, grace time.Duration
	var proofs string
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "watch RUN|FOLDER…",
		Short: "Alarm where anchors are late, missing or in conflict, or a recorder is silent",
		Long: `Follow the logs of runs, or of all runs in a folder (of mirrors too), and print an alarm, once, when: the recorder is silent
for longer than the heartbeat that its genesis promises; epochs are under no anchor for longer than promised (or
--max-age); an anchor or another head contradicts the log; the log shrank; this machine's own anchors keep failing; somebody
vouched for two histories, of which --equivocation keeps a proof that convicts him before anybody ("bodycam verify FILE").
Anchors are judged by --roots or --manifest, as by "bodycam verify".` +
			exits("0  ended, or with --once: no alarm", "1  with --once: an alarm", "2  usage"),
		Example: `  bodycam anchor watch runs --roots roots.json --max-age 1h
  bodycam anchor watch RUN --once --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := trust.manifest()
			if err != nil {
				return err
			}
			w := watch.New(watch.Options{Manifest: m, MaxAge: maxAge, Grace: grace, Proofs: proofs})
			raised := map[string]bool{}
			for {
				now := map[string]bool{}
				for _, path := range args {
					for _, run := range watch.Runs(path) {
						for _, a := range w.Look(cmd.Context(), run) {
							key := a.Run + "\x00" + a.Alarm
							now[key] = true
							if raised[key] {
								continue
							}
							if err := printAlarm(s, a, asJSON); err != nil {
								return environment(err)
							}
						}
					}
				}
				if raised = now; once {
					if len(now) > 0 {
						return &statusError{status: ExitGate}
					}
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(every):
				}
			}
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&every, "every", 10*time.Second, "time between two looks")
	fl.DurationVar(&maxAge, "max-age", 0, "longest time between two anchors, where the log promises none")
	fl.DurationVar(&grace, "grace", 10*time.Second, "added to every promise")
	fl.BoolVar(&once, "once", false, "look once")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object a line")
	fl.StringVar(&proofs, "equivocation", "", "folder for proofs that two histories of a log were vouched for")
	trust.add(fl)
	return cmd
}

func printAlarm(s *streams, a watch.Alarm, asJSON bool) error {
	if asJSON {
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.out, "%s\n", b)
		return err
	}
	proof := ""
	if a.Proof != "" {
		proof = "; the proof is in " + a.Proof
	}
	_, err := fmt.Fprintf(s.out, "%s  %-8s  %s: %s%s\n", time.Now().UTC().Format(time.RFC3339), a.Alarm, bodycam.Printable(a.Run), bodycam.Printable(a.Why), bodycam.Printable(proof))
	return err
}
