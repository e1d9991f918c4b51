package judge

import (
	"math"
	"math/bits"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

// phrases put a skill's name into words of a request. Without examples it is all there is to go by, and a name alone
// lies off the place where requests lie.
var phrases = []string{"how do i %", "what is the %", "i need help with %", "% please"}

// Card is a declaration made ready for judging texts against it.
type Card struct {
	Declaration Declaration

	skills []cardSkill
	whole  vector // name and description, centred
}

type cardSkill struct {
	id         string
	examples   []vector
	named      vector // from name and description
	phrased    vector // the name in phrases, with the description, centred
	centroid   vector // of the examples, or of the phrases without; centred
	tightness  float64
	operations uint64
}

func newCard(d Declaration, enc *minilm.Cache, bg *background) *Card {
	c := &Card{Declaration: d, whole: bg.centre(enc.Encode(d.Name + ": " + d.Description))}
	for i := range d.Skills {
		s := &d.Skills[i]
		label, about := s.label(), s.about()
		full := label
		if about != "" {
			full += ": " + about
		}
		k := cardSkill{id: s.ID, named: enc.Encode(full), tightness: .6, operations: operations(full)}
		if k.id == "" {
			k.id = s.Name
		}
		said := []vector{enc.Encode(label)}
		for _, p := range phrases {
			said = append(said, enc.Encode(strings.Replace(p, "%", strings.ToLower(label), 1)))
		}
		phrased := sum(nil, said...)
		if about != "" {
			phrased = sum(nil, phrased, k.named)
		}
		k.phrased, k.centroid = bg.centre(phrased), bg.centre(phrased)
		for _, e := range s.Examples {
			if strings.TrimSpace(e) != "" {
				k.examples = append(k.examples, enc.Encode(e))
				k.operations |= operations(e)
			}
		}
		if n := len(k.examples); n > 0 {
			all := make([]float64, n)
			for i := range all {
				all[i] = 1 / float64(n)
			}
			k.centroid = bg.centre(sum(all, k.examples...))
		}
		k.tightness = tightness(k.examples, k.tightness)
		c.skills = append(c.skills, k)
	}
	return c
}

// tightness is the mean product of different examples.
func tightness(examples []vector, without float64) float64 {
	var all []float64
	for i, a := range examples {
		all = append(all, dots(a, examples[i+1:])...)
	}
	if len(all) == 0 {
		return without
	}
	return mean(all)
}

// ScopeFeatures names what [Card.Features] returns.
var ScopeFeatures = []string{
	"best",       // similarity of the best skill: mean of its two best examples, or of its name
	"phrased",    // of the skill whose name in phrases is best
	"centroid",   // of the best centroid
	"stands out", // best skill by centroid and phrases, less the mean of all
	"share",      // its share in a softmax over the skills
	"common",     // mean of the five most similar requests of the background corpus
	"tightness",  // of the best skill's examples
	"operation",  // number of operations in the text that the best skill names nowhere
	"length",     // root of the number of words
}

// NearFeatures tell a near miss from a text that has nothing to do with the declaration.
var NearFeatures = []string{"best", "phrased", "centroid", "whole", "mean", "common"}

// fit is a text against a card.
type fit struct {
	skill    int // the best
	examples int
	scope    []float64 // ScopeFeatures
	near     []float64 // NearFeatures
}

// Text is a text made ready for judging it against cards.
type Text struct {
	text        string
	raw, centre vector
	common      float64 // mean of the five most similar requests of the background corpus
	operations  uint64
}

// Text makes a text ready.
func (l *Local) Text(text string) *Text {
	v := l.enc.Encode(text)
	return &Text{text: text, raw: v, centre: l.bg.centre(v), common: topMean(dots(v, l.bg.raw), 5), operations: operations(text)}
}

func (c *Card) fit(t *Text) fit {
	v, centred := t.raw, t.centre
	n := len(c.skills)
	best, phrased, centroid, both := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range c.skills {
		s := &c.skills[i]
		best[i] = minilm.Dot(v, s.named)
		if len(s.examples) > 0 {
			best[i] = topMean(dots(v, s.examples), 2)
		}
		phrased[i], centroid[i] = minilm.Dot(centred, s.phrased), minilm.Dot(centred, s.centroid)
		both[i] = (phrased[i] + centroid[i]) / 2
	}
	b, top := largest(best)
	j, joint := largest(both)
	_, p := largest(phrased)
	_, m := largest(centroid)
	var share float64
	for _, x := range both {
		share += Exp(float64((x - joint) * 12))
	}
	missing := bits.OnesCount64(t.operations &^ c.skills[b].operations)
	words := min(len(strings.Fields(t.text)), 40)
	return fit{skill: j, examples: len(c.skills[b].examples),
		scope: []float64{top, p, m, joint - mean(both), 1 / share, t.common, c.skills[b].tightness, float64(missing), math.Sqrt(float64(words))},
		near:  []float64{top, p, m, minilm.Dot(centred, c.whole), mean(both), t.common},
	}
}

// Features returns the features of a text against the card, for the program that fits the heads.
func (c *Card) Features(t *Text) (scope, near []float64) {
	f := c.fit(t)
	return f.scope, f.near
}
