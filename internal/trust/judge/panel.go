package judge

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Vote is what one judge of a panel said, or why it said nothing.
type Vote struct {
	Judge   string `json:"judge"`
	Verdict string `json:"verdict,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Panel asks several judges. The verdict is what more than half of those that decided agree on, with the mean of their
// probabilities; without such a majority the panel abstains. It fails where half of its judges or more fail.
type Panel struct{ Judges []Judge }

// Name lists the judges.
func (p *Panel) Name() string {
	var names []string
	for _, j := range p.Judges {
		names = append(names, j.Name())
	}
	return "panel of " + strings.Join(names, "; ")
}

// JudgeScope asks all judges for a scope.
func (p *Panel) JudgeScope(ctx context.Context, d Declaration, text string) (ScopeVerdict, error) {
	var sum ScopeVerdict
	votes, said, errs := p.votes(func(j Judge) (string, error) {
		v, err := j.JudgeScope(ctx, d, text)
		if err == nil {
			sum.In, sum.Near, sum.Out = sum.In+v.In, sum.Near+v.Near, sum.Out+v.Out
			if sum.Skill == "" {
				sum.Skill = v.Skill
			}
		}
		return v.Label, err
	})
	if 2*len(errs) >= len(p.Judges) {
		return ScopeVerdict{}, fmt.Errorf("%d of %d judges of the panel failed: %w", len(errs), len(p.Judges), errors.Join(errs...))
	}
	n := float64(len(p.Judges) - len(errs))
	sum.In, sum.Near, sum.Out, sum.Votes = sum.In/n, sum.Near/n, sum.Out/n, votes
	sum.Label, sum.Disagreement = majority(said, Abstain)
	if sum.Label == Abstain {
		sum.Reason = "the panel has no majority"
	}
	return sum, nil
}

// JudgeReply asks all judges about a reply.
func (p *Panel) JudgeReply(ctx context.Context, d *Declaration, prompt, reply string) (ReplyVerdict, error) {
	v := ReplyVerdict{Probabilities: map[string]float64{}, Warnings: Addressed(reply)}
	votes, said, errs := p.votes(func(j Judge) (string, error) {
		one, err := j.JudgeReply(ctx, d, prompt, reply)
		if err == nil {
			for c, x := range one.Probabilities {
				v.Probabilities[c] += x
			}
		}
		return one.Class, err
	})
	if 2*len(errs) >= len(p.Judges) {
		return ReplyVerdict{}, fmt.Errorf("%d of %d judges of the panel failed: %w", len(errs), len(p.Judges), errors.Join(errs...))
	}
	for c := range v.Probabilities {
		v.Probabilities[c] /= float64(len(p.Judges) - len(errs))
	}
	v.Votes = votes
	v.Class, v.Disagreement = majority(said, Abstains)
	if v.Class == Abstains {
		v.Reason = "the panel has no majority"
	}
	return v, nil
}

// toolJudge is a judge that knows tools.
type toolJudge interface {
	JudgeTool(ctx context.Context, d Declaration, t Tool) (ToolVerdict, error)
}

// JudgeTool asks all judges whether a tool belongs to a declaration. Without a majority it is doubtful.
func (p *Panel) JudgeTool(ctx context.Context, d Declaration, t Tool) (ToolVerdict, error) {
	var sum ToolVerdict
	skills := map[string]string{} // by label, of the first that said it
	votes, said, errs := p.votes(func(j Judge) (string, error) {
		tj, ok := j.(toolJudge)
		if !ok {
			return "", fmt.Errorf("%s doesn't judge tools", j.Name())
		}
		v, err := tj.JudgeTool(ctx, d, t)
		if err == nil {
			sum.Maps, sum.Doubtful, sum.MapsNot = sum.Maps+v.Maps, sum.Doubtful+v.Doubtful, sum.MapsNot+v.MapsNot
			if skills[v.Label] == "" {
				skills[v.Label] = v.Skill
			}
		}
		return v.Label, err
	})
	if 2*len(errs) >= len(p.Judges) {
		return ToolVerdict{}, fmt.Errorf("%d of %d judges of the panel failed: %w", len(errs), len(p.Judges), errors.Join(errs...))
	}
	n := float64(len(p.Judges) - len(errs))
	sum.Maps, sum.Doubtful, sum.MapsNot, sum.Votes = sum.Maps/n, sum.Doubtful/n, sum.MapsNot/n, votes
	sum.Label, sum.Disagreement = majority(said, "") // doubt is an answer here, no abstention
	if sum.Label == "" {
		sum.Label = Doubtful
	}
	sum.Skill = skills[sum.Label]
	return sum, nil
}

func (p *Panel) votes(ask func(Judge) (string, error)) (votes []Vote, said []string, errs []error) {
	for _, j := range p.Judges {
		verdict, err := ask(j)
		if err != nil {
			votes = append(votes, Vote{Judge: j.Name(), Error: err.Error()})
			errs = append(errs, err)
			continue
		}
		votes = append(votes, Vote{Judge: j.Name(), Verdict: verdict})
		said = append(said, verdict)
	}
	return votes, said, errs
}

// majority returns what more than half of the judges that didn't abstain said, and the share of those that said
// something else.
func majority(said []string, abstain string) (string, float64) {
	count, n := map[string]int{}, 0
	for _, s := range said {
		if s != abstain {
			count[s]++
			n++
		}
	}
	best, most := abstain, 0
	for _, s := range said { // in the judges' order, so that a tie is the same each time
		if s != abstain && count[s] > most {
			best, most = s, count[s]
		}
	}
	if n == 0 {
		return abstain, 0
	}
	if 2*most <= n {
		best = abstain
	}
	return best, 1 - float64(most)/float64(n)
}
