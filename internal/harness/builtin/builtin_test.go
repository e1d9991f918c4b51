package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// serve answers each model request with the next of the bodies.
func serve(t *testing.T, bodies ...string) (url string, requests *[]string) {
	t.Helper()
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		got = append(got, b.String())
		if len(got) > len(bodies) {
			http.Error(w, `{"error":{"message":"no more"}}`, http.StatusTeapot)
			return
		}
		fmt.Fprint(w, bodies[len(got)-1])
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", &got
}

func start(t *testing.T, cfg Config) (rows []bodycam.Row, exit int, stderr string) {
	t.Helper()
	dir := t.TempDir()
	cfg.Workdir = dir
	if cfg.CommandSeconds == 0 {
		cfg.CommandSeconds = 10
	}
	if cfg.OutputBytes == 0 {
		cfg.OutputBytes = 1 << 10
	}
	cfg.Shell, cfg.RequestSeconds, cfg.MaxTurns = []string{"/bin/sh", "-c"}, 10, 10
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	exit = run(context.Background(), []string{"agent", file}, &out, &errs, "k")
	_, rows, err = transcript.Parse(out.Bytes(), transcript.Rows, time.Now(), transcript.Options{KeepReasoning: true})
	if err != nil {
		t.Fatal(err)
	}
	return rows, exit, errs.String()
}

func calls(name, args string) string {
	b, _ := json.Marshal(args)
	return `{"choices":[{"message":{"content":null,"reasoning_content":"thinking","tool_calls":[{"id":"c1","type":"function","function":{"name":"` + name + `","arguments":` + string(b) + `}}]}}]}`
}

const done = `{"choices":[{"message":{"content":"done"}}]}`

func TestModelThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		bodies []string
		exit   int
		want   string // in some row
	}{
		"a tool that isn't there": {[]string{calls("browse", "{}"), done}, ExitOK, `there is no tool "browse", only shell`},
		"broken arguments":        {[]string{calls("shell", `{"command":`), done}, ExitOK, "must be a JSON object"},
		"no command":              {[]string{calls("shell", `{}`), done}, ExitOK, "must be a JSON object"},
		"not JSON":                {[]string{"<html>"}, ExitFailed, "read the answer of"},
		"no choices":              {[]string{`{"choices":[]}`}, ExitFailed, "has no choices"},
		"a refusal":               {nil, ExitFailed, "answered 418 I'm a teapot: no more"},
	} {
		url, _ := serve(t, c.bodies...)
		rows, exit, stderr := start(t, Config{Instruction: "x", Model: "m", ModelURL: url})
		found := false
		for _, r := range rows {
			found = found || strings.Contains(r.Output+r.Text, c.want) && r.Failed
		}
		if exit != c.exit || !found || (exit != 0) != strings.Contains(stderr, "agent: ") {
			t.Errorf("%s: exit %d, stderr %q, rows %+v", name, exit, stderr, rows)
		}
	}
}

func TestReasoningAndSkills(t *testing.T) {
	skill := filepath.Join(t.TempDir(), "cite")
	if err := os.MkdirAll(skill, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(skill, "SKILL.md"), []byte("---\nname: citations\ndescription: \"How to check: them\"\n---\nSECRET BODY\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		url, requests := serve(t, calls("shell", `{"command":"echo hi"}`), done)
		rows, exit, _ := start(t, Config{Instruction: "x", Model: "m", ModelURL: url, KeepReasoning: keep, Skills: []string{skill, "/nonexistent/other"}})
		kept := false
		for _, r := range rows {
			kept = kept || r.Reason == "thinking"
		}
		if exit != 0 || kept != keep {
			t.Errorf("keep %v: exit %d, rows %+v", keep, exit, rows)
		}
		first := (*requests)[0]
		if !strings.Contains(first, "citations ("+skill+"/SKILL.md): How to check: them") || !strings.Contains(first, "- other (") || strings.Contains(first, "SECRET BODY") {
			t.Errorf("the first request is %s", first)
		}
		if second := (*requests)[1]; !strings.Contains(second, `exit status 0\nhi\n`) || strings.Contains(second, `"reasoning_content":"thinking"`) != true {
			t.Errorf("the second request is %s", second)
		}
	}
}

func TestUsage(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"agent"}, {"dance", broken}, {"agent", broken}, {"replay", "/nonexistent"}} {
		var out, errs bytes.Buffer
		if exit := run(context.Background(), args, &out, &errs, ""); exit != ExitUsage || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%q: exit %d, %q, %q", args, exit, out.String(), errs.String())
		}
	}
}

func TestCapped(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 100, 5000} {
		whole := []byte(strings.Repeat("0123456789", n/10+1)[:n])
		for _, step := range []int{1, 3, 5000} {
			c := &capped{limit: 8}
			for at := 0; at < n; at += step {
				if k, err := c.Write(whole[at:min(n, at+step)]); err != nil || k != min(n, at+step)-at {
					t.Fatal(k, err)
				}
			}
			got, cut := c.text()
			want := string(whole)
			if n > 8 {
				want = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", whole[:4], n-8, whole[n-4:])
			}
			if got != want || cut != (n > 8) {
				t.Errorf("%d bytes by %d: %q, want %q", n, step, got, want)
			}
		}
	}
}

func FuzzFrontMatter(f *testing.F) {
	f.Add("---\nname: a\ndescription: b\n---\n")
	f.Add("---\nname")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "SKILL.md")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		name, description := frontMatter(file)
		if strings.Contains(name+description, "\n") {
			t.Errorf("%q gives %q, %q", text, name, description)
		}
	})
}
