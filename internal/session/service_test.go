package session

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

const server = `
import http.server, subprocess
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/run": subprocess.run(["/bin/echo", "secret"])
        if self.path == "/end": __import__("os")._exit(3)
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
http.server.HTTPServer(("127.0.0.1", 8080), H).serve_forever()
`

// What a service does is told apart by the windows of those who use it.
func TestService(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"python3", "-c", server}, nil)
	get := func(ctx context.Context, in *Inside, path string) error {
		c := &http.Client{Transport: &http.Transport{DialContext: in.Dial}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service"+path, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	o.Service = &Service{Port: 8080, Ready: "/", Idle: 300 * time.Millisecond, Use: func(ctx context.Context, in *Inside) error {
		for _, name := range []string{"/one", "/run", "/two"} {
			in.Window(name)
			if err := get(ctx, in, name); err != nil {
				return err
			}
		}
		return nil
	}}
	r := mustRun(t, o)
	var from, to uint64
	names := []string{}
	for _, w := range r.Info.Windows {
		names = append(names, w.Window+w.Name)
		if w.Name == "/run" {
			from, to = w.From, w.To
		}
	}
	if got := strings.Join(names, " "); got != "agent idle probe/one probe/run probe/two post-agent" {
		t.Errorf("windows: %s", got)
	}
	found := 0
	for _, e := range events(t, r) {
		if e.Type == bodycam.TypeExec && strings.HasSuffix(e.Exe, "/echo") && !e.Failed() {
			found++
			if e.Boot < from || e.Boot >= to || e.Window != bodycam.WindowProbe {
				t.Errorf("the command ran at %d in window %s, not between %d and %d", e.Boot, e.Window, from, to)
			}
		}
	}
	if found != 1 {
		t.Errorf("echo was seen %d times", found)
	}
}

func TestServiceTroubles(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"sleep", "60"}, nil)
	o.Service = &Service{Port: 8080, Wait: 300 * time.Millisecond, Use: func(context.Context, *Inside) error { t.Error("used"); return nil }}
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrEnvironment) || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("a service that never listens: %v", err)
	}
	o = options(t, []string{"python3", "-c", server}, nil)
	var used error
	o.Service = &Service{Port: 8080, Idle: time.Millisecond, Use: func(ctx context.Context, in *Inside) error {
		c := &http.Client{Transport: &http.Transport{DialContext: in.Dial}}
		_, used = c.Get("http://service/end")
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	if _, err := Run(t.Context(), o); err != nil {
		t.Error(err)
	}
	if used == nil {
		t.Error("the service ended without anybody noticing")
	}
}
