package report

import (
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// A run that was cut off has events of a sensor, whose account of what it lost it never got.
func TestCutRunSensor(t *testing.T) {
	for _, c := range []struct {
		ended     time.Time
		has, lack string
	}{
		{time.Time{}, "12 events for 12 calls, how many were lost isn't known", "no sensor)"},
		{time.Unix(1, 0), "0 lost (no sensor)", "isn't known"},
	} {
		s := Summary{Run: bodycam.Run{Ended: c.ended, Counts: bodycam.RunCounts{Events: 12, Calls: 12}}}
		var b strings.Builder
		if err := s.Text(&b, false, false); err != nil {
			t.Fatal(err)
		}
		if out := b.String(); !strings.Contains(out, c.has) || strings.Contains(out, c.lack) {
			t.Errorf("want %q and not %q:\n%s", c.has, c.lack, out)
		}
	}
}
