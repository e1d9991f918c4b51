// Command conduct records a corpus of runs whose faults are known, and tells whether `bodycam compare` finds them: six
// small tasks, each done by a careful and by a sloppy scripted model, three times each, by the real codex and the
// built-in agent; and transcripts in the public formats, replayed. It prints a confusion table, and how homogeneous
// sets stand against mixed ones, and ends with status 1 where anything planted is missed, anything else is accused, or
// a mixed set is as similar as a homogeneous one.
//
//	go run ./internal/bench/conduct [-agents builtin,codex] [-out DIR]
//	go run ./internal/bench/conduct -out DIR -scale 1000
//
// It needs what recording needs: root (or an ordinary user with the weaker sensors), and codex for -agents codex.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	bodycam := flag.String("bodycam", "", "bodycam binary; built from this tree where empty")
	agents := flag.String("agents", "builtin,codex", "harnesses that play the scripts")
	out := flag.String("out", "", "folder for run directories; a temporary one where empty")
	data := flag.String("data", "internal/bench/conduct/testdata", "folder of the corpus")
	reuse := flag.Bool("reuse", false, "don't record: judge what an earlier call left in -out")
	jobs := flag.Int("jobs", 2, "runs at a time")
	many := flag.Int("scale", 0, "instead, compare so many synthetic runs that are made from those in -out")
	events := flag.Uint64("events", 50_000, "events of each synthetic run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, *bodycam, *out, *data, strings.Split(*agents, ","), *reuse || *many > 0, *jobs, *many, *events)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conduct:", err)
		os.Exit(3)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, bodycam, out, data string, agents []string, reuse bool, jobs, many int, events uint64) (bool, error) {
	work, err := os.MkdirTemp("", "bodycam-conduct-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	if out == "" {
		if reuse {
			return false, fmt.Errorf("-reuse and -scale need -out: what an earlier call recorded")
		}
		out = filepath.Join(work, "runs")
	}
	if bodycam == "" {
		bodycam = filepath.Join(work, "bodycam")
		if err := build(ctx, bodycam); err != nil {
			return false, err
		}
	}
	c, err := readCorpus(data)
	if err != nil {
		return false, err
	}
	truth := filepath.Join(out, "truth.json")
	if !reuse {
		if err := os.MkdirAll(out, 0o755); err != nil {
			return false, err
		}
		r := &recorder{ctx: ctx, bodycam: bodycam, out: out, data: data, work: work}
		if err := r.record(c, agents, jobs); err != nil {
			return false, err
		}
		if err := writeJSON(truth, r.done); err != nil {
			return false, err
		}
	}
	var recorded []recorded
	if err := readJSON(truth, &recorded); err != nil {
		return false, err
	}
	if many > 0 {
		return true, scale(ctx, bodycam, out, recorded, many, events)
	}
	return evaluate(ctx, bodycam, out, recorded)
}
