package cli

import (
	"os"
	"testing"

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
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "static": // what runs inside a box needs a binary without shared libraries
				return static, nil
			}
			return false, nil
		},
	})
}
