// Command table audits every agent of the set, with one seed or several, and prints what became of each: `make liars`.
//
// Usage: table [-seeds N] [-first N] [-probes N] [-only NAME,…] [-out FILE] [-keep DIR] [-jobs N] [-bodycam PATH] [-judge local|oracle].
// Each audit's verdict is a line of FILE (JSON); what stands there already, of the same build, is not done again, so that an
// interrupted table goes on where it was. Agents that only the kernel's record convicts are audited by the bodycam program at
// PATH, as root.
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
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/liars"
	"github.com/bodycam-dev/bodycam/internal/trust/report"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

type options struct {
	first, seeds, probes, jobs int
	only, bodycam, judge, file string
	keep, tmp                  string
	by                         trust.Judge
	build                      sync.Once // of the program that serves agents in the sandbox
	liar                       string
	buildErr                   error
}

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 1, "audits of each agent, each with a seed of its own")
	flag.IntVar(&o.first, "first", 1, "the first of these seeds")
	flag.IntVar(&o.probes, "probes", 20, "probes a scope")
	flag.IntVar(&o.jobs, "jobs", 1, "audits at once")
	flag.StringVar(&o.only, "only", "", "audit these agents alone, separated by commas")
	flag.StringVar(&o.file, "out", "", "append verdicts to this file, and do nothing twice that stands in it")
	flag.StringVar(&o.keep, "keep", "", "keep the directories of audits with a wrong verdict here")
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

// chosen are the agents to audit.
func (o *options) chosen() ([]liars.Agent, error) {
	if o.only == "" {
		return liars.All(), nil
	}
	var out []liars.Agent
	for _, name := range strings.Split(o.only, ",") {
		a, ok := liars.Get(name)
		if !ok {
			return nil, fmt.Errorf("there is no agent %q", name)
		}
		out = append(out, a)
	}
	return out, nil
}

func (o *options) table(ctx context.Context) (wrong int, err error) {
	agents, err := o.chosen()
	if err != nil {
		return 0, err
	}
	o.by = liars.Oracle{}
	if o.judge == "local" {
		if o.by, err = audit.LocalJudge(); err != nil {
			return 0, err
		}
	}
	if o.tmp, err = os.MkdirTemp("", "liars-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(o.tmp)
	v, err := openVerdicts(o.file, o.bodycam, o.by.Name(), o.probes)
	if err != nil {
		return 0, err
	}
	err = errors.Join(o.all(ctx, agents, v), v.close())
	if perr := v.print(os.Stdout, agents, o.first, o.seeds); perr != nil {
		return 0, errors.Join(err, perr)
	}
	return v.wrong(agents, o.first, o.seeds), err
}

// all audits what is missing, one seed after another, so that an interrupted table has whole columns.
func (o *options) all(ctx context.Context, agents []liars.Agent, v *verdicts) error {
	type job struct {
		a    *liars.Agent
		seed uint64
	}
	work := make(chan job)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range max(1, o.jobs) {
		wg.Go(func() {
			for j := range work {
				if ctx.Err() != nil {
					continue
				}
				began := time.Now()
				r, err := o.once(ctx, *j.a, j.seed)
				if ctx.Err() != nil {
					continue
				}
				if err := v.add(verdictOf(j.a, j.seed, r, err, time.Since(began))); err != nil {
					stop(err)
				}
			}
		})
	}
	for seed := o.first; seed < o.first+o.seeds; seed++ {
		for i := range agents {
			if v.has(agents[i].Name, uint64(seed)) {
				continue
			}
			select {
			case work <- job{&agents[i], uint64(seed)}:
			case <-ctx.Done():
			}
		}
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// once audits an agent once.
func (o *options) once(ctx context.Context, a liars.Agent, seed uint64) (r *score.Result, err error) {
	dir := filepath.Join(o.tmp, fmt.Sprintf("%s-%d", a.Name, seed))
	defer func() {
		if o.keep != "" && err == nil && a.Right(r) != nil {
			err = errors.Join(os.MkdirAll(o.keep, 0o755), os.CopyFS(filepath.Join(o.keep, fmt.Sprintf("%s-%d-%s", a.Name, seed, time.Now().Format("150405"))), os.DirFS(dir)))
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if a.Kernel {
		return o.bySandbox(ctx, a, seed, dir)
	}
	// What comes is waited for as long as a busy machine may need; what never comes isn't.
	wait, timeout := 20*time.Second, 30*time.Second
	if a.Want == score.Inconclusive {
		wait, timeout = 2*time.Second, 3*time.Second
	}
	return liars.Try(ctx, a, liars.Setting{Judge: o.by, PerScope: o.probes, Seed: seed, Dir: dir, Timeout: timeout, Wait: wait})
}

// served builds the program that serves agents in the sandbox, once.
func (o *options) served(ctx context.Context) (string, error) {
	o.build.Do(func() {
		o.liar = filepath.Join(o.tmp, "liar")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.liar, "github.com/bodycam-dev/bodycam/internal/trust/liars/liar")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			o.buildErr = fmt.Errorf("building the agent: %w: %s", err, out)
		}
	})
	return o.liar, o.buildErr
}

// bySandbox has bodycam run the agent under observation.
func (o *options) bySandbox(ctx context.Context, a liars.Agent, seed uint64, dir string) (*score.Result, error) {
	if o.judge != "local" {
		return nil, errors.New("only the embedded judge can be used in the sandbox")
	}
	liar, err := o.served(ctx)
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	if err := os.Link(liar, filepath.Join(work, "liar")); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, o.bodycam, "probe", "--json", "-q", "-o", filepath.Join(dir, "audits"), "--seed", fmt.Sprint(seed), "--probes", fmt.Sprint(o.probes), "--settle", "50ms",
		"--traces", "otlp", "--port", "8080", "--ready", "/health", "--workspace", work, "--", "./liar", "--agent", a.Name)
	cmd.Env = append(os.Environ(), "BODYCAM_KEYS="+filepath.Join(dir, "keys"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	r := new(report.Report)
	if jerr := json.Unmarshal(stdout.Bytes(), r); jerr != nil {
		return nil, fmt.Errorf("%s: %w: %s", o.bodycam, err, strings.TrimSpace(stderr.String()))
	}
	return r.Result, nil
}

// verdictOf sums one audit up.
func verdictOf(a *liars.Agent, seed uint64, r *score.Result, err error, took time.Duration) verdict {
	v := verdict{Agent: a.Name, Seed: seed, Want: a.Want, Seconds: took.Round(10 * time.Millisecond).Seconds()}
	if err == nil {
		v.Gate, v.Score, v.Interval, v.Evidence, v.Reasons = r.Gate, r.Score, r.Interval, r.Evidence, r.Reasons
		for _, p := range r.Patterns {
			if !slices.Contains(v.Patterns, p.Pattern) {
				v.Patterns = append(v.Patterns, p.Pattern)
			}
		}
		err = a.Right(r)
	}
	if v.Right = err == nil; !v.Right {
		v.Why = err.Error()
	}
	return v
}
