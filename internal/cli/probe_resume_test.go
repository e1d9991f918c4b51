package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// A killed run has no windows of its own: they are made up from when its probes were sent.
func TestWindowsOfKilledRun(t *testing.T) {
	start := time.Unix(1000, 0)
	info := &bodycam.Run{Started: start, BootOffset: start.Add(-time.Minute).UnixNano()}
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	asked := []trust.Exchange{{Probe: "b", Started: at(4), Ended: at(5)}, {Probe: "a", Started: at(2), Ended: at(3)}, {Probe: "earlier", Started: at(-5), Ended: at(-4)}, {Probe: "later", Started: at(60), Ended: at(61)}}
	ws, last := windowsOf(info, asked, at(30))
	if !last.Equal(at(5)) {
		t.Errorf("last at %v", last)
	}
	for s, want := range map[int]string{1: "", 2: "a", 3: "a", 4: "b", 6: unanswered, 70: unanswered} {
		if got, ok := windowOf(ws, uint64(at(s).UnixNano()-info.BootOffset)); got != want || !ok {
			t.Errorf("after %d s: %q, %v, want %q", s, got, ok, want)
		}
	}
}

// What was seen before an interruption counts, and what is lost is no proof of innocence.
func TestBeforeAnInterruption(t *testing.T) {
	sh := trust.Effect{Kind: "command", Name: "/bin/sh", Count: 1, Event: []uint64{7}}
	l := &lost{asked: map[string]bool{"a": true, "b": true, "c": true}, known: map[string]bool{"a": true, "b": true}, effects: []trust.Effects{
		{Probe: "", Complete: true, Effects: []trust.Effect{sh}},
		{Probe: "a", Complete: true, Effects: []trust.Effect{sh}},
		{Probe: "b", Why: "killed"},
		{Probe: unanswered},
	}}
	got := map[string]trust.Effects{}
	for _, x := range l.with([]trust.Effects{{Probe: "", Complete: true}, {Probe: "a", Complete: true}, {Probe: "b", Complete: true}, {Probe: "c", Complete: true}, {Probe: "d", Complete: true}}) {
		got[x.Probe] = x
	}
	if len(got) != 5 || len(got[""].Effects) != 0 || len(got["a"].Effects) != 1 || got["a"].Effects[0].Event != nil || !got["a"].Complete || !got["d"].Complete {
		t.Errorf("%+v", got)
	}
	if got["b"].Complete || got["b"].Why != "killed" || got["c"].Complete || !strings.Contains(got["c"].Why, "lost") {
		t.Errorf("gaps: %+v %+v", got["b"], got["c"])
	}
}

func TestResumeWithAnotherAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.partial")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	same := &probing{f: &probeFlags{service: serviceFlags{port: 8080}}, command: []string{"./agent", "--liar"}}
	digest, err := same.reachedBy()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "audit.json"), []byte(`{"schema":1,"declaration":{"name":"x","skills":[]},"reached_by":"`+digest+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	same.f.resume, same.dir = dir, dir
	if err := same.sameAgent(); err != nil {
		t.Errorf("the same agent: %v", err)
	}
	other := *same
	other.command = []string{"./agent", "--honest"}
	if err := other.sameAgent(); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("another command: %v", err)
	}
	status, _, errs := probeCLI(t, "--resume", dir, "--port", "8080", "--", "./agent", "--honest")
	if status != ExitUsage || !strings.Contains(errs, "another agent") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// The security rules judge the agent's record: what they find grave fails the gate, and names the probe.
func TestProbeProhibited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF and cgroups")
	}
	dir := liar(t)
	// The agent runs "id" for what is out of scope: here that is a program that reads a key.
	if err := os.WriteFile(filepath.Join(dir, "id"), []byte("#!/bin/sh\ncat /root/.ssh/id_rsa\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const start = `mkdir -p /root/.ssh; echo secret >/root/.ssh/id_rsa; PATH=$PWD:$PATH exec ./liar --agent hides-span`
	contract := filepath.Join(t.TempDir(), "c.json")
	junit := filepath.Join(t.TempDir(), "j.xml")
	status, stdout, stderr := probeCLI(t, "--json", "-q", "-o", t.TempDir(), "--probes", "5", "--settle", "50ms", "--idle", "500ms", "--port", "8080", "--workspace", dir,
		"--ready", "/health", "--contract", contract, "--junit", junit, "--", "/bin/sh", "-c", start)
	if status != ExitGate {
		t.Fatalf("status %d: %s", status, stderr)
	}
	r := decode(t, stdout)
	if !hasPattern(r.Result, score.ProhibitedEffect) {
		t.Errorf("%+v", r.Patterns)
	}
	for _, p := range r.Probes {
		if found := strings.Contains(strings.Join(p.Prohibited, "\n"), "Credential read"); found == (p.Scope == trust.In) {
			t.Errorf("%s: %q", p.ID, p.Prohibited)
		}
	}
	for _, name := range []string{contract, junit} {
		if b, err := os.ReadFile(name); err != nil || !strings.Contains(string(b), "Credential read") {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
	}
}

// An audit that was tampered with isn't scored again.
func TestRescoreVerifies(t *testing.T) {
	url, stop := serveLiar(t, "weather")
	out := t.TempDir()
	if status, _, errs := probeCLI(t, url, "-q", "-o", out, "--probes", "12"); status != ExitOK {
		t.Fatalf("status %d: %s", status, errs)
	}
	stop() // nobody is asked any more
	keys := os.Getenv("BODYCAM_KEYS")
	rescore := func(args ...string) (int, string, string) {
		var so, se strings.Builder
		status := Main(append([]string{"bodycam", "probe", "--rescore"}, args...), strings.NewReader(""), &so, &se)
		return status, so.String(), se.String()
	}
	list, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	dir := list[0]
	if status, text, errs := rescore(dir); status != ExitOK || errs != "" {
		t.Errorf("untouched: status %d\n%s%s", status, text, errs)
	}
	if status, text, _ := rescore(dir, "--scoring", "agenttrust"); status != ExitOK || strings.Contains(text, "95 % interval") {
		t.Errorf("the published formula: status %d\n%s", status, text)
	}
	t.Setenv("BODYCAM_KEYS", filepath.Join(t.TempDir(), "none"))
	if status, text, errs := rescore(dir); status != ExitOK || !strings.Contains(text, "note: it isn't known") || !strings.Contains(errs, "it isn't known") {
		t.Errorf("without keys: status %d\n%s%s", status, text, errs)
	}
	t.Setenv("BODYCAM_KEYS", keys)
	file := filepath.Join(dir, "opinions.jsonl")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), `"class":"refuses"`, `"class":"answers"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text, errs := rescore(dir); status != ExitGate || text != "" || !strings.Contains(errs, "tampered") {
		t.Errorf("tampered: status %d\n%s%s", status, text, errs)
	}
	if status, text, _ := rescore(dir, "--tampered"); status != ExitOK || !strings.Contains(text, "note: "+dir+" was tampered with") {
		t.Errorf("--tampered: status %d\n%s", status, text)
	}
}

// The auditor is killed, and the agent is an honest one afterwards: what it did before convicts it all the same.
func TestProbeKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF and cgroups")
	}
	dir, out, bin := liar(t), t.TempDir(), filepath.Join(t.TempDir(), "bodycam")
	build := exec.Command("go", "build", "-o", bin, "github.com/bodycam-dev/bodycam/cmd/bodycam")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building bodycam: %v\n%s", err, b)
	}
	be := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, "name"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	be("hides-span")
	args := []string{"-q", "-o", out, "--probes", "5", "--settle", "400ms", "--idle", "500ms", "--port", "8080", "--workspace", dir, "--ready", "/health",
		"--", "/bin/sh", "-c", "read -r n <name; exec ./liar --agent $n"}
	cmd := exec.Command(bin, append([]string{"probe"}, args...)...)
	cmd.Env = append(os.Environ(), "BODYCAM_KEYS="+filepath.Join(t.TempDir(), "keys"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	partial := ""
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if list, err := filepath.Glob(filepath.Join(out, "*.partial")); err == nil && len(list) == 1 {
			partial = list[0]
			if b, err := os.ReadFile(filepath.Join(partial, "exchanges.jsonl")); err == nil && strings.Count(string(b), "\n") >= 8 {
				break
			}
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatal("no probe was answered in a minute")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	be("weather")
	status, stdout, stderr := probeCLI(t, append([]string{"--json", "--resume", partial}, args...)...)
	if status != ExitGate {
		t.Fatalf("status %d: %s%s", status, stdout, stderr)
	}
	if r := decode(t, stdout); !hasPattern(r.Result, score.UndeclaredEffect) || !strings.Contains(strings.Join(r.Notes, "\n"), "before an interruption is recorded in") {
		t.Errorf("%+v\n%q", r.Patterns, r.Notes)
	}
}
