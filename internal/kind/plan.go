package kind

import (
	"encoding/json"

	"github.com/bodycam-dev/bodycam"
)

// PlanVersion is the version of the plan's JSON form. It grows when a field changes its meaning or disappears.
const PlanVersion = 1

// Plan is a run before it starts: everything that a session needs, fully resolved. Nothing in it has to be looked
// up again, except values of environment variables that came from outside (see [EnvVar]).
type Plan struct {
	Version int      `json:"version"`
	Task    TaskInfo `json:"task"`
	Kind    KindInfo `json:"kind"`

	Base     string   `json:"base"` // "host", or an absolute path outside: a directory or a tar file
	Hostname string   `json:"hostname"`
	Network  Network  `json:"network"`
	Limits   Limits   `json:"limits"`
	Seccomp  string   `json:"seccomp"`
	Env      []EnvVar `json:"env"`     // of everything in the box, sorted by name
	Workdir  string   `json:"workdir"` // absolute; the session makes it where the base lacks it
	User     string   `json:"user"`
	Binds    []Bind   `json:"binds,omitempty"`

	// Setup are the Dockerfile's steps, then the task's, then the kind's, in the order in which they must run.
	Setup    []PlanStep            `json:"setup,omitempty"`
	Validate []PlanStep            `json:"validate,omitempty"`
	Hooks    map[string][]PlanStep `json:"hooks,omitempty"` // by the names in [HookNames]

	Agent    PlanAgent      `json:"agent"`
	Tests    *PlanTests     `json:"tests,omitempty"`    // nil: the task has none, its outcome is "none"
	Solution *PlanSolution  `json:"solution,omitempty"` // for an oracle run only
	Skills   []Skill        `json:"skills,omitempty"`
	Grading  []GradingItem  `json:"grading,omitempty"` // what the agent must not read
	Timeouts Timeouts       `json:"timeouts"`
	Sensors  []string       `json:"sensors"`
	Analyses []PlanAnalysis `json:"analyses,omitempty"`

	Artifacts   []string                   `json:"artifacts,omitempty"`
	Judge       PlanJudge                  `json:"judge"`
	Transcripts Transcripts                `json:"transcripts,omitzero"`
	Anchors     []json.RawMessage          `json:"anchors,omitempty"`
	Extra       map[string]json.RawMessage `json:"x,omitempty"`

	Unhonoured []Unhonoured `json:"unhonoured,omitempty"`
	Notes      []Note       `json:"notes,omitempty"`
	Digests    Digests      `json:"digests"`
}

// TaskInfo says which task.
type TaskInfo struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Form        Form     `json:"form"`
	Dir         string   `json:"dir,omitempty"` // absolute, outside; empty for a bare command
	Instruction string   `json:"instruction,omitempty"`
	Keywords    []string `json:"keywords,omitempty"`
}

// KindInfo says which kind, and which files made it.
type KindInfo struct {
	Name    string       `json:"name"`
	Sources []FileDigest `json:"sources"` // base first; a built-in kind's path is "builtin:NAME"
}

// FileDigest names a file and what it held.
type FileDigest struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// EnvVar is one environment variable. Where the value was taken from bodycam's own environment (${VAR}) or from the
// command line, From says so and the JSON form leaves the value out, so that a secret doesn't get into run.json.
type EnvVar struct {
	Name  string
	Value string
	From  string // variables outside that the value was made from, separated by commas, or "command line"
}

type envVarJSON struct {
	Name  string  `json:"name"`
	Value *string `json:"value,omitempty"`
	From  string  `json:"from,omitempty"`
}

// MarshalJSON leaves out values that came from outside.
func (e EnvVar) MarshalJSON() ([]byte, error) {
	j := envVarJSON{Name: e.Name, From: e.From}
	if e.From == "" {
		j.Value = &e.Value
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote; a value that came from outside is empty.
func (e *EnvVar) UnmarshalJSON(b []byte) error {
	var j envVarJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*e = EnvVar{Name: j.Name, From: j.From}
	if j.Value != nil {
		e.Value = *j.Value
	}
	return nil
}

// PlanStep is one step in the box. Either Argv is set, or Copies, or Mkdir.
type PlanStep struct {
	Name    string   `json:"name"`
	Argv    []string `json:"argv,omitempty"`
	Copies  []Copy   `json:"copies,omitempty"`
	Mkdir   string   `json:"mkdir,omitempty"` // make this directory with its parents, owned by User, where it is missing
	Env     []EnvVar `json:"env,omitempty"`   // the whole environment of the step, sorted by name
	Workdir string   `json:"workdir"`
	User    string   `json:"user"`
	Timeout Duration `json:"timeout,omitzero"` // zero: only the phase's bound
	Exit    ExitSet  `json:"exit,omitzero"`
	Source  string   `json:"source"` // where it is written: file:line
}

// PlanAgent is the agent, resolved.
type PlanAgent struct {
	Harness    string                     `json:"harness"`
	Command    []string                   `json:"command,omitempty"`
	Model      string                     `json:"model,omitempty"`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
	Timeout    Duration                   `json:"timeout,omitzero"`
	Env        []EnvVar                   `json:"env,omitempty"` // beyond [Plan.Env], sorted by name
	User       string                     `json:"user"`
	UserOfTask bool                       `json:"user_of_task,omitempty"` // the task names the user: its image may have had the account
	Home       string                     `json:"home"`                   // HOME of that user: what ${home} stands for
	SkillDirs  []string                   `json:"skill_dirs,omitempty"`
	MCPServers []MCPServer                `json:"mcp_servers,omitempty"` // that the harness shall have
}

// MCPServer is a tool server that the agent shall have. One with a command is started in the box, by the harness.
type MCPServer struct {
	Name      string   `json:"name" doc:"Name: letters, digits, dot, dash and underscore." required:"true" check:"name"`
	Transport string   `json:"transport" doc:"How it is spoken to." required:"true" enum:"stdio,sse,streamable-http"`
	URL       string   `json:"url,omitempty" doc:"Its address, for sse and streamable-http."`
	Command   string   `json:"command,omitempty" doc:"Its program, for stdio."`
	Args      []string `json:"args,omitempty" doc:"The program's arguments."`
}

// PlanTests are the task's tests: copied in after the agent stopped, then run.
type PlanTests struct {
	Copies  []Copy     `json:"copies,omitempty"`
	Argv    []string   `json:"argv"`
	Workdir string     `json:"workdir"`
	User    string     `json:"user"`
	Env     []EnvVar   `json:"env,omitempty"` // the whole environment
	Timeout Duration   `json:"timeout,omitzero"`
	Reward  RewardRule `json:"reward"`
}

// RewardRule says how the tests' verdict is read.
type RewardRule struct {
	From string `json:"from"` // "file": Text beats JSON, and both missing is an error; "exit": 0 is a pass
	Text string `json:"text,omitempty"`
	JSON string `json:"json,omitempty"`
}

// PlanSolution is the reference solution, for runs that check the task itself.
type PlanSolution struct {
	Copies  []Copy   `json:"copies"`
	Argv    []string `json:"argv"`
	Env     []EnvVar `json:"env,omitempty"` // the whole environment
	Workdir string   `json:"workdir"`
	User    string   `json:"user"`
}

// GradingItem is material that grades the task: the agent must not have read it, neither by path nor by content.
type GradingItem struct {
	Role  string         `json:"role"` // tests, solution, answer
	Host  string         `json:"host"` // where it lies outside
	Box   string         `json:"box,omitempty"`
	Files []ManifestFile `json:"files"` // paths relative to Host
	// Exposed are paths in the box to which the environment itself copies files of this item before the agent
	// starts. The task leaves them where the agent can read them.
	Exposed []string `json:"exposed,omitempty"`
}

// PlanAnalysis is an analysis, resolved.
type PlanAnalysis struct {
	Name       string                     `json:"name"`
	Command    []string                   `json:"command,omitempty"` // nil: built in
	Dir        string                     `json:"dir,omitempty"`     // directory of the file that names the command
	Timeout    Duration                   `json:"timeout,omitzero"`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
}

// PlanJudge is what analyses judge by, resolved.
type PlanJudge struct {
	Workspace       []string          `json:"workspace"`
	HarnessState    []string          `json:"harness_state,omitempty"`
	TrustedPrograms []string          `json:"trusted_programs,omitempty"`
	TrustedDomains  []string          `json:"trusted_domains,omitempty"`
	Allow           Allow             `json:"allow,omitzero"`
	Rules           []RuleFile        `json:"rules,omitempty"`
	Suppressions    []Suppression     `json:"suppressions,omitempty"`
	Decoys          bool              `json:"decoys,omitempty"` // plant credentials without use
	Obligations     []json.RawMessage `json:"obligations,omitempty"`
}

// Unhonoured is something that a task asks for and the plan doesn't give.
type Unhonoured struct {
	Instruction string `json:"instruction"` // as it is written, cut to 200 bytes
	File        string `json:"file"`        // relative to the task's directory
	Line        int    `json:"line"`
	Why         string `json:"why"`
	// Severity: Info changes nothing that a run can show; Medium may change what the agent finds; High means that
	// something which the task counts on is missing.
	Severity bodycam.Severity `json:"severity"`
}

// Note is a remark on a file that is no fault: an unknown key, a deprecated form.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// Digests identify what a run was made of: SHA-256 in hexadecimal, empty where there is no such thing. Directories
// are digested as [Manifest.SHA256] says.
type Digests struct {
	Plan        string `json:"plan,omitempty"` // of the plan's JSON form with this field empty
	Task        string `json:"task,omitempty"`
	Instruction string `json:"instruction,omitempty"`
	Environment string `json:"environment,omitempty"`
	Tests       string `json:"tests,omitempty"`
	Solution    string `json:"solution,omitempty"`
	Kind        string `json:"kind"`             // over the digests of the kind's files
	Skills      string `json:"skills,omitempty"` // over the skills' digests
}

// Strict lists what a run must be refused for with --strict-env: all that isn't honoured and may matter.
func (p *Plan) Strict() []Unhonoured {
	var out []Unhonoured
	for _, u := range p.Unhonoured {
		if u.Severity > bodycam.Info {
			out = append(out, u)
		}
	}
	return out
}
