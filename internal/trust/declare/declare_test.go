package declare

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpc10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/bodycam-dev/bodycam/internal/a2a"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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

// bearer shows a credential.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer x")
	return http.DefaultTransport.RoundTrip(r)
}

func fromAddress(t *testing.T, addr string) map[string]*http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	tr := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return map[string]*http.Client{"from " + addr: {Transport: tr}}
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
		"other skills to one address": {func(r *http.Request, self string) string {
			if strings.HasPrefix(r.RemoteAddr, "127.0.0.2:") {
				return v1(self, more)
			}
			return v1(self, skills)
		}, "other skills"},
		"other skills to the forwarded": {func(r *http.Request, self string) string {
			if r.Header.Get("X-Forwarded-For") != "" {
				return v1(self, more)
			}
			return v1(self, skills)
		}, "other skills"},
		"other skills by what is accepted": {func(r *http.Request, self string) string {
			if strings.Contains(r.Header.Get("Accept"), "text/html") {
				return v1(self, more)
			}
			return v1(self, skills)
		}, "other skills"},
		"other skills at the old path": {func(r *http.Request, self string) string {
			if strings.HasSuffix(r.URL.Path, "/agent.json") {
				return v1(self, more)
			}
			return v1(self, skills)
		}, "other skills"},
		"other skills without credentials": {func(r *http.Request, self string) string {
			if r.Header.Get("Authorization") == "" {
				return v1(self, more)
			}
			return v1(self, skills)
		}, "other skills"},
		"fewer skills without credentials": {func(r *http.Request, self string) string {
			if r.Header.Get("Authorization") != "" {
				return v1(self, more)
			}
			return v1(self, skills)
		}, ""},
		"the same in other words": {func(r *http.Request, self string) string {
			if strings.Contains(r.UserAgent(), "curl") {
				return v1(strings.Replace(self, "http://", "HTTP://", 1), strings.Replace(skills, "weather of a city", "Weather  of a city", 1))
			}
			return v1(self, skills)
		}, ""},
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
			r, err := Read(t.Context(), Options{Target: card(t, c.serve), Variants: true, HTTP: &http.Client{Transport: bearer{}}, Nobody: &http.Client{}, From: fromAddress(t, "127.0.0.2")})
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
			if want := 3 * (2 + len(callers) + 1 + 1 + 1); len(r.Variants) != want {
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

// The extended card of the official server, over each binding and version: it is no equivocation, and what it alone
// declares is declared.
func TestExtendedCard(t *testing.T) {
	forecast := sdk.AgentSkill{ID: "forecast", Name: "Forecast", Description: "weather of a city", Tags: []string{"weather"}}
	admin := sdk.AgentSkill{ID: "admin", Name: "Admin", Description: "restarts stations", Tags: []string{"ops"}}
	card := &sdk.AgentCard{Name: "w", Description: "d", Version: "1", DefaultInputModes: []string{"text"}, DefaultOutputModes: []string{"text"},
		Capabilities: sdk.AgentCapabilities{ExtendedAgentCard: true}, Skills: []sdk.AgentSkill{forecast, admin},
		SupportedInterfaces: []*sdk.AgentInterface{sdk.NewAgentInterface("http://127.0.0.1/", sdk.TransportProtocolJSONRPC)}}
	h := a2asrv.NewHandler(nil, a2asrv.WithExtendedAgentCard(card))
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("authorization")) == 0 {
			return nil, status.Error(codes.Unauthenticated, "who are you?")
		}
		return next(ctx, req)
	}))
	grpc10.NewHandler(h).RegisterWith(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go g.Serve(l)
	t.Cleanup(g.Stop)
	for name, c := range map[string]struct {
		handler          http.Handler
		binding, version string
	}{
		"JSON-RPC 1.0": {a2asrv.NewJSONRPCHandler(h), "JSONRPC", "1.0"}, "JSON-RPC 0.3": {a2av0.NewJSONRPCHandler(h), "JSONRPC", "0.3"},
		"REST 1.0": {a2asrv.NewRESTHandler(h), "HTTP+JSON", "1.0"}, "gRPC 1.0": {nil, "GRPC", "1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			var s *httptest.Server
			mux.HandleFunc(a2a.CardPath, func(w http.ResponseWriter, r *http.Request) {
				at := s.URL
				if c.binding == "GRPC" {
					at = l.Addr().String()
				}
				fmt.Fprintf(w, `{"name":"w","description":"d","version":"1","capabilities":{"extendedAgentCard":true},"defaultInputModes":["text"],"defaultOutputModes":["text"],
					"supportedInterfaces":[{"url":%q,"protocolBinding":%q,"protocolVersion":%q}],%s}`, at, c.binding, c.version, skills)
			})
			if c.handler != nil {
				mux.Handle("/", guard(c.handler))
			}
			s = httptest.NewServer(mux)
			t.Cleanup(s.Close)
			known := a2a.Dialling{Metadata: func(context.Context, string) (http.Header, error) {
				return http.Header{"Authorization": {"Bearer x"}}, nil
			}}
			r, err := Read(t.Context(), Options{Target: s.URL, Variants: true, HTTP: &http.Client{Transport: bearer{}}, Nobody: &http.Client{}, GRPC: known})
			if err != nil {
				t.Fatal(err)
			}
			if d := r.Declaration.Skills; len(d) != 2 || d[1].ID != "admin" {
				t.Errorf("skills %+v; variants %+v", d, r.Variants[len(r.Variants)-1])
			}
			for _, f := range r.Findings {
				if f.Rule == "equivocation" || f.Rule == "extended-card" && !strings.Contains(f.Title, "admin") {
					t.Error(f.Title)
				}
			}
			// Nobody is told why a skill is missing.
			r, err = Read(t.Context(), Options{Target: s.URL, Variants: true})
			if err != nil {
				t.Fatal(err)
			}
			if d := r.Declaration.Skills; len(d) != 1 {
				t.Errorf("skills %+v", d)
			}
			if f := r.Findings; len(f) == 0 || !strings.Contains(f[len(f)-1].Title, "needs credentials") {
				t.Errorf("%+v", f)
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

func TestSkillScope(t *testing.T) {
	s := ScopeOf([]byte("---\nname: x\ndescription: sends to https://api.example.com/v1 and 192.0.2.7\n---\nKeeps `~/.x/state.json`, reads /etc/x.d and \"$HOME/data\". See / and /etc.\n"), "/root")
	for name, want := range map[string]bool{"api.example.com": true, "API.example.com.": true, "eu.api.example.com": true, "example.com": false, "evil.com": false, "192.0.2.7": true, "192.0.2.8": false} {
		if got := s.Host(name); got != want {
			t.Errorf("host %s: %v", name, got)
		}
	}
	for p, want := range map[string]bool{"/root/.x/state.json": true, "/root/.x/other": false, "/etc/x.d/a": true, "/etc/passwd": false, "/root/data/1": true, "/root/.ssh/id_rsa": false} {
		if got := s.Path(p); got != want {
			t.Errorf("path %s: %v", p, got)
		}
	}
}

func FuzzSkillScope(f *testing.F) {
	f.Add([]byte("see https://a.example/x and ~/.y/z"), "b.a.example")
	f.Fuzz(func(_ *testing.T, b []byte, name string) {
		s := ScopeOf(b, "/root")
		s.Host(name)
		s.Path(name)
	})
}
