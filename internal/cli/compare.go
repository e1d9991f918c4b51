package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/conduct"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/spf13/cobra"
)

type compareFlags struct {
	by, baseline, failOn []string
	metric, level, graph string
	byAction, failed     bool
	noise, drafts, json  bool
	least                float64
	thresholds           conduct.Thresholds
}

func compareCommand(s *streams) *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare RUN… | compare --by KEY,… DIR…",
		Short: "Compare runs: do they do the same, use the guidance, and nothing else?",
		Long: `Compare runs by what they did: how similar they are and which resources make the difference, which run stands apart,
how much of each skill was used, whether the grading material was read, and what nothing asked for.

Each argument is a run directory, or a folder of run directories. With --by the runs are put into sets that agree in
the keys (task, model, agent, kind, digest, version); the sets are then held against mixtures, and those whose tests
all passed are counted by what their verdict hides.

Similarity is the weighted Jaccard index of the shares of resources, averaged over commands, files and hosts
(docs/ANALYSES.md). Noise of the system and the harness is left out and shown apart; the published formula on raw
counts stands beside it, and is the one that counts with --metric agentspy.` +
			exits("0  compared", "1  --min-similarity or --fail-on is not met", "2  usage, or no run directory", "3  a run can't be read", "4  compared, but a record is incomplete, isn't what was sealed or can't be held against its ledger"),
		Example: `  bodycam compare runs/a runs/b runs/c
  bodycam compare --by task,model runs --json
  bodycam compare RUN --graph dot | neato -Tsvg > run.svg
  bodycam compare RUN --drafts                      what its skills' texts name, as obligations to edit`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.by, "by", nil, "put runs into sets by these keys: "+strings.Join(conduct.Keys, ", "))
	fl.StringVar(&f.metric, "metric", "bodycam", "bodycam (noise left out) or agentspy (the published formula on raw counts)")
	fl.StringVar(&f.level, "level", string(features.LevelSubcommand), "what names a command: executable, subcommand, argv")
	fl.BoolVar(&f.byAction, "by-action", false, "what names a file: its path and action, instead of its path")
	fl.BoolVar(&f.failed, "failed-calls", false, "count calls that failed too")
	fl.StringArrayVar(&f.baseline, "baseline", nil, "a run whose resources are legitimate: without skills, or known good (repeatable)")
	fl.StringVar(&f.graph, "graph", "", "print the star graph of one run: "+strings.Join(conduct.GraphForms, ", "))
	fl.BoolVar(&f.noise, "noise", false, "with --graph: noise too")
	fl.BoolVar(&f.drafts, "drafts", false, "print draft obligations from the texts of one run's skills, as YAML")
	fl.Float64Var(&f.least, "min-similarity", 0, "exit with 1 where a set's mean similarity is below this")
	fl.StringSliceVar(&f.failOn, "fail-on", nil, "exit with 1 on any of: leaks, unexplained, unused, outliers, obligations")
	fl.IntVar(&f.thresholds.Rank, "rank", 35, "least rank of an unexplained resource that counts in the table of passed sets and for --fail-on")
	fl.Float64Var(&f.thresholds.Coverage, "coverage", 0.25, "mean share of a skill's files below which it counts as unused in that table")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (f *compareFlags) check() error {
	for _, k := range f.by {
		if !slices.Contains(conduct.Keys, k) {
			return usage("--by %s: want %s", k, strings.Join(conduct.Keys, ", "))
		}
	}
	for _, k := range f.failOn {
		if !slices.Contains([]string{"leaks", "unexplained", "unused", "outliers", "obligations"}, k) {
			return usage("--fail-on %s: want leaks, unexplained, unused, outliers or obligations", k)
		}
	}
	if !(f.least >= 0 && f.least <= 1) {
		return usage("--min-similarity %v: want 0 to 1", f.least)
	}
	if f.metric != "bodycam" && f.metric != "agentspy" {
		return usage("--metric %s: want bodycam or agentspy", f.metric)
	}
	if !slices.Contains([]features.Level{features.LevelExecutable, features.LevelSubcommand, features.LevelArgv}, features.Level(f.level)) {
		return usage("--level %s: want executable, subcommand or argv", f.level)
	}
	if f.graph != "" && !slices.Contains(conduct.GraphForms, f.graph) {
		return usage("--graph %s: want %s", f.graph, strings.Join(conduct.GraphForms, ", "))
	}
	return nil
}

func (f *compareFlags) run(ctx context.Context, s *streams, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	dirs, err := runDirs(args)
	if err != nil {
		return err
	}
	if f.graph != "" || f.drafts {
		if len(dirs) != 1 {
			return usage("--graph and --drafts are for one run, not %d", len(dirs))
		}
		return f.one(s, dirs[0])
	}
	var baseline []*features.Features
	h := new(holder)
	var notes []string
	for _, b := range f.baseline {
		sub, err := openSubject(h, b)
		if err != nil {
			return err
		}
		baseline = append(baseline, sub.Features)
		notes = append(notes, incomplete(sub)...)
	}
	c := conduct.NewComparison(conduct.Options{Level: features.Level(f.level), ByAction: f.byAction, Failed: f.failed})
	err = eachSubject(ctx, h, dirs, func(sub *conduct.Subject) error {
		notes = append(notes, incomplete(sub)...)
		for _, b := range baseline {
			sub.Explain.Baseline(b)
		}
		if err := c.Add(sub); err != nil {
			return usage("%w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	res := c.Finish(f.by, f.thresholds)
	res.Baseline = f.baseline
	if f.json {
		enc := json.NewEncoder(s.out)
		enc.SetIndent("", "  ")
		err = enc.Encode(conduct.Flat(res, f.metric == "agentspy"))
	} else {
		err = res.Text(s.out, f.metric == "agentspy")
	}
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintf(s.err, "bodycam: %s\n", bodycam.Printable(n))
	}
	if err := f.status(res); err != nil || len(notes) == 0 {
		return err
	}
	return &statusError{status: ExitInconclusive} // a baseline's record is incomplete
}

// incomplete says why nothing can be concluded from what a run's record lacks.
func incomplete(sub *conduct.Subject) []string {
	if sub.Complete() {
		return nil
	}
	return []string{sub.Dir + ": the record is incomplete: " + strings.Join(sub.Lacks(), "; ")}
}

// one prints what concerns a single run.
func (f *compareFlags) one(s *streams, dir string) error {
	sub, err := openSubject(new(holder), dir)
	if err != nil {
		return err
	}
	if f.drafts {
		err = conduct.WriteDrafts(s.out, sub)
	} else {
		err = sub.Graph(f.noise).Write(s.out, f.graph)
	}
	if err != nil {
		return err
	}
	why := incomplete(sub)
	for _, n := range why {
		fmt.Fprintf(s.err, "bodycam: %s\n", bodycam.Printable(n))
	}
	if len(why) > 0 {
		return &statusError{status: ExitInconclusive}
	}
	return nil
}

func (f *compareFlags) status(res *conduct.Result) error {
	failed := map[string]bool{}
	complete := true
	for _, r := range res.Runs {
		complete = complete && r.Complete
		failed["leaks"] = failed["leaks"] || slices.ContainsFunc(r.Leaks, conduct.Leak.Read)
		failed["unexplained"] = failed["unexplained"] || slices.ContainsFunc(r.Unrelated, func(u conduct.Unrelated) bool { return u.Rank >= f.thresholds.Rank })
		failed["unused"] = failed["unused"] || slices.ContainsFunc(r.Coverage, conduct.Coverage.Unused)
		failed["obligations"] = failed["obligations"] || slices.ContainsFunc(r.Verdicts, func(v conduct.Verdict) bool { return v.Verdict == conduct.Fail })
	}
	for _, set := range res.Sets {
		failed["outliers"] = failed["outliers"] || len(set.Outliers) > 0
		m := set.Mean.Similarity
		if f.metric == "agentspy" {
			m = set.Mean.Published
		}
		if len(set.Pairs) > 0 && m.Overall < f.least {
			return &statusError{status: ExitGate}
		}
	}
	for _, k := range f.failOn {
		if failed[k] {
			return &statusError{status: ExitGate}
		}
	}
	if !complete {
		return &statusError{status: ExitInconclusive}
	}
	return nil
}

// runDirs finds the run directories that arguments name: each is one, or holds some.
func runDirs(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		_, err := os.Stat(filepath.Join(a, store.InfoFile))
		if err == nil {
			out = append(out, a)
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, environment(err)
		}
		runs, err := store.List(a)
		if err != nil {
			return nil, unopened(err)
		}
		if len(runs) == 0 {
			return nil, withHint(usage("%s: %w, and none is in it", a, store.ErrNotRun), "`bodycam run` prints where it leaves its run directories (by default under ./runs)")
		}
		for _, r := range runs {
			out = append(out, r.Dir)
		}
	}
	return out, nil
}

func openSubject(h *holder, dir string) (*conduct.Subject, error) {
	r, err := openRun(dir)
	if err != nil {
		return nil, err
	}
	h.hold(r)
	sub, err := conduct.Open(r, joinRows)
	if err != nil {
		return nil, environment(fmt.Errorf("run %s: %w", dir, err))
	}
	return sub, nil
}

// eachSubject opens runs on all processors and hands them over one by one, in order. Only a few are held at a time.
func eachSubject(ctx context.Context, h *holder, dirs []string, do func(*conduct.Subject) error) error {
	type opened struct {
		sub *conduct.Subject
		err error
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	queue := make(chan chan opened, runtime.GOMAXPROCS(0))
	go func() {
		defer close(queue)
		for _, dir := range dirs {
			one := make(chan opened, 1)
			select {
			case queue <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				sub, err := openSubject(h, dir)
				one <- opened{sub, err}
			}()
		}
	}()
	for one := range queue {
		o := <-one
		if o.err != nil {
			return o.err
		}
		if err := do(o.sub); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return environment(errors.New("interrupted"))
	}
	return nil
}
