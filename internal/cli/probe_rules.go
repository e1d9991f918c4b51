package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/trust"
)

// prohibit judges a service's record by the security rules, as `bodycam check` does, and adds to each window what they find
// in it. why says what the rules could not judge.
func prohibit(ctx context.Context, r *store.Run, windows []bodycam.WindowSpan, list []trust.Effects) (why []string, err error) {
	fail := func(err error) ([]string, error) {
		return nil, fmt.Errorf("judging %s by the security rules: %w", r.Dir, err)
	}
	p, err := planOf(r)
	if err != nil {
		return fail(err)
	}
	o, err := securityOptions(r, p)
	if err != nil {
		return fail(err)
	}
	in := byWindow{list: list, seen: map[string]bool{}}
	findings, err := checkRun(ctx, r, o, func(e *bodycam.Event, alerts []security.Alert) {
		if name, ok := windowOf(windows, e.Boot); ok {
			for i := range alerts {
				in.add(name, &alerts[i].Finding, e)
			}
		}
	})
	if err != nil {
		return fail(err)
	}
	late := map[uint64][]*bodycam.Finding{} // what no call showed as it happened, by event
	for i := range findings {
		for _, seq := range findings[i].Events {
			if f := &findings[i]; !in.seen[f.Rule+"\x00"+f.Resource] {
				late[seq] = append(late[seq], f)
			}
		}
	}
	if len(late) == 0 {
		return gaveUp(findings), nil
	}
	err = r.Raw(func(e *bodycam.Event) error {
		for _, f := range late[e.Seq] {
			if name, ok := windowOf(windows, e.Boot); ok {
				in.put(name, f, e.Seq, e.N())
			}
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, store.ErrTorn) {
		return fail(err)
	}
	return gaveUp(findings), nil
}

// byWindow collects findings by the window they belong to.
type byWindow struct {
	list []trust.Effects
	seen map[string]bool // rule and resource that calls showed
}

func (b *byWindow) add(window string, f *bodycam.Finding, e *bodycam.Event) {
	b.seen[f.Rule+"\x00"+f.Resource] = true
	b.put(window, f, e.Seq, e.N())
}

// put counts a finding in its window. Those below medium, and suppressed ones, judge nothing.
func (b *byWindow) put(window string, f *bodycam.Finding, seq, n uint64) {
	i := slices.IndexFunc(b.list, func(x trust.Effects) bool { return x.Probe == window })
	if i < 0 || f.Severity < bodycam.Medium || f.Suppressed != "" {
		return
	}
	x := &b.list[i]
	k := slices.IndexFunc(x.Prohibited, func(y trust.Prohibited) bool { return y.Rule == f.Rule && y.Resource == f.Resource })
	if k < 0 {
		k = len(x.Prohibited)
		x.Prohibited = append(x.Prohibited, trust.Prohibited{Rule: f.Rule, Class: f.Class, Severity: f.Severity, Title: f.Title, Resource: f.Resource})
	}
	y := &x.Prohibited[k]
	y.Count += n
	if len(y.Event) < 5 && !slices.Contains(y.Event, seq) {
		y.Event = append(y.Event, seq)
	}
}

// serviceEffects is what a service did in each window, with what the security rules say of it.
func (p *probing) serviceEffects(ctx context.Context, r *store.Run, windows []bodycam.WindowSpan) ([]trust.Effects, error) {
	list, err := effectsIn(r, windows, effectOf)
	if err != nil {
		return nil, err
	}
	why, err := prohibit(ctx, r, windows, list)
	if err != nil {
		return nil, err
	}
	if len(why) > 0 {
		p.notes = append(p.notes, "the security rules could not judge all of the agent's run: "+strings.Join(why, "; "))
	}
	return list, nil
}
