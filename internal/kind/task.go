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

// TaskEnvironment is what a task wants of the box.
type TaskEnvironment struct {
	Dir       string // the task's environment directory, outside; empty: none
	Build     *BuildSpec
	Limits    Limits  // zero fields: no wish
	Offline   bool    // the task forbids the internet
	Network   Network // own form only
	Env       map[string]string
	Workdir   string
	User      string
	Hostname  string
	Setup     []Step
	SetupTime Duration
	MCP       []MCPServer
	Artifacts []string
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
	Dir string
	Box string
	Env map[string]string
}

// Skill is a directory with a SKILL.md. Its files are named by their path relative to the skill's own root, so that
// a skill that is copied to eight places is one skill.
type Skill struct {
	Name        string         `json:"name"` // directory name; a front matter that says otherwise is noted
	Description string         `json:"description,omitempty"`
	Host        string         `json:"host"`            // its directory outside
	Roots       []string       `json:"roots,omitempty"` // directories in the box that hold a copy, sorted
	Files       []ManifestFile `json:"files"`
	SHA256      string         `json:"sha256"`
}
