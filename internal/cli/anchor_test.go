package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor/anchortest/authority"
	"github.com/rogpeppe/go-internal/testscript"
)

// Each script in testdata/anchor is what an operator, a witness or a verifier does.
func TestAnchorScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/anchor",
		Setup: ownHome,
		Condition: func(c string) (bool, error) {
			if c == "openssl" {
				_, err := exec.LookPath("openssl")
				return err == nil, nil
			}
			return c == "root" && os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkrun": mkrun, "flip": flip, "cut": cut, "status": status, "serve": serve, "fill": fill, "tsad": tsad, "hook": hook,
		},
	})
}

// serve VARIABLE ARGUMENTS: start a server of bodycam's, and put its URL into a variable.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: serve VARIABLE ARGUMENTS")
	}
	name, err := exec.LookPath("bodycam")
	ts.Check(err)
	cmd := exec.Command(name, append(args[1:], "--listen", "127.0.0.1:0")...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "BODYCAM_KEYS="+ts.Getenv("BODYCAM_KEYS"))
	out, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), " at http://"); ok {
			ts.Setenv(args[0], "http://"+url)
			go func() {
				for lines.Scan() { // so that it doesn't block
				}
			}()
			return
		}
	}
	ts.Fatalf("%s ended before it served", args[1])
}

// tsad VARIABLE: a time stamp authority, which can't be reached while there is a file called tsa-down. Its URL goes into the
// variable, its root certificate, as a JSON string, into the file tsa.root.
func tsad(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := os.MkdirTemp(ts.MkAbs("."), "tsa-")
	ts.Check(err)
	a, err := authority.New(dir)
	ts.Check(err)
	down := ts.MkAbs("tsa-down")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(down); err == nil {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		a.ServeHTTP(w, r)
	}))
	ts.Defer(web.Close)
	ts.Setenv(args[0], web.URL)
	root, err := json.Marshal(a.Root)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("tsa.root"), root, 0o600))
}

// hook VARIABLE FILE: a webhook that appends what is posted to a file, a line each. The first post is refused.
func hook(ts *testscript.TestScript, neg bool, args []string) {
	file := ts.MkAbs(args[1])
	refused := false
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !refused {
			refused = true
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		b, err := io.ReadAll(r.Body)
		f, ferr := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if ferr == nil {
			_, ferr = f.Write(append(b, '\n'))
			ferr = errors.Join(ferr, f.Close())
		}
		if err = errors.Join(err, ferr); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	ts.Defer(web.Close)
	ts.Setenv(args[0], web.URL)
}

// fill FROM TO: write a file with $VARIABLE filled in, and @FILE@ by the first line of a file.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FROM TO")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	parts := strings.Split(text, "@@")
	for i := 1; i < len(parts); i += 2 {
		parts[i], _, _ = strings.Cut(ts.ReadFile(parts[i]), "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.Join(parts, "")), 0o600))
}
