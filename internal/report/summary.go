// Package report turns values into bytes for people and programs: text, JSON and, with later analyses, SARIF, JUnit and HTML. It reads and decides nothing.
package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Summary is what `bodycam show` says of a run.
type Summary struct {
	Run       bodycam.Run       `json:"run"`
	Dir       string            `json:"dir"`
	Unusual   []Unusual         `json:"unusual"`
	Findings  []bodycam.Finding `json:"findings"`
	Commands  []Line            `json:"commands"`
	Read      []Line            `json:"files_read"`
	Written   []Line            `json:"files_written"`
	Hosts     []Line            `json:"hosts"`
	Apart     map[string]int    `json:"apart"` // what is counted but not listed: harness state, system files
	Account   Account           `json:"account"`
	NotSeen   []string          `json:"not_seen"`
	Completed bool              `json:"complete"`
	// Unsealed names what isn't what was sealed, and why.
	Unsealed []string `json:"unsealed,omitempty"`
	// LastWords is the last line of the standard error of an agent that failed.
	LastWords string `json:"last_words,omitempty"`
	// NotStarted tells that the agent's program never ran.
	NotStarted bool `json:"not_started,omitempty"`
}

// Unusual is one line of what stands out.
type Unusual struct {
	Rank   int    `json:"rank"`
	What   string `json:"what"`
	Why    string `json:"why"`
	By     string `json:"by,omitempty"` // programs
	Row    string `json:"row,omitempty"`
	Count  uint64 `json:"count,omitempty"`
	Failed bool   `json:"failed,omitempty"` // tried in vain
}

// Line is one resource.
type Line struct {
	Name    string            `json:"name"`
	Count   uint64            `json:"count"`
	Failed  uint64            `json:"failed,omitempty"`
	Actions map[string]uint64 `json:"actions,omitempty"`
	Note    string            `json:"note,omitempty"`
	Addrs   []string          `json:"addrs,omitempty"`
	Known   string            `json:"known_by,omitempty"` // how a host's name is known
	Bytes   uint64            `json:"bytes,omitempty"`
}

// Account holds the transcript against the record, in counts.
type Account struct {
	Rows       int    `json:"rows"`
	ToolCalls  int    `json:"tool_calls"`
	Linked     int    `json:"linked"`     // tool calls that the record bears out
	Unborne    int    `json:"unborne"`    // tool calls that claim an effect and have no event
	NotRun     int    `json:"not_run"`    // tool calls of which the transcript itself says that they failed without having run
	Commands   uint64 `json:"commands"`   // programs that were started in the agent's window
	Unlinked   int    `json:"unlinked"`   // process trees that no row explains
	Startup    int    `json:"startup"`    // those of them that began before the first tool call: the harness's own, most likely
	Transcript bool   `json:"transcript"` // there is one
}

// text writes with colours, or without.
type text struct {
	w      io.Writer
	colour bool
	err    error
}

func (t *text) f(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *text) paint(code, s string) string {
	if !t.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *text) head(s string) { t.f("\n%s\n", t.paint("1", s)) }

const most = 12 // lines of each kind; the rest is counted

// Text writes the summary for a screen. all lists every line.
func (s *Summary) Text(w io.Writer, colour, all bool) error {
	t := &text{w: w, colour: colour}
	s.header(t)
	s.unusual(t, all)
	s.list(t, "COMMANDS", s.Commands, all)
	s.list(t, "FILES WRITTEN", s.Written, all)
	s.list(t, "FILES READ", s.Read, all)
	s.list(t, "HOSTS", s.Hosts, all)
	s.account(t)
	if len(s.NotSeen) > 0 {
		t.head("LOST OR NOT SEEN")
		for _, n := range s.NotSeen {
			t.f("  %s\n", bodycam.Printable(n))
		}
	}
	return t.err
}

func (s *Summary) header(t *text) {
	r := &s.Run
	t.f("%s  task %s  agent %s", t.paint("1", r.ID), bodycam.Printable(r.Task.Name), bodycam.Printable(r.Agent.Harness))
	if r.Agent.Version != "" {
		t.f(" %s", bodycam.Printable(r.Agent.Version))
	}
	if r.Agent.Model != "" {
		t.f("  model %s", bodycam.Printable(r.Agent.Model))
	}
	t.f("  kind %s\n", r.Kind)
	if r.Error != "" {
		t.f("  %s     %s\n", t.paint("31", "failed"), bodycam.Printable(strings.TrimPrefix(r.Error, "the environment failed: ")))
	}
	t.f("  tests      %s\n", outcome(t, r.Outcome))
	for _, p := range r.Phases {
		if p.Name != "agent" {
			continue
		}
		t.f("  agent      %s\n", phase(t, p))
		if s.LastWords != "" {
			t.f("             its last words: %s\n", bodycam.Printable(s.LastWords))
		}
	}
	c := r.Complete
	record := t.paint("32", "complete")
	switch {
	case r.Ended.IsZero():
		record = t.paint("33", "cut off, or still being written")
	case !c.Complete:
		record = t.paint("33", "INCOMPLETE: "+bodycam.Printable(strings.Join(c.Reasons, "; ")))
	}
	if len(s.Unsealed) > 0 {
		record = t.paint("31", "NOT WHAT WAS SEALED: "+bodycam.Printable(strings.Join(s.Unsealed, "; "))) + "; besides " + record
	}
	var lost uint64
	var names []string
	for _, h := range r.Sensors {
		lost += h.Total.Lost
		n := h.Sensor
		if h.Backend != "" {
			n += "/" + h.Backend
		}
		names = append(names, n)
	}
	told := thousands(lost) + " lost"
	switch {
	case r.Ended.IsZero(): // the sensors give their account at the end
		told, names = "how many were lost isn't known", []string{"no sensor gave its account"}
	case len(names) == 0:
		names = []string{"no sensor"}
	}
	t.f("  record     %s: %s events for %s calls, %s (%s)\n", record, thousands(r.Counts.Events), thousands(r.Counts.Calls), told, strings.Join(names, ", "))
	e := r.Environment
	t.f("  isolation  base %s, network %s, seccomp %s", e.Base, e.Network, e.Seccomp)
	t.f("\n")
	if g := r.Guard; g != nil {
		t.f("  refused    %s of %s opens and executions that the kernel asked about\n", thousands(g.Refused), thousands(g.Asked))
	}
	for i, w := range e.Weaker {
		if i == 0 {
			t.f("  weaker here")
		}
		t.f("%s %s\n", strings.Repeat(" ", 1+11*min(i, 1)), w)
	}
	if n := len(r.Unhonoured); n > 0 {
		t.f("  environment %s\n", t.paint("33", fmt.Sprintf("%d instruction(s) not honoured", n)))
		for i, u := range r.Unhonoured {
			if i == 3 {
				t.f("      … and %d more: see run.json\n", n-i)
				break
			}
			t.f("      %s: %s: %s\n", u.Where, bodycam.Printable(u.Instruction), bodycam.Printable(u.Why))
		}
	}
}

func outcome(t *text, o bodycam.Outcome) string {
	s := o.Status
	switch o.Status {
	case bodycam.OutcomePass:
		s = t.paint("32", "pass")
	case bodycam.OutcomeFail:
		s = t.paint("31", "fail")
	case bodycam.OutcomeNone:
		s = "none (the task has no tests)"
	case bodycam.OutcomeError:
		s = t.paint("31", "error") + ": " + bodycam.Printable(o.Error)
	case "":
		s = "not run"
	}
	if o.Reward != nil {
		s += fmt.Sprintf(" (reward %g)", *o.Reward)
	}
	return s
}

func phase(t *text, p bodycam.Phase) string {
	if p.Ended.IsZero() {
		return "did not end"
	}
	var s string
	switch {
	case p.TimedOut:
		s = t.paint("31", "timed out")
	case p.Exit == nil && p.Error != "":
		return t.paint("31", "not started")
	case p.Error != "":
		s = t.paint("31", bodycam.Printable(p.Error))
	case p.Signal != "":
		s = t.paint("31", "ended by a signal: "+p.Signal)
	case p.Exit != nil:
		s = fmt.Sprintf("exit %d", *p.Exit)
		if *p.Exit != 0 {
			s = t.paint("31", s)
		}
	default:
		return "did not end"
	}
	return s + " after " + p.Ended.Sub(p.Started).Round(10*time.Millisecond).String()
}

func (s *Summary) unusual(t *text, all bool) {
	if len(s.Findings) > 0 {
		t.head("FINDINGS")
		for i, f := range s.Findings {
			if i == most && !all {
				t.f("  … and %d more (--all)\n", len(s.Findings)-i)
				break
			}
			t.f("  %s %s", severity(t, f.Severity), bodycam.Printable(f.Title))
			if f.Count > 1 {
				t.f(" ×%d", f.Count)
			}
			t.f("  %s\n", t.paint("2", cause(&f, s.Account.Transcript)))
		}
	}
	if len(s.Unusual) == 0 {
		return
	}
	t.head("UNUSUAL")
	for i, u := range s.Unusual {
		if i == most && !all {
			t.f("  … and %d more (--all)\n", len(s.Unusual)-i)
			break
		}
		mark := t.paint("33", "!")
		if u.Rank >= 80 {
			mark = t.paint("31", "‼")
		}
		t.f("  %s %s  %s", mark, bodycam.Printable(u.What), t.paint("2", bodycam.Printable(u.Why)))
		if u.Count > 1 {
			t.f(" ×%d", u.Count)
		}
		if u.By != "" {
			t.f("  by %s", bodycam.Printable(u.By))
		}
		if u.Row != "" {
			t.f("  [%s]", bodycam.Printable(u.Row))
		}
		t.f("\n")
	}
}

// cause says what the agent said of a finding, and which rule found it.
func cause(f *bodycam.Finding, transcript bool) string {
	by := "[" + bodycam.Printable(f.Rule) + "]"
	switch {
	case f.Suppressed != "":
		return by + " suppressed: " + bodycam.Printable(f.Suppressed)
	case f.Row != nil && f.RowText != "":
		const most = 60
		text := f.RowText
		if len(text) > most {
			text = text[:most] + "…"
		}
		return fmt.Sprintf("%s by row %d: %s", by, *f.Row, bodycam.Printable(text))
	case f.Row != nil:
		return fmt.Sprintf("%s by row %d", by, *f.Row)
	case f.Analysis == "security" && transcript:
		return by + " the agent said nothing of this"
	}
	return by
}

func severity(t *text, s bodycam.Severity) string {
	code := map[bodycam.Severity]string{bodycam.Critical: "1;31", bodycam.High: "31", bodycam.Medium: "33", bodycam.Low: "36", bodycam.Info: "2"}[s]
	return t.paint(code, fmt.Sprintf("%-8s", s))
}

func (s *Summary) list(t *text, title string, lines []Line, all bool) {
	apart := s.Apart[title]
	if len(lines) == 0 && apart == 0 {
		return
	}
	head := fmt.Sprintf("%s (%d", title, len(lines))
	switch {
	case apart > 0 && title == "COMMANDS":
		head += fmt.Sprintf(", and %d paths where a program was looked for in vain", apart)
	case apart > 0:
		head += fmt.Sprintf(", and %d of the system and the harness", apart)
	}
	t.head(head + ")")
	for i, l := range lines {
		if i == most && !all {
			t.f("  … and %d more (--all)\n", len(lines)-i)
			break
		}
		t.f("  %s", bodycam.Printable(l.Name))
		if l.Count > 1 {
			t.f(" ×%d", l.Count)
		}
		if l.Failed > 0 {
			t.f(" %s", t.paint("33", fmt.Sprintf("failed ×%d", l.Failed)))
		}
		if len(l.Addrs) > 0 {
			t.f("  %s", strings.Join(l.Addrs, " "))
		}
		if l.Known != "" {
			t.f("  known by %s", l.Known)
		}
		if l.Bytes > 0 && l.Known != "" {
			t.f("  %s bytes", thousands(l.Bytes))
		}
		if l.Note != "" {
			t.f("  %s", t.paint("2", bodycam.Printable(l.Note)))
		}
		t.f("\n")
	}
}

func (s *Summary) account(t *text) {
	a := s.Account
	t.head("THE AGENT'S ACCOUNT AGAINST THE RECORD")
	if s.NotStarted {
		t.f("  the agent was never started: there is nothing to compare\n")
		return
	}
	if !a.Transcript {
		t.f("  there is no transcript; the record has %d programs started\n", a.Commands)
		return
	}
	t.f("  the transcript tells of %s; the record has %s started by them or beside them\n", plural(a.ToolCalls, "tool call"), plural(int(a.Commands), "program"))
	t.f("  %d of %s borne out by the kernel", a.Linked, toolCalls(a.ToolCalls))
	if a.Unborne > 0 {
		t.f("; %s", t.paint("31", fmt.Sprintf("%d claimed and not borne out", a.Unborne)))
	}
	if a.NotRun > 0 {
		t.f("; %d that it says itself failed", a.NotRun)
	}
	if a.Unlinked > 0 {
		t.f("; %s", t.paint("33", plural(a.Unlinked, "process tree")+" that no tool call explains"))
	}
	if a.Startup > 0 {
		t.f("; %s of the harness's start-up", plural(a.Startup, "process tree"))
	}
	t.f("\n")
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// thousands writes a number with separators.
func thousands(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func toolCalls[N ~int | ~uint64](n N) string {
	if n == 1 {
		return "1 tool call"
	}
	return fmt.Sprintf("%d tool calls", n)
}
