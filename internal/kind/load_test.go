package kind

import (
	"os"
	"strings"
	"testing"
)

func TestBuiltinsLoadAndResolve(t *testing.T) {
	for _, name := range Builtins() {
		t.Run(name, func(t *testing.T) {
			k, err := Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if k.Name != name || k.Description == "" {
				t.Errorf("name %q, description %q", k.Name, k.Description)
			}
			task, err := CommandTask([]string{"ls", "-l"}, "")
			if err != nil {
				t.Fatal(err)
			}
			p, err := Resolve(k, task, Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Base != "host" || p.Seccomp == "" || p.Network.Mode == "" || p.Workdir == "" || p.User == "" || p.Timeouts.Total == 0 || len(p.Sensors) == 0 {
				t.Errorf("the plan has holes: %+v", p)
			}
			if p.Agent.Harness != "command" || len(p.Agent.Command) != 2 {
				t.Errorf("agent = %+v", p.Agent)
			}
		})
	}
}

// TestShownPath has faults named by the path as it was given, without what says nothing in it.
func TestShownPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("my.yaml", []byte("name: my\nworkdirr: /x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"././my.yaml": "my.yaml:2:1: ", "./my.yaml": "my.yaml:2:1: ", dir + "/./my.yaml": dir + "/my.yaml:2:1: "} {
		if _, err := Load(given); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want it to begin with %s", given, err, want)
		}
	}
}
