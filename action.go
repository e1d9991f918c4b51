package bodycam

import "encoding/json"

// Action is one tool call of an agent with the eight semantic fields of the Agent Flight Recorder
// (arXiv 2609.01931, section 4). It is the payload of an action record in the ledger.
type Action struct {
	Intent     Intent       `json:"intent"`
	Policy     []Policy     `json:"policy,omitempty"`
	Approval   *Approval    `json:"approval,omitempty"`
	Execution  Execution    `json:"execution"`
	Effects    Effects      `json:"effects"`
	Context    Context      `json:"context"`
	Code       []CodeDigest `json:"code,omitempty"`
	Delegation *Delegation  `json:"delegation,omitempty"`
}

// Intent is the call that the agent proposed. Never its raw reasoning.
type Intent struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Policy is what a guardrail said of the call.
type Policy struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Verdict string `json:"verdict"` // allow, deny, escalate
	Reason  string `json:"reason,omitempty"`
}

// Approval is a person's decision. Without a valid signature it is called asserted.
type Approval struct {
	Approver  string `json:"approver"`
	Prompt    string `json:"prompt,omitempty"` // what the approver was shown
	Decision  string `json:"decision"`
	Time      int64  `json:"time,omitempty"` // nanoseconds since 1970 UTC
	Signature []byte `json:"signature,omitempty"`
	Key       string `json:"key,omitempty"`
}

// Execution is the call as it was dispatched.
type Execution struct {
	Command string            `json:"command,omitempty"`
	Params  json.RawMessage   `json:"params,omitempty"`
	Started int64             `json:"started,omitempty"`
	Ended   int64             `json:"ended,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// Effects is what came of the call: what was answered, and what the kernel saw.
type Effects struct {
	Return   string          `json:"return,omitempty"`
	Error    string          `json:"error,omitempty"`
	Exit     *int            `json:"exit,omitempty"`
	Diff     json.RawMessage `json:"diff,omitempty"`
	External json.RawMessage `json:"external,omitempty"`
	// Events are the kernel events linked to the call, as ranges of sequence numbers [first, last].
	Events [][2]uint64 `json:"events,omitempty"`
	// Observed counts them by resource kind: commands, files read, files written, hosts.
	Observed map[string]uint64 `json:"observed,omitempty"`
	// Confidence is that of the link.
	Confidence float64 `json:"confidence,omitempty"`
}

// Context is what the agent had before it when it proposed the call.
type Context struct {
	Sources     []Source `json:"sources,omitempty"`
	Upstream    []uint64 `json:"upstream,omitempty"`    // sequence numbers of records whose output was in the context
	Environment string   `json:"environment,omitempty"` // dev, staging, prod
}

// Source is one content in the context.
type Source struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// CodeDigest pins a piece of code: agent, tool wrapper, skill.
type CodeDigest struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Delegation says who asked for the call.
type Delegation struct {
	Requester string `json:"requester"`
	Parent    string `json:"parent,omitempty"` // digest of the parent event's record in the requester's log, hex
	Scope     string `json:"scope,omitempty"`
	Log       string `json:"log,omitempty"` // requester's log id
	Signature []byte `json:"signature,omitempty"`
}
