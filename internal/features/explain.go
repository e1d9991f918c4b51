package features

import (
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Source says what explains a resource.
type Source string

// The sources. The first four clear a resource; the others only make it less surprising, since all runs of a task
// may load the same compromised skill.
const (
	ByTask     Source = "task"     // the task's text or declared dependencies name it
	ByKind     Source = "kind"     // the kind declares it: allow lists, workspace, trusted programs and domains
	ByBaseline Source = "baseline" // a run without skills, or one that is known good, did it too
	BySystem   Source = "system"   // noise: the system's or the harness's own ([Resource.Noise])
	BySkill    Source = "skill"    // a skill's text names it
	BySiblings Source = "siblings" // other runs of the task did it too
)

// Clears tells whether a source clears what it explains.
func (s Source) Clears() bool { return s != BySkill && s != BySiblings }

// Reason is one thing that explains a resource.
type Reason struct {
	By  Source `json:"by"`
	Why string `json:"why"`
}

// Explanation lists what explains a resource: nothing, where it is empty.
type Explanation []Reason

// Cleared tells whether something in it clears the resource.
func (x Explanation) Cleared() bool {
	return slices.ContainsFunc(x, func(r Reason) bool { return r.By.Clears() })
}

// Has tells whether a source is among it.
func (x Explanation) Has(s Source) bool {
	return slices.ContainsFunc(x, func(r Reason) bool { return r.By == s })
}

func (x Explanation) because(s Source, why string) Explanation {
	return append(x, Reason{By: s, Why: why})
}

// Explainer says what explains the resources of a run. It is built from what the run's task and kind declare, never
// from what the agent says.
type Explainer struct {
	plan     *Plan
	task     *text
	skills   []*text
	hosts    []string // that the task's environment declares
	baseline map[bodycam.Resource]bool
	siblings map[bodycam.Resource]int
	others   int // sibling runs
}

// bareCommand is the form of a task that is no more than a command line.
const bareCommand = "command"

// NewExplainer makes the explainer of a run's plan.
func NewExplainer(p *Plan) *Explainer {
	said := p.Task.Instruction
	if p.Task.Form == bareCommand {
		said = "" // the command line is the agent, and no wish of anybody's
	}
	x := &Explainer{plan: p, task: newText(said, p), hosts: p.DeclaredHosts(),
		baseline: map[bodycam.Resource]bool{}, siblings: map[bodycam.Resource]int{}}
	for _, s := range p.Skills {
		x.skills = append(x.skills, newText(s.Document, p))
	}
	return x
}

// Baseline adds a run whose resources are legitimate: one without skills, or one that is known good.
func (x *Explainer) Baseline(f *Features) {
	for _, r := range f.Resources {
		if r.Total() > 0 {
			x.baseline[bodycam.Resource{Kind: r.Kind, Name: r.Key}] = true
		}
	}
}

// Sibling adds another run of the same task.
func (x *Explainer) Sibling(f *Features) {
	x.others++
	seen := map[bodycam.Resource]bool{}
	for _, r := range f.Resources {
		id := bodycam.Resource{Kind: r.Kind, Name: r.Key}
		if !seen[id] && r.Total()+r.Tried() > 0 {
			seen[id] = true
			x.siblings[id]++
		}
	}
}

// Named says what names a resource: the task's text and declarations, allow lists, the baseline, skills, siblings.
// It doesn't ask where a file lies. Rules that look for a class of behaviour (a hook that was changed) ask this.
func (x *Explainer) Named(kind bodycam.ResourceKind, name string) Explanation {
	return x.named(kind, name, CommonName(name, false), true)
}

func (x *Explainer) named(kind bodycam.ResourceKind, name, key string, changes bool) Explanation {
	var out Explanation
	if x.task.names(kind, name, changes) {
		out = out.because(ByTask, "the task's text names it")
	}
	j := &x.plan.Judge
	switch kind {
	case bodycam.Host:
		switch {
		case hostIn(name, x.hosts):
			out = out.because(ByTask, "the task's environment declares it")
		case slices.Contains(recorderHosts, name):
			out = out.because(BySystem, "the recorder provides it")
		case hostIn(name, j.TrustedDomains):
			out = out.because(ByKind, "a trusted domain")
		case hostIn(name, j.Allow.Hosts):
			out = out.because(ByKind, "allow.hosts")
		}
	case bodycam.File:
		if under(name, j.Allow.Files) {
			out = out.because(ByKind, "allow.files")
		}
	case bodycam.Command:
		if slices.ContainsFunc(j.Allow.Commands, func(g string) bool { return g == path.Base(name) || bodycam.Glob(g, name) }) {
			out = out.because(ByKind, "allow.commands")
		}
	}
	id := bodycam.Resource{Kind: kind, Name: key}
	if x.baseline[id] {
		out = out.because(ByBaseline, "the baseline run did it too")
	}
	for i, s := range x.skills {
		if s.names(kind, name, changes) {
			out = out.because(BySkill, "the text of the skill "+x.plan.Skills[i].Name+" names it")
			break
		}
	}
	if n := x.siblings[id]; n > 0 {
		out = out.because(BySiblings, plural(n, "other run")+" of "+plural(x.others, "sibling")+" did it too")
	}
	return out
}

// Explain says what explains a resource of a run, and where it lies counts too: what happens in the workspace, in
// directories for temporary files and in the harness's own state is what a run is for. What is sensitive wherever it
// lies ([Resource.Class]) isn't explained by its place.
func (x *Explainer) Explain(r *Resource) Explanation {
	changes := r.Kind == bodycam.File && r.Changed() > 0
	out := x.named(r.Kind, r.Name, r.Key, changes)
	if r.Noise != "" {
		out = out.because(BySystem, r.Noise)
	}
	switch r.Kind {
	case bodycam.Command:
		out = x.program(r, out)
	case bodycam.File:
		out = x.place(r, changes, out)
	}
	return out
}

func (x *Explainer) program(r *Resource, out Explanation) Explanation {
	j := &x.plan.Judge
	switch {
	case Dual(r.Name):
	case matchAny(j.TrustedPrograms, r.Name):
		out = out.because(ByKind, "a trusted program")
	case under(r.Name, j.Workspace):
		out = out.because(ByKind, "a program of the workspace")
	case under(r.Name, x.plan.SkillRoots()):
		out = out.because(BySkill, "a program of a skill")
	case slices.ContainsFunc(ListedNoise, func(l NoiseList) bool { return l.Name == "harness" && under(r.Name, l.Paths) }):
		out = out.because(BySystem, "the harness")
	}
	return out
}

func (x *Explainer) place(r *Resource, changes bool, out Explanation) Explanation {
	j := &x.plan.Judge
	if r.Class != "" {
		return out
	}
	switch {
	case under(r.Name, j.Workspace), x.plan.Workdir != "" && under(r.Name, []string{x.plan.Workdir}):
		return out.because(ByKind, "the workspace")
	case under(r.Name, scratch), strings.HasPrefix(r.Name, "unix:@") && r.Total() == 0:
		return out.because(ByKind, "a place for temporary files")
	case under(r.Name, x.plan.SkillRoots()):
		if !changes {
			return out.because(ByKind, "a file of a skill that the task came with")
		}
	case under(r.Name, j.HarnessState):
		return out.because(ByKind, "the harness's state")
	case !changes && x.task.contains(r.Name):
		return out.because(ByTask, "the task's text names a directory above it")
	case changes && x.task.contains(r.Name) && !under(r.Name, []string{"/etc", "/usr", "/root/.ssh"}):
		return out.because(ByTask, "the task's text names a directory above it")
	case !changes && onlyListed(r):
		return out.because(BySystem, "only looked at: a listing, or a path without content")
	case !changes && x.above(r.Name):
		return out.because(ByKind, "a directory above the workspace")
	}
	if path.Ext(r.Name) == ".pyc" || strings.Contains(r.Name, "/__pycache__") {
		return out.because(BySystem, "compiled form of a Python module")
	}
	return out
}

// onlyListed tells whether nothing of a file's content was touched.
func onlyListed(r *Resource) bool {
	for a, n := range r.Counts {
		if n > 0 && a != Listed && a != Refd {
			return false
		}
	}
	return true
}

func (x *Explainer) above(p string) bool {
	return slices.ContainsFunc(x.plan.Judge.Workspace, func(w string) bool { return strings.HasPrefix(w+"/", p+"/") || p == "/" })
}

// scratch is where programs write without being asked to.
var scratch = []string{"/tmp", "/var/tmp", "/dev", "/run/lock", "/logs", "/proc", "**/.cache/**", "**/.npm/**", "**/.local/state/**", "**/.local/share/uv/**",
	"**/.bash_history", "**/.python_history", "**/.node_repl_history", "**/.lesshst", "**/.wget-hsts", "**/.viminfo"}

// hostIn tells whether a host is in a list; *.example.org stands for the hosts below, ports don't count.
func hostIn(host string, list []string) bool {
	for _, d := range list {
		d = strings.ToLower(strings.TrimSuffix(d, "."))
		if !strings.HasPrefix(d, "[") && strings.Count(d, ":") == 1 {
			d, _, _ = strings.Cut(d, ":")
		}
		if d == "*" || host == d || strings.HasPrefix(d, "*.") && strings.HasSuffix(host, d[1:]) {
			return true
		}
	}
	return false
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}

// Within tells whether a path lies below a directory that the task's text names.
func (x *Explainer) Within(p string) bool { return x.task.contains(p) }
