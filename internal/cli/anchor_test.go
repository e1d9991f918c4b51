package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Each script in testdata/anchor is what an operator, a witness or a verifier does.
func TestAnchorScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/anchor",
		Setup: func(e *testscript.Env) error {
			e.Setenv("BODYCAM_KEYS", filepath.Join(e.WorkDir, "keys"))
			e.Setenv("BODYCAM_HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("NO_COLOR", "1")
			return nil
		},
		Condition: func(c string) (bool, error) { return c == "root" && os.Geteuid() == 0, nil },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkrun": mkrun, "flip": flip, "cut": cut, "status": status, "serve": serve, "fill": fill,
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
