package cli

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// TestOneManifest has runs whose state of the workspace was recorded once only, as where the recorder was killed: no file
// is said to be gone, or to be new, and no verdict is given. With both, what is gone is told.
func TestOneManifest(t *testing.T) {
	plan, err := json.Marshal(kind.Plan{Judge: kind.PlanJudge{Workspace: []string{"/workspace"}}})
	if err != nil {
		t.Fatal(err)
	}
	var files []sandbox.FileInfo
	for _, n := range []string{"a.py", "b.py", "c.py", "tests/test_a.py", "data.csv"} {
		files = append(files, sandbox.FileInfo{Path: n, Type: sandbox.TypeFile, Mode: 0o644, Size: 30, SHA256: strings.Repeat("ab", 31) + n[:2]})
	}
	full, empty := map[string][]sandbox.FileInfo{"/workspace": files}, map[string][]sandbox.FileInfo{"/workspace": {}}
	for name, c := range map[string]struct {
		before, after any
		rule          string
	}{
		"before": {full, nil, "incomplete"}, "after": {nil, full, "incomplete"}, "none": {nil, nil, ""},
		"both": {full, empty, "Files gone"}, "alike": {full, full, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			w, err := store.Create(dir, bodycam.Run{ID: "r", Plan: plan, Started: time.Now()}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				err = errors.Join(err, w.JSON("manifest-before.json", c.before))
			}
			if c.after != nil {
				err = errors.Join(err, w.JSON("manifest-after.json", c.after))
			}
			if err = errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			r, err := store.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			p, err := planOf(r)
			if err != nil {
				t.Fatal(err)
			}
			found, err := judgeSecurity(context.Background(), r, p)
			if err != nil {
				t.Fatal(err)
			}
			var rules []string
			for _, f := range found {
				if f.Rule != "unsupported-rule" {
					rules = append(rules, f.Rule)
				}
			}
			if got := strings.Join(rules, ", "); !strings.HasPrefix(got, c.rule) || c.rule == "" && got != "" || c.rule == "incomplete" && got != c.rule {
				t.Errorf("found %q, want %q", got, c.rule)
			}
			if incomplete := gaveUp(found) != nil; incomplete != (c.rule == "incomplete") {
				t.Errorf("gave up: %v", gaveUp(found))
			}
		})
	}
}
