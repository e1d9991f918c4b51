package judge

import "strings"

// The scopes of a text against a declaration.
const (
	In      = "in"
	Near    = "near" // beside what is declared: its topic, but not its skills
	Out     = "out"
	Abstain = "abstain"
)

// ScopeHeads are the numbers of examples from which each scope head serves: similarities to names, to one or two examples
// and to several mean different things.
var ScopeHeads = []int{0, 1, 3}

// ScopeHead returns the index of the head for a skill with so many examples.
func ScopeHead(examples int) int {
	for i := len(ScopeHeads) - 1; ; i-- {
		if examples >= ScopeHeads[i] {
			return i
		}
	}
}

// ScopeVerdict says whether a text is in the scope of a declaration.
type ScopeVerdict struct {
	Label  string  `json:"label"` // In, Near, Out or Abstain
	In     float64 `json:"in"`    // probabilities, summing to one; they are there for abstentions, too
	Near   float64 `json:"near"`
	Out    float64 `json:"out"`
	Skill  string  `json:"skill,omitempty"`  // id of the skill that is closest
	Reason string  `json:"reason,omitempty"` // of an abstention
	// Votes and Disagreement (the share that said something else) are a panel's.
	Votes        []Vote  `json:"votes,omitempty"`
	Disagreement float64 `json:"disagreement,omitempty"`
}

// Scope judges a text against a card. It abstains where the probability lies in the band of doubt, and on texts in
// languages that the encoder doesn't know.
func (l *Local) Scope(c *Card, text string) ScopeVerdict {
	if len(c.skills) == 0 {
		return ScopeVerdict{Label: Abstain, In: 1. / 3, Near: 1. / 3, Out: 1. / 3, Reason: "the declaration has no skills"}
	}
	if strings.TrimSpace(text) == "" {
		return ScopeVerdict{Label: Abstain, In: 1. / 3, Near: 1. / 3, Out: 1. / 3, Reason: "the text is empty"}
	}
	f := c.fit(l.Text(text))
	p := l.heads.Scope[ScopeHead(f.examples)].Predict(f.scope)[0]
	near := l.heads.Near.Predict(f.near)[0]
	v := ScopeVerdict{In: p, Near: float64((1 - p) * near), Out: float64((1 - p) * (1 - near)), Skill: c.skills[f.skill].id}
	lang := Language(text)
	switch {
	case lang != "" && lang != "en":
		v.Label, v.Reason = Abstain, "the text isn't English, which is all that this judge knows"
	case p >= l.heads.Band.High:
		v.Label = In
	case p > l.heads.Band.Low:
		v.Label, v.Reason = Abstain, "in doubt"
	case near >= .5:
		v.Label = Near
	default:
		v.Label = Out
	}
	return v
}
