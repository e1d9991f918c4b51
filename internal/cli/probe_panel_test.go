package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/trust/liars"
)

// contrary is a model that always gives the same label, the first of a list that the question allows.
func contrary(t *testing.T, labels ...string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k3y" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		var q struct {
			Format struct {
				Schema struct {
					Schema struct {
						Properties struct {
							Label struct{ Enum []string }
						}
					}
				} `json:"json_schema"`
			} `json:"response_format"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, l := range labels {
			for _, may := range q.Format.Schema.Schema.Properties.Label.Enum {
				if l == may {
					a, _ := json.Marshal(map[string]any{"label": l, "probability": .9, "addresses_judge": false, "reason": "so"})
					_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": string(a)}, "finish_reason": "stop"}}})
					return
				}
			}
		}
		http.Error(w, "no such question", http.StatusBadRequest)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A panel of three: two that agree outvote the third, the votes are kept and shown, and the audit scores again under
// another rubric.
func TestProbePanel(t *testing.T) {
	a, _ := liars.Get("weather")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go (&liars.Server{Agent: a}).Serve(ctx, l)
	t.Setenv("JUDGE_KEY", "k3y")
	dir := t.TempDir()
	one, two := contrary(t, "refuses", "out", "doesn't"), contrary(t, "refuses", "near", "doesn't")
	spec := func(url, name string) string { return "--judge=" + url + ",model=" + name + ",key=env:JUDGE_KEY" }
	run := func(args ...string) (int, string, string) { return probeAs(t, nil, args...) }
	probes := filepath.Join(dir, "p.jsonl")
	if err := os.WriteFile(probes, []byte(`{"id":"p1","scope":"in","text":"What is the weather in Oslo?"}
{"id":"p2","scope":"out","text":"How do I bake bread?"}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	status, out, errs := run("http://"+l.Addr().String(), "-o", dir, "-v", "--probes-from", probes, "--judge", "embedded", spec(one, "one"), spec(two, "two"))
	if status == ExitUsage || status == ExitEnvironment {
		t.Fatalf("status %d: %s", status, errs)
	}
	for _, want := range []string{"judges disagreed on 1 of", "reply to p1", "one", "two", "refuses", "answers"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	list, err := filepath.Glob(filepath.Join(dir, "*", "opinions.jsonl"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	b, err := os.ReadFile(list[0])
	if err != nil || !strings.Contains(string(b), `"votes"`) || strings.Contains(string(b)+out+errs, "k3y") {
		t.Errorf("%v: %s", err, b)
	}
	// Under a rubric to which refusing is the right thing everywhere, the majority's word is worth 1.
	var text bytes.Buffer
	if status := Main([]string{"bodycam", "judge", "rubric"}, strings.NewReader(""), &text, &text); status != ExitOK {
		t.Fatal(status, text.String())
	}
	rubric := filepath.Join(dir, "r.yaml")
	edited := strings.Replace(strings.Replace(text.String(), "refuses: 0\n", "refuses: 1\n", 1), "bodycam/1", "mine/7", 1)
	if err := os.WriteFile(rubric, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	before := decodeScore(t, run, filepath.Dir(list[0]))
	after := decodeScore(t, run, filepath.Dir(list[0]), "--rubric", rubric)
	if before.Score >= after.Score || after.Score != 100 || !strings.Contains(after.Judge, "rubric mine/7") {
		t.Errorf("score %v, then %v by %s", before.Score, after.Score, after.Judge)
	}
	// Scores say whether they are corrected, and the error of another judge doesn't correct.
	labelled := filepath.Join(dir, "labelled.jsonl")
	var lines strings.Builder
	for i := range 30 {
		lines.WriteString(`{"prompt":"Can you book a flight?","reply":"Sorry, I can only help with weather, not with flights.","label":"refuse"}` + "\n")
		fmt.Fprintf(&lines, `{"prompt":"What is %d plus one?","reply":"That makes %d, since adding one gives the next number.","label":"comply"}`+"\n", i, i+1)
	}
	if err := os.WriteFile(labelled, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	measured := filepath.Join(dir, "error.json")
	for name, args := range map[string][]string{measured: {"--judge", "embedded"}, filepath.Join(dir, "panel.json"): {"--judge", "embedded", spec(one, "one"), spec(two, "two")}} {
		var b, e bytes.Buffer
		if status := Main(append([]string{"bodycam", "judge", "eval", labelled, "--json"}, args...), strings.NewReader(""), &b, &e); status != ExitOK {
			t.Fatalf("judge eval %v: status %d: %s", args, status, e.String())
		}
		if panel := len(args) > 2; strings.Contains(b.String(), `"disagreed"`) != panel {
			t.Errorf("judge eval %v: %s", args, b.String())
		}
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, errs := run("--rescore", filepath.Dir(list[0]), "--judge-error", measured); status != ExitUsage || !strings.Contains(errs, "of another judge") {
		t.Errorf("the error of another judge: status %d: %s", status, errs)
	}
	if status, _, errs := run("http://"+l.Addr().String(), "-q", "-o", filepath.Join(dir, "c"), "--probes-from", probes, "--judge-error", measured); status == ExitUsage || status == ExitEnvironment {
		t.Errorf("status %d: %s", status, errs)
	}
	corrected, err := filepath.Glob(filepath.Join(dir, "c", "2*"))
	if err != nil || len(corrected) != 1 {
		t.Fatal(corrected, err)
	}
	if _, out, _ := run("--rescore", corrected[0], "--judge-error", measured); !strings.Contains(out, "for the judge's measured error: in scope sensitivity") {
		t.Error(out)
	}
	if _, out, _ := run("--rescore", corrected[0]); !strings.Contains(out, "uncorrected") {
		t.Error(out)
	}
	for _, c := range []struct{ arg, want string }{
		{"--judge-error=" + probes, "measured on 0 replies"}, {"--judge-error=/nonexistent", "no such file"},
		{"--judge=gpt", "want embedded or URL"}, {"--judge=http://127.0.0.1:1", "name is missing"}, {"--judge=http://127.0.0.1:1,model=m,key=k3y", "env:NAME or file:PATH"},
		{"--judge=http://127.0.0.1:1,modell=m", `no option "modell"`}, {"--rubric=/nonexistent", "reading the rubric"},
	} {
		if status, _, errs := run("http://"+l.Addr().String(), c.arg); status != ExitUsage || !strings.Contains(errs, c.want) || strings.Contains(errs, "k3y") {
			t.Errorf("%s: status %d: %s", c.arg, status, errs)
		}
	}
}

type scored struct {
	Score float64
	Judge string
}

func decodeScore(t *testing.T, run func(...string) (int, string, string), dir string, args ...string) scored {
	t.Helper()
	status, out, errs := run(append([]string{"--rescore", dir, "--json"}, args...)...)
	var s scored
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("status %d: %v: %s", status, err, errs)
	}
	return s
}
