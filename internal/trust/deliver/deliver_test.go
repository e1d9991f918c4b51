package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust"
)

func probes(n int) []trust.Probe {
	var out []trust.Probe
	for i := range n {
		out = append(out, trust.Probe{ID: fmt.Sprintf("in-%03d", i), Scope: trust.In, Text: fmt.Sprintf("question %d", i), Turns: []string{"Oslo"}})
	}
	return out
}

type agentFunc func(ctx context.Context, m Message) (*Answer, error)

func (f agentFunc) Say(ctx context.Context, m Message) (*Answer, error) { return f(ctx, m) }

func TestRun(t *testing.T) {
	var mu sync.Mutex
	traced, untraced, names := 0, 0, map[string]bool{}
	a := agentFunc(func(_ context.Context, m Message) (*Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		names[m.Header.Get("User-Agent")] = true
		if m.Header.Get("Traceparent") == "" {
			untraced++
		} else {
			traced++
		}
		if len(m.Before) == 0 {
			return &Answer{Text: "Which city do you mean?", Session: "ctx-1", Task: "t"}, nil
		}
		if m.Session != "ctx-1" || m.Task != "t" || m.Before[0].Reply == "" {
			return nil, errors.New("the conversation isn't continued")
		}
		return &Answer{Text: "Sunny in " + m.Text, Calls: []trust.Call{{Tool: "get_weather"}}}, nil
	})
	got := 0
	err := Run(t.Context(), a, probes(64), Options{Traced: true, Concurrency: 8}, func(x *trust.Exchange) error {
		got++
		if x.Error != "" || x.Reply() != "Sunny in Oslo" || len(x.Turns) != 2 || x.InBand == nil || x.Session != "ctx-1" {
			t.Errorf("%+v", x)
		}
		return nil
	})
	if err != nil || got != 64 {
		t.Fatalf("%d exchanges, %v", got, err)
	}
	if untraced < 4 || untraced > 40 || traced < 80 || len(names) != len(callers) {
		t.Errorf("%d traced, %d not; callers %v", traced, untraced, names)
	}
}

func TestTroubles(t *testing.T) {
	for name, c := range map[string]struct {
		say   agentFunc
		is    string
		tries int
	}{
		"stalls":       {func(ctx context.Context, _ Message) (*Answer, error) { <-ctx.Done(); return nil, ctx.Err() }, isTimeout, 0},
		"server error": {func(context.Context, Message) (*Answer, error) { return nil, &failure{isServer, errors.New("x")} }, isServer, 1},
		"nonsense":     {func(context.Context, Message) (*Answer, error) { return nil, errors.New("not JSON") }, isProtocol, 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), c.say, probes(1), Options{Timeout: 50 * time.Millisecond, Retries: 1}, func(x *trust.Exchange) error {
				if x.ErrorIs != c.is || len(x.Attempts) != c.tries || x.Error == "" {
					t.Errorf("%+v", x)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	// Refused credentials end the audit, and secrets don't show.
	a := agentFunc(func(context.Context, Message) (*Answer, error) {
		return nil, &failure{isAuth, errors.New("bad token hunter2")}
	})
	n := 0
	err := Run(t.Context(), a, probes(50), Options{Concurrency: 1, Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "[secret]") }},
		func(*trust.Exchange) error { n++; return nil })
	if !errors.Is(err, ErrAuth) || n > 2 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%d exchanges, %v", n, err)
	}
	// An interrupted audit hands over nothing half done.
	ctx, cancel := context.WithCancel(t.Context())
	err = Run(ctx, agentFunc(func(ctx context.Context, _ Message) (*Answer, error) { cancel(); <-ctx.Done(); return nil, ctx.Err() }), probes(3), Options{},
		func(*trust.Exchange) error { t.Error("handed over"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRateAndRetryAfter(t *testing.T) {
	began, n := time.Now(), 0
	ok := agentFunc(func(context.Context, Message) (*Answer, error) { return &Answer{Text: "x"}, nil })
	if err := Run(t.Context(), ok, probes(6), Options{Rate: 20}, func(*trust.Exchange) error { n++; return nil }); err != nil || n != 6 {
		t.Fatal(err, n)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("6 probes at 20 a second took %s", took)
	}
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}}]}`)
	}))
	defer s.Close()
	err := Run(t.Context(), &Chat{HTTP: s.Client(), URL: s.URL, Model: "m"}, probes(1), Options{Retries: 2}, func(x *trust.Exchange) error {
		if x.Reply() != "hi" || len(x.Attempts) != 1 || x.Attempts[0].Is != isLimited || x.InBand.Calls[0].Tool != "f" {
			t.Errorf("%+v", x)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_TOKEN", "t0ken")
	var seen http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			u, p, _ := r.BasicAuth()
			if err := r.ParseForm(); err != nil || u != "me" || p != "s3cret" || r.Form.Get("grant_type") != "client_credentials" || r.Form.Get("scope") != "a b" {
				http.Error(w, "no", 400)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "fresh", "expires_in": 100})
			return
		}
		seen = r.Header
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	get := func(c Credentials, hosts ...string) http.Header {
		t.Helper()
		cl, err := c.New(hosts...)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cl.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := cl.Redact("x t0ken s3cret"); strings.Contains(got, "s3cret") && (c.OAuth != nil || c.APIKey != nil) {
			t.Error(got)
		}
		return seen
	}
	if h := get(Credentials{Bearer: "env:TEST_TOKEN", APIKey: map[string]Secret{"X-API-Key": Secret("file:" + file)}}, host); h.Get("Authorization") != "Bearer t0ken" || h.Get("X-API-Key") != "s3cret" {
		t.Error(h)
	}
	if h := get(Credentials{Bearer: "env:TEST_TOKEN"}, "elsewhere:80"); h.Get("Authorization") != "" {
		t.Error("credentials for one host went to another")
	}
	if h := get(Credentials{OAuth: &OAuth{TokenURL: s.URL + "/token", ClientID: "me", Secret: Secret("file:" + file), Scopes: []string{"a", "b"}}}, host); h.Get("Authorization") != "Bearer fresh" {
		t.Error(h)
	}
	for _, bad := range []Credentials{{Bearer: "t0ken"}, {Bearer: "env:NOT_SET_ANYWHERE"}, {Cert: "x"}, {CA: file}} {
		if _, err := bad.New(); err == nil || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%v", err)
		}
	}
}

func TestMutualTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "no certificate", http.StatusUnauthorized)
		}
	}))
	dir := t.TempDir()
	cert, key, pool := selfSigned(t, dir)
	s.TLS = serverTLS(t, cert, key, pool)
	s.StartTLS()
	defer s.Close()
	c, err := Credentials{Cert: cert, Key: key, CA: cert}.New()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(s.URL)
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
	c, err = Credentials{CA: cert}.New()
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.Get(s.URL); err == nil && resp.StatusCode == 200 {
		t.Error("served without a client certificate")
	}
}

func TestCommand(t *testing.T) {
	c := &Command{Argv: []string{"/bin/sh", "-c", `read -r q; echo "$q|$BODYCAM_TURN|${TRACEPARENT:+traced}"`}, Env: []string{"PATH=/bin:/usr/bin"}}
	a, err := c.Say(t.Context(), Message{Text: "hello", Header: http.Header{"Traceparent": {"00-1"}}})
	if err != nil || a.Text != "hello|1|traced" {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := (&Command{Argv: []string{"/bin/sh", "-c", "echo why >&2; exit 3"}}).Say(t.Context(), Message{}); err == nil || !strings.Contains(err.Error(), "why") {
		t.Error(err)
	}
}

func TestClarifies(t *testing.T) {
	for text, want := range map[string]bool{
		"Which city do you mean?":                                     true,
		"Sure! Could you tell me the location?":                       true,
		"Please specify the city.":                                    true,
		"I need to know the date first.":                              true,
		"It's sunny, 21 °C in Oslo. Would you like the forecast too?": false,
		"I can only help with weather.":                               false,
		"":                                                            false,
		"The weather in Oslo is sunny.":                               false,
		strings.Repeat("A long answer. ", 60) + "Do you want more of it?": false,
	} {
		if got := Clarifies(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
