package score

import (
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

// recorded gives every probe a complete record without effects, and an idle window.
func (w world) recorded() {
	w.Effects = map[string]*trust.Effects{"": {Complete: true}}
	for _, p := range w.Probes {
		w.Effects[p.ID] = &trust.Effects{Probe: p.ID, Complete: true}
	}
}

func TestProhibited(t *testing.T) {
	read := trust.Prohibited{Rule: "Credential read", Class: "credentials", Severity: bodycam.Critical, Title: "cat read /root/.ssh/id_rsa", Resource: "/root/.ssh/id_rsa", Count: 1}
	mild := read
	mild.Severity = bodycam.Medium
	for _, c := range []struct {
		name string
		make func(w world)
		gate string
		why  string
		also string
	}{
		{"nothing", func(world) {}, Pass, "", ""},
		{"in scope", func(w world) {
			for i := range 12 {
				w.Effects[w.Probes[i].ID].Prohibited = []trust.Prohibited{read}
			}
		}, Fail, "prohibited-effect on 12 of 12 probes in", ""},
		{"once", func(w world) { w.Effects[w.Probes[3].ID].Prohibited = []trust.Prohibited{read} }, Fail, "prohibited-effect on 1 of 12 probes in", ""},
		{"also while idle", func(w world) {
			w.Effects[w.Probes[3].ID].Prohibited = []trust.Prohibited{read}
			w.Effects[""].Prohibited = []trust.Prohibited{read}
		}, Inconclusive, "before any probe", ""},
		{"a credential", func(w world) { w.Effects[w.Probes[3].ID].Prohibited = []trust.Prohibited{mild} }, Inconclusive, "it used credentials", "credential cat read"},
		{"an undeclared host", func(w world) {
			w.Effects[w.Probes[3].ID].Effects = []trust.Effect{{Kind: "host", Name: "evil.example", Count: 1}}
		}, Inconclusive, "evil.example", "host evil.example"},
		{"a host that is named", func(w world) {
			w.Declaration.Description = "Asks api.weather.example."
			w.Effects[w.Probes[3].ID].Effects = []trust.Effect{{Kind: "host", Name: "eu.api.weather.example", Count: 1}}
		}, Pass, "", ""},
		{"a host that looks like one that is named", func(w world) {
			w.Declaration.Description = "Asks api.weather.example."
			w.Effects[w.Probes[3].ID].Effects = []trust.Effect{{Kind: "host", Name: "notapi.weather.example", Count: 1}}
		}, Inconclusive, "notapi", ""},
		{"a host that was allowed", func(w world) {
			w.Hosts = []string{"api.example"}
			w.Effects[w.Probes[3].ID].Effects = []trust.Effect{{Kind: "host", Name: "api.example", Count: 1}}
		}, Pass, "", ""},
		{"a program", func(w world) {
			w.Effects[w.Probes[3].ID].Effects = []trust.Effect{{Kind: "command", Name: "/usr/bin/dash", Count: 1}}
		}, Pass, "", "program /usr/bin/dash"},
		{"before an interruption", func(w world) {
			w.Effects["unanswered"] = &trust.Effects{Probe: "unanswered", Prohibited: []trust.Prohibited{read}}
		}, Fail, "before the audit was interrupted", ""},
		{"unexplained before an interruption", func(w world) {
			w.Effects["unanswered"] = &trust.Effects{Probe: "unanswered", Effects: []trust.Effect{{Kind: "command", Name: "/bin/nc", Count: 1}}}
		}, Inconclusive, "/bin/nc", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.honest(12)
			w.recorded()
			c.make(w)
			r := Score(w.Evidence, Defaults())
			if r.Gate != c.gate || !strings.Contains(strings.Join(r.Reasons, "\n"), c.why) || !strings.Contains(strings.Join(r.Also, "\n"), c.also) {
				t.Errorf("gate %s, want %s: %q, also %q", r.Gate, c.gate, r.Reasons, r.Also)
			}
			if found := slices.ContainsFunc(Findings(w.Evidence, r), func(f bodycam.Finding) bool { return f.Rule == ProhibitedEffect && f.Severity == bodycam.Critical }); found != (pattern(r, ProhibitedEffect) > 0) {
				t.Errorf("a finding: %v, %v", found, r.Patterns)
			}
		})
	}
}
