package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/report"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/rules"
	"github.com/spf13/cobra"
)

type checkFlags struct {
	rules              []string
	noBuiltin          bool
	failOn             string
	json, sarif, junit bool
}

func checkCommand(s *streams) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check RUN…",
		Short: "Judge recorded runs by security rules",
		Long: `Judge recorded runs by the security rules: the built-in ones, those of the run's kind, and further files. A finding
names the rule, the call that shows it, the process with everything above it, the row of the transcript that caused it
(or that none did), and the events with their records in the ledger. Alike calls are one finding with a count.

The runs are only read, and held against their ledgers with this machine's keys: over a run that isn't what was sealed, of
which events were erased, or that no key at hand compares, nothing found is no verdict. They can be judged again by other rules at any time (docs/RULES.md).` +
			exits("0  no finding reaches --fail-on, and the record is complete", "1  a finding reaches --fail-on, even over an incomplete record",
				"2  usage, no run directory, or a rule file is wrong", "3  a run can't be read", "4  nothing found, but a record is incomplete: no verdict"),
		Example: `  bodycam check runs/20260101-120000-ab
  bodycam check runs/* --rules house.yaml --json | jq '.findings[] | .rule'
  bodycam check RUN --sarif > bodycam.sarif       for GitHub's code scanning
  bodycam check RUN --junit > bodycam.xml --fail-on medium`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.rules, "rules", nil, "further rule file, read after the built-in ones and the kind's (repeatable)")
	fl.BoolVar(&f.noBuiltin, "no-builtin", false, "only the files of --rules, without the built-in rules and the kind's")
	fl.StringVar(&f.failOn, "fail-on", "high", "severity of findings from which the exit status is 1: info, low, medium, high, critical, never")
	fl.BoolVar(&f.json, "json", false, "print one JSON object a run")
	fl.BoolVar(&f.sarif, "sarif", false, "print SARIF 2.1.0")
	fl.BoolVar(&f.junit, "junit", false, "print JUnit XML")
	cmd.MarkFlagsMutuallyExclusive("json", "sarif", "junit")
	return cmd
}

func (f *checkFlags) run(ctx context.Context, s *streams, args []string) error {
	g, err := parseGate(f.failOn)
	if err != nil {
		return err
	}
	if f.noBuiltin && len(f.rules) == 0 {
		return withHint(usage("--no-builtin leaves no rules"), "name rule files with --rules")
	}
	further, err := ruleSources(f.rules)
	if err != nil {
		return err
	}
	var checks []report.Check
	status := ExitOK
	var h holder
	for _, arg := range args {
		r, err := openKeyed(arg)
		if err != nil {
			return err
		}
		h.hold(r)
		c, err := f.check(ctx, r, further)
		if err != nil {
			return err
		}
		switch {
		case g.fails(c.Findings):
			status = worse(status, ExitGate)
		case !c.Complete:
			status = worse(status, ExitInconclusive)
		}
		checks = append(checks, *c)
	}
	for _, c := range checks {
		for _, name := range c.Rules.Changed {
			fmt.Fprintf(s.err, "bodycam: %s: the kind's rules %s are another on disk now: the run is judged by those that it keeps (--rules adds others)\n", bodycam.Printable(c.Run), bodycam.Printable(name))
		}
	}
	if err := f.print(s, checks, g); err != nil {
		return environment(err)
	}
	if status != ExitOK {
		return &statusError{status: status}
	}
	return nil
}

// openKeyed opens a run, with this machine's keys where it is kept in its ledger alone.
func openKeyed(arg string) (*store.Run, error) {
	r, err := openRun(arg)
	if err != nil || !r.Sealed() {
		return r, err
	}
	ring, _, err := openRing()
	if err != nil {
		return nil, err
	}
	r.Identities = ring.Identities
	return r, nil
}

func ruleSources(files []string) ([]rules.Source, error) {
	var out []rules.Source
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, usage("reading rules: %w", err)
		}
		out = append(out, rules.Source{Name: name, Data: b})
	}
	return out, nil
}

// check judges one run.
func (f *checkFlags) check(ctx context.Context, r *store.Run, further []rules.Source) (*report.Check, error) {
	p, err := planOf(r)
	if err != nil {
		return nil, environment(err)
	}
	o, err := securityOptions(r, p)
	if err != nil {
		return nil, loadError(err)
	}
	if o.Rules, err = f.set(o.Policy, p, further); err != nil {
		return nil, loadError(err)
	}
	findings, err := checkRun(ctx, r, o, nil)
	if err != nil {
		return nil, environment(fmt.Errorf("judging %s: %w", r.Dir, err))
	}
	if findings == nil {
		findings = []bodycam.Finding{}
	}
	if err := locate(r, findings); err != nil {
		return nil, environment(err)
	}
	whole := r.Info.Complete.Lacking(gaveUp(findings)...)
	c := &report.Check{Run: r.Info.ID, Dir: r.Dir, Task: r.Info.Task.Name, Findings: findings, Complete: whole.Complete,
		Reasons: whole.Reasons, Workspace: p.Judge.Workspace, Rules: report.RuleSet{List: describeRules(o.Rules)}}
	if !f.noBuiltin {
		c.Rules.Version, c.Rules.Digest = security.Version, security.Digest()
		for _, k := range p.Judge.Rules {
			c.Rules.Files = append(c.Rules.Files, k.Path)
		}
		c.Rules.Changed = otherRules(p)
	}
	c.Rules.Files = append(c.Rules.Files, f.rules...)
	return c, nil
}

// set loads the rules that a run is judged by.
func (f *checkFlags) set(y security.Policy, p *kind.Plan, further []rules.Source) (*rules.Set, error) {
	if f.noBuiltin {
		return security.LoadOnly(y, offline, further...)
	}
	ofKind, err := kindRules(p)
	if err != nil {
		return nil, err
	}
	return security.Load(y, offline, append(ofKind, further...)...)
}

// loadError tells errors of rule files, which are the user's, from others.
func loadError(err error) error {
	var bad rules.Errors
	if errors.As(err, &bad) {
		return usage("%w", err)
	}
	return environment(err)
}

func describeRules(set *rules.Set) []report.Rule {
	var out []report.Rule
	for _, r := range set.List() {
		if r.Enabled && len(r.Unsupported) == 0 {
			out = append(out, report.Rule{Name: r.Name, Class: r.Class, Desc: r.Desc, Example: r.Example, Severity: r.Priority.Severity(), Tags: r.Tags})
		}
	}
	return out
}

// locate adds to findings the ledger's records that hold their events.
func locate(r *store.Run, findings []bodycam.Finding) error {
	if !r.HasLedger() {
		return nil
	}
	var all []uint64
	for _, f := range findings {
		all = append(all, f.Events...)
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	lr, err := r.Ledger()
	if err != nil {
		return fmt.Errorf("opening the ledger of %s: %w", r.Dir, err)
	}
	places, err := store.Locate(lr, slices.Compact(all))
	if err != nil {
		return fmt.Errorf("finding events in the ledger of %s: %w", r.Dir, err)
	}
	for i := range findings {
		f := &findings[i]
		f.Records = nil
		for _, e := range f.Events {
			if at, ok := places[e]; ok {
				f.Records = append(f.Records, at.Record)
			}
		}
		if len(f.Records) != len(f.Events) { // a number must stand beside each, or beside none
			f.Records = nil
		}
	}
	return nil
}

func (f *checkFlags) print(s *streams, checks []report.Check, g gate) error {
	switch {
	case f.sarif:
		return report.SARIF(s.out, version(), checks)
	case f.junit:
		return report.JUnit(s.out, checks, func(x *bodycam.Finding) bool { return g.fails([]bodycam.Finding{*x}) })
	case f.json:
		enc := json.NewEncoder(s.out)
		for i := range checks {
			if err := enc.Encode(&checks[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range checks {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		if err := checks[i].Text(s.out, s.colour); err != nil {
			return err
		}
	}
	return nil
}
