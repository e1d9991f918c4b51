package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagValues has that each flag's value is called by one word: of words between backquotes in a usage pflag makes
// that name, and the help reads "--key bodycam keys export".
func TestFlagValues(t *testing.T) {
	n := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				n++
				if value, usage := pflag.UnquoteUsage(f); strings.ContainsAny(value, " \t\n") || strings.Contains(usage, "`") {
					t.Errorf("%s --%s: its value is called %q, its usage is %q", c.CommandPath(), f.Name, value, usage)
				}
			})
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(Root())
	if n < 200 {
		t.Errorf("only %d flags were looked at", n)
	}
}
