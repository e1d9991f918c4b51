package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	testscript.Main(m, map[string]func(){
		"bodycam": func() { os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// Each script in testdata is a user's session, named by what it is about.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("BODYCAM_KEYS", e.WorkDir+"/keys")
			e.Setenv("NO_COLOR", "1")
			e.Setenv("HARNESS", harnessDir())
			tasks, err := filepath.Abs("testdata/tasks")
			if err != nil {
				return err
			}
			e.Setenv("TASKS", tasks)
			e.Setenv(harness.HarnessDirEnv, harnessDir())
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if pkg, ok := strings.CutPrefix(cond, "harness:"); ok {
				_, err := os.Stat(filepath.Join(harnessDir(), "node_modules", pkg))
				return err == nil, nil
			}
			switch cond {
			case "pytest": // of the sandbox's own Python
				_, err := os.Stat("/usr/lib/python3/dist-packages/pytest")
				return err == nil, nil
			case "root":
				return os.Geteuid() == 0, nil
			case "static": // what runs inside a box needs a binary without shared libraries
				return static, nil
			}
			return false, nil
		},
	})
}

// harnessDir is where scripts/harness.sh installs.
func harnessDir() string {
	if dir := os.Getenv(harness.HarnessDirEnv); dir != "" {
		return dir
	}
	wd, err := os.Getwd()
	if err != nil {
		return ""
	}
	return filepath.Join(wd, "..", "..", ".harness")
}

// Errors bring no control characters of names to the terminal.
func TestErrorsForTerminals(t *testing.T) {
	var out, errs bytes.Buffer
	status := Main([]string{"bodycam", "verify", "no/a\x1b[31mb\u202e"}, strings.NewReader(""), &out, &errs)
	if status != ExitUsage || strings.ContainsAny(errs.String(), "\x1b\u202e") || !strings.Contains(errs.String(), `\x1b[31mb`) {
		t.Errorf("status %d, %q", status, errs.String())
	}
}
