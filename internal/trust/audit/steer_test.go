package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/declare"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/bodycam-dev/bodycam/internal/trust/trace"
)

// agent answers anything, and calls the tools that use gives for a text; its traces come at once.
type agent struct {
	store trace.Store
	use   func(text string) []string
	said  []string
}

func (a *agent) Say(_ context.Context, m deliver.Message) (*deliver.Answer, error) {
	a.said = append(a.said, m.Text)
	parent := strings.Split(m.Header.Get("Traceparent"), "-")
	if len(parent) != 4 {
		parent = []string{"", fmt.Sprintf("%032x", len(a.said)), "", ""}
	}
	spans := []otlp.Span{{Trace: parent[1], ID: "root", Parent: parent[2], Name: "agent", Start: time.Now(), End: time.Now(), Attrs: map[string]any{"input.value": m.Text}}}
	for i, t := range a.use(m.Text) {
		spans = append(spans, otlp.Span{Trace: parent[1], ID: fmt.Sprint(i), Parent: "root", Start: time.Now(), Attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": t}})
	}
	a.store.Sink(spans, nil)
	return &deliver.Answer{Text: "Here it is.", Session: m.Session}, nil
}

// knows is a judge that takes texts with the word stamp or coin for in scope.
type knows struct{}

func (knows) Name() string { return "knows" }
func (knows) Scope(_ context.Context, _ *trust.Declaration, text string) (trust.FitOpinion, error) {
	if strings.Contains(strings.ToLower(text), "stamp") || strings.Contains(strings.ToLower(text), "coin") {
		return trust.FitOpinion{Fit: trust.Fits, Probability: 1}, nil
	}
	return trust.FitOpinion{Fit: trust.FitsNot}, nil
}
func (knows) Reply(context.Context, *trust.Declaration, *trust.Probe, string) (trust.ReplyOpinion, error) {
	one := 1.
	return trust.ReplyOpinion{Class: trust.Answers, Score: &one}, nil
}
func (knows) Tool(context.Context, *trust.Declaration, trust.Tool) (trust.FitOpinion, error) {
	return trust.FitOpinion{Fit: trust.Fits, Probability: 1}, nil
}

func audited(t *testing.T, a *agent, budget float64, rounds int) *Audit {
	t.Helper()
	raw := []byte("collector")
	d := &trust.Declaration{Kind: "yaml", Name: "collector", SHA256: fmt.Sprintf("%x", sha256.Sum256(raw)), Skills: []trust.Skill{
		{ID: "stamps", Name: "Stamps", Description: "Values stamps", Examples: []string{"What is this stamp worth?", "Is the blue stamp rare?", "Who printed this stamp?"}},
		{ID: "coins", Name: "Coins", Description: "Values coins", Examples: []string{"What is this coin worth?", "Is the silver coin rare?", "Who minted this coin?"}}}}
	x, err := Open(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "a"), Declaration: &declare.Result{Declaration: d, Raw: raw}, Agent: a, Judge: knows{}, PerScope: 8, Seed: 1,
		Budget: budget, Rounds: rounds, Traces: &a.store, TraceWait: 5 * time.Second, Deliver: deliver.Options{Concurrency: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// added counts the probes in scope beyond the first, by skill.
func added(a *Audit) map[string]int {
	n := map[string]int{}
	for _, p := range a.Probes() {
		if p.Scope == trust.In {
			n[p.Skill]++
		}
	}
	for s := range n {
		n[s] -= 4
	}
	return n
}

func TestSteering(t *testing.T) {
	stamps := func(text string) bool { return strings.Contains(strings.ToLower(text), "stamp") }
	// All is seen often: nothing more is asked.
	a := &agent{use: func(string) []string { return []string{"lookup"} }}
	if n := added(audited(t, a, .05, 2)); n["stamps"] != 0 || n["coins"] != 0 {
		t.Errorf("all is seen, and added were %v", n)
	}
	// A skill that no tool was seen of is asked more, round after round; the other isn't.
	a = &agent{use: func(text string) []string {
		if stamps(text) {
			return []string{"lookup"}
		}
		return nil
	}}
	x := audited(t, a, .05, 2)
	if n := added(x); n["coins"] != 6 || n["stamps"] != 0 || x.Meta().Rounds != 2 {
		t.Errorf("added were %v in %d rounds", n, x.Meta().Rounds)
	}
	// It ends as soon as a tool was seen of it: the rare one shows in the second round.
	calls := 0
	a = &agent{use: func(text string) []string {
		if stamps(text) {
			return []string{"lookup"}
		}
		if strings.Contains(strings.ToLower(text), "coin") {
			if calls++; calls > 4 {
				return []string{"lookup"}
			}
		}
		return nil
	}}
	if x := audited(t, a, .05, 5); x.Meta().Rounds != 1 {
		t.Errorf("%d rounds", x.Meta().Rounds)
	}
	// Each tool is seen once: it goes on to the last round, and no text is sent twice.
	n := 0
	a = &agent{use: func(string) []string { n++; return []string{fmt.Sprint("tool-", n)} }}
	x = audited(t, a, .05, 3)
	if more := added(x); x.Meta().Rounds != 3 || more["stamps"] < 4 || more["coins"] < 4 {
		t.Errorf("%d rounds, %v", x.Meta().Rounds, more)
	}
	sorted := slices.Sorted(slices.Values(a.said))
	if len(slices.Compact(sorted)) != len(a.said) {
		t.Error("a text was sent twice")
	}
	// A budget of all accepts that, and without any call there is nothing to steer by.
	n = 0
	a = &agent{use: func(string) []string { n++; return []string{fmt.Sprint("tool-", n%7)} }}
	if x := audited(t, a, 1, 3); x.Meta().Rounds != 0 {
		t.Errorf("%d rounds with a budget of 1", x.Meta().Rounds)
	}
	a = &agent{use: func(string) []string { return nil }}
	if x := audited(t, a, .05, 3); x.Meta().Rounds != 0 {
		t.Errorf("%d rounds without any call", x.Meta().Rounds)
	}
}

// Opinions of which the last was cut off by a crash are taken up, and so is the file.
func TestCutOpinion(t *testing.T) {
	a := &agent{use: func(string) []string { return []string{"lookup"} }}
	x := audited(t, a, .05, 0)
	if err := x.Judge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(x.c.Dir, OpinionsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	c := x.c
	c.Traces = new(trace.Store)
	again, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	asked := len(a.said)
	if err := again.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := again.Judge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r, err := again.Finish(score.Defaults())
	if err != nil || len(a.said) != asked || len(r.Probes) != len(x.Probes()) || r.Evidence != "traces" {
		t.Errorf("%v, %d messages more, %d probes, rests on %s", err, len(a.said)-asked, len(r.Probes), r.Evidence)
	}
	if _, e, err := Load(c.Dir); err != nil || len(e.Opinions) != len(x.Probes()) {
		t.Errorf("%v, %d opinions", err, len(e.Opinions))
	}
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "finished") {
		t.Errorf("a finished audit was taken up: %v", err)
	}
}

// An audit under observation that was interrupted has lost the record of its windows: it asks again what no record holds, and says so.
func TestInterruptedUnderObservation(t *testing.T) {
	a := &agent{use: func(string) []string { return []string{"lookup"} }}
	x := audited(t, a, .05, 0)
	c := x.c
	c.Traces, c.Kernel, c.Recorded = new(trace.Store), true, map[string]bool{"in-001": true, "out-002": true}
	again, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	asked := len(a.said)
	a.store = trace.Store{}
	if err := again.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(a.said) != 2*asked-2 || !strings.Contains(strings.Join(again.Meta().Notes, " "), "put aside and asked again") {
		t.Errorf("%d messages, before %d, 2 of which are recorded; %v", len(a.said)-asked, asked, again.Meta().Notes)
	}
}
