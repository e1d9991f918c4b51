package conduct

import (
	"fmt"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// RuleCoverage is the rule of findings about how much of a skill was used.
const RuleCoverage = "skill-coverage"

// Coverage says how much of one skill a run used, and how far it did what the skill says.
type Coverage struct {
	Skill     string             `json:"skill"`
	Share     float64            `json:"share"` // of its files, 0 to 1
	Used      int                `json:"used"`
	Files     []features.FileUse `json:"files"`
	Adherence Adherence          `json:"adherence"`
	// Touched tells that the agent at least opened a file of the skill.
	Touched bool `json:"touched"`
}

// Coverage reports on every skill of the task.
func (s *Subject) Coverage() []Coverage {
	out := []Coverage{}
	for i, use := range s.Features.Skills {
		c := Coverage{Skill: use.Name, Share: use.Coverage(), Files: use.Files}
		for _, f := range use.Files {
			if f.Used() {
				c.Used++
			}
			if f.Degree != features.Never && f.Degree != features.InListing {
				c.Touched = true
			}
		}
		if i < len(s.Plan.Skills) {
			c.Adherence = s.adherence(&s.Plan.Skills[i])
		}
		out = append(out, c)
	}
	return out
}

// Unused tells whether a run left a skill's guidance alone.
func (c Coverage) Unused() bool { return c.Used == 0 }

func (c Coverage) finding(s *Subject) bodycam.Finding {
	f := bodycam.Finding{Rule: RuleCoverage, Class: "guidance", Severity: bodycam.Info, Count: 1, Resource: c.Skill, Tags: []string{"reliability", "skill"}}
	f.Title = fmt.Sprintf("skill %s: %d of %d files used; its procedure was %s", bodycam.Printable(c.Skill), c.Used, len(c.Files), c.Adherence.Verdict)
	if c.Unused() {
		f.Severity = bodycam.Low
		f.Title = fmt.Sprintf("skill %s was not used", bodycam.Printable(c.Skill))
		if !s.Complete() {
			f.Severity, f.Verdict = bodycam.Info, Undecidable
		}
	}
	var parts []string
	for _, u := range c.Files {
		t := u.Path + ": " + string(u.Degree)
		if u.How != "" {
			t += " (" + u.How + ")"
		}
		if u.ByHarness && u.Degree == features.Never {
			t += " (read by the harness itself, which doesn't count)"
		}
		parts = append(parts, bodycam.Printable(t))
		if u.Event != 0 && len(f.Events) < 20 {
			f.Events = append(f.Events, u.Event)
		}
	}
	f.Detail = strings.Join(parts, "; ") + "."
	if d := c.Adherence.String(); d != "" {
		f.Detail += " " + d
	}
	return f
}
