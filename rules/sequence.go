package rules

import (
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// What the steps of a sequence must have in common.
const (
	byTree    = "process_tree" // the process that the harness started and all its descendants
	byProcess = "process"
	byRun     = "run"
)

var byNames = []string{byTree, byProcess, byRun}

// Limits of what an engine remembers for one sequence; what is given up is counted in Engine.Dropped.
const (
	maxSteps  = 8
	maxChains = 1 << 14
	maxHolds  = 1 << 16
)

// How sure a match is. A process that did all steps itself, or an order within one tree where no flow of data is
// asked for, is 1. Every step that data takes from one process or file to another may have lost it; where only the
// tree joins the steps, it is a guess.
const (
	throughFork = 0.9
	throughFile = 0.9
	sameTree    = 0.5
)

// sequence is a rule of several steps.
type sequence struct {
	by     string
	within int64 // nanoseconds from the first step to the last; 0: without limit
	taint  bool
	steps  []*compiled
	preds  [][64]pred // of each step, by event type; nil: it can't be true
}

func (s *sequence) types() typeSet {
	var t typeSet
	for _, st := range s.steps {
		t |= st.may
	}
	return t
}

func (s *sequence) build(b *builder, t int) {
	if s.preds == nil {
		s.preds = make([][64]pred, len(s.steps))
	}
	for i, st := range s.steps {
		s.preds[i][t] = b.pred(st, t)
	}
}

// sees tells whether events of the type matter: to a step, or because data may move by them.
func (s *sequence) sees(t bodycam.Type) bool {
	for i := range s.preds {
		if s.preds[i][t] != nil {
			return true
		}
	}
	return s.taint && flowTypes.has(t) || s.by == byProcess && t == bodycam.TypeFork
}

// sequence compiles a sequence's steps.
func (l *loader) sequence(d *definitions, c *compiler, r *ruleDef) *sequence {
	if len(r.exceptions) > 0 {
		l.report(r.at, r.name, "a sequence can't have exceptions: put them into its steps", "")
	}
	out := &sequence{by: r.sequence.by, within: int64(r.sequence.within / time.Nanosecond), taint: r.sequence.taint}
	for _, t := range r.sequence.steps {
		x, e := parseCondition(t.s)
		if e != nil {
			l.report(t.mark(e.off), r.name, e.msg, e.hint)
			continue
		}
		c.txt = t
		k := c.condition(x, true)
		if k.may == 0 {
			l.report(t.mark(x.offset()), r.name, "this step can never be true", "")
		}
		out.steps = append(out.steps, k)
	}
	if len(out.steps) < 2 {
		return nil
	}
	return out
}

// step is a step of a sequence that has happened.
type step struct {
	event    uint64
	time     int64
	resource string
}

// chain is a beginning of a sequence: its first steps, and how sure it is that they belong together.
type chain struct {
	steps []step
	sure  float32
}

func (c *chain) began() int64 { return c.steps[0].time }

func (c *chain) with(e *bodycam.Event) []step {
	steps := make([]step, 0, maxSteps)
	if c != nil {
		steps = append(steps, c.steps...)
	}
	return append(steps, step{e.Seq, e.Time, strings.Clone(resourceOf(e))})
}

// resourceOf names what an event is about.
func resourceOf(e *bodycam.Event) string {
	switch {
	case e.Host != "":
		return e.Host
	case e.Remote.IsValid():
		return e.Remote.String()
	case e.Path != "":
		return e.Path
	case e.PathGiven != "":
		return e.PathGiven
	case e.UnixAddr != "":
		return e.UnixAddr
	}
	return e.Exe
}

// progress is an engine's state for one sequence.
type progress struct {
	seq *sequence
	// byKey holds, for a tree, process or run, the newest chain of each length (index 0: one step done).
	byKey   map[bodycam.Proc]*[maxSteps]*chain
	flow    flow
	dropped uint64
	sweep   int64 // time before which expire doesn't look again
}

func newProgress(s *sequence) *progress {
	return &progress{seq: s, byKey: map[bodycam.Proc]*[maxSteps]*chain{}, flow: newFlow()}
}

// event takes a sequence further and returns the chain that is complete with it, if any. may is false where the event can't
// be a step.
func (p *progress) event(m *machine, may bool) *chain {
	e, s := m.ev, p.seq
	if s.taint && p.flow.active() {
		p.flow.follow(m, &p.dropped)
	}
	key := keyOf(m, s.by)
	if s.by == byProcess && e.Type == bodycam.TypeFork && e.Errno == 0 {
		p.inherit(m)
	}
	if !may {
		return nil
	}
	var found *chain
	// From the last step to the first, so that one event doesn't serve as two steps.
	for i := len(s.steps) - 1; i >= 0; i-- {
		ok := s.preds[i][e.Type&63]
		if ok == nil {
			continue
		}
		var before *chain
		sure := float32(1)
		if i > 0 {
			if before, sure = p.before(m, key, i); before == nil || !ok(m) {
				continue
			}
		} else if !ok(m) {
			continue
		}
		next := &chain{steps: before.with(e), sure: sure}
		if i == len(s.steps)-1 {
			found = next
			continue
		}
		p.keep(m, key, i, next)
	}
	return found
}

// inherit lets a child go on with what its parent began: it is the same program until it becomes another.
func (p *progress) inherit(m *machine) {
	cs := p.byKey[m.ev.Proc]
	if cs == nil || m.ev.Child == (bodycam.Proc{}) || m.ev.Child == m.ev.Proc {
		return
	}
	for i, c := range cs {
		if c != nil && p.intime(m, c) {
			p.keepFor(m, m.ev.Child, i, &chain{steps: c.steps, sure: c.sure * throughFork})
		}
	}
}

// keyOf is what events must have in common: the tree's root, the process, or nothing.
func keyOf(m *machine, by string) bodycam.Proc {
	switch by {
	case byProcess:
		return m.ev.Proc
	case byTree:
		if r := m.proc.Root(); r.ID != (bodycam.Proc{}) {
			return r.ID
		}
		return m.ev.Proc
	}
	return bodycam.Proc{}
}

// before finds the chain of i steps that the event may continue.
func (p *progress) before(m *machine, key bodycam.Proc, i int) (*chain, float32) {
	if p.seq.taint {
		if h := p.flow.procs[m.ev.Proc]; h.chain != nil && len(h.chain.steps) == i && p.intime(m, h.chain) {
			return h.chain, h.sure
		}
		if p.seq.by == byRun {
			return nil, 0 // only the data itself joins the steps
		}
	}
	cs := p.byKey[key]
	if cs == nil || cs[i-1] == nil || !p.intime(m, cs[i-1]) {
		return nil, 0
	}
	if p.seq.taint {
		return cs[i-1], min(cs[i-1].sure, sameTree)
	}
	return cs[i-1], cs[i-1].sure
}

func (p *progress) intime(m *machine, c *chain) bool {
	return p.seq.within == 0 || m.ev.Time-c.began() <= p.seq.within
}

func (p *progress) keep(m *machine, key bodycam.Proc, i int, c *chain) {
	if p.keepFor(m, key, i, c) && p.seq.taint {
		p.flow.hold(m.ev.Proc, hold{c, c.sure}, &p.dropped)
	}
}

// keepFor tells whether there was room.
func (p *progress) keepFor(m *machine, key bodycam.Proc, i int, c *chain) bool {
	cs := p.byKey[key]
	if cs == nil {
		if len(p.byKey) >= maxChains && !p.expire(m) {
			p.dropped++
			return false
		}
		cs = &[maxSteps]*chain{}
		p.byKey[key] = cs
	}
	cs[i] = c
	return true
}

// expire forgets beginnings that are too old to be continued, and tells whether there were any. It looks again only after
// a tenth of the time that a sequence may take.
func (p *progress) expire(m *machine) bool {
	if p.seq.within == 0 || m.ev.Time < p.sweep {
		return false
	}
	p.sweep = m.ev.Time + p.seq.within/10
	n := len(p.byKey)
	for key, cs := range p.byKey {
		live := false
		for _, c := range cs {
			live = live || c != nil && p.intime(m, c)
		}
		if !live {
			delete(p.byKey, key)
		}
	}
	return len(p.byKey) < n
}

// hold says that a process or file may hold the data of a chain.
type hold struct {
	chain *chain
	sure  float32
}

func (h hold) through(f float32) hold { return hold{h.chain, h.sure * f} }

// flow follows data as far as events show it: from a file to the process that reads it, from a process to the files
// and pipes it writes afterwards and to its children, and along with a file that is renamed or linked. What a
// process does with data in memory isn't seen: everything it writes later counts as holding the data.
type flow struct {
	procs map[bodycam.Proc]hold
	files map[fileID]hold
	paths map[string]hold // files whose inode isn't known
	// byPath finds any tainted file by its name, for scripts, which an exec names but doesn't identify.
	byPath map[string]hold
}

func newFlow() flow {
	return flow{map[bodycam.Proc]hold{}, map[fileID]hold{}, map[string]hold{}, map[string]hold{}}
}

func (f *flow) active() bool { return len(f.procs)+len(f.files)+len(f.paths) > 0 }

func (f *flow) hold(id bodycam.Proc, h hold, dropped *uint64) {
	old, ok := f.procs[id]
	if ok && old.sure > h.sure && len(old.chain.steps) >= len(h.chain.steps) {
		return
	}
	if !ok && len(f.procs) >= maxHolds {
		*dropped++
		return
	}
	f.procs[id] = h
}

func (f *flow) file(e *bodycam.Event) (hold, bool) {
	if e.Ino != 0 {
		if h, ok := f.files[fileID{e.Dev, e.Ino}]; ok {
			return h, true
		}
		return hold{}, false
	}
	h, ok := f.paths[e.Path]
	return h, ok
}

func (f *flow) taintFile(e *bodycam.Event, h hold, dropped *uint64) {
	if len(f.files)+len(f.paths)+len(f.byPath) >= maxHolds {
		*dropped++
		return
	}
	if e.Path != "" {
		f.byPath[strings.Clone(e.Path)] = h
	}
	switch {
	case e.Ino != 0:
		f.files[fileID{e.Dev, e.Ino}] = h
	case e.Path != "":
		f.paths[strings.Clone(e.Path)] = h
	}
}

// follow takes an event's flow in. It allocates only where data moves.
func (f *flow) follow(m *machine, dropped *uint64) {
	e := m.ev
	if e.Errno != 0 {
		return
	}
	switch e.Type {
	case bodycam.TypeFork:
		if h, ok := f.procs[e.Proc]; ok && e.Child != (bodycam.Proc{}) {
			f.hold(e.Child, h.through(throughFork), dropped)
		}
	case bodycam.TypeExec:
		// The program's own bytes come into the process, and those of a script that it is given.
		f.moves(e, true, false, dropped)
		for _, name := range []string{m.proc.script(), m.proc.Exe} { // the latter is named alone where a loader runs it
			if h, ok := f.byPath[name]; ok && name != "" && name != e.Exe {
				f.hold(e.Proc, h.through(throughFile), dropped)
			}
		}
	case bodycam.TypeOpen:
		f.moves(e, e.Access&bodycam.Read != 0, e.Access&bodycam.Write != 0, dropped)
	case bodycam.TypeClose, bodycam.TypeFlow:
		f.moves(e, e.BytesRead > 0 || e.Mapped, e.BytesWritten > 0, dropped)
	case bodycam.TypeMmap:
		f.moves(e, true, e.Access&bodycam.Write != 0, dropped)
	case bodycam.TypeRename, bodycam.TypeLink:
		for _, paths := range []map[string]hold{f.paths, f.byPath} {
			if h, ok := paths[e.Path]; ok && e.Path2 != "" {
				paths[strings.Clone(e.Path2)] = h
				if e.Type == bodycam.TypeRename {
					delete(paths, e.Path)
				}
			}
		}
	case bodycam.TypeUnlink:
		delete(f.paths, e.Path)
		delete(f.byPath, e.Path)
		if k := m.ctx.File(e.Dev, e.Ino); e.Ino != 0 && (k == nil || k.links <= 1) {
			delete(f.files, fileID{e.Dev, e.Ino})
		}
	}
}

func (f *flow) moves(e *bodycam.Event, read, written bool, dropped *uint64) {
	if e.Type == bodycam.TypeFlow && e.Ino == 0 {
		return
	}
	if read {
		if h, ok := f.file(e); ok {
			f.hold(e.Proc, h.through(throughFile), dropped)
		}
	}
	if written {
		if h, ok := f.procs[e.Proc]; ok {
			if old, had := f.file(e); !had || old.sure < h.sure*throughFile {
				f.taintFile(e, h.through(throughFile), dropped)
			}
		}
	}
}
