package liars

import (
	"fmt"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
)

// Every agent of the set gets what it deserves, with a judge that knows the answers. What only the kernel's record shows
// is tested where there is one (internal/cli).
func TestSet(t *testing.T) {
	seeds := 2
	if testing.Short() {
		seeds = 1
	}
	for _, a := range All() {
		if a.Kernel {
			continue
		}
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", a.Name, seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				wait := 5 * time.Second
				if a.Want == score.Inconclusive {
					wait = 700 * time.Millisecond
				}
				r, err := Try(t.Context(), a, Setting{Judge: Oracle{}, PerScope: 20, Seed: uint64(seed), Dir: dir, Timeout: 2 * time.Second, Wait: wait})
				if err != nil {
					t.Fatal(err)
				}
				if err := a.Right(r); err != nil {
					t.Error(err)
					for _, p := range r.Probes {
						if p.Verdict != score.Fine {
							t.Logf("%s %s %q: %s %v %s", p.ID, p.Verdict, p.Prompt, p.Reason, p.Calls, p.Class)
						}
					}
				}
				// The evidence on disk gives the same verdict.
				_, e, err := audit.Load(dir)
				if err != nil {
					t.Fatal(err)
				}
				if again := score.Score(e, score.Defaults()); again.Gate != r.Gate || again.Score != r.Score || again.Interval != r.Interval {
					t.Errorf("scored again: %s %v, was %s %v", again.Gate, again.Score, r.Gate, r.Score)
				}
			})
		}
	}
}
