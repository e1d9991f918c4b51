package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/bodycam-dev/bodycam/internal/trust/judge"
)

// labelledDeclaration is a declaration with the texts that were labelled against it.
type labelledDeclaration struct {
	id    string
	own   bool // written for bodycam, not CLINC150
	d     judge.Declaration
	texts []judge.Labelled
}

func declarations() ([]labelledDeclaration, error) {
	var out []labelledDeclaration
	for _, name := range []string{"scope-clinc.jsonl", "scope-own.jsonl"} {
		lines, err := read(name)
		if err != nil {
			return nil, err
		}
		at := map[string]int{}
		for _, l := range lines {
			if l.Declaration != nil {
				at[l.DeclarationID] = len(out)
				out = append(out, labelledDeclaration{id: l.DeclarationID, own: name == "scope-own.jsonl", d: *l.Declaration})
				continue
			}
			d := &out[at[l.DeclarationID]]
			d.texts = append(d.texts, l)
		}
	}
	return out, nil
}

// scopeSample carries the features of both scope heads.
type scopeSample struct {
	scope, near []float64
	examples    int // given a skill
	label       string
	weight      float64
	group       string
	own         bool
	whole       bool // against the declaration as it is, not one with skills left out
}

const (
	variants  = 4  // declarations with a third of the skills left out, a declaration
	certainty = .1 // of a text's skill, for it to become a near miss of a declaration without that skill
)

// exampleCounts are the numbers of examples a skill that heads are fitted to.
var exampleCounts = []int{0, 1, 2, 3, 5}

// scopeSamples judges each text against its declaration and against variants with skills left out, whose texts thereby
// become near misses, with several numbers of examples.
func scopeSamples(l *judge.Local, decls []labelledDeclaration) []scopeSample {
	var out []scopeSample
	for i := range decls {
		d := &decls[i]
		random := rand.New(rand.NewPCG(1, uint64(i)))
		for _, k := range exampleCounts {
			out = append(out, against(l, d, d.d, d.texts, k, 1)...)
		}
		owner := owners(l, d)
		for range variants {
			n := len(d.d.Skills)
			gone := random.Perm(n)[:max(1, n/3)]
			less, texts := without(d, gone, owner, random)
			for _, k := range exampleCounts {
				out = append(out, against(l, d, less, texts, k, .5)...)
			}
		}
	}
	return out
}

// against returns the samples of texts against a declaration with k examples a skill.
func against(l *judge.Local, from *labelledDeclaration, d judge.Declaration, texts []judge.Labelled, k int, weight float64) []scopeSample {
	d.Skills = slices.Clone(d.Skills)
	for i := range d.Skills {
		e := d.Skills[i].Examples
		d.Skills[i].Examples = e[:min(k, len(e))]
	}
	card := l.Card(d)
	var out []scopeSample
	for _, t := range texts {
		scope, near := card.Features(text(l, t.Prompt))
		s := scopeSample{scope: scope, near: near, examples: k, label: t.Label, weight: weight, group: from.id, own: from.own, whole: weight == 1}
		out = append(out, s)
	}
	return out
}

var texts = map[string]*judge.Text{}

// text keeps texts that were made ready: each is judged some hundred times.
func text(l *judge.Local, s string) *judge.Text {
	if texts[s] == nil {
		texts[s] = l.Text(s)
	}
	return texts[s]
}

// owners guesses the skill of each text that is in scope, or -1 where that isn't clear.
func owners(l *judge.Local, d *labelledDeclaration) []int {
	var cards []*judge.Card
	for _, s := range d.d.Skills {
		cards = append(cards, l.Card(judge.Declaration{Name: d.d.Name, Description: d.d.Description, Skills: []judge.Skill{s}}))
	}
	out := make([]int, len(d.texts))
	for i, t := range d.texts {
		type scored struct {
			skill int
			best  float64
		}
		var all []scored
		for j, c := range cards {
			scope, _ := c.Features(text(l, t.Prompt))
			all = append(all, scored{j, scope[0]})
		}
		slices.SortFunc(all, func(a, b scored) int { return cmp.Compare(b.best, a.best) })
		out[i] = -1
		if t.Label == judge.In && (len(all) < 2 || all[0].best-all[1].best > certainty) {
			out[i] = all[0].skill
		}
	}
	return out
}

// without leaves skills out of a declaration. Their texts and examples become near misses; texts of an unclear skill go.
func without(d *labelledDeclaration, gone, owner []int, random *rand.Rand) (judge.Declaration, []judge.Labelled) {
	less := d.d
	less.Skills = nil
	var texts []judge.Labelled
	for i, s := range d.d.Skills {
		if !slices.Contains(gone, i) {
			less.Skills = append(less.Skills, s)
			continue
		}
		for _, e := range s.Examples {
			texts = append(texts, judge.Labelled{Prompt: e, Label: judge.Near})
		}
	}
	for i, t := range d.texts {
		switch {
		case t.Label == judge.In && owner[i] < 0:
			continue
		case t.Label == judge.In && slices.Contains(gone, owner[i]):
			t.Label = judge.Near
		case t.Label != judge.In && random.IntN(2) == 0:
			continue
		}
		texts = append(texts, t)
	}
	return less, texts
}

const (
	scopeRidge = 20
	scopeSteps = 150
)

func fitScope(h *judge.Heads, samples []scopeSample) {
	rows := make([][]sample, len(judge.ScopeHeads))
	var near []sample
	total := map[string]float64{} // by head, group and label
	key := func(s *scopeSample) string { return fmt.Sprint(judge.ScopeHead(s.examples), s.group, s.label) }
	for i := range samples {
		total[key(&samples[i])] += samples[i].weight
	}
	for i := range samples {
		s := &samples[i]
		// Each declaration counts alike, whatever its number of texts, and so does each label within it.
		w := s.weight * shares[s.label] * perDeclaration / total[key(s)]
		in := sample{x: s.scope, weight: w, group: s.group}
		if s.own {
			in.weight *= ownWeight
		}
		if s.label != judge.In {
			in.class = 1
			n := sample{x: s.near, weight: in.weight / shares[s.label], group: s.group}
			if s.label == judge.Out {
				n.class = 1
			}
			near = append(near, n)
		}
		head := judge.ScopeHead(s.examples)
		rows[head] = append(rows[head], in)
	}
	h.Scope = nil
	for _, r := range rows {
		h.Scope = append(h.Scope, regress([]string{judge.In, "not in"}, judge.ScopeFeatures, r, scopeRidge, scopeSteps))
	}
	h.Near = regress([]string{judge.Near, judge.Out}, judge.NearFeatures, near, scopeRidge, scopeSteps)
	h.Band = judge.Band{Low: bandLow, High: bandHigh}
}

// shares are the weights of the labels, of each declaration's; they set what the judge takes to be usual before it has
// read the text.
var shares = map[string]float64{judge.In: 1, judge.Near: 1, judge.Out: .4}

const (
	perDeclaration = 200
	ownWeight      = .35
)

// The band of doubt, chosen on cross-validated figures (-cv).
const (
	bandLow  = .32
	bandHigh = .68
)

// validateScope prints, for each number of examples, what heads say of declarations that they weren't fitted to.
func validateScope(l *judge.Local) error {
	decls, err := declarations()
	if err != nil {
		return err
	}
	samples := scopeSamples(l, decls)
	predicted := map[int][]scored{}
	for _, d := range decls {
		var train []scopeSample
		for _, s := range samples {
			if s.group != d.id {
				train = append(train, s)
			}
		}
		var h judge.Heads
		fitScope(&h, train)
		for _, s := range samples {
			if s.group != d.id || !s.whole {
				continue
			}
			head := &h.Scope[judge.ScopeHead(s.examples)]
			predicted[s.examples] = append(predicted[s.examples], scored{head.Predict(s.scope)[0], h.Near.Predict(s.near)[0], s})
		}
	}
	for _, k := range exampleCounts {
		for _, own := range []bool{false, true} {
			report(k, own, predicted[k])
		}
		var all []said
		for _, p := range predicted[k] {
			all = append(all, said{p.in, p.s.label == judge.In})
		}
		reliability(fmt.Sprintf("in scope, %d examples", k), all)
	}
	return nil
}

type scored struct {
	in, near float64
	s        scopeSample
}

func report(k int, own bool, all []scored) {
	byGroup := map[string][]scored{}
	var order []string
	for _, p := range all {
		if p.s.own == own {
			if byGroup[p.s.group] == nil {
				order = append(order, p.s.group)
			}
			byGroup[p.s.group] = append(byGroup[p.s.group], p)
		}
	}
	var far, near, split float64
	for _, g := range order {
		far += auroc(byGroup[g], judge.In, judge.Out, func(p scored) float64 { return p.in }) / float64(len(order))
		near += auroc(byGroup[g], judge.In, judge.Near, func(p scored) float64 { return p.in }) / float64(len(order))
		split += auroc(byGroup[g], judge.Near, judge.Out, func(p scored) float64 { return p.near }) / float64(len(order))
	}
	fmt.Printf("examples %d own %-5t auroc out %.3f near %.3f, near from out %.3f\n", k, own, far, near, split)
	for _, band := range [][2]float64{{.5, .5}, {bandLow, bandHigh}} {
		right, said, n := map[string]int{}, map[string]int{}, map[string]int{}
		for _, p := range all {
			if p.s.own != own {
				continue
			}
			n[p.s.label]++
			if p.in > band[0] && p.in < band[1] {
				continue
			}
			said[p.s.label]++
			if (p.in >= band[1]) == (p.s.label == judge.In) {
				right[p.s.label]++
			}
		}
		fmt.Printf("   band %.2f–%.2f:", band[0], band[1])
		total, answered := 0, 0
		for _, label := range []string{judge.In, judge.Near, judge.Out} {
			fmt.Printf(" %s %.3f (abstains %.2f)", label, float64(right[label])/float64(said[label]), 1-float64(said[label])/float64(n[label]))
			total, answered = total+n[label], answered+said[label]
		}
		fmt.Printf(" all abstains %.3f\n", 1-float64(answered)/float64(total))
	}
}

// auroc is the chance that a text labelled yes gets more than one labelled no; ties count half.
func auroc(all []scored, yes, no string, value func(scored) float64) float64 {
	var wins, pairs float64
	for _, a := range all {
		if a.s.label != yes {
			continue
		}
		for _, b := range all {
			if b.s.label != no {
				continue
			}
			pairs++
			switch x, y := value(a), value(b); {
			case x > y:
				wins++
			case x == y:
				wins += .5
			}
		}
	}
	return wins / pairs
}
