package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/anchor/config"
	"github.com/bodycam-dev/bodycam/internal/conduct"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

func kindCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kind",
		Short: "Show, check and describe execution kinds",
		Long: `An execution kind is the declarative YAML that configures a class of tasks: environment, agent, hooks, time-outs,
sensors, analyses, and what the analyses judge by. docs/KINDS.md is its reference.` + exits("0  fine", "2  the kind or task is wrong: the errors name file and line"),
		Example: "  bodycam kind show\n  bodycam kind check my-kind.yaml\n  bodycam kind schema > kind.schema.json",
	}
	cmd.AddCommand(kindShow(s), kindCheck(s), kindSchema(s))
	return cmd
}

func kindShow(s *streams) *cobra.Command {
	var asJSON bool
	var task string
	cmd := &cobra.Command{
		Use:     "show [KIND]",
		Short:   "List the built-in kinds, or show one with all that it inherits",
		Long:    "Without an argument, list the built-in kinds. With one, print the kind as it stands after everything it extends." + exits("0  shown", "2  there is no such kind, or it is wrong"),
		Example: "  bodycam kind show harbor\n  bodycam kind show harbor --task ./task --json    the resolved plan",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && task == "" {
				return listKinds(s, asJSON)
			}
			f := runFlags{}
			if len(args) == 1 {
				f.kind = args[0]
			}
			if task != "" {
				plan, err := f.resolve(task, nil)
				if err != nil {
					return err
				}
				return printJSON(s, plan)
			}
			k, err := kind.Load(f.kind)
			if err != nil {
				return usage("%w", err)
			}
			if asJSON {
				return printJSON(s, k)
			}
			return printYAML(s, k)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&task, "task", "", "show the plan that the kind and this task resolve to")
	return cmd
}

func listKinds(s *streams, asJSON bool) error {
	type entry struct {
		Name        string `json:"name"`
		Extends     string `json:"extends,omitempty"`
		Description string `json:"description"`
	}
	var list []entry
	for _, name := range kind.Builtins() {
		k, err := kind.Load(name)
		if err != nil {
			return err
		}
		list = append(list, entry{name, k.Extends, k.Description})
	}
	if asJSON {
		return printJSON(s, list)
	}
	for _, e := range list {
		fmt.Fprintf(s.out, "%-12s %s\n", e.Name, e.Description)
	}
	return nil
}

func kindCheck(s *streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "check FILE…",
		Short:   "Check kind files and task directories",
		Long:    "Read each kind file or task, and the rule files, harness and analyses that it names, and print every fault with file, line and\nthe nearest right name." + exits("0  all are right", "2  at least one is wrong"),
		Example: "  bodycam kind check my-kind.yaml ./task",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			bad := 0
			type result struct {
				File   string   `json:"file"`
				OK     bool     `json:"ok"`
				Errors []string `json:"errors,omitempty"`
				Notes  []string `json:"notes,omitempty"`
			}
			var results []result
			for _, a := range args {
				res := result{File: a, OK: true}
				notes, err := checkFile(a)
				for _, n := range notes {
					res.Notes = append(res.Notes, fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text))
				}
				if err != nil {
					bad++
					res.OK, res.Errors = false, strings.Split(err.Error(), "\n")
				}
				results = append(results, res)
			}
			if asJSON {
				if err := printJSON(s, results); err != nil {
					return err
				}
			} else {
				for _, r := range results {
					for _, e := range r.Errors {
						fmt.Fprintln(s.out, e)
					}
					for _, n := range r.Notes {
						fmt.Fprintln(s.out, "note:", n)
					}
					if r.OK {
						fmt.Fprintf(s.out, "%s: right\n", r.File)
					}
				}
			}
			if bad > 0 {
				return &statusError{status: ExitUsage}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func kindSchema(s *streams) *cobra.Command {
	var task bool
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of kind files, for editors",
		Long:    "Print the JSON Schema that editors use to complete and check kind files (or task.yaml with --task)." + exits("0  printed"),
		Example: "  # first line of a kind file:\n  # yaml-language-server: $schema=kind.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := kind.Schema()
			if task {
				b = kind.TaskSchema()
			}
			_, err := s.out.Write(b)
			return err
		},
	}
	cmd.Flags().BoolVar(&task, "task", false, "the schema of task.yaml")
	return cmd
}

// checkFile reads a task (a directory, or a task.yaml) or a kind file.
func checkFile(name string) ([]kind.Note, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if st.IsDir() || filepath.Base(name) == "task.yaml" || filepath.Base(name) == "task.toml" {
		t, err := kind.LoadTask(name)
		if err != nil {
			return nil, err
		}
		return t.Notes, errors.Join(checkObligations(t.Judge.Obligations, name), checkRules(t.Judge.Rules, func(msg string, _ int) error {
			return fmt.Errorf("%s: judge.rules: %s", filepath.Clean(name), msg)
		}))
	}
	if !filepath.IsAbs(name) {
		name = "." + string(filepath.Separator) + filepath.Clean(name) // a kind's bare name means a built-in one
	}
	k, err := kind.Load(name)
	if err != nil {
		return nil, err
	}
	if _, err := config.Parse(k.Anchors, filepath.Dir(name)); err != nil {
		return nil, fmt.Errorf("%s: anchors: %w", filepath.Clean(name), err)
	}
	return nil, errors.Join(checkNames(k), checkRules(k.Judge.Rules, func(msg string, i int) error {
		return k.Problem(msg, "judge", "rules", strconv.Itoa(i))
	}), checkObligations(k.Judge.Obligations, name))
}

// checkNames makes sure that the harness and the analyses that a kind names are there.
func checkNames(k *kind.Kind) error {
	var probs kind.Problems
	check := func(name string, known []string, path ...string) {
		if slices.Contains(known, name) {
			return
		}
		msg := fmt.Sprintf("there is no %q: want %s", name, strings.Join(known, ", "))
		if near := kind.Nearest(name, known); near != "" {
			msg = fmt.Sprintf("there is no %q: did you mean %s?", name, near)
		}
		probs = append(probs, k.Problem(msg, path...))
	}
	if k.Agent.Harness != "" {
		check(k.Agent.Harness, harness.Names(), "agent", "harness")
	}
	for i, a := range k.Analyses {
		if len(a.Command.Args()) == 0 {
			check(a.Name, slices.Sorted(maps.Keys(analyses)), "analyses", strconv.Itoa(i))
		}
	}
	return probs.Err()
}

// checkRules loads each rule file after the built-in rules. fault places what is wrong with the i-th.
func checkRules[T ~string](files []T, fault func(msg string, i int) error) error {
	var errs []error
	for i, f := range files {
		if _, err := ruleFilesSet([]string{string(f)}, true); err != nil {
			errs = append(errs, fault(err.Error(), i))
		}
	}
	return errors.Join(errs...)
}

// checkObligations names each fault of the obligations in a file.
func checkObligations(list []json.RawMessage, file string) error {
	_, err := conduct.ParseObligations(list)
	if err == nil {
		return nil
	}
	faults := strings.Split(err.Error(), "\n")
	for i := range faults {
		faults[i] = filepath.Clean(file) + ": " + faults[i]
	}
	return errors.New(strings.Join(faults, "\n"))
}

// printYAML prints a value in the order of its JSON form's members.
func printYAML(s *streams, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(b)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = s.out.Write(text)
	return err
}

func printJSON(s *streams, v any) error {
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
