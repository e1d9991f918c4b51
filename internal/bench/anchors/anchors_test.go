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
		// 215 bytes at 1 gwei in blobs, and at 16 × 20 gwei as calldata, each at 2,500 USD per ether.
		if blob, call := float64(c.Anchors)*215*2500e-9, float64(c.Anchors)*215*320*2500e-9; math.Abs(c.Blob[2]-c.L2[2]-blob) > 1e-9 || math.Abs(c.Calldata[2]-c.L2[2]-call) > 1e-9 {
			t.Errorf("epochs of %d: data costs %v in blobs, %v as calldata", c.Epoch, c.Blob[2]-c.L2[2], c.Calldata[2]-c.L2[2])
		}
	}
}
