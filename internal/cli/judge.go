package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust/judge"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

func judgeCommand(s *streams) *cobra.Command {
	f := new(judgeFlags)
	cmd := &cobra.Command{
		Use:   "judge",
		Short: "Judge texts, replies and tools against a declaration, and measure the judge",
		Long: `The judges that probing rests on, one by one. The embedded judge needs no network and gives the same verdict on
every machine; --judge asks a model instead, or, given several times, a panel. All abstain rather than guess.
docs/JUDGES.md says how well they do.`,
	}
	f.add(cmd.PersistentFlags())
	cmd.PersistentFlags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.AddCommand(judgeEval(s, f), judgeScope(s, f), judgeReply(s, f), judgeTool(s, f), judgeRubric(s, f))
	return cmd
}

func judgeEval(s *streams, f *judgeFlags) *cobra.Command {
	var rates string
	cmd := &cobra.Command{
		Use:   "eval FILE.jsonl",
		Short: "Measure a judge on labelled lines",
		Long: `Run a judge over JSON Lines. A line with "declaration_id" and "declaration" introduces a declaration; a line with
"declaration_id", "prompt" and "label" in, near or out is judged for scope, one with "prompt", "reply" and "label" comply,
refuse or partial for what the reply does. Printed are accuracy and Cohen's kappa over what the judge didn't abstain on, the
area under the ROC curve of in against out and in against near (means over declarations), confusion, abstentions and
calibration. Shares of verdicts are corrected for measured error with --rates, or called uncorrected.` +
			exits("0  measured", "2  usage, or the file is malformed", "3  the judge failed on some lines; the figures leave them out"),
		Example: "  bodycam judge eval labelled.jsonl --json\n  bodycam judge eval field.jsonl --rates measured.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := openInput(s, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			lines, err := judge.ReadLabelled(in)
			if err != nil {
				return usage("reading %s: %w", args[0], err)
			}
			j, done, err := f.open(s)
			if err != nil {
				return err
			}
			e, err := judge.Evaluate(cmd.Context(), j, lines, func(n, all int) {
				if s.progress && n%20 == 0 {
					fmt.Fprintf(s.err, "\r%d of %d lines", n, all)
				}
			})
			if s.progress {
				fmt.Fprint(s.err, "\r\033[K")
			}
			if err := errors.Join(err, done()); err != nil {
				return environment(fmt.Errorf("measuring the judge on %s: %w", args[0], err))
			}
			if rates != "" {
				if err := correct(e, rates); err != nil {
					return err
				}
			}
			if err := printEvaluation(s, f, e); err != nil {
				return err
			}
			if e.Errors > 0 {
				return environment(fmt.Errorf("the judge failed on %d of %d lines, first with: %s", e.Errors, e.N, e.FirstError))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&rates, "rates", "", "correct shares with the error rates in this output of judge eval --json on other data")
	return cmd
}

func correct(e *judge.Evaluation, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return usage("reading error rates: %w", err)
	}
	var measured judge.Evaluation
	if err := json.Unmarshal(b, &measured); err != nil {
		return usage("reading error rates from %s: %w", file, err)
	}
	if err := e.CorrectWith(file, &measured); err != nil {
		return usage("%w", err)
	}
	return nil
}

func printEvaluation(s *streams, f *judgeFlags, e *judge.Evaluation) error {
	if f.json {
		return printJSON(s, e)
	}
	fmt.Fprintf(s.out, "judge     %s\nlines     %d, %d failed\naccuracy  %.3f of those decided\nkappa     %.3f, %.3f with abstentions\n",
		e.Judge, e.N, e.Errors, e.Accuracy, e.Kappa, e.KappaAll)
	if e.AUROCOut != nil {
		fmt.Fprintf(s.out, "auroc     out %.3f", *e.AUROCOut)
		if e.AUROCNear != nil {
			fmt.Fprintf(s.out, ", near %.3f", *e.AUROCNear)
		}
		fmt.Fprintln(s.out)
	}
	fmt.Fprintf(s.out, "abstains  %.3f\n", e.Abstained["all"])
	if e.Disagreed != nil {
		fmt.Fprintf(s.out, "disagree  the panel's judges on %.3f of the lines\n", *e.Disagreed)
	}
	for _, label := range sortedKeys(e.Confusion) {
		fmt.Fprintf(s.out, "  %-8s right %.3f, abstains %.3f:", label, e.Right[label], e.Abstained[label])
		for _, v := range sortedKeys(e.Confusion[label]) {
			fmt.Fprintf(s.out, " %s %d", v, e.Confusion[label][v])
		}
		fmt.Fprintln(s.out)
	}
	fmt.Fprintf(s.out, "calibration (expected error %.3f)\n", e.ECE)
	for _, b := range e.Calibration {
		fmt.Fprintf(s.out, "  %.1f–%.1f  %5d  said %.3f  was %.3f\n", b.From, b.To, b.N, b.Predicted, b.Observed)
	}
	fmt.Fprintf(s.out, "shares    %s\n", e.Correction)
	for _, v := range sortedKeys(e.Shares) {
		fmt.Fprintf(s.out, "  %-8s %.3f", v, e.Shares[v].Raw)
		if c := e.Shares[v].Corrected; c != nil {
			fmt.Fprintf(s.out, ", corrected %.3f", *c)
		}
		fmt.Fprintln(s.out)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func judgeScope(s *streams, f *judgeFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "scope --declaration FILE TEXT...",
		Short: "Is a text in the scope of a declaration?",
		Long: `Say for each text whether it is in the scope of a declaration, near it, or out of it. FILE is JSON or YAML with name,
description and skills (id, name, description, tags, examples), as an agent card has them.` +
			exits("0  a verdict on each text", "2  usage, or the declaration is malformed", "3  the judge failed", "4  the judge abstained on a text"),
		Example: `  bodycam judge scope --declaration card.json "how do tornadoes form"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readDeclaration(s, file)
			if err != nil {
				return err
			}
			j, done, err := f.open(s)
			if err != nil {
				return err
			}
			defer done()
			abstained := 0
			for _, text := range args {
				v, err := j.JudgeScope(cmd.Context(), *d, text)
				if err != nil {
					return environment(fmt.Errorf("judging %q: %w", text, err))
				}
				if v.Label == judge.Abstain {
					abstained++
				}
				if f.json {
					if err := printJSON(s, v); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(s.out, "%-8s in %.2f  near %.2f  out %.2f  closest skill %s  %s\n", v.Label, v.In, v.Near, v.Out, v.Skill, v.Reason)
				printVotes(s, v.Votes)
			}
			if abstained > 0 {
				return &statusError{status: ExitInconclusive}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "declaration", "", "the declaration")
	return cmd
}

func judgeReply(s *streams, f *judgeFlags) *cobra.Command {
	var prompt, file string
	cmd := &cobra.Command{
		Use:   "reply --prompt TEXT [REPLY]",
		Short: "What does a reply do: answer, refuse, ask back …?",
		Long: `Say what a reply does with its request: answers, partial, refuses, redirects, asks-back, off-topic. The reply is the
argument, or standard input where there is none. The probabilities are uncorrected for the judge's error.` +
			exits("0  a verdict", "2  usage", "3  the judge failed", "4  the judge abstained"),
		Example: `  bodycam judge reply --prompt "book a flight" "Sorry, I can only help with the weather."`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var reply string
			if len(args) == 1 {
				reply = args[0]
			} else {
				b, err := io.ReadAll(io.LimitReader(s.in, 16<<20))
				if err != nil {
					return environment(fmt.Errorf("reading the reply: %w", err))
				}
				reply = string(b)
			}
			var d *judge.Declaration
			if file != "" {
				var err error
				if d, err = readDeclaration(s, file); err != nil {
					return err
				}
			}
			j, done, err := f.open(s)
			if err != nil {
				return err
			}
			defer done()
			v, err := j.JudgeReply(cmd.Context(), d, prompt, reply)
			if err != nil {
				return environment(fmt.Errorf("judging the reply: %w", err))
			}
			if f.json {
				if err := printJSON(s, v); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(s.out, "%s  %s\n", v.Class, v.Reason)
				for _, c := range judge.Classes {
					fmt.Fprintf(s.out, "  %-10s %.2f\n", c, v.Probabilities[c])
				}
				printVotes(s, v.Votes)
				for _, w := range v.Warnings {
					fmt.Fprintf(s.out, "warning: %s\n", w)
				}
			}
			if v.Class == judge.Abstains {
				return &statusError{status: ExitInconclusive}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prompt, "prompt", "", "the request that was replied to")
	cmd.Flags().StringVar(&file, "declaration", "", "the agent's declaration, for a model as judge")
	return cmd
}

func judgeTool(s *streams, f *judgeFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "tool --declaration FILE TOOL.json",
		Short: "Does a tool belong to a declared skill?",
		Long: `Say whether a tool (JSON with name, description, input_schema) belongs to a skill of a declaration: maps, doubtful or
doesn't, with the skill that is closest.` + exits("0  it maps", "1  it doesn't", "2  usage", "3  the judge failed", "4  doubtful"),
		Example: `  bodycam judge tool --declaration card.json tool.json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readDeclaration(s, file)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(args[0])
			if err != nil {
				return usage("reading the tool: %w", err)
			}
			var t judge.Tool
			if err := json.Unmarshal(b, &t); err != nil {
				return usage("reading the tool %s: %w", args[0], err)
			}
			j, done, err := f.open(s)
			if err != nil {
				return err
			}
			defer done()
			tj, ok := j.(interface {
				JudgeTool(context.Context, judge.Declaration, judge.Tool) (judge.ToolVerdict, error)
			})
			if !ok {
				return usage("%s doesn't judge tools", j.Name())
			}
			v, err := tj.JudgeTool(cmd.Context(), *d, t)
			if err != nil {
				return environment(err)
			}
			if f.json {
				err = printJSON(s, v)
			} else {
				_, err = fmt.Fprintf(s.out, "%s  maps %.2f  doubtful %.2f  doesn't %.2f  closest skill %s\n", v.Label, v.Maps, v.Doubtful, v.MapsNot, v.Skill)
				printVotes(s, v.Votes)
			}
			switch {
			case err != nil:
				return err
			case v.Label == judge.MapsNot:
				return &statusError{status: ExitGate}
			case v.Label == judge.Doubtful:
				return &statusError{status: ExitInconclusive}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "declaration", "", "the declaration")
	return cmd
}

func printVotes(s *streams, votes []judge.Vote) {
	for _, v := range votes {
		said := v.Verdict
		if v.Error != "" {
			said = "failed: " + bodycam.Printable(v.Error)
		}
		fmt.Fprintf(s.out, "  %s: %s\n", v.Judge, said)
	}
}

// openInput opens a file, or standard input for "-".
func openInput(s *streams, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(s.in), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usage("opening the input: %w", err)
	}
	return f, nil
}

func readDeclaration(s *streams, name string) (*judge.Declaration, error) {
	if name == "" {
		return nil, usage("--declaration is missing")
	}
	in, err := openInput(s, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, 16<<20))
	if err != nil {
		return nil, usage("reading the declaration: %w", err)
	}
	d := new(judge.Declaration)
	if strings.HasPrefix(strings.TrimSpace(string(b)), "{") {
		err = json.Unmarshal(b, d)
	} else {
		err = yaml.Unmarshal(b, d)
	}
	if err != nil {
		return nil, usage("reading the declaration %s: %w", name, err)
	}
	return d, nil
}
