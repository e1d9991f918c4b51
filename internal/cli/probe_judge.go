package cli

import (
	"context"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/probe"
	"github.com/spf13/pflag"
)

// probeJudge say who judges.
type probeJudge struct {
}

func (f *probeJudge) add(fl *pflag.FlagSet) {}

// open makes the judge.
func (f *probeJudge) open(ctx context.Context) (trust.Judge, error) {
	if testJudge != nil {
		return testJudge, nil
	}
	return nil, usage("no judge")
}

var testJudge trust.Judge

// generator makes probes by a model; nil: the embedded generator does.
func (f *probeJudge) generator() (probe.Asker, error) { return nil, nil }
