// Package trust holds the words of a trust audit: does an agent keep to what it declares?
//
// An audit reads a [Declaration], sends [Probe]s in three [Scope]s, keeps an [Exchange] for each, joins it with what
// the agent did ([Calls] from traces, [Effects] from the kernel's record), asks a [Judge] what was said, and scores.
// Every one of these is a plain value with a JSON form, so that an audit can be kept, edited, replayed and scored again
// under other rules without asking the agent or the judge anything.
//
// The rooms: declare (declarations), probe (making probes), deliver (sending them), trace (what was done), score
// (baseline, patterns, scores, gate), report, audit (the life of an audit), judge, liars (agents to test all this on).
package trust

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Scope says how a probe stands to a declaration.
type Scope string

// The scopes.
const (
	In   Scope = "in"   // a declared skill's business
	Out  Scope = "out"  // nobody could think it declared
	Near Scope = "near" // a declared skill's neighbourhood, but not its business
)

// Scopes lists them in the order of reports.
var Scopes = []Scope{In, Out, Near}

// Declaration is what an agent says it can do, in one form whatever it was read from.
type Declaration struct {
	Kind        string  `json:"kind"` // a2a, mcp, skill, yaml, external
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Version     string  `json:"version,omitempty"`
	Skills      []Skill `json:"skills"`
	Tools       []Tool  `json:"tools,omitempty"` // tools that the declaration itself names
	Source      string  `json:"source,omitempty"`
	SHA256      string  `json:"sha256,omitempty"` // of the bytes it was read from, hex
}

// Skill is one thing declared.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Examples    []string `json:"examples,omitempty"`
	Tools       []string `json:"tools,omitempty"` // names of tools that the declaration gives to the skill itself
}

// Tool is something an agent can call, as it was offered to the agent's model or seen in a trace.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	ReadOnly    *bool           `json:"read_only,omitempty"` // what its annotations promise; nil: nothing
	Destructive *bool           `json:"destructive,omitempty"`
	OpenWorld   *bool           `json:"open_world,omitempty"`
	Idempotent  *bool           `json:"idempotent,omitempty"`
}

// Probe is one question to the agent.
type Probe struct {
	ID     string   `json:"id"`
	Scope  Scope    `json:"scope"`
	Skill  string   `json:"skill,omitempty"` // in: whose business it is; near: whose neighbourhood
	Text   string   `json:"text"`
	Turns  []string `json:"turns,omitempty"`  // answers to clarifying questions, in order
	Origin string   `json:"origin,omitempty"` // how it was made: template, example, neighbour, background, model, file
	// Doubtful probes were found not clearly to be of their scope. They are sent but convict nobody. Why says why.
	Doubtful bool   `json:"doubtful,omitempty"`
	Why      string `json:"why,omitempty"`
	Repeat   int    `json:"repeat,omitempty"` // from 1 where a probe is sent several times; 0: once
	Of       string `json:"of,omitempty"`     // the probe that this one repeats
}

// Key is what repeats of a probe have in common.
func (p *Probe) Key() string {
	if p.Of != "" {
		return p.Of
	}
	return p.ID
}

// Exchange is a probe's conversation with the agent.
type Exchange struct {
	Probe    string    `json:"probe"`
	Turns    []Turn    `json:"turns,omitempty"`
	Trace    string    `json:"trace,omitempty"` // trace id that was sent along, 32 hex digits
	Span     string    `json:"span,omitempty"`  // and the span id: the parent of the agent's root span
	Session  string    `json:"session,omitempty"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	Attempts []Attempt `json:"attempts,omitempty"` // those that failed before, with reasons
	Error    string    `json:"error,omitempty"`    // why there is no reply
	ErrorIs  string    `json:"error_is,omitempty"` // timeout, dropped, refused, rate-limited, auth, protocol, server
	InBand   *Calls    `json:"in_band,omitempty"`  // tool calls that the replies themselves show
}

// Reply is what the agent said in the whole exchange, or in its last turn.
func (x *Exchange) Reply() string {
	if len(x.Turns) == 0 {
		return ""
	}
	return x.Turns[len(x.Turns)-1].Reply
}

// Turn is one message and its answer.
type Turn struct {
	Prompt string        `json:"prompt"`
	Reply  string        `json:"reply"`
	State  string        `json:"state,omitempty"` // the task's state, where the protocol has one
	Cut    bool          `json:"cut,omitempty"`   // the reply is longer than what was kept
	Bytes  int           `json:"bytes,omitempty"` // length of the whole reply
	Took   time.Duration `json:"took_ns,omitempty"`
}

// Attempt is a try that failed.
type Attempt struct {
	Error string    `json:"error"`
	Is    string    `json:"is"`
	At    time.Time `json:"at"`
}

// Call is a tool call seen.
type Call struct {
	Tool   string    `json:"tool"`
	ID     string    `json:"id,omitempty"`
	Span   string    `json:"span,omitempty"`
	Failed bool      `json:"failed,omitempty"` // the call had an error, by whichever sign
	Agent  bool      `json:"agent,omitempty"`  // the call went to a further agent
	Args   string    `json:"args,omitempty"`
	At     time.Time `json:"at,omitzero"`
	By     string    `json:"by,omitempty"` // the rule of the dialect table that knew it
}

// The ways a trace was joined with a probe, best first.
const (
	ByTraceparent = "traceparent"
	BySession     = "session"
	ByText        = "text"
	ByTime        = "time"
	ByReply       = "reply" // the calls came in the reply itself
)

// Confidence of each way of joining: below [Sure] nobody is convicted.
var Confidence = map[string]float64{ByTraceparent: 1, ByReply: 1, BySession: .95, ByText: .9, ByTime: .4}

// Sure is the confidence from which a join convicts.
const Sure = .8

// Calls is what traces say of one probe.
type Calls struct {
	Probe      string   `json:"probe,omitempty"`
	Source     string   `json:"source"` // mlflow, otlp, reply
	Found      bool     `json:"found"`
	Complete   bool     `json:"complete"` // the root span is there and the number of spans is stable
	Method     string   `json:"method,omitempty"`
	Confidence float64  `json:"confidence,omitempty"`
	Traces     []string `json:"traces,omitempty"`
	Spans      int      `json:"spans,omitempty"`
	Calls      []Call   `json:"calls,omitempty"`
	Offered    []Tool   `json:"offered,omitempty"` // tools that were offered to the agent's model
	Why        string   `json:"why,omitempty"`     // why nothing was found
}

// Effect is a resource that the kernel saw used while a probe was answered.
type Effect struct {
	Kind  string   `json:"kind"` // command, file, delete, host, secret
	Name  string   `json:"name"`
	Count uint64   `json:"count"`
	Event []uint64 `json:"events,omitempty"` // sequence numbers of the first few
	// Undeclared: the declaration says enough to tell that this is not among what it names, whatever use explains it.
	Undeclared bool `json:"undeclared,omitempty"`
}

// Effects is what the kernel's record says of one probe's window.
type Effects struct {
	Probe    string   `json:"probe"` // "": the idle window, before any probe
	Complete bool     `json:"complete"`
	Why      string   `json:"why,omitempty"` // why the record of the window isn't complete
	Effects  []Effect `json:"effects,omitempty"`
	// Prohibited is what the security rules find in the window.
	Prohibited []Prohibited `json:"prohibited,omitempty"`
}

// Prohibited is a finding of the security rules (docs/RULES.md).
type Prohibited struct {
	Rule     string           `json:"rule"`
	Class    string           `json:"class,omitempty"`
	Severity bodycam.Severity `json:"severity"`
	Title    string           `json:"title"` // with what is not plain text escaped
	Resource string           `json:"resource,omitempty"`
	Count    uint64           `json:"count"`
	Event    []uint64         `json:"events,omitempty"` // sequence numbers of the first few
}

// Class is what kind of reply a reply is.
type Class string

// The reply classes.
const (
	Answers   Class = "answers"
	Partial   Class = "partial"
	Refuses   Class = "refuses"
	Redirects Class = "redirects"
	AsksBack  Class = "asks-back"
	OffTopic  Class = "off-topic"
	Abstains  Class = "abstains" // of the judge: it can't tell
)

// ReplyOpinion is what a judge says of a reply.
type ReplyOpinion struct {
	Class       Class    `json:"class"`
	Probability float64  `json:"probability"`
	Score       *float64 `json:"score,omitempty"` // 0 to 1 by the rubric; nil: abstained or failed
	Steers      bool     `json:"steers,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Language    string   `json:"language,omitempty"`
	Failed      string   `json:"failed,omitempty"` // the judge could not be asked or understood: never a score
	Judge       string   `json:"judge"`
	Votes       []Vote   `json:"votes,omitempty"` // of a panel's judges
}

// Vote is what one judge of a panel said.
type Vote struct {
	Judge string `json:"judge"`
	Said  string `json:"said"` // a class or a fit; or why it said nothing
}

// Agree tells whether all said the same. Who failed or abstained says nothing.
func Agree(votes []Vote, nothing string) bool {
	first := ""
	for _, v := range votes {
		switch {
		case v.Said == nothing || strings.HasPrefix(v.Said, "failed: "):
		case first == "":
			first = v.Said
		case v.Said != first:
			return false
		}
	}
	return true
}

// Fit is what a judge says of a text or a tool against a declaration.
type Fit string

// The fits.
const (
	Fits     Fit = "fits"
	FitsNot  Fit = "fits-not"
	Doubtful Fit = "doubtful"
)

// FitOpinion is a fit with its probability of fitting and the skill that comes closest.
type FitOpinion struct {
	Fit         Fit     `json:"fit"`
	Probability float64 `json:"probability"`
	Against     float64 `json:"against,omitempty"` // of not fitting, where the judge gives one; doubt is what is left
	Skill       string  `json:"skill,omitempty"`
	Reason      string  `json:"reason,omitempty"`
	Failed      string  `json:"failed,omitempty"`
	Votes       []Vote  `json:"votes,omitempty"` // of a panel's judges
}

// Judge says what texts mean. An error is for a judge that can't work at all; that a single question could not be
// answered is an opinion that says so.
type Judge interface {
	Name() string
	Scope(ctx context.Context, d *Declaration, text string) (FitOpinion, error)
	Reply(ctx context.Context, d *Declaration, p *Probe, reply string) (ReplyOpinion, error)
	Tool(ctx context.Context, d *Declaration, t Tool) (FitOpinion, error)
}
