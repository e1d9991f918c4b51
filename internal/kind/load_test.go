package kind

import (
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
