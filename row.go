package bodycam

import "time"

// RowKind says what a row of the agent's own account is.
type RowKind string

// The kinds of rows.
const (
	RowTool    RowKind = "tool"    // a tool call: Tool, Command or Args
	RowMessage RowKind = "message" // text that the agent said
	RowPlan    RowKind = "plan"    // a to-do list or plan
	RowError   RowKind = "error"   // the harness reported a failure
	RowMeta    RowKind = "meta"    // session start, end, usage
)

// Row is one line of the agent's own account: a step of its transcript. It is a claim, not evidence.
// Reasoning text is left out at capture unless the kind asks for it.
type Row struct {
	Index   int      `json:"index"` // from 0, in the transcript's order
	Kind    RowKind  `json:"kind"`
	CallID  string   `json:"call_id,omitempty"`
	Tool    string   `json:"tool,omitempty"`    // the tool's name as the harness gives it
	Command string   `json:"command,omitempty"` // the shell command, where the tool runs one
	Args    string   `json:"args,omitempty"`    // the arguments as JSON, as given
	Text    string   `json:"text,omitempty"`
	Files   []string `json:"files,omitempty"`     // files that the row says were changed
	Output  string   `json:"output,omitempty"`    // what the tool answered, as the harness tells it; may be cut
	Cut     bool     `json:"cut,omitempty"`       // Output, Text or Args was cut
	Exit    *int     `json:"exit,omitempty"`      // exit status that the row claims
	Failed  bool     `json:"failed,omitempty"`    // the row says the call failed or was refused
	Reason  string   `json:"reasoning,omitempty"` // reasoning text, only where the kind asks for it

	// Arrived is when the recorder saw the line that began the row; Ended when it saw the line with its result.
	// They are the recorder's clock. Claimed is the transcript's own, which is never trusted.
	Arrived time.Time `json:"arrived"`
	Ended   time.Time `json:"ended,omitzero"`
	Claimed time.Time `json:"claimed,omitzero"`
	Source  string    `json:"source,omitempty"` // "stdout", "session file", "otlp": where the row was read
	Line    int       `json:"line,omitempty"`   // line of Source that began it, from 1
}

// LinkMethod says how a row and events were joined, strongest first.
type LinkMethod string

// The methods.
const (
	LinkArgv    LinkMethod = "argv"    // a process was started whose argv holds the row's command
	LinkPath    LinkMethod = "path"    // the harness itself touched a file that the row names, in the row's time
	LinkTime    LinkMethod = "time"    // only the times agree
	LinkHarness LinkMethod = "harness" // the harness's own start-up and housekeeping: no row needed
)

// Link joins a row with a process subtree or single events.
type Link struct {
	Row        int        `json:"row"`
	Root       Proc       `json:"root,omitzero"` // the process that the row started: its whole subtree belongs to the row
	Events     []uint64   `json:"events,omitempty"`
	Method     LinkMethod `json:"method"`
	Confidence float64    `json:"confidence"` // 0 to 1
	From       uint64     `json:"from"`       // boot times between which the row's events lie
	To         uint64     `json:"to"`
	Why        string     `json:"why,omitempty"`
}
