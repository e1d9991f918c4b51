package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/anchor/watch"
	"github.com/spf13/cobra"
)

func anchorWatch(s *streams) *cobra.Command {
	var trust anchorTrust
	var every, maxAge, grace time.Duration
	var proofs, webhook string
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "watch RUN|FOLDER…",
		Short: "Alarm where anchors are late, missing or in conflict, or a recorder is silent",
		Long: `Follow the logs of runs, or of all runs in a folder (of mirrors too), and print an alarm, once, when: the recorder is silent
for longer than the heartbeat that its genesis promises; epochs are under no anchor for longer than promised (or
--max-age), now or between two anchors; a policy isn't met; a proof is false or another log's; a signed digest is missing; an anchor or another head contradicts the log; the log shrank
or is gone; this machine's own anchors keep failing; somebody
vouched for two histories, of which --equivocation keeps a proof that convicts him before anybody ("bodycam verify FILE").
Anchors are judged by --roots or --manifest, and --digests, as by "bodycam verify". --json prints a JSON object a line, and
--alert-webhook posts the same.` +
			exits("0  ended, or with --once: no alarm", "1  with --once: an alarm", "2  usage", "3  an alarm couldn't be printed"),
		Example: `  bodycam anchor watch runs --roots roots.json --max-age 1h
  bodycam anchor watch RUN --once --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := trust.manifest()
			if err != nil {
				return err
			}
			if webhook != "" {
				if err := checkWebhook("--alert-webhook", webhook); err != nil {
					return err
				}
			}
			for _, path := range args {
				if _, err := os.Stat(path); err != nil {
					return usage("%w", err)
				}
				if once && len(watch.Runs(path)) == 0 {
					return usage("%s holds no run to watch", path)
				}
			}
			w := alarmer{s: s, json: asJSON, webhook: webhook, paths: args, raised: map[string]bool{},
				w: watch.New(watch.Options{Manifest: m, Digests: trust.digests, MaxAge: maxAge, Grace: grace, Proofs: proofs})}
			return w.watch(cmd.Context(), every, once)
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&every, "every", 10*time.Second, "time between two looks")
	fl.DurationVar(&maxAge, "max-age", 0, "longest time between two anchors, where the log promises none")
	fl.DurationVar(&grace, "grace", 10*time.Second, "added to every promise")
	fl.BoolVar(&once, "once", false, "look once")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object a line")
	fl.StringVar(&proofs, "equivocation", "", "folder for proofs that two histories of a log were vouched for")
	fl.StringVar(&webhook, "alert-webhook", "", "URL that each alarm is posted to as JSON")
	trust.add(fl)
	return cmd
}

// alarmer follows runs and hands alarms on, each once while it lasts.
type alarmer struct {
	s       *streams
	w       *watch.Watcher
	json    bool
	webhook string
	paths   []string
	raised  map[string]bool
	count   int // alarms of the last look
}

func (a *alarmer) watch(ctx context.Context, every time.Duration, once bool) error {
	for {
		if err := a.look(ctx); err != nil {
			return environment(err)
		}
		if once {
			if a.count > 0 {
				return &statusError{status: ExitGate}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// look looks at all runs once. A webhook that doesn't take an alarm is said, and the alarm posted again with the next look.
func (a *alarmer) look(ctx context.Context) error {
	var runs []string
	for _, path := range a.paths {
		runs = append(runs, watch.Runs(path)...)
	}
	var alarms []watch.Alarm
	for _, run := range runs {
		alarms = append(alarms, a.w.Look(ctx, run)...)
	}
	if ctx.Err() != nil {
		return nil // what was looked at was cut short
	}
	now := map[string]bool{}
	var unposted []string
	for _, alarm := range append(alarms, a.w.Vanished(runs)...) {
		key := alarm.Run + "\x00" + alarm.Alarm
		if now[key] || a.raised[key] {
			now[key] = true
			continue
		}
		line := alarmLine{Type: "alarm", Time: time.Now().UTC(), Alarm: alarm}
		if err := line.print(a.s, a.json); err != nil {
			return err
		}
		now[key] = true
		if a.webhook == "" {
			continue
		}
		b, err := json.Marshal(line)
		if err == nil {
			err = post(&http.Client{Timeout: 5 * time.Second}, a.webhook, b)
		}
		if err != nil {
			fmt.Fprintf(a.s.err, "bodycam: %v\n", err)
			unposted = append(unposted, key)
		}
	}
	a.raised, a.count = now, len(now)
	for _, key := range unposted {
		delete(a.raised, key)
	}
	return nil
}

// alarmLine is an alarm as it is printed and posted.
type alarmLine struct {
	Type string    `json:"type"` // "alarm"
	Time time.Time `json:"time"`
	watch.Alarm
}

func (l *alarmLine) print(s *streams, asJSON bool) error {
	if asJSON {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.out, "%s\n", b)
		return err
	}
	proof := ""
	if l.Proof != "" {
		proof = "; the proof is in " + l.Proof
	}
	_, err := fmt.Fprintf(s.out, "%s  %-8s  %s: %s%s\n", l.Time.Format(time.RFC3339), l.Alarm.Alarm, bodycam.Printable(l.Run), bodycam.Printable(l.Why), bodycam.Printable(proof))
	return err
}

// checkWebhook refuses what can't be posted to.
func checkWebhook(flag, hook string) error {
	if u, err := url.Parse(hook); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usage("%s %s: want an http or https URL", flag, hook)
	}
	return nil
}
