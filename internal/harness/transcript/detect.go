package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// New returns a parser for a format.
func New(f Format, o Options) (Parser, error) {
	l := newList(o)
	switch f {
	case CodexExec:
		return &codexExec{l}, nil
	case CodexRollout:
		return &codexRollout{l}, nil
	case Rows:
		return &rowReader{l}, nil
	case Claude:
		return &claude{l}, nil
	case Gemini:
		return &gemini{list: l}, nil
	case SWEAgent:
		return &document{list: l, read: readSWEAgent}, nil
	case MiniSWE:
		return &document{list: l, read: readMiniSWE}, nil
	case OpenHands:
		return &document{list: l, read: readOpenHands}, nil
	case ATIF:
		return &document{list: l, read: readATIF}, nil
	case Lines, "":
		return &lines{l}, nil
	}
	return nil, fmt.Errorf("unknown transcript format %q: there are %s", f, formatNames())
}

// Formats lists all formats.
func Formats() []Format {
	return []Format{CodexExec, CodexRollout, Rows, Claude, Gemini, SWEAgent, MiniSWE, OpenHands, ATIF, Lines}
}

func formatNames() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// ErrUnknownFormat says that a file is no transcript that this package knows. The caller can name a format.
var ErrUnknownFormat = errors.New("not a transcript of a known format")

// Detect tells a transcript's format by its content. Give it the whole file where there is one; the first lines of a
// stream do too.
func Detect(data []byte) (Format, error) {
	for n, rest := 0, data; n < 50 && len(rest) > 0; n++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
			continue
		}
		if f := lineFormat(line); f != "" {
			return f, nil
		}
	}
	if f := documentFormat(bytes.TrimSpace(data)); f != "" {
		return f, nil
	}
	return "", fmt.Errorf("%w: known are %s", ErrUnknownFormat, formatNames())
}

// probe has the keys by which formats differ.
type probe struct {
	Type        string          `json:"type"`
	Event       string          `json:"event"`
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload"`
	Timestamp   json.RawMessage `json:"timestamp"`
	ThreadID    string          `json:"thread_id"`
	Item        json.RawMessage `json:"item"`
	Subtype     string          `json:"subtype"`
	SessionID   string          `json:"session_id"`
	SessionID2  string          `json:"sessionId"`
	Message     json.RawMessage `json:"message"`
	Role        string          `json:"role"`
	ToolID      string          `json:"tool_id"`
	Schema      string          `json:"schema_version"`
	Steps       json.RawMessage `json:"steps"`
	Messages    json.RawMessage `json:"messages"`
	Trajectory  json.RawMessage `json:"trajectory"`
	TrajFormat  string          `json:"trajectory_format"`
	History     json.RawMessage `json:"history"`
	Environment json.RawMessage `json:"environment"`
	Info        json.RawMessage `json:"info"`
}

func lineFormat(line []byte) Format {
	var p probe
	if json.Unmarshal(line, &p) != nil {
		return ""
	}
	switch {
	case p.Payload != nil && p.Type != "" && p.Timestamp != nil:
		return CodexRollout
	case strings.HasPrefix(p.Type, "thread.") || strings.HasPrefix(p.Type, "turn.") || strings.HasPrefix(p.Type, "item."):
		return CodexExec
	case p.Event == "start" || p.Event == "row" || p.Event == "end":
		return Rows
	case isOpenHands(line):
		return OpenHands
	case p.Type == "system" && p.Subtype != "", (p.Type == "assistant" || p.Type == "user") && p.Message != nil,
		(p.Type == "queue-operation" || p.Type == "file-history-snapshot" || p.Type == "summary") && (p.SessionID2 != "" || p.Message != nil):
		return Claude
	case p.Type == "init" && p.SessionID != "", p.Type == "message" && p.Role != "" && p.Timestamp != nil,
		(p.Type == "tool_use" || p.Type == "tool_result") && p.ToolID != "":
		return Gemini
	}
	return p.document()
}

// document tells formats that are one object.
func (p *probe) document() Format {
	switch {
	case strings.HasPrefix(p.Schema, "ATIF"):
		return ATIF
	case strings.HasPrefix(p.TrajFormat, "mini-swe-agent"), p.Messages != nil && p.Info != nil && p.Trajectory == nil:
		return MiniSWE
	case p.Trajectory != nil && isSWEStep(p.Trajectory):
		return SWEAgent
	case isOpenHandsList(p.History), isOpenHandsList(p.Trajectory):
		return OpenHands
	}
	return ""
}

func documentFormat(data []byte) Format {
	if len(data) == 0 {
		return ""
	}
	if data[0] == '[' {
		if isOpenHandsList(data) {
			return OpenHands
		}
		return ""
	}
	if data[0] != '{' {
		return ""
	}
	var p probe
	if json.Unmarshal(data, &p) == nil {
		return p.document()
	}
	return brokenFormat(data)
}

// brokenFormat tells the format of a document that breaks off, by its first keys.
func brokenFormat(data []byte) Format {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return ""
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return ""
		}
		rest := data[dec.InputOffset():]
		switch key {
		case "schema_version":
			if bytes.Contains(rest[:min(len(rest), 20)], []byte("ATIF")) {
				return ATIF
			}
		case "trajectory":
			return SWEAgent
		case "messages":
			return MiniSWE
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return ""
		}
	}
	return ""
}

func firstOf(raw json.RawMessage) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('[') || !dec.More() {
		return nil
	}
	var first json.RawMessage
	if dec.Decode(&first) != nil {
		return nil
	}
	return first
}

func isOpenHandsList(raw json.RawMessage) bool { return isOpenHands(firstOf(raw)) }

func isSWEStep(raw json.RawMessage) bool {
	var s struct {
		Action      *string `json:"action"`
		Observation *string `json:"observation"`
		Source      *string `json:"source"`
	}
	return json.Unmarshal(firstOf(raw), &s) == nil && s.Action != nil && s.Observation != nil && s.Source == nil
}

// Parse reads a whole transcript file. at is when the recorder had it; rows of a file have no better arrival time.
// Format may be empty: it is then told by the content.
func Parse(data []byte, f Format, at time.Time, o Options) (Format, []bodycam.Row, error) {
	if f == "" {
		var err error
		if f, err = Detect(data); err != nil {
			return "", nil, err
		}
	}
	if o.Source == "" {
		o.Source = "session file"
	}
	p, err := New(f, o)
	if err != nil {
		return "", nil, err
	}
	for line := range bytes.Lines(data) {
		_ = p.Line(at, bytes.TrimRight(line, "\r\n")) // its text is in a row
	}
	return f, p.Finish(at), nil
}

// MaxLine is the longest line that Scan hands on whole.
const MaxLine = 64 << 20

// Scan feeds a stream to a parser, line by line, with the time at which each line was complete, until the stream
// ends. Lines longer than MaxLine are cut. The error is the stream's.
func Scan(r io.Reader, p Parser, now func() time.Time) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if room := MaxLine - len(line); len(part) > room {
			part = part[:room]
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) > 0 || err == nil {
			_ = p.Line(now(), bytes.TrimRight(line, "\r\n")) // its text is in a row
		}
		if cap(line) > 1<<20 {
			line = nil
		}
		line = line[:0]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read transcript: %w", err)
		}
	}
}
