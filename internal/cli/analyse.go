package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/analysis"
	"github.com/bodycam-dev/bodycam/internal/conduct"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// analyse runs a plan's analyses over a record.
func analyse(ctx context.Context, r *store.Run, p *kind.Plan) ([]bodycam.Finding, error) {
	list := make([]analysis.Analysis, 0, len(p.Analyses))
	builtins := map[string]analysis.Builtin{}
	for _, a := range p.Analyses {
		list = append(list, analysis.Analysis{Name: a.Name, Command: a.Command, Dir: a.Dir, Timeout: a.Timeout.D(), Parameters: a.Parameters})
		b, ok := analyses[a.Name]
		if !ok {
			continue
		}
		builtins[a.Name] = analysis.Builtin{Version: b.version, Digest: b.digest(),
			Run: func(ctx context.Context, r *store.Run, _ map[string]json.RawMessage) ([]bodycam.Finding, error) {
				return b.run(ctx, r, p)
			}}
	}
	findings, _, err := analysis.Run(ctx, r, list, builtins, confined)
	return findings, err
}

// builtinAnalysis is an analysis that comes with bodycam.
type builtinAnalysis struct {
	version string
	digest  func() string // of the data that it judges by
	run     func(context.Context, *store.Run, *kind.Plan) ([]bodycam.Finding, error)
}

// analyses are the built-in ones.
var analyses = map[string]builtinAnalysis{
	conduct.Name:  {conduct.Version, func() string { return "" }, judgeConduct},
	security.Name: {security.Version, security.Digest, judgeSecurity},
}

// build says which bodycam this is. The digest pins the recorder's own code to what it recorded.
var build = sync.OnceValue(func() bodycam.Build {
	b := bodycam.Build{Version: version(), Go: runtime.Version()}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return b
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err == nil {
		b.SHA256 = hex.EncodeToString(h.Sum(nil))
	}
	return b
})

// checkAnalyses refuses a plan that names an analysis which isn't there, or obligations that can't be read, before
// anything is run.
func checkAnalyses(p *kind.Plan) error {
	for _, a := range p.Analyses {
		if _, ok := analyses[a.Name]; !ok && len(a.Command) == 0 {
			names := slices.Sorted(maps.Keys(analyses))
			return usage("analysis %q: there is no such built-in analysis (%s)", a.Name, strings.Join(names, ", "))
		}
	}
	if _, err := conduct.ParseObligations(p.Judge.Obligations); err != nil {
		return usage("kind %s, task %s: %w", p.Kind.Name, p.Task.Name, err)
	}
	return nil
}
