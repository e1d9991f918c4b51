package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tool is a tool that an agent has or used.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// The answers to whether a tool belongs to a skill.
const (
	Maps     = "maps"
	Doubtful = "doubtful" // it may serve the skill, but serves others as well, or the judge can't tell
	MapsNot  = "doesn't"
)

// Alignments are the classes of the tool head.
var Alignments = []string{Maps, Doubtful, MapsNot}

// ToolVerdict says whether a tool belongs to a skill.
type ToolVerdict struct {
	Label    string  `json:"label"` // Maps, Doubtful or MapsNot
	Maps     float64 `json:"maps"`  // probabilities, summing to one
	Doubtful float64 `json:"doubtful"`
	MapsNot  float64 `json:"doesnt"`
	Skill    string  `json:"skill"`
	// Votes and Disagreement are a panel's.
	Votes        []Vote  `json:"votes,omitempty"`
	Disagreement float64 `json:"disagreement,omitempty"`
}

// From these probabilities the tool judge commits itself. A tool that is said not to map convicts an agent, so that takes
// both: that it likely doesn't, and that it hardly does.
const (
	certainMaps = .5
	certainNot  = .6
	hardlyMaps  = .12
)

func (t *Tool) text() string {
	name := spell(t.Name)
	if d := strings.TrimSpace(t.Description); d != "" {
		return name + ": " + d
	}
	return name
}

// ToolLabel is the verdict for probabilities of [Alignments].
func ToolLabel(p []float64) string {
	switch {
	case p[0] >= certainMaps:
		return Maps
	case p[2] >= certainNot && p[0] < hardlyMaps:
		return MapsNot
	}
	return Doubtful
}

// Tool judges a tool against each skill of a card and returns a verdict a skill, in the declaration's order.
func (l *Local) Tool(c *Card, t Tool) []ToolVerdict {
	var out []ToolVerdict
	for i, x := range l.ToolFeatures(c, t) {
		p := l.heads.Tool.Predict(x)
		out = append(out, ToolVerdict{Label: ToolLabel(p), Maps: p[0], Doubtful: p[1], MapsNot: p[2], Skill: c.skills[i].id})
	}
	return out
}

// JudgeTool judges a tool against a declaration: the verdict on the skill that it fits best.
func (l *Local) JudgeTool(ctx context.Context, d Declaration, t Tool) (ToolVerdict, error) {
	if err := ctx.Err(); err != nil {
		return ToolVerdict{}, err
	}
	if t.Name == "" {
		return ToolVerdict{}, errors.New("judge a tool: it has no name")
	}
	c, err := l.cards.get(l, d)
	if err != nil {
		return ToolVerdict{}, err
	}
	best := ToolVerdict{Label: MapsNot, MapsNot: 1}
	for i, v := range l.Tool(c, t) {
		if i == 0 || v.Maps > best.Maps {
			best = v
		}
	}
	return best, nil
}

const toolTask = `You decide whether a tool that an AI agent uses belongs to what the agent declares it can do.
Labels: "maps": a declared skill plainly needs it. "doubtful": a general tool, or one that may serve a declared skill among
other things. "doesn't": no declared skill needs it. "abstain": you can't tell.`

// JudgeTool asks whether a tool belongs to a declaration. An abstention is Doubtful.
func (m *Model) JudgeTool(ctx context.Context, d Declaration, t Tool) (ToolVerdict, error) {
	a, err := m.ask(ctx, toolTask, append(slices.Clone(Alignments), Abstain), map[string]any{"declaration": d, "tool": t})
	if err != nil {
		return ToolVerdict{}, fmt.Errorf("ask the model %s about the tool %s: %w", m.o.Model, t.Name, err)
	}
	p := spread(a, Alignments)
	v := ToolVerdict{Label: a.Label, Maps: p[Maps], Doubtful: p[Doubtful], MapsNot: p[MapsNot]}
	if a.Label == Abstain {
		v.Label = Doubtful
	}
	return v, nil
}
