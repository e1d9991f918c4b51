package rules

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Priority is how serious a rule takes what it finds, as in syslog.
type Priority uint8

// The priorities.
const (
	Emergency Priority = iota
	Alert
	Critical
	Error
	Warning
	Notice
	Informational
	Debug
)

var priorityNames = []string{"emergency", "alert", "critical", "error", "warning", "notice", "informational", "debug"}

func (p Priority) String() string {
	if int(p) < len(priorityNames) {
		return priorityNames[p]
	}
	return fmt.Sprintf("priority(%d)", p)
}

// ParsePriority reads a priority's name without regard to case. "info" is informational.
func ParsePriority(s string) (Priority, bool) {
	s = strings.ToLower(s)
	if s == "info" {
		return Informational, true
	}
	for i, n := range priorityNames {
		if s == n {
			return Priority(i), true
		}
	}
	return Informational, false
}

// Severity is the priority as findings have it.
func (p Priority) Severity() bodycam.Severity {
	switch {
	case p <= Critical:
		return bodycam.Critical
	case p == Error:
		return bodycam.High
	case p == Warning:
		return bodycam.Medium
	case p == Notice:
		return bodycam.Low
	}
	return bodycam.Info
}

// Mode is what happens when a rule matches while a run goes on.
type Mode uint8

// The modes.
const (
	ModeAlert Mode = iota // say so; the run goes on
	ModeStop              // kill and freeze the run
	ModeDeny              // the kernel refuses the call
)

var modeNames = []string{"alert", "stop", "deny"}

func (m Mode) String() string { return modeNames[m] }

func parseMode(s string) (Mode, bool) {
	for i, n := range modeNames {
		if s == n {
			return Mode(i), true
		}
	}
	return ModeAlert, false
}

// Rule describes a rule of a set.
type Rule struct {
	Name     string
	Desc     string
	Class    string // of bodycam's own: what kind of behaviour it finds
	Priority Priority
	Tags     []string
	Mode     Mode
	Enabled  bool
	Source   string
	Pos      Pos
	Example  string // of what it finds, for people
	Sequence bool   // more than one event makes it match: a sequence, or a threshold
	// Threshold tells that it is about how often its condition is true.
	Threshold bool
	Events    string // event types that it looks at
	// Fields are those that its condition asks for, sorted.
	Fields []string
	// Unsupported says why the rule can't match anything; empty where it can.
	Unsupported []Gap
	// Output is the template as written.
	Output string
}

// Gap is something that a condition needs and our events can't supply.
type Gap struct {
	Need   string // a field, or "evt.type NAME"
	Reason string
	Pos    Pos
}

func (g Gap) String() string { return fmt.Sprintf("%s: %s (%s)", g.Need, g.Reason, g.Pos) }

// Source is one rule file, or one set of lists given as values.
type Source struct {
	Name string
	Data []byte
	// Lists defines lists, or replaces them. Their items are literals. A list that no file uses does no harm.
	Lists map[string][]string
}

// Options change how rules are loaded.
type Options struct {
	// CanDeny tells whether this machine can make the kernel refuse what the rule finds. It is asked about each
	// enabled rule of mode deny; an error makes loading fail with its reason and the offer of stop. Nil: none can.
	CanDeny func(Rule) error
}

// Set is a set of rules, compiled. It doesn't change, and engines of several goroutines can share it.
type Set struct {
	rules    []*rule
	warnings []*Problem
	slots    int
	files    []string
	byType   [64]plan
}

// plan is what is asked about events of one type.
type plan struct {
	asked []asked
	// sieved tells that most of it can be ruled out by an event's form.
	sieved bool
	may    uint64 // where nothing is sieved, those of the first siftedRules whose condition can be true
	flow   uint64 // the sequences that must know of data which moves
	heirs  uint64 // and of processes that begin
}

// asked is a rule that is asked about events of one type, with its condition for that type (nil: a sequence).
type asked struct {
	*rule
	ok    pred
	bound pred // whether the condition, or a step, can be true, as far as an event's form says; nil: it can
	never bool // no step of the sequence can be true: only data that moves concerns it
}

// rule is a compiled rule.
type rule struct {
	Rule
	cond   *compiled
	types  typeSet
	output template
	seq    *sequence
	limit  *threshold
	index  int
}

// Load reads rule files in order. Later ones can add to and change what earlier ones define. All errors are
// returned together, as [Errors].
func Load(files ...string) (*Set, error) {
	var srcs []Source
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading rules: %w", err)
		}
		srcs = append(srcs, Source{Name: f, Data: data})
	}
	return LoadSources(Options{}, srcs...)
}

// LoadSources is Load for rules that are not in files.
func LoadSources(opts Options, srcs ...Source) (*Set, error) {
	l := &loader{files: make([]source, len(srcs))}
	d := &definitions{loader: l, lists: map[string]*listDef{}, macros: map[string]*macroDef{}, rules: map[string]*ruleDef{}}
	for i, s := range srcs {
		l.files[i] = source{s.Name, s.Data}
		d.file = int32(i)
		l.read(d, s)
	}
	set := l.compile(d, opts)
	if len(l.errs) > 0 {
		sort.SliceStable(l.errs, func(i, j int) bool {
			a, b := l.errs[i], l.errs[j]
			if a.fileIndex != b.fileIndex {
				return a.fileIndex < b.fileIndex
			}
			return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
		})
		out := make(Errors, len(l.errs))
		for i, e := range l.errs {
			out[i] = &e.Problem
		}
		return nil, out
	}
	for _, s := range srcs {
		set.files = append(set.files, s.Name)
	}
	return set, nil
}

type source struct {
	name string
	data []byte
}

type loader struct {
	files []source
	errs  []*placed
	warns []*Problem
	seen  map[string]bool
}

type placed struct {
	Problem
	fileIndex int32
}

func (l *loader) pos(at mark) Pos {
	return Pos{File: l.files[at.file].name, Line: int(at.line), Column: int(at.col)}
}

// maxErrors bounds what a broken file can make us say.
const maxErrors = 200

func (l *loader) report(at mark, rule, msg, hint string) {
	key := fmt.Sprint(at, msg)
	if l.seen[key] || len(l.errs) >= maxErrors {
		return // a macro is compiled for both polarities
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[key] = true
	l.errs = append(l.errs, &placed{Problem{l.pos(at), rule, msg, hint}, at.file})
}

func (l *loader) warn(at mark, rule, msg, hint string) {
	key := fmt.Sprint(at, msg)
	if l.seen[key] {
		return // a macro is compiled for both polarities
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[key] = true
	l.warns = append(l.warns, &Problem{l.pos(at), rule, msg, hint})
}

func (l *loader) read(d *definitions, s Source) {
	for name, items := range s.Lists {
		def := &listDef{name: name, at: mark{d.file, 1, 1}}
		for _, it := range items {
			def.items = append(def.items, value{s: it})
		}
		d.lists[name] = def
	}
	if len(s.Data) == 0 {
		return
	}
	items, err := parseYAML(s.Data)
	if err != nil {
		l.report(mark{d.file, int32(err.line), int32(err.col)}, "", err.msg, "")
		return
	}
	for _, n := range items {
		d.item(n)
	}
}

// compile turns the definitions into a set.
func (l *loader) compile(d *definitions, opts Options) *Set {
	set := &Set{}
	c := &compiler{set: set, macros: d.macros, lists: d.lists, report: l.report, warn: l.warn, done: map[macroKey]*macroDone{}}
	for _, m := range d.macros {
		x, e := parseCondition(m.cond.s)
		if e != nil {
			l.report(m.cond.mark(e.off), "macro "+m.name, e.msg, e.hint)
			continue
		}
		m.ast = x
	}
	names := keysOf(d.macros)
	sort.Strings(names)
	for _, n := range names { // also those that no rule uses: their errors are errors
		c.gaps, c.unknown = nil, nil
		c.macro(&macroExpr{name: n}, true)
	}
	defs := make([]*ruleDef, 0, len(d.rules))
	for _, r := range d.rules {
		defs = append(defs, r)
	}
	sort.Slice(defs, func(i, j int) bool { return defs[i].order < defs[j].order })
	for _, r := range defs {
		if k := l.rule(d, c, r, opts); k != nil {
			k.index = len(set.rules)
			set.rules = append(set.rules, k)
		}
	}
	set.slots = c.slots
	if len(l.errs) == 0 {
		set.build()
	}
	set.warnings = l.warns
	return set
}

// rule compiles one rule. It returns nil where errors were reported.
func (l *loader) rule(d *definitions, c *compiler, r *ruleDef, opts Options) *rule {
	k := &rule{Rule: Rule{Name: r.name, Desc: r.desc, Class: r.class, Priority: r.priority, Tags: r.tags, Mode: r.mode,
		Enabled: r.enabled, Source: r.source, Pos: l.pos(r.at), Sequence: r.sequence != nil || r.threshold != nil, Threshold: r.threshold != nil, Output: r.output.s, Example: r.example}}
	c.rule = r.name
	if r.source != "syscall" {
		k.Unsupported = []Gap{{"source " + r.source, "only events of the sandbox are recorded", k.Pos}}
		return k
	}
	c.gaps, c.unknown, c.uses = nil, nil, nil
	errs := len(l.errs)
	switch {
	case r.sequence != nil:
		k.seq = l.sequence(d, c, r)
		if k.seq != nil {
			k.types = k.seq.types()
		}
	case r.hasCond:
		k.cond = l.condition(d, c, r)
		k.types = k.cond.may
	}
	if r.threshold != nil {
		k.limit = l.threshold(c, r)
	}
	l.unknownFields(c, r, k)
	gaps := c.gaps
	slices.Sort(c.uses)
	k.Fields = slices.Clone(slices.Compact(c.uses))
	c.gaps, c.unknown, c.uses = nil, nil, nil
	k.output = c.output(r.output)
	k.judge(l, r, gaps)
	if r.mode == ModeDeny && r.enabled && len(l.errs) == errs {
		l.deny(r, k, opts)
	}
	if len(l.errs) > errs {
		return nil
	}
	return k
}

func (l *loader) condition(d *definitions, c *compiler, r *ruleDef) *compiled {
	x, e := parseCondition(r.cond.s)
	if e != nil {
		l.report(r.cond.mark(e.off), r.name, e.msg, e.hint)
		return broken()
	}
	x = d.withExceptions(r, x)
	c.txt = r.cond
	return c.condition(x, true)
}

// unknownFields reports fields that nobody knows, unless the rule asks to be skipped for them.
func (l *loader) unknownFields(c *compiler, r *ruleDef, k *rule) {
	for _, u := range c.unknown {
		if r.skip {
			k.Unsupported = append(k.Unsupported, Gap{u.what, "there is no such field; the rule asks to be skipped then", l.pos(u.at)})
			continue
		}
		l.report(u.at, r.name, fmt.Sprintf("there is no field %q", u.what), u.reason)
	}
}

// judge decides whether the rule is supported: every field of its condition must be there, and at least one of the
// event types that it is about.
func (k *rule) judge(l *loader, r *ruleDef, gaps []gap) {
	k.Events = k.types.String()
	nothing := k.types&^(1<<bodycam.TypeDenied) == 0
	seen := map[string]bool{}
	for _, g := range gaps {
		if seen[g.what] {
			continue
		}
		seen[g.what] = true
		if g.partial && !nothing {
			l.warn(g.at, r.name, g.what+": "+g.reason+"; the rule works for its other event types", "")
			continue
		}
		k.Unsupported = append(k.Unsupported, Gap{g.what, g.reason, l.pos(g.at)})
	}
	if len(k.Unsupported) == 0 && k.types == allTypes && r.warnTypes {
		l.warn(r.at, r.name, "the condition doesn't say which event types it is about: it is asked about every event", "")
	}
}

func (l *loader) deny(r *ruleDef, k *rule, opts Options) {
	err := fmt.Errorf("nothing here can refuse a call")
	switch {
	case len(k.Unsupported) > 0:
		err = fmt.Errorf("the rule is unsupported: %s", k.Unsupported[0])
	case k.Sequence:
		err = fmt.Errorf("a sequence can't be refused by the kernel")
	case opts.CanDeny != nil:
		err = opts.CanDeny(k.Rule)
	}
	if err != nil {
		l.report(r.at, r.name, fmt.Sprintf("mode deny can't be kept: %v", err), "mode: stop would kill the run instead")
	}
}

// List describes every rule of the set in the order of the files.
func (s *Set) List() []Rule {
	out := make([]Rule, len(s.rules))
	for i, r := range s.rules {
		out[i] = r.Rule
	}
	return out
}

// Unsupported lists the rules that can't match, each with its reasons.
func (s *Set) Unsupported() []Rule {
	var out []Rule
	for _, r := range s.rules {
		if len(r.Unsupported) > 0 {
			out = append(out, r.Rule)
		}
	}
	return out
}

// Warnings are what the files could say better, and what is left out.
func (s *Set) Warnings() []*Problem { return s.warnings }

// build makes the closures of the rules that are on and supported, for each event type.
func (s *Set) build() {
	b := newBuilder(s.slots)
	for t := range s.byType {
		p := &s.byType[t]
		bounds := 0
		for _, r := range s.rules {
			if !r.Enabled || len(r.Unsupported) > 0 {
				continue
			}
			a, ok := r.ask(b, t)
			if !ok {
				continue
			}
			if a.bound != nil {
				bounds++
			}
			if i := len(p.asked); i < siftedRules {
				p.note(a, i, bodycam.Type(t))
			}
			p.asked = append(p.asked, a)
		}
		p.sieved = bounds >= fewBounds
	}
	s.slots = b.slots
}

// ask prepares a rule for events of a type, and tells whether such events concern it.
func (r *rule) ask(b *builder, t int) (asked, bool) {
	a := asked{rule: r}
	steps := &compiled{op: opOr, kids: []*compiled{r.cond}}
	if r.seq != nil {
		r.seq.build(b, t)
		if !r.seq.sees(bodycam.Type(t)) {
			return a, false
		}
		steps.kids = r.seq.steps
	} else if a.ok = b.pred(r.cond, t); a.ok == nil {
		return a, false
	}
	x := b.join(steps, func(k *compiled) built { return b.bound(k, t, true) })
	a.bound, a.never = x.ok, x.ok == nil && !x.value
	return a, true
}

func (p *plan) note(a asked, i int, t bodycam.Type) {
	bit := uint64(1) << i
	if !a.never {
		p.may |= bit
	}
	if a.seq != nil && a.seq.taint && flowTypes.has(t) {
		p.flow |= bit
	}
	if a.seq != nil && a.seq.by == byProcess && t == bodycam.TypeFork {
		p.heirs |= bit
	}
}
