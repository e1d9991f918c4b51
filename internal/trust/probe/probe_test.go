package probe

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

func weather() *trust.Declaration {
	return &trust.Declaration{Name: "weather", Skills: []trust.Skill{
		{ID: "forecast", Name: "Forecast", Description: "Provides weather forecasts for a city.", Tags: []string{"weather"}, Examples: []string{"What's the weather in Oslo?", "Will it rain in Lima tomorrow?"}},
		{ID: "alerts", Name: "Weather alerts", Description: "Lists severe weather alerts"},
		{ID: "xyzzy", Name: "xyzzy", Description: ""},
	}}
}

func TestGenerate(t *testing.T) {
	make60 := func(seed uint64) []trust.Probe {
		g := New(weather(), seed)
		var out []trust.Probe
		for _, s := range trust.Scopes {
			got := g.Make(s, 20)
			if len(got) != 20 {
				t.Errorf("%s: %d probes", s, len(got))
			}
			out = append(out, got...)
		}
		return out
	}
	a, b, c := make60(1), make60(1), make60(2)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives other probes")
	}
	if reflect.DeepEqual(a, c) {
		t.Error("another seed gives the same probes")
	}
	seen, covered := map[string]bool{}, map[string]bool{}
	for _, p := range a {
		if seen[key(p.Text)] {
			t.Errorf("twice: %s", p.Text)
		}
		seen[key(p.Text)] = true
		covered[string(p.Scope)+p.Skill] = true
		if strings.ContainsAny(p.Text, "{}") {
			t.Errorf("a template shows: %s", p.Text)
		}
		t.Log(p.Scope, p.Skill, p.Origin, p.Text)
	}
	for _, s := range []string{"forecast", "alerts", "xyzzy"} {
		if !covered["in"+s] || !covered["near"+s] {
			t.Errorf("skill %s isn't covered", s)
		}
	}
	// Few probes still cover every skill, and more for one skill are others.
	g := New(weather(), 1)
	first := g.Make(trust.In, 1)
	if len(first) != 3 {
		t.Errorf("%d probes for 3 skills", len(first))
	}
	for _, p := range g.For("forecast", 5) {
		if p.Text == first[0].Text || p.Skill != "forecast" {
			t.Errorf("%+v", p)
		}
	}
}

// No probe out of scope may come from a domain that a skill is in or beside.
func TestOutIsOut(t *testing.T) {
	for _, p := range New(weather(), 3).Make(trust.Out, 200) {
		for _, name := range []string{"weather", "outdoors", "travel", "farming"} {
			for _, q := range shipped().byName[name].Queries {
				if p.Text == q {
					t.Errorf("%s is of %s", q, name)
				}
			}
		}
	}
}

func TestCorpus(t *testing.T) {
	seen := map[string]string{}
	for _, d := range shipped().domains {
		if len(d.Queries) < 3 || len(d.Words) < 5 {
			t.Errorf("%s is thin", d.Domain)
		}
		for _, n := range d.Near {
			if shipped().byName[n] == nil {
				t.Errorf("%s is near %s, which isn't there", d.Domain, n)
			}
		}
		for _, q := range d.Queries {
			if seen[key(q)] != "" {
				t.Errorf("%q is in %s and %s", q, seen[key(q)], d.Domain)
			}
			seen[key(q)] = d.Domain
		}
	}
}

func TestLines(t *testing.T) {
	d := weather()
	list := New(d, 1).Make(trust.In, 5)
	var b bytes.Buffer
	if err := Write(&b, list); err != nil {
		t.Fatal(err)
	}
	got, err := Read(strings.NewReader("# mine\n\n"+b.String()), d)
	if err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("%v\n%v\n%v", err, got, list)
	}
	for text, want := range map[string]string{
		"":                                       "no probe",
		`{"scope":"inn","text":"a"}`:             "line 1: scope",
		`{"scope":"in","text":" "}`:              "no text",
		`{"scope":"in","text":"a","skill":"no"}`: "no skill",
		`{"scope":"in","txt":"a"}`:               "unknown field",
		"{\"scope\":\"in\",\"text\":\"a\"}\n{\"scope\":\"out\",\"text\":\"A!\"}": "line 2: its text is that of line 1",
	} {
		if _, err := Read(strings.NewReader(text), d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if r := Repeat(list, 3); len(r) != 15 || r[0].Key() != list[0].ID || r[14].Repeat != 3 || r[0].ID == r[5].ID {
		t.Errorf("%+v", r)
	}
}

type scoper map[string]trust.FitOpinion

func (s scoper) Scope(_ context.Context, _ *trust.Declaration, text string) (trust.FitOpinion, error) {
	return s[text], nil
}

func TestFilter(t *testing.T) {
	s := scoper{"belongs": {Fit: trust.Fits, Probability: .9}, "doubt": {Fit: trust.Doubtful, Probability: .5}, "not": {Fit: trust.FitsNot, Probability: .1}, "broken": {Failed: "x"}}
	var list []trust.Probe
	for _, text := range []string{"belongs", "doubt", "not", "broken"} {
		list = append(list, trust.Probe{ID: text, Scope: trust.Near, Text: text}, trust.Probe{ID: "in" + text, Scope: trust.In, Text: text})
	}
	kept, dropped, err := Filter(t.Context(), s, weather(), list)
	if err != nil || len(dropped) != 1 || dropped[0].ID != "belongs" || len(kept) != 7 {
		t.Fatalf("%v %v %v", kept, dropped, err)
	}
	for _, p := range kept {
		want := map[string]bool{"doubt": true, "broken": true, "inbroken": true, "innot": true}[p.ID]
		if p.Doubtful != want || want && p.Why == "" {
			t.Errorf("%+v", p)
		}
	}
}

func TestByModel(t *testing.T) {
	ask := func(context.Context, string) (string, error) {
		return "Here:\n```json\n[{\"skill\":\"forecast\",\"text\":\"Rain in Rome?\"},{\"skill\":\"no\",\"text\":\"rain in rome\"},{\"text\":\"Snow?\"}]\n```", nil
	}
	got, err := New(weather(), 1).ByModel(t.Context(), ask, trust.In, 5)
	if err != nil || len(got) != 2 || got[0].Skill != "forecast" || got[1].Skill != "" {
		t.Errorf("%v %v", got, err)
	}
	if _, err := New(weather(), 1).ByModel(t.Context(), func(context.Context, string) (string, error) { return "no", nil }, trust.In, 5); err == nil {
		t.Error("no list, no error")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"scope":"in","text":"a","turns":["b"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Read(bytes.NewReader(b), nil)
		if err == nil && len(list) == 0 {
			t.Fatal("nothing and no error")
		}
	})
}

func TestSideEffects(t *testing.T) {
	yes, no := true, false
	d := &trust.Declaration{Skills: []trust.Skill{{ID: "w", Name: "Weather", Description: "Provides forecasts"}, {ID: "b", Name: "Hotel booking", Description: "Books rooms"},
		{ID: "c", Name: "x", Description: "Cancelling of tickets"}}}
	if got := SideEffects(d); !reflect.DeepEqual(got, []string{"b", "c"}) {
		t.Error(got)
	}
	d = &trust.Declaration{Kind: "mcp", Tools: []trust.Tool{{Name: "read", ReadOnly: &yes}, {Name: "write", ReadOnly: &no}, {Name: "unsaid"}},
		Skills: []trust.Skill{{ID: "read", Name: "run", Tools: []string{"read"}}}}
	if got := SideEffects(d); !reflect.DeepEqual(got, []string{"write", "unsaid"}) {
		t.Error(got)
	}
}
