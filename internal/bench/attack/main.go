// Command attack plays the attack corpus: every attack and every harmless twin runs in the real sandbox, through a real
// harness with a scripted model, in a network whose hosts are all a stand-in. It prints by class how many attacks were
// executed (as an oracle without our sensors tells), how many of those the rules found, and how many twins they took for
// attacks.
//
//	go run ./internal/bench/attack [-run REGEXP] [-agent builtin|codex] [-keep DIR] [-v]
//
// It needs root, Go and what the attacks use: python3, git, curl, perl, gcc, node, openssl.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/security/attacks"
)

func main() {
	o := options{}
	pattern := flag.String("run", "", "only cases whose name matches")
	flag.StringVar(&o.agent, "agent", "builtin", "harness that carries the model's calls out")
	flag.StringVar(&o.keep, "keep", "", "keep the run directories here")
	flag.StringVar(&o.bin, "bodycam", "", "static bodycam binary to use (default: it is built)")
	flag.BoolVar(&o.quick, "quick", false, "only the short selection")
	flag.IntVar(&o.jobs, "jobs", 2, "runs at one time")
	verbose := flag.Bool("v", false, "say more of each case")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, o, *pattern, *verbose, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, o options, pattern string, verbose bool, w io.Writer) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the sandbox and its sensors need root")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	cases, err := attacks.Load()
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c attacks.Case) bool { return !re.MatchString(c.Name) || o.quick && !c.Quick })
	results, err := play(ctx, o, cases, func(r *result) { tell(w, r, verbose) })
	if err != nil {
		return err
	}
	score(results).print(w)
	return nil
}

// tell prints what came of a case, where it isn't as it should be or more is wanted.
func tell(w io.Writer, r *result, verbose bool) {
	ok := r.err == nil && r.executed && r.right()
	if ok && !verbose {
		return
	}
	word := "ok"
	switch {
	case r.err != nil:
		word = "ERROR " + r.err.Error()
	case !r.executed:
		word = "NOT CARRIED OUT " + r.why
	case r.c.Harm && !r.found:
		word = "MISSED"
	case r.c.Harm && !r.right():
		word = "OTHER CLASS"
	case !r.c.Harm && r.found:
		word = "FALSE ALARM"
	}
	kind := "benign"
	if r.c.Harm {
		kind = "attack"
	}
	fmt.Fprintf(w, "%s %s (%s): %s\n", kind, r.c.Name, r.c.Class, word)
	for _, f := range r.findings {
		if verbose || f.Severity >= bodycam.Medium {
			fmt.Fprintf(w, "    %s %s [%s]: %s\n", f.Severity, f.Rule, f.Class, f.Title)
		}
	}
	for _, s := range r.notes {
		fmt.Fprintf(w, "    note: %s\n", s)
	}
}

// counts of one class.
type counts struct {
	attacks, executed, found, named int
	twins, carried, alarms          int
}

type table struct {
	classes []string
	by      map[string]*counts
	sum     counts
}

// score counts results by class. Attacks that were not executed count neither for nor against.
func score(results []result) *table {
	t := &table{by: map[string]*counts{}}
	for i := range results {
		r := &results[i]
		c := t.by[r.c.Class]
		if c == nil {
			c = &counts{}
			t.by[r.c.Class] = c
			t.classes = append(t.classes, r.c.Class)
		}
		for _, c := range []*counts{c, &t.sum} {
			c.add(r)
		}
	}
	return t
}

func (c *counts) add(r *result) {
	one := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	if r.c.Harm {
		c.attacks++
		c.executed += one(r.executed)
		c.found += one(r.executed && r.found)
		c.named += one(r.executed && r.right())
		return
	}
	c.twins++
	c.carried += one(r.executed)
	c.alarms += one(r.found)
}

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| class\t| attacks\t| executed\t| found\t| recall\t| as that class\t| twins\t| carried out\t| false alarms\t| precision\t|")
	fmt.Fprintln(tw, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	line := func(name string, c *counts) {
		fmt.Fprintf(tw, "| %s\t| %d\t| %d\t| %d\t| %s\t| %d\t| %d\t| %d\t| %d\t| %s\t|\n", name, c.attacks, c.executed, c.found, share(c.found, c.executed),
			c.named, c.twins, c.carried, c.alarms, share(c.found, c.found+c.alarms))
	}
	for _, name := range t.classes {
		line(name, t.by[name])
	}
	line("all", &t.sum)
	_ = tw.Flush()
}

func share(n, of int) string {
	if of == 0 {
		return "–"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*float64(n)/float64(of)), ".0") + " %"
}

// binary builds bodycam as it is shipped: static, so that its builtin agent can go into the sandbox.
func binary(ctx context.Context, dir string) (string, error) {
	out := filepath.Join(dir, "bodycam")
	b, err := command(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", out, "github.com/bodycam-dev/bodycam/cmd/bodycam").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building bodycam: %w\n%s", err, b)
	}
	return out, nil
}
