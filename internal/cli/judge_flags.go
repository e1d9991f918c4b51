package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
	"github.com/bodycam-dev/bodycam/internal/trust/judge"
	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// judgeFlags choose a judge. `probe` and the commands below `judge` share them.
type judgeFlags struct {
	judges                     []string
	record, replay, agentModel string
	rubricFile                 string
	json                       bool
}

const judgeSpec = "URL,model=NAME[,api=" + judge.ChatCompletions + "|" + judge.Messages + "][,key=env:NAME|file:PATH]"

func (f *judgeFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.judges, "judge", nil, "who judges: embedded (default), or a model: "+judgeSpec+"; repeated: a panel")
	fl.StringVar(&f.record, "judge-record", "", "append the models' answers to this file")
	fl.StringVar(&f.replay, "judge-replay", "", "take the models' answers from this file, and ask nobody")
	fl.StringVar(&f.agentModel, "agent-model", "", "the judged agent's own model: a judge of the same family is warned of")
	fl.StringVar(&f.rubricFile, "rubric", "", "YAML file with the score of each reply class in each scope (\"bodycam judge rubric\" prints the default)")
}

// rubric reads the rubric that the flags choose.
func (f *judgeFlags) rubric() (*judge.Rubric, error) {
	if f.rubricFile == "" {
		return judge.DefaultRubric()
	}
	b, err := os.ReadFile(f.rubricFile)
	if err != nil {
		return nil, usage("reading the rubric: %w", err)
	}
	r, err := judge.ParseRubric(b)
	if err != nil {
		return nil, withHint(usage("--rubric %s: %w", f.rubricFile, err), "begin with what `bodycam judge rubric` prints")
	}
	return r, nil
}

// open returns the judge that the flags choose, and what closes it.
func (f *judgeFlags) open(s *streams) (j judge.Judge, done func() error, err error) {
	done = func() error { return nil }
	specs := f.judges
	if len(specs) == 0 {
		specs = []string{"embedded"}
	}
	o := judge.ModelOptions{}
	if o.Rubric, err = f.rubric(); err != nil {
		return nil, done, err
	}
	if f.replay != "" {
		in, err := os.Open(f.replay)
		if err != nil {
			return nil, done, usage("opening the recorded answers: %w", err)
		}
		defer in.Close()
		if o.Replay, err = judge.ReadAnswers(in); err != nil {
			return nil, done, usage("reading %s: %w", f.replay, err)
		}
	}
	if f.record != "" {
		out, err := os.OpenFile(f.record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, done, usage("opening the file for answers: %w", err)
		}
		w := &lockedWriter{w: out} // a panel's judges share the file
		o.Record, done = w, out.Close
	}
	var list []judge.Judge
	for i, spec := range specs {
		if slices.Contains(specs[:i], spec) {
			return nil, done, errors.Join(usage("--judge %s: given twice", spec), done())
		}
		one, err := f.one(s, spec, o)
		if err != nil {
			return nil, done, errors.Join(err, done())
		}
		list = append(list, one)
	}
	if len(list) == 1 {
		return list[0], done, nil
	}
	return &judge.Panel{Judges: list}, done, nil
}

// one makes the judge of one --judge.
func (f *judgeFlags) one(s *streams, spec string, o judge.ModelOptions) (judge.Judge, error) {
	if spec == "embedded" {
		l, err := judge.NewLocal()
		if errors.Is(err, minilm.ErrNoModel) {
			return nil, withHint(usage("%w", err), "choose a model with --judge "+judgeSpec+", or use the standard build")
		}
		return l, err
	}
	parts := strings.Split(spec, ",")
	if !strings.HasPrefix(parts[0], "http://") && !strings.HasPrefix(parts[0], "https://") {
		return nil, usage("--judge %s: want embedded or %s", spec, judgeSpec)
	}
	o.Endpoint = parts[0]
	for _, p := range parts[1:] {
		k, v, _ := strings.Cut(p, "=")
		switch k {
		case "model":
			o.Model = v
		case "api":
			o.API = v
		case "key":
			var err error
			if o.Key, err = deliver.Secret(v).Value(); err != nil {
				return nil, usage("the key of --judge %s: %w", parts[0], err)
			}
		default:
			return nil, usage("--judge %s: there is no option %q; want %s", parts[0], k, judgeSpec)
		}
	}
	m, err := judge.NewModel(o)
	if err != nil {
		return nil, usage("--judge %s: %w", parts[0], err)
	}
	if w := judge.SameFamily(o.Model, f.agentModel); w != "" {
		fmt.Fprintf(s.err, "bodycam: warning: %s\n", w)
	}
	return m, nil
}

func judgeRubric(s *streams, f *judgeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "rubric [FILE]",
		Short: "Print the default rubric, or check one",
		Long: `Print the table that turns a reply's class and its request's scope into a text score, in YAML, as it ships. An edited copy is
given to ` + "`probe --rubric`" + `; reports name its version, so change that with it. With FILE, that rubric is checked.` +
			exits("0  printed, or FILE is a rubric", "2  FILE is none"),
		Example: "  bodycam judge rubric > strict.yaml\n  bodycam judge rubric strict.yaml\n  bodycam probe --rescore audits/… --rubric strict.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && f.rubricFile == "" && !f.json {
				_, err := s.out.Write(judge.RubricText())
				return err
			}
			if len(args) == 1 {
				f.rubricFile = args[0]
			}
			r, err := f.rubric()
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(s, r)
			}
			fmt.Fprintf(s.out, "%s is complete: version %s\n", f.rubricFile, r.Version)
			return nil
		},
	}
}
