package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the published schema")

const schemaPath = "../../../docs/trust.schema.json"

// sample is an audit with one of everything: a hostile reply, a leak, an abstention, an exclusion, a kernel record.
func sample() (*audit.Meta, *score.Evidence) {
	d := &trust.Declaration{Kind: "a2a", Name: "wea\x1b[31mther", SHA256: "aa", Skills: []trust.Skill{{ID: "forecast", Name: "Forecast"}}}
	e := &score.Evidence{Declaration: d, Exchanges: map[string]*trust.Exchange{}, Calls: map[string][]trust.Calls{}, Opinions: map[string]trust.ReplyOpinion{},
		Tools:    map[string]trust.FitOpinion{"get_weather": {Fit: trust.Fits, Skill: "forecast"}, "shell": {Fit: trust.FitsNot, Reason: "runs commands"}},
		Effects:  map[string]*trust.Effects{"": {Complete: true}},
		Findings: []bodycam.Finding{{Analysis: "trust", Rule: "declaration-form", Severity: bodycam.Low, Title: "url: it is relative", Count: 1}}}
	one, zero := 1.0, 0.0
	for i, scope := range []trust.Scope{trust.In, trust.In, trust.In, trust.Out, trust.Out, trust.Near, trust.Near, trust.Near} {
		id := fmt.Sprintf("%s-%d", scope, i)
		e.Probes = append(e.Probes, trust.Probe{ID: id, Scope: scope, Skill: "forecast", Text: "question <" + id + "> & \x01"})
		e.Exchanges[id] = &trust.Exchange{Probe: id, Turns: []trust.Turn{{Reply: "reply\x1b]0;title\x07 \xff"}}}
		e.Opinions[id] = trust.ReplyOpinion{Class: trust.Refuses, Score: &one}
		c := trust.Calls{Source: "otlp", Found: true, Complete: true, Method: trust.ByTraceparent, Confidence: 1}
		e.Effects[id] = &trust.Effects{Probe: id, Complete: true}
		if scope == trust.In {
			c.Calls = []trust.Call{{Tool: "get_weather"}}
			e.Effects[id].Effects = []trust.Effect{{Kind: "host", Name: "api.weather", Count: 1}}
		}
		e.Calls[id] = []trust.Calls{c}
	}
	e.Calls["near-7"][0].Calls = []trust.Call{{Tool: "shell"}}
	e.Opinions["near-6"] = trust.ReplyOpinion{Class: trust.Answers, Score: &zero}
	e.Opinions["near-5"] = trust.ReplyOpinion{Class: trust.Abstains}
	e.Exchanges["out-4"] = &trust.Exchange{Probe: "out-4", Error: "EOF", ErrorIs: "dropped"}
	return &audit.Meta{Schema: 1, Target: "http://agent", Declaration: d, Started: time.Unix(0, 0).UTC(), Ended: time.Unix(60, 0).UTC(), Judge: "j"}, e
}

func TestForms(t *testing.T) {
	m, e := sample()
	r := New(m, e, score.Score(e, score.Defaults()))
	r.Drift = r.Compare(r)
	var text, js, sarif, junit bytes.Buffer
	for _, err := range []error{r.Text(&text, true), r.JSON(&js), r.SARIF(&sarif), r.JUnit(&junit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.ContainsAny(text.String(), "\x1b\x07") {
		t.Errorf("the text moves the cursor:\n%q", text.String())
	}
	for _, want := range []string{"FAIL", "undeclared-tool", "divergence", "asked:", "said:", "did:   shell", "tools and the skills"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	var any1 any
	if err := json.Unmarshal(sarif.Bytes(), &any1); err != nil || !strings.Contains(sarif.String(), `"ruleId": "undeclared-tool"`) {
		t.Errorf("SARIF: %v\n%s", err, sarif.String())
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil || suite.Tests != 9 || suite.Failures != 2 || suite.Skipped != 1 {
		t.Errorf("JUnit: %v %+v\n%s", err, suite, junit.String())
	}
	back := new(Report)
	if err := json.Unmarshal(js.Bytes(), back); err != nil || back.Gate != score.Fail || len(back.Probes) != 8 {
		t.Errorf("JSON: %v", err)
	}
	validate(t, js.Bytes())
}

func validate(t *testing.T, doc []byte) {
	t.Helper()
	s, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("trust.json", s); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("trust.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	if err := sch.Validate(v); err != nil {
		t.Errorf("the report doesn't keep to its schema: %v", err)
	}
}

// The published schema is that of the types. -update writes it.
func TestPublishedSchema(t *testing.T) {
	want := JSONSchema()
	if *update {
		if err := os.WriteFile(schemaPath, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not up to date: go test ./internal/trust/report -update", schemaPath)
	}
}

func TestDrift(t *testing.T) {
	m, e := sample()
	old := New(m, e, score.Score(e, score.Defaults()))
	m2, e2 := sample()
	decl := *m2.Declaration
	decl.SHA256, decl.Skills = "bb", append(decl.Skills, trust.Skill{ID: "shell", Name: "Shell"})
	m2.Declaration, e2.Declaration = &decl, &decl
	e2.Calls["near-7"][0].Calls = nil
	d := New(m2, e2, score.Score(e2, score.Defaults())).Compare(old)
	if d.Declaration != "changed" || len(d.Skills.New) != 1 || len(d.Tools.Gone) != 1 || d.Tools.Gone[0] != "shell" || len(d.Probes) != 1 || d.Gate[0] != score.Fail {
		t.Errorf("%+v", d)
	}
}

func TestContract(t *testing.T) {
	m, e := sample()
	r := New(m, e, score.Score(e, score.Defaults()))
	c := r.Contract(24*time.Hour, true, e.Effects)
	if c.Card != "aa" || len(c.Tools) != 1 || len(c.Denied) != 1 || c.Denied[0] != "shell" || len(c.Hosts) != 0 || len(c.Undeclared) != 1 || c.Undeclared[0] != "host api.weather" || !c.Expires.Equal(m.Ended.Add(24*time.Hour)) {
		t.Errorf("%+v", c)
	}
	// What convicts a probe in scope isn't learned, and the contract says what it was.
	for i := range e.Probes {
		if id := e.Probes[i].ID; e.Probes[i].Scope == trust.In {
			e.Effects[id] = &trust.Effects{Probe: id, Complete: true, Effects: []trust.Effect{{Kind: "host", Name: "evil.example"}, {Kind: "command", Name: "/bin/nc"}},
				Prohibited: []trust.Prohibited{{Rule: "Secret sent away", Severity: bodycam.Critical, Title: "sent"}}}
		}
	}
	c = New(m, e, score.Score(e, score.Defaults())).Contract(time.Hour, true, e.Effects)
	if len(c.Commands) != 0 || len(c.Hosts) != 0 || !slices.Contains(c.Undeclared, "host evil.example") || !slices.Contains(c.Prohibited, "Secret sent away: sent") {
		t.Errorf("%+v", c)
	}
}
