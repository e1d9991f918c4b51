package cli

import (
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// A run whose status is that of a failed gate says which gate it was.
func TestSayWhy(t *testing.T) {
	var errs strings.Builder
	(&runFlags{}).sayWhy(&streams{err: &errs}, &store.Run{Dir: t.TempDir()}, gate{min: bodycam.High})
	if !strings.Contains(errs.String(), "--require-pass") {
		t.Errorf("without findings: %q", &errs)
	}
}
