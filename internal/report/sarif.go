package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// The parts of SARIF 2.1.0 that are written here. Names and structure are the standard's.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Automation  sarifAutomation   `json:"automationDetails"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
		ColumnKind  string            `json:"columnKind"`
		Properties  map[string]any    `json:"properties,omitempty"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name            string      `json:"name"`
		Version         string      `json:"version,omitempty"`
		SemanticVersion string      `json:"semanticVersion,omitempty"`
		InformationURI  string      `json:"informationUri"`
		Rules           []sarifRule `json:"rules"`
	}
	sarifText struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown,omitempty"`
	}
	sarifRule struct {
		ID         string         `json:"id"`
		Name       string         `json:"name"`
		Short      sarifText      `json:"shortDescription"`
		Full       sarifText      `json:"fullDescription"`
		Help       sarifText      `json:"help"`
		Default    sarifLevel     `json:"defaultConfiguration"`
		Properties map[string]any `json:"properties"`
	}
	sarifLevel struct {
		Level string `json:"level"`
	}
	sarifAutomation struct {
		ID string `json:"id"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        string             `json:"level"`
		Kind         string             `json:"kind,omitempty"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Fingerprints map[string]string  `json:"partialFingerprints"`
		Occurrences  uint64             `json:"occurrenceCount,omitempty"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
		Properties   map[string]any     `json:"properties"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
)

const (
	sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"
	projectURI  = "https://github.com/bodycam-dev/bodycam"
)

// SARIF writes what rules say of runs in SARIF 2.1.0, as code hosts show it.
func SARIF(w io.Writer, version string, checks []Check) error {
	log := sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{}}
	for i := range checks {
		log.Runs = append(log.Runs, sarifOf(version, &checks[i]))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(log)
}

func sarifOf(version string, c *Check) sarifRun {
	rules := slices.Clone(c.Rules.List)
	index := map[string]int{}
	for i, r := range rules {
		index[r.Name] = i
	}
	for _, f := range c.Findings { // what isn't of the rule files: back doors by content, decoys
		if _, ok := index[f.Rule]; !ok {
			index[f.Rule] = len(rules)
			rules = append(rules, Rule{Name: f.Rule, Class: f.Class, Desc: f.Detail, Severity: f.Severity, Tags: f.Tags})
		}
	}
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "bodycam", Version: version, InformationURI: projectURI, Rules: []sarifRule{}}},
		// One category per task: the runs of another task don't close its alerts.
		Automation: sarifAutomation{"bodycam/" + c.Task + "/" + c.Run}, ColumnKind: "unicodeCodePoints",
		Invocations: []sarifInvocation{{Successful: true}}, Results: []sarifResult{},
		Properties: map[string]any{"run": c.Run, "complete": c.Complete, "rulesVersion": c.Rules.Version, "rulesDigest": c.Rules.Digest}}
	for _, why := range c.Reasons {
		run.Invocations[0].Notifications = append(run.Invocations[0].Notifications, sarifNotification{"warning", sarifText{Text: "the record is incomplete: " + why}})
	}
	for _, r := range rules {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRuleOf(r))
	}
	for i := range c.Findings {
		f := &c.Findings[i]
		run.Results = append(run.Results, sarifResultOf(c, f, index[f.Rule]))
	}
	return run
}

func sarifRuleOf(r Rule) sarifRule {
	desc := r.Desc
	if desc == "" {
		desc = r.Name
	}
	help := sarifText{Text: desc, Markdown: desc}
	if r.Example != "" {
		help.Text += "\n\nFor example: " + r.Example
		help.Markdown += "\n\nFor example: `` " + r.Example + " ``"
	}
	tags := append([]string{"security"}, r.Tags...)
	slices.Sort(tags)
	tags = slices.Compact(tags)
	return sarifRule{ID: slug(r.Name), Name: camel(r.Name), Short: sarifText{Text: r.Name}, Full: sarifText{Text: desc}, Help: help,
		Default:    sarifLevel{level(r.Severity)},
		Properties: map[string]any{"tags": tags[:min(len(tags), 20)], "security-severity": score(r.Severity), "precision": "high", "class": r.Class}}
}

func sarifResultOf(c *Check, f *bodycam.Finding, rule int) sarifResult {
	msg := f.Title
	if f.Detail != "" {
		msg += "\n" + f.Detail
	}
	if f.Row != nil {
		msg += fmt.Sprintf("\nTranscript row %d: %s", *f.Row, f.RowText)
	}
	if n := len(f.Tree); n > 0 {
		msg += fmt.Sprintf("\nBy %s (process %d).", bodycam.Printable(strings.Join(f.Tree[n-1].Argv, " ")), f.Tree[n-1].PID)
	}
	loc := sarifLocation{Physical: sarifPhysical{Artifact: sarifArtifact{c.place(f)}, Region: sarifRegion{1}}}
	if f.Resource != "" {
		loc.Logical = []sarifLogical{{f.Resource, "resource"}}
	}
	r := sarifResult{RuleID: slug(f.Rule), RuleIndex: rule, Level: level(f.Severity), Message: sarifText{Text: msg}, Locations: []sarifLocation{loc},
		Fingerprints: map[string]string{"bodycamFinding/v1": fingerprint(c, f)}, Occurrences: f.Count,
		Properties: map[string]any{"severity": f.Severity, "events": f.Events, "processTree": f.Tree}}
	if f.Verdict == "undecidable" {
		r.Kind, r.Level = "open", "none"
	}
	if len(f.Records) > 0 {
		r.Properties["records"] = f.Records
	}
	if f.Row != nil {
		r.Properties["row"] = *f.Row
	}
	if f.Naming != "" {
		r.Properties["naming"] = f.Naming
	}
	if f.Suppressed != "" {
		r.Suppressions = []sarifSuppression{{"external", f.Suppressed}}
	}
	return r
}

// place is a relative address for a finding: the file of the workspace that it is about, the script of a skill that did
// it, or else the run's own description.
func (c *Check) place(f *bodycam.Finding) string {
	for _, w := range c.Workspace {
		if rel, ok := strings.CutPrefix(f.Resource, strings.TrimSuffix(w, "/")+"/"); ok {
			return escapePath(rel)
		}
	}
	for _, p := range slices.Backward(f.Tree) {
		for _, a := range p.Argv {
			if i := strings.Index(a, "/skills/"); i >= 0 && path.IsAbs(a) {
				return escapePath("skills/" + a[i+len("/skills/"):])
			}
		}
	}
	return escapePath(c.Run + "/run.json")
}

func escapePath(p string) string {
	return (&url.URL{Path: strings.TrimPrefix(path.Clean("/"+p), "/")}).EscapedPath()
}

// fingerprint is the same for the same finding of another run of the task.
func fingerprint(c *Check, f *bodycam.Finding) string {
	exe := ""
	if n := len(f.Tree); n > 0 {
		exe = f.Tree[n-1].Exe
	}
	h := sha256.Sum256([]byte(strings.Join([]string{c.Task, f.Rule, f.Resource, exe}, "\x00")))
	return hex.EncodeToString(h[:16])
}

func level(s bodycam.Severity) string {
	switch {
	case s >= bodycam.High:
		return "error"
	case s == bodycam.Medium:
		return "warning"
	}
	return "note"
}

// score is the severity as GitHub reads it: over 9 critical, 7 high, 4 medium, above 0 low.
func score(s bodycam.Severity) string {
	return map[bodycam.Severity]string{bodycam.Critical: "9.5", bodycam.High: "8.0", bodycam.Medium: "5.5", bodycam.Low: "3.0", bodycam.Info: "1.0"}[s]
}

// slug is a rule's name as an identifier.
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return "bodycam/" + strings.TrimSuffix(b.String(), "-")
}

// camel is a rule's name in one word.
func camel(name string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(name, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') }) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return b.String()
}
