package report

import "testing"

func TestToolCalls(t *testing.T) {
	for n, want := range map[int]string{0: "0 tool calls", 1: "1 tool call", 2: "2 tool calls"} {
		if got := toolCalls(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
