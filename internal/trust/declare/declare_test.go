package declare

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const skills = `"skills":[{"id":"forecast","name":"Forecast","description":"weather of a city","tags":["weather"],"examples":["weather in Oslo?"]}]`

// card serves a card that may depend on the request.
func card(t *testing.T, f func(r *http.Request, self string) string) string {
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/.well-known/agent") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, f(r, s.URL))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestEquivocation(t *testing.T) {
	v1 := func(self, skills string) string {
		return `{"name":"w","description":"d","version":"1","capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"supportedInterfaces":[{"url":"` + self + `/v1","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],` + skills + `}`
	}
	v03 := func(self, skills string) string {
		return `{"name":"w","description":"d","version":"1","protocolVersion":"0.3.0","capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"url":"` + self + `/v03",` + skills + `}`
	}
	more := strings.Replace(skills, `"skills":[`, `"skills":[{"id":"shell","name":"Shell","description":"runs commands","tags":["sys"]},`, 1)
	for name, c := range map[string]struct {
		serve func(r *http.Request, self string) string
		want  string
	}{
		"the same for all": {func(_ *http.Request, self string) string { return v1(self, skills) }, ""},
		"another wire form per version": {func(r *http.Request, self string) string {
			if r.Header.Get("A2A-Version") == "1.0" {
				return v1(self, skills)
			}
			return v03(self, skills)
		}, ""},
		"other skills to a browser": {func(r *http.Request, self string) string {
			if strings.Contains(r.UserAgent(), "Mozilla") {
				return v1(self, more)
			}
			return v1(self, skills)
		}, "other skills"},
		"another endpoint to the unknown": {func(r *http.Request, self string) string {
			if r.Header.Get("Authorization") == "" {
				return v1(self+"/other", skills)
			}
			return v1(self, skills)
		}, "other endpoints"},
		"another host by version": {func(r *http.Request, self string) string {
			if r.Header.Get("A2A-Version") == "0.3" {
				return v1("http://evil.example", skills)
			}
			return v1(self, skills)
		}, "other hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Read(t.Context(), Options{Target: card(t, c.serve), Variants: true, Header: http.Header{"Authorization": {"Bearer x"}}})
			if err != nil {
				t.Fatal(err)
			}
			var text string
			for _, f := range r.Findings {
				if f.Rule == "equivocation" {
					text += f.Title + "\n"
				}
			}
			if c.want == "" && text != "" || c.want != "" && !strings.Contains(text, c.want) {
				t.Errorf("want %q, got:\n%s", c.want, text)
			}
			if len(r.Variants) != 9 {
				t.Errorf("%d variants", len(r.Variants))
			}
			for _, v := range r.Variants {
				if v.Error == "" && len(v.SHA256) != 64 {
					t.Errorf("a variant isn't pinned: %+v", v)
				}
			}
		})
	}
}

func TestKinds(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	y := write("w.yaml", "name: weather\nskills:\n  - id: forecast\n    examples: [weather in Oslo?]\n    tools: [get_weather]\n")
	write("skills/pdf/SKILL.md", "---\r\nname: pdf\r\ndescription: Reads PDF files\r\nallowed-tools: Read, Bash\r\n---\r\nbody")
	p := write("parse", "#!/bin/sh\necho '{\"kind\":\"\",\"name\":\"x\",\"skills\":[{\"id\":\"a\",\"name\":\"'$1'\"}]}'\n")
	for _, c := range []struct {
		o    Options
		kind string
		name string
	}{{Options{Target: y}, KindYAML, "forecast"}, {Options{Target: filepath.Join(dir, "skills")}, KindSkill, "pdf"},
		{Options{Target: "target", Kind: KindExternal, Command: []string{p}}, KindExternal, "target"}} {
		r, err := Read(t.Context(), c.o)
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Declaration; d.Kind != c.kind || len(d.Skills) != 1 || d.Skills[0].Name != c.name || len(d.SHA256) != 64 {
			t.Errorf("%+v", d)
		}
	}
	for _, bad := range []string{write("e.yaml", ""), write("n.yaml", "name: x\n"), write("u.yaml", "skils: []\n"), filepath.Join(dir, "none")} {
		if _, err := Read(t.Context(), Options{Target: bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzDeclarations(f *testing.F) {
	f.Add([]byte("---\nname: a\ndescription: [b]\nallowed-tools: [x, 1]\n---\n"))
	f.Add([]byte("name: w\nskills:\n- {id: a, tags: [b]}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = ParseSkill(b)
		_, _ = ParseYAML(b)
	})
}
