package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/rules"
	"github.com/spf13/cobra"
)

func rulesCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List, check and try security rules",
		Long: `Rules are files in Falco's language, with what a sandbox can say beyond it (docs/RULES.md).` +
			exits("0  fine", "1  the files are fine, but a rule in them can't match anything here (rules check), or alerts changed (rules test --fail)", "2  usage, or a rule file is wrong"),
		Example: "  bodycam rules list\n  bodycam rules check house.yaml\n  bodycam rules test --rules house.yaml runs/*",
	}
	cmd.AddCommand(rulesListCommand(s), rulesCheckCommand(s), rulesFieldsCommand(s), rulesTestCommand(s))
	return cmd
}

func rulesListCommand(s *streams) *cobra.Command {
	var files []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List rules: the built-in ones and those of further files",
		Long:    "List the built-in rules, and those of further files, each with its class, severity and mode." + exits("0  listed", "2  a rule file is wrong"),
		Example: "  bodycam rules list\n  bodycam rules list --rules house.yaml --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			set, err := ruleFilesSet(files, true)
			if err != nil {
				return err
			}
			return listRules(s.out, set, asJSON)
		},
	}
	cmd.Flags().StringArrayVar(&files, "rules", nil, "further rule file (repeatable)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a rule")
	return cmd
}

// ruleFilesSet loads rule files, after the built-in ones where these are wanted.
func ruleFilesSet(files []string, builtin bool) (*rules.Set, error) {
	further, err := ruleSources(files)
	if err != nil {
		return nil, err
	}
	load := security.LoadOnly
	if builtin {
		load = security.Load
	}
	set, err := load(security.Policy{}, rules.Options{CanDeny: keeps("").can}, further...)
	if err != nil {
		return nil, usage("%w", err)
	}
	if builtin {
		err = reachable(set, security.Policy{}, further)
	}
	return set, err
}

// ruleLine is a rule as `rules list --json` prints it.
type ruleLine struct {
	Name        string           `json:"name"`
	Class       string           `json:"class,omitempty"`
	Severity    bodycam.Severity `json:"severity"`
	Priority    string           `json:"priority"`
	Mode        string           `json:"mode"`
	Enabled     bool             `json:"enabled"`
	Desc        string           `json:"description"`
	Example     string           `json:"example,omitempty"`
	Tags        []string         `json:"tags,omitempty"`
	Where       string           `json:"where"`
	Sequence    bool             `json:"sequence,omitempty"`
	Unsupported []string         `json:"unsupported,omitempty"` // why it can't match anything
}

func listRules(w io.Writer, set *rules.Set, asJSON bool) error {
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	enc := json.NewEncoder(w)
	for _, r := range set.List() {
		l := ruleLine{r.Name, r.Class, r.Priority.Severity(), r.Priority.String(), r.Mode.String(), r.Enabled, r.Desc, r.Example, r.Tags, r.Pos.String(), r.Sequence, nil}
		for _, g := range r.Unsupported {
			l.Unsupported = append(l.Unsupported, g.String())
		}
		if asJSON {
			if err := enc.Encode(l); err != nil {
				return environment(err)
			}
			continue
		}
		note := ""
		switch {
		case !r.Enabled:
			note = "disabled"
		case len(l.Unsupported) > 0:
			note = "unsupported: " + l.Unsupported[0]
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", l.Severity, l.Class, l.Mode, bodycam.Printable(l.Name), bodycam.Printable(note))
	}
	if err := tw.Flush(); err != nil {
		return environment(err)
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil { // a rule without a note
			return environment(err)
		}
	}
	return nil
}

func rulesCheckCommand(s *streams) *cobra.Command {
	var alone bool
	cmd := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check rule files: syntax, names, and whether each rule can match here",
		Long: `Read rule files as a run would, after the built-in rules, and say what is wrong with them: every error with file, line,
column and the nearest right name. A rule whose condition needs what our events can't supply is named with the reason.
A rule of mode deny that can't be kept is an error.` +
			exits("0  the files are fine", "1  they load, but a rule of theirs can't match anything", "2  they don't load"),
		Example: "  bodycam rules check house.yaml\n  bodycam rules check --alone falco_rules.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := ruleFilesSet(args, !alone)
			if err != nil {
				return err
			}
			mine := map[string]bool{}
			for _, a := range args {
				mine[a] = true
			}
			for _, w := range set.Warnings() {
				if !mine[w.Pos.File] {
					continue // the built-in rules' own are no business of these files
				}
				fmt.Fprintf(s.out, "warning: %s\n", bodycam.Printable(w.Error()))
			}
			n, bad := 0, 0
			for _, r := range set.List() {
				if !mine[r.Pos.File] {
					continue
				}
				n++
				if r.Enabled && len(r.Unsupported) > 0 {
					bad++
					for _, g := range r.Unsupported {
						fmt.Fprintf(s.out, "%s: rule %q is unsupported: %s: %s\n", r.Pos, bodycam.Printable(r.Name), g.Need, g.Reason)
					}
				}
			}
			fmt.Fprintf(s.out, "%d rule(s), %d unsupported\n", n, bad)
			if bad > 0 {
				return &statusError{status: ExitGate}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&alone, "alone", false, "without the built-in rules before them")
	return cmd
}

func rulesFieldsCommand(s *streams) *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:     "fields",
		Short:   "List the fields that conditions and outputs can use",
		Long:    "List the fields of the language with type, argument and meaning; with --all also Falco's that our events can't supply, and why." + exits("0  listed"),
		Example: "  bodycam rules fields | grep host",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			tw := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
			enc := json.NewEncoder(s.out)
			for _, f := range rules.Fields() {
				if !f.Supplied && !all {
					continue
				}
				if asJSON {
					if err := enc.Encode(map[string]any{"name": f.Name, "type": f.Type, "argument": f.Arg, "supplied": f.Supplied, "meaning": f.Meaning, "events": f.Events}); err != nil {
						return environment(err)
					}
					continue
				}
				name := f.Name
				if f.Arg != "" {
					name += "[" + f.Arg + "]"
				}
				meaning := f.Meaning
				if !f.Supplied {
					meaning = "not supplied: " + meaning
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\n", name, f.Type, meaning)
			}
			return environment(tw.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a field")
	cmd.Flags().BoolVar(&all, "all", false, "also fields that our events can't supply")
	return cmd
}

// change is an alert that only one of two rule sets gives.
type change struct {
	Run      string           `json:"run"`
	Rule     string           `json:"rule"`
	Severity bodycam.Severity `json:"severity"`
	Appears  bool             `json:"appears"` // false: it vanishes
	Event    uint64           `json:"event"`
	Title    string           `json:"title"`
	Count    uint64           `json:"count"` // alike calls
}

func rulesTestCommand(s *streams) *cobra.Command {
	var files []string
	var asJSON, fail bool
	cmd := &cobra.Command{
		Use:   "test --rules FILE RUN…",
		Short: "Show which alerts would appear or vanish with further rules",
		Long: `Play recorded runs against the rules as they are (built-in and the kind's) and with further files behind them, and
show the alerts that only one of the two gives.` +
			exits("0  compared", "1  with --fail: an alert appears or vanishes", "2  usage, or a rule file is wrong", "3  a run can't be read",
				"4  compared, but a run's record is incomplete, isn't what was sealed, or can't be held against its ledger"),
		Example: "  bodycam rules test --rules exceptions.yaml runs/*",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return usage("want --rules FILE")
			}
			further, err := ruleSources(files)
			if err != nil {
				return err
			}
			changed := false
			enc := json.NewEncoder(s.out)
			var h holder
			var incomplete error
			for _, arg := range args {
				r, err := openKeyed(arg)
				if err != nil {
					return err
				}
				h.hold(r)
				if err := stands(s, arg, r.Info.Complete); err != nil {
					incomplete = err
				}
				list, old, now, err := tryRules(cmd.Context(), r, further)
				if err != nil {
					return err
				}
				changed = changed || len(list) > 0
				for i := range list {
					c := &list[i]
					if asJSON {
						err = enc.Encode(c)
					} else {
						sign := "+"
						if !c.Appears {
							sign = "-"
						}
						_, err = fmt.Fprintf(s.out, "%s %s %s: %s (event %d, ×%d)\n", sign, c.Severity, bodycam.Printable(c.Rule), bodycam.Printable(c.Title), c.Event, c.Count)
					}
					if err != nil {
						return environment(err)
					}
				}
				if !asJSON {
					fmt.Fprintf(s.out, "%s: %d alert(s) before, %d with %d file(s) more\n", arg, old, now, len(files))
				}
			}
			if changed && fail {
				return &statusError{status: ExitGate}
			}
			return incomplete
		},
	}
	cmd.Flags().StringArrayVar(&files, "rules", nil, "rule file to try (repeatable)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a change")
	cmd.Flags().BoolVar(&fail, "fail", false, "exit with 1 where anything changes")
	return cmd
}

// tryRules plays a run against two sets of rules.
func tryRules(ctx context.Context, r *store.Run, further []rules.Source) (list []change, old, now uint64, err error) {
	p, err := planOf(r)
	if err != nil {
		return nil, 0, 0, environment(err)
	}
	o, err := securityOptions(r, p)
	if err != nil {
		return nil, 0, 0, loadError(err)
	}
	ofKind, err := kindRules(p)
	if err != nil {
		return nil, 0, 0, environment(err)
	}
	var side [2]*security.Analyser
	for i, more := range [][]rules.Source{nil, further} {
		q := o
		if q.Rules, err = security.Load(o.Policy, offline, append(append([]rules.Source{}, ofKind...), more...)...); err != nil {
			return nil, 0, 0, loadError(err)
		}
		if side[i], err = security.New(q); err != nil {
			return nil, 0, 0, loadError(err)
		}
	}
	at := map[string]int{}
	note := func(a *security.Alert, e *bodycam.Event, appears bool) {
		key := fmt.Sprint(appears, "\x00", a.Finding.Rule, "\x00", a.Finding.Resource)
		i, ok := at[key]
		if !ok {
			i = len(list)
			at[key] = i
			list = append(list, change{Run: r.Info.ID, Rule: a.Finding.Rule, Severity: a.Finding.Severity, Appears: appears, Event: e.Seq, Title: a.Finding.Title})
		}
		list[i].Count++
	}
	err = r.Events(func(e *bodycam.Event) error {
		x, y := side[0].Event(e), side[1].Event(e)
		old, now = old+uint64(len(x)), now+uint64(len(y))
		for i := range x {
			if !alerts(y, &x[i]) {
				note(&x[i], e, false)
			}
		}
		for i := range y {
			if !alerts(x, &y[i]) {
				note(&y[i], e, true)
			}
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, store.ErrTorn) {
		return nil, 0, 0, environment(err)
	}
	return list, old, now, nil
}

// alerts tells whether a list has an alert of the same rule and severity.
func alerts(list []security.Alert, a *security.Alert) bool {
	for i := range list {
		if list[i].Finding.Rule == a.Finding.Rule && list[i].Finding.Severity == a.Finding.Severity {
			return true
		}
	}
	return false
}
