package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// brief writes rows in a form that is easy to compare.
func brief(rows []bodycam.Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%d %s", r.Line, r.Kind)
		for _, f := range [][2]string{{"id", r.CallID}, {"tool", r.Tool}, {"cmd", r.Command}, {"text", r.Text}, {"out", r.Output}, {"reason", r.Reason}} {
			if f[1] != "" {
				fmt.Fprintf(&b, " %s=%q", f[0], f[1])
			}
		}
		if len(r.Files) > 0 {
			fmt.Fprintf(&b, " files=%v", r.Files)
		}
		if r.Exit != nil {
			fmt.Fprintf(&b, " exit=%d", *r.Exit)
		}
		if r.Failed {
			b.WriteString(" failed")
		}
		if r.Cut {
			b.WriteString(" cut")
		}
		if !r.Claimed.IsZero() {
			b.WriteString(" claimed")
		}
		if !r.Ended.IsZero() {
			b.WriteString(" ended")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		file   string
		format Format
		want   string
	}{
		{"codex-exec.jsonl", CodexExec, `
1 meta text="thread.started t-1"
2 meta text="turn.started"
4 tool id="item_1" tool="command_execution" cmd="echo 'it''s' \"$HOME\"; false" out="its /home/agent\n" exit=1 failed ended
5 tool id="item_2" tool="command_execution" cmd="sleep 1; echo B" out="B\n" exit=0 ended
8 tool id="item_3" tool="file_change" files=[/w/a.txt /w/b.txt] ended
9 plan id="item_4" tool="todo_list" text="[{\"text\": \"look\", \"completed\": false}]"
10 plan id="item_4" tool="todo_list" text="[{\"text\": \"look\", \"completed\": true}]"
11 tool id="item_5" tool="kv.get" out="v" ended
12 tool id="item_6" tool="web_search" ended
13 message id="item_7" text="All done." ended
14 meta text="{\"type\": \"item.completed\", \"item\": {\"id\": \"item_8\", \"type\": \"hologram\", \"x\": 1}}"
15 meta text="turn.completed"
16 error text="{\"message\": \"stream closed\"}" failed
`},
		{"codex-rollout.jsonl", CodexRollout, `
1 meta text="session s-1 codex 0.171.0" claimed
2 meta text="user: Do it" claimed
5 tool id="c1" tool="exec_command" cmd="ls -la" out="no such\n" exit=2 failed claimed ended
7 tool id="c2" tool="apply_patch" out="Success" files=[a.txt b.txt] exit=0 claimed ended
9 tool id="c3" tool="shell" cmd="echo 1" claimed
10 meta text="event token_count" claimed
11 message text="Done" claimed
12 error text="turn_aborted interrupted" failed claimed
`},
		{"rows.jsonl", Rows, `
1 meta text="builtin 1"
2 tool id="1" tool="shell" cmd="printf '\xff'" out="\xff" exit=0 cut claimed ended
4 message text="hi"
`},
		{"claude.jsonl", Claude, `
1 meta text="system init s m"
2 message text="Looking."
2 tool id="t1" tool="Bash" cmd="ls /w" out="Exit code 2\nno such" exit=2 failed ended
4 tool id="t2" tool="Write" out="written" files=[/w/r.txt] ended
6 tool id="t3" tool="Read"
7 meta text="All done."
`},
		{"gemini.jsonl", Gemini, `
1 meta text="init s m" claimed
2 meta text="user: Do it" claimed
3 tool id="t1" tool="run_shell_command" cmd="ls" out="a\n" claimed ended
5 tool id="t2" tool="write_file" out="denied" files=[/w/r.txt] failed claimed ended
7 message text="All done." claimed ended
9 meta text="result success" claimed
`},
		{"swe-agent.traj", SWEAgent, `
3 tool id="step-1" tool="bash" cmd="ls -la" out="a\n" ended
11 meta text="step without an action"
16 tool id="step-3" tool="bash" cmd="submit" ended
16 meta text="exit status submitted"
`},
		{"mini-swe-agent.traj.json", MiniSWE, `
6 meta text="system: s"
10 meta text="user: Do it"
14 tool id="c1" tool="bash" cmd="ls -la" out="bad\n" exit=1 failed claimed ended
14 tool id="c2" tool="bash" cmd="pwd" out="/w\n" exit=0 claimed ended
50 tool id="action-3" tool="bash" cmd="cat a\ncat b" out="<returncode>3</returncode>\n<output>x</output>" exit=3 failed ended
58 meta text="exit Submitted"
`},
		{"openhands.json", OpenHands, `
2 meta text="user message: Do it" claimed
11 tool id="event-1" tool="run" cmd="ls" out="a\n" exit=0 claimed ended
36 tool id="event-3" tool="write" out="denied" files=[/w/a] failed ended
60 message text="Done"
`},
		{"openhands-sdk.jsonl", OpenHands, `
1 meta text="SystemPromptEvent" claimed
2 tool id="c1" tool="terminal" cmd="ls" out="a" exit=0 ended
4 message text="Done"
`},
		{"atif.json", ATIF, `
9 meta text="user: Do it" claimed
15 message text="Looking." claimed
15 tool id="c1" tool="bash_command" cmd="ls -la" out="a\n" claimed ended
15 tool id="c2" tool="Write" out="ok" files=[/w/a] claimed ended
56 tool id="c3" tool="bash" cmd="pwd" out="/w" ended
0 tool id="sub-1/c1" tool="bash" cmd="id"
`},
	} {
		t.Run(c.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", c.file))
			if err != nil {
				t.Fatal(err)
			}
			f, rows, err := Parse(data, "", t0, Options{})
			if err != nil || f != c.format {
				t.Fatalf("format %q, %v", f, err)
			}
			if got := "\n" + brief(rows); got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
			for i, r := range rows {
				if r.Index != i || !r.Arrived.Equal(t0) || r.Source != "session file" {
					t.Errorf("row %d: %+v", i, r)
				}
			}
			if b, err := json.Marshal(rows); err != nil || bytes.Contains(b, []byte("SECRET")) {
				t.Errorf("reasoning was kept: %s, %v", b, err)
			}
			_, rows, _ = Parse(data, c.format, t0, Options{KeepReasoning: true})
			b, _ := json.Marshal(rows)
			if c.file != "openhands-sdk.jsonl" && c.file != "gemini.jsonl" && !bytes.Contains(b, []byte("SECRET THOUGHT")) {
				t.Error("reasoning was not kept though it was asked for")
			}
		})
	}
}

func TestDetect(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want Format
	}{
		"banner first":    {"Reading input…\n{\"type\":\"thread.started\",\"thread_id\":\"x\"}\n", CodexExec},
		"one line ATIF":   {`{"schema_version":"ATIF-v1.0","agent":{},"steps":[]}`, ATIF},
		"broken ATIF":     {"{\n\"schema_version\": \"ATIF-v1.4\",\n\"steps\": [{\"step", ATIF},
		"broken traj":     {"{\n\"trajectory\": [{\"action\": \"ls", SWEAgent},
		"OpenHands lines": {`{"id":1,"source":"agent","action":"run","args":{}}` + "\n", OpenHands},
		"Claude session":  {`{"type":"queue-operation","sessionId":"x"}` + "\n" + `{"type":"user","message":{"role":"user","content":"x"}}`, Claude},
	} {
		if got, err := Detect([]byte(c.data)); got != c.want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "hello\n", "{}", "[]", `{"a":1}`, "[1,2]", "\x00\xff"} {
		if f, err := Detect([]byte(bad)); !errors.Is(err, ErrUnknownFormat) {
			t.Errorf("%q is taken for %q", bad, f)
		}
	}
}

// A line that can't be read is kept as it is; so are bytes that aren't UTF-8.
func TestNothingIsLost(t *testing.T) {
	for _, f := range []Format{CodexExec, CodexRollout, Rows, Claude, Gemini, Lines} {
		p, err := New(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Line(t0, []byte(`{"type":"item.comp`))
		_ = p.Line(t0, []byte("warning: \xff\xfe"))
		_ = p.Line(t0, []byte(`{"type":"of the future","x":1}`))
		rows := p.Finish(t0)
		if len(rows) != 3 {
			t.Fatalf("%s: %d rows", f, len(rows))
		}
		for i, want := range []string{`{"type":"item.comp`, "warning: \xff\xfe", `{"type":"of the future","x":1}`} {
			if rows[i].Kind != bodycam.RowMeta || rows[i].Text != want || rows[i].Line != i+1 {
				t.Errorf("%s: line %d became %+v", f, i+1, rows[i])
			}
		}
	}
	p, _ := New(CodexExec, Options{})
	_ = p.Line(t0, []byte(`{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"cat '`+"\xff\xc3"+`'","aggregated_output":"`+"\x80é"+`","exit_code":0,"status":"completed"}}`))
	if r := p.Rows()[0]; r.Command != "cat '\xff\xc3'" || r.Output != "\x80é" {
		t.Errorf("bytes were changed: %q, %q", r.Command, r.Output)
	}
}

func TestTruncatedDocument(t *testing.T) {
	for file, f := range map[string]Format{"swe-agent.traj": SWEAgent, "mini-swe-agent.traj.json": MiniSWE, "openhands.json": OpenHands, "atif.json": ATIF} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		_, whole, _ := Parse(data, f, t0, Options{})
		_, rows, err := Parse(data[:len(data)*2/3], f, t0, Options{})
		if err != nil {
			t.Fatal(err)
		}
		last := rows[len(rows)-1]
		if len(rows) < 2 || last.Kind != bodycam.RowError || !strings.Contains(last.Text, "could not be read to its end") {
			t.Errorf("%s: %s", file, brief(rows))
		}
		if rows[0].Text != whole[0].Text || rows[0].Command != whole[0].Command {
			t.Errorf("%s: the first row is %+v", file, rows[0])
		}
	}
}

func TestLimits(t *testing.T) {
	long := strings.Repeat("é", 3<<20) // 6 MB
	p, _ := New(CodexExec, Options{})
	line := `{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"x","aggregated_output":"` + long + `","exit_code":0,"status":"completed"}}`
	if err := p.Line(t0, []byte(line)); err != nil {
		t.Fatal(err)
	}
	if r := p.Rows()[0]; len(r.Output) != DefaultMaxText || !r.Cut || *r.Exit != 0 {
		t.Errorf("%d bytes kept, cut %v", len(r.Output), r.Cut)
	}
	_ = p.Line(t0, []byte(long)) // not JSON
	if r := p.Rows()[1]; len(r.Text) != DefaultMaxText || !r.Cut || r.Kind != bodycam.RowMeta {
		t.Errorf("%d bytes kept, cut %v", len(r.Text), r.Cut)
	}
	p, _ = New(Lines, Options{MaxRows: 3})
	for i := range 10 {
		_ = p.Line(t0, fmt.Appendf(nil, "line %d", i))
	}
	rows := p.Finish(t0)
	if len(rows) != 4 || rows[3].Text != "7 more rows were not kept: the transcript has more than 3" || !rows[3].Cut {
		t.Errorf("%s", brief(rows))
	}
}

func TestScan(t *testing.T) {
	long := strings.Repeat("x", 6<<20)
	in := "a\r\n\n" + long + "\nlast"
	p, _ := New(Lines, Options{MaxText: 8 << 20})
	n := 0
	now := func() time.Time { n++; return t0.Add(time.Duration(n) * time.Second) }
	if err := Scan(strings.NewReader(in), p, now); err != nil {
		t.Fatal(err)
	}
	rows := p.Rows()
	if len(rows) != 3 || rows[0].Text != "a" || rows[1].Text != long || rows[2].Text != "last" || rows[2].Line != 4 {
		t.Errorf("%d rows", len(rows))
	}
	if !rows[2].Arrived.After(rows[1].Arrived) {
		t.Error("lines have no arrival times of their own")
	}
}

// Whatever the input, rows are numbered, have a kind and a time, and fit in JSON; reasoning stays out.
func FuzzTranscript(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 10 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(0), data)
		f.Add(uint8(1), data[:len(data)/2])
	}
	formats := Formats()
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		var format Format
		if which > 0 {
			format = formats[int(which-1)%len(formats)]
		}
		_, rows, err := Parse(data, format, t0, Options{MaxText: 100, MaxRows: 20})
		if err != nil {
			if format != "" {
				t.Errorf("%s refuses the input: %v", format, err)
			}
			return
		}
		if len(rows) > 21 {
			t.Errorf("%d rows", len(rows))
		}
		for i, r := range rows {
			if r.Index != i || r.Kind == "" || r.Arrived.IsZero() || r.Reason != "" {
				t.Errorf("row %d: %+v", i, r)
			}
			if len(r.Text) > 100 || len(r.Output) > 100 || len(r.Args) > 100 {
				t.Errorf("row %d is too long: %+v", i, r)
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		}
		if len(rows) == 0 && len(bytes.TrimSpace(data)) > 0 && format == Lines {
			t.Error("no row for an input")
		}
	})
}
