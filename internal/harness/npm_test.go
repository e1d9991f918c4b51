package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// install puts an npm package into a prefix and makes that the place where harnesses are looked for. Tests that have
// one already (BODYCAM_HARNESS_DIR) use it. A test is left out only where npm can't install.
func install(t *testing.T, h Harness, pkg string) {
	t.Helper()
	if _, err := h.Detect(context.Background()); err == nil {
		return
	}
	if testing.Short() {
		t.Skip("npm install is left out with -short")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skipf("npm is missing: %v", err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--no-audit", "--no-fund", pkg).CombinedOutput(); err != nil {
		t.Skipf("npm can't install %s: %v\n%s", pkg, err, out)
	}
	t.Setenv(HarnessDirEnv, dir)
	if _, err := h.Detect(context.Background()); err != nil {
		t.Fatalf("npm has installed %s, but: %v", pkg, err)
	}
}

// npmScript is what each harness plays: a shell command, one that fails, a file, two calls at once.
const npmScript = `
stock: A title
turns:
  - sh: echo "it's 42" && pwd | sed 's|.*/||'
  - expect: "it's 42"
    sh: echo "$HOME" | grep -c /home$ ; exit 3
    repeat: 2
  - write: {path: WORKDIR/result.txt, content: "written by the script\n"}
  - calls:
      - sh: sleep 0.2; echo A
      - sh: sleep 0.2; echo B
  - text: All done.
`

// play runs a harness through npmScript and checks what all must show.
func play(t *testing.T, h Harness, params map[string]any) (*box, *Invocation, []bodycam.Row) {
	t.Helper()
	b := newBox(t, npmScript)
	r := b.request("Write result.txt.\n\n-- and no more")
	r.Params = params
	inv, err := h.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	info, err := h.Detect(context.Background())
	if err != nil || len(info.SHA256) != 64 || info.Version == "" {
		t.Errorf("%+v, %v", info, err)
	}
	rows, exit := b.run(inv)
	if exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	commands := map[string]int{}
	said := ""
	for _, r := range rows {
		if r.Kind == bodycam.RowTool && r.Command != "" {
			commands[r.Command]++
			if r.Ended.Before(r.Arrived) {
				t.Errorf("%q has no result", r.Command)
			}
			if r.Command == `echo "it's 42" && pwd | sed 's|.*/||'` && !strings.Contains(r.Output, "it's 42\n") {
				t.Errorf("output %q", r.Output)
			}
		}
		if r.Kind == bodycam.RowMessage {
			said = r.Text
		}
		if r.Kind == bodycam.RowMeta && strings.HasPrefix(r.Text, "{") {
			t.Logf("a line of no known type: %.200s", r.Text)
		}
	}
	for c, n := range map[string]int{`echo "it's 42" && pwd | sed 's|.*/||'`: 1, `echo "$HOME" | grep -c /home$ ; exit 3`: 2, "sleep 0.2; echo A": 1, "sleep 0.2; echo B": 1} {
		if commands[c] != n {
			t.Errorf("%q is there %d times, want %d", c, commands[c], n)
		}
	}
	if said != "All done." {
		t.Errorf("the last message is %q", said)
	}
	if t.Failed() {
		t.Logf("rows:\n%s", tools(rows))
	}
	return b, inv, rows
}

// sessions finds the session files that an invocation names.
func (b *box) sessions(inv *Invocation) (files []string) {
	b.t.Helper()
	for _, g := range inv.SessionGlobs {
		head, tail, _ := strings.Cut(g, "/**/")
		err := filepath.WalkDir(head, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if ok, _ := filepath.Match(filepath.Base(tail), d.Name()); ok {
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			b.t.Error(err)
		}
	}
	if len(files) != 1 {
		b.t.Fatalf("session files: %q", files)
	}
	return files
}

// readSession reads a session file, and replays it elsewhere: the same commands run again and leave the same file.
func (b *box) readSession(file string) []bodycam.Row {
	b.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	_, rows, err := transcript.Parse(data, "", time.Now(), transcript.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	want := b.read("result.txt")
	if err := os.Remove(filepath.Join(b.workdir, "result.txt")); err != nil {
		b.t.Fatal(err)
	}
	r := b.request("")
	r.Params = map[string]any{"transcript": file}
	inv, err := replay{inTests}.Prepare(context.Background(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	again, exit := b.run(inv)
	if got := commandsOf(again); exit != 0 || got != commandsOf(rows) {
		b.t.Errorf("exit %d; replayed\n%swant\n%s", exit, got, commandsOf(rows))
	}
	if got := b.read("result.txt"); got != want {
		b.t.Errorf("after the replay result.txt holds %q", got)
	}
	return rows
}

func commandsOf(rows []bodycam.Row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.Kind == bodycam.RowTool {
			b.WriteString(r.Command + "\n")
		}
	}
	return b.String()
}

func count(rows []bodycam.Row, command string) int {
	n := 0
	for _, r := range rows {
		if r.Command == command {
			n++
		}
	}
	return n
}

func TestCodex(t *testing.T) {
	install(t, codex{}, "@openai/codex@"+CodexVersion)
	b, inv, rows := play(t, codex{}, map[string]any{"config": []any{"model_reasoning_effort=low"}})
	for _, r := range rows {
		if strings.Contains(r.Command, "exit 3") && (r.Exit == nil || *r.Exit != 3 || !r.Failed) {
			t.Errorf("the failing command: %+v", r)
		}
	}
	if got := b.read("result.txt"); got != "written by the script\n" {
		t.Errorf("result.txt holds %q", got)
	}
	kept := b.readSession(b.sessions(inv)[0])
	if n := count(kept, "sleep 0.2; echo A"); n != 1 {
		t.Errorf("the session file has the command %d times", n)
	}
	for _, r := range kept {
		if r.Command == "sleep 0.2; echo A" && (r.Output != "A\n" || r.Claimed.IsZero()) {
			t.Errorf("session file: %+v", r)
		}
	}
}

// A long instruction goes through standard input, skills elsewhere are named, and the key stays out of commands.
func TestCodexInstruction(t *testing.T) {
	install(t, codex{}, "@openai/codex@"+CodexVersion)
	b := newBox(t, `
conversations:
  - match: '(?s)/skills/cite/SKILL\.md.*needle'
    turns:
      - sh: env | grep -c BODYCAM_MODEL_KEY
      - text: found
`)
	r := b.request(strings.Repeat("hay ", 40<<10) + "needle")
	r.Skills = []string{b.home + "/.claude/skills/cite", "/skills/cite", b.home + "/.codex/skills/other"}
	inv, err := codex{}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if inv.Stdin == nil {
		t.Error("the long instruction is an argument")
	}
	rows, exit := b.run(inv)
	if exit != 0 || !strings.HasPrefix(tools(rows), "env | grep -c BODYCAM_MODEL_KEY | 1 | \"0\\n\"") {
		t.Errorf("exit %d\n%s", exit, tools(rows))
	}
}

// With a model that codex knows, it offers apply_patch, and the row names the files.
func TestCodexPatch(t *testing.T) {
	install(t, codex{}, "@openai/codex@"+CodexVersion)
	b := newBox(t, "turns:\n  - write: {path: WORKDIR/result.txt, content: \"a\\nb\\n\"}\n  - text: ok\n")
	r := b.request("Do it")
	r.Model = "gpt-5.5"
	inv, err := codex{}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	found := false
	for _, r := range rows {
		found = found || r.Tool == "file_change" && len(r.Files) == 1 && r.Files[0] == b.workdir+"/result.txt"
	}
	if got := b.read("result.txt"); exit != 0 || !found || got != "a\nb\n" {
		t.Errorf("exit %d, result.txt %q, rows %+v", exit, got, rows)
	}
	kept := b.readSession(b.sessions(inv)[0])
	if !slices.ContainsFunc(kept, func(r bodycam.Row) bool { return r.Tool == "apply_patch" && len(r.Files) == 1 }) {
		t.Errorf("the session file has no patch: %+v", kept)
	}
}

func TestClaudeCode(t *testing.T) {
	install(t, claudeCode{}, "@anthropic-ai/claude-code@"+ClaudeCodeVersion)
	b, inv, _ := play(t, claudeCode{}, nil)
	if got := b.read("result.txt"); got != "written by the script\n" {
		t.Errorf("result.txt holds %q", got)
	}
	if n := count(b.readSession(b.sessions(inv)[0]), "sleep 0.2; echo A"); n != 1 {
		t.Errorf("the session file has the command %d times", n)
	}
}

func TestGeminiCLI(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skipf("Node.js is missing: %v", err)
	}
	install(t, geminiCLI{}, "@google/gemini-cli@"+GeminiVersion)
	b, _, _ := play(t, geminiCLI{}, nil)
	if got := b.read("result.txt"); got != "written by the script\n" {
		t.Errorf("result.txt holds %q", got)
	}
}

func TestHarnessIsMissing(t *testing.T) {
	t.Setenv(HarnessDirEnv, t.TempDir())
	t.Setenv("PATH", t.TempDir())
	t.Chdir(t.TempDir())
	for _, h := range []Harness{codex{}, claudeCode{}, geminiCLI{}} {
		_, err := h.Detect(context.Background())
		if err == nil || !strings.Contains(err.Error(), "npm install --prefix .harness @") {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
}
