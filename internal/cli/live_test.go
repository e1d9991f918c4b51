package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Alerts are posted while the run goes on, alike ones not one by one, and a webhook that fails is told of without
// failing the run.
func TestWebhook(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups and eBPF")
	}
	dir := t.TempDir()
	t.Setenv("BODYCAM_KEYS", filepath.Join(dir, "keys"))
	ws := filepath.Join(dir, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "i=0; while [ $i -lt 250 ]; do read x < /etc/shadow; echo >> /etc/motd; i=$((i+1)); done; true\n"
	if err := os.WriteFile(filepath.Join(ws, "x.sh"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []alertLine
	fail := false
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if fail {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		var a alertLine
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &a); err != nil {
			t.Errorf("%q: %v", b, err)
		}
		got = append(got, a)
	}))
	defer hook.Close()
	run := func() (string, int) {
		var out, errs bytes.Buffer
		status := Main([]string{"bodycam", "run", "-q", "--json", "--kind", "command", "--analysis", "security", "--workspace", ws, "--network", "none", "--fail-on", "never",
			"--alert-webhook", hook.URL, "-o", filepath.Join(dir, "runs"), "--", "sh", "x.sh"}, strings.NewReader(""), &out, &errs)
		return errs.String(), status
	}
	if errs, status := run(); status != ExitOK || errs != "" {
		t.Fatalf("status %d, %s", status, errs)
	}
	changed := 0
	for _, a := range got {
		if a.Type != "alert" || a.Run == "" || a.Mode != "alert" || a.Finding.Rule == "" || len(a.Finding.Tree) == 0 {
			t.Errorf("posted %+v", a)
		}
		if a.Finding.Rule == "Change outside the workspace" {
			changed++
		}
	}
	if changed < 1 || changed > 4 { // 1, 10, 100 alike calls
		t.Errorf("250 alike calls were posted %d times", changed)
	}
	fail = true
	if errs, status := run(); status != ExitOK || !strings.Contains(errs, "alert webhook: it answered 418") {
		t.Errorf("status %d, %q", status, errs)
	}
}

// A webhook that hangs keeps alerts from nobody else, and it is told how many it didn't get.
// An alert that a webhook sends on to another place was not taken by anybody.
func TestWebhookThatRedirects(t *testing.T) {
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		var elsewhere atomic.Int32
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/login" {
				elsewhere.Add(1)
				return
			}
			http.Redirect(w, r, "/login", status)
		}))
		out := posting(hook.URL, time.Minute).start(1)
		out.put(&alertLine{Type: "alert"})
		err := out.close()
		hook.Close()
		if err == nil || elsewhere.Load() != 0 || !strings.Contains(err.Error(), "not followed") || !strings.Contains(err.Error(), "1 of 1 alerts were not handed on") {
			t.Errorf("status %d: %v, followed %d times", status, err, elsewhere.Load())
		}
	}
}

func TestWebhookThatHangs(t *testing.T) {
	stuck := make(chan struct{})
	var asked atomic.Int32
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) > 1 {
			<-stuck
		}
	}))
	defer hook.Close()
	defer close(stuck)
	printed := make(chan string, 8)
	out := printing(writerFunc(func(b []byte) (int, error) { printed <- string(b); return len(b), nil }), true, time.Minute)
	in := posting(hook.URL, time.Minute)
	in.patience = 50 * time.Millisecond
	l := &live{outlets: []*outlet{out.start(8), in.start(4)}}
	tell := func(rule string) {
		t.Helper()
		for _, o := range l.outlets {
			o.put(&alertLine{Type: "alert", Finding: bodycam.Finding{Rule: rule}})
		}
		select {
		case line := <-printed:
			if !strings.Contains(line, rule) {
				t.Errorf("of %s was printed %q", rule, line)
			}
		case <-time.After(time.Minute):
			t.Fatal("the webhook keeps alerts from being printed")
		}
	}
	tell("the first")
	for asked.Load() < 1 {
		time.Sleep(time.Millisecond)
	}
	tell("the second")
	for asked.Load() < 2 { // it hangs now
		time.Sleep(time.Millisecond)
	}
	for range 7 {
		tell("another")
	}
	err := l.close()
	want := "; 8 of 9 alerts were not handed on, 3 of them because they came faster"
	if err == nil || !strings.HasPrefix(err.Error(), "alert webhook: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestPowerOfTen(t *testing.T) {
	for n, want := range map[uint64]bool{0: false, 1: true, 2: false, 10: true, 11: false, 20: false, 100: true, 1000: true, 1001: false} {
		if powerOfTen(n) != want {
			t.Errorf("powerOfTen(%d) = %v", n, !want)
		}
	}
}
