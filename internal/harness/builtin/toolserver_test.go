package builtin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/mcp"
)

// Whatever a server calls its tools, the model gets names that the API takes, each for one tool.
func TestToolNames(t *testing.T) {
	b := toolbox{byName: map[string]serverTool{}}
	names := []string{"a.b", "a/b", "a b", "ü", "", "\x00", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", 202), "shell"}
	for i := range 30 {
		names = append(names, strings.Repeat("y", 100)+fmt.Sprint(i))
	}
	for _, n := range names {
		b.offer(nil, "a server/of a long name that nobody would give it but for a test", &mcp.Tool{Name: n + "!"})
	}
	if len(b.byName) != len(names) || len(b.order) != len(names) {
		t.Fatalf("%d tools under %d names: %q", len(names), len(b.byName), b.order)
	}
	for name := range b.byName {
		if len(name) > maxToolName || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			t.Errorf("the model gets the name %q", name)
		}
	}
}
