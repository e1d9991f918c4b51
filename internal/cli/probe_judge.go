package cli

import (
	"context"
	"net/http"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
	"github.com/bodycam-dev/bodycam/internal/trust/probe"
	"github.com/spf13/pflag"
)

// probeJudge says who judges an audit, and who makes its probes.
type probeJudge struct {
	judgeFlags
	genURL, genModel, genKey string
	done                     func() error
}

// testJudge takes the judge's place in tests.
var testJudge trust.Judge

func (f *probeJudge) add(fl *pflag.FlagSet) {
	f.judgeFlags.add(fl)
	fl.StringVar(&f.genURL, "generator", "", "OpenAI-compatible base URL of a model that makes the probes, instead of the embedded generator")
	fl.StringVar(&f.genModel, "generator-model", "", "its name")
	fl.StringVar(&f.genKey, "generator-key", "", "its key (env:NAME or file:PATH)")
}

// choose makes the judge.
func (f *probeJudge) choose(s *streams) (trust.Judge, error) {
	f.done = func() error { return nil }
	if testJudge != nil {
		return testJudge, nil
	}
	j, done, err := f.open(s)
	if err != nil {
		return nil, err
	}
	f.done = done
	r, err := f.rubric()
	if err != nil {
		return nil, err
	}
	return audit.FromJudge(j, r), nil
}

// generator makes probes by a model; nil: the embedded generator does.
func (f *probeJudge) generator() (probe.Asker, error) {
	if f.genURL == "" {
		return nil, nil
	}
	c, err := deliver.Credentials{Bearer: deliver.Secret(f.genKey)}.New()
	if err != nil {
		return nil, usage("--generator-key: %w", err)
	}
	chat := &deliver.Chat{HTTP: &http.Client{Transport: c.Transport, Timeout: 2 * time.Minute}, URL: f.genURL, Model: f.genModel}
	return func(ctx context.Context, prompt string) (string, error) {
		a, err := chat.Say(ctx, deliver.Message{Text: prompt})
		if err != nil {
			return "", err
		}
		return a.Text, nil
	}, nil
}
