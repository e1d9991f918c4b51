package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Check is what rules say of one run.
type Check struct {
	Run      string            `json:"run"` // its name
	Dir      string            `json:"dir"`
	Task     string            `json:"task"`
	Rules    RuleSet           `json:"rules"`
	Findings []bodycam.Finding `json:"findings"`
	// Complete and Reasons say whether the record is whole. Over an incomplete one nothing found means no verdict.
	Complete bool     `json:"complete"`
	Reasons  []string `json:"reasons,omitempty"`

	Workspace []string `json:"-"` // directories of the sandbox whose files have a place in the task's repository
}

// RuleSet identifies what a run was judged by.
type RuleSet struct {
	Version string   `json:"version"` // of the built-in rules
	Digest  string   `json:"digest"`
	Files   []string `json:"files,omitempty"`   // further rule files
	Changed []string `json:"changed,omitempty"` // of those that the run keeps, the ones that are another on disk now
	List    []Rule   `json:"-"`
}

// Rule describes a rule for reports.
type Rule struct {
	Name, Class, Desc, Example string
	Severity                   bodycam.Severity
	Tags                       []string
}

// Text writes the findings of a run for a screen.
func (c *Check) Text(w io.Writer, colour bool) error {
	t := &text{w: w, colour: colour}
	t.f("%s  task %s\n", t.paint("1", c.Run), bodycam.Printable(c.Task))
	if len(c.Findings) == 0 {
		t.f("  nothing found%s\n", map[bool]string{false: " in what the record has, which is no verdict"}[c.Complete])
	}
	for i := range c.Findings {
		c.finding(t, &c.Findings[i])
	}
	if !c.Complete {
		t.f("  %s %s\n", t.paint("33", "the record is incomplete:"), bodycam.Printable(strings.Join(c.Reasons, "; ")))
	}
	return t.err
}

func (c *Check) finding(t *text, f *bodycam.Finding) {
	t.f("\n%s %s", severity(t, f.Severity), t.paint("1", bodycam.Printable(f.Rule)))
	if f.Class != "" {
		t.f(" (%s)", f.Class)
	}
	if f.Count > 1 {
		t.f(" ×%d", f.Count)
	}
	t.f("\n  %s\n", bodycam.Printable(f.Title))
	if f.Detail != "" {
		t.f("  %s\n", t.paint("2", bodycam.Printable(f.Detail)))
	}
	if len(f.Tree) > 0 {
		var names []string
		for _, p := range f.Tree {
			names = append(names, fmt.Sprintf("%s[%d]", bodycam.Printable(p.Exe), p.PID))
		}
		t.f("  by      %s\n", strings.Join(names, " → "))
	}
	if f.Row != nil {
		t.f("  row     %d: %s\n", *f.Row, bodycam.Printable(f.RowText))
	}
	if len(f.Events) > 0 {
		t.f("  events  %s\n", numbers(f.Events, f.Records))
	}
	if f.Naming != "" && f.Naming != "exact" {
		t.f("  named   by %s\n", f.Naming)
	}
	if f.Suppressed != "" {
		t.f("  %s %s\n", t.paint("36", "suppressed:"), bodycam.Printable(f.Suppressed))
	}
}

func numbers(events, records []uint64) string {
	var b strings.Builder
	for i, e := range events {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, e)
		if i < len(records) {
			fmt.Fprintf(&b, " (record %d)", records[i])
		}
	}
	return b.String()
}
