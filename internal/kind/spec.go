package kind

import "encoding/json"

// The types in this file are the kind file. Struct tags are the single source of three things: the key (json), the
// description in the published schema and in docs/KINDS.md (doc), and what a value may be (enum, required).

// Kind is an execution kind: what configures a class of tasks.
type Kind struct {
	Name        string                     `json:"name" doc:"Name of the kind: letters, digits, dot, dash and underscore." required:"true" check:"name"`
	Extends     string                     `json:"extends,omitempty" doc:"What this kind is built on: a built-in kind, or a file (relative to this one, beginning with ./, ../ or /). Defaults to default."`
	Description string                     `json:"description,omitempty" doc:"What the kind is for, in a sentence."`
	Environment Environment                `json:"environment,omitzero" doc:"The box that the agent runs in."`
	Setup       []Step                     `json:"setup,omitempty" doc:"Steps in the box before the agent starts, after those of the task's Dockerfile. Not observed."`
	Validate    []Step                     `json:"validate,omitempty" doc:"Steps that must succeed before the agent starts: they check that setup did what it should."`
	Agent       Agent                      `json:"agent,omitzero" doc:"The agent program and how it is started."`
	Hooks       Hooks                      `json:"hooks,omitzero" doc:"Steps at named moments of the run's life. They run in the box, outside the observed window."`
	Timeouts    Timeouts                   `json:"timeouts,omitzero" doc:"The longest that each phase may take, and the whole run."`
	Sensors     []string                   `json:"sensors,omitempty" doc:"What observes the run. auto takes the best that works here; cross-check runs bpf and ptrace together and reports where they disagree." enum:"auto,bpf,ptrace,cross-check"`
	Analyses    []Analysis                 `json:"analyses,omitempty" doc:"What judges the record afterwards: built-in analyses by name, or commands."`
	Artifacts   []string                   `json:"artifacts,omitempty" doc:"Paths in the box (globs, ** for any depth) that are collected after the run." check:"glob"`
	Judge       Judge                      `json:"judge,omitzero" doc:"What later analyses judge by."`
	Transcripts Transcripts                `json:"transcripts,omitzero" doc:"What is kept of the agent's own account."`
	Anchors     []json.RawMessage          `json:"anchors,omitempty" doc:"Where the ledger's checkpoints are anchored. Read by the anchor clients."`
	Extra       map[string]json.RawMessage `json:"x,omitempty" doc:"Room for your own keys; bodycam keeps them in the plan and ignores them."`

	sources []FileDigest // files that made it, base first
	tree    *node        // what they say
}

// Environment is the box.
type Environment struct {
	Base     BasePath          `json:"base,omitempty" doc:"Root file system: host (an allow-list of the host's own, read-only), a directory, or a tar file (relative to this file). An overlay is put on it."`
	Images   []string          `json:"images,omitempty" doc:"Images (globs, as ubuntu:*) that the base is declared to stand for. A Dockerfile's FROM that matches none is listed as not honoured."`
	Hostname string            `json:"hostname,omitempty" doc:"Host name inside the box." check:"hostname"`
	Network  Network           `json:"network,omitzero" doc:"What the box can reach."`
	Limits   Limits            `json:"limits,omitzero" doc:"Resource limits of the box. Zero: no limit. A task's own wishes replace them."`
	Seccomp  string            `json:"seccomp,omitempty" doc:"System call filter: strict denies what an honest agent has no use for; observe lets suspicious software have its way inside the box." enum:"strict,observe"`
	Env      map[string]string `json:"env,omitempty" doc:"Environment variables of everything in the box. ${VAR} and ${VAR:-default} are taken from bodycam's own environment; nothing else of it gets in." check:"env" number:"true"`
	User     string            `json:"user,omitempty" doc:"User in the box, as name, uid or uid:gid. A name is one that the base knows, or that a setup step makes." check:"user" number:"true"`
	Workdir  string            `json:"workdir,omitempty" doc:"Working directory, absolute. A task's own WORKDIR replaces it." check:"abs"`
	Binds    []Bind            `json:"binds,omitempty" doc:"Host directories or files that are visible in the box."`
}

// Network says what the box can reach.
type Network struct {
	Mode    string    `json:"mode,omitempty" doc:"none: nothing but the forwards. record: everything, through the recording proxy. allow: only the hosts in allow. sink: hosts in allow are reached, all others are answered by a recording stand-in." enum:"none,record,allow,sink"`
	Allow   []string  `json:"allow,omitempty" doc:"Host names (*.example.org for a domain's hosts) or addresses, with :port where only one is meant." check:"host"`
	Forward []Forward `json:"forward,omitempty" doc:"Single ports of the outside, also of this machine's loopback, that the box reaches by a name."`
	TLS     string    `json:"tls,omitempty" doc:"pass: contents of TLS stay closed. intercept: opened with a CA made for the run, which the box is told to trust." enum:"pass,intercept"`
}

// Forward is one port of the outside.
type Forward struct {
	Host string `json:"host" doc:"Name under which the box knows it." required:"true" check:"hostname"`
	Port int    `json:"port" doc:"Port in the box, 1 to 65535." required:"true" check:"port"`
	To   string `json:"to" doc:"Address outside, host:port." required:"true" check:"hostport"`
}

// Limits bounds the box. Zero is no limit.
type Limits struct {
	CPUs   float64 `json:"cpus,omitempty" doc:"Processors, as 1.5: 0.01 to 65536." check:"cpus"`
	Memory Size    `json:"memory,omitempty" doc:"Memory, as 2G or 512M (powers of 1024)."`
	PIDs   int64   `json:"pids,omitempty" doc:"Processes and threads at one time." check:"count"`
	Disk   Size    `json:"disk,omitempty" doc:"Bytes that may be written to the overlay."`
	Inodes int64   `json:"inodes,omitempty" doc:"Files that may be made in the overlay." check:"count"`
	Output Size    `json:"output,omitempty" doc:"Bytes kept of each step's and the agent's output; the rest is counted."`
	Record Size    `json:"record,omitempty" doc:"Bytes of the record (events and their sealed copy) at which the run is stopped. All that was recorded is kept, and the record is incomplete: nothing found is no verdict."`
}

// Bind makes a host path visible in the box.
type Bind struct {
	From     HostPath `json:"from" doc:"Path outside, relative to this file." required:"true" check:"exists"`
	To       string   `json:"to" doc:"Absolute path in the box." required:"true" check:"abs"`
	Writable bool     `json:"writable,omitempty" doc:"The box may write to it. What it writes stays outside."`
}

// Step is one thing to do in the box: run a command, or copy files in.
type Step struct {
	Name    string            `json:"name" doc:"Name of the step, for messages and run.json." required:"true"`
	Run     Command           `json:"run,omitzero" doc:"Command: text for /bin/sh -c, or a list of arguments."`
	Copy    []CopySpec        `json:"copy,omitempty" doc:"Files to copy in."`
	User    string            `json:"user,omitempty" doc:"User to run as; defaults to the environment's." check:"user" number:"true"`
	Workdir string            `json:"workdir,omitempty" doc:"Working directory; defaults to the environment's." check:"abs"`
	Env     map[string]string `json:"env,omitempty" doc:"Further environment variables, as in environment.env." check:"env" number:"true"`
	Timeout Duration          `json:"timeout,omitzero" doc:"The longest that the step may take; bounded by the phase's."`
	Exit    ExitSet           `json:"exit,omitzero" doc:"Exit status that counts as success: a number, a list of numbers, or any. Defaults to 0."`

	at string // file:line
}

// CopySpec names files to copy into the box.
type CopySpec struct {
	From  HostPath `json:"from" doc:"File or directory outside, relative to this file." required:"true" check:"exists"`
	To    string   `json:"to" doc:"Absolute path in the box. With a final slash the source is put into it under its own name." required:"true" check:"abs"`
	Owner string   `json:"owner,omitempty" doc:"Owner as name, uid or uid:gid. Defaults to root." check:"user" number:"true"`
	Mode  string   `json:"mode,omitempty" doc:"Permission bits of files in octal, as \"0755\". Defaults to those of the source." check:"mode" number:"true"`
}

// Agent is the agent program.
type Agent struct {
	Harness    string                     `json:"harness,omitempty" doc:"Which harness: command, builtin, replay, codex, and whichever others this build has."`
	Command    Command                    `json:"command,omitzero" doc:"For harness command: what to run. As an argument of a list {instruction} is replaced by the instruction, {instruction_file} by the path of a file that holds it."`
	Model      string                     `json:"model,omitempty" doc:"Model name, as the harness understands it."`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty" doc:"Further settings; each harness documents its own."`
	Timeout    Duration                   `json:"timeout,omitzero" doc:"The longest that the agent may run. A task's own value replaces it."`
	Env        map[string]string          `json:"env,omitempty" doc:"Environment variables of the agent alone, as in environment.env." check:"env" number:"true"`
	User       string                     `json:"user,omitempty" doc:"User that the agent runs as; defaults to the environment's." check:"user" number:"true"`
	MCPServers []MCPServer                `json:"mcp_servers,omitempty" doc:"Tool servers (Model Context Protocol) that the agent is given. One of the task with the same name replaces one of the kind."`
	SkillDirs  []string                   `json:"skill_dirs,omitempty" doc:"Directories in the box where the harness looks for skills. The skills of a task.yaml are copied to each; a Harbor task's Dockerfile does that itself." check:"glob"`
}

// Hooks are steps at named moments.
type Hooks struct {
	BeforeSetup   []Step `json:"before_setup,omitempty" doc:"The box is up, nothing was done in it."`
	AfterSetup    []Step `json:"after_setup,omitempty" doc:"Setup and validation are done."`
	BeforeAgent   []Step `json:"before_agent,omitempty" doc:"The last moment before the agent starts."`
	AfterAgent    []Step `json:"after_agent,omitempty" doc:"The agent ended, failed or ran out of time."`
	BeforeVerify  []Step `json:"before_verify,omitempty" doc:"Before the tests are copied in."`
	AfterVerify   []Step `json:"after_verify,omitempty" doc:"The tests ended."`
	BeforeCollect []Step `json:"before_collect,omitempty" doc:"Before artifacts are collected."`
}

// Timeouts bounds each phase. Zero is no bound but the total.
type Timeouts struct {
	Total     Duration `json:"total,omitzero" doc:"The whole run, in any phase."`
	Provision Duration `json:"provision,omitzero" doc:"Making the box."`
	Setup     Duration `json:"setup,omitzero" doc:"All setup steps together."`
	Validate  Duration `json:"validate,omitzero" doc:"All validation steps together."`
	Hook      Duration `json:"hook,omitzero" doc:"All steps of one hook together."`
	Agent     Duration `json:"agent,omitzero" doc:"The agent, where agent.timeout and the task say nothing."`
	Verify    Duration `json:"verify,omitzero" doc:"The task's tests. A task's own value replaces it."`
	Collect   Duration `json:"collect,omitzero" doc:"Collecting artifacts."`
	Analyse   Duration `json:"analyse,omitzero" doc:"All analyses together."`
	Teardown  Duration `json:"teardown,omitzero" doc:"Ending the box."`
}

// Analysis judges a record. In a kind file it is a name, or a map.
type Analysis struct {
	Name       string                     `json:"name" doc:"Name of a built-in analysis, or of this command." required:"true"`
	Command    Command                    `json:"command,omitzero" doc:"External command: it gets the run directory as its last argument, reads events as JSON lines on stdin, and writes findings as JSON."`
	Timeout    Duration                   `json:"timeout,omitzero" doc:"The longest that it may take."`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty" doc:"Settings of the analysis."`

	dir string // of the file that it is written in
}

// Judge is what analyses judge by.
type Judge struct {
	Workspace       []string          `json:"workspace,omitempty" doc:"Directories in the box that the agent may change. ${workdir} stands for the task's working directory." check:"glob"`
	HarnessState    []string          `json:"harness_state,omitempty" doc:"Paths where the harness keeps its own state. What is read and written there is shown apart." check:"glob"`
	TrustedPrograms []string          `json:"trusted_programs,omitempty" doc:"Paths (globs) of programs that may run without being suspicious." check:"glob"`
	TrustedDomains  []string          `json:"trusted_domains,omitempty" doc:"Hosts (*.example.org for a domain's hosts) that may be contacted without being suspicious." check:"host"`
	Allow           Allow             `json:"allow,omitzero" doc:"Resources that are legitimate for this kind of task."`
	Rules           []HostPath        `json:"rules,omitempty" doc:"Rule files (Falco's form), relative to this file, beside the built-in ones." check:"file"`
	Suppressions    []Suppression     `json:"suppressions,omitempty" doc:"Findings that are known and accepted, for a time."`
	Decoys          bool              `json:"decoys,omitempty" doc:"Plant credentials without use where attacks look for them; their use is proof. Only where nothing lies, outside the workspace, and where the task says nothing of such things. A kind's to say, not a task's."`
	Obligations     []json.RawMessage `json:"obligations,omitempty" doc:"What a run must do or must not do. See docs/ANALYSES.md."`
	Answers         []HostPath        `json:"answers,omitempty" doc:"Further files outside, relative to this one, whose contents the agent must not have read." check:"exists"`
}

// Allow lists legitimate resources.
type Allow struct {
	Commands []string `json:"commands,omitempty" doc:"Commands, as the analyses name them (globs)."`
	Files    []string `json:"files,omitempty" doc:"Paths in the box (globs)." check:"glob"`
	Hosts    []string `json:"hosts,omitempty" doc:"Hosts (globs)." check:"host"`
}

// Suppression accepts a finding for a time.
type Suppression struct {
	Rule     string `json:"rule" doc:"Name of the rule or obligation." required:"true"`
	Resource string `json:"resource,omitempty" doc:"Only where the finding's resource matches this glob."`
	Reason   string `json:"reason" doc:"Why it is accepted." required:"true"`
	Expires  Date   `json:"expires" doc:"Last day on which it counts, as 2027-01-31." required:"true"`
}

// Transcripts says what is kept of the agent's account.
type Transcripts struct {
	KeepReasoning bool `json:"keep_reasoning,omitempty" doc:"Keep the model's reasoning text. It is left out at capture otherwise."`
}
