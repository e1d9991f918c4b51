// Package transcript reads the accounts that agents give of themselves: what a harness prints while it runs, and
// the files that it leaves. Every format becomes the same rows ([bodycam.Row]).
//
// A transcript is a claim by the observed side. Nothing in it is trusted: not its clock, not its exit codes. Each
// row keeps the recorder's own time of the line (Arrived, Ended) apart from the transcript's (Claimed).
//
// Nothing is lost silently. A line that can't be understood becomes a row of kind [bodycam.RowMeta] with its text,
// cut where it is longer than [Options.MaxText]; so does a line of a type that the format doesn't know but that
// carries text. Reasoning text is left out unless [Options.KeepReasoning] is set.
package transcript

import (
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Format names a transcript format.
type Format string

// The formats.
const (
	CodexExec    Format = "codex-exec"    // codex exec --json, standard output
	CodexRollout Format = "codex-rollout" // $CODEX_HOME/sessions/**/rollout-*.jsonl
	Rows         Format = "rows"          // bodycam's own: one row or row update a line (builtin, replay)
	Claude       Format = "claude"        // Claude Code: stream-json, and its session files
	Gemini       Format = "gemini"        // Gemini CLI: stream-json
	SWEAgent     Format = "swe-agent"     // .traj, one JSON document
	MiniSWE      Format = "mini-swe-agent"
	OpenHands    Format = "openhands" // event array, or one event a line
	ATIF         Format = "atif"      // Harbor's Agent Trajectory Interchange Format 1.0 to 1.7, one JSON document
	Lines        Format = "lines"     // no format: each JSON line, and each other line, is a row of kind meta
)

// Options say what of a transcript is kept.
type Options struct {
	KeepReasoning bool
	MaxText       int    // most bytes of one Text, Args or Output; 0 means DefaultMaxText
	MaxRows       int    // most rows; the lines after them are counted in one last row. 0 means DefaultMaxRows
	Source        string // Row.Source of every row; "" means "stdout"
	// Started is when the program was started, on the recorder's clock, where the reader knows it.
	Started time.Time
}

// The limits where Options doesn't say. They bound what an agent that floods its output costs.
const (
	DefaultMaxText = 64 << 10
	DefaultMaxRows = 100_000
	maxCommand     = 256 << 10 // a command is kept whole as far as an argument of execve may be long, and then some
	maxTotal       = 256 << 20 // bytes of text in all rows of one transcript
	maxDocument    = 512 << 20 // bytes of a transcript that is one JSON document
)

// Parser reads one transcript. It isn't safe for concurrent use.
type Parser interface {
	// Line takes the next line, without its line feed, and when the recorder saw it. The bytes may be used again
	// after the call. The error says what about the line wasn't understood; a row holds its text even then, so a
	// caller that only wants the rows may ignore it.
	Line(at time.Time, line []byte) error
	// Finish ends the transcript and returns all rows. Formats that are one document are read here.
	Finish(at time.Time) []bodycam.Row
	// Rows returns the rows so far. A row may still get its output later. The slice is the parser's.
	Rows() []bodycam.Row
}
