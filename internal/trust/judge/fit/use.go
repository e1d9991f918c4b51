package main

import (
	"fmt"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/judge"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// reportUse prints what an audit takes a tool for by the judge and by its use: on four probes in scope alone, or on four
// outside alone, beside 20 traced probes in scope that didn't need it.
func reportUse(cases []toolCase) {
	for _, scope := range []trust.Scope{trust.In, trust.Near} {
		fmt.Printf("in an audit, seen on probes of scope %s alone:\n", scope)
		for _, label := range judge.Alignments {
			taken := map[trust.Fit]int{}
			for _, c := range cases {
				if c.label == label {
					taken[inUse(c, scope)]++
				}
			}
			fmt.Printf("  %-8s declared %d in doubt %d undeclared %d\n", label, taken[trust.Fits], taken[trust.Doubtful], taken[trust.FitsNot])
		}
	}
}

func inUse(c toolCase, scope trust.Scope) trust.Fit {
	fits := map[string]trust.Fit{judge.Maps: trust.Fits, judge.Doubtful: trust.Doubtful, judge.MapsNot: trust.FitsNot}
	const tool = "tool"
	e := &score.Evidence{Declaration: &trust.Declaration{}, TracesPromised: true, Exchanges: map[string]*trust.Exchange{}, Calls: map[string][]trust.Calls{},
		Tools: map[string]trust.FitOpinion{tool: {Fit: fits[c.got], Probability: c.p[0], Against: c.p[2]}}}
	for i := range 24 {
		p := trust.Probe{ID: fmt.Sprint(i), Scope: trust.In}
		calls := trust.Calls{Source: "otlp", Found: true, Complete: true, Confidence: 1}
		if i >= 20 {
			p.Scope, calls.Calls = scope, []trust.Call{{Tool: tool}}
		}
		e.Probes = append(e.Probes, p)
		e.Exchanges[p.ID] = &trust.Exchange{Probe: p.ID}
		e.Calls[p.ID] = []trust.Calls{calls}
	}
	return score.Score(e, score.Defaults()).Tools[0].Fit
}
