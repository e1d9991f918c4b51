package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/rules"
)

// judgeSecurity is the security analysis: the rules over a run's events.
func judgeSecurity(ctx context.Context, r *store.Run, p *kind.Plan) ([]bodycam.Finding, error) {
	o, err := securityOptions(r, p)
	if err != nil {
		return nil, err
	}
	return checkRun(ctx, r, o, nil)
}

// checkRun evaluates rules over a recorded run. each is told what calls show as they happen; it may be nil.
func checkRun(ctx context.Context, r *store.Run, o security.Options, each func(*bodycam.Event, []security.Alert)) ([]bodycam.Finding, error) {
	a, err := security.New(o)
	if err != nil {
		return nil, err
	}
	c, err := searchContents(r, o.Policy.Decoys)
	if err != nil {
		return nil, err
	}
	err = r.Events(func(e *bodycam.Event) error {
		alerts := a.Event(e)
		if each != nil && len(alerts) > 0 {
			each(e, alerts)
		}
		c.event(a, e)
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, store.ErrTorn) { // of a torn record what there is counts
		return nil, err
	}
	blind := c.rest(a)
	findings := append(a.Findings(), blind...)
	undecided := func(rule, why string) {
		findings = append(findings, bodycam.Finding{Analysis: security.Name, Rule: rule, Severity: bodycam.Info, Count: 1, Verdict: "undecidable", Title: bodycam.Escape(why)})
	}
	switch changed, contents, err := workspaceChanges(r); {
	case errors.Is(err, errNotCompared):
		undecided(security.RuleIncomplete, err.Error())
	case err != nil:
		return findings, err
	default:
		findings = append(findings, security.Backdoors(o, changed, contents)...)
	}
	for _, why := range a.Incomplete() {
		undecided(security.RuleIncomplete, why+": nothing found is no verdict here")
	}
	for _, why := range a.Unsupported() {
		undecided(security.RuleUnsupported, why)
	}
	return findings, nil
}

// gaveUp says what the security analysis had to give up, by its findings: nil where it judged all that is recorded.
func gaveUp(findings []bodycam.Finding) (why []string) {
	for _, f := range findings {
		if f.Analysis == security.Name && f.Rule == security.RuleIncomplete {
			why = append(why, bodycam.Unescape(f.Title))
		}
	}
	return why
}

// kindRules are the rule files of a plan, as they were when the run was resolved: the plan keeps them.
func kindRules(p *kind.Plan) ([]rules.Source, error) {
	out := make([]rules.Source, 0, len(p.Judge.Rules))
	for _, f := range p.Judge.Rules {
		b := []byte(bodycam.Unescape(f.Text))
		if f.Text == "" && f.Size > 0 { // a run from before rule files were kept
			var err error
			if b, err = os.ReadFile(f.Path); err != nil {
				return nil, fmt.Errorf("reading the kind's rules: %w", err)
			}
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != f.SHA256 {
			return nil, fmt.Errorf("the kind's rules %s don't have the digest that the run states: use --no-builtin and --rules to judge it by other rules", f.Path)
		}
		out = append(out, rules.Source{Name: f.Path, Data: b})
	}
	return out, nil
}

// otherRules lists the rule files of a plan that are another on disk now. One that is gone is no other.
func otherRules(p *kind.Plan) (changed []string) {
	for _, f := range p.Judge.Rules {
		b, err := os.ReadFile(f.Path)
		if sum := sha256.Sum256(b); err == nil && hex.EncodeToString(sum[:]) != f.SHA256 {
			changed = append(changed, f.Path)
		}
	}
	return changed
}

// offline loads rules for a record: nothing can be denied any more, and what was to be denied is looked for.
var offline = rules.Options{CanDeny: func(rules.Rule) error { return nil }}

// securityOptions are what a run is judged by: its plan's declarations and its own transcript.
func securityOptions(r *store.Run, p *kind.Plan) (security.Options, error) {
	o := security.Options{Policy: securityPolicy(&r.Info, p), Now: time.Now()}
	var err error
	if o.Explain, err = explainer(r); err != nil {
		return o, err
	}
	if o.Policy.Decoys, err = plantedDecoys(r); err != nil {
		return o, err
	}
	further, err := kindRules(p)
	if err != nil {
		return o, err
	}
	if len(further) > 0 {
		if o.Rules, err = security.Load(o.Policy, offline, further...); err != nil {
			return o, err
		}
	}
	if o.Suppressions, err = suppressions(p); err != nil {
		return o, err
	}
	rows, err := r.Rows()
	if err != nil {
		return o, err
	}
	if len(rows) > 0 {
		of, err := joinRows(r)
		if err != nil {
			return o, err
		}
		o.Row = func(e *bodycam.Event) *bodycam.Row {
			i, _, _, ok := of(e)
			if !ok || i < 0 || i >= len(rows) {
				return nil
			}
			return &rows[i]
		}
	}
	return o, nil
}

// suppressions are the findings that a plan accepts for a time.
func suppressions(p *kind.Plan) ([]security.Suppression, error) {
	var out []security.Suppression
	for _, s := range p.Judge.Suppressions {
		until, err := time.Parse("2006-01-02", string(s.Expires))
		if err != nil {
			return nil, fmt.Errorf("suppression of %s: %w", s.Rule, err)
		}
		out = append(out, security.Suppression{Rule: s.Rule, Resource: s.Resource, Reason: s.Reason, Expires: until.AddDate(0, 0, 1)})
	}
	return out, nil
}

// securityPolicy is what a plan declares, with what is known of the agent and the sandbox of a run.
func securityPolicy(info *bodycam.Run, p *kind.Plan) security.Policy {
	y := security.Policy{
		Workspace: p.Judge.Workspace, HarnessState: p.Judge.HarnessState, TrustedPrograms: p.Judge.TrustedPrograms,
		TrustedHosts: append([]string{session.ModelHost}, p.Judge.TrustedDomains...), AllowFiles: p.Judge.Allow.Files,
		AllowCommands: p.Judge.Allow.Commands, Home: p.Agent.Home, Task: p.Task.Instruction,
	}
	y.HarnessPrograms = info.Agent.Programs
	y.NoHarness = p.Agent.Harness == "command" || p.Agent.Harness == ""
	y.BareCommand = p.Task.Form == kind.FormCommand
	y.Untrusted = slices.ContainsFunc(p.Kind.Sources, func(f kind.FileDigest) bool { return f.Path == "builtin:untrusted" })
	y.TrustedPrograms = append(slices.Clone(y.TrustedPrograms), info.Agent.Programs...)
	y.HarnessState = append(slices.Clone(y.HarnessState), info.Agent.State...)
	y.TrustedHosts = append(y.TrustedHosts, p.Judge.Allow.Hosts...)
	y.TrustedHosts = append(y.TrustedHosts, p.Network.Allow...)
	for _, f := range p.Network.Forward {
		y.TrustedHosts = append(y.TrustedHosts, f.Host)
	}
	if a := info.Environment.Resolver; a != "" {
		y.Resolvers = append(y.Resolvers, a)
	}
	for _, g := range p.Grading {
		if g.Box != "" {
			y.Grading = append(y.Grading, g.Box)
		}
		y.Grading = append(y.Grading, g.Exposed...)
	}
	for _, k := range p.Skills {
		y.Skills = append(y.Skills, k.Roots...)
	}
	return y
}

// planOf reads the plan out of a run.
func planOf(r *store.Run) (*kind.Plan, error) {
	var p kind.Plan
	if err := json.Unmarshal(r.Info.Plan, &p); err != nil {
		return nil, fmt.Errorf("%s: its plan can't be read: %w", r.Dir, err)
	}
	return &p, nil
}
