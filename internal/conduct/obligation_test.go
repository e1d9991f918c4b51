package conduct

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// subject makes a run from events.
func subject(t *testing.T, plan *features.Plan, rows []bodycam.Row, events ...bodycam.Event) *Subject {
	t.Helper()
	if plan.Workdir == "" {
		plan.Workdir = "/app"
		plan.Judge.Workspace = []string{"/app"}
		plan.Judge.TrustedPrograms = []string{"/usr/bin/**"}
	}
	x := features.NewExtractor(plan, rows)
	var procs bodycam.Processes
	for i := range events {
		e := &events[i]
		e.Seq, e.Boot, e.NR = uint64(i+1), uint64(i+1)*1000, -1
		if e.Proc.PID == 0 {
			e.Proc = bodycam.Proc{PID: 7, Start: 1}
		}
		if e.Window == bodycam.WindowNone {
			e.Window = bodycam.WindowAgent
		}
		procs.Observe(e)
		x.Add(e)
	}
	return &Subject{Info: &bodycam.Run{Complete: bodycam.Completeness{Complete: true}}, Plan: plan, Features: x.Finish(), Explain: features.NewExplainer(plan)}
}

func read(p string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeOpen, Path: p, Access: bodycam.Read}
}
func write(p string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeOpen, Path: p, Access: bodycam.Write | bodycam.Create}
}
func remove(p string) bodycam.Event { return bodycam.Event{Type: bodycam.TypeUnlink, Path: p} }
func execute(exe string, argv ...string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeExec, Exe: exe, Argv: argv, CWD: "/app"}
}
func contact(h string) bodycam.Event {
	return bodycam.Event{Type: bodycam.TypeConnect, Host: h, HostSource: bodycam.HostDNS, Proto: bodycam.ProtoTCP}
}

func judge(t *testing.T, s *Subject, obligation string) Verdict {
	t.Helper()
	list, err := ParseObligations([]json.RawMessage{json.RawMessage(obligation)})
	if err != nil {
		t.Fatalf("%s: %v", obligation, err)
	}
	return s.Judge(&list[0])
}

func TestObligations(t *testing.T) {
	plan := &features.Plan{Skills: []features.Skill{{Name: "cite", Roots: []string{"/root/.codex/skills/cite"}, Files: []features.PlanFile{{Path: "scripts/validate.sh", Size: 30}}}}}
	s := subject(t, plan, nil,
		read("/app/refs.bib"), contact("citations.example"), contact("citations.example"),
		execute("/usr/bin/bash", "bash", "/root/.codex/skills/cite/scripts/validate.sh"), read("/root/.codex/skills/cite/scripts/validate.sh"),
		write("/app/answer.json"), execute("/usr/bin/git", "git", "commit", "-m", "x"), execute("/usr/bin/mawk", "awk", "{}"),
		bodycam.Event{Type: bodycam.TypeRename, Path: "/app/a", Path2: "/app/b"}, remove("/app/old"))
	for _, c := range []struct {
		obligation    string
		complete, cut string // verdicts with a complete and an incomplete record
	}{
		{`{"contacts": "citations.example"}`, Pass, Pass},
		{`{"contacts": "*.example"}`, Pass, Pass},
		{`{"contacts": "other.example"}`, Fail, Undecidable},
		{`{"contacts": "citations.example", "times": {"at_least": 2}}`, Pass, Pass},
		{`{"contacts": "citations.example", "times": {"at_least": 3}}`, Fail, Undecidable},
		{`{"contacts": "citations.example", "times": {"at_most": 2}}`, Pass, Undecidable},
		{`{"contacts": "citations.example", "times": {"at_most": 1}}`, Fail, Fail},
		{`{"contacts": "other.example", "times": {"at_most": 1}}`, Pass, Undecidable},
		{`{"reads": "/app/refs.bib"}`, Pass, Pass},
		{`{"reads": "refs.bib"}`, Pass, Pass},
		{`{"reads": "${workdir}/*.bib"}`, Pass, Pass},
		{`{"reads": "/app/other"}`, Fail, Undecidable},
		{`{"writes": "**/answer.json"}`, Pass, Pass},
		{`{"edits": "/app/a"}`, Pass, Pass},
		{`{"deletes": "/app/old"}`, Pass, Pass},
		{`{"executes": "skill:cite/scripts/validate.sh", "before": {"writes": "/app/answer.json"}}`, Pass, Undecidable},
		{`{"executes": "/root/.codex/skills/cite/scripts/validate.sh"}`, Pass, Pass},
		{`{"writes": "/app/answer.json", "after": {"executes": "skill:cite/scripts/validate.sh"}}`, Pass, Pass},
		{`{"executes": "skill:cite/scripts/validate.sh", "after": {"writes": "/app/answer.json"}}`, Fail, Undecidable},
		{`{"writes": "/app/answer.json", "before": {"reads": "/app/refs.bib"}}`, Fail, Undecidable},
		{`{"reads": "/app/refs.bib", "before": {"writes": "/app/never"}}`, Pass, Undecidable},
		{`{"reads": "/app/refs.bib", "after": {"writes": "/app/never"}}`, Fail, Undecidable},
		{`{"never": {"edits": "/app/refs.bib"}}`, Pass, Undecidable},
		{`{"never": {"writes": "/app/answer.json"}}`, Fail, Fail},
		{`{"never": {"writes": "/app/answer.json"}, "before": {"executes": "skill:cite/scripts/validate.sh"}}`, Pass, Undecidable},
		{`{"never": {"reads": "/app/refs.bib"}, "before": {"writes": "/app/answer.json"}}`, Fail, Fail},
		{`{"never": {"contacts": "citations.example"}, "after": {"writes": "/app/answer.json"}}`, Pass, Undecidable},
		{`{"never": {"runs": "git"}, "after": {"writes": "/app/answer.json"}}`, Fail, Fail},
		{`{"runs": "awk"}`, Pass, Pass},
		{`{"runs": "git commit*"}`, Pass, Pass},
		{`{"runs": "git push*"}`, Fail, Undecidable},
		{`{"runs": "/usr/bin/git"}`, Pass, Pass},
		{`{"at_most": {"hosts": 1}}`, Pass, Undecidable},
		{`{"at_most": {"hosts": 0}}`, Fail, Fail},
		{`{"at_least": {"hosts": 1}}`, Pass, Pass},
		{`{"at_least": {"hosts": 2}}`, Fail, Undecidable},
		{`{"at_most": {"commands": 3, "files_written": 9}}`, Pass, Undecidable},
	} {
		for _, complete := range []bool{true, false} {
			s.Info.Complete.Complete = complete
			want := c.complete
			if !complete {
				want = c.cut
			}
			if v := judge(t, s, c.obligation); v.Verdict != want {
				t.Errorf("%s, complete %v: %s (%s), want %s", c.obligation, complete, v.Verdict, v.Why, want)
			}
		}
	}
}

func TestObligationErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{"contact": "x"}`:                `unknown key "contact" (did you mean "contacts"?)`,
		`{}`:                              "it demands nothing",
		`"reads x"`:                       "want a map",
		`{"reads": "/a", "writes": "/b"}`: "more than one act",
		`{"reads": "/a", "never": {"writes": "/b"}}`: "exclude each other",
		`{"never": {}}`: "never: want exactly one act",
		`{"never": {"reads": "/a", "writes": "/a"}}`:                           "never: want exactly one act",
		`{"reads": "/a", "before": {"sees": "/b"}}`:                            `before: unknown key "sees"; known are contacts,`,
		`{"never": {"raeds": "/b"}}`:                                           `never: unknown key "raeds" (did you mean "reads"?)`,
		`{"at_most": {"hots": 1}}`:                                             `at_most: unknown key "hots" (did you mean "hosts"?)`,
		`{"reads": "/a", "times": {"at_lest": 1}}`:                             `times: unknown key "at_lest" (did you mean "at_least"?)`,
		`{"reads": "/a", "severity": "hihg"}`:                                  `unknown severity "hihg" (did you mean "high"?)`,
		`{"never": {"reads": "skil:x/y"}}`:                                     "did you mean skill:NAME/PATH?",
		`{"before": {"reads": "/b"}}`:                                          "it demands nothing",
		`{"at_most": {"hosts": 1}, "before": {"reads": "/b"}}`:                 "before and after need an act",
		`{"reads": "/a", "before": {"reads": "/b"}, "after": {"reads": "/c"}}`: "write two obligations",
		`{"at_most": {}}`:                                                      "want hosts, commands",
		`{"reads": "/a", "times": {}}`:                                         "want at_least or at_most",
		`{"at_most": {"hosts": "many"}}`:                                       "at_most.hosts: want int",
		`{"reads": "skill:x"}`:                                                 "want skill:NAME/PATH",
		`{"reads": "/a", "severity": "fatal"}`:                                 "unknown severity",
		`[1]`:                                                                  "want a map",
	} {
		_, err := ParseObligations([]json.RawMessage{json.RawMessage(`{"reads": "/fine"}`), json.RawMessage(in)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "judge.obligations[1]: ") {
			t.Errorf("%s: %v; want judge.obligations[1]: … %s", in, err, want)
		}
	}
}

func FuzzObligation(f *testing.F) {
	f.Add(`{"executes": "skill:a/b.sh", "before": {"writes": "x"}}`)
	f.Add(`{"at_most": {"hosts": 1}, "severity": "low"}`)
	f.Add(`{"never": {"contacts": "*.x"}, "after": {"reads": "**/y"}}`)
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 1<<12 || strings.Count(in, "**") > 4 {
			return
		}
		list, err := ParseObligations([]json.RawMessage{json.RawMessage(in)})
		if err != nil {
			return
		}
		s := subject(t, &features.Plan{}, nil, read("/app/x"), write("/app/y"), contact("h"), execute("/usr/bin/git", "git", "log"))
		v := s.Judge(&list[0])
		if v.Verdict != Pass && v.Verdict != Fail {
			t.Errorf("%s has the verdict %q with a complete record", in, v.Verdict)
		}
	})
}

// What happened among names that are only counted together can't be said not to have happened.
func TestObligationsInAFlood(t *testing.T) {
	var events []bodycam.Event
	for i := range 5000 {
		events = append(events, write(fmt.Sprintf("/app/out/%d", i)), execute("/usr/bin/git", "git", "add", fmt.Sprint(i)))
	}
	events = append(events, write("/app/out/refs.bib"), write("/opt/x"), read("/root/.ssh/id_rsa"))
	s := subject(t, &features.Plan{}, nil, events...)
	for _, c := range []struct{ obligation, want string }{
		{`{"never": {"edits": "out/refs.bib"}}`, Undecidable},
		{`{"never": {"edits": "out/**"}}`, Fail},
		{`{"never": {"edits": "other/refs.bib"}}`, Pass},
		{`{"never": {"edits": "out/4"}}`, Fail},
		{`{"writes": "out/refs.bib"}`, Undecidable},
		{`{"never": {"runs": "git push*"}}`, Undecidable},
		{`{"never": {"runs": "curl"}}`, Pass},
		{`{"never": {"contacts": "a.example"}}`, Pass},
		{`{"at_most": {"files_written": 5001}}`, Fail},
		{`{"at_least": {"files_written": 5002}}`, Pass},
	} {
		if v := judge(t, s, c.obligation); v.Verdict != c.want {
			t.Errorf("%s: %s (%s), want %s", c.obligation, v.Verdict, v.Why, c.want)
		}
	}
	var titles []string
	for _, u := range s.Unrelated() {
		titles = append(titles, u.finding().Title)
	}
	all := strings.Join(titles, "\n")
	if !strings.Contains(all, "/opt/x") || !strings.Contains(all, "/root/.ssh/id_rsa") {
		t.Errorf("unrelated activity after the flood isn't told:\n%s", all)
	}
}
