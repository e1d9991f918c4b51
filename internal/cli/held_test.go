package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestNotMine reads a run of root's as a user who may not: that isn't the run's absence, and the status is that of what
// can't be read.
func TestNotMine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to be somebody else")
	}
	t.Setenv("BODYCAM_KEYS", filepath.Join(t.TempDir(), "keys"))
	t.Setenv("BODYCAM_HOME", t.TempDir())
	dir := filepath.Join(t.TempDir(), "run")
	wholeRun(t, dir, "alice")
	runtime.LockOSThread() // the user of files is a thread's
	defer runtime.UnlockOSThread()
	for _, mode := range []os.FileMode{0o700, 0o755} { // of the run; its ledger is root's alone in both
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"verify", "check", "compare", "show", "events", "query --why 3", "mirror --to /nowhere", "keys show", "export --format aat", "anchor status", "disclose --record 3 -o /nowhere/x"} {
			var out, errs bytes.Buffer
			args := append(append([]string{"bodycam"}, strings.Fields(line)...), dir)
			if err := syscall.Setfsuid(65534); err != nil {
				t.Fatal(err)
			}
			status := Main(args, strings.NewReader(""), &out, &errs)
			if err := syscall.Setfsuid(0); err != nil {
				t.Fatal(err)
			}
			if status != ExitEnvironment || !strings.Contains(errs.String(), "permission denied") {
				t.Errorf("%s of a run with mode %o: status %d\n%s%s", line, mode, status, out.String(), errs.String())
			}
		}
	}
}
