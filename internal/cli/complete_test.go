package cli

import (
	"bytes"
	"strings"
	"testing"
)

// A shell is offered the values of flags that have few.
func TestCompletion(t *testing.T) {
	for flag, want := range map[string]string{"--network": "sink", "--fail-on": "never", "--agent": "oracle", "--seccomp": "observe"} {
		var out, errs bytes.Buffer
		if status := Main([]string{"bodycam", "__complete", "run", flag, ""}, strings.NewReader(""), &out, &errs); status != ExitOK || !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%s: status %d, %q %s", flag, status, &out, &errs)
		}
	}
}

func TestRulesListEndsLines(t *testing.T) {
	var out, errs bytes.Buffer
	if status := Main([]string{"bodycam", "rules", "list"}, strings.NewReader(""), &out, &errs); status != ExitOK || out.Len() == 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasSuffix(line, " \n") {
			t.Fatalf("%q ends in a blank", line)
		}
	}
}
