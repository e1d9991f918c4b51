package kind

import "encoding/json"

// HookNames are the keys of [Plan.Hooks], in the order of a run's life.
var HookNames = []string{
	"before_setup", "after_setup", "before_agent", "after_agent", "before_verify", "after_verify", "before_collect",
}

// Overrides is what the caller sets over kind and task. Zero fields change nothing.
type Overrides struct {
	Harness    string
	Model      string
	Command    []string
	Parameters map[string]json.RawMessage // key by key
	Env        map[string]string          // literal values, of everything in the box
	AgentEnv   map[string]string          // literal values, of the agent alone
	Network    string                     // mode
	Allow      []string                   // further hosts for the network
	Forward    []Forward                  // further forwards
	Seccomp    string
	Limits     Limits
	Timeouts   Timeouts // Agent here beats the task's and the kind's
	Sensors    []string
	Analyses   []string // names: run these, and none of the kind's others
	BuildArgs  map[string]string
	User       string
	Workdir    string
	NoTests    bool
	// LookupEnv gives values for ${VAR}; nil: nothing is set.
	LookupEnv func(name string) (string, bool)
}
