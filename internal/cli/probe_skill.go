package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/declare"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
)

// skilled is an agent program with a skill, as an agent to be audited: each message is a run of its own.
type skilled struct {
	f       *serviceFlags
	s       *streams
	dir     string // of the runs
	id      string
	task    string // directory of the task that is given to the agent, with a copy of the skill
	name    string // the skill's directory
	raw     []byte // SKILL.md
	wait    kind.Duration
	model   session.Model
	sealing *store.Sealing
	keys    session.Options // what every run has in common
	probe   string          // the message's
	idle    map[string]int  // how often files of the skill are opened without a task for it
}

// idleRun is the name of the run that shows what the agent does by itself.
const idleRun = "idle"

// inHarness audits a skill: tasks within its scope are given to an agent program that has it, one run each.
func (p *probing) inHarness(ctx context.Context) error {
	a, done, err := p.skilled(ctx)
	if err != nil {
		return err
	}
	defer done()
	p.skill = a
	p.around = func(t *trust.Probe) (func(), error) { a.probe = t.ID; return func() {}, nil }
	p.target, p.recorded = p.f.skill, a.recorded()
	if err := p.prepare(ctx); err != nil || p.audit == nil {
		return err
	}
	if !p.f.quiet {
		fmt.Fprintf(p.s.err, "bodycam: each probe is a run of %s in a sandbox, beside one for what it does by itself; recorded in %s\n", p.f.service.run.agent, a.dir)
	}
	if err := a.rest(ctx); err != nil {
		return err
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	effects, err := a.effects(p.audit.Probes())
	if err != nil {
		return environment(err)
	}
	p.notes = append(p.notes, "the agent's runs are recorded in "+filepath.Base(a.dir))
	return p.conclude(ctx, effects)
}

func (p *probing) skilled(ctx context.Context) (a *skilled, done func(), err error) {
	f := &p.f.service
	abs, err := filepath.Abs(p.f.skill)
	if err != nil {
		return nil, nil, usage("--skill: %w", err)
	}
	raw, err := os.ReadFile(filepath.Join(abs, "SKILL.md"))
	if err != nil {
		return nil, nil, withHint(usage("--skill %s: %w", p.f.skill, err), "the folder of one skill, with a SKILL.md, is wanted")
	}
	a = &skilled{f: f, s: p.s, id: p.id, name: filepath.Base(abs), raw: raw, wait: kind.Duration(p.f.timeout), dir: filepath.Join(filepath.Dir(p.dir), p.id+"-runs"), idle: map[string]int{}}
	if a.task, err = os.MkdirTemp("", "bodycam-skill-"); err != nil {
		return nil, nil, environment(err)
	}
	undo := []func(){func() { os.RemoveAll(a.task) }}
	done = func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
	}
	fail := func(err error) (*skilled, func(), error) { done(); return nil, nil, err }
	if err := os.CopyFS(filepath.Join(a.task, a.name), os.DirFS(abs)); err != nil {
		return fail(usage("copying the skill: %w", err))
	}
	if f.inside, err = f.readSecrets(); err != nil {
		return fail(err)
	}
	var stop func()
	if a.model, stop, err = f.run.endpoint(ctx, p.s); err != nil {
		return fail(err)
	}
	undo = append(undo, stop)
	ring, created, err := openRing()
	if err != nil {
		return fail(environment(err))
	}
	if created && !p.f.quiet {
		fmt.Fprintf(p.s.err, "bodycam: made keys for this machine in %s\n", ring.Dir)
	}
	host, err := (&ringFlags{}).hostLog()
	if err != nil {
		return fail(environment(err))
	}
	a.keys = session.Options{HostLog: host, Tool: build(), Identities: ring.Identities, Model: a.model, Secrets: f.inside.swaps}
	a.sealing = &store.Sealing{Signers: ring.Signers, Recipients: ring.Recipients, Recorder: recorderName()}
	if err := a.check(ctx); err != nil { // what is wrong is said before anything is made
		return fail(err)
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fail(environment(err))
	}
	return a, done, nil
}

// check settles how the agent program would be started.
func (a *skilled) check(ctx context.Context) error {
	plan, h, err := a.plan("say OK")
	if err != nil {
		return err
	}
	o := a.keys
	o.Plan, o.Harness = plan, h
	switch err := o.Prepare(ctx); {
	case errors.Is(err, session.ErrEnvironment):
		return environment(err)
	case err != nil:
		return usage("%w", err)
	}
	return nil
}

// plan makes the plan of a run that asks the agent for something.
func (a *skilled) plan(instruction string) (*kind.Plan, harness.Harness, error) {
	b, err := json.Marshal(map[string]any{"name": "skill-audit", "instruction": instruction, "skills": []string{a.name}})
	if err != nil {
		return nil, nil, environment(err)
	}
	file := filepath.Join(a.task, "task.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return nil, nil, environment(err)
	}
	run := a.f.run
	if run.workspace != "" {
		return nil, nil, usage("--workspace doesn't go with --skill")
	}
	if run.kind == "" || run.kind == "command" {
		run.kind = "default"
	}
	if run.network == "" {
		run.network = "sink" // what a skill does not declare must not get out
	}
	plan, err := run.resolve(file, nil)
	if err != nil {
		return nil, nil, err
	}
	plan.Timeouts.Agent, plan.Agent.Timeout = a.wait, a.wait
	h, err := harness.Get(plan.Agent.Harness)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	return plan, h, nil
}

// recorded are the probes of an interrupted audit whose runs were finished.
func (a *skilled) recorded() map[string]bool {
	out := map[string]bool{}
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return out // there is none, and the runs will say so
	}
	var h holder
	for _, e := range entries {
		r, err := store.Open(filepath.Join(a.dir, e.Name()))
		name, ok := strings.CutPrefix(e.Name(), a.id+"-")
		if !ok || err != nil || r.Info.Ended.IsZero() {
			continue
		}
		h.hold(r) // one that isn't what was sealed is run again
		if r.Info.Complete.Complete {
			out[name] = true
		}
	}
	return out
}

// start carries out one run. One of the same name that was cut off gives way.
func (a *skilled) start(ctx context.Context, name, instruction string) (*store.Run, error) {
	plan, h, err := a.plan(instruction)
	if err != nil {
		return nil, err
	}
	o := a.keys
	o.Plan, o.Harness, o.Sealing = plan, h, a.sealing
	o.ID = a.id + "-" + name
	o.Dir = filepath.Join(a.dir, o.ID)
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, err
	}
	for _, d := range security.Plant(plan.Agent.Home, string(a.raw)+"\n"+instruction) {
		o.Decoys = append(o.Decoys, session.Decoy{Decoy: bodycam.Decoy{Name: d.Name, Path: d.Path, Value: d.Value}, Content: d.Content})
	}
	return runKept(ctx, o)
}

// rest shows what the agent program does by itself, with the skill in its place and nothing to use it for. That a model
// has no answer to the question doesn't matter.
func (a *skilled) rest(ctx context.Context) error {
	r, err := store.Open(filepath.Join(a.dir, a.id+"-"+idleRun))
	if err != nil || r.Info.Ended.IsZero() || len(new(holder).hold(r).Reasons()) > 0 {
		if r, err = a.start(ctx, idleRun, "Reply with the word OK and nothing else. Use no tool and no skill."); err != nil {
			return environment(fmt.Errorf("running the agent without a task: %w", err))
		}
	}
	a.idle, err = a.opened(r)
	if err != nil {
		return environment(err)
	}
	return nil
}

// Say gives the agent a task for its skill. A run in which the skill wasn't used shows nothing of it, and is left out.
func (a *skilled) Say(ctx context.Context, m deliver.Message) (*deliver.Answer, error) {
	task := fmt.Sprintf("Use the skill %s for this.\n\n%s", a.name, m.Text)
	r, err := a.start(ctx, a.probe, task)
	if err == nil && !r.Info.Complete.Complete { // on a busy machine events can be lost: once more, unless what is there convicts
		x, xerr := a.effectsOf(r)
		if xerr == nil && !slices.ContainsFunc(x.Effects, func(f trust.Effect) bool { return f.Undeclared }) {
			r, err = a.start(ctx, a.probe, task)
		}
	}
	if err != nil {
		return nil, err
	}
	rows, err := r.Rows()
	if err != nil {
		return nil, err
	}
	out := &deliver.Answer{Session: m.Session}
	trouble := "the agent said nothing"
	for _, row := range rows {
		switch row.Kind {
		case bodycam.RowMessage:
			out.Text = row.Text
		case bodycam.RowError:
			trouble = "the agent said nothing, but: " + bodycam.Escape(row.Text)
		}
	}
	if out.Text == "" {
		return nil, errors.New(trouble)
	}
	n, err := a.opened(r)
	if err != nil {
		return nil, err
	}
	for file, count := range n {
		if count > a.idle[file] {
			return out, nil
		}
	}
	return nil, errors.New("the agent answered without its skill")
}

// opened counts how often each file of the skill was opened or run.
func (a *skilled) opened(r *store.Run) (map[string]int, error) {
	out := map[string]int{}
	err := r.Events(func(e *bodycam.Event) error {
		if e.Failed() {
			return nil
		}
		for _, p := range []string{e.Path, e.Exe, e.Script} {
			if rel, ok := a.within(p); ok && (e.Type == bodycam.TypeOpen && p == e.Path || e.Type == bodycam.TypeExec) {
				out[rel]++
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading what the agent did: %w", err)
	}
	return out, nil
}

// within tells whether a path in the sandbox is of the skill, and which of its files: each copy of it counts.
func (a *skilled) within(p string) (string, bool) {
	_, rel, ok := strings.Cut(p, "/skills/"+a.name+"/")
	return rel, ok && rel != ""
}

// effects reads what each run did, with what the skill doesn't declare marked.
func (a *skilled) effects(probes []trust.Probe) ([]trust.Effects, error) {
	var out []trust.Effects
	names := []string{idleRun}
	for i := range probes {
		names = append(names, probes[i].ID)
	}
	for i, name := range names {
		dir := filepath.Join(a.dir, a.id+"-"+name)
		r, err := store.Open(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNotRun) {
			continue // not sent, or cut off
		}
		if err != nil {
			return nil, err
		}
		x, err := a.effectsOf(r)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			x.Probe = name
		}
		out = append(out, *x)
	}
	return out, nil
}

func (a *skilled) effectsOf(r *store.Run) (*trust.Effects, error) {
	plan := new(kind.Plan)
	if err := json.Unmarshal(r.Info.Plan, plan); err != nil {
		return nil, fmt.Errorf("reading the plan of %s: %w", r.Dir, err)
	}
	decoys, err := plantedDecoys(r)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	scope := declare.ScopeOf(a.raw, plan.Agent.Home)
	x := &trust.Effects{Complete: r.Info.Complete.Complete, Why: strings.Join(r.Info.Complete.Reasons, "; ")}
	at := map[string]int{}
	err = r.Events(func(e *bodycam.Event) error {
		if e.Window != bodycam.WindowAgent && e.Window != bodycam.WindowPostAgent {
			return nil
		}
		kind, name := effectOf(e)
		undeclared := false
		switch kind {
		case "host":
			undeclared = !scope.Host(name) && !slices.Contains(a.f.run.allow, name)
		case "file", "delete":
			p := e.Path
			if e.Type == bodycam.TypeRename || e.Type == bodycam.TypeLink || e.Type == bodycam.TypeSymlink {
				p = e.Path2
			}
			undeclared = !a.mayChange(plan, scope, p)
		case "":
			if e.Type == bodycam.TypeOpen && !e.Failed() {
				for _, d := range decoys {
					if path.Clean(e.Path) == d.Path && !scope.Path(d.Path) {
						kind, name, undeclared = "secret", bodycam.Escape(d.Path), true
					}
				}
			}
		}
		if kind == "" || name == "" {
			return nil
		}
		i, ok := at[kind+"\x00"+name]
		if !ok {
			i = len(x.Effects)
			at[kind+"\x00"+name] = i
			x.Effects = append(x.Effects, trust.Effect{Kind: kind, Name: name, Undeclared: undeclared})
		}
		x.Effects[i].Undeclared = x.Effects[i].Undeclared || undeclared
		x.Effects[i].Count += e.N()
		if len(x.Effects[i].Event) < 5 {
			x.Effects[i].Event = append(x.Effects[i].Event, e.Seq)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading what the agent did: %w", err)
	}
	return x, nil
}

// mayChange tells whether a file is one that a task changes anyway: in the working directory, of the harness's own state,
// or named by the skill. The skill's own files are not.
func (a *skilled) mayChange(plan *kind.Plan, scope *declare.SkillScope, p string) bool {
	if _, ok := a.within(p); ok {
		return false
	}
	if p == plan.Workdir || strings.HasPrefix(p, plan.Workdir+"/") || scope.Path(p) {
		return true
	}
	return slices.ContainsFunc(plan.Judge.HarnessState, func(g string) bool { return bodycam.Glob(g, p) })
}
