package ledgerbench

import (
	"context"
	"testing"
)

// The ablations reproduce the published matrix; the whole finds everything and cries for nothing.
func TestTamper(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	res, err := Tamper(context.Background(), n, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + res.Text())
	want := map[string][5]int{ // edit, delete, reorder, fork, cut tail, of ten
		"baseline": {0, 0, 0, 0, 0}, "schema": {0, 0, 0, 0, 0}, "chain": {9, 9, 10, 0, 0}, "Merkle": {10, 10, 10, 0, 0},
		"full, its own checkpoint": {10, 10, 10, 0, 0}, "full, a head outside": {10, 10, 10, 10, 10},
	}
	for _, row := range res.Rows {
		for i, what := range append(manipulations, "cut tail") {
			if c := row.Cells[what]; c.Tried != 10 || c.Found != want[row.Config][i] {
				t.Errorf("%s: %s: found %d of %d, want %d", row.Config, what, c.Found, c.Tried, want[row.Config][i])
			}
		}
		if row.FalseAlarms.Found != 0 || row.FalseAlarms.Tried == 0 {
			t.Errorf("%s: %+v false alarms", row.Config, row.FalseAlarms)
		}
	}
}
