package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// HookNames are the keys of [Plan.Hooks], in the order of a run's life.
var HookNames = []string{
	"before_setup", "after_setup", "before_agent", "after_agent", "before_verify", "after_verify", "before_collect",
}

// Overrides is what the caller sets over kind and task. Zero fields change nothing.
type Overrides struct {
	Harness    string
	Model      string
	Command    []string                   // also sets the harness to "command" where Harness is empty
	Parameters map[string]json.RawMessage // key by key
	Env        map[string]string          // literal values, of everything in the box
	AgentEnv   map[string]string          // literal values, of the agent alone
	Network    string                     // mode
	Allow      []string                   // further hosts for the network
	Forward    []Forward                  // further forwards
	Seccomp    string
	Limits     Limits
	Timeouts   Timeouts // Agent here beats the task's and the kind's
	Sensors    []string
	Analyses   []string // names: run these, and none of the kind's others; one the kind doesn't have is a built-in one
	BuildArgs  map[string]string
	User       string
	Workdir    string
	NoTests    bool
	Oracle     bool // the agent is the task's reference solution: reading it is its job
	// LookupEnv gives values for ${VAR}; nil: nothing is set.
	LookupEnv func(name string) (string, bool)
	// TaskEnv names the variables outside that the task's own ${VAR} may have. A task comes from a stranger: what
	// isn't named here is refused to it, even if LookupEnv knows it.
	TaskEnv []string
}

// fromCaller is [EnvVar.From] of a value that the caller set.
const fromCaller = "command line"

// resolver makes one plan.
type resolver struct {
	k    *Kind
	t    *Task
	o    Overrides
	p    *Plan
	env  []EnvVar // of everything in the box, without a HOME that follows from the user
	home string   // the agent's
	errs []error
}

// Resolve makes the plan of a run. Its errors are joined: faults in the Dockerfile are [Problems], variables that
// aren't set and files that can't be read are plain errors. The same kind, task, overrides and files give the same
// plan.
func Resolve(k *Kind, t *Task, o Overrides) (*Plan, error) {
	r := &resolver{k: k, t: t, o: o, p: &Plan{
		Version: PlanVersion,
		Task:    TaskInfo{Name: t.Name, Description: t.Description, Form: t.Form, Dir: t.Dir, Instruction: t.Instruction, Keywords: t.Keywords},
		Kind:    KindInfo{Name: k.Name, Sources: k.sources},
		Skills:  slices.Clone(t.Skills), Unhonoured: slices.Clone(t.Unhonoured), Notes: slices.Clone(t.Notes),
		Transcripts: k.Transcripts, Anchors: k.Anchors, Extra: k.Extra,
	}}
	r.environment()
	r.build()
	r.steps()
	r.agent()
	r.skills()
	r.tests()
	r.timeouts()
	r.analyses()
	r.judge()
	r.digests()
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	return r.p, nil
}

func (r *resolver) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *resolver) check(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// literal are values that the caller gives as they are. They may be secrets, so the plan's JSON form leaves them out.
func literal(m map[string]string) []EnvVar {
	var out []EnvVar
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, EnvVar{Name: k, Value: m[k], From: fromCaller})
	}
	return out
}

func (r *resolver) kindEnv(m map[string]string) []EnvVar {
	vars, err := expandEnv(m, r.o.LookupEnv)
	r.check(err)
	return vars
}

// taskEnv expands variables of a task. What the caller doesn't grant is as if it weren't set.
func (r *resolver) taskEnv(m map[string]string, what string) []EnvVar {
	var out []EnvVar
	granted := func(name string) (string, bool) {
		if r.o.LookupEnv == nil || !slices.Contains(r.o.TaskEnv, name) {
			return "", false
		}
		return r.o.LookupEnv(name)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v, err := expandValue(name, m[name], granted)
		if err != nil {
			r.unhonoured(name+" = "+quote(m[name]), what, bodycam.High, "the variable isn't set: the task wants a value from outside that it wasn't granted, or that isn't set there")
			continue
		}
		out = append(out, v)
	}
	return out
}

func (r *resolver) unhonoured(code, file string, sev bodycam.Severity, why string) {
	r.p.Unhonoured = append(r.p.Unhonoured, Unhonoured{Instruction: cut(code, 200), File: file, Why: why, Severity: sev})
}

func (r *resolver) taskFileName() string {
	switch r.t.Form {
	case FormHarbor:
		return harborFile
	case FormBodycam:
		return bodycamFile
	}
	return "command line"
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func firstOf[T comparable](values ...T) (v T) {
	var zero T
	for _, v = range values {
		if v != zero {
			return v
		}
	}
	return zero
}

// environment settles all of the box but what the Dockerfile says.
func (r *resolver) environment() {
	e, te, p := r.k.Environment, r.t.Environment, r.p
	p.Base = first(string(e.Base), baseHost)
	p.Hostname = first(te.Hostname, e.Hostname, "box")
	p.Seccomp = first(r.o.Seccomp, e.Seccomp, "strict")
	p.Binds = e.Binds
	p.Limits = Limits{
		CPUs:   firstOf(r.o.Limits.CPUs, te.Limits.CPUs, e.Limits.CPUs),
		Memory: firstOf(r.o.Limits.Memory, te.Limits.Memory, e.Limits.Memory),
		PIDs:   firstOf(r.o.Limits.PIDs, te.Limits.PIDs, e.Limits.PIDs),
		Disk:   firstOf(r.o.Limits.Disk, te.Limits.Disk, e.Limits.Disk),
		Inodes: firstOf(r.o.Limits.Inodes, te.Limits.Inodes, e.Limits.Inodes),
		Output: firstOf(r.o.Limits.Output, te.Limits.Output, e.Limits.Output),
		Record: firstOf(r.o.Limits.Record, te.Limits.Record, e.Limits.Record),
	}
	r.network()
	r.env = r.kindEnv(e.Env)
	p.User = first(e.User, "root")
	p.Workdir = first(e.Workdir, "/")
}

// network lets a task tighten what the kind allows, and the caller decide.
func (r *resolver) network() {
	n, te := r.k.Environment.Network, r.t.Environment
	n.Mode, n.TLS = first(n.Mode, "record"), first(n.TLS, "pass")
	n.Allow, n.Forward = slices.Clone(n.Allow), slices.Clone(n.Forward)
	want := te.Network.Mode
	if te.Offline {
		want = "allow" // and nothing but what the kind lists, so that a model server stays reachable
	}
	switch {
	case n.Mode == "record" && want != "" && want != "record":
		n.Mode = want
		n.Allow = append(n.Allow, te.Network.Allow...)
	case n.Mode == "allow" && want == "none":
		n.Mode = want
	case n.Mode == "allow" || n.Mode == "sink":
		for _, h := range te.Network.Allow {
			if !slices.Contains(n.Allow, h) {
				r.unhonoured("network.allow: "+h, r.taskFileName(), bodycam.Medium, "the kind doesn't list the host: a task can't open what its kind keeps shut")
			}
		}
	}
	if r.o.Network != "" {
		n.Mode = r.o.Network
	}
	n.Allow = append(n.Allow, r.o.Allow...)
	n.Forward = append(n.Forward, r.o.Forward...)
	r.p.Network = n
}

// build reads the Dockerfile and lays what it says over the kind's environment.
func (r *resolver) build() {
	p, te := r.p, r.t.Environment
	if te.Build != nil {
		spec := *te.Build
		spec.Args = mergeStrings(spec.Args, r.o.BuildArgs)
		b, err := readBuild(r.t.Dir, spec, buildBase{env: r.env, user: p.User, images: r.k.Environment.Images})
		if err != nil {
			r.check(err)
			return
		}
		r.env = b.env
		p.Workdir, p.User = first(b.workdir, p.Workdir), first(b.user, p.User)
		p.Setup = b.steps
		p.Unhonoured = append(p.Unhonoured, b.unhonoured...)
	}
	r.env = overlayEnv(r.env, r.taskEnv(te.Env, r.taskFileName())...)
	r.env = overlayEnv(r.env, literal(r.o.Env)...)
	p.Workdir = path.Clean(first(r.o.Workdir, te.Workdir, p.Workdir))
	p.User = first(r.o.User, te.User, p.User)
	p.Env = withHome(r.env, p.User)
	for _, v := range withHome(r.env, r.agentUser()) {
		if v.Name == "HOME" {
			r.home = path.Join("/", v.Value)
		}
	}
	p.Artifacts = r.boxPaths(slices.Concat(r.k.Artifacts, te.Artifacts)...)
}

func (r *resolver) agentUser() string {
	return first(r.o.User, r.t.Agent.User, r.k.Agent.User, r.p.User)
}

// userOfTask tells whether it is the task that names the agent's user.
func (r *resolver) userOfTask() bool {
	switch {
	case r.o.User != "":
		return false
	case r.t.Agent.User != "":
		return true
	}
	return r.k.Agent.User == "" && r.p.User != first(r.k.Environment.User, "root")
}

// boxPath puts the box's own values into a path of a kind or task file.
func (r *resolver) boxPath(p string) string {
	for _, v := range [][2]string{{"${workdir}", r.p.Workdir}, {"${home}", r.home}} {
		if rest, ok := strings.CutPrefix(p, v[0]); ok {
			return orElse(strings.TrimSuffix(v[1], "/")+rest, "/")
		}
	}
	return p
}

func (r *resolver) boxPaths(ps ...string) []string {
	var out []string
	for _, p := range ps {
		if p = r.boxPath(p); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// steps adds the task's files and steps, the kind's steps, and the hooks.
func (r *resolver) steps() {
	p, te := r.p, r.t.Environment
	if te.Workspace != "" {
		c := Copy{From: te.Workspace, Root: te.Workspace, To: p.Workdir}
		r.check(c.seal(nil))
		p.Setup = append(p.Setup, PlanStep{Name: "workspace", Copies: []Copy{c}, Workdir: p.Workdir, User: p.User, Source: r.taskFileName()})
	}
	if len(te.Files) > 0 {
		s := Step{Name: "files", Copy: te.Files, at: r.taskFileName()}
		p.Setup = append(p.Setup, r.step(s, true))
	}
	for _, s := range te.Setup {
		p.Setup = append(p.Setup, r.step(s, true))
	}
	p.Setup = append(p.Setup, r.kindSteps(r.k.Setup)...)
	p.Validate = r.kindSteps(r.k.Validate)
	h := r.k.Hooks
	hooks := [][]Step{h.BeforeSetup, h.AfterSetup, h.BeforeAgent, h.AfterAgent, h.BeforeVerify, h.AfterVerify, h.BeforeCollect}
	for i, name := range HookNames {
		if len(hooks[i]) > 0 {
			if p.Hooks == nil {
				p.Hooks = map[string][]PlanStep{}
			}
			p.Hooks[name] = r.kindSteps(hooks[i])
		}
	}
}

func (r *resolver) kindSteps(ss []Step) []PlanStep {
	var out []PlanStep
	for _, s := range ss {
		out = append(out, r.step(s, false))
	}
	return out
}

// step resolves a step of the kind, or of the task.
func (r *resolver) step(s Step, ofTask bool) PlanStep {
	ps := PlanStep{
		Name: s.Name, Argv: s.Run.Args(), Workdir: first(s.Workdir, r.p.Workdir), User: first(s.User, r.p.User),
		Timeout: s.Timeout, Exit: s.Exit, Source: s.at,
	}
	for _, cs := range s.Copy {
		c := Copy{From: string(cs.From), Root: filepath.Dir(string(cs.From)), To: path.Clean(cs.To), Owner: cs.Owner, Mode: cs.Mode}
		if ofTask {
			c.Root = r.t.Dir
		}
		if strings.HasSuffix(cs.To, "/") {
			c.To = path.Join(cs.To, filepath.Base(c.From))
		}
		if err := c.seal(nil); err != nil {
			r.fail("%s: step %s: %w", s.at, s.Name, err)
		}
		ps.Copies = append(ps.Copies, c)
	}
	if len(ps.Copies) == 0 {
		env := r.kindEnv
		if ofTask {
			env = func(m map[string]string) []EnvVar { return r.taskEnv(m, s.at) }
		}
		ps.Env = withHome(overlayEnv(r.env, env(s.Env)...), ps.User)
	}
	return ps
}
