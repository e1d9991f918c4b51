package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bodycam-dev/bodycam/internal/trust/judge"
)

type labelledTool struct {
	DeclarationID string             `json:"declaration_id"`
	Declaration   *judge.Declaration `json:"declaration"` // introduces one that isn't among the scope's
	Skill         string             `json:"skill"`
	Tool          judge.Tool         `json:"tool"`
	Label         string             `json:"label"`
}

const (
	toolRidge = 10
	toolSteps = 200
)

func toolSamples(l *judge.Local, decls []labelledDeclaration) ([]sample, []labelledTool, error) {
	raw, err := data.ReadFile("data/tools.jsonl")
	if err != nil {
		return nil, nil, err
	}
	cards := map[string]*judge.Card{}
	for i := range decls {
		cards[decls[i].id] = l.Card(decls[i].d)
	}
	features := map[string][][]float64{}
	var samples []sample
	var tools []labelledTool
	for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var t labelledTool
		if err := json.Unmarshal(line, &t); err != nil {
			return nil, nil, fmt.Errorf("tools.jsonl, line %d: %w", i+1, err)
		}
		if t.Declaration != nil {
			cards[t.DeclarationID] = l.Card(*t.Declaration)
			continue
		}
		card, class := cards[t.DeclarationID], slices.Index(judge.Alignments, t.Label)
		if card == nil || class < 0 {
			return nil, nil, fmt.Errorf("tools.jsonl, line %d: no declaration %q or no label %q", i+1, t.DeclarationID, t.Label)
		}
		at := slices.IndexFunc(card.Declaration.Skills, func(s judge.Skill) bool { return s.ID == t.Skill })
		if at < 0 {
			return nil, nil, fmt.Errorf("tools.jsonl, line %d: the declaration has no skill %q", i+1, t.Skill)
		}
		key := t.DeclarationID + "/" + t.Tool.Name
		if features[key] == nil {
			features[key] = l.ToolFeatures(card, t.Tool)
		}
		samples = append(samples, sample{x: features[key][at], class: class, weight: 1, group: t.DeclarationID, kind: t.Label})
		tools = append(tools, t)
	}
	return samples, tools, nil
}

func fitTool(h *judge.Heads, samples []sample) {
	h.Tool = regress(judge.Alignments, judge.ToolFeatures, samples, toolRidge, toolSteps)
}

// toolCase is a tool against a skill, or against a whole declaration, and what was said of it.
type toolCase struct {
	label, got string
	p          []float64
}

// validateTool prints how the head does on the tools of declarations that it wasn't fitted to.
func validateTool(l *judge.Local) error {
	decls, err := declarations()
	if err != nil {
		return err
	}
	samples, tools, err := toolSamples(l, decls)
	if err != nil {
		return err
	}
	var groups []string
	for _, s := range samples {
		if !slices.Contains(groups, s.group) {
			groups = append(groups, s.group)
		}
	}
	var pairs []toolCase
	whole := map[string]*toolCase{} // by declaration and tool: the skill that fits best, as audits ask
	var order []string
	for _, g := range groups {
		var train []sample
		for _, s := range samples {
			if s.group != g {
				train = append(train, s)
			}
		}
		var h judge.Heads
		fitTool(&h, train)
		for i, s := range samples {
			if s.group != g {
				continue
			}
			p := h.Tool.Predict(s.x)
			one := toolCase{s.kind, judge.ToolLabel(p), p}
			pairs = append(pairs, one)
			key := g + "/" + tools[i].Tool.Name
			w := whole[key]
			if w == nil {
				whole[key] = &one
				order = append(order, key)
				continue
			}
			if p[0] > w.p[0] {
				w.got, w.p = one.got, p
			}
			if slices.Index(judge.Alignments, s.kind) < slices.Index(judge.Alignments, w.label) {
				w.label = s.kind
			}
		}
	}
	var all []toolCase
	for _, key := range order {
		w := whole[key]
		if w.label != w.got && w.label != judge.Doubtful && w.got != judge.Doubtful {
			fmt.Printf("  %s: %s, not %s (%.2f)\n", key, w.label, w.got, w.p)
		}
		all = append(all, *w)
	}
	reportTools(fmt.Sprintf("tools against skills, %d declarations, each left out in turn", len(groups)), pairs)
	reportTools("tools against declarations", all)
	reportUse(all)
	return nil
}

func reportTools(title string, cases []toolCase) {
	confusion, clear := map[[2]string]int{}, map[[2]string]int{}
	var maps, not []said
	for _, c := range cases {
		confusion[[2]string{c.label, c.got}]++
		if c.label != judge.Doubtful && c.got != judge.Doubtful {
			clear[[2]string{c.label, c.got}]++
		}
		maps = append(maps, said{c.p[0], c.label == judge.Maps})
		not = append(not, said{c.p[2], c.label == judge.MapsNot})
	}
	fmt.Printf("%s, %d cases: accuracy %.3f, kappa %.3f; maps from doesn't, where both are sure: accuracy %.3f, kappa %.3f\n",
		title, len(cases), agreement(confusion), cohen(confusion), agreement(clear), cohen(clear))
	for _, a := range judge.Alignments {
		fmt.Printf("  %-8s", a)
		for _, b := range judge.Alignments {
			fmt.Printf(" %s %d", b, confusion[[2]string{a, b}])
		}
		fmt.Println()
	}
	reliability("maps", maps)
	reliability("doesn't", not)
}
