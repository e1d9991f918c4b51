package rules

import (
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Context is what an event alone doesn't tell. The consumer provides it; [Table] provides the processes and the
// files from the events themselves and can be embedded. An Engine asks from one goroutine.
type Context interface {
	// Fold is given every event, before it is judged and in order.
	Fold(*bodycam.Event)
	// Process is the process of that identity, nil where it isn't known.
	Process(bodycam.Proc) *Process
	// File is what is known of the file of that device and inode, nil where nothing is.
	File(dev, ino uint64) *File
	// Wrote tells whether the file of that path was written during the run, for events that don't say which inode.
	Wrote(path string) bool
	// Made tells whether the file of that path came to be during the run.
	Made(path string) bool
	// Aliases appends the other names that a path has by bind mounts.
	Aliases(dst []string, path string) []string
	// Row is the transcript row that caused the event, nil where none did.
	Row(*bodycam.Event) *bodycam.Row
	// Explain says what explains the event's resource.
	Explain(*bodycam.Event) Explanation
	// Sandbox gives the names and constants of the run.
	Sandbox() *Sandbox
}

// Explanation says what explains a resource, as bits. The first three clear it; the others only make it less
// surprising, since a skill or all runs alike may be compromised.
type Explanation uint8

// The explanations.
const (
	ByTask      Explanation = 1 << iota // the task's text or declared dependencies name it
	ByAllowList                         // the kind or task allows it
	ByBaseline                          // a run without skills, or a baseline run, does it too
	BySkill                             // a skill's text names it
	BySiblings                          // sibling runs do it too
)

var explanationNames = []string{"task", "allow-list", "baseline", "skill", "siblings"}

// Cleared tells whether something explains the resource that can't itself be under suspicion.
func (x Explanation) Cleared() bool { return x&(ByTask|ByAllowList|ByBaseline) != 0 }

// Sandbox is what is the same for a whole run.
type Sandbox struct {
	Constants map[string]string // values of constant fields, for example container.image.repository
	Users     map[uint32]string // from the sandbox's passwd
	Groups    map[uint32]string // from the sandbox's group file
}

// Process is what rules know of a process.
type Process struct {
	ID      bodycam.Proc
	Parent  *Process
	Name    string // as the kernel keeps it (comm): at most 15 bytes
	Exe     string // canonical path of the program
	Argv    []string
	CWD     string
	Script  string
	SID     int32
	Began   int64  // wall clock of the first event seen, nanoseconds since 1970
	Dev     uint64 // of the program, where it is known
	Ino     uint64
	Memfd   bool // the program had no file
	Written bool // the program was written during the run
	// Writer is the program that wrote the program, where the run did.
	Writer string
	// ScriptWritten tells the same of the script.
	ScriptWritten bool
	// Harness marks the agent program itself. What it starts is not the harness.
	Harness bool
	Exited  bool

	root           *Process
	uid, uidBefore uint32 // of the newest event and of the one before
	events         uint64
	alive          int    // of a root: living processes of its tree, itself included
	args, cmdline  string // made when first asked for
	made           bool
	standing       standing
}

func (p *Process) make() {
	if p.made {
		return
	}
	p.made, p.args = true, "" // p may be a copy of the process that it was
	if len(p.Argv) > 1 {
		p.args = joinArgs(p.Argv[1:])
	}
	p.cmdline = p.Name
	if p.args != "" {
		p.cmdline += " " + p.args
	}
}

// maxArgs bounds the arguments that conditions look at as one text: a command line can have megabytes, and regular
// expressions would read them all. Of a longer one the beginning and the end are kept.
const maxArgs = 64 << 10

func joinArgs(argv []string) string {
	n := len(argv) - 1
	for _, a := range argv {
		n += len(a)
	}
	if n <= maxArgs {
		return strings.Join(argv, " ")
	}
	head := make([]byte, 0, maxArgs)
	for _, a := range argv {
		if len(head) >= maxArgs/2 {
			break
		}
		head = append(head, a[:min(len(a), maxArgs/2-len(head))]...)
		head = append(head, ' ')
	}
	var tail []string
	for left := maxArgs / 2; left > 0 && len(argv) > 0; argv = argv[:len(argv)-1] {
		a := argv[len(argv)-1]
		a = a[max(len(a)-left, 0):]
		tail = append(tail, a)
		left -= len(a) + 1
	}
	slices.Reverse(tail)
	return string(head) + "… " + strings.Join(tail, " ")
}

func (p *Process) argv0() string {
	if len(p.Argv) > 0 {
		return p.Argv[0]
	}
	return ""
}

// Cmdline is the name and the arguments, joined by blanks.
func (p *Process) Cmdline() string { p.make(); return p.cmdline }

// Ancestor is the n-th ancestor: 0 the process, 1 its parent.
func (p *Process) Ancestor(n int) *Process {
	for ; p != nil && n > 0; n-- {
		p = p.Parent
	}
	return p
}

// Root is the process that the harness started and that p descends from: the whole of what one tool call does.
// Of a process outside any harness it is the oldest ancestor known; of the harness it is the harness.
func (p *Process) Root() *Process {
	if p.Harness || p.root == nil {
		return p
	}
	return p.root
}

// setParent places p in the tree. Its root is settled then: what the parent becomes later doesn't move p.
func (p *Process) setParent(parent *Process) {
	p.Parent, p.root = parent, nil
	if parent != nil && !parent.Harness {
		p.root = parent.Root()
	}
}

// leader is the leader of the session that p is in, or its oldest ancestor in it.
func (p *Process) leader() *Process {
	top := p
	for q, n := p, 0; q != nil && n < maxAncestors; q, n = q.Parent, n+1 {
		if q.SID != p.SID {
			break
		}
		top = q
		if q.ID.PID == p.SID {
			break
		}
	}
	return top
}

// comm is the name that the kernel gives a process on exec.
func comm(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return name[:min(len(name), 15)]
}

// File is what the run's events say of a file.
type File struct {
	Names   []string // canonical paths under which it was seen, the newest last
	Written bool     // it was written during the run
	Made    bool     // it came to be during the run
	Writer  string   // program of the process that wrote it last
	at      uint64   // hash of the path where it was written last
	links   int      // names that still exist, as far as events tell

	first, firstMade uint64 // events that wrote it first, and that made it
}
