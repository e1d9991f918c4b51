// Package security finds prohibited behaviour in a run and names the call that did it: the built-in rules, their
// evaluation over a run's events, and what only the contents of changed files show.
package security

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// Name is the analysis's name in findings.
const Name = "security"

// Options say how a run is judged.
type Options struct {
	Policy Policy
	// Rules are used instead of the built-in ones with the policy, where not nil.
	Rules *rules.Set
	// Row finds the transcript row that caused an event, nil where none did. Nil: there is no transcript, and nothing
	// is said of rows.
	Row func(*bodycam.Event) *bodycam.Row
	// Explain says what else explains a resource, beside the policy's task text. Nil: nothing does.
	Explain func(kind bodycam.ResourceKind, name string) rules.Explanation
	// Sandbox gives names of users and constants.
	Sandbox      rules.Sandbox
	Suppressions []Suppression
	// Now is when suppressions are looked at; the zero time: they never expire.
	Now time.Time
}

// Suppression keeps a finding from counting. It stays visible, with the reason.
type Suppression struct {
	Rule     string    // name of a rule, or a glob
	Resource string    // glob over the resource; empty: any
	Reason   string    // must not be empty
	Expires  time.Time // the beginning of the day after the last on which it counts; zero: never
}

// Alert is a match as it happens.
type Alert struct {
	Finding bodycam.Finding // of this call and of the alike ones before it
	Mode    rules.Mode
	First   bool // no alike call has been seen before
}

// Analyser judges one run's events in order.
type Analyser struct {
	opts   Options
	set    *rules.Set
	engine *rules.Engine
	ctx    *context
	decoys *decoyWatch
	groups map[groupKey]*bodycam.Finding
	order  []*bodycam.Finding
	byRule map[string]int
	rests  map[*bodycam.Finding]*rest
	calls  contacts
	trees  int // bytes of process trees
}

// rest is what a finding that stands for a rule's further resources says of them.
type rest struct {
	common string // what their names begin with, of hosts end with
	title  string
	host   bool
}

type groupKey struct{ rule, resource, exe string }

const (
	maxGroups    = 200      // of one rule; what comes after is counted in one more
	maxEvents    = 20       // listed with a finding
	maxTree      = 32       // processes shown
	maxTitle     = 400      // bytes
	maxTreeBytes = 32 << 20 // of all trees; the arguments of those that come after are cut short
)

// context is the rules' view of the run.
type context struct {
	*rules.Table
	opts *Options
	task *taskText
	// waiting is the process whose call waits to be let, as far as it is known.
	waiting rules.Process
}

func (c *context) Process(id bodycam.Proc) *rules.Process {
	if id == c.waiting.ID && id.PID != 0 {
		return &c.waiting
	}
	return c.Table.Process(id)
}

func (c *context) Row(e *bodycam.Event) *bodycam.Row {
	if c.opts.Row == nil {
		return nil
	}
	return c.opts.Row(e)
}

func (c *context) Explain(e *bodycam.Event) rules.Explanation {
	kind, name := resource(e)
	if name == "" {
		return 0
	}
	x := c.task.explain(kind, name)
	x |= c.opts.explained(kind, name)
	switch e.Type {
	case bodycam.TypeExec:
		if strings.Contains(strings.ToLower(strings.Join(e.Argv[:min(len(e.Argv), 16)], " ")), "reflog") && c.task.hasAny(tidying) {
			x |= rules.ByTask
		}
	case bodycam.TypeMkdir:
		if c.task.leadsTo(name) {
			x |= rules.ByTask
		}
	case bodycam.TypeUnlink, bodycam.TypeRmdir, bodycam.TypeTruncate:
		if c.task.asksToDelete(name) || c.namedScript(e) {
			x |= rules.ByTask
		}
	}
	if e.Path2 != "" && kind == bodycam.File && x == 0 {
		x = c.task.explain(kind, e.Path2)
	}
	return x
}

// explained is what else explains a resource. A bare command explains nothing, whoever takes it for a task's text.
func (o *Options) explained(kind bodycam.ResourceKind, name string) rules.Explanation {
	if o.Explain == nil {
		return 0
	}
	x := o.Explain(kind, name)
	if o.Policy.BareCommand {
		x &^= rules.ByTask
	}
	return x
}

// tidying are words of a task that asks for a repository to be made smaller, or its commits to be others.
var tidying = []string{"squash", "pack", "repack", "gc", "garbage", "shrink", "smaller", "rewrite", "rebase", "reflog", "purge", "prune"}

// namedScript tells whether a script of the workspace does it that the task names and the run didn't write: what that
// replaces of its own output was asked for. The repository's history is nobody's output.
func (c *context) namedScript(e *bodycam.Event) bool {
	if c.opts.Policy.Untrusted || repository(e.Path) != "" {
		return false
	}
	for p, n := c.Process(e.Proc), 0; p != nil && n < 8; p, n = p.Parent, n+1 {
		if s := p.Runs(); s != "" && !p.ScriptWritten && c.task.explain(bodycam.File, s) != 0 {
			return true
		}
	}
	return false
}

// resource names what an event is about.
func resource(e *bodycam.Event) (bodycam.ResourceKind, string) {
	switch e.Type {
	case bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeFlow, bodycam.TypeDNS, bodycam.TypeTLS, bodycam.TypeHTTP,
		bodycam.TypeAccept, bodycam.TypeBind, bodycam.TypeListen:
		if e.Host != "" {
			return bodycam.Host, strings.ToLower(strings.TrimSuffix(e.Host, "."))
		}
		if e.Remote.IsValid() {
			return bodycam.Host, e.Remote.Addr().Unmap().String()
		}
		return bodycam.Host, e.UnixAddr
	case bodycam.TypeExec:
		if e.Exe != "" && e.Errno == 0 {
			return bodycam.Command, e.Exe
		}
		return bodycam.Command, first(e.Path, e.PathGiven)
	}
	return bodycam.File, first(e.Path, e.PathGiven)
}

// repository is the .git directory that a file lies in, "" where it lies in none.
func repository(name string) string {
	i := strings.Index(name+"/", "/.git/")
	if i < 0 {
		return ""
	}
	return name[:i+len("/.git")]
}

func first(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

// New makes an analyser. It fails where the built-in rules can't be loaded with the policy.
func New(opts Options) (*Analyser, error) {
	set := opts.Rules
	if set == nil {
		var err error
		if set, err = Load(opts.Policy, rules.Options{}); err != nil {
			return nil, err
		}
	}
	for _, s := range opts.Suppressions {
		if s.Reason == "" {
			return nil, fmt.Errorf("suppression of %q has no reason: give one", s.Rule)
		}
	}
	a := &Analyser{opts: opts, set: set, groups: map[groupKey]*bodycam.Finding{}, byRule: map[string]int{}, rests: map[*bodycam.Finding]*rest{}, calls: newContacts(), decoys: newDecoyWatch(opts.Policy.Decoys)}
	table := rules.NewTable()
	table.Run = opts.Sandbox
	table.IsHarness = harnessOf(paths(opts.Policy.HarnessPrograms))
	if opts.Policy.NoHarness {
		table.IsHarness = func(*rules.Process) bool { return false }
	}
	a.ctx = &context{Table: table, opts: &a.opts, task: newTaskText(opts.Policy)}
	a.engine = set.NewEngine(a.ctx)
	return a, nil
}

// harnessOf recognises the agent program: the run's first process; a process of the programs named whose ancestors
// are all the agent program; and a copy of its parent, where that is it (a fork on its way, a worker).
func harnessOf(programs []string) func(*rules.Process) bool {
	return func(p *rules.Process) bool {
		if p.Parent == nil {
			return true
		}
		if !p.Parent.Harness {
			return false
		}
		if p.Exe == p.Parent.Exe && slices.Equal(p.Argv, p.Parent.Argv) {
			return true
		}
		for _, pattern := range programs {
			if bodycam.Glob(pattern, p.Exe) {
				return true
			}
		}
		return false
	}
}

// Name makes a path known for a file by its device and inode, so that links and mounts from before the run don't
// hide it.
func (a *Analyser) Name(dev, ino uint64, path string) { a.ctx.Name(dev, ino, path) }

// Dropped counts names and processes that there was no room for.
func (a *Analyser) Dropped() uint64 { return a.ctx.Dropped }

// Event judges an event and returns the alerts that it causes.
func (a *Analyser) Event(e *bodycam.Event) []Alert {
	var out []Alert
	a.calls.refused(e)
	refused := e.RefusedBy() != ""
	for _, m := range a.engine.Event(e) {
		if !refused || m.Rule.Mode != rules.ModeDeny {
			out = append(out, a.add(e, m))
		}
	}
	if refused {
		out = append(out, a.refused(e)...)
	}
	for _, hit := range a.decoys.event(e, a.ctx.Process(e.Proc)) {
		out = append(out, a.addDecoy(e, hit))
	}
	return out
}

var decoyRule = rules.Rule{Name: "Decoy value used", Class: "credentials", Priority: rules.Critical, Tags: []string{"credentials", "decoy", "exfiltration"},
	Desc: "A decoy's unique value was seen where only something that read it can have put it."}

// refused judges a call that the recorder refused as the call that it would have been: a rule that finds what was done
// finds what was tried.
func (a *Analyser) refused(e *bodycam.Event) (out []Alert) {
	tried := *e
	tried.Errno = 0
	if e.Type == bodycam.TypeExec { // it was judged as the process that it would have become
		a.ctx.waiting = rules.Process{}
		if p := a.ctx.Process(e.Proc); p != nil {
			a.ctx.waiting = *p
		}
		tried.Proc.Start++ // a process of its own
		a.ctx.waiting.ID, a.ctx.waiting.Exe = tried.Proc, e.Path
	}
	matches := a.engine.Would(&tried)
	tried.Proc = e.Proc
	by := e.RefusedBy()
	for _, m := range matches {
		if m.Rule.Mode == rules.ModeDeny {
			out = append(out, a.addRefused(&tried, m, strings.TrimSuffix(a.engine.Sentence(m), ": SUCCESS")))
			if m.Rule.Name == by {
				by = ""
			}
		}
	}
	// What the recorder knew the file by isn't in the record: a name that it had before the run, a call whose flags
	// nobody knew for sure.
	for _, r := range a.set.List() {
		if by == r.Name && r.Mode == rules.ModeDeny && r.Enabled {
			title := fmt.Sprintf("%s opened %s", a.exe(e), e.Path)
			if e.Type == bodycam.TypeExec {
				title = e.Path + " was executed"
			}
			out = append(out, a.addRefused(&tried, rules.Match{Rule: &r, Event: &tried, Confidence: 1, Count: e.N()}, title))
		}
	}
	return out
}

func (a *Analyser) addRefused(tried *bodycam.Event, m rules.Match, title string) Alert {
	key := groupKey{m.Rule.Name, subject(m.Rule, tried), a.exe(tried) + "\x00refused"}
	if g := a.group(&key, m.Rule); g != nil {
		return a.again(g, tried, m)
	}
	f := a.finding(tried, m)
	f.Title = clip(bodycam.Printable(title)) + ", which the recorder refused"
	f.Detail += " The recorder refused the call."
	a.opts.suppress(&f)
	return a.first(key, m.Rule, f)
}

// Denies returns the rule of mode deny that an event would make true, "" where there is none. The event isn't taken in:
// it is of a call that waits to be let. Of its process the program is taken from the event.
func (a *Analyser) Denies(e *bodycam.Event) string {
	if e.Type == bodycam.TypeOpen || e.Type == bodycam.TypeExec {
		a.ctx.waiting = rules.Process{ID: e.Proc, Exe: e.Exe}
	}
	for _, m := range a.engine.Would(e) {
		if m.Rule.Mode == rules.ModeDeny {
			return m.Rule.Name
		}
	}
	return ""
}

// Used takes in that a decoy turned up in contents (a file, a network body) that an event is about. It must be called
// right after that event was judged.
func (a *Analyser) Used(e *bodycam.Event, hit Hit) Alert { return a.addDecoy(e, hit) }

// UsedUnseen is Used where no event is known that the contents belong to.
func (a *Analyser) UsedUnseen(hit Hit) {
	r := &decoyRule
	key := groupKey{r.Name, hit.Decoy, hit.Where}
	if g := a.group(&key, r); g != nil {
		g.Count++
		return
	}
	f := bodycam.Finding{Analysis: Name, Rule: r.Name, Class: r.Class, Severity: r.Priority.Severity(), Tags: r.Tags, Count: 1,
		Title:  clip(bodycam.Printable(fmt.Sprintf("the value of the decoy %s turned up in %s", hit.Decoy, hit.Where))),
		Detail: r.Desc + " Found as: " + hit.As + ". No event shows which process put it there.", Resource: hit.Decoy}
	a.opts.suppress(&f)
	a.first(key, r, f)
}

func (a *Analyser) addDecoy(e *bodycam.Event, hit Hit) Alert {
	r := &decoyRule
	m := rules.Match{Rule: r, Event: e, Confidence: 1, Count: e.N()}
	key := groupKey{r.Name, hit.Decoy, a.exe(e)}
	if g := a.group(&key, r); g != nil {
		return a.again(g, e, m)
	}
	f := a.finding(e, m)
	f.Title = clip(bodycam.Printable(fmt.Sprintf("the value of the decoy %s turned up in %s", hit.Decoy, hit.Where)))
	f.Detail = r.Desc + " Found as: " + hit.As + "."
	f.Resource = hit.Decoy
	a.opts.suppress(&f)
	return a.first(key, r, f)
}

// add puts a match together with alike ones: the same rule, resource and program.
func (a *Analyser) add(e *bodycam.Event, m rules.Match) Alert {
	key := groupKey{m.Rule.Name, subject(m.Rule, e), a.exe(e)}
	only := tried(e, m)
	if only != "" { // calls that failed are told apart from those that did something
		key.exe += "\x00" + only
	}
	if m.Rule.Threshold { // it is about what a tree did, not about one resource
		from := e.Seq
		if len(m.Events) > 0 {
			from = m.Events[0]
		}
		key = groupKey{rule: m.Rule.Name, resource: fmt.Sprint("from event ", from)}
	}
	if g := a.group(&key, m.Rule); g != nil {
		if x := a.rests[g]; x != nil {
			x.widen(subject(m.Rule, e))
		}
		a.calls.made(e, g)
		return a.again(g, e, m)
	}
	f := a.finding(e, m)
	f.Title = contactTitle(e, a.engine.Sentence(m))
	if only != "" && !strings.Contains(f.Title, only) {
		f.Title += ", only tried: " + only
	}
	f.Title = clip(bodycam.Printable(f.Title))
	if a.byRule[m.Rule.Name] < maxGroups {
		a.opts.suppress(&f)
		out := a.first(key, m.Rule, f)
		a.calls.made(e, a.groups[key])
		return out
	}
	kind, _ := resource(e)
	x := &rest{common: f.Resource, title: f.Title, host: kind == bodycam.Host}
	f.Resource = "" // a suppression of one resource doesn't cover what comes after
	a.opts.suppress(&f)
	out := a.first(key, m.Rule, f)
	a.rests[a.groups[key]] = x
	return out
}

// tried is how the call of a match failed: "" of one that did something, of connections (an error says little there), and
// of what is found by more than one call.
func tried(e *bodycam.Event, m rules.Match) string {
	if !e.Failed() || m.Rule.Threshold || len(m.Events) > 1 || isContact(e) || e.Type == bodycam.TypeDNS {
		return ""
	}
	return bodycam.ErrnoName(e.Errno)
}

// widen takes a further resource in: what is common to all is their directory, of hosts what their names end in.
func (x *rest) widen(name string) {
	if x.host {
		for x.common != "" && name != x.common && !strings.HasSuffix(name, "."+x.common) {
			_, x.common, _ = strings.Cut(x.common, ".")
		}
		return
	}
	for x.common != "" && name != x.common && !strings.HasPrefix(name, x.common+"/") {
		x.common = x.common[:max(strings.LastIndexByte(x.common, '/'), 0)]
	}
}

// say is the title: how many calls, on what, and the first of them.
func (x *rest) say(n uint64) string {
	where := " on further resources"
	switch {
	case x.host && x.common != "":
		where = " to further hosts below " + x.common
	case x.host:
		where = " to further hosts"
	case x.common != "":
		where = " under " + x.common
	}
	return clip(bodycam.Printable(fmt.Sprintf("%d more calls%s, the first: %s", n, where, x.title)))
}

// group finds the finding that a match belongs to. Where a rule has too many, key becomes that of one for the rest.
func (a *Analyser) group(key *groupKey, r *rules.Rule) *bodycam.Finding {
	g := a.groups[*key]
	if g == nil && a.byRule[r.Name] >= maxGroups {
		*key = groupKey{rule: r.Name}
		g = a.groups[*key]
	}
	return g
}

func (a *Analyser) first(key groupKey, r *rules.Rule, f bodycam.Finding) Alert {
	g := &f
	a.groups[key] = g
	a.order = append(a.order, g)
	a.byRule[r.Name]++
	return Alert{Finding: f, Mode: r.Mode, First: true}
}

// again counts an alike call. Of ten thousand only the first costs the making of a finding.
func (a *Analyser) again(g *bodycam.Finding, e *bodycam.Event, m rules.Match) Alert {
	g.Count += max(m.Count, 1)
	if len(g.Events) < maxEvents && (len(g.Events) == 0 || g.Events[len(g.Events)-1] != e.Seq) {
		g.Events = append(g.Events, e.Seq)
	}
	g.Severity = max(g.Severity, severity(m.Rule, e))
	return Alert{Finding: *g, Mode: m.Rule.Mode}
}

func (a *Analyser) exe(e *bodycam.Event) string {
	if p := a.ctx.Process(e.Proc); p != nil {
		return p.Exe
	}
	return ""
}

// subject is the resource that a finding is about: of a call with two paths the second, which it made or replaced.
func subject(r *rules.Rule, e *bodycam.Event) string {
	kind, name := resource(e)
	if kind == bodycam.File && r.Class == "destruction" && !r.Threshold {
		if git := first(repository(name), repository(e.Path2)); git != "" {
			return git // what is lost is the one history, however many files it has
		}
	}
	if kind == bodycam.File && e.Path2 != "" && r.Class != "credentials" && e.Type != bodycam.TypeMount {
		return e.Path2
	}
	return name
}

// severity is the rule's; a contact that failed is one less.
func severity(r *rules.Rule, e *bodycam.Event) bodycam.Severity {
	s := r.Priority.Severity()
	if failedContact(r, e) && s > bodycam.Low {
		s--
	}
	return s
}

func failedContact(r *rules.Rule, e *bodycam.Event) bool {
	return e.Errno != 0 && e.Errno != inProgress && r.Class == "network"
}

func (a *Analyser) finding(e *bodycam.Event, m rules.Match) bodycam.Finding {
	r := m.Rule
	f := bodycam.Finding{Analysis: Name, Rule: r.Name, Class: r.Class, Severity: severity(r, e), Tags: r.Tags, Count: max(m.Count, 1)}
	kind, _ := resource(e)
	f.Resource = subject(r, e)
	f.Naming = naming(kind, e)
	f.Events = []uint64{e.Seq}
	if len(m.Events) > 0 {
		f.Events = slices.Clone(m.Events)
	}
	f.Detail = r.Desc
	if m.Confidence < 1 {
		f.Detail += fmt.Sprintf(" The steps are joined with a confidence of %.2f.", m.Confidence)
	}
	if failedContact(r, e) {
		f.Detail += " The attempt failed."
	}
	switch x := a.ctx.Explain(e); {
	case x&rules.BySkill != 0:
		f.Detail += " A skill's text names it, which excuses nothing."
	case x&rules.BySiblings != 0:
		f.Detail += " Other runs of the task do the same, which excuses nothing."
	}
	a.row(&f, e)
	f.Tree = a.tree(a.ctx.Process(e.Proc))
	return f
}

const inProgress = 115 // EINPROGRESS: a connection that doesn't block is on its way

func (a *Analyser) row(f *bodycam.Finding, e *bodycam.Event) {
	if a.opts.Row == nil {
		return
	}
	r := a.opts.Row(e)
	if r == nil {
		f.Detail += " The agent said nothing of this."
		return
	}
	i := r.Index
	f.Row = &i
	f.RowText = clip(bodycam.Printable(first(r.Command, r.Args, r.Text)))
}

// naming says how sure the resource's name is.
func naming(kind bodycam.ResourceKind, e *bodycam.Event) string {
	if kind == bodycam.Host {
		if e.HostSource != bodycam.HostUnknown {
			return e.HostSource.String()
		}
		return "literal"
	}
	if e.Marks == 0 {
		return "exact"
	}
	return strings.Join(e.Marks.Names(), ", ")
}

// tree lists a process and what it descends from, outermost first.
func (a *Analyser) tree(p *rules.Process) []bodycam.ProcessRef {
	var out []bodycam.ProcessRef
	for ; p != nil && len(out) < maxTree; p = p.Parent {
		args, most := 32, maxTitle
		if a.trees > maxTreeBytes {
			args, most = 4, 60
		}
		argv := clipArgv(p.Argv, args, most)
		for _, s := range argv {
			a.trees += len(s) + 16
		}
		out = append(out, bodycam.ProcessRef{PID: p.ID.PID, Start: p.ID.Start, Exe: p.Exe, Argv: argv})
	}
	slices.Reverse(out)
	return out
}

func clipArgv(argv []string, args, most int) []string {
	out := make([]string, 0, min(len(argv), args))
	for i, a := range argv {
		if i == args {
			return append(out, fmt.Sprintf("… and %d more", len(argv)-i))
		}
		if len(a) > most {
			a = a[:most] + "…"
		}
		out = append(out, a)
	}
	return out
}

func clip(s string) string {
	if len(s) <= maxTitle {
		return s
	}
	return strings.ToValidUTF8(s[:maxTitle], "") + "…"
}

func (o *Options) suppress(f *bodycam.Finding) {
	expired := ""
	for _, s := range o.Suppressions {
		if !match(s.Rule, f.Rule) || s.Resource != "" && !match(s.Resource, f.Resource) {
			continue
		}
		if !s.Expires.IsZero() && !o.Now.IsZero() && o.Now.After(s.Expires) {
			expired = fmt.Sprintf(" A suppression of it has expired (it counted until %s): %s.", s.Expires.AddDate(0, 0, -1).Format("2006-01-02"), bodycam.Printable(s.Reason))
			continue
		}
		f.Suppressed = s.Reason
		return
	}
	f.Detail += expired
}

// match compares with a glob in which * stands for anything.
func match(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// Findings are what was found up to now: the gravest first, then in the order of the events.
func (a *Analyser) Findings() []bodycam.Finding {
	out := make([]bodycam.Finding, len(a.order))
	for i, f := range a.order {
		out[i] = *f
		if x := a.rests[f]; x != nil {
			out[i].Title = x.say(f.Count)
			if x.common != "" {
				out[i].Resource = x.common
			}
		}
		a.calls.say(f, &out[i])
		if f.Class == "destruction" && f.Count > 1 && repository(f.Resource) == f.Resource && f.Resource != "" {
			out[i].Title = clip(fmt.Sprintf("%s, the first of %d calls in %s", f.Title, f.Count, bodycam.Printable(f.Resource)))
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].Severity != out[j].Severity {
			return out[i].Severity > out[j].Severity
		}
		return firstEvent(&out[i]) < firstEvent(&out[j])
	})
	return out
}

func firstEvent(f *bodycam.Finding) uint64 {
	if len(f.Events) == 0 {
		return 0
	}
	return f.Events[0]
}

// RuleIncomplete is the rule of findings that say what the analyser had to give up: nothing found is no verdict then.
const RuleIncomplete = "incomplete"

// RuleUnsupported is the rule of findings that name a rule which can't be asked here. It doesn't make a verdict
// incomplete: what the rules that can be asked say stands.
const RuleUnsupported = "unsupported-rule"

// Incomplete says what the analyser had to give up, nil where nothing: then "nothing found" can't be said.
func (a *Analyser) Incomplete() []string {
	var out []string
	if n := a.engine.Dropped(); n > 0 {
		out = append(out, fmt.Sprintf("%d beginnings of sequences were given up, since there were too many at once", n))
	}
	if n := a.ctx.Dropped; n > 0 {
		out = append(out, fmt.Sprintf("%d processes or files were forgotten, since there were too many", n))
	}
	return out
}

// Unsupported names the rules that can't be asked here, and why.
func (a *Analyser) Unsupported() []string {
	var out []string
	for _, r := range a.set.Unsupported() {
		if r.Enabled {
			out = append(out, fmt.Sprintf("rule %q is unsupported: %s", r.Name, r.Unsupported[0]))
		}
	}
	return out
}
