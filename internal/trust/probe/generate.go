package probe

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/goccy/go-yaml"
)

//go:embed background.yaml
var backgroundFile []byte

//go:embed templates.yaml
var templateFile []byte

// domain is one domain of the background corpus.
type domain struct {
	Domain  string   `yaml:"domain"`
	Words   []string `yaml:"words"`
	Near    []string `yaml:"near"`
	Queries []string `yaml:"queries"`
}

type templates struct {
	InExample   []string            `yaml:"in_example"`
	InPlain     []string            `yaml:"in_plain"`
	NearTopic   []string            `yaml:"near_topic"`
	NearExample []string            `yaml:"near_example"`
	Slots       map[string][]string `yaml:"slots"`
	Answers     []string            `yaml:"answers"`
}

type corpus struct {
	domains []domain
	byName  map[string]*domain
	t       templates
}

var shipped = sync.OnceValue(func() *corpus {
	c := &corpus{byName: map[string]*domain{}}
	for file, into := range map[*[]byte]any{&backgroundFile: &c.domains, &templateFile: &c.t} {
		if err := yaml.UnmarshalWithOptions(*file, into, yaml.Strict()); err != nil {
			panic("probe: an embedded file: " + err.Error()) // part of the program; the tests read it
		}
	}
	for i := range c.domains {
		c.byName[c.domains[i].Domain] = &c.domains[i]
	}
	return c
})

// Generator makes probes of one declaration. It never makes the same text twice.
type Generator struct {
	d      *trust.Declaration
	seed   uint64
	about  uint64 // digest of the declaration
	rng    *rand.Rand
	c      *corpus
	made   map[string]bool
	number map[trust.Scope]int
	queues map[string][]candidate // by scope and skill
}

type candidate struct {
	text, origin string
	turns        []string
}

// New makes a generator. The same seed and declaration give the same probes.
func New(d *trust.Declaration, seed uint64) *Generator {
	h := fnv.New64a()
	for _, s := range d.Skills {
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00", s.ID, s.Name, s.Description)
	}
	return &Generator{d: d, seed: seed, about: h.Sum64(), rng: rand.New(rand.NewPCG(seed, h.Sum64())), c: shipped(), made: map[string]bool{},
		number: map[trust.Scope]int{}, queues: map[string][]candidate{}}
}

// Known tells the generator of probes that exist already, so that it makes others. Those that it made itself it knows.
func (g *Generator) Known(list []trust.Probe) {
	for _, p := range list {
		if !g.made[key(p.Text)] {
			g.made[key(p.Text)] = true
			g.number[p.Scope]++
		}
	}
}

// Make makes n probes of a scope, and at least one for each skill (in and near scopes). Fewer come back where no further
// different texts can be made.
func (g *Generator) Make(scope trust.Scope, n int) []trust.Probe {
	if scope == trust.Out {
		return g.take(scope, "", n)
	}
	skills := g.order()
	n = max(n, len(skills))
	var out []trust.Probe
	for dry := 0; len(out) < n && dry < len(skills); {
		for i := range skills {
			if len(out) >= n {
				break
			}
			got := g.take(scope, skills[i].ID, 1)
			if len(got) == 0 {
				dry++
			} else {
				dry = 0
			}
			out = append(out, got...)
		}
	}
	return out
}

// For makes n more probes in scope of one skill.
func (g *Generator) For(skill string, n int) []trust.Probe { return g.take(trust.In, skill, n) }

// order is the skills in an order of chance, so that a declaration can't choose which are asked most.
func (g *Generator) order() []trust.Skill {
	s := slices.Clone(g.d.Skills)
	g.rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// take takes the next probes of a queue, which is filled the first time.
func (g *Generator) take(scope trust.Scope, skill string, n int) []trust.Probe {
	k := string(scope) + "\x00" + skill
	if _, ok := g.queues[k]; !ok {
		// Each queue has chance of its own: what was asked for before, or in an earlier run of the audit, changes nothing.
		h := fnv.New64a()
		h.Write([]byte(k))
		chance := g.rng
		g.rng = rand.New(rand.NewPCG(g.seed, g.about^h.Sum64()))
		g.queues[k] = g.candidates(scope, skill)
		g.rng = chance
	}
	var out []trust.Probe
	for len(out) < n && len(g.queues[k]) > 0 {
		c := g.queues[k][0]
		g.queues[k] = g.queues[k][1:]
		text := strings.TrimSpace(c.text)
		if text == "" || g.made[key(text)] {
			continue
		}
		g.made[key(text)] = true
		g.number[scope]++
		out = append(out, trust.Probe{ID: fmt.Sprintf("%s-%03d", scope, g.number[scope]), Scope: scope, Skill: skill, Text: text, Turns: c.turns, Origin: c.origin})
	}
	return out
}

func (g *Generator) candidates(scope trust.Scope, skill string) []candidate {
	i := slices.IndexFunc(g.d.Skills, func(s trust.Skill) bool { return s.ID == skill })
	switch {
	case scope == trust.Out:
		return g.outCandidates()
	case i < 0:
		return nil
	case scope == trust.In:
		return g.inCandidates(&g.d.Skills[i])
	}
	return g.nearCandidates(&g.d.Skills[i])
}

// inCandidates: examples as they are, examples in other dress, then requests made of name and description.
func (g *Generator) inCandidates(s *trust.Skill) []candidate {
	slots := g.slots(s)
	var out []candidate
	add := func(text, origin, slot string) {
		out = append(out, candidate{text: text, origin: origin, turns: g.answers(slot)})
	}
	examples := slices.Clone(s.Examples)
	g.rng.Shuffle(len(examples), func(i, j int) { examples[i], examples[j] = examples[j], examples[i] })
	for _, t := range g.c.t.InExample {
		for _, e := range examples {
			origin := "template"
			if t == "{example}" {
				origin = "example"
			}
			add(fill(t, s, e, "", ""), origin, pick(g.rng, slots))
		}
	}
	plain := slices.Clone(g.c.t.InPlain)
	g.rng.Shuffle(len(plain), func(i, j int) { plain[i], plain[j] = plain[j], plain[i] })
	for round := range max(1, len(slots)) {
		for i, t := range plain {
			slot := ""
			if len(slots) > 0 {
				slot = slots[(round+i)%len(slots)]
			}
			add(fill(t, s, "", slot, ""), "template", slot)
		}
	}
	return out
}

// nearCandidates: questions of the domains beside the skill's own, then its topic with another task.
func (g *Generator) nearCandidates(s *trust.Skill) []candidate {
	var domains, topics []candidate
	own := g.ownDomains(s)
	for _, name := range own {
		for _, n := range g.c.byName[name].Near {
			if g.covered(n) {
				continue // another skill's business
			}
			if d := g.c.byName[n]; d != nil {
				for _, q := range d.Queries {
					domains = append(domains, candidate{text: q, origin: "neighbour"})
				}
			}
		}
	}
	topic := topicOf(s)
	for _, t := range g.c.t.NearTopic {
		topics = append(topics, candidate{text: fill(t, s, "", "", topic), origin: "topic"})
	}
	for _, t := range g.c.t.NearExample {
		for _, e := range s.Examples {
			topics = append(topics, candidate{text: fill(t, s, e, "", topic), origin: "topic"})
		}
	}
	g.shuffle(domains)
	g.shuffle(topics)
	var out []candidate
	for i := range max(len(domains), len(topics)) { // alternate, so that a short audit has both
		if i < len(domains) {
			out = append(out, domains[i])
		}
		if i < len(topics) {
			out = append(out, topics[i])
		}
	}
	return out
}

// outCandidates: one question after another from domains that no skill is in or beside.
func (g *Generator) outCandidates() []candidate {
	avoid := map[string]bool{}
	for i := range g.d.Skills {
		for _, n := range g.ownDomains(&g.d.Skills[i]) {
			avoid[n] = true
			for _, m := range g.c.byName[n].Near {
				avoid[m] = true
			}
		}
	}
	var lists [][]candidate
	for _, d := range g.c.domains {
		if avoid[d.Domain] {
			continue
		}
		var l []candidate
		for _, q := range d.Queries {
			l = append(l, candidate{text: q, origin: "background"})
		}
		g.shuffle(l)
		lists = append(lists, l)
	}
	g.rng.Shuffle(len(lists), func(i, j int) { lists[i], lists[j] = lists[j], lists[i] })
	var out []candidate
	for i := 0; ; i++ {
		n := len(out)
		for _, l := range lists {
			if i < len(l) {
				out = append(out, l[i])
			}
		}
		if len(out) == n {
			return out
		}
	}
}

func (g *Generator) shuffle(l []candidate) {
	g.rng.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
}

// ownDomains are the domains of the corpus that a skill is likely to be in, the likeliest first; none may fit.
func (g *Generator) ownDomains(s *trust.Skill) []string {
	have := map[string]float64{}
	count := func(text string, w float64) {
		for _, x := range content(text) {
			have[stem(x)] += w
		}
	}
	count(s.Name+" "+s.ID, 3)
	count(strings.Join(s.Tags, " "), 2)
	count(s.Description, 1)
	count(strings.Join(s.Examples, " "), .5)
	score := map[string]float64{}
	for _, d := range g.c.domains {
		for _, w := range d.Words {
			score[d.Domain] += have[stem(w)]
		}
	}
	names := slices.SortedFunc(maps.Keys(score), func(a, b string) int {
		if score[a] != score[b] {
			if score[a] > score[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var out []string
	for _, n := range names {
		if score[n] >= 1 && score[n] >= score[names[0]]/2 && len(out) < 3 {
			out = append(out, n)
		}
	}
	return out
}

// covered tells whether a domain is some skill's own.
func (g *Generator) covered(name string) bool {
	for i := range g.d.Skills {
		if slices.Contains(g.ownDomains(&g.d.Skills[i]), name) {
			return true
		}
	}
	return false
}

// slots are concrete values for what the skill speaks of.
func (g *Generator) slots(s *trust.Skill) []string {
	text := strings.ToLower(s.Name + " " + strings.Join(s.Tags, " ") + " " + s.Description)
	best, at := "", len(text)
	for _, k := range slices.Sorted(maps.Keys(g.c.t.Slots)) {
		if i := strings.Index(text, k); i >= 0 && i < at {
			best, at = k, i
		}
	}
	out := slices.Clone(g.c.t.Slots[best])
	g.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (g *Generator) answers(slot string) []string {
	out := make([]string, len(g.c.t.Answers))
	for i, a := range g.c.t.Answers {
		out[i] = strings.ReplaceAll(a, "{slot}", slot)
	}
	return out
}

func pick(r *rand.Rand, l []string) string {
	if len(l) == 0 {
		return ""
	}
	return l[r.IntN(len(l))]
}

// topicOf is a word or two for what a skill is about: its first tag, or the content of its name.
func topicOf(s *trust.Skill) string {
	for _, t := range s.Tags {
		if c := content(t); len(c) > 0 && len(c) <= 3 {
			return strings.Join(c, " ")
		}
	}
	c := content(s.Name)
	if len(c) == 0 {
		c = content(s.Description)
	}
	return strings.Join(c[:min(len(c), 2)], " ")
}

// fill puts values into a template; one that lacks a value it needs gives "".
func fill(t string, s *trust.Skill, example, slot, topic string) string {
	name := strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(s.Name))
	ask := request(s)
	for k, v := range map[string]string{"{example}": example, "{skill}": name, "{topic}": topic, "{ask}": ask, "{Skill}": name, "{Ask}": ask} {
		if strings.Contains(t, k) && strings.TrimSpace(v) == "" {
			return ""
		}
	}
	r := strings.NewReplacer("{example}", example, "{skill}", name, "{Skill}", upper(name), "{topic}", topic, "{ask}", ask, "{Ask}", upper(ask), "{slot}", slot)
	return r.Replace(t)
}

// request turns a description into what a user would ask for: "Provides weather forecasts." is "provide weather forecasts".
func request(s *trust.Skill) string {
	d := strings.TrimSpace(s.Description)
	if i := strings.IndexAny(d, ".;\n"); i > 0 {
		d = d[:i]
	}
	f := strings.Fields(d)
	if len(f) < 2 || len(f) > 25 {
		return "help me with " + strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(s.Name))
	}
	verb := strings.ToLower(f[0])
	switch {
	case strings.HasSuffix(verb, "ies") && len(verb) > 4:
		verb = verb[:len(verb)-3] + "y"
	case strings.HasSuffix(verb, "ches"), strings.HasSuffix(verb, "shes"), strings.HasSuffix(verb, "sses"):
		verb = verb[:len(verb)-2]
	case strings.HasSuffix(verb, "s") && !strings.HasSuffix(verb, "ss") && len(verb) > 3:
		verb = verb[:len(verb)-1]
	case !isVerb(verb):
		return "help me with " + strings.Join(f, " ")
	}
	return verb + " " + strings.Join(f[1:], " ")
}

// isVerb knows the verbs that descriptions begin with in their plain form.
func isVerb(w string) bool {
	return slices.Contains(strings.Fields(`get find search look fetch show list give tell check convert translate write create make build
		compute calculate analyse analyze summarise summarize answer book plan send read edit generate run retrieve provide track monitor
		compare recommend suggest manage schedule query explain extract detect classify echo`), w)
}

func upper(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}
