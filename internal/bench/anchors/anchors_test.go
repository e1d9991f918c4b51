package anchorsbench

import (
	"math"
	"testing"
)

// TestRun: without an anchor every attack passes; with any, none of those whose log the outside knows more of.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), t.TempDir(), 3, DefaultPrice, []string{"none", "digest", "witness"})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Rows {
		for _, a := range Attacks {
			if k.Caught[a] != (k.Mechanism != "none") {
				t.Errorf("%s: attack %s found: %v", k.Mechanism, a, k.Caught[a])
			}
		}
		if k.Mechanism != "none" && k.Refused != len(Attacks) {
			t.Errorf("%s refused %d second histories of %d", k.Mechanism, k.Refused, len(Attacks))
		}
	}
}

// TestPaper: with the paper's gas and price, its figure.
func TestPaper(t *testing.T) {
	for _, c := range costs(DefaultPrice) {
		if c.Epoch == 100 && math.Abs(c.L2[0]-2.295) > 1e-9 {
			t.Errorf("100-event epochs cost %v, the paper says 2.295", c.L2[0])
		}
	}
}
