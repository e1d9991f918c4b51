package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitProblem `xml:"failure,omitempty"`
		Error   *junitProblem `xml:"error,omitempty"`
		Skipped *junitProblem `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes what rules say of runs in JUnit's form: a suite for each run, a test for each rule. A finding that fails
// tells is a failure; others are told of in the test's output; an incomplete record is an error.
func JUnit(w io.Writer, checks []Check, fails func(*bodycam.Finding) bool) error {
	out := junitSuites{Name: "bodycam"}
	for i := range checks {
		s := junitOf(&checks[i], fails)
		out.Tests += s.Tests
		out.Failures += s.Failures
		out.Errors += s.Errors
		out.Suites = append(out.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitOf(c *Check, fails func(*bodycam.Finding) bool) junitSuite {
	s := junitSuite{Name: c.Run}
	by := map[string][]*bodycam.Finding{}
	names := []string{}
	class := map[string]string{}
	for _, r := range c.Rules.List {
		names, class[r.Name] = append(names, r.Name), r.Class
	}
	for i := range c.Findings {
		f := &c.Findings[i]
		by[f.Rule] = append(by[f.Rule], f)
		if !slices.Contains(names, f.Rule) {
			names, class[f.Rule] = append(names, f.Rule), f.Class
		}
	}
	for _, n := range names {
		t := junitCase{Class: "bodycam." + strings.ReplaceAll(class[n], " ", "-"), Name: n}
		var bad, rest, off []string
		for _, f := range by[n] {
			line := junitLine(f)
			switch {
			case f.Suppressed != "":
				off = append(off, line+" (suppressed: "+f.Suppressed+")")
			case fails(f):
				bad = append(bad, line)
			default:
				rest = append(rest, line)
			}
		}
		switch {
		case len(bad) > 0:
			t.Failure = &junitProblem{Message: bad[0], Type: by[n][0].Severity.String(), Text: strings.Join(bad, "\n")}
			s.Failures++
		case len(off) > 0 && len(rest) == 0:
			t.Skipped = &junitProblem{Message: off[0]}
			s.Skipped++
		}
		t.Out = strings.Join(append(rest, off...), "\n")
		s.Cases = append(s.Cases, t)
	}
	record := junitCase{Class: "bodycam.record", Name: "the record is complete"}
	if !c.Complete {
		record.Error = &junitProblem{Message: "the record is incomplete", Text: strings.Join(c.Reasons, "\n")}
		s.Errors++
	}
	s.Cases = append(s.Cases, record)
	s.Tests = len(s.Cases)
	return s
}

func junitLine(f *bodycam.Finding) string {
	line := f.Severity.String() + ": " + f.Title
	if f.Row != nil {
		line += fmt.Sprintf(" [row %d]", *f.Row)
	}
	if len(f.Events) > 0 {
		line += fmt.Sprintf(" [event %d]", f.Events[0])
	}
	return line
}
