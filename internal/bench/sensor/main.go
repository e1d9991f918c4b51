// Command sensor measures what recording costs: the CPU time of a workload with the recorder's own added, against the
// workload alone. Runs alternate, so that what else the machine does hits all alike; the table gives medians of the
// ratios and a bootstrap interval. Set-up (loading the programs) is measured apart, since it does not grow with the
// run. What this program itself does to start and await the workload is part of every run, also of the workload alone.
//
//	go run ./internal/bench/sensor [-runs N] [-workloads LIST] [-recorders LIST] [-seal]
//
// The workload "codex" is a whole run of the demo's task by the real codex in the sandbox, against the same run without
// sensors. With -seal there is a column more: the record is also written and sealed into a ledger, as every run's is.
//
// It needs root, git, go and codex (sh scripts/harness.sh codex); strace and auditd are measured where they are installed and can run.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/sandbox"
)

// result is one run.
type result struct {
	cpu, wall time.Duration // of the workload, with the recorder's CPU added
	recorder  time.Duration // of which the recorder's own, where it can be told apart
	setup     time.Duration
	peak      uint64 // bytes of memory that the recorder had at most
	note      string
}

// recorder runs a command and measures it.
type recorder struct {
	name string
	run  func(argv []string, dir string, env []string) (result, error)
}

func main() {
	sandbox.Init() // the sandbox's own processes are this program again
	if len(os.Args) == 3 && os.Args[1] == sessionArg {
		if err := playSession(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == workloadArg {
		if err := playWorkload(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	runs := flag.Int("runs", 7, "runs of each workload under each recorder")
	only := flag.String("workloads", "", "workloads to run, separated by commas (default: all)")
	with := flag.String("recorders", "", "recorders to compare, separated by commas (default: all that work here)")
	seal := flag.Bool("seal", false, "also measure with the record stored and sealed")
	profile := flag.String("cpuprofile", "", "write where the recorder spends its time to a file, for go tool pprof")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := bench(*runs, list(*only), list(*with), *seal); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func bench(runs int, only, with []string, seal bool) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the sensor needs root")
	}
	dir, err := os.MkdirTemp("", "bodycam-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	recorders, missing, err := recorders(dir, with, seal)
	if err != nil {
		return err
	}
	loads, err := workloads(dir, only)
	if err != nil {
		return err
	}
	fmt.Printf("CPU time against the workload alone (wall-clock ratio in brackets): medians of %d alternating runs, [95 %% bootstrap interval]\n\n", runs)
	fmt.Print("| workload | alone |")
	for _, r := range recorders[1:] {
		fmt.Printf(" %s |", r.name)
	}
	fmt.Print("\n|---|---|" + strings.Repeat("---|", len(recorders)-1) + "\n")
	var notes []string
	var setups []time.Duration
	for _, w := range loads {
		rs := recorders
		if w.whole != nil {
			defer w.whole.close()
			rs = w.whole.recorders(recorders)
		}
		got, err := alternate(w, rs, runs)
		if err != nil {
			return err
		}
		notes = append(notes, printRow(w.name, rs, got)...)
		for i, r := range rs {
			if r.name == ours && w.whole == nil {
				for _, x := range got[i] {
					setups = append(setups, x.setup)
				}
			}
		}
	}
	fmt.Println()
	if len(setups) > 0 {
		slices.Sort(setups)
		fmt.Printf("Loading and attaching the sensor: %s (median, once per run, not in the table).\n", setups[len(setups)/2].Round(time.Millisecond))
	}
	for _, m := range append(notes, missing...) {
		fmt.Println("- " + m)
	}
	return nil
}

// printRow prints a workload's line of the table and returns what is to be said of it below.
func printRow(name string, rs []recorder, got [][]result) (notes []string) {
	base := got[0]
	fmt.Printf("| %s | %.2f s |", name, median(seconds(base, cpuOf)))
	if last := base[len(base)-1]; last.note != "" {
		notes = append(notes, fmt.Sprintf("%s under %s: %s", name, rs[0].name, last.note))
	}
	for i, r := range rs[1:] {
		these := got[i+1]
		if len(these) == 0 {
			fmt.Print(" – |")
			continue
		}
		cpu, lo, hi := ratio(seconds(these, cpuOf), seconds(base, cpuOf))
		wall, _, _ := ratio(seconds(these, wallOf), seconds(base, wallOf))
		fmt.Printf(" %.2f [%.2f–%.2f] (%.2f) |", cpu, lo, hi, wall)
		last := these[len(these)-1]
		if last.note == "" {
			continue
		}
		note := fmt.Sprintf("%s under %s: %s", name, r.name, last.note)
		if last.recorder > 0 {
			note += fmt.Sprintf(", %s in the best run", slices.Min(recorderOf(these)).Round(100*time.Microsecond))
		}
		if last.peak > 0 {
			var peak uint64
			for _, x := range these {
				peak = max(peak, x.peak)
			}
			note += fmt.Sprintf(", at most %d MiB of memory with what it read of the ring", peak>>20)
		}
		notes = append(notes, note)
	}
	fmt.Println()
	return notes
}

// alternate runs a workload under every recorder in turn, runs times, after one run to warm caches.
func alternate(w workload, recorders []recorder, runs int) ([][]result, error) {
	out := make([][]result, len(recorders))
	for i := -1; i < runs; i++ {
		for j, r := range recorders {
			if r.run == nil {
				continue
			}
			if err := w.prepare(); err != nil {
				return nil, fmt.Errorf("preparing %s: %w", w.name, err)
			}
			res, err := r.run(w.argv, w.dir, w.env)
			if err != nil {
				return nil, fmt.Errorf("%s under %s: %w", w.name, r.name, err)
			}
			if i >= 0 {
				out[j] = append(out[j], res)
			} else if j == 0 && runs == 0 {
				return out, nil
			}
			if i < 0 && j == 0 {
				break // the warm-up needs no recorder
			}
		}
	}
	return out, nil
}

func cpuOf(r result) time.Duration  { return r.cpu }
func wallOf(r result) time.Duration { return r.wall }

func recorderOf(rs []result) []time.Duration {
	out := make([]time.Duration, len(rs))
	for i, r := range rs {
		out[i] = r.recorder
	}
	return out
}

func seconds(rs []result, f func(result) time.Duration) []float64 {
	out := make([]float64, len(rs))
	for i, r := range rs {
		out[i] = f(r).Seconds()
	}
	return out
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	if n == 0 {
		return 0
	}
	if n%2 == 1 {
		return x[n/2]
	}
	return (x[n/2-1] + x[n/2]) / 2
}

// ratio is the median of the ratios of runs made one after the other, with its bootstrap interval.
func ratio(with, without []float64) (mid, lo, hi float64) {
	r := make([]float64, len(with))
	for i := range with {
		r[i] = with[i] / without[i]
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const draws = 2000
	boot := make([]float64, draws)
	draw := make([]float64, len(r))
	for i := range boot {
		for j := range draw {
			draw[j] = r[rng.IntN(len(r))]
		}
		boot[i] = median(draw)
	}
	slices.Sort(boot)
	return median(r), boot[draws*25/1000], boot[draws*975/1000]
}
