package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func sample() []Check {
	row := 6
	return []Check{{Run: "20260101-000000-ab", Task: "shop", Complete: false, Reasons: []string{"bpf: lost 3 events"}, Workspace: []string{"/workspace"},
		Rules: RuleSet{Version: "1", List: []Rule{{Name: "Credential read", Class: "credentials", Desc: "A key was read.", Example: "cat id_rsa", Severity: bodycam.Critical, Tags: []string{"T1552.001"}},
			{Name: "Quiet", Class: "network", Desc: "Nothing.", Severity: bodycam.Low}}},
		Findings: []bodycam.Finding{
			{Analysis: "security", Rule: "Credential read", Class: "credentials", Severity: bodycam.Critical, Title: "cat read \x01 <key>", Events: []uint64{7, 9}, Records: []uint64{1, 1}, Count: 10000, Row: &row, RowText: "bash run.sh",
				Tree: []bodycam.ProcessRef{{PID: 1, Exe: "/bin/bash", Argv: []string{"bash", "/root/.codex/skills/fmt/scripts/a b.sh"}}, {PID: 2, Exe: "/bin/cat", Argv: []string{"cat"}}}, Resource: "/root/.ssh/id_rsa", Naming: "exact"},
			{Analysis: "security", Rule: "Back door in the workspace", Class: "persistence", Severity: bodycam.High, Title: "app.py got code", Count: 1, Resource: "/workspace/src/app.py", Suppressed: "known"},
			{Analysis: "security", Rule: "incomplete", Severity: bodycam.Info, Title: "rule x is unsupported", Count: 1, Verdict: "undecidable"},
		}}}
}

// What GitHub asks of a SARIF file for it to be shown (docs.github.com, "SARIF support for code scanning"), and what the
// standard requires where a member is there.
func TestSARIF(t *testing.T) {
	var b bytes.Buffer
	if err := SARIF(&b, "devel", sample()); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID, Name             string
						ShortDescription     struct{ Text string }
						FullDescription      struct{ Text string }
						Help                 struct{ Text, Markdown string }
						DefaultConfiguration struct{ Level string }
						Properties           map[string]any
					}
				}
			}
			AutomationDetails struct{ ID string }
			Invocations       []struct {
				ExecutionSuccessful        *bool
				ToolExecutionNotifications []struct{ Message struct{ Text string } }
			}
			Results []struct {
				RuleID          string
				RuleIndex       int
				Level, Kind     string
				Message         struct{ Text string }
				OccurrenceCount int
				Locations       []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
				PartialFingerprints map[string]string
				Suppressions        []struct{ Kind, Justification string }
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || !strings.HasSuffix(log.Schema, "sarif-2.1.0.json") || len(log.Runs) != 1 {
		t.Fatalf("version %q, schema %q, %d runs", log.Version, log.Schema, len(log.Runs))
	}
	run := log.Runs[0]
	if run.Tool.Driver.Name != "bodycam" || len(run.Tool.Driver.Rules) != 4 || len(run.Results) != 3 || run.Invocations[0].ExecutionSuccessful == nil {
		t.Fatalf("driver %q, %d rules, %d results", run.Tool.Driver.Name, len(run.Tool.Driver.Rules), len(run.Results))
	}
	if len(run.Invocations[0].ToolExecutionNotifications) != 1 {
		t.Error("it doesn't say that the record is incomplete")
	}
	for _, r := range run.Tool.Driver.Rules {
		if r.ID == "" || r.ShortDescription.Text == "" || r.FullDescription.Text == "" || r.Help.Text == "" || r.Properties["security-severity"] == "" {
			t.Errorf("rule %+v lacks something", r)
		}
		if !slices.Contains([]string{"none", "note", "warning", "error"}, r.DefaultConfiguration.Level) {
			t.Errorf("rule %s has level %q", r.ID, r.DefaultConfiguration.Level)
		}
	}
	want := []string{"skills/fmt/scripts/a%20b.sh", "src/app.py", "20260101-000000-ab/run.json"}
	for i, r := range run.Results {
		if run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("result %d: index %d isn't rule %s", i, r.RuleIndex, r.RuleID)
		}
		if len(r.Locations) != 1 || r.Locations[0].PhysicalLocation.ArtifactLocation.URI != want[i] || r.Locations[0].PhysicalLocation.Region.StartLine < 1 {
			t.Errorf("result %d has locations %+v, want %s", i, r.Locations, want[i])
		}
		if r.Message.Text == "" || len(r.PartialFingerprints) == 0 {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if run.Results[0].OccurrenceCount != 10000 || len(run.Results[1].Suppressions) != 1 || run.Results[2].Kind != "open" || run.Results[2].Level != "none" {
		t.Errorf("results are %+v", run.Results)
	}
}

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	err := JUnit(&b, sample(), func(f *bodycam.Finding) bool { return f.Severity >= bodycam.High })
	if err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	s := got.Suites[0]
	if got.Tests != 5 || s.Failures != 1 || s.Errors != 1 || s.Skipped != 1 {
		t.Errorf("tests %d, failures %d, errors %d, skipped %d in\n%s", got.Tests, s.Failures, s.Errors, s.Skipped, b.String())
	}
}

func TestCheckText(t *testing.T) {
	var b strings.Builder
	c := sample()[0]
	if err := c.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"critical Credential read (credentials) ×10000", "/bin/bash[1] → /bin/cat[2]", "row     6: bash run.sh", "7 (record 1), 9 (record 1)", "suppressed: known", "incomplete: bpf: lost 3 events"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q isn't in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x01") {
		t.Error("a control byte of the run reached the terminal")
	}
}
