package toolcheck

import (
	"encoding/json"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

func TestArguments(t *testing.T) {
	for schema, want := range map[string]string{
		``: `{}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":5},"c":{"type":"boolean"}},"required":["a","b"]}`:                                `{"a":"example","b":5}`,
		`{"type":"object","properties":{"e":{"enum":["x","y"]},"u":{"type":"string","format":"uri"},"l":{"type":"array","items":{"type":"number"}}},"required":["e","u","l"]}`: `{"e":"x","l":[1],"u":"https://example.com/"}`,
		`{"$defs":{"p":{"type":"object","properties":{"city":{"type":["string","null"]}},"required":["city"]}},"properties":{"p":{"$ref":"#/$defs/p"}},"required":["p"]}`:      `{"p":{"city":"Oslo"}}`,
	} {
		v, err := Arguments(json.RawMessage(schema), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(v); string(got) != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
	for _, bad := range []string{`[]`, `{"$ref":"http://x"}`, `{"$ref":"#/a"}`, `{"properties":{"a":{"$ref":"#"}},"required":["a"]}`} {
		if v, err := Arguments(json.RawMessage(bad), 1); err == nil {
			t.Errorf("%s: %v", bad, v)
		}
	}
}

func TestJudge(t *testing.T) {
	yes, no := true, false
	effects := func(kind, name string) []trust.Effects {
		return []trust.Effects{{Complete: true, Effects: []trust.Effect{{Kind: "host", Name: "telemetry"}}},
			{Probe: "t", Complete: true, Effects: []trust.Effect{{Kind: "host", Name: "telemetry"}, {Kind: kind, Name: name}}}}
	}
	for _, c := range []struct {
		name string
		tool Tool
		e    []trust.Effects
		gate string
	}{
		{"read-only writes", Tool{ReadOnly: &yes}, effects("file", "/data"), score.Fail},
		{"read-only runs a program", Tool{ReadOnly: &yes}, effects("command", "/bin/ls"), score.Pass},
		{"read-only makes a temporary file", Tool{ReadOnly: &yes}, effects(Scratch, "/tmp/x"), score.Pass},
		{"closed world contacts", Tool{OpenWorld: &no}, effects("host", "evil"), score.Fail},
		{"not destructive removes", Tool{Destructive: &no}, effects("delete", "/data"), score.Fail},
		{"says nothing, does anything", Tool{}, effects("delete", "/data"), score.Pass},
		{"what it does idle is not the call's", Tool{OpenWorld: &no}, effects("host", "telemetry"), score.Pass},
		{"no record", Tool{ReadOnly: &yes}, nil, score.Inconclusive},
		{"failed", Tool{Failed: true}, effects("command", "x"), score.Inconclusive},
	} {
		c.tool.Name, c.tool.Called = "t", true
		r := &Report{Tools: []Tool{c.tool}}
		r.Judge(c.e)
		if r.Gate != c.gate || len(r.Reasons) == 0 {
			t.Errorf("%s: %s %v", c.name, r.Gate, r.Reasons)
		}
	}
	r := &Report{Tools: []Tool{{Name: "t", Called: true}}, Changed: true}
	if r.Judge(effects("command", "x")); r.Gate != score.Fail {
		t.Errorf("the list changed: %s", r.Gate)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/properties/a"}]}},"required":["a"]}`))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = Arguments(b, 1) })
}
