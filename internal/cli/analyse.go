package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/conduct"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// analyse runs a plan's analyses over a record.
func analyse(ctx context.Context, r *store.Run, p *kind.Plan) ([]bodycam.Finding, error) {
	findings := []bodycam.Finding{}
	for _, a := range p.Analyses {
		run, ok := analyses[a.Name]
		if !ok {
			return findings, fmt.Errorf("analysis %q: there is no such built-in analysis", a.Name)
		}
		fs, err := run(ctx, r, p)
		if err != nil {
			return findings, fmt.Errorf("analysis %s: %w", a.Name, err)
		}
		findings = append(findings, fs...)
	}
	return findings, nil
}

// analyses are the built-in ones.
var analyses = map[string]func(context.Context, *store.Run, *kind.Plan) ([]bodycam.Finding, error){
	conduct.Name:  judgeConduct,
	security.Name: judgeSecurity,
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

// checkAnalyses refuses a plan that names an analysis which isn't there, before anything is run.
func checkAnalyses(p *kind.Plan) error {
	for _, a := range p.Analyses {
		if _, ok := analyses[a.Name]; !ok && len(a.Command) == 0 {
			names := slices.Sorted(maps.Keys(analyses))
			return usage("analysis %q: there is no such built-in analysis (%s)", a.Name, strings.Join(names, ", "))
		}
	}
	return nil
}
