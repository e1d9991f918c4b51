package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// A reader that goes away doesn't end a recording: neither its signal, nor that what is printed at the end can't be.
func TestReaderGoesAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups and eBPF")
	}
	bin, err := exec.LookPath("bodycam") // testscript.Main puts this program there
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, flag := range []string{"--follow", "--json"} {
		out := filepath.Join(dir, "runs"+flag)
		cmd := exec.Command(bin, "run", flag, "-q", "--kind", "command", "--network", "none", "--fail-on", "never", "-o", out,
			"--", "sh", "-c", "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; kill -PIPE $$")
		cmd.Env = append(os.Environ(), "BODYCAM_KEYS="+filepath.Join(dir, "keys"))
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		cmd.Stdout, cmd.Stderr = w, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close() // head -0
		w.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", flag, err, &errs)
		}
		if n := strings.Count(errs.String(), "nobody reads the standard output any more"); n != 1 {
			t.Errorf("%s: said %d times:\n%s", flag, n, &errs)
		}
		runs, err := filepath.Glob(filepath.Join(out, "*", store.InfoFile))
		if err != nil || len(runs) != 1 {
			t.Fatalf("%s: %v, %v", flag, runs, err)
		}
		run, err := store.Open(filepath.Dir(runs[0]))
		if err != nil {
			t.Fatal(err)
		}
		if run.Info.Ended.IsZero() || !run.Info.Complete.Complete {
			t.Errorf("%s: ended %v, complete %+v", flag, run.Info.Ended, run.Info.Complete)
		}
		agent := slices.IndexFunc(run.Info.Phases, func(p bodycam.Phase) bool { return p.Name == "agent" })
		if agent < 0 || run.Info.Phases[agent].Signal != "broken pipe" { // the agent's own must still work
			t.Errorf("%s: phases %+v", flag, run.Info.Phases)
		}
	}
}
