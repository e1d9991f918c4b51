package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/judge"
)

// judging asks a judge of package judge.
type judging struct {
	j judge.Judge
	r *judge.Rubric
}

// FromJudge makes an audit's judge of one of package judge, and of a rubric.
func FromJudge(j judge.Judge, r *judge.Rubric) trust.Judge { return &judging{j, r} }

// LocalJudge is the embedded judge with the shipped rubric.
func LocalJudge() (trust.Judge, error) {
	l, err := judge.NewLocal()
	if err != nil {
		return nil, err
	}
	r, err := judge.DefaultRubric()
	if err != nil {
		return nil, err
	}
	return FromJudge(l, r), nil
}

// Name names the judge and the rubric's version.
func (a *judging) Name() string { return a.j.Name() + ", rubric " + a.r.Version }

func declaration(d *trust.Declaration) judge.Declaration {
	out := judge.Declaration{Name: d.Name, Description: d.Description}
	for _, s := range d.Skills {
		out.Skills = append(out.Skills, judge.Skill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags, Examples: s.Examples})
	}
	return out
}

// Scope asks whether a text is a declared skill's business. That a single text could not be judged is an opinion.
func (a *judging) Scope(ctx context.Context, d *trust.Declaration, text string) (trust.FitOpinion, error) {
	v, err := a.j.JudgeScope(ctx, declaration(d), text)
	if ctx.Err() != nil {
		return trust.FitOpinion{}, ctx.Err()
	}
	if err != nil {
		return trust.FitOpinion{Failed: err.Error(), Fit: trust.Doubtful}, nil
	}
	o := trust.FitOpinion{Probability: v.In, Skill: v.Skill, Reason: v.Reason, Fit: trust.Doubtful}
	o.Votes, _ = votes(v.Votes)
	switch v.Label {
	case judge.In:
		o.Fit = trust.Fits
	case judge.Near, judge.Out:
		o.Fit = trust.FitsNot
	}
	return o, nil
}

// Reply asks what a reply does, and scores it by the rubric.
func (a *judging) Reply(ctx context.Context, d *trust.Declaration, p *trust.Probe, reply string) (trust.ReplyOpinion, error) {
	decl := declaration(d)
	v, err := a.j.JudgeReply(ctx, &decl, p.Text, reply)
	if ctx.Err() != nil {
		return trust.ReplyOpinion{}, ctx.Err()
	}
	o := trust.ReplyOpinion{Judge: a.Name()}
	if err != nil {
		o.Failed = err.Error()
		return o, nil
	}
	o.Class, o.Probability = trust.Class(strings.ReplaceAll(v.Class, " ", "-")), v.Probabilities[v.Class]
	o.Reason = strings.Join(append(slices.Clone(v.Warnings), v.Reason), "; ")
	var said string
	o.Votes, said = votes(v.Votes)
	o.Reason = strings.Trim(o.Reason+said, "; ")
	sc, err := a.r.Score(string(p.Scope), v)
	switch {
	case err != nil:
		o.Failed = err.Error()
	case sc.Known:
		o.Score = &sc.Value
	}
	return o, nil
}

// votes are a panel's, and what they say in a reason.
func votes(list []judge.Vote) (out []trust.Vote, text string) {
	for _, v := range list {
		said := v.Verdict
		if v.Error != "" {
			said = "failed: " + v.Error
		}
		out = append(out, trust.Vote{Judge: v.Judge, Said: said})
		text += "; " + v.Judge + ": " + said
	}
	return out, text
}

// toolJudge is a judge that knows tools. All of package judge do.
type toolJudge interface {
	JudgeTool(ctx context.Context, d judge.Declaration, t judge.Tool) (judge.ToolVerdict, error)
}

// Tool asks whether a tool belongs to a declared skill.
func (a *judging) Tool(ctx context.Context, d *trust.Declaration, t trust.Tool) (trust.FitOpinion, error) {
	tj, ok := a.j.(toolJudge)
	if !ok {
		return trust.FitOpinion{Fit: trust.Doubtful, Failed: a.j.Name() + " doesn't judge tools"}, nil
	}
	jt := judge.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema}
	if same(t.Name, t.Description) {
		jt.Description = "" // it says no more than the name
	}
	v, err := tj.JudgeTool(ctx, declaration(d), jt)
	if ctx.Err() != nil {
		return trust.FitOpinion{}, ctx.Err()
	}
	if err != nil {
		return trust.FitOpinion{Fit: trust.Doubtful, Failed: err.Error()}, nil
	}
	o := trust.FitOpinion{Fit: trust.Doubtful, Probability: v.Maps, Against: v.MapsNot, Skill: v.Skill}
	switch v.Label {
	case judge.Maps:
		o.Fit = trust.Fits
		o.Reason = fmt.Sprintf("it serves %s (%.2f)", v.Skill, v.Maps)
	case judge.MapsNot:
		o.Fit, o.Skill = trust.FitsNot, ""
		o.Reason = fmt.Sprintf("it serves no declared skill (%.2f)", v.MapsNot)
	default:
		o.Reason = fmt.Sprintf("%.2f that it serves %s, %.2f that it serves none", v.Maps, v.Skill, v.MapsNot)
	}
	var said string
	o.Votes, said = votes(v.Votes)
	o.Reason += said
	return o, nil
}

// same tells whether two texts have the same letters and digits.
func same(a, b string) bool {
	letters := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			return -1
		}, s)
	}
	return letters(a) == letters(b)
}
