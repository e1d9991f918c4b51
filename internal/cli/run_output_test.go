package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// After a command's run it is said where its output is, if there is any.
func TestOutputOfCommand(t *testing.T) {
	r := &store.Run{Dir: t.TempDir()}
	plan := &kind.Plan{}
	plan.Agent.Harness = "command"
	if got := output(r, plan); got != "" {
		t.Errorf("nothing was written: %q", got)
	}
	at := filepath.Join(r.Dir, "agent", "stdout")
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, bytes.Repeat([]byte("x"), 3), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := output(r, plan); !strings.HasSuffix(got, "agent/stdout") {
		t.Errorf("output is at %q", got)
	}
	plan.Agent.Harness = "codex"
	if got := output(r, plan); got != "" {
		t.Errorf("an agent's protocol is no output: %q", got)
	}
}
