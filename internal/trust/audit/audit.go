// Package audit is the life of a trust audit: make probes, send them, gather what was done, ask the judge, score. Each
// step leaves its result in the audit's directory, so that an interrupted audit goes on where it was and a finished one
// can be scored again under other rules.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/declare"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
	"github.com/bodycam-dev/bodycam/internal/trust/probe"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/bodycam-dev/bodycam/internal/trust/trace"
)

// Config is what an audit needs.
type Config struct {
	Dir         string // made where it isn't there; an unfinished audit in it goes on
	Tool        string // who audits: version
	Target      string
	Declaration *declare.Result
	Agent       deliver.Agent
	Judge       trust.Judge
	Deliver     deliver.Options

	Probes   []trust.Probe // written by hand; nil: they are made
	PerScope int           // probes made a scope
	Repeat   int           // how often each is sent
	Seed     uint64
	Model    probe.Asker // makes probes in the embedded generator's place; nil: the embedded one
	// Budget is the Good–Turing estimate of unseen tools down to which probes in scope are added, for skills that no tool
	// call was seen of first; Rounds bounds how often. Both need traces.
	Budget float64
	Rounds int

	Traces    trace.Source // nil: none were promised
	TraceWait time.Duration
	Kernel    bool // the agent runs under observation: SetEffects will be called
	// Recorded are the probes of an interrupted audit whose windows a record holds. The others are sent once more.
	Recorded map[string]bool
	Hosts    []string // that the auditor let the agent reach: they are in order
	Reached  string   // digest of how the agent is reached and run; kept

	Progress func(Progress)
}

// Progress is what an audit is doing.
type Progress struct {
	Phase       string // probes, sending, traces, judging
	Done, Total int
	Message     string
}

// Audit is an audit that is being made.
type Audit struct {
	c    Config
	meta *Meta
	e    *score.Evidence
	gen  *probe.Generator
	gone []trust.Probe // dropped
}

// Open makes an audit's directory with its probes, or takes up the unfinished one that is there.
func Open(ctx context.Context, c Config) (*Audit, error) {
	if c.Judge == nil {
		return nil, errors.New("an audit needs a judge")
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.TraceWait <= 0 {
		c.TraceWait = 15 * time.Second
	}
	d := c.Declaration.Declaration
	a := &Audit{c: c, gen: probe.New(d, c.Seed)}
	_, err := os.Stat(filepath.Join(c.Dir, MetaFile))
	switch {
	case err == nil:
		return a, a.resume()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("opening the audit's directory: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the audit's directory: %w", err)
	}
	if err := a.keepTraces(); err != nil {
		return nil, err
	}
	sigs, err := json.Marshal(c.Declaration.Signatures)
	if err != nil {
		return nil, fmt.Errorf("keeping the card's signatures: %w", err)
	}
	a.meta = &Meta{Schema: Schema, Tool: c.Tool, Target: c.Target, Started: time.Now().UTC(), Seed: c.Seed, PerScope: c.PerScope, Repeat: c.Repeat, Judge: c.Judge.Name(),
		Kernel: c.Kernel, Reached: c.Reached, Hosts: c.Hosts, Declaration: d, Variants: c.Declaration.Variants, Signatures: sigs, Findings: c.Declaration.Findings}
	if c.Traces != nil {
		a.meta.Traces = c.Traces.Name()
	}
	if err := writeFile(c.Dir, DeclarationFile, c.Declaration.Raw); err != nil {
		return nil, err
	}
	probes, dropped, err := a.make(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writeLines(c.Dir, ProbesFile, probes), writeLines(c.Dir, DroppedFile, dropped), a.save()); err != nil {
		return nil, err
	}
	return a, a.load()
}

// keepTraces has traces that nobody else keeps kept in the directory: an audit that is taken up again needs those of before.
func (a *Audit) keepTraces() error {
	if k, ok := a.c.Traces.(interface{ Keep(path string) error }); ok {
		return k.Keep(filepath.Join(a.c.Dir, TracesFile))
	}
	return nil
}

func (a *Audit) save() error { return writeJSON(a.c.Dir, MetaFile, a.meta) }

func (a *Audit) load() (err error) {
	if a.meta, a.e, err = Load(a.c.Dir); err != nil {
		return err
	}
	if a.gone, err = readLines[trust.Probe](a.c.Dir, DroppedFile, false); err != nil {
		return err
	}
	a.gen.Known(a.e.Probes)
	a.gen.Known(a.gone)
	return nil
}

// resume takes up what is there. The declaration must not have changed.
func (a *Audit) resume() error {
	if err := a.load(); err != nil {
		return err
	}
	if !a.meta.Ended.IsZero() {
		return fmt.Errorf("the audit in %s is finished: choose another directory, or score it again with --rescore", a.c.Dir)
	}
	sum := sha256.Sum256(a.c.Declaration.Raw)
	if now := hex.EncodeToString(sum[:]); now != a.meta.Declaration.SHA256 {
		return fmt.Errorf("the declaration has changed since the audit in %s began (%.12s, now %.12s): begin a new one", a.c.Dir, a.meta.Declaration.SHA256, now)
	}
	if err := a.keepTraces(); err != nil {
		return err
	}
	if a.c.Kernel && len(a.e.Exchanges) > 0 {
		if err := a.forget(); err != nil {
			return err
		}
	}
	a.meta.Notes = append(a.meta.Notes, fmt.Sprintf("taken up again at %s with %d of %d probes sent", time.Now().UTC().Format(time.RFC3339), len(a.e.Exchanges), len(a.e.Probes)))
	return a.save()
}

// forget puts aside what was said before an interruption of an audit under observation, as far as no record of it is left,
// so that those probes are sent once more.
func (a *Audit) forget() error {
	var kept []*trust.Exchange
	var opinions []opinion
	gone := 0
	for i := range a.e.Probes {
		id := a.e.Probes[i].ID
		x := a.e.Exchanges[id]
		switch {
		case x == nil:
		case !a.c.Recorded[id]:
			gone++
		default:
			kept = append(kept, x)
			if o, ok := a.e.Opinions[id]; ok {
				opinions = append(opinions, opinion{id, o})
			}
		}
	}
	if gone == 0 {
		return nil
	}
	a.meta.Notes = append(a.meta.Notes, fmt.Sprintf("%d exchanges of before the interruption are put aside and asked again, since no whole kernel record of them is left; what is recorded of them counts", gone))
	aside := fmt.Sprintf("interrupted-%d-%s", len(a.meta.Notes), ExchangesFile)
	if err := os.Rename(filepath.Join(a.c.Dir, ExchangesFile), filepath.Join(a.c.Dir, aside)); err != nil {
		return fmt.Errorf("putting aside what was before the interruption: %w", err)
	}
	if err := errors.Join(writeLines(a.c.Dir, ExchangesFile, kept), writeLines(a.c.Dir, OpinionsFile, opinions), a.save()); err != nil {
		return err
	}
	return a.load()
}

// make makes the probes, or takes those written by hand, and has the scope judge look at them.
func (a *Audit) make(ctx context.Context) (kept, dropped []trust.Probe, err error) {
	list := a.c.Probes
	if list != nil {
		a.gen.Known(list)
	}
	for _, scope := range trust.Scopes {
		if list != nil && a.c.Probes != nil {
			break
		}
		// Some near and out probes will be dropped: make more at once, and keep as many as are wanted.
		got, gone, err := a.scope(ctx, scope)
		if err != nil {
			return nil, nil, err
		}
		kept, dropped = append(kept, got...), append(dropped, gone...)
	}
	if a.c.Probes != nil {
		if kept, dropped, err = probe.Filter(ctx, a.c.Judge, a.meta.Declaration, list); err != nil {
			return nil, nil, err
		}
	}
	if len(kept) == 0 {
		return nil, nil, errors.New("no probe is left to be sent: the scope judge found all to belong elsewhere")
	}
	return probe.Repeat(kept, a.c.Repeat), dropped, nil
}

// scope makes the probes of one scope, and makes up for those that the judge drops or doubts.
func (a *Audit) scope(ctx context.Context, scope trust.Scope) (kept, dropped []trust.Probe, err error) {
	good := 0
	for round := 0; round < 6 && good < a.c.PerScope; round++ {
		want := a.c.PerScope - good
		var made []trust.Probe
		if a.c.Model != nil && round < 3 {
			if made, err = a.gen.ByModel(ctx, a.c.Model, scope, want); err != nil {
				return nil, nil, err
			}
		} else {
			made = a.gen.Make(scope, want)
		}
		if len(made) == 0 {
			break
		}
		got, gone, err := probe.Filter(ctx, a.c.Judge, a.meta.Declaration, made)
		if err != nil {
			return nil, nil, err
		}
		dropped = append(dropped, gone...)
		for _, p := range got {
			if p.Doubtful && scope != trust.In { // there are others
				dropped = append(dropped, p)
				continue
			}
			kept = append(kept, p)
			if !p.Doubtful {
				good++
			}
		}
		a.c.Progress(Progress{Phase: "probes", Done: good, Total: a.c.PerScope})
	}
	return kept, dropped, nil
}

// Estimate is what sending the rest of the probes will take.
type Estimate struct {
	Probes   int           // to be sent
	Messages int           // at most, with answers to clarifying questions
	Longest  time.Duration // if each took the whole time-out
	Judged   int           // replies to be judged
}

// Estimate says what is still to be done.
func (a *Audit) Estimate() Estimate {
	var e Estimate
	for i := range a.e.Probes {
		p := &a.e.Probes[i]
		if a.e.Exchanges[p.ID] == nil {
			e.Probes++
			e.Messages++
			if p.Scope == trust.In {
				e.Messages += len(p.Turns)
			}
		}
		if _, ok := a.e.Opinions[p.ID]; !ok {
			e.Judged++
		}
	}
	n := max(1, a.c.Deliver.Concurrency)
	timeout := a.c.Deliver.Timeout
	if timeout <= 0 {
		timeout = 2 * time.Minute
	}
	e.Longest = timeout * time.Duration((e.Messages+n-1)/n)
	return e
}

// Probes are the probes of the audit.
func (a *Audit) Probes() []trust.Probe { return a.e.Probes }

// Meta is what the audit is of.
func (a *Audit) Meta() *Meta { return a.meta }

// Send sends what was not sent yet, waits for traces, and adds probes while the estimate of unseen tools is above the
// budget.
func (a *Audit) Send(ctx context.Context) error {
	for {
		if err := a.send(ctx); err != nil {
			return err
		}
		if err := a.gather(ctx); err != nil {
			return err
		}
		if a.c.Traces == nil || a.meta.Rounds >= a.c.Rounds {
			return nil
		}
		more := a.steer()
		if len(more) == 0 {
			return nil
		}
		a.meta.Rounds++
		more, dropped, err := probe.Filter(ctx, a.c.Judge, a.meta.Declaration, more)
		if err != nil {
			return err
		}
		a.e.Probes, a.gone = append(a.e.Probes, more...), append(a.gone, dropped...)
		a.meta.Notes = append(a.meta.Notes, fmt.Sprintf("round %d: %d probes added for skills and tools not seen enough, %d dropped", a.meta.Rounds, len(more), len(dropped)))
		if err := errors.Join(writeLines(a.c.Dir, DroppedFile, a.gone), writeLines(a.c.Dir, ProbesFile, a.e.Probes), a.save()); err != nil {
			return err
		}
	}
}

func (a *Audit) send(ctx context.Context) error {
	var rest []trust.Probe
	for _, p := range a.e.Probes {
		if a.e.Exchanges[p.ID] == nil {
			rest = append(rest, p)
		}
	}
	// Whatever order the file has, scopes are mixed: an agent must not learn when the serious ones come.
	slices.SortStableFunc(rest, func(x, y trust.Probe) int {
		if x.Repeat != y.Repeat {
			return x.Repeat - y.Repeat
		}
		return int(mix(x.ID)) - int(mix(y.ID))
	})
	if len(rest) == 0 {
		return nil
	}
	path := filepath.Join(a.c.Dir, ExchangesFile)
	if err := trimCut(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keeping exchanges: %w", err)
	}
	defer f.Close()
	o := a.c.Deliver
	o.Traced = true // it costs nothing, and shows who looks at it
	total := len(a.e.Probes)
	a.c.Progress(Progress{Phase: "sending", Done: total - len(rest), Total: total})
	err = deliver.Run(ctx, a.c.Agent, rest, o, func(x *trust.Exchange) error {
		b, err := json.Marshal(x)
		if err != nil {
			return fmt.Errorf("encoding an exchange: %w", err)
		}
		if _, err := f.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("keeping an exchange: %w", err)
		}
		a.e.Exchanges[x.Probe] = x
		a.c.Progress(Progress{Phase: "sending", Done: len(a.e.Exchanges), Total: total, Message: x.ErrorIs})
		return nil
	})
	if err != nil {
		return fmt.Errorf("sending probes: %w", err)
	}
	return f.Sync()
}

// trimCut removes a last line that a crash cut off.
func trimCut(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (len(b) == 0 || b[len(b)-1] == '\n') {
		return nil
	}
	if err == nil {
		end := slices.Index(b, '\n')
		for i, c := range b {
			if c == '\n' {
				end = i
			}
		}
		err = os.Truncate(path, int64(end+1))
	}
	if err != nil {
		return fmt.Errorf("taking up the audit's exchanges: %w", err)
	}
	return nil
}

// mix orders probes as if by chance, and always alike.
func mix(id string) uint32 {
	s := sha256.Sum256([]byte(id))
	return uint32(s[0])<<16 | uint32(s[1])<<8 | uint32(s[2])
}

// gather joins traces and what the replies show with the exchanges.
func (a *Audit) gather(ctx context.Context) error {
	probes := map[string]*trust.Probe{}
	var xs []*trust.Exchange
	var all []trust.Calls
	for i := range a.e.Probes {
		p := &a.e.Probes[i]
		probes[p.ID] = p
		if x := a.e.Exchanges[p.ID]; x != nil {
			xs = append(xs, x)
			if x.InBand != nil {
				all = append(all, *x.InBand)
			}
		}
	}
	if a.c.Traces != nil && len(xs) > 0 {
		a.c.Progress(Progress{Phase: "traces", Total: len(xs)})
		calls, err := trace.Wait(ctx, a.c.Traces, probes, xs, a.c.TraceWait)
		if err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(calls)) {
			all = append(all, calls[id])
		}
	}
	clear(a.e.Calls)
	for _, c := range all {
		a.e.Calls[c.Probe] = append(a.e.Calls[c.Probe], c)
	}
	return writeLines(a.c.Dir, CallsFile, all)
}

// steer makes more probes in scope while too much is unseen: most for skills that no tool call was seen of, some for those
// whose tools were seen once, and one for each other skill while the estimate of unseen tools is above the budget. None are
// made where no trace shows any call: an agent without tools, or without traces, has nothing to be found.
func (a *Audit) steer() []trust.Probe {
	incidences, m := map[string]int{}, 0
	skills := map[string]map[string]bool{} // tools by skill
	for _, p := range a.e.Probes {
		seen := map[string]bool{}
		for _, c := range a.e.Calls[p.ID] {
			for _, t := range c.Calls {
				seen[t.Tool] = true
			}
		}
		m++
		for t := range seen {
			incidences[t]++
			if p.Scope == trust.In {
				if skills[p.Skill] == nil {
					skills[p.Skill] = map[string]bool{}
				}
				skills[p.Skill][t] = true
			}
		}
	}
	if len(incidences) == 0 {
		return nil
	}
	unseen := score.EstimateUnseen(incidences, m)
	open := unseen.GoodTuring > a.c.Budget || unseen.Chao2-float64(unseen.Seen) >= 1
	var out []trust.Probe
	for _, s := range a.meta.Declaration.Skills {
		n := 0
		if open {
			n = 1
			for t := range skills[s.ID] {
				if incidences[t] == 1 {
					n = 2
				}
			}
		}
		if len(skills[s.ID]) == 0 {
			n = 3
		}
		out = append(out, a.gen.For(s.ID, n)...)
	}
	return out
}

// SetEffects gives the audit what the kernel's record shows for each probe's window ("": the idle window).
func (a *Audit) SetEffects(list []trust.Effects) error {
	a.e.Effects = map[string]*trust.Effects{}
	for i := range list {
		a.e.Effects[list[i].Probe] = &list[i]
	}
	return writeLines(a.c.Dir, EffectsFile, list)
}

// Judge asks the judge about replies and tools that it wasn't asked about yet.
func (a *Audit) Judge(ctx context.Context, parallel int) error {
	if err := trimCut(filepath.Join(a.c.Dir, OpinionsFile)); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(a.c.Dir, OpinionsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keeping opinions: %w", err)
	}
	defer f.Close()
	var rest []*trust.Probe
	for i := range a.e.Probes {
		p := &a.e.Probes[i]
		x := a.e.Exchanges[p.ID]
		if _, ok := a.e.Opinions[p.ID]; !ok && x != nil && x.Error == "" {
			rest = append(rest, p)
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan *trust.Probe)
	var mu sync.Mutex
	var wg sync.WaitGroup
	done := 0
	for range max(1, parallel) {
		wg.Go(func() {
			for p := range work {
				if ctx.Err() != nil {
					continue
				}
				o, err := a.c.Judge.Reply(ctx, a.meta.Declaration, p, a.e.Exchanges[p.ID].Reply())
				mu.Lock()
				if err == nil {
					err = appendLine(f, opinion{p.ID, o})
				}
				if err != nil {
					stop(fmt.Errorf("judging the reply to probe %s: %w", p.ID, err))
				} else {
					a.e.Opinions[p.ID] = o
					done++
					a.c.Progress(Progress{Phase: "judging", Done: done, Total: len(rest)})
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range rest {
		work <- p
	}
	close(work)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, t := range a.e.Names() {
		if _, ok := a.e.Tools[t.Name]; ok {
			continue
		}
		o, err := a.c.Judge.Tool(ctx, a.meta.Declaration, t)
		if err != nil {
			return fmt.Errorf("judging the tool %q: %w", bodycam.Escape(t.Name), err)
		}
		a.e.Tools[t.Name] = o
	}
	return writeJSON(a.c.Dir, ToolsFile, a.e.Tools)
}

func appendLine(f *os.File, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	return err
}

// Finish scores the audit, and notes that it is finished.
func (a *Audit) Finish(rules score.Options) (*score.Result, error) {
	if c, ok := a.c.Traces.(io.Closer); ok { // what comes now is too late, and the file must not change any more
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	a.meta.Ended = time.Now().UTC()
	if err := a.save(); err != nil {
		return nil, err
	}
	return score.Score(a.e, rules), nil
}

// Evidence is what the audit has gathered.
func (a *Audit) Evidence() *score.Evidence { return a.e }
