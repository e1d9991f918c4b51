package conduct

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

func add(t *testing.T, c *Comparison, id, task, outcome string, f *features.Features, change ...func(*Subject)) {
	t.Helper()
	plan := &features.Plan{}
	plan.Judge.TrustedPrograms = []string{"*"}
	s := &Subject{Plan: plan, Features: f, Explain: features.NewExplainer(plan), Info: &bodycam.Run{ID: id, Task: bodycam.TaskRef{Name: task},
		Agent: bodycam.AgentRef{Harness: "codex", Model: "m"}, Outcome: bodycam.Outcome{Status: outcome}, Complete: bodycam.Completeness{Complete: true}}}
	for _, ch := range change {
		ch(s)
	}
	if err := c.Add(s); err != nil {
		t.Fatal(err)
	}
}

func TestSetsAgainstMixtures(t *testing.T) {
	c := NewComparison(Options{})
	for i := range 3 {
		n := uint64(i + 1)
		add(t, c, fmt.Sprint("a", i), "a", "pass", run(map[string]uint64{"command cat": 2, "command sed": n, "file /a": 1, "host h": 1}))
		add(t, c, fmt.Sprint("b", i), "b", "pass", run(map[string]uint64{"command awk": 2, "command cat": n, "file /b": 1}))
	}
	add(t, c, "c0", "c", "fail", run(map[string]uint64{"command ls": 1}))
	res := c.Finish([]string{"task", "model"}, Thresholds{})
	if len(res.Sets) != 3 || len(res.Sets[0].Pairs) != 3 || len(res.Sets[2].Pairs) != 0 {
		t.Fatalf("%d sets", len(res.Sets))
	}
	// Of each of the two sets of three: 3 × 3 mixtures with one run of the other and 3 × 1 of the third task, and three
	// draws with two runs of the other.
	if q := res.RQ1; q.Sets != 2 || q.Comparisons != 2*(9+3+3) || q.Overall.Favour != q.Comparisons || q.Overall.Least <= 0 || len(q.Losses) != 0 {
		t.Errorf("%+v", q)
	}
	// Hosts say something of task a's mixtures alone, since b has none.
	if q := res.RQ1; q.Hosts.Comparisons == 0 || q.Hosts.Comparisons >= q.Comparisons {
		t.Errorf("hosts: %+v", q.Hosts)
	}
	if q := res.RQ2; q.Sets != 3 || q.Passed != 2 || q.Unrelated != 1 || q.Skilled != 0 {
		t.Errorf("%+v; want one passed set with unrelated activity: the undeclared host of a", q)
	}
}

// A mixture that is more alike than the set itself counts against it.
func TestNotFavoured(t *testing.T) {
	c := NewComparison(Options{})
	add(t, c, "a0", "a", "pass", run(map[string]uint64{"file /x": 1}))
	add(t, c, "a1", "a", "pass", run(map[string]uint64{"file /y": 1}))
	add(t, c, "b0", "b", "pass", run(map[string]uint64{"file /x": 1}))
	q := c.Finish([]string{"task"}, Thresholds{}).RQ1
	if q.Comparisons != 2 || q.Overall.Favour != 0 || len(q.Losses) != 2 || q.Overall.Least != -1 {
		t.Errorf("%+v", q)
	}
}

func TestPrevalence(t *testing.T) {
	c := NewComparison(Options{})
	skill := func(used int) func(*Subject) {
		return func(s *Subject) {
			use := features.SkillUse{Name: "s"}
			for i := range 4 {
				d := features.Never
				if i < used {
					d = features.FileRead
				}
				use.Files = append(use.Files, features.FileUse{Path: fmt.Sprint(i), Degree: d, Row: -1})
			}
			s.Features.Skills = []features.SkillUse{use}
		}
	}
	leak := func(s *Subject) {
		s.Features.Contents = []features.Content{{Path: "/app/x", Of: "tests/t", Role: "tests"}}
	}
	f := func() *features.Features { return run(map[string]uint64{"file /usr/x": 1}) }
	add(t, c, "1", "unused", "pass", f(), skill(0))
	add(t, c, "2", "unused", "pass", f(), skill(1))
	add(t, c, "3", "used", "pass", f(), skill(0))
	add(t, c, "4", "used", "pass", f(), skill(3))
	add(t, c, "5", "leaky", "pass", f(), leak)
	add(t, c, "6", "failed", "pass", f(), leak, skill(0))
	add(t, c, "7", "failed", "fail", f(), leak, skill(0))
	q := c.Finish([]string{"task"}, Thresholds{}).RQ2
	if q.Sets != 4 || q.Passed != 3 || q.Unused != 1 || q.Skilled != 2 || q.Grading != 1 || q.UnusedPart != 0.5 {
		t.Errorf("%+v", q)
	}
	if q = c.Finish([]string{"task"}, Thresholds{Coverage: 0.5}).RQ2; q.Unused != 2 {
		t.Errorf("with a threshold of a half: %+v", q)
	}
}

// The JSON form that issue and docs name, with hostile names in it.
func TestFlatJSON(t *testing.T) {
	c := NewComparison(Options{})
	for i := range 3 {
		add(t, c, fmt.Sprint("r", i), "t\xff", "pass", run(map[string]uint64{"command c\xff\"": uint64(i + 1), "file /a": 1}))
	}
	b, err := json.Marshal(Flat(c.Finish(nil, Thresholds{}), false))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Pairs []struct {
			A, B                 string
			Similarity, AgentSpy map[string]*float64
		}
		Mean struct {
			Similarity map[string]*float64
			Interval   []float64
		}
		Coverage, Leaks, Unexplained, Outliers []json.RawMessage
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Pairs) != 3 || len(got.Mean.Interval) != 2 || got.Coverage == nil || got.Leaks == nil || got.Unexplained == nil || got.Outliers == nil {
		t.Errorf("%s", b)
	}
	for _, p := range got.Pairs {
		if v, ok := p.Similarity["hosts"]; !ok || v != nil || *p.Similarity["files"] != 1 || *p.Similarity["commands"] != 1 || *p.Similarity["overall"] != 1 {
			t.Errorf("%+v", p)
		}
	}
	if bytes.Contains(b, []byte("\ufffd")) {
		t.Error("a byte was lost")
	}
}

// The same runs give the same bytes.
func TestDeterministic(t *testing.T) {
	make := func() []byte {
		c := NewComparison(Options{})
		for i := range 6 {
			counts := map[string]uint64{"command cat": 1}
			for k := range 40 {
				counts[fmt.Sprintf("file /%d", k*(i%3+1)%17)] += uint64(k%5 + 1)
			}
			add(t, c, fmt.Sprint(i), fmt.Sprint(i%2), "pass", run(counts))
		}
		b, err := json.Marshal(Flat(c.Finish([]string{"task"}, Thresholds{}), false))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := make()
	for range 5 {
		if got := make(); !bytes.Equal(got, want) {
			t.Fatalf("two comparisons differ: %d and %d bytes", len(got), len(want))
		}
	}
}

func TestGraph(t *testing.T) {
	s := subject(t, &features.Plan{}, nil, read("/app/a\x1b\"<&"), write("/app/b"), contact("h.example"), execute("/usr/bin/cat", "cat"), read("/lib/x"))
	for _, form := range GraphForms {
		var b bytes.Buffer
		if err := s.Graph(false).Write(&b, form); err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		switch form {
		case "json":
			var g Graph
			if err := json.Unmarshal(b.Bytes(), &g); err != nil || len(g.Nodes) != 5 || g.Nodes[0].Type != "root" || len(g.Edges) != 5 {
				t.Errorf("%s, %v", b.String(), err)
			}
		case "graphml":
			var g struct {
				Graph struct {
					Nodes []struct{} `xml:"node"`
					Edges []struct{} `xml:"edge"`
				} `xml:"graph"`
			}
			if err := xml.Unmarshal(b.Bytes(), &g); err != nil || len(g.Graph.Nodes) != 5 || len(g.Graph.Edges) != 5 {
				t.Errorf("%s, %v", b.String(), err)
			}
		case "dot":
			if strings.Count(b.String(), " -- ") != 5 || strings.ContainsRune(b.String(), 0x1b) || !strings.Contains(b.String(), `\"<&`) {
				t.Errorf("%s", b.String())
			}
		}
	}
	if err := s.Graph(true).Write(&bytes.Buffer{}, "svg"); err == nil {
		t.Error("an unknown form is written")
	}
	if n := len(s.Graph(true).Nodes); n != 6 {
		t.Errorf("with noise %d nodes, want 6", n)
	}
}

func TestDraft(t *testing.T) {
	skill := &features.Skill{Name: "cite", Files: []features.PlanFile{{Path: "SKILL.md"}, {Path: "scripts/lookup.sh"}, {Path: "references/api.md"}, {Path: "LICENSE"}},
		Document: "---\nname: cite\ndescription: see http://head.example\n---\n\nRead `references/api.md`, then run `bash scripts/lookup.sh X` and ask https://api.example/v1.\n\n```\npython3 -m pip install x\nls -la\n```\n"}
	var got []string
	for _, s := range Draft(skill) {
		got = append(got, fmt.Sprintf("%d %s", s.Line, s.Act.String()))
	}
	want := []string{"6 contacts api.example", "6 executes skill:cite/scripts/lookup.sh", "6 reads skill:cite/references/api.md", "9 runs python3"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
	plan := &features.Plan{Skills: []features.Skill{*skill}}
	for verdict, events := range map[string][]bodycam.Event{
		Ignored:  {read("/app/x")},
		Partly:   {contact("api.example")},
		Followed: {contact("api.example"), execute("/usr/bin/python3.11", "python3"), read("/s/cite/references/api.md"), execute("/usr/bin/bash", "bash", "/s/cite/scripts/lookup.sh")},
	} {
		p := *plan
		p.Skills[0].Roots = []string{"/s/cite"}
		if got := subject(t, &p, nil, events...).Coverage()[0].Adherence; got.Verdict != verdict {
			t.Errorf("%+v, want %s", got, verdict)
		}
	}
	var b bytes.Buffer
	if err := WriteDrafts(&b, subject(t, plan, nil)); err != nil || !strings.Contains(b.String(), `  - executes: "skill:cite/scripts/lookup.sh"  # cite, SKILL.md line 6`) {
		t.Errorf("%s, %v", b.String(), err)
	}
}

func FuzzDraft(f *testing.F) {
	f.Add("---\nname: a\n---\nRun `python3 scripts/a.py` and see https://h.example/x\n```\n$ curl -s x\n")
	f.Add("---\n```\n`\n---")
	f.Fuzz(func(t *testing.T, doc string) {
		skill := &features.Skill{Name: "s", Document: doc, Files: []features.PlanFile{{Path: "SKILL.md"}, {Path: "scripts/a.py"}, {Path: "b.md"}}}
		lines := strings.Count(doc, "\n") + 2
		for _, s := range Draft(skill) {
			if s.Act.count() != 1 || s.Act.check() != nil || s.Line < 1 || s.Line > lines {
				t.Errorf("%+v of %d lines", s, lines)
			}
		}
	})
}
