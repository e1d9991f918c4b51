package kind

// Form says how a task is written.
type Form string

// The forms.
const (
	FormHarbor  Form = "harbor"  // task.toml: Harbor, terminal-bench 2, SkillsBench
	FormBodycam Form = "bodycam" // task.yaml
	FormCommand Form = "command" // a bare command line
)

// Task is what an agent is asked to do, as it was read.
type Task struct {
	Name        string
	Description string
	Keywords    []string
	Form        Form
	Dir         string // absolute, outside; empty for a bare command
	Instruction string
	Kind        string // kind that the task wants; empty: the caller's choice

	Environment TaskEnvironment
	Agent       TaskAgent
	Tests       *TaskTests
	Solution    *TaskSolution
	Skills      []Skill
	Judge       Judge

	Unhonoured []Unhonoured
	Notes      []Note
}

// TaskEnvironment is what a task wants of the box. Zero fields are no wish.
type TaskEnvironment struct {
	Build        *BuildSpec // nil: there is no Dockerfile
	Files        []CopySpec
	Workspace    string // directory outside whose content goes to the working directory; empty: none
	Skills       []SkillPlacement
	SkillsDir    string // directory in the box where the environment itself puts its skills (Harbor)
	Limits       Limits
	Offline      bool // the task forbids the internet
	Network      TaskNetwork
	Env          map[string]string
	Workdir      string
	User         string
	Hostname     string
	Setup        []Step
	SetupTimeout Duration
	MCPServers   []MCPServer
	Artifacts    []string
}

// SkillPlacement says where a skill goes.
type SkillPlacement struct {
	Skill string   // [Skill.Host]
	Dirs  []string // directories in the box that get it as a subdirectory; empty: the kind's
}

// BuildSpec names a Dockerfile and what it is read with.
type BuildSpec struct {
	Context string            // directory, outside
	File    string            // Dockerfile, outside
	Target  string            // stage; empty: the last
	Args    map[string]string // build arguments
}

// TaskAgent is what a task says of the agent.
type TaskAgent struct {
	Timeout Duration
	User    string
	Command []string // bare command only
}

// TaskTests are a task's tests.
type TaskTests struct {
	Dir     string // outside
	Box     string // where they are copied to
	Command Command
	Timeout Duration
	Env     map[string]string
	User    string
	Reward  RewardRule
}

// TaskSolution is a task's reference solution.
type TaskSolution struct {
	Dir     string
	Box     string
	Command Command
	Env     map[string]string
}

// Where the parts of a task lie in the box.
const (
	boxTests    = "/tests"
	boxSolution = "/solution"
	boxLogs     = "/logs"
)

var fileReward = RewardRule{From: "file", Text: boxLogs + "/verifier/reward.txt", JSON: boxLogs + "/verifier/reward.json"}

// Skill is a directory with a SKILL.md. Its files are named by their path relative to the skill's own root, so that
// a skill that is copied to eight places is one skill.
type Skill struct {
	Name        string         `json:"name"` // directory name; a front matter that says otherwise is noted
	Description string         `json:"description,omitempty"`
	Host        string         `json:"host"`            // its directory outside
	Roots       []string       `json:"roots,omitempty"` // directories in the box that hold a copy, sorted
	Files       []ManifestFile `json:"files"`
	SHA256      string         `json:"sha256"`
	// Document is what SKILL.md says, as [bodycam.Escape] writes bytes, and cut: analyses compare a run with it.
	Document string `json:"document,omitempty"`

	same []string // further directories outside that hold the same skill
}
