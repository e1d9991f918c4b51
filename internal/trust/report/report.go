// Package report writes a trust audit's verdict: text for people, JSON, SARIF and JUnit for machines. Values in, bytes
// out.
package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// Schema is the version of the JSON form (docs/trust.schema.json).
const Schema = 1

// Report is the JSON form.
type Report struct {
	Schema      int                `json:"schema"`
	Tool        string             `json:"tool,omitempty"`
	Target      string             `json:"target"`
	Agent       string             `json:"agent"`
	Declaration *trust.Declaration `json:"declaration"`
	Started     time.Time          `json:"started"`
	Ended       time.Time          `json:"ended,omitzero"`
	Judge       string             `json:"judge"`
	Seed        uint64             `json:"seed"`
	*score.Result
	Findings []bodycam.Finding `json:"findings"`
	Drift    *Drift            `json:"drift,omitempty"`
	Notes    []string          `json:"notes,omitempty"`
}

// New puts a report together.
func New(m *audit.Meta, e *score.Evidence, r *score.Result) *Report {
	f := score.Findings(e, r)
	if f == nil {
		f = []bodycam.Finding{}
	}
	return &Report{Schema: Schema, Tool: m.Tool, Target: m.Target, Agent: m.Declaration.Name, Declaration: m.Declaration, Started: m.Started, Ended: m.Ended,
		Judge: m.Judge, Seed: m.Seed, Result: r, Findings: f, Notes: m.Notes}
}

// JSON writes the whole report.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes what people want to know. verbose lists every probe.
func (r *Report) Text(w io.Writer, verbose bool) error {
	t := &printer{w: w}
	safe := bodycam.Printable
	t.linef("%s: %s", safe(r.Agent), strings.ToUpper(r.Gate))
	interval := fmt.Sprintf("95 %% interval %.1f–%.1f", r.Interval.Low, r.Interval.High)
	if r.Published != nil {
		interval = "the published formula has no interval"
	}
	t.linef("score %.1f (%s, threshold %.0f), by %s, %s, rests on: %s", r.Score, interval, r.Threshold, r.Scoring, r.Corrected, r.Evidence)
	for _, why := range r.Reasons {
		t.linef("  %s", safe(why))
	}
	t.linef("")
	t.table(func(tw io.Writer) {
		fmt.Fprintln(tw, "scope\tprobes\tmean\tpass rate, 95 %\tabstained\texcluded\tdoubtful")
		for _, s := range r.Scopes {
			fmt.Fprintf(tw, "%s\t%d\t%.2f\t%.2f–%.2f\t%d\t%d\t%d\n", s.Scope, s.Probes, s.Mean, s.Interval.Low, s.Interval.High, s.Abstained, s.Excluded, s.Doubtful)
		}
	})
	if len(r.Patterns) > 0 {
		t.linef("\npatterns")
		t.table(func(tw io.Writer) {
			for _, p := range r.Patterns {
				sure := ""
				if p.Confident {
					sure = "certain"
				}
				fmt.Fprintf(tw, "  %s\t%s\t%d of %d\t%s\n", p.Pattern, safe(p.Scope), p.Count, p.Of, sure)
			}
		})
	}
	t.linef("\nskills")
	t.table(func(tw io.Writer) {
		for _, s := range r.Skills {
			near := "–"
			if s.Near >= 0 {
				near = fmt.Sprintf("%.2f", s.Near)
			}
			fmt.Fprintf(tw, "  %s\tin %.2f (%d)\tnear %s\ttools: %s\n", safe(s.ID), s.Mean, s.Probes, near, safe(strings.Join(s.Tools, ", ")))
		}
	})
	if len(r.Tools) > 0 {
		t.linef("\ntools and the skills they belong to")
		t.table(func(tw io.Writer) {
			for _, x := range r.Tools {
				fmt.Fprintf(tw, "  %s\t%s\t%s\tin %d, out %d, near %d\t%s\n", safe(x.Name), x.Fit, safe(x.Skill), x.Probes["in"], x.Probes["out"], x.Probes["near"], safe(x.Why))
			}
		})
		t.linef("  estimated number of tools: %.1f; chance that the next is a new one: %.2f", r.Unseen.Chao2, r.Unseen.GoodTuring)
	}
	for _, k := range slices.Sorted(mapsKeys(r.PassHatK)) {
		t.linef("pass^%s: %.3f", k, r.PassHatK[k])
	}
	if r.Drift != nil {
		r.Drift.text(t)
	}
	if n := len(r.Also); n > 0 {
		more := ""
		if n > 20 {
			more = fmt.Sprintf(", and %d more", n-20)
		}
		t.linef("\nin scope it also used %s%s", safe(strings.Join(r.Also[:min(n, 20)], ", ")), more)
	}
	r.probes(t, verbose)
	for i, n := range r.Notes {
		if i == 0 {
			t.linef("")
		}
		t.linef("note: %s", safe(n))
	}
	if verbose {
		for _, f := range r.Findings {
			t.linef("finding (%s) %s: %s", f.Severity, f.Rule, f.Title)
		}
	} else if n := countRule(r.Findings, "declaration-form"); n > 0 {
		t.linef("\n%d departure(s) of the declaration from its specification (--verbose lists them)", n)
	}
	return t.err
}

// probes shows said and did side by side: the violations, or all.
func (r *Report) probes(t *printer, verbose bool) {
	head := false
	for i := range r.Probes {
		p := &r.Probes[i]
		if !verbose && p.Verdict != score.Violation {
			continue
		}
		if !head {
			t.linef("\nsaid and did")
			head = true
		}
		did := strings.Join(slices.Concat(p.Calls, p.Prohibited, p.Effects), ", ")
		if did == "" {
			did = "nothing seen"
		}
		only := ""
		if p.TextOnly {
			only = " (text only)"
		}
		t.linef("  %s [%s]%s %s", p.ID, p.Verdict, only, bodycam.Printable(strings.Join(p.Patterns, ", ")))
		t.linef("    asked: %s", clip(p.Prompt, 160))
		t.linef("    said:  %s", clip(p.Reply, 160))
		t.linef("    did:   %s", clip(did, 160))
		t.linef("    why:   %s", clip(p.Reason, 300))
	}
}

func countRule(fs []bodycam.Finding, rule string) int {
	n := 0
	for _, f := range fs {
		if f.Rule == rule {
			n++
		}
	}
	return n
}

// clip is one line of a text, safe for a terminal.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		s = string(r[:n]) + "…"
	}
	return bodycam.Printable(s)
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) table(f func(io.Writer)) {
	if p.err != nil {
		return
	}
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	f(tw)
	p.err = tw.Flush()
}

// SARIF writes the findings in SARIF 2.1.0.
func (r *Report) SARIF(w io.Writer) error {
	level := func(s bodycam.Severity) string {
		switch {
		case s >= bodycam.High:
			return "error"
		case s == bodycam.Medium:
			return "warning"
		}
		return "note"
	}
	type text struct {
		Text string `json:"text"`
	}
	rules, seen, results := []any{}, map[string]bool{}, []any{}
	for _, f := range r.Findings {
		if !seen[f.Rule] {
			seen[f.Rule] = true
			rules = append(rules, map[string]any{"id": f.Rule, "shortDescription": text{strings.ReplaceAll(f.Rule, "-", " ")}})
		}
		msg := f.Title
		if f.Detail != "" {
			msg += ". " + f.Detail
		}
		results = append(results, map[string]any{"ruleId": f.Rule, "level": level(f.Severity), "message": text{msg},
			"locations":  []any{map[string]any{"physicalLocation": map[string]any{"artifactLocation": map[string]any{"uri": r.Target}}}},
			"properties": map[string]any{"severity": f.Severity.String(), "probes": f.Tags, "resource": f.Resource}})
	}
	properties := map[string]any{"gate": r.Gate, "score": r.Score}
	if r.Published == nil { // the published formula has none
		properties["interval"] = r.Interval
	}
	run := map[string]any{
		"tool":       map[string]any{"driver": map[string]any{"name": "bodycam", "version": r.Tool, "informationUri": "https://github.com/bodycam-dev/bodycam", "rules": rules}},
		"results":    results,
		"properties": properties}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": []any{run}})
}

// JUnit writes one test case a probe, and one for the gate.
func (r *Report) JUnit(w io.Writer) error {
	type message struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
	type testcase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Failure *message `xml:"failure,omitempty"`
		Skipped *message `xml:"skipped,omitempty"`
	}
	type suite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testcase `xml:"testcase"`
	}
	s := suite{Name: bodycam.Escape(r.Agent)}
	add := func(c testcase) {
		s.Cases = append(s.Cases, c)
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
	}
	gate := testcase{Name: "gate", Class: "trust"}
	why := xmlSafe(strings.Join(r.Reasons, "\n"))
	switch r.Gate {
	case score.Fail:
		gate.Failure = &message{"trust gate failed", "gate", why}
	case score.Inconclusive:
		gate.Skipped = &message{Message: "inconclusive", Text: why}
	}
	add(gate)
	for i := range r.Probes {
		p := &r.Probes[i]
		c := testcase{Name: p.ID + ": " + clip(p.Prompt, 100), Class: "trust." + string(p.Scope)}
		body := xmlSafe(fmt.Sprintf("asked: %s\nsaid: %s\ndid: %s", p.Prompt, p.Reply, strings.Join(append(slices.Clone(p.Calls), p.Effects...), ", ")))
		switch p.Verdict {
		case score.Violation:
			c.Failure = &message{clip(p.Reason, 300), strings.Join(p.Patterns, " "), body}
		case score.Fine:
		default:
			c.Skipped = &message{Message: clip(p.Verdict+": "+p.Reason, 300)}
		}
		add(c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// xmlSafe leaves out what XML can't hold.
func xmlSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r >= 0x20 && r != 0xfffe && r != 0xffff {
			return r
		}
		return '\ufffd'
	}, strings.ToValidUTF8(s, "\ufffd"))
}
