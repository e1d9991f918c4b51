package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
)

// reachedBy is the digest of how the agent is reached and run: an audit that is taken up again must be of the same agent.
func (p *probing) reachedBy() (string, error) {
	f, run := p.f, &p.f.service.run
	abs := func(dir string) string {
		if a, err := filepath.Abs(dir); dir != "" && err == nil {
			return a
		}
		return dir
	}
	b, err := json.Marshal([]any{p.target, p.command, f.chat, f.chatModel, f.client, abs(f.skill), run.agent, run.model, run.params, f.service.port, abs(run.workspace),
		run.kind, run.network, run.allow, run.forwards, run.env, run.user})
	if err != nil {
		return "", fmt.Errorf("noting how the agent is reached: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// sameAgent refuses to take up an audit with another agent, or with the same one under other conditions.
func (p *probing) sameAgent() error {
	var err error
	if p.reached, err = p.reachedBy(); err != nil {
		return environment(err)
	}
	if p.f.resume == "" {
		return nil
	}
	m, _, err := audit.Load(p.dir)
	if err != nil {
		return usage("--resume: %w", err)
	}
	if m.Reached != p.reached {
		return withHint(usage("--resume %s: this is another agent than the audit began with, or runs under other conditions", p.f.resume),
			"give TARGET or the command, and the flags of the sandbox, as they were; or begin a new audit")
	}
	return nil
}

// unanswered is the window of what came after the last answer before an interruption.
const unanswered = "unanswered before the interruption"

// notWhole is the time before a run was cut off of which events may not have been written: they are several times a second.
const notWhole = time.Second

// lost is what the agent did in runs before an interruption.
type lost struct {
	effects []trust.Effects
	asked   map[string]bool // probes that were answered then
	known   map[string]bool // those in whose windows a record was found
}

// before reads the records of the agent's runs before an interruption, as far as they go. What can't be read is no
// reason to stop: what was asked then and isn't known leaves its probes in doubt.
func (p *probing) before(ctx context.Context, dirs []string) (*lost, error) {
	l := &lost{asked: map[string]bool{}, known: map[string]bool{}}
	p.recorded = map[string]bool{}
	if len(dirs) == 0 {
		return l, nil
	}
	asked, err := audit.Asked(p.dir)
	if err != nil {
		return nil, environment(err)
	}
	for i := range asked {
		l.asked[asked[i].Probe] = true
	}
	for i, dir := range dirs {
		until := time.Time{}
		if i+1 < len(dirs) {
			if next, err := store.Open(dirs[i+1]); err == nil {
				until = next.Info.Started
			}
		}
		list, err := p.lostRun(ctx, dir, asked, until)
		if err != nil {
			p.notes = append(p.notes, fmt.Sprintf("what the agent did before the interruption is not known: %v", err))
			continue
		}
		for _, x := range list {
			l.known[x.Probe] = true
			p.recorded[x.Probe] = x.Complete && x.Probe != "" && x.Probe != unanswered
			l.effects = merge(l.effects, x)
		}
		p.notes = append(p.notes, "the agent's run before an interruption is recorded in "+filepath.Base(dir))
	}
	return l, nil
}

func (p *probing) lostRun(ctx context.Context, dir string, asked []trust.Exchange, until time.Time) ([]trust.Effects, error) {
	r, err := openKeyed(dir)
	if err != nil {
		return nil, err
	}
	lacks := new(holder).hold(r).Reasons()
	if len(r.Info.Windows) > 0 {
		return p.serviceEffects(ctx, r, r.Info.Windows)
	}
	windows, last := windowsOf(&r.Info, asked, until)
	list, err := p.serviceEffects(ctx, r, windows)
	for i := range list {
		x := &list[i]
		x.Complete, x.Why = true, ""
		k := slices.IndexFunc(asked, func(y trust.Exchange) bool { return y.Probe == x.Probe && !y.Started.Before(r.Info.Started) })
		if k < 0 || asked[k].Ended.After(last.Add(-notWhole)) {
			x.Complete, x.Why = false, "bodycam was killed, and what was done just before that may not have been written"
		}
		if len(lacks) > 0 {
			x.Complete, x.Why = false, strings.Join(lacks, "; ")
		}
	}
	return list, err
}

// windowsOf makes up a killed run's windows, which are written at its end, from when probes were sent.
func windowsOf(info *bodycam.Run, asked []trust.Exchange, until time.Time) (ws []bodycam.WindowSpan, last time.Time) {
	asked = slices.Clone(asked)
	slices.SortStableFunc(asked, func(a, b trust.Exchange) int { return a.Started.Compare(b.Started) })
	boot := func(t time.Time) uint64 { return uint64(max(0, t.UnixNano()-info.BootOffset)) }
	ws = []bodycam.WindowSpan{{Window: bodycam.WindowIdle.String(), From: boot(info.Started)}}
	for i := range asked {
		x := &asked[i]
		if x.Started.Before(info.Started) || !until.IsZero() && x.Started.After(until) {
			continue
		}
		ws = append(ws, bodycam.WindowSpan{Window: bodycam.WindowProbe.String(), Name: x.Probe, From: boot(x.Started)})
		last = x.Ended
	}
	if !last.IsZero() {
		ws = append(ws, bodycam.WindowSpan{Window: bodycam.WindowProbe.String(), Name: unanswered, From: boot(last)})
	}
	return ws, last
}

// with joins what was done before an interruption with what was done since. What was seen then convicts, though the probe
// was asked again; what isn't known of then leaves its probe in doubt.
func (l *lost) with(now []trust.Effects) []trust.Effects {
	for _, x := range l.effects {
		switch i := slices.IndexFunc(now, func(y trust.Effects) bool { return y.Probe == x.Probe }); {
		case x.Probe == "": // what is done before probes explains more than it should, if both runs' counted
			now = merge(now, trust.Effects{Complete: true, Prohibited: x.Prohibited})
		case i < 0 && x.Probe == unanswered && len(x.Effects)+len(x.Prohibited) == 0:
		default:
			now = merge(now, x)
		}
	}
	for i := range now {
		if x := &now[i]; l.asked[x.Probe] && !l.known[x.Probe] {
			x.Complete, x.Why = false, "it was asked before the interruption, and the record of that is lost"
		}
	}
	return now
}

// merge adds a window to a list. Where it is there, what either has is what was done, and one that isn't complete leaves
// it incomplete. The numbers of events are those of the list's own record.
func merge(list []trust.Effects, x trust.Effects) []trust.Effects {
	i := slices.IndexFunc(list, func(y trust.Effects) bool { return y.Probe == x.Probe })
	if i < 0 {
		return append(list, x)
	}
	y := &list[i]
	if !x.Complete {
		y.Complete = false
		y.Why = strings.Trim(y.Why+"; "+x.Why, "; ")
	}
	for _, f := range x.Effects {
		if k := slices.IndexFunc(y.Effects, func(g trust.Effect) bool { return g.Kind == f.Kind && g.Name == f.Name }); k >= 0 {
			y.Effects[k].Count += f.Count
			continue
		}
		f.Event = nil
		y.Effects = append(y.Effects, f)
	}
	for _, f := range x.Prohibited {
		if k := slices.IndexFunc(y.Prohibited, func(g trust.Prohibited) bool { return g.Rule == f.Rule && g.Resource == f.Resource }); k >= 0 {
			y.Prohibited[k].Count += f.Count
			continue
		}
		f.Event = nil
		y.Prohibited = append(y.Prohibited, f)
	}
	return list
}

// torn tells whether a record is only cut off: what stands before that counts.
func torn(err error) bool { return errors.Is(err, store.ErrTorn) }
