package trace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func exchange(id, trace, session string, at time.Duration) *trust.Exchange {
	return &trust.Exchange{Probe: id, Trace: trace, Session: session, Started: t0.Add(at), Ended: t0.Add(at + 2*time.Second)}
}

func span(trace, id, parent string, at time.Duration, attrs map[string]any) otlp.Span {
	return otlp.Span{Trace: trace, ID: id, Parent: parent, Name: "s", Start: t0.Add(at), End: t0.Add(at + time.Millisecond), Attrs: attrs}
}

func TestCorrelate(t *testing.T) {
	probes := map[string]*trust.Probe{}
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		probes[id] = &trust.Probe{ID: id, Text: "a question of its own: " + id}
	}
	xs := []*trust.Exchange{exchange("a", "t-a", "s-a", 0), exchange("b", "", "s-b", 0), exchange("c", "", "s-c", time.Minute),
		exchange("d", "", "s-d", 2*time.Minute), exchange("e", "", "s-e", 3*time.Minute), exchange("f", "", "s-f", 3*time.Minute)}
	tool := map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather"}
	conv := func(id string, at time.Duration, spans ...otlp.Span) Conversation {
		return Conversation{ID: id, Spans: spans, Start: t0.Add(at)}
	}
	list := []Conversation{
		conv("t-a", time.Second, span("t-a", "1", "", time.Second, nil), span("t-a", "2", "1", time.Second, tool)),
		conv("t-b", time.Second, span("t-b", "1", "", time.Second, map[string]any{"session.id": "s-b"})),
		conv("t-c", time.Minute, span("t-c", "1", "", time.Minute, map[string]any{"input.value": `{"messages":[{"content":"A question  of its own: c"}]}`})),
		conv("t-d", 2*time.Minute, span("t-d", "1", "", 2*time.Minute, nil)),
		conv("t-ef", 3*time.Minute, span("t-ef", "1", "", 3*time.Minute, tool)), // two probes at that time: nobody's
		conv("t-old", -time.Hour, span("t-old", "1", "", -time.Hour, tool)),
	}
	got := Correlate("otlp", probes, xs, list)
	for id, want := range map[string]string{"a": trust.ByTraceparent, "b": trust.BySession, "c": trust.ByText, "d": trust.ByTime, "e": "", "f": ""} {
		c := got[id]
		if c.Method != want || c.Found != (want != "") || c.Confidence != trust.Confidence[want] || !c.Found && c.Why == "" {
			t.Errorf("%s: %+v", id, c)
		}
	}
	if c := got["a"].Calls; len(c) != 1 || c[0].Tool != "get_weather" {
		t.Errorf("%+v", c)
	}
}

type slow struct {
	n atomic.Int32
	f func(n int32) []Conversation
}

func (s *slow) Name() string { return "slow" }
func (s *slow) Conversations(context.Context, time.Time) ([]Conversation, error) {
	return s.f(s.n.Add(1)), nil
}

func TestWait(t *testing.T) {
	probes := map[string]*trust.Probe{"a": {ID: "a", Text: "x"}}
	xs := []*trust.Exchange{exchange("a", "t-a", "", 0)}
	// The root span comes third, and only then the trace is whole.
	s := &slow{f: func(n int32) []Conversation {
		var spans []otlp.Span
		for i := range min(n, 3) {
			parent := "root"
			id := fmt.Sprint(i)
			if i == 2 {
				id, parent = "root", ""
			}
			spans = append(spans, span("t-a", id, parent, 0, nil))
		}
		if n > 1 && n < 3 {
			spans[0].Parent = "0" // no root by accident: a ring of one
		}
		return []Conversation{{ID: "t-a", Spans: spans, Start: t0}}
	}}
	got, err := Wait(t.Context(), s, probes, xs, 20*time.Second)
	if err != nil || !got["a"].Complete || got["a"].Spans != 3 {
		t.Errorf("%+v %v", got["a"], err)
	}
	// Never.
	got, err = Wait(t.Context(), &slow{f: func(int32) []Conversation { return nil }}, probes, xs, 300*time.Millisecond)
	if err != nil || got["a"].Found || got["a"].Why == "" {
		t.Errorf("%+v %v", got["a"], err)
	}
	// Still growing at the end.
	s = &slow{f: func(n int32) []Conversation {
		spans := []otlp.Span{span("t-a", "root", "", 0, nil)}
		for i := range n {
			spans = append(spans, span("t-a", fmt.Sprint(i), "root", 0, nil))
		}
		return []Conversation{{ID: "t-a", Spans: spans, Start: t0}}
	}}
	if got, err = Wait(t.Context(), s, probes, xs, 600*time.Millisecond); err != nil || got["a"].Complete {
		t.Errorf("%+v %v", got["a"], err)
	}
}

func TestStore(t *testing.T) {
	var s Store
	s.Sink([]otlp.Span{span("t", "1", "", 0, nil)}, []otlp.Log{{Time: t0, Name: "gemini_cli.tool_call", Attrs: map[string]any{"session.id": "s-1", "function_name": "shell"}}})
	s.Sink([]otlp.Span{span("t", "2", "1", -time.Second, nil)}, []otlp.Log{{Name: "x"}})
	list, err := s.Conversations(t.Context(), t0.Add(-time.Minute))
	if err != nil || len(list) != 2 || list[0].ID != "session:s-1" || len(list[1].Spans) != 2 || !list[1].Start.Equal(t0.Add(-time.Second)) {
		t.Errorf("%v %+v", err, list)
	}
	if list, _ := s.Conversations(t.Context(), t0.Add(time.Hour)); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// A store that keeps what it receives has it again after a crash, but for a line that was cut off, and what it says of
// calls is the same.
func TestStoreKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "traces.jsonl")
	var s Store
	failed := map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "shell", "mcp.tool.result.is_error": true, "n": int64(1) << 60, "list": []any{"a", 1.5}}
	s.Sink([]otlp.Span{span("t", "0", "", 0, nil)}, nil) // before there is a file
	if err := s.Keep(path); err != nil {
		t.Fatal(err)
	}
	s.Sink([]otlp.Span{span("t", "1", "0", 0, failed)}, []otlp.Log{{Trace: "t", Time: t0, Name: "gemini_cli.tool_call", Attrs: map[string]any{"function_name": "ls"}}})
	if err := s.Keep(path); err == nil {
		t.Error("kept in two files")
	}
	want, err := s.Conversations(t.Context(), t0.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"spans":[{"trace":"t","id":"cut`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for range 2 { // the second time nothing is cut off
		var again Store
		if err := again.Keep(path); err != nil {
			t.Fatal(err)
		}
		got, err := again.Conversations(t.Context(), t0.Add(-time.Minute))
		if err != nil || len(got) != 1 || len(got[0].Spans) != 2 || len(got[0].Logs) != 1 {
			t.Fatalf("%v %+v", err, got)
		}
		a, b := otlp.Read(got[0].Spans, got[0].Logs), otlp.Read(want[0].Spans, want[0].Logs)
		if !reflect.DeepEqual(a.Calls, b.Calls) || len(a.Calls) != 2 || !a.Calls[0].Failed && !a.Calls[1].Failed {
			t.Errorf("%+v, before %+v", a.Calls, b.Calls)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		again.Sink([]otlp.Span{span("t", "late", "0", 0, nil)}, nil) // isn't kept any more
	}
	if err := os.WriteFile(path, []byte("no JSON\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(Store).Keep(path); err == nil {
		t.Error("garbage was taken up")
	}
}

// A try that failed has a trace of its own, whose parent nobody knows any more. What it did counts, and that its root isn't
// to be seen doesn't make the probe's trace incomplete.
func TestFailedTries(t *testing.T) {
	x := exchange("a", "t-2", "", 0)
	x.Span = "asked"
	probes := map[string]*trust.Probe{"a": {ID: "a", Text: "what is the weather"}}
	text := map[string]any{"input.value": "what is the weather"}
	tool := map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "shell"}
	list := []Conversation{
		{ID: "t-1", Start: t0, Spans: []otlp.Span{span("t-1", "1", "gone", 0, text), span("t-1", "2", "1", 0, tool)}},
		{ID: "t-2", Start: t0, Spans: []otlp.Span{span("t-2", "3", "asked", 0, text)}},
	}
	c := Correlate("otlp", probes, []*trust.Exchange{x}, list)["a"]
	if !c.Complete || len(c.Calls) != 1 || c.Calls[0].Tool != "shell" || len(c.Traces) != 2 {
		t.Errorf("%+v", c)
	}
	if c := Correlate("otlp", probes, []*trust.Exchange{x}, list[:1])["a"]; c.Complete {
		t.Errorf("without its own trace: %+v", c)
	}
}

// A probe whose text is part of another's, sent at the same time, is told from it.
func TestTextWithinText(t *testing.T) {
	xs := []*trust.Exchange{exchange("a", "", "", 0), exchange("b", "", "", 0)}
	probes := map[string]*trust.Probe{"a": {ID: "a", Text: "What is the weather?"}, "b": {ID: "b", Text: "Hello! What is the weather?"}}
	var list []Conversation
	for _, p := range []string{"a", "b"} {
		list = append(list, Conversation{ID: "t-" + p, Start: t0, Spans: []otlp.Span{span("t-"+p, "1", "", 0, map[string]any{"input.value": probes[p].Text})}})
	}
	got := Correlate("otlp", probes, xs, list)
	for _, p := range []string{"a", "b"} {
		if c := got[p]; !slices.Equal(c.Traces, []string{"t-" + p}) || c.Method != trust.ByText {
			t.Errorf("%s: %+v", p, c)
		}
	}
}

// Whatever stands in a store's file, it is taken up or refused, and taken up alike a second time.
func FuzzKeep(f *testing.F) {
	f.Add([]byte(`{"spans":[{"trace":"t","id":"1","name":"x","start":"2026-11-30T12:00:00Z"}]}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "traces.jsonl")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var s, again Store
		if err := s.Keep(path); err != nil {
			return
		}
		list, err := s.Conversations(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		Correlate("otlp", nil, []*trust.Exchange{exchange("a", "t", "", 0)}, list)
		if err := errors.Join(s.Close(), again.Keep(path)); err != nil {
			t.Fatalf("taken up once, and not again: %v", err)
		}
		if got, err := again.Conversations(t.Context(), time.Time{}); err != nil || len(got) != len(list) {
			t.Fatalf("%d conversations, then %d: %v", len(list), len(got), err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A sender that floods doesn't end the audit: its trace is incomplete, and what it shows counts.
func TestFlood(t *testing.T) {
	var s Store
	spans := []otlp.Span{span("t-a", "root", "", 0, nil), span("t-a", "1", "root", 0, map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "shell"})}
	for i := range mostSpans {
		spans = append(spans, span("t-a", fmt.Sprint("s", i), "root", 0, nil))
	}
	s.Sink(spans, nil)
	list, err := s.Conversations(t.Context(), t0.Add(-time.Minute))
	if err != nil || len(list) != 1 || len(list[0].Spans) != mostSpans {
		t.Fatalf("%v, %d conversations", err, len(list))
	}
	c := Correlate("otlp", map[string]*trust.Probe{"a": {ID: "a", Text: "x"}}, []*trust.Exchange{exchange("a", "t-a", "", 0)}, list)["a"]
	if c.Complete || len(c.Calls) != 1 || !strings.Contains(c.Why, "more spans") {
		t.Errorf("complete %v, %d calls: %s", c.Complete, len(c.Calls), c.Why)
	}
}
