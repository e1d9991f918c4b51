package bodycam

import (
	"encoding/json"
	"slices"
	"time"
)

// RunSchema is the version of run.json.
const RunSchema = 1

// Run is what run.json says of a run. It is written when the run begins, after every phase and at its end, so that
// a run that was cut off can still be read.
type Run struct {
	Schema  int       `json:"schema"`
	Events  int       `json:"event_schema"`
	ID      string    `json:"id"`
	Tool    Build     `json:"tool"`
	Machine Machine   `json:"machine"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero while it runs, or where it was cut off
	// BootOffset turns an event's boot time into wall clock: Time = Boot + BootOffset, in nanoseconds.
	BootOffset int64 `json:"boot_offset"`

	Task  TaskRef         `json:"task"`
	Agent AgentRef        `json:"agent"`
	Kind  string          `json:"kind"`
	Plan  json.RawMessage `json:"plan,omitempty"` // as resolved

	Environment Environment   `json:"environment"`
	Phases      []Phase       `json:"phases"`
	Windows     []WindowSpan  `json:"windows,omitempty"`
	Outcome     Outcome       `json:"outcome"`
	Sensors     []Health      `json:"sensors,omitempty"`
	Guard       *Guarded      `json:"guard,omitempty"` // nil: no rule of mode deny was about files or programs
	Complete    Completeness  `json:"completeness"`
	Counts      RunCounts     `json:"counts"`
	Unlinked    []UnlinkedRef `json:"unlinked,omitempty"`
	Unhonoured  []Unhonoured  `json:"unhonoured,omitempty"` // what of the task's environment could not be done as asked
	Manifests   []string      `json:"manifests,omitempty"`  // files that hold digest manifests, relative to the run
	Artifacts   []Artifact    `json:"artifacts,omitempty"`
	Skipped     []Skipped     `json:"skipped,omitempty"` // artifacts that were not collected, and why
	// Copies are working copies and derived files: conveniences that the ledger outranks.
	Copies []string `json:"copies,omitempty"`
	Error  string   `json:"error,omitempty"` // why the run could not be carried out
	Notes  []string `json:"notes,omitempty"`
}

// CutOff is why the record of a run without an end is incomplete.
const CutOff = "the run was cut off, or is still being written"

// Whole says whether the run's record can carry a "nothing found", by its own word: there is a reason wherever it can't.
func (r *Run) Whole() Completeness {
	switch c := r.Complete; {
	case r.Ended.IsZero() && !slices.Contains(c.Reasons, CutOff):
		return c.Lacking(CutOff)
	case !c.Complete && len(c.Reasons) == 0:
		return c.Lacking("the run calls its own record incomplete")
	default:
		return c
	}
}

// Build says which bodycam made a run.
type Build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	SHA256  string `json:"sha256,omitempty"` // of the executable
}

// Machine says where a run was made.
type Machine struct {
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPUs   int    `json:"cpus"`
	BootID string `json:"boot_id,omitempty"`
	User   int    `json:"uid"`
}

// TaskRef pins a task.
type TaskRef struct {
	Name        string     `json:"name"`
	Path        string     `json:"path,omitempty"`
	Digest      string     `json:"digest,omitempty"`
	Instruction string     `json:"instruction,omitempty"`
	Skills      []SkillRef `json:"skills,omitempty"`
}

// SkillRef pins a skill.
type SkillRef struct {
	Name   string   `json:"name"`
	Digest string   `json:"digest,omitempty"`
	Roots  []string `json:"roots,omitempty"` // where its copies lie inside
}

// AgentRef pins an agent.
type AgentRef struct {
	Harness string `json:"harness"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest,omitempty"`
	Model   string `json:"model,omitempty"`
	// Programs are the paths inside at which the recorder put the harness's own program files, State those of its state.
	Programs []string `json:"programs,omitempty"`
	State    []string `json:"state,omitempty"`
}

// Environment says what a run began with.
type Environment struct {
	Base       string   `json:"base"`
	BaseDigest string   `json:"base_digest,omitempty"`
	Network    string   `json:"network"`
	Seccomp    string   `json:"seccomp"`
	Resolver   string   `json:"resolver,omitempty"` // address of the recorder's own DNS, as the sandbox knows it
	Weaker     []string `json:"weaker,omitempty"`   // what is weaker than with full privileges
	StartedIn  float64  `json:"started_in_ms,omitempty"`
}

// Phase is one step of a run's life.
type Phase struct {
	Name     string    `json:"name"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	Exit     *int      `json:"exit,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	TimedOut bool      `json:"timed_out,omitempty"`
	Error    string    `json:"error,omitempty"`
	CPU      float64   `json:"cpu_seconds,omitempty"`
}

// WindowSpan says when a window was open, in boot time.
type WindowSpan struct {
	Window string `json:"window"`
	Name   string `json:"name,omitempty"` // of a probe's window: the probe
	From   uint64 `json:"from"`
	To     uint64 `json:"to,omitempty"`
}

// Guarded counts what the kernel asked the recorder about before it let a call through, for rules of mode deny.
type Guarded struct {
	Asked     uint64  `json:"asked"` // opens and executions
	Refused   uint64  `json:"refused"`
	Mounts    int     `json:"mounts"`     // of the sandbox
	SlowestMS float64 `json:"slowest_ms"` // the longest that a call waited for the decision
}

// The statuses of an outcome.
const (
	OutcomePass  = "pass"
	OutcomeFail  = "fail"
	OutcomeNone  = "none"  // the task has no tests
	OutcomeError = "error" // the tests could not be run or gave no reward
)

// Outcome is the verdict of the task's own tests.
type Outcome struct {
	Status  string             `json:"status"`
	Reward  *float64           `json:"reward,omitempty"`
	Rewards map[string]float64 `json:"rewards,omitempty"`
	Error   string             `json:"error,omitempty"`
}

// RunCounts sums a record up.
type RunCounts struct {
	Events    uint64            `json:"events"`
	Calls     uint64            `json:"calls"` // events with their Count
	ByType    map[string]uint64 `json:"by_type,omitempty"`
	Processes uint64            `json:"processes"`
	Rows      int               `json:"rows"`
	ToolRows  int               `json:"tool_rows"`
	Linked    int               `json:"linked_rows"`
}

// UnlinkedRef is a process subtree that the harness started and no row explains.
type UnlinkedRef struct {
	Proc Proc     `json:"proc"`
	Exe  string   `json:"exe"`
	Argv []string `json:"argv,omitempty"`
	// Startup tells that it began before the transcript's first tool call: the harness's own housekeeping, most likely.
	Startup bool `json:"startup,omitempty"`
}

// Unhonoured is an instruction of a task's environment that was not carried out as written.
type Unhonoured struct {
	Where       string `json:"where"` // file:line
	Instruction string `json:"instruction"`
	Why         string `json:"why"`
	Harmless    bool   `json:"harmless,omitempty"`
}

// Artifact is a file that was collected.
type Artifact struct {
	Path   string `json:"path"` // relative to the run's artifacts folder
	Box    string `json:"box"`  // where it lay inside
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Skipped is a file that was not collected.
type Skipped struct {
	Box string `json:"box"`
	Why string `json:"why"`
}
