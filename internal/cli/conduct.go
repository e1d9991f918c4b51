package cli

import (
	"context"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/conduct"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/rules"
)

// judgeConduct is the built-in analysis "conduct".
func judgeConduct(_ context.Context, r *store.Run, _ *kind.Plan) ([]bodycam.Finding, error) {
	s, err := conduct.Open(r, joinRows)
	if err != nil {
		return nil, err
	}
	return s.Findings()
}

// bits are the rules' words for what explains a resource.
var bits = map[features.Source]rules.Explanation{
	features.ByTask: rules.ByTask, features.ByKind: rules.ByAllowList, features.BySystem: rules.ByAllowList,
	features.ByBaseline: rules.ByBaseline, features.BySkill: rules.BySkill, features.BySiblings: rules.BySiblings,
}

// explainer says what names a resource of a run, as the rules ask for it: the same explanation that conduct gives.
func explainer(r *store.Run) (func(bodycam.ResourceKind, string) rules.Explanation, error) {
	plan, err := features.ParsePlan(r.Info.Plan)
	if err != nil {
		return nil, err
	}
	x := features.NewExplainer(plan)
	known := map[bodycam.Resource]rules.Explanation{}
	const most = 100_000
	return func(kind bodycam.ResourceKind, name string) rules.Explanation {
		id := bodycam.Resource{Kind: kind, Name: name}
		e, ok := known[id]
		if !ok {
			for _, reason := range x.Named(kind, name) {
				e |= bits[reason.By]
			}
			if len(known) < most {
				known[id] = e
			}
		}
		return e
	}, nil
}
