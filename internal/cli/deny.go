package cli

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/rules"
)

// What the recorder's proxy knows when it decides. The kernel leads every connection of a sandbox to it, so what it
// refuses goes nowhere; but it sees connections and names, not the processes behind them.
var (
	deniableFields = []string{"body.type", "evt.type", "evt.category", "host.name", "host.source", "host.named", "host.local", "fd.sip", "fd.sip.name", "fd.rip", "fd.rport", "fd.rnet",
		"fd.sport", "fd.snet", "fd.sproto", "fd.rproto", "fd.l4proto", "fd.typechar", "fd.type", "fd.connected", "explained.cleared", "explained.by", "body.errno", "evt.failed", "evt.res"}
	deniableTypes = []string{"connect", "send", "dns", "tls", "http", "flow"}
)

// canDeny tells whether a rule can be kept by refusing: only if it is about hosts, by what is known of a connection
// before it is passed on.
func canDeny(r rules.Rule) error {
	for _, f := range r.Fields {
		if !slices.Contains(deniableFields, f) {
			return fmt.Errorf("only contacts of hosts can be refused here, by what the recorder's proxy knows of them, and it doesn't know %s (on this machine neither files nor programs can be refused without a race)", f)
		}
	}
	for _, t := range strings.FieldsFunc(r.Events, func(c rune) bool { return c == ',' || c == ' ' || c == '|' }) {
		if !slices.Contains(deniableTypes, t) {
			return fmt.Errorf("only contacts of hosts can be refused here, and the rule is about %s", r.Events)
		}
	}
	return nil
}

// denial refuses what rules of mode deny find, from when the agent starts: what is set up before is not its doing.
type denial struct {
	mu sync.Mutex
	a  *security.Analyser // nil: nothing is refused yet
}

func (d *denial) begin(o security.Options) error {
	a, err := security.New(o)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.a = a
	return nil
}

// refuse is asked by the proxy, before anything is passed on.
func (d *denial) refuse(e *bodycam.Event) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.a == nil {
		return ""
	}
	if r := d.a.Denies(e); r != "" {
		return "refused by rule " + r
	}
	return ""
}

func hasMode(set *rules.Set, m rules.Mode) bool {
	return slices.ContainsFunc(set.List(), func(r rules.Rule) bool { return r.Enabled && r.Mode == m })
}

// liveRules loads a plan's rules as a run needs them: a rule that can't be kept here is an error.
func liveRules(y security.Policy, p *kind.Plan) (*rules.Set, error) {
	further, err := kindRules(p)
	if err != nil {
		return nil, usage("%w", err)
	}
	set, err := security.Load(y, rules.Options{CanDeny: canDeny}, further...)
	if err != nil {
		return nil, usage("%w", err)
	}
	return set, nil
}
