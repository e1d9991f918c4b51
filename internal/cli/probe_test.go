package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/liars"
	"github.com/bodycam-dev/bodycam/internal/trust/report"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// probeCLI runs `bodycam probe` with a judge that knows the liars' ways.
func probeCLI(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	return probeAs(t, liars.Oracle{}, args...)
}

func probeAs(t *testing.T, j trust.Judge, args ...string) (status int, out, errs string) {
	t.Helper()
	testJudge = j
	t.Cleanup(func() { testJudge = nil })
	t.Setenv("BODYCAM_KEYS", filepath.Join(t.TempDir(), "keys"))
	var stdout, stderr bytes.Buffer
	status = Main(append([]string{"bodycam", "probe"}, args...), strings.NewReader(""), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// liar builds the program that serves an agent of the set, in a directory of its own.
func liar(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "liar"), "github.com/bodycam-dev/bodycam/internal/trust/liars/liar")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the liar: %v\n%s", err, out)
	}
	return dir
}

func decode(t *testing.T, out string) *report.Report {
	t.Helper()
	r := new(report.Report)
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return r
}

// What only the kernel's record shows: a tool whose span is hidden. The honest agent passes under the same eyes.
func TestProbeInSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF and cgroups")
	}
	dir := liar(t)
	out := t.TempDir()
	for _, name := range []string{"weather", "hides-span"} {
		a, _ := liars.Get(name)
		status, stdout, stderr := probeCLI(t, "--json", "-q", "-o", out, "--probes", "12", "--settle", "50ms", "--idle", "500ms", "--traces", "otlp", "--port", "8080", "--workspace", dir,
			"--ready", "/health", "--", "./liar", "--agent", name)
		if stdout == "" {
			t.Fatalf("%s: status %d: %s", name, status, stderr)
		}
		r := decode(t, stdout)
		if err := a.Right(r.Result); err != nil {
			t.Errorf("%s: %v\n%+v", name, err, r.Patterns)
		}
		if r.Evidence != "traces and kernel record" {
			t.Errorf("%s rests on %s", name, r.Evidence)
		}
		want := map[string]int{score.Pass: ExitOK, score.Fail: ExitGate, score.Inconclusive: ExitInconclusive}[a.Want]
		if status != want {
			t.Errorf("%s: status %d, want %d", name, status, want)
		}
	}
}

// serveLiar serves an agent of the set until the test's end.
func serveLiar(t *testing.T, name string) (url string, stop func()) {
	t.Helper()
	a, _ := liars.Get(name)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go (&liars.Server{Agent: a}).Serve(ctx, l)
	return "http://" + l.Addr().String(), cancel
}

func TestProbeRemote(t *testing.T) {
	url, cancel := serveLiar(t, "weather")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }

	status, out, errs := probeCLI(t, url, "-o", file("audits"), "--probes", "15", "--sarif", file("s.json"), "--junit", file("j.xml"), "--contract", file("c.json"))
	if status != ExitOK || !strings.Contains(out, "PASS") || !strings.Contains(out, "text only") || !strings.Contains(errs, "probes to send") {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	for _, f := range []string{"s.json", "j.xml", "c.json"} {
		if b, err := os.ReadFile(file(f)); err != nil || len(b) < 100 {
			t.Errorf("%s: %v, %d bytes", f, err, len(b))
		}
	}
	list, err := filepath.Glob(file("audits/*"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	// The sealed audit verifies, and scores again under other rules without anybody being asked.
	cancel()
	var b bytes.Buffer
	if got := Main([]string{"bodycam", "verify", list[0]}, strings.NewReader(""), &b, &b); got != ExitOK {
		t.Errorf("verify: status %d: %s", got, b.String())
	}
	if status, out, _ = probeCLI(t, "--rescore", list[0], "--threshold", "99"); status != ExitInconclusive {
		t.Errorf("threshold 99: status %d\n%s", status, out)
	}
	status, out, _ = probeCLI(t, "--rescore", list[0], "--scoring", "agenttrust", "--json")
	if r := decode(t, out); status != ExitOK || r.Published == nil || r.Score != 100 {
		t.Errorf("agenttrust: status %d, %v", status, r.Score)
	}
	status, out, _ = probeCLI(t, "--rescore", list[0], "--baseline", list[0])
	if status != ExitOK || !strings.Contains(out, "declaration same") {
		t.Errorf("baseline: status %d\n%s", status, out)
	}
	if status, _, errs = probeCLI(t, url, "-o", file("more")); status != ExitEnvironment {
		t.Errorf("an agent that isn't there: status %d %s", status, errs)
	}
}

func TestProbeUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no TARGET"},
		{[]string{"http://127.0.0.1:1", "--scoring", "x"}, "--scoring"},
		{[]string{"http://127.0.0.1:1", "--threshold", "nan"}, "--threshold NaN"},
		{[]string{"http://127.0.0.1:1", "--tolerance", "nan"}, "--tolerance NaN"},
		{[]string{"http://127.0.0.1:1", "--consistency", "inf"}, "--consistency"},
		{[]string{"http://127.0.0.1:1", "--max-excluded", "-1"}, "--max-excluded -1"},
		{[]string{"http://127.0.0.1:1", "--unseen", "nan"}, "--unseen"},
		{[]string{"http://127.0.0.1:1", "--rate", "-1"}, "--rate"},
		{[]string{"http://127.0.0.1:1", "--cost-each", "nan"}, "--cost-each"},
		{[]string{"http://127.0.0.1:1", "--retries", "-1"}, "--retries"},
		{[]string{"http://127.0.0.1:1", "--rounds", "-1"}, "--rounds"},
		{[]string{"http://127.0.0.1:1", "--timeout", "0s"}, "--timeout"},
		{[]string{"--", "x"}, "--port"},
		{[]string{"--chat", "http://127.0.0.1:1"}, "--declaration"},
		{[]string{"http://127.0.0.1:1", "--bearer", "hunter2"}, "env:NAME or file:PATH"},
		{[]string{"http://127.0.0.1:1", "--traces", "jaeger"}, "--traces"},
		{[]string{"--rescore", "/nonexistent"}, "no audit"},
		{[]string{"nowhere"}, "is no http or https URL, and no file"},
		{[]string{"http://127.0.0.1:1", "--resume", "nowhere"}, "no unfinished audit"},
		{[]string{"http://127.0.0.1:1", "--oauth-token-url", "http://127.0.0.1:1"}, "go together"},
		{[]string{"http://127.0.0.1:1", "--sarif", "/nonexistent/x"}, "no folder /nonexistent"},
		{[]string{"http://127.0.0.1:1", "--baseline", "/nonexistent"}, "--baseline"},
		{[]string{"http://127.0.0.1:1", "--network", "none"}, "nothing runs in the sandbox"},
		{[]string{"http://127.0.0.1:1", "--secret", "A=env:B@c"}, "nothing runs in the sandbox"},
		{[]string{"http://127.0.0.1:1", "--agent", "codex"}, "needs --skill"},
		{[]string{"--mcp", "http://127.0.0.1:1", "--", "x"}, "exclude each other"},
	} {
		status, _, errs := probeCLI(t, c.args...)
		if status != ExitUsage || !strings.Contains(errs, c.want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%v: status %d: %s", c.args, status, errs)
		}
	}
}

// An agent that could change things is left alone without leave.
func TestProbeSideEffects(t *testing.T) {
	a, _ := liars.Get("forty-tools")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go (&liars.Server{Agent: a}).Serve(ctx, l)
	url := "http://" + l.Addr().String()
	status, _, errs := probeCLI(t, url, "-o", t.TempDir())
	if status != ExitUsage || !strings.Contains(errs, "--allow-side-effects") || !strings.Contains(errs, "orders") {
		t.Errorf("status %d: %s", status, errs)
	}
	file := filepath.Join(t.TempDir(), "p.jsonl")
	if status, _, errs = probeCLI(t, url, "-o", t.TempDir(), "--probes", "4", "--write-probes", file); status != ExitOK {
		t.Fatalf("status %d: %s", status, errs)
	}
	if status, _, errs = probeCLI(t, url, "-o", t.TempDir(), "--allow-side-effects", "--probes-from", file, "-q"); status != ExitInconclusive && status != ExitOK {
		t.Errorf("status %d: %s", status, errs)
	}
}

func TestUnnumbered(t *testing.T) {
	for in, want := range map[string]string{
		"/root/.gemini/tmp/<hash>/chats/session-<time>-3c3640db.json": "/root/.gemini/tmp/*/chats/session-*.json",
		"/root/.gemini/tmp/<hash>/chats/session-<time>157892.json":    "/root/.gemini/tmp/*/chats/session-*.json",
		"/data/facade/decade.txt":                                     "/data/facade/decade.txt",
		"/data/log.12":                                                "/data/log.*",
	} {
		if got := unnumbered(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
