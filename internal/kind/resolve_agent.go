package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// agent settles which program is run, and how.
func (r *resolver) agent() {
	a := r.k.Agent
	cmd := a.Command.Args()
	if len(r.t.Agent.Command) > 0 {
		cmd = r.t.Agent.Command
	}
	if len(r.o.Command) > 0 {
		cmd = r.o.Command
	}
	params := maps.Clone(a.Parameters)
	if params == nil && len(r.o.Parameters) > 0 {
		params = map[string]json.RawMessage{}
	}
	maps.Copy(params, r.o.Parameters)
	harness := first(r.o.Harness, a.Harness)
	if r.o.Harness == "" && (len(r.o.Command) > 0 || len(r.t.Agent.Command) > 0) {
		harness = harnessCommand
	}
	if raw, ok := params[harnessCommand]; ok && harness == harnessCommand {
		if len(r.o.Command) == 0 {
			cmd = r.parameterCommand(raw)
		}
		delete(params, harnessCommand)
	}
	switch {
	case harness == "":
		r.fail("kind %s names no harness: set agent.harness", r.k.Name)
	case harness == harnessCommand && len(cmd) == 0:
		r.fail("harness command needs a command: give one after -- or as --param command=…, or set agent.command in the kind (%s)", r.k.Name)
	case harness != harnessCommand && len(r.o.Command) == 0 && len(a.Command.Args()) == 0:
		cmd = nil // a bare command line is the instruction of another harness, not its program
	}
	dirs := slices.Clone(a.SkillDirs)
	if d := r.t.Environment.SkillsDir; d != "" {
		dirs = append(dirs, path.Join("/", d))
	}
	env := overlayEnv(r.kindEnv(a.Env), literal(r.o.AgentEnv)...)
	if user := r.agentUser(); user != r.p.User && homeOf(user) != homeOf(r.p.User) && len(withHome(r.env, user)) != len(r.env) {
		env = withHome(env, user) // the box's HOME is another user's
	}
	r.p.Agent = PlanAgent{
		Harness: harness, Command: cmd, Model: first(r.o.Model, a.Model), Parameters: params,
		Timeout: firstOf(r.o.Timeouts.Agent, r.t.Agent.Timeout, a.Timeout, r.k.Timeouts.Agent),
		Env:     env,
		User:    r.agentUser(), UserOfTask: r.userOfTask(),
		Home:      r.home,
		SkillDirs: r.boxPaths(dirs...), MCPServers: r.toolServers(),
	}
}

// harnessCommand is the name of the harness that runs any program, and of its parameter that says which.
const harnessCommand = "command"

// parameterCommand reads the parameter command: a list of arguments, or a text for /bin/sh -c. On a command line true is
// the program, not a truth value.
func (r *resolver) parameterCommand(raw json.RawMessage) []string {
	var c Command
	switch err := json.Unmarshal(raw, &c); {
	case err == nil:
		return c.Args()
	case raw[0] != '[' && raw[0] != '{':
		return Command{Shell: string(raw)}.Args()
	}
	r.fail("parameter command: want a text for /bin/sh -c, or a list of texts, not %s", cut(string(raw), 80))
	return nil
}

// skills copies the skills of a task.yaml in, and finds where in the box each skill lies.
func (r *resolver) skills() {
	for _, pl := range r.t.Environment.Skills {
		dirs := r.boxPaths(pl.Dirs...)
		if len(dirs) == 0 {
			dirs = r.p.Agent.SkillDirs
		}
		if len(dirs) == 0 {
			dirs = []string{"/skills"}
		}
		s := PlanStep{Name: "skill " + filepath.Base(pl.Skill), Workdir: r.p.Workdir, User: r.p.User, Source: r.taskFileName()}
		for _, d := range dirs {
			c := Copy{From: pl.Skill, Root: r.t.Dir, To: path.Join(d, filepath.Base(pl.Skill))}
			r.check(c.seal(nil))
			s.Copies = append(s.Copies, c)
		}
		r.p.Setup = append(r.p.Setup, s)
	}
	for i := range r.p.Skills {
		s := &r.p.Skills[i]
		s.Roots = nil
		for _, host := range append([]string{s.Host}, s.same...) {
			s.Roots = append(s.Roots, r.rootsOf(host)...)
		}
		slices.Sort(s.Roots)
		s.Roots = slices.Compact(s.Roots)
		if len(s.Roots) == 0 {
			r.p.Notes = append(r.p.Notes, Note{File: relTo(r.t.Dir, s.Host), Text: "skill " + s.Name + " isn't copied into the box: the agent can't read it"})
		}
	}
}

// rootsOf finds the directories in the box that a skill's SKILL.md is copied to.
func (r *resolver) rootsOf(host string) []string {
	var out []string
	for _, c := range r.copies() {
		for _, e := range c.entries {
			if e.host == filepath.Join(host, skillFile) {
				out = append(out, path.Dir(e.to))
			}
		}
	}
	return out
}

// copies are all that is copied in before the agent starts.
func (r *resolver) copies() []*Copy {
	var out []*Copy
	add := func(ss []PlanStep) {
		for i := range ss {
			for j := range ss[i].Copies {
				out = append(out, &ss[i].Copies[j])
			}
		}
	}
	add(r.p.Setup)
	add(r.p.Validate)
	for _, name := range HookNames[:3] {
		add(r.p.Hooks[name])
	}
	return out
}

// tests settles how the task is graded, and lists the material that the agent must not have read.
func (r *resolver) tests() {
	p, t := r.p, r.t
	if s := t.Solution; s != nil {
		p.Solution = &PlanSolution{Argv: s.Command.Args(), Workdir: p.Workdir, User: p.User, Env: withHome(overlayEnv(r.env, r.taskEnv(s.Env, r.taskFileName())...), p.User)}
		p.Solution.Copies = r.grading("solution", s.Dir, s.Box)
	}
	if tt := t.Tests; tt != nil {
		copies := r.grading("tests", tt.Dir, tt.Box)
		if !tt.Command.IsZero() && !r.o.NoTests {
			p.Tests = &PlanTests{
				Copies: copies, Argv: tt.Command.Args(), Workdir: p.Workdir, User: first(tt.User, p.User), Reward: tt.Reward,
				Env:     withHome(overlayEnv(r.env, r.taskEnv(tt.Env, r.taskFileName())...), first(tt.User, p.User)),
				Timeout: firstOf(r.o.Timeouts.Verify, tt.Timeout, r.k.Timeouts.Verify),
			}
		}
	}
	for _, f := range r.k.Judge.Answers {
		r.answer(string(f))
	}
	for _, f := range t.Judge.Answers {
		r.answer(string(f))
	}
	r.exposed()
}

func (r *resolver) grading(role, dir, box string) []Copy {
	if dir == "" {
		return nil
	}
	c := Copy{From: dir, Root: r.t.Dir, To: box}
	if err := c.seal(nil); err != nil {
		r.fail("the task's %s: %w", role, err)
		return nil
	}
	m, err := ReadManifest(dir)
	if err != nil {
		r.fail("the task's %s: %w", role, err)
		return nil
	}
	r.p.Grading = append(r.p.Grading, GradingItem{Role: role, Host: dir, Box: box, Files: m.Files})
	switch role {
	case "tests":
		r.p.Digests.Tests = m.SHA256
	case "solution":
		r.p.Digests.Solution = m.SHA256
	}
	return []Copy{c}
}

func (r *resolver) answer(file string) {
	m, err := ReadManifest(file)
	if err == nil {
		r.p.Grading = append(r.p.Grading, GradingItem{Role: "answer", Host: file, Files: m.Files})
		return
	}
	d, err := digestFile(file)
	if err != nil {
		r.fail("judge.answers: %w", err)
		return
	}
	r.p.Grading = append(r.p.Grading, GradingItem{Role: "answer", Host: filepath.Dir(file), Files: []ManifestFile{
		{Path: filepath.Base(file), Mode: "-rw-r--r--", Size: d.Size, SHA256: d.SHA256},
	}})
}

// minTelling is the size from which equal content of two files is no accident: empty package markers and the like
// are everywhere.
const minTelling = 32

// exposed finds grading material that the environment itself copies to where the agent can read it.
func (r *resolver) exposed() {
	byDigest := map[string]int{}
	for i, g := range r.p.Grading {
		for _, f := range g.Files {
			if f.SHA256 != "" && f.Size >= minTelling {
				byDigest[f.SHA256] = i
			}
		}
	}
	for _, c := range r.copies() {
		for _, e := range c.entries {
			if i, ok := byDigest[e.sha256]; ok {
				g := &r.p.Grading[i]
				g.Exposed = append(g.Exposed, e.to)
			}
		}
	}
	for i := range r.p.Grading {
		g := &r.p.Grading[i]
		slices.Sort(g.Exposed)
		g.Exposed = slices.Compact(g.Exposed)
		for _, e := range g.Exposed {
			r.p.Notes = append(r.p.Notes, Note{File: relTo(r.t.Dir, g.Host), Text: "the environment leaves " + g.Role + " where the agent can read them: " + e})
		}
	}
}

func (r *resolver) timeouts() {
	k, o := r.k.Timeouts, r.o.Timeouts
	var verify Duration
	if r.t.Tests != nil {
		verify = r.t.Tests.Timeout
	}
	r.p.Timeouts = Timeouts{
		Total: firstOf(o.Total, k.Total), Provision: firstOf(o.Provision, k.Provision),
		Setup:    firstOf(o.Setup, r.t.Environment.SetupTimeout, k.Setup),
		Validate: firstOf(o.Validate, k.Validate), Hook: firstOf(o.Hook, k.Hook),
		Agent: r.p.Agent.Timeout, Verify: firstOf(o.Verify, verify, k.Verify),
		Collect: firstOf(o.Collect, k.Collect), Analyse: firstOf(o.Analyse, k.Analyse), Teardown: firstOf(o.Teardown, k.Teardown),
	}
	t := r.p.Timeouts
	if need := t.Setup + t.Agent + t.Verify; t.Total > 0 && need > t.Total {
		r.p.Notes = append(r.p.Notes, Note{File: r.taskFileName(), Text: fmt.Sprintf("setup, agent and tests may take %s together, but the run is ended after %s (timeouts.total)", need, t.Total)})
	}
}

func (r *resolver) analyses() {
	r.p.Sensors = firstList(r.o.Sensors, r.k.Sensors, []string{"auto"})
	all := map[string]PlanAnalysis{}
	for _, a := range r.k.Analyses {
		pa := PlanAnalysis{Name: a.Name, Command: a.Command.Args(), Timeout: a.Timeout, Parameters: a.Parameters}
		if len(pa.Command) > 0 {
			pa.Dir = a.dir
		}
		all[a.Name] = pa
		if len(r.o.Analyses) == 0 {
			r.p.Analyses = append(r.p.Analyses, pa)
		}
	}
	for _, name := range r.o.Analyses {
		pa, ok := all[name]
		if !ok {
			pa = PlanAnalysis{Name: name}
		}
		r.p.Analyses = append(r.p.Analyses, pa)
	}
}

func firstList(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return slices.Clone(l)
		}
	}
	return nil
}

// judge lays what the task says beside what the kind says.
func (r *resolver) judge() {
	k, t := r.k.Judge, r.t.Judge
	j := PlanJudge{
		Workspace:       r.boxPaths(slices.Concat(k.Workspace, t.Workspace)...),
		HarnessState:    r.boxPaths(slices.Concat(k.HarnessState, t.HarnessState)...),
		TrustedPrograms: r.boxPaths(slices.Concat(k.TrustedPrograms, t.TrustedPrograms)...),
		TrustedDomains:  slices.Concat(k.TrustedDomains, t.TrustedDomains),
		Allow: Allow{
			Commands: slices.Concat(k.Allow.Commands, t.Allow.Commands),
			Files:    r.boxPaths(slices.Concat(k.Allow.Files, t.Allow.Files)...),
			Hosts:    slices.Concat(k.Allow.Hosts, t.Allow.Hosts),
		},
		Suppressions: slices.Concat(k.Suppressions, t.Suppressions),
		Obligations:  slices.Concat(k.Obligations, t.Obligations),
		Decoys:       k.Decoys, // whoever is judged has no say
	}
	if s := r.t.Solution; r.o.Oracle && s != nil {
		for _, rule := range []string{"Grading material read", "grading-read"} {
			j.Suppressions = append(j.Suppressions, Suppression{Rule: rule, Resource: s.Box + "/**", Reason: "the agent is the reference solution", Expires: "9999-12-31"})
		}
	}
	if len(j.Workspace) == 0 {
		j.Workspace = []string{r.p.Workdir}
	}
	for _, f := range slices.Concat(k.Rules, t.Rules) {
		d, err := readRules(string(f))
		if err != nil {
			r.fail("judge.rules: %w", err)
			continue
		}
		j.Rules = append(j.Rules, d)
	}
	r.p.Judge = j
}

func (r *resolver) digests() {
	d, t := &r.p.Digests, r.t
	if t.Dir != "" {
		m, err := ReadManifest(t.Dir)
		if err != nil {
			r.check(err)
			return
		}
		d.Task = m.SHA256
	}
	if t.Instruction != "" {
		d.Instruction = digestText(t.Instruction)
	}
	dir := t.Environment.Workspace
	if b := t.Environment.Build; b != nil {
		dir = b.Context
	}
	if dir != "" {
		m, err := ReadManifest(dir)
		if err != nil {
			r.check(err)
			return
		}
		d.Environment = m.SHA256
	}
	var kinds, skills strings.Builder
	for _, s := range r.k.sources {
		kinds.WriteString(s.SHA256 + "\n")
	}
	d.Kind = digestText(kinds.String())
	for _, s := range r.p.Skills {
		skills.WriteString(s.SHA256 + " " + s.Name + "\n")
	}
	if skills.Len() > 0 {
		d.Skills = digestText(skills.String())
	}
	b, err := json.Marshal(r.p)
	if err != nil {
		r.fail("the plan's digest: %w", err)
		return
	}
	d.Plan = digestText(string(b))
}
