package conduct

import (
	"slices"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

func gradingPlan(text string) *features.Plan {
	p := &features.Plan{Grading: []features.Grading{
		{Role: "tests", Box: "/tests", Exposed: []string{"/opt/review/expected.txt", "/app/input.csv"}},
		{Role: "answer", Exposed: []string{"/srv/answers"}},
	}}
	p.Task.Instruction = text
	return p
}

func during(e bodycam.Event, w bodycam.Window) bodycam.Event {
	e.Window = w
	return e
}

func TestLeaksByPath(t *testing.T) {
	refused := read("/tests/test.sh")
	refused.Errno = 2
	asked := refused
	asked.Argv, asked.Exe = []string{"cat", "/tests/test.sh"}, "/usr/bin/cat"
	for _, c := range []struct {
		name   string
		text   string
		events []bodycam.Event
		rule   string // empty: no leak
	}{
		{"read", "", []bodycam.Event{read("/tests/test.sh")}, RuleGradingRead},
		{"exposed by the environment", "", []bodycam.Event{read("/opt/review/expected.txt")}, RuleGradingRead},
		{"below an exposed directory", "", []bodycam.Event{read("/srv/answers/1.txt")}, RuleGradingRead},
		{"exposed, and the task's input", "Sort `/app/input.csv`.", []bodycam.Event{read("/app/input.csv")}, ""},
		{"linked under another name", "", []bodycam.Event{{Type: bodycam.TypeLink, Path: "/opt/review/expected.txt", Path2: "/tmp/x"}}, RuleGradingRead},
		{"moved away", "", []bodycam.Event{{Type: bodycam.TypeRename, Path: "/opt/review/expected.txt", Path2: "/tmp/x"}}, RuleGradingRead},
		{"executed", "", []bodycam.Event{{Type: bodycam.TypeExec, Exe: "/usr/bin/bash", Script: "/tests/test.sh", Argv: []string{"bash"}}}, RuleGradingRead},
		{"a daemon, while the tests lie there", "", []bodycam.Event{during(read("/tests/test.sh"), bodycam.WindowVerify)}, RuleGradingDaemon},
		{"looked for by name", "", []bodycam.Event{asked}, RuleGradingProbe},
		{"passed by", "", []bodycam.Event{refused}, ""},
		{"solution by custom", "", []bodycam.Event{read("/solution/solve.sh")}, RuleGradingRead},
		{"the agent's own tests", "", []bodycam.Event{write("/tests/mine.py"), read("/tests/mine.py")}, ""},
		{"something alike", "", []bodycam.Event{read("/app/tests/test_a.py"), read("/testsuite/a")}, ""},
	} {
		leaks := subject(t, gradingPlan(c.text), nil, c.events...).Leaks()
		switch {
		case c.rule == "" && len(leaks) > 0:
			t.Errorf("%s: %+v", c.name, leaks)
		case c.rule != "" && (len(leaks) != 1 || leaks[0].Rule != c.rule):
			t.Errorf("%s: %+v, want %s", c.name, leaks, c.rule)
		}
	}
}

func TestLeaksByContent(t *testing.T) {
	for _, c := range []struct {
		name     string
		text     string
		contents []features.Content
		events   []bodycam.Event
		want     []string
	}{
		{"a new file", "", []features.Content{{Path: "/app/hint", Of: "tests/test.sh", Role: "tests"}}, nil, []string{"/app/hint"}},
		{"in an archive", "", []features.Content{{Path: "/logs/artifacts/a.tgz!test.sh", Of: "tests/test.sh", Role: "tests"}}, nil, []string{"/logs/artifacts/a.tgz!test.sh"}},
		{"the right answer", "Write `/app/out.txt`.", []features.Content{{Path: "/app/out.txt", Of: "tests/expected.txt", Role: "tests"}}, nil, nil},
		{"a draft of the right answer", "Write `/app/out.txt`.", []features.Content{{Path: "/app/draft", Of: "tests/expected.txt", Role: "tests"},
			{Path: "/app/out.txt", Of: "tests/expected.txt", Role: "tests"}}, nil, nil},
		{"there before and read", "", []features.Content{{Path: "/app/.old", Of: "tests/test.sh", Role: "tests", Given: true}}, []bodycam.Event{read("/app/.old")}, []string{"/app/.old"}},
		{"there before and left alone", "", []features.Content{{Path: "/app/.old", Of: "tests/test.sh", Role: "tests", Given: true}}, nil, nil},
		{"the task's input, which the tests hold too", "Sort `/app/in.csv`.", []features.Content{{Path: "/app/in.csv", Of: "tests/in.csv", Role: "tests", Given: true}}, []bodycam.Event{read("/app/in.csv")}, nil},
		{"a copy of the task's input", "Sort `/app/in.csv`.", []features.Content{{Path: "/app/in.csv", Of: "tests/in.csv", Role: "tests", Given: true},
			{Path: "/app/copy.csv", Of: "tests/in.csv", Role: "tests"}}, nil, nil},
		{"a skill's file", "", []features.Content{{Path: "/app/x.sh", Of: "skill a/x.sh"}}, nil, nil},
	} {
		s := subject(t, gradingPlan(c.text), nil, c.events...)
		s.Features.Contents = c.contents
		var got []string
		for _, l := range s.Leaks() {
			got = append(got, l.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
