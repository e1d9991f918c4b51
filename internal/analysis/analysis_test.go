package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/store"
)

const example = "../../docs/examples/loud_programs.py"

// makeRun writes a run of a few events.
func makeRun(t *testing.T) *store.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := store.Create(dir, bodycam.Run{ID: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		e := bodycam.Event{Type: bodycam.TypeExec, NR: -1, Exe: "/usr/bin/c\xff", Argv: []string{"c"}, Proc: bodycam.Proc{PID: int32(10 + i), Start: 1}, Boot: uint64(i + 1)}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// plain runs a job without a box: what it is kept from is tested where the box is (internal/cli).
func plain(ctx context.Context, j Job) (Output, error) {
	argv := append([]string(nil), j.Argv...)
	for i, a := range argv {
		for _, f := range j.Files {
			if a == f.Box {
				argv[i] = f.Host
			}
		}
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], j.RunDir)...)
	cmd.Env, cmd.Stdin = j.Env, j.Stdin
	cmd.WaitDelay = time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) || ctx.Err() != nil {
		err = nil
	}
	return Output{Stdout: out.Bytes(), Stderr: stderr.Bytes(), Exit: cmd.ProcessState.ExitCode()}, err
}

// The example of docs/ANALYSES.md works, and is the one that the page shows.
func TestExample(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 isn't there")
	}
	code, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/ANALYSES.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```python\n"+string(code)+"```") {
		t.Error("docs/ANALYSES.md shows another example than docs/examples holds")
	}
	r := makeRun(t)
	dir, err := filepath.Abs(filepath.Dir(example))
	if err != nil {
		t.Fatal(err)
	}
	fs, recs, err := Run(t.Context(), r, []Analysis{{Name: "loud", Command: []string{"python3", "loud_programs.py"}, Dir: dir,
		Parameters: map[string]json.RawMessage{"most": json.RawMessage("4")}}}, nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	if len(fs) != 1 || fs[0].Analysis != "loud" || fs[0].Rule != "loud-program" || fs[0].Count != 5 || fs[0].Resource != `/usr/bin/c\xff` || fs[0].Events[0] != 1 {
		t.Errorf("findings %+v", fs)
	}
	if len(recs) != 1 || recs[0].Version != "1.0" || len(recs[0].SHA256) != 64 || recs[0].Findings != 1 {
		t.Errorf("records %+v", recs)
	}
	b, err := features.ReadDerived(r, RecordFile)
	if err != nil || !bytes.Contains(b, []byte(recs[0].SHA256)) {
		t.Errorf("the kept records are %s, %v", b, err)
	}
}

func TestFailures(t *testing.T) {
	r := makeRun(t)
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	for name, c := range map[string]struct {
		a    Analysis
		want string
	}{
		"not there":      {Analysis{Command: []string{"./nothing"}, Dir: t.TempDir()}, "isn't there"},
		"fails":          {Analysis{Command: sh("echo why >&2; exit 3")}, "status 3: why"},
		"says nothing":   {Analysis{Command: sh("cat >/dev/null")}, "writes []"},
		"no JSON":        {Analysis{Command: sh("echo hello")}, "invalid character"},
		"too slow":       {Analysis{Command: sh("exec sleep 60"), Timeout: 50 * time.Millisecond}, "did not end within 50ms"},
		"unknown":        {Analysis{}, "no such built-in analysis"},
		"invented event": {Analysis{Command: sh(`echo '[{"rule":"a","title":"b","severity":"low","events":[6]}]'`)}, "events 1 to 5"},
	} {
		c.a.Name = name
		ok := Builtin{Version: "1", Run: func(context.Context, *store.Run, map[string]json.RawMessage) ([]bodycam.Finding, error) {
			return []bodycam.Finding{{Analysis: "fine", Rule: "x"}}, nil
		}}
		fs, recs, err := Run(t.Context(), r, []Analysis{c.a, {Name: "fine"}}, map[string]Builtin{"fine": ok}, plain)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "analysis "+name) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if len(fs) != 1 || len(recs) != 2 || recs[0].Error == "" || recs[1].Error != "" {
			t.Errorf("%s: the others did not run: %+v, %+v", name, fs, recs)
		}
	}
}

// A command that reads nothing of the events is fine.
func TestEventsUnread(t *testing.T) {
	fs, _, err := Run(t.Context(), makeRun(t), []Analysis{{Name: "a", Command: []string{"echo", "[]", "#"}}}, nil, func(context.Context, Job) (Output, error) {
		return Output{Stdout: []byte("[]")}, nil
	})
	if err != nil || len(fs) != 0 {
		t.Errorf("%+v, %v", fs, err)
	}
}

func TestAnswer(t *testing.T) {
	for in, want := range map[string]string{
		`[]`:                              "",
		` {"version":"2","findings":[]} `: "",
		`[{"rule":"a","severity":"high","title":"t","verdict":"fail","events":[1,2],"row":0,"tags":["x"],"explanation":"e"}]`: "",
		`[] []`:                                         "something follows",
		`{"findings":[],"more":1}`:                      `unknown field "more"`,
		`[{"severity":"low","title":"t"}]`:              "no rule",
		`[{"rule":"a","severity":"low"}]`:               "no title",
		`[{"rule":"a","severity":"awful","title":"t"}]`: "unknown severity",
		`[{"rule":"a","severity":"low","title":"t","verdict":"maybe"}]`:               "want pass, fail",
		`[{"rule":"a","severity":"low","title":"t","events":[0]}]`:                    "event 0",
		`[{"rule":"a","severity":"low","title":"t","row":-1}]`:                        "row -1",
		`[{"rule":"a","severity":"low","title":"t","suppressed":"by me"}]`:            "only a kind or task",
		`[{"rule":"a","severity":"low","title":"` + strings.Repeat("x", 5000) + `"}]`: "longer than",
	} {
		_, err := ParseAnswer([]byte(in), 10)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80s: %v, want %q", in, err, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`[{"rule":"a","severity":"high","title":"t\u001b[31m","events":[1]}]`))
	f.Add([]byte(`{"version":"1","findings":[{"rule":"a","severity":"low","title":"t","process_tree":[{"pid":1}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAnswer(b, 3)
		if err != nil {
			return
		}
		for _, x := range a.Findings {
			if x.Rule == "" || x.Title == "" || x.Count == 0 || strings.ContainsRune(x.Title, 0x1b) {
				t.Errorf("accepted %+v", x)
			}
		}
	})
}
