package bodycam

// Process is what is known of one process.
type Process struct {
	ID      Proc
	Parent  Proc
	Exe     string
	Argv    []string
	CWD     string
	Script  string
	UID     uint32
	Forked  uint64 // boot time
	Exited  uint64 // boot time; 0: not seen to end
	Status  int32
	Execs   int    // how many programs it has run
	ExecSeq uint64 // event that began the present program
}

// Processes folds a run's events into its process tree, and gives every event what its process is.
// Feed it the events in order; the zero value is ready.
type Processes struct {
	m     map[Proc]*Process
	order []Proc
}

// Observe learns from one event and fills its Exe, Argv, CWD, Script and Parent where the sensor left them empty
// (a sensor states them once, on exec). The strings and slices are shared: don't change them.
func (p *Processes) Observe(e *Event) *Process {
	if e.Proc.PID == 0 {
		return nil
	}
	if p.m == nil {
		p.m = map[Proc]*Process{}
	}
	pr := p.get(e.Proc)
	if e.Parent != (Proc{}) {
		pr.Parent = e.Parent
	}
	switch e.Type {
	case TypeExec:
		if !e.Failed() {
			pr.Exe, pr.Argv, pr.Script, pr.UID = e.Exe, e.Argv, e.Script, e.UID
			if e.CWD != "" {
				pr.CWD = e.CWD
			}
			pr.Execs++
			pr.ExecSeq = e.Seq
		}
	case TypeFork:
		p.fork(pr, e)
	case TypeChdir:
		if !e.Failed() && e.Path != "" && e.Syscall() != "chroot" {
			pr.CWD = e.Path
		}
	case TypeExit:
		pr.Exited, pr.Status = e.Boot, e.Status
	case TypeSetuid:
		if !e.Failed() {
			pr.UID = e.UID
		}
	}
	fill(pr, e)
	return pr
}

func (p *Processes) fork(parent *Process, e *Event) {
	if e.Child.PID == 0 || e.Child == e.Proc {
		return // a thread: the same process
	}
	c := p.get(e.Child)
	c.Parent = e.Proc
	c.Forked = e.Boot
	if c.Execs == 0 {
		c.Exe, c.Argv, c.CWD, c.Script, c.UID = parent.Exe, parent.Argv, parent.CWD, parent.Script, parent.UID
	}
}

func (p *Processes) get(id Proc) *Process {
	pr := p.m[id]
	if pr == nil {
		pr = &Process{ID: id}
		p.m[id] = pr
		p.order = append(p.order, id)
	}
	return pr
}

func fill(pr *Process, e *Event) {
	if e.Parent == (Proc{}) {
		e.Parent = pr.Parent
	}
	if e.CWD == "" {
		e.CWD = pr.CWD
	}
	if e.Type == TypeExec {
		return // a failed exec tells what was tried, not what the process is
	}
	if e.Exe == "" {
		e.Exe = pr.Exe
	}
	if e.Argv == nil {
		e.Argv = pr.Argv
	}
	if e.Script == "" {
		e.Script = pr.Script
	}
}

// Get returns a process, nil where it isn't known.
func (p *Processes) Get(id Proc) *Process { return p.m[id] }

// All lists the processes in the order in which they were first seen.
func (p *Processes) All() []*Process {
	out := make([]*Process, len(p.order))
	for i, id := range p.order {
		out[i] = p.m[id]
	}
	return out
}

// Tree returns the process and its ancestors, outermost first.
func (p *Processes) Tree(id Proc) []ProcessRef {
	var out []ProcessRef
	for range 4096 { // a cycle is impossible in a true record; bounded all the same
		pr := p.m[id]
		if pr == nil {
			break
		}
		out = append(out, ProcessRef{PID: id.PID, Start: id.Start, Exe: pr.Exe, Argv: pr.Argv})
		id = pr.Parent
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
