package rules

import (
	"hash/maphash"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Limits of a Table. A hostile run can't make it grow without end; what is given up is counted in Dropped.
const (
	maxProcesses = 1 << 17
	maxFiles     = 1 << 18
	maxOlder     = 1 << 16   // files beyond that which lie in older directories
	maxLinked    = 1 << 17   // and those beyond all which got further names: they hide what a file is
	maxPathBytes = 128 << 20 // of all paths that are kept
	maxNames     = 16        // of one file
	maxMounts    = 64
	maxOld       = 256 // older things that were moved
)

type fileID struct{ dev, ino uint64 }

// Table is a [Context] made of the events themselves: processes from fork, exec and exit; the names of files from
// link, rename and mount; which files the run wrote. It knows no rows and no explanations: embed it and override
// Row and Explain where there are any. It isn't safe for use by several goroutines.
type Table struct {
	// IsHarness tells which processes are the agent program. It is asked at fork and exec. Nil: only the first
	// process of the run is.
	IsHarness func(*Process) bool
	// Run is returned by Sandbox.
	Run Sandbox
	// Dropped counts processes and files that the limits made the table forget, and that mattered afterwards.
	Dropped uint64

	procs  map[bodycam.Proc]*Process
	dead   []bodycam.Proc // in order of exit
	files  map[fileID]*File
	paths  map[string]touch // written paths, for events that don't say which inode
	dirs   map[string]bool  // directories made during the run; false: something older that was moved there
	old    []string         // those of dirs that are false, sorted
	mounts []mountAlias
	gone   removed
	last   *Process // of the newest event
	// forgot tells that processes that had ended were forgotten: one that turns up later may be one of them.
	forgot bool
	bytes  int // of paths and dirs
	seed   maphash.Seed
	// changes counts how often a process became another, or got another place in the tree.
	changes uint64
}

// touch is what the run did to the file of a path.
type touch uint8

const (
	wrote touch = 1 + iota // it was there before, as far as is known
	made
)

type mountAlias struct{ at, from string }

// NewTable makes an empty table.
func NewTable() *Table {
	return &Table{procs: map[bodycam.Proc]*Process{}, files: map[fileID]*File{}, paths: map[string]touch{}, dirs: map[string]bool{}, seed: maphash.MakeSeed(), changes: 1}
}

// itself is the table of a context that embeds one.
func (t *Table) itself() *Table { return t }

// Process returns the process of that identity.
func (t *Table) Process(id bodycam.Proc) *Process {
	if p := t.last; p != nil && p.ID == id { // mostly it is that of the event at hand
		return p
	}
	return t.procs[id]
}

// File returns what is known of a file.
func (t *Table) File(dev, ino uint64) *File {
	if ino == 0 || len(t.files) == 0 {
		return nil
	}
	return t.files[fileID{dev, ino}]
}

// Row knows no rows.
func (t *Table) Row(*bodycam.Event) *bodycam.Row { return nil }

// Explain explains nothing.
func (t *Table) Explain(*bodycam.Event) Explanation { return 0 }

// Sandbox returns t.Run.
func (t *Table) Sandbox() *Sandbox { return &t.Run }

// Aliases appends the names that p has because a directory or file is bound to another place.
func (t *Table) Aliases(dst []string, p string) []string {
	for _, m := range t.mounts {
		if rest, ok := below(p, m.at); ok {
			dst = append(dst, m.from+rest)
		}
		if rest, ok := below(p, m.from); ok && m.from != "" {
			dst = append(dst, m.at+rest)
		}
	}
	return dst
}

// below tells whether p is dir or lies in it, and what follows dir.
func below(p, dir string) (string, bool) {
	rest, ok := strings.CutPrefix(p, dir)
	if !ok || rest != "" && rest[0] != '/' && dir != "/" {
		return "", false
	}
	return rest, true
}

// Name adds a name that a file is known by before the run, for example the real file of a secret to be guarded, so
// that hard links and bind mounts made earlier don't hide it.
func (t *Table) Name(dev, ino uint64, name string) {
	t.named(dev, ino, name)
}

// named adds names to a file that has an inode.
func (t *Table) named(dev, ino uint64, names ...string) *File {
	if ino == 0 {
		return nil
	}
	f := t.file(dev, ino, maxLinked)
	if f == nil {
		t.Dropped++
		return nil
	}
	for _, n := range names {
		t.addName(f, n)
	}
	return f
}

// Fold takes in an event.
func (t *Table) Fold(e *bodycam.Event) {
	if t.gone.path != "" || t.gone.id.ino != 0 {
		t.forget()
	}
	p := t.last
	if p == nil || p.ID != e.Proc {
		if p = t.procs[e.Proc]; p == nil {
			p = t.meet(e)
		}
		t.last = p
	}
	if e.CWD != "" && e.CWD != p.CWD {
		p.CWD = e.CWD
		t.changes++
	}
	p.events++
	p.uidBefore, p.uid = p.uid, e.UID
	switch e.Type {
	case bodycam.TypeFork:
		t.fork(e, p)
	case bodycam.TypeExec:
		if e.Errno == 0 {
			t.exec(e, p)
		}
	case bodycam.TypeExit:
		t.exit(e, p)
	case bodycam.TypeOpen:
		if e.Errno == 0 && (e.Access.Writes() || e.Access&(bodycam.Append|bodycam.Temp) != 0 || makes(e)) {
			t.written(e, p)
		}
	case bodycam.TypeCreate, bodycam.TypeTruncate:
		if e.Errno == 0 {
			t.written(e, p)
		}
	case bodycam.TypeBind:
		if e.Errno == 0 && e.UnixAddr != "" {
			t.touched(e.UnixAddr, made) // the run's own socket
		}
	case bodycam.TypeMkdir:
		if e.Errno == 0 && e.Path != "" {
			t.place(e.Path, true)
		}
	case bodycam.TypeRename, bodycam.TypeLink:
		if e.Errno == 0 {
			t.moved(e)
		}
	case bodycam.TypeUnlink, bodycam.TypeRmdir:
		t.unlinked(e)
	case bodycam.TypeMount:
		t.mounted(e)
	}
}

// meet makes a process that wasn't seen to begin, from what the event says of it.
func (t *Table) meet(e *bodycam.Event) *Process {
	t.trim()
	if t.forgot {
		t.Dropped++
	}
	p := &Process{ID: e.Proc, Exe: e.Exe, Argv: e.Argv, CWD: e.CWD, Script: e.Script, SID: e.SID, Began: e.Time}
	if e.Type == bodycam.TypeExec && e.Errno != 0 {
		p.Exe, p.Argv, p.Script = "", nil, ""
	}
	p.Name = comm(firstOf(p.Script, p.Exe))
	if e.Parent != (bodycam.Proc{}) {
		p.setParent(t.procs[e.Parent])
	}
	t.procs[e.Proc] = p
	t.changes++
	p.Root().alive++
	t.judge(p)
	return p
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (t *Table) judge(p *Process) {
	if t.IsHarness != nil {
		p.Harness = t.IsHarness(p)
		return
	}
	p.Harness = len(t.procs) == 1
}

func (t *Table) fork(e *bodycam.Event, p *Process) {
	if e.Child == (bodycam.Proc{}) || e.Child == e.Proc || e.Errno != 0 {
		return
	}
	if c := t.procs[e.Child]; c != nil { // the child's first events may overtake the fork
		if c.Parent == nil {
			c.setParent(p)
			t.changes++
		}
		return
	}
	t.trim()
	c := &Process{}
	*c = *p
	c.ID, c.Began, c.Exited, c.Harness, c.alive = e.Child, e.Time, false, false, 0
	c.setParent(p)
	t.procs[e.Child] = c
	t.changes++
	c.Root().alive++
	// A fork of the agent program is on its way to become something else; only IsHarness can tell that it stays.
	if t.IsHarness != nil {
		c.Harness = t.IsHarness(c)
	}
}

func (t *Table) exec(e *bodycam.Event, p *Process) {
	q := *p
	q.made = false
	q.Exe, q.Argv, q.Script = e.Exe, e.Argv, e.Script
	if q.Exe == "" {
		q.Exe = e.Path
	}
	dev, ino := e.Dev, e.Ino
	loaded, argv := q.loaded()
	if loaded != "" {
		q.Exe, q.Argv, dev, ino = loaded, argv, 0, 0
	}
	if e.SID != 0 {
		q.SID = e.SID
	}
	name := q.Exe
	if e.PathGiven != "" && loaded == "" {
		name = e.PathGiven
	}
	if q.Script != "" {
		name = q.Script
	}
	q.Name = comm(name)
	q.Dev, q.Ino = dev, ino
	q.Memfd = e.Access&bodycam.Temp != 0 || e.Marks&bodycam.MarkAnonymous != 0 || strings.HasPrefix(q.Exe, "memfd:") || strings.HasPrefix(q.Exe, "/memfd:")
	q.Written, q.Writer = t.wasWritten(dev, ino, q.Exe), ""
	if f := t.File(dev, ino); f != nil {
		q.Writer = f.Writer
	}
	script := q.script()
	q.ScriptWritten = script != "" && t.wasWritten(0, 0, script)
	q.Harness = false
	*p = q
	t.changes++
	if t.IsHarness != nil {
		p.Harness = t.IsHarness(p)
	} else {
		p.Harness = len(t.procs) == 1
	}
}

// interpreters run the file that is their first argument. The names are those of the programs, without version.
var interpreters = map[string]bool{"sh": true, "bash": true, "dash": true, "zsh": true, "ash": true, "ksh": true,
	"python": true, "perl": true, "ruby": true, "node": true, "nodejs": true, "php": true, "lua": true, "deno": true, "bun": true, "busybox": true}

// valueOptions of interpreters take the next argument, which is no script then.
var valueOptions = map[string]bool{"-W": true, "-X": true, "-Q": true, "--check-hash-based-pycs": true, "-r": true, "--require": true, "--import": true, "--loader": true,
	"--experimental-loader": true, "-I": true, "-C": true, "--conditions": true, "-E": true, "-K": true, "-F": true, "-o": true, "+o": true, "-O": true, "+O": true, "--rcfile": true, "--init-file": true}

// Runs is the file that an interpreter runs: that of "#!", or its first argument that is no option; "" of a program.
func (p *Process) Runs() string { return p.script() }

// script is the file that an interpreter runs: that of "#!", or its first argument that is no option.
func (p *Process) script() string {
	if p.Script != "" {
		return p.Script
	}
	name := strings.TrimRight(path.Base(p.Exe), "0123456789.")
	if !interpreters[name] {
		return ""
	}
	skip := false
	for _, a := range p.Argv[min(1, len(p.Argv)):] {
		if skip {
			skip = false
			continue
		}
		if valueOptions[a] {
			skip = true
			continue
		}
		if a == "-c" || a == "-e" || a == "-m" || a == "-" || a == "-p" {
			return ""
		}
		if strings.HasPrefix(a, "-") || a == "" {
			continue
		}
		if !strings.HasPrefix(a, "/") && p.CWD != "" {
			a = path.Join(p.CWD, a)
		}
		return path.Clean(a)
	}
	return ""
}

func (t *Table) exit(e *bodycam.Event, p *Process) {
	if p.Exited || e.TID != 0 && e.TID != e.Proc.PID {
		return
	}
	p.Exited = true
	p.Root().alive--
	t.dead = append(t.dead, p.ID)
}

// trim forgets the processes that ended first. Their children keep them as ancestors, and nothing is lost unless one turns
// up again.
func (t *Table) trim() {
	for len(t.procs) >= maxProcesses && len(t.dead) > 0 {
		delete(t.procs, t.dead[0])
		t.last = nil
		t.dead = t.dead[1:]
		t.forgot = true
	}
}

// file finds or makes the entry of a file, nil where there is no room; further is how many may be made beyond the limit.
func (t *Table) file(dev, ino uint64, further int) *File {
	id := fileID{dev, ino}
	f := t.files[id]
	if f == nil {
		if len(t.files) >= maxFiles+further {
			return nil
		}
		f = &File{links: 1}
		t.files[id] = f
	}
	return f
}

func (t *Table) addName(f *File, name string) {
	if name == "" || slices.Contains(f.Names, name) || len(f.Names) >= maxNames {
		return
	}
	if name = t.keepPath(name); name == "" {
		t.Dropped++
		return
	}
	f.Names = append(f.Names, name)
}

// makes tells whether an event's file came to be by it. Of an open the sensor says so; O_EXCL and O_TMPFILE leave no doubt.
func makes(e *bodycam.Event) bool {
	const exclusive = 0x80 // O_EXCL
	switch e.Type {
	case bodycam.TypeCreate:
		return true
	case bodycam.TypeOpen:
		return e.Detail == "new" || e.Access&bodycam.Temp != 0 || e.Access&bodycam.Create != 0 && e.Flags&exclusive != 0
	}
	return false
}

func (t *Table) written(e *bodycam.Event, p *Process) {
	at, how := maphash.String(t.seed, e.Path), wrote
	if makes(e) {
		how = made
	}
	if f := t.File(e.Dev, e.Ino); f != nil && f.Written && f.Writer == p.Exe && f.at == at && (f.Made || how == wrote) {
		return // the same again
	}
	inside := t.inMade(e.Path) // what lies in a directory that the run made is known by that to be the run's
	if e.Ino != 0 {
		further := 0
		if !inside {
			further = maxOlder
		}
		f := t.file(e.Dev, e.Ino, further)
		switch {
		case f != nil:
			if !f.Written && !t.Wrote(e.Path) {
				f.first = e.Seq
			}
			if how == made && !f.Made {
				f.Made = true
				if !t.Made(e.Path) {
					f.firstMade = e.Seq
				}
			}
			f.Written, f.Writer, f.at = true, p.Exe, at
		case !inside:
			t.Dropped++
		}
	}
	if e.Path != "" && t.paths[e.Path] < how && !inside {
		t.touched(e.Path, how)
	}
}

// keepPath copies a path, as long as there is room for more.
func (t *Table) keepPath(p string) string {
	if t.bytes+len(p) > maxPathBytes {
		return ""
	}
	t.bytes += len(p)
	return strings.Clone(p)
}

// lose forgets what was done to the file of a path.
func (t *Table) lose(p string) {
	if t.paths[p] != 0 {
		t.bytes -= len(p)
		delete(t.paths, p)
	}
}

// unplace forgets a directory.
func (t *Table) unplace(p string) {
	if _, ok := t.dirs[p]; ok {
		t.bytes -= len(p)
		delete(t.dirs, p)
	}
}

func (t *Table) wasWritten(dev, ino uint64, name string) bool {
	if f := t.File(dev, ino); f != nil && f.Written {
		return true
	}
	return t.Wrote(name)
}

// Wrote tells whether the run wrote the file of a path: it wrote that path, or made a directory above it. Older things
// that were moved into such a directory stay old.
func (t *Table) Wrote(p string) bool {
	return t.paths[p] != 0 || t.inMade(p)
}

// Made tells whether the file of a path came to be during the run, or lies in a directory that did.
func (t *Table) Made(p string) bool {
	return t.paths[p] == made || t.inMade(p)
}

// inMade tells whether the nearest directory above a path of which that is known was made during the run.
func (t *Table) inMade(p string) bool {
	for q := p; len(t.dirs) > 0 && q != ""; {
		if made, ok := t.dirs[q]; ok {
			return made
		}
		q = q[:max(strings.LastIndexByte(q, '/'), 0)]
	}
	return false
}

func (t *Table) place(p string, made bool) {
	if len(t.dirs) >= maxFiles || !made && len(t.old) >= maxOld {
		t.Dropped++
		return
	}
	t.unplace(p)
	if p = t.keepPath(p); p == "" {
		t.Dropped++
		return
	}
	t.dirs[p] = made
	i, known := slices.BinarySearch(t.old, p)
	switch {
	case !made && !known:
		t.old = slices.Insert(t.old, i, p)
	case made && known:
		t.old = slices.Delete(t.old, i, i+1)
	}
}

// young forgets that a path is that of an older thing.
func (t *Table) young(p string) {
	if i, ok := slices.BinarySearch(t.old, p); ok {
		t.old = slices.Delete(t.old, i, i+1)
	}
}

// renamed takes along what is known of a directory, and of the older things that were moved into it.
func (t *Table) renamed(from, to string) {
	young := t.Made(from)
	if len(t.old) > 0 {
		within := from + "/"
		first, _ := slices.BinarySearch(t.old, within)
		last := first
		for last < len(t.old) && strings.HasPrefix(t.old[last], within) {
			last++
		}
		inside := slices.Clone(t.old[first:last])
		t.old = slices.Delete(t.old, first, last)
		for _, p := range inside {
			t.unplace(p)
			t.place(to+p[len(from):], false)
		}
	}
	t.unplace(from)
	t.young(from)
	t.place(to, young)
}

func (t *Table) moved(e *bodycam.Event) {
	from, to := e.Path, e.Path2
	if f := t.named(e.Dev, e.Ino, from, to); f != nil && e.Type == bodycam.TypeLink {
		f.links++
	}
	if from == "" || to == "" || from == to {
		return
	}
	how, other := t.paths[from], touch(0)
	switch {
	case e.Type == bodycam.TypeLink:
		if how == 0 && t.inMade(from) {
			how = made
		}
		other = t.paths[from]
	case e.Flags&renameExchange != 0:
		other = t.paths[to]
		young := t.Made(to)
		t.renamed(from, to)
		if t.inMade(from) != young {
			t.place(from, young)
		}
	default:
		t.renamed(from, to)
	}
	t.touched(to, how) // what was there is so no more
	t.touched(from, other)
}

const renameExchange = 2 // linux/fs.h

// touched notes what was done to the file that a path leads to from now on.
func (t *Table) touched(p string, how touch) {
	switch {
	case t.paths[p] == how:
		return
	case how == 0:
		t.lose(p)
		return
	case t.paths[p] == 0:
		if len(t.paths) >= maxFiles {
			t.Dropped++
			return
		}
		if p = t.keepPath(p); p == "" {
			t.Dropped++
			return
		}
	}
	t.paths[p] = how
}

// unlinked remembers what to forget with the next event: rules about this one still want to know of the file.
func (t *Table) unlinked(e *bodycam.Event) {
	if e.Errno == 0 {
		t.gone = removed{fileID{e.Dev, e.Ino}, strings.Clone(e.Path)}
	}
}

// forget drops a file once its last name is gone: its inode can be used again for another.
func (t *Table) forget() {
	t.lose(t.gone.path)
	t.unplace(t.gone.path)
	t.young(t.gone.path)
	if f := t.files[t.gone.id]; f != nil {
		if f.links--; f.links <= 0 {
			for _, n := range f.Names {
				t.bytes -= len(n)
			}
			delete(t.files, t.gone.id)
		}
	}
	t.gone = removed{}
}

type removed struct {
	id   fileID
	path string
}

const (
	msBind = 0x1000
	msMove = 0x2000
)

// mounted notes that a bind mount gives a directory or file a second name. Sensors keep the place as Path and the
// source as the second path. Both are names of the same files from then on.
func (t *Table) mounted(e *bodycam.Event) {
	from := firstOf(e.Path2, e.Path2Given)
	if from != "" && from[0] != '/' && e.CWD != "" {
		from = path.Join(e.CWD, from)
	}
	if e.Errno != 0 || e.Flags&(msBind|msMove) == 0 || from == "" || from[0] != '/' || e.Path == "" || e.Path == from || e.Path == "/" {
		return
	}
	m := mountAlias{at: e.Path, from: strings.TrimSuffix(from, "/")}
	for _, k := range t.mounts {
		if k == m {
			return
		}
	}
	if len(t.mounts) >= maxMounts {
		t.Dropped++
		return
	}
	t.mounts = append(t.mounts, m)
}
