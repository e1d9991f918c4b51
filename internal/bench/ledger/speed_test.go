package ledgerbench

import (
	"context"
	"reflect"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/store/payload"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
)

func TestSpeedRuns(t *testing.T) {
	res, err := Speed(context.Background(), SpeedOptions{Sizes: []int{100}, Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + res.Text())
	for _, c := range res.Costs {
		if c.Median <= 0 || c.P99 < c.Median || c.Bytes < res.Payload {
			t.Errorf("%+v", c)
		}
	}
}

func TestWorkload(t *testing.T) {
	calls := workload(10_000, 3)
	groups, tools := map[uint64]int{}, map[string]int{}
	for i := range calls {
		if g := calls[i].Group; g != 0 {
			groups[g]++
		}
		tools[calls[i].Intent.Tool]++
		if err := dcbor.Check(payload.AppendAction(nil, &calls[i].Action)); err != nil {
			t.Fatal(err)
		}
	}
	in := 0
	for g, n := range groups {
		if n < 2 || n > 3 {
			t.Errorf("group %d has %d calls", g, n)
		}
		in += n
	}
	if in < 1350 || in > 1650 || len(tools) != 8 {
		t.Errorf("%d calls in groups, %d tools", in, len(tools))
	}
	again := workload(10, 3)
	if !reflect.DeepEqual(again[9], calls[9]) {
		t.Error("the same seed makes another workload")
	}
}
