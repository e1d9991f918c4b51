package harness

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/builtin"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
	"github.com/bodycam-dev/bodycam/internal/model"
)

// The test binary stands in for the bodycam binary inside the box.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == builtin.Command {
		os.Exit(builtin.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	harnesses()
	os.Exit(m.Run())
}

// box plays the part of the sandbox: a scratch home, and the paths of binds put back to those of the host.
type box struct {
	t        *testing.T
	home     string
	workdir  string
	modelURL string
	server   *model.Server
}

// WORKDIR in the model's script stands for the working directory.
func newBox(t *testing.T, script string) *box {
	t.Helper()
	b := &box{t: t, home: filepath.Join(t.TempDir(), "home"), workdir: filepath.Join(t.TempDir(), "work")}
	for _, d := range []string{b.home, b.workdir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if script == "" {
		return b
	}
	s, err := model.Parse("script.yaml", []byte(strings.ReplaceAll(script, "WORKDIR", b.workdir)))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.server = model.New(s, model.Options{})
	b.modelURL = "http://" + ln.Addr().String() + "/v1"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *box) request(instruction string) Request {
	return Request{Instruction: instruction, Model: "scripted", ModelURL: b.modelURL, Workdir: b.workdir, Home: b.home}
}

// run runs an invocation as a sandbox would and returns its rows and exit status.
func (b *box) run(inv *Invocation) ([]bodycam.Row, int) {
	b.t.Helper()
	for _, f := range inv.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(f.Path, f.Content, f.Mode); err != nil {
			b.t.Fatal(err)
		}
	}
	argv := append([]string(nil), inv.Argv...)
	for i := range argv {
		for _, bind := range inv.Binds {
			if rest, ok := strings.CutPrefix(argv[i], bind.Box); ok && (rest == "" || rest[0] == '/') {
				argv[i] = bind.Host + rest
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	for k, v := range inv.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Dir, cmd.Stdin = inv.Dir, bytes.NewReader(inv.Stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	p := inv.NewParser(transcript.Options{Started: started})
	if err := transcript.Scan(out, p, time.Now); err != nil {
		b.t.Error(err)
	}
	_ = cmd.Wait()
	rows := p.Finish(time.Now())
	if stderr.Len() > 0 {
		b.t.Logf("stderr: %s", stderr.String())
	}
	if b.server != nil {
		for _, m := range b.server.Misfits() {
			b.t.Errorf("the model could not answer: %s", m.Error)
		}
	}
	for i, r := range rows {
		if r.Index != i || r.Arrived.Before(started) || r.Arrived.After(time.Now()) {
			b.t.Errorf("row %d has index %d and arrived %v", i, r.Index, r.Arrived)
		}
	}
	return rows, cmd.ProcessState.ExitCode()
}

func (b *box) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.workdir, name))
	if err != nil {
		b.t.Error(err)
	}
	return string(data)
}

// tools writes the tool rows briefly: command, exit status, output.
func tools(rows []bodycam.Row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.Kind != bodycam.RowTool {
			continue
		}
		exit := "?"
		if r.Exit != nil {
			exit = fmt.Sprint(*r.Exit)
		}
		fmt.Fprintf(&b, "%s | %s | %q\n", r.Command, exit, r.Output)
	}
	return b.String()
}

const realScript = `
turns:
  - sh: echo "it's $((40+2))"; echo err >&2
  - expect: "it's (?P<n>42)"
    sh: printf '%s\n' {{n}} > answer.txt; exit 3
    else: [{text: "wrong output"}]
  - calls:
      - sh: echo one
      - sh: echo two
  - text: All done.
`

func TestBuiltin(t *testing.T) {
	b := newBox(t, realScript)
	inv, err := builtinAgent{inTests}.Prepare(context.Background(), b.request("Do it"))
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	want := "echo \"it's $((40+2))\"; echo err >&2 | 0 | \"it's 42\\nerr\\n\"\n" +
		"printf '%s\\n' 42 > answer.txt; exit 3 | 3 | \"\"\n" +
		"echo one | 0 | \"one\\n\"\necho two | 0 | \"two\\n\"\n"
	if got := tools(rows); got != want || exit != 0 {
		t.Errorf("exit %d, rows\n%swant\n%s", exit, got, want)
	}
	if last := rows[len(rows)-1]; last.Kind != bodycam.RowMessage || last.Text != "All done." {
		t.Errorf("last row %+v", last)
	}
	if got := b.read("answer.txt"); got != "42\n" {
		t.Errorf("answer.txt holds %q", got)
	}
}

// inTests is the running binary, which has no box to be static for.
var inTests = self{dynamic: true}

func TestBuiltinSurvives(t *testing.T) {
	b := newBox(t, `
turns:
  - error: {status: 503}
  - drop: before
  - sh: printf '\377\376'; head -c 300000 /dev/zero | tr '\0' x
  - sh: sleep 30
  - sh: (sleep 60; echo late > late.txt) & echo started
  - sh: env | grep -c BODYCAM_MODEL_KEY
  - text: ok
`)
	r := b.request("Do it")
	r.Params = map[string]any{"command_timeout": "1s", "output_bytes": 4096.0}
	inv, err := builtinAgent{inTests}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	var errors int
	var calls []bodycam.Row
	for _, r := range rows {
		switch r.Kind {
		case bodycam.RowError:
			errors++
		case bodycam.RowTool:
			calls = append(calls, r)
		}
	}
	if exit != 0 || errors != 2 || len(calls) != 4 {
		t.Fatalf("exit %d, %d errors, calls\n%s", exit, errors, tools(rows))
	}
	if c := calls[0]; !strings.HasPrefix(c.Output, "\xff\xfexxx") || !c.Cut || len(c.Output) > 5000 || !strings.Contains(c.Output, "295906 bytes left out") {
		t.Errorf("long output: cut %v, %.60q, %d bytes", c.Cut, c.Output, len(c.Output))
	}
	if c := calls[1]; *c.Exit != 137 || !strings.Contains(c.Output, "took too long") {
		t.Errorf("the endless command: %+v", c)
	}
	if c := calls[2]; *c.Exit != 0 || !strings.Contains(c.Output, "started") { // one that was waited for would have taken too long
		t.Errorf("the command with a daemon: %+v", c)
	}
	if c := calls[3]; c.Output != "0\n" {
		t.Errorf("a command sees the model's key: %+v", c)
	}
}

func TestBuiltinEndsBadly(t *testing.T) {
	b := newBox(t, "turns:\n  - sh: echo 1\n    repeat: 5\n  - text: x\n")
	r := b.request("Do it")
	r.Params = map[string]any{"max_turns": 2}
	inv, err := builtinAgent{inTests}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	if last := rows[len(rows)-1]; exit != builtin.ExitFailed || !strings.Contains(last.Text, "not done after 2 turns") {
		t.Errorf("exit %d, %+v", exit, last)
	}
	b = newBox(t, "turns:\n  - stall: 1m\n  - text: x\n")
	r = b.request("Do it")
	r.Timeout = 300 * time.Millisecond
	if inv, err = (builtinAgent{inTests}).Prepare(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	rows, exit = b.run(inv)
	if last := rows[len(rows)-1]; exit != builtin.ExitTimeout || !strings.Contains(last.Text, "ran out") {
		t.Errorf("exit %d, %+v", exit, last)
	}
}

// The commands of every format run again, and those of the file that a replay leaves are the same.
func TestReplay(t *testing.T) {
	for file, want := range map[string]string{
		"swe.traj": `{"trajectory":[{"action":"mkdir -p sub && cd sub","observation":""},{"action":"echo here > f; pwd | sed 's|.*/||'","observation":""},{"action":"false","observation":""}],"info":{}}`,
		"atif.json": `{"schema_version":"ATIF-v1.6","steps":[{"step_id":1,"source":"agent","message":"","tool_calls":[{"tool_call_id":"a","function_name":"bash_command","arguments":{"keystrokes":"mkdir -p sub && cd sub\n"}},` +
			`{"tool_call_id":"b","function_name":"bash_command","arguments":{"keystrokes":"echo here > f; pwd | sed 's|.*/||'\n"}},{"tool_call_id":"c","function_name":"bash","arguments":{"command":"false"}}]}]}`,
	} {
		b := newBox(t, "")
		path := filepath.Join(t.TempDir(), file)
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		r := b.request("")
		r.Params = map[string]any{"transcript": path}
		inv, err := replay{inTests}.Prepare(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		rows, exit := b.run(inv)
		if got := tools(rows); exit != 0 || got != "mkdir -p sub && cd sub | 0 | \"\"\necho here > f; pwd | sed 's|.*/||' | 0 | \"sub\\n\"\nfalse | 1 | \"\"\n" {
			t.Errorf("%s: exit %d\n%s", file, exit, got)
		}
		if b.read("sub/f") != "here\n" {
			t.Errorf("%s: sub/f is wrong", file)
		}
	}
	// A harness that starts a new shell each time: a cd doesn't last. Files that were written whole are written.
	b := newBox(t, "")
	path := filepath.Join(t.TempDir(), "claude.jsonl")
	lines := `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"1","name":"Bash","input":{"command":"mkdir -p sub; cd sub"}}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"2","name":"Bash","input":{"command":"basename \"$PWD\""}}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"3","name":"Write","input":{"file_path":"d/new.txt","content":"whole\n"}}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"4","name":"Edit","input":{"file_path":"d/new.txt","old_string":"a","new_string":"b"}}]}}
`
	if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	r := b.request("")
	r.Params = map[string]any{"transcript": path}
	inv, err := replay{inTests}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	if got := tools(rows); exit != 0 || !strings.Contains(got, `basename "$PWD" | 0 | "work\n"`) || b.read("d/new.txt") != "whole\n" || !rows[4].Failed {
		t.Errorf("exit %d\n%s", exit, got)
	}
}

func TestCommand(t *testing.T) {
	b := newBox(t, "")
	r := b.request("count me")
	r.Params = map[string]any{"command": `echo "$BODYCAM_INSTRUCTION" | wc -c; exit 4`}
	inv, err := command{}.Prepare(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	rows, exit := b.run(inv)
	if len(rows) != 1 || exit != 4 || rows[0].Command != r.Params["command"] || rows[0].Output != "9\n" {
		t.Errorf("exit %d, %+v", exit, rows)
	}
	r.Params = map[string]any{"command": []any{"sh", "-c", `echo "$1"; cat "$2"`, "x", "{instruction}", "{instruction_file}"}}
	if inv, err = (command{}).Prepare(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if rows, exit = b.run(inv); exit != 0 || len(rows) != 1 || rows[0].Output != "count me\ncount me\n" {
		t.Errorf("exit %d, %+v", exit, rows)
	}
	r.Params = map[string]any{"command": []any{"cat"}, "stdin": true}
	if inv, err = (command{}).Prepare(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if rows, exit = b.run(inv); exit != 0 || len(rows) != 1 || rows[0].Command != "cat" || rows[0].Output != r.Instruction+"\n" {
		t.Errorf("exit %d, %+v", exit, rows)
	}
	r.Params = map[string]any{"command": `echo '{"type":"turn.started"}'`, "format": "codex-exec"}
	if inv, err = (command{}).Prepare(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if rows, _ = b.run(inv); len(rows) != 1 || rows[0].Text != "turn.started" {
		t.Errorf("%+v", rows)
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	r := Request{Instruction: "x", Model: "m", ModelURL: "http://h/v1", Workdir: "/w", Home: "/h"}
	with := func(f func(*Request)) Request { c := r; f(&c); return c }
	for _, c := range []struct {
		h    Harness
		r    Request
		want string
	}{
		{command{}, with(func(r *Request) { r.Workdir = "w" }), "must be an absolute path"},
		{command{}, with(func(r *Request) { r.Instruction = "" }), "there is nothing to run"},
		{command{}, with(func(r *Request) { r.Params = map[string]any{"comand": "x"} }), `unknown parameter "comand" (did you mean "command"?)`},
		{command{}, with(func(r *Request) { r.Params = map[string]any{"command": []any{1}} }), "parameter command must be a list of texts"},
		{command{}, with(func(r *Request) { r.Params = map[string]any{"env": []any{"A"}} }), "NAME=VALUE"},
		{command{}, with(func(r *Request) { r.Params = map[string]any{"command": "x", "format": "x"} }), "unknown transcript format"},
		{builtinAgent{}, with(func(r *Request) { r.Model = "" }), "needs a model"},
		{builtinAgent{}, with(func(r *Request) { r.ModelURL = "h" }), "needs the model's URL"},
		{builtinAgent{}, with(func(r *Request) { r.Params = map[string]any{"max_turns": 1.5} }), "must be a whole number"},
		{builtinAgent{}, with(func(r *Request) { r.Params = map[string]any{"command_timeout": "soon"} }), "must be a time"},
		{replay{}, r, "needs the parameter transcript"},
		{replay{}, with(func(r *Request) { r.Params = map[string]any{"transcript": "/nonexistent"} }), "no such file"},
		{codex{}, with(func(r *Request) { r.Params = map[string]any{"config": []any{"a"}} }), "key=value"},
	} {
		if _, err := c.h.Prepare(ctx, c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.h.Name(), err, c.want)
		}
	}
	if _, err := Get("codx"); err == nil || !strings.Contains(err.Error(), `did you mean "codex"?`) {
		t.Error(err)
	}
	for _, n := range Names() {
		if h, err := Get(n); err != nil || h.Name() != n || h.Summary() == "" {
			t.Errorf("%s: %v", n, err)
		}
	}
}

func TestDynamicBinaryIsRefused(t *testing.T) {
	if err := static("/bin/sh"); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("/bin/sh: %v", err)
	}
}
