package transcript

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam"
)

// list collects rows; every parser embeds one.
type list struct {
	o        Options
	rows     []bodycam.Row
	calls    map[string]int // open tool calls: id to row
	line     int            // lines seen
	total    int            // bytes of text kept
	overflow int            // lines that came after the last row
	raised   bool           // the current line holds bytes that aren't UTF-8
}

func newList(o Options) list {
	if o.MaxText <= 0 {
		o.MaxText = DefaultMaxText
	}
	if o.MaxRows <= 0 {
		o.MaxRows = DefaultMaxRows
	}
	if o.Source == "" {
		o.Source = "stdout"
	}
	return list{o: o, calls: map[string]int{}}
}

func (l *list) Rows() []bodycam.Row { return l.rows }

// add appends a row that began at the current line and returns its index.
func (l *list) add(at time.Time, r bodycam.Row) int {
	if len(l.rows) >= l.o.MaxRows {
		return l.spill(at)
	}
	r.Index, r.Arrived, r.Source, r.Line = len(l.rows), at, l.o.Source, l.line
	if !l.o.KeepReasoning {
		r.Reason = ""
	}
	r.CallID, r.Tool = clip(l.restore(r.CallID), 1<<10), clip(l.restore(r.Tool), 1<<10)
	r.Command = l.keep(r.Command, maxCommand, &r.Cut)
	r.Args = l.keep(r.Args, l.o.MaxText, &r.Cut)
	r.Text = l.keep(r.Text, l.o.MaxText, &r.Cut)
	r.Output = l.keep(r.Output, l.o.MaxText, &r.Cut)
	r.Reason = l.keep(r.Reason, l.o.MaxText, &r.Cut)
	if len(r.Files) > 1000 {
		r.Files, r.Cut = r.Files[:1000:1000], true
	}
	for i := range r.Files {
		r.Files[i] = l.keep(r.Files[i], 4096, &r.Cut)
	}
	l.rows = append(l.rows, r)
	if r.CallID != "" && r.Kind == bodycam.RowTool {
		l.calls[r.CallID] = r.Index
	}
	return r.Index
}

// spill counts what no row can hold any more.
func (l *list) spill(at time.Time) int {
	l.overflow++
	last := len(l.rows) - 1
	if l.overflow == 1 {
		l.rows = append(l.rows, bodycam.Row{Index: last + 1, Kind: bodycam.RowMeta, Arrived: at, Source: l.o.Source, Line: l.line, Cut: true})
		last++
	}
	r := &l.rows[last]
	r.Text, r.Ended = fmt.Sprintf("%d more rows were not kept: the transcript has more than %d", l.overflow, l.o.MaxRows), at
	return last
}

// keep cuts a text to what is kept of it. What is cut is marked.
func (l *list) keep(s string, limit int, wasCut *bool) string {
	s = l.restore(s)
	limit = min(limit, maxTotal-l.total)
	if len(s) > limit {
		s, *wasCut = clip(s, limit), true
	}
	l.total += len(s)
	return s
}

// clip cuts at a rune boundary. The result doesn't hold on to the whole.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	limit = max(limit, 0)
	for i := 0; i < utf8.UTFMax-1 && limit > 0 && !utf8.RuneStart(s[limit]); i++ {
		limit--
	}
	return strings.Clone(s[:limit])
}

// result notes the answer to a tool call. An answer to no call becomes a row of its own.
func (l *list) result(at time.Time, id, output string, exit *int, failed bool) {
	id = clip(l.restore(id), 1<<10)
	i, ok := l.calls[id]
	if !ok || id == "" {
		l.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: "result of an unknown call " + id, Output: output, Exit: exit, Failed: failed})
		return
	}
	l.finish(at, i, output, exit, failed)
}

// finish puts the answer into a row. A second answer replaces the first.
func (l *list) finish(at time.Time, i int, output string, exit *int, failed bool) {
	if l.overflow > 0 && i == len(l.rows)-1 {
		return // the row that counts the rest
	}
	r := &l.rows[i]
	l.total -= len(r.Output)
	r.Output = l.keep(output, l.o.MaxText, &r.Cut)
	r.Ended, r.Exit, r.Failed = at, exit, failed
}

// raw keeps a line that the format gives no meaning to.
func (l *list) raw(at time.Time, line []byte) {
	l.raised = false
	wasCut := len(line) > l.o.MaxText
	if wasCut {
		line = line[:l.o.MaxText]
	}
	l.add(at, bodycam.Row{Kind: bodycam.RowMeta, Text: string(line), Cut: wasCut})
}

// JSON strings are Unicode, but agents print bytes. encoding/json would replace every byte that isn't UTF-8 by
// U+FFFD; so those bytes are raised to the last 128 code points, which no text uses, and brought back by restore.
const raise = 0x10ff00

// decode reads one line of JSON into v.
func (l *list) decode(line []byte, v any) error {
	l.raised = !utf8.Valid(line)
	if l.raised {
		var b strings.Builder
		b.Grow(len(line) + 64)
		for i := 0; i < len(line); {
			r, n := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError && n == 1 {
				r = raise + rune(line[i])
			}
			b.WriteRune(r)
			i += n
		}
		line = []byte(b.String())
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("line %d: %w", l.line, err)
	}
	return nil
}

func (l *list) restore(s string) string {
	if !l.raised {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= raise+0x80 && r <= raise+0xff {
			b.WriteByte(byte(r - raise))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// text reads content in whichever form a format gives it: a string, or parts of which some are text.
func text(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var out []string
	for _, p := range parts {
		var part struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		switch {
		case json.Unmarshal(p, &s) == nil:
			out = append(out, s)
		case json.Unmarshal(p, &part) == nil && part.Text != nil:
			out = append(out, *part.Text)
		case part.Type == "image" || part.Type == "input_image":
			out = append(out, "["+part.Type+"]")
		default:
			out = append(out, string(p))
		}
	}
	return strings.Join(out, "\n")
}

// clock reads a time as transcripts write it: RFC 3339 with or without a zone, or seconds since 1970.
func clock(raw json.RawMessage) time.Time {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"} {
			if t, err := time.Parse(layout, s); err == nil {
				return valid(t)
			}
		}
		return time.Time{}
	}
	var f float64
	if json.Unmarshal(raw, &f) != nil || f <= 0 || f > 1e14 {
		return time.Time{}
	}
	if f > 1e11 { // milliseconds
		f /= 1000
	}
	sec := int64(f)
	return valid(time.Unix(sec, int64((f-float64(sec))*1e9)).UTC())
}

// valid drops times that JSON can't hold.
func valid(t time.Time) time.Time {
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
