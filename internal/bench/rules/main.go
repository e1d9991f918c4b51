// Command rules measures what judging while a run goes on costs: the same run with the whole rule set at work on its
// events, against the run without. Runs alternate, so that what else the machine does hits both alike; the table gives
// medians of the ratios of neighbours and a bootstrap interval, for the time that the agent took and for all CPU time.
//
//	go run ./internal/bench/rules [-runs N] [-within TIME] [-bodycam BINARY]
//
// It needs root, git and python3.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam/internal/store"
)

// workloads are what the agent does. The first is calls and little else; the others are work as agents do it.
var workloads = []struct{ name, script string }{
	{"60,000 opens, one file after the other", `python3 -c "
import os
names = ['/workspace/f%d' % i for i in range(300)]
for n in names: open(n, 'w').close()
for _ in range(200):
    for n in names: os.close(os.open(n, 0))"`},
	{"600 programs", `i=0; while [ $i -lt 600 ]; do /bin/true; i=$((i+1)); done`},
	{"git: 40 commits, log, gc", `git init -q; git config user.name a; git config user.email a@b; for i in $(seq 40); do seq $i 2000 > f$i; git add -A; git commit -qm $i; done; git log -p --stat >/dev/null; git gc -q`},
	{"gcc: 12 files", `for i in $(seq 12); do printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint f%d(void){return %d;}\n' $i $i > a$i.c; gcc -O1 -c a$i.c; done`},
}

// leastPairs is how many pairs an interval needs.
const leastPairs = 3

func main() {
	runs := flag.Int("runs", 9, "pairs of runs of each workload")
	within := flag.Duration("within", 5*time.Minute, "time for all; a workload that takes longer than its share ends after fewer pairs, three at least")
	bin := flag.String("bodycam", "", "bodycam binary to use (default: it is built)")
	flag.Parse()
	if err := bench(context.Background(), *runs, *within, *bin); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, runs int, within time.Duration, bin string) error {
	if os.Geteuid() != 0 {
		return errors.New("the sandbox and its sensors need root")
	}
	dir, err := os.MkdirTemp("", "bodycam-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if bin == "" {
		bin = filepath.Join(dir, "bodycam")
		b, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/bodycam-dev/bodycam/cmd/bodycam").CombinedOutput()
		if err != nil {
			return fmt.Errorf("building bodycam: %w\n%s", err, b)
		}
	}
	fmt.Printf("Rules on against rules off: medians of the ratios of alternating pairs, [95 %% bootstrap interval]\n\n")
	fmt.Println("| workload | pairs | events | agent, off | agent, on/off | CPU of all, on/off |\n|---|---|---|---|---|---|")
	share := within / time.Duration(len(workloads))
	for _, w := range workloads {
		var on, off []sample
		begun := time.Now()
		for i := -1; i < runs && (len(on) < leastPairs || time.Since(begun) < share); i++ {
			a, err := once(ctx, bin, dir, w.script, i%2 == 0)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			b, err := once(ctx, bin, dir, w.script, i%2 != 0)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if i%2 != 0 {
				a, b = b, a
			}
			if i >= 0 { // the first pair warms caches
				on, off = append(on, a), append(off, b)
			}
		}
		agent, alo, ahi := ratio(on, off, func(s sample) float64 { return s.agent.Seconds() })
		cpu, clo, chi := ratio(on, off, func(s sample) float64 { return s.cpu.Seconds() })
		base := make([]float64, len(off))
		for i, s := range off {
			base[i] = s.agent.Seconds()
		}
		fmt.Printf("| %s | %d | %d | %.2f s | %.3f [%.3f–%.3f] | %.3f [%.3f–%.3f] |\n", w.name, len(on), off[0].events, median(base), agent, alo, ahi, cpu, clo, chi)
	}
	return nil
}

// sample is one run.
type sample struct {
	agent, cpu time.Duration
	events     uint64
}

// once records the workload, with rules at work or without.
func once(ctx context.Context, bin, dir, script string, judged bool) (s sample, err error) {
	out, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(out)
	args := []string{"run", "--kind", "command", "--analysis", "security", "--network", "none", "--json", "--quiet", "--fail-on", "never", "-o", out}
	if judged {
		args = append(args, "--alerts", "--stop-on", "never")
	}
	cmd := exec.CommandContext(ctx, bin, append(args, "--", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), "BODYCAM_KEYS="+filepath.Join(dir, "keys"))
	text, err := cmd.Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			err = fmt.Errorf("%w: %s", err, e.Stderr)
		}
		return s, err
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	lines := splitLines(text)
	var sum struct {
		Dir string `json:"dir"`
	}
	if len(lines) == 0 {
		return s, errors.New("it printed nothing")
	}
	if err := json.Unmarshal(lines[len(lines)-1], &sum); err != nil {
		return s, fmt.Errorf("reading what it printed: %w", err)
	}
	r, err := store.Open(sum.Dir)
	if err != nil {
		return s, err
	}
	if !r.Info.Complete.Complete {
		return s, fmt.Errorf("the record is incomplete: %v", r.Info.Complete.Reasons)
	}
	s.events = r.Info.Counts.Events
	for _, p := range r.Info.Phases {
		if p.Name == "agent" {
			s.agent = p.Ended.Sub(p.Started)
		}
	}
	return s, nil
}

func splitLines(b []byte) (out [][]byte) {
	from := 0
	for i, c := range b {
		if c == '\n' {
			out = append(out, b[from:i])
			from = i + 1
		}
	}
	return out
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	if n%2 == 1 {
		return x[n/2]
	}
	return (x[n/2-1] + x[n/2]) / 2
}

// ratio is the median of the ratios of neighbouring runs, with its bootstrap interval.
func ratio(on, off []sample, f func(sample) float64) (mid, lo, hi float64) {
	r := make([]float64, len(on))
	for i := range on {
		r[i] = f(on[i]) / f(off[i])
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const draws = 2000
	boot, draw := make([]float64, draws), make([]float64, len(r))
	for i := range boot {
		for j := range draw {
			draw[j] = r[rng.IntN(len(r))]
		}
		boot[i] = median(draw)
	}
	slices.Sort(boot)
	return median(r), boot[draws*25/1000], boot[draws*975/1000]
}
