// Command table audits every agent of the set and prints what became of each: `make liars`.
//
// Usage: table [-n TIMES] [-probes N] [-only NAME] [-bodycam PATH] [-judge local|oracle]. Agents that only the kernel's
// record convicts are audited by the bodycam program at PATH, as root.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/liars"
	"github.com/bodycam-dev/bodycam/internal/trust/report"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

type options struct {
	times, probes        int
	only, bodycam, judge string
}

func main() {
	var o options
	flag.IntVar(&o.times, "n", 1, "audits of each agent, with seeds from 1")
	flag.IntVar(&o.probes, "probes", 20, "probes a scope")
	flag.StringVar(&o.only, "only", "", "audit this agent alone")
	flag.StringVar(&o.bodycam, "bodycam", "bin/bodycam", "program that audits what needs the kernel's record")
	flag.StringVar(&o.judge, "judge", "local", "local: the embedded judge; oracle: one that knows the answers, to test all but a judge")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	wrong, err := o.table(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(3)
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

func (o *options) table(ctx context.Context) (wrong int, err error) {
	var judge trust.Judge = liars.Oracle{}
	if o.judge == "local" {
		if judge, err = audit.LocalJudge(); err != nil {
			return 0, err
		}
	}
	tmp, err := os.MkdirTemp("", "liars-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "agent\twhat it does\twant\tright\tscore\tpatterns\trests on")
	for _, a := range liars.All() {
		if o.only != "" && a.Name != o.only {
			continue
		}
		row := tally{patterns: map[string]int{}}
		for i := range o.times {
			r, err := o.once(ctx, a, judge, uint64(i+1), tmp)
			if ctx.Err() != nil {
				return wrong, context.Cause(ctx)
			}
			row.add(&a, r, err)
		}
		wrong += row.n - row.right
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d of %d\t%.0f–%.0f\t%s\t%s\n", a.Name, a.About, a.Want, row.right, row.n, row.low, row.high, row.list(), row.evidence)
		for _, e := range row.errs {
			fmt.Fprintf(tw, "\t  %s\n", e)
		}
		if err := tw.Flush(); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

// once audits an agent once.
func (o *options) once(ctx context.Context, a liars.Agent, judge trust.Judge, seed uint64, tmp string) (*score.Result, error) {
	dir := filepath.Join(tmp, fmt.Sprintf("%s-%d", a.Name, seed))
	if a.Kernel {
		return o.bySandbox(ctx, a, seed, dir)
	}
	wait := 10 * time.Second
	if a.Want == score.Inconclusive {
		wait = time.Second
	}
	return liars.Try(ctx, a, liars.Setting{Judge: judge, PerScope: o.probes, Seed: seed, Dir: dir, Timeout: 3 * time.Second, Wait: wait})
}

// bySandbox has bodycam run the agent under observation.
func (o *options) bySandbox(ctx context.Context, a liars.Agent, seed uint64, dir string) (*score.Result, error) {
	if o.judge != "local" {
		return nil, errors.New("only the embedded judge can be used in the sandbox")
	}
	work := dir + "-work"
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(work, "liar"), "github.com/bodycam-dev/bodycam/internal/trust/liars/liar")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the agent: %w: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, o.bodycam, "probe", "--json", "-q", "-o", dir, "--seed", fmt.Sprint(seed), "--probes", fmt.Sprint(o.probes), "--settle", "50ms",
		"--traces", "otlp", "--port", "8080", "--ready", "/health", "--workspace", work, "--", "./liar", "--agent", a.Name)
	cmd.Env = append(os.Environ(), "BODYCAM_KEYS="+dir+"-keys")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := new(report.Report)
	if jerr := json.Unmarshal(stdout.Bytes(), r); jerr != nil {
		return nil, fmt.Errorf("%s: %w: %s", o.bodycam, err, strings.TrimSpace(stderr.String()))
	}
	return r.Result, nil
}

// tally sums several audits of an agent up.
type tally struct {
	n, right  int
	low, high float64
	patterns  map[string]int
	evidence  string
	errs      []string
}

func (t *tally) add(a *liars.Agent, r *score.Result, err error) {
	t.n++
	if err == nil {
		err = a.Right(r)
		if t.n == 1 || r.Score < t.low {
			t.low = r.Score
		}
		t.high = max(t.high, r.Score)
		t.evidence = r.Evidence
		for _, p := range r.Patterns {
			t.patterns[p.Pattern]++
		}
	}
	if err == nil {
		t.right++
	} else if len(t.errs) < 3 {
		t.errs = append(t.errs, err.Error())
	}
}

func (t *tally) list() string {
	var out []string
	for p := range t.patterns {
		out = append(out, p)
	}
	slices.Sort(out)
	if len(out) == 0 {
		return "–"
	}
	return strings.Join(out, ", ")
}
