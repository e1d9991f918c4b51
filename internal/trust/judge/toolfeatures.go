package judge

import (
	_ "embed"
	"encoding/json"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam/internal/trust/judge/minilm"
)

//go:embed data/general.txt
var generalText string

// general are tools that serve many purposes, by kind.
var general = sync.OnceValue(func() map[string][]string {
	out, kind := map[string][]string{}, ""
	for line := range strings.Lines(generalText) {
		line = strings.TrimSpace(line)
		if k, ok := strings.CutPrefix(line, "# "); ok {
			kind = k
		} else if line != "" {
			out[kind] = append(out[kind], line)
		}
	}
	return out
})

// generalKinds are the kinds that are a feature each.
var generalKinds = []string{"machine", "files", "web", "data", "messages", "money", "secrets and rights", "helpers"}

// ToolFeatures names what a tool is judged by, against one skill of a card. What the agent is called, and what it says of
// itself as a whole, is no part of it: a name isn't a skill.
var ToolFeatures = append([]string{
	"named",            // similarity to the skill's name and description
	"name",             // of the tool's name alone to them
	"phrased",          // to its name in phrases
	"name phrased",     //
	"centroid",         // to its examples
	"name centroid",    //
	"behind",           // how far the skill is behind the declaration's best for this tool
	"ahead",            // how far it is ahead of the best of the others
	"share",            // the skill's share in a softmax over the skills
	"best",             // similarity of the declaration's best skill
	"words",            // share of the tool's words that the skill has
	"name words",       // share of the words of the tool's name that the skill has
	"object",           // similarity of what the tool's name speaks of, without its operation, to the skill
	"word best",        // the best and the worst match of a word of that among the skill's words
	"word worst",       //
	"operations",       // operations that both name
	"other operations", // operations that only the tool names
	"schema",           // similarity of the parameters' names to the skill
	"no schema",        //
	"described",        //
	"common",           // how common the tool's text is among everyday requests
	"general",          // similarity to the closest general tool
	"more general",     // by how much that is more than to the skill
}, generalKinds...)

// parameters are the names of a JSON schema's top properties, in words.
func (t *Tool) parameters() string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(t.InputSchema, &schema) != nil { // a schema that can't be read says nothing; it is no error of the judge's
		return ""
	}
	var names []string
	for n := range schema.Properties {
		names = append(names, spell(n))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// stem cuts a word to what its forms share; crude, but forms of one word is all that it has to match.
func stem(w string) string {
	for _, s := range []string{"ations", "ation", "ings", "ing", "ies", "ed", "es", "s", "y"} {
		if cut, ok := strings.CutSuffix(w, s); ok && len(cut) >= 3 {
			return cut
		}
	}
	return w
}

func stems(text string) map[string]bool {
	out := map[string]bool{}
	for _, w := range plainWords(text) {
		if len(w) > 2 && !commonWords[w] {
			out[stem(w)] = true
		}
	}
	return out
}

var commonWords = map[string]bool{"the": true, "and": true, "for": true, "with": true, "from": true, "that": true, "any": true, "get": true, "what": true, "how": true, "can": true, "are": true,
	"its": true, "their": true, "how much": true, "who": true, "which": true, "when": true}

func overlap(a, b map[string]bool) float64 {
	if len(a) == 0 {
		return 0
	}
	n := 0.0
	for w := range a {
		n += is(b[w])
	}
	return n / float64(len(a))
}

// objects are the words of a text that name no operation.
func objects(text string) []string {
	table := operationWords()
	var out []string
	for _, w := range plainWords(text) {
		if len(w) > 2 && !commonWords[w] && table[w] == 0 && table[strings.TrimSuffix(w, "s")] == 0 && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// ToolFeatures returns the features of a tool against each skill of a card.
func (l *Local) ToolFeatures(c *Card, t Tool) [][]float64 {
	text, name := l.Text(t.text()), l.Text(spell(t.Name))
	schema := t.parameters()
	params := l.enc.Encode(schema)
	words, nameWords := stems(t.text()), stems(spell(t.Name))
	object := objects(spell(t.Name))
	if len(object) == 0 {
		object = plainWords(spell(t.Name))
	}
	thing := l.Text(strings.Join(object, " "))
	kinds := make([]float64, len(generalKinds))
	for i, k := range generalKinds {
		for _, g := range general()[k] {
			kinds[i] = max(kinds[i], minilm.Dot(text.centre, l.bg.centre(l.enc.Encode(g))))
		}
	}
	_, closest := largest(kinds)
	n := len(c.skills)
	all := make([]float64, n)
	for i := range c.skills {
		s := &c.skills[i]
		all[i] = (minilm.Dot(text.centre, s.phrased) + minilm.Dot(text.centre, s.centroid)) / 2
	}
	_, best := largest(all)
	var total float64
	for _, x := range all {
		total += Exp(float64((x - best) * 12))
	}
	var out [][]float64
	for i := range c.skills {
		s, d := &c.skills[i], &c.Declaration.Skills[i]
		skillWords := stems(d.label() + " " + d.Description + " " + strings.Join(d.Tags, " ") + " " + strings.Join(d.Examples, " "))
		second := -1.0
		for j := range all {
			if j != i {
				second = max(second, all[j])
			}
		}
		if n == 1 {
			second = 0
		}
		wordBest, wordWorst := l.matches(object, objects(d.label()+" "+d.about()))
		x := []float64{
			minilm.Dot(text.raw, s.named), minilm.Dot(name.raw, s.named), minilm.Dot(text.centre, s.phrased), minilm.Dot(name.centre, s.phrased),
			minilm.Dot(text.centre, s.centroid), minilm.Dot(name.centre, s.centroid),
			best - all[i], max(0, all[i]-second), Exp(float64((all[i]-best)*12)) / total, best,
			overlap(words, skillWords), overlap(nameWords, skillWords),
			max(minilm.Dot(thing.centre, s.phrased), minilm.Dot(thing.centre, s.centroid)), wordBest, wordWorst,
			float64(bits.OnesCount64(text.operations & s.operations)), float64(bits.OnesCount64(text.operations &^ s.operations)),
			is(schema != "") * minilm.Dot(params, s.named), is(schema == ""), is(t.Description != ""), text.common,
			closest, closest - all[i],
		}
		out = append(out, append(x, kinds...))
	}
	return out
}

// matches are the best and the worst of how well each of some words is matched by one of others.
func (l *Local) matches(words, others []string) (best, worst float64) {
	worst = 1
	for _, w := range words {
		most := 0.0
		for _, o := range others {
			if stem(w) == stem(o) {
				most = 1
				break
			}
			most = max(most, minilm.Dot(l.enc.Encode(w), l.enc.Encode(o)))
		}
		best, worst = max(best, most), min(worst, most)
	}
	return best, worst
}
