package features

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Degree says how far a skill's file was used.
type Degree string

// The degrees, in ascending order.
const (
	Never     Degree = "never"
	InListing Degree = "listed"   // a directory that holds it was listed
	Scanned   Degree = "scanned"  // searched, copied, measured: its content went through a program, not to the agent
	FileRead  Degree = "read"     // its content was read
	Run       Degree = "executed" // run as a program, by an interpreter, sourced, or piped into one
)

var degrees = []Degree{Never, InListing, Scanned, FileRead, Run}

func (d Degree) rank() int { return slices.Index(degrees, d) }

// SkillUse says how much of a skill a run used.
type SkillUse struct {
	Name  string    `json:"name"`
	Files []FileUse `json:"files"`
}

// FileUse says how one file of a skill was used, over all its copies.
type FileUse struct {
	Path   string `json:"path"` // relative to the skill
	Script bool   `json:"script,omitempty"`
	Degree Degree `json:"degree"`
	How    string `json:"how,omitempty"`
	// Row is the row that did it, −1 where no row explains it.
	Row        int                `json:"row"`
	Method     bodycam.LinkMethod `json:"method,omitempty"`
	Confidence float64            `json:"confidence,omitempty"`
	Event      uint64             `json:"event,omitempty"`
	// ByHarness tells that the harness itself read it, which counts for nothing: harnesses read whole SKILL.md files
	// at their start.
	ByHarness bool `json:"by_harness,omitempty"`
}

// Used tells whether a file served its purpose: a script was executed, anything else was read.
func (f FileUse) Used() bool {
	if f.Script {
		return f.Degree == Run
	}
	return f.Degree.rank() >= FileRead.rank()
}

// Coverage is the share of files that were used, from 0 to 1; a skill without files has 1.
func (s SkillUse) Coverage() float64 {
	if len(s.Files) == 0 {
		return 1
	}
	n := 0
	for _, f := range s.Files {
		if f.Used() {
			n++
		}
	}
	return float64(n) / float64(len(s.Files))
}

// searchers are programs through which content goes without the agent's seeing the whole of it.
var searchers = map[string]bool{"grep": true, "egrep": true, "fgrep": true, "rg": true, "ag": true, "ack": true, "find": true, "fd": true, "tar": true, "cp": true,
	"rsync": true, "zip": true, "gzip": true, "xz": true, "zstd": true, "install": true, "mv": true, "ln": true, "wc": true, "du": true, "stat": true, "file": true, "tree": true, "ls": true,
	"md5sum": true, "sha1sum": true, "sha256sum": true, "sha512sum": true, "cksum": true, "b2sum": true, "git": true, "chmod": true, "touch": true, "scp": true, "cmp": true}

// scriptNames are what scripts are called; the interpreters that run them.
var scriptNames = map[string][]string{
	".sh": nil, ".bash": nil, ".zsh": nil, ".py": {"python"}, ".js": {"node", "nodejs", "deno", "bun"}, ".mjs": {"node", "nodejs", "deno", "bun"},
	".cjs": {"node", "nodejs", "deno", "bun"}, ".ts": {"node", "nodejs", "deno", "bun"}, ".pl": {"perl"}, ".rb": {"ruby"}, ".lua": {"lua"}, ".php": {"php"},
	".R": {"Rscript", "R"}, ".awk": {"awk", "gawk", "mawk"}, ".tcl": {"tclsh"}, ".jl": {"julia"},
}

// isScript tells whether a file is one that is run.
func isScript(f PlanFile) bool {
	if _, ok := scriptNames[path.Ext(f.Path)]; ok {
		return true
	}
	return len(f.Mode) >= 10 && f.Mode[len(f.Mode)-7] == 'x' || strings.HasPrefix(f.Path, "bin/") || strings.Contains(f.Path, "scripts/") && path.Ext(f.Path) == ""
}

// runs tells whether a program interprets files of that name.
func runs(exe, file string) bool {
	prog := Program(exe)
	by, known := scriptNames[path.Ext(file)]
	switch {
	case !known:
		return bodycam.IsShell(exe) || interpreters[prog]
	case by == nil:
		return bodycam.IsShell(exe)
	}
	return slices.Contains(by, prog)
}

type fileRef struct{ skill, file int }

// skillWatch follows what is done with skills' files.
type skillWatch struct {
	use     []SkillUse
	front   [][]int64 // bytes of the front matter, by file; 0 where there is none
	paths   map[string]fileRef
	dirs    map[string][]fileRef // files directly in a directory
	pending map[bodycam.Proc]map[fileRef]pendingOpen
	readers []pipeEnd // processes that read a script and may feed it to a sibling
	bare    []pipeEnd // interpreters that were started without a script
}

// pendingOpen is a script that a shell opened itself: it sources it, or is about to become the program that reads it.
type pendingOpen struct {
	event *useEvent
	path  string
	text  string // the shell's own script, where it has one
	how   string
}

type useEvent struct {
	seq    uint64
	origin origin
	cause  Cause
}

type pipeEnd struct {
	parent bodycam.Proc
	proc   bodycam.Proc
	boot   uint64
	ref    fileRef
	exe    string
	ev     useEvent
}

func newSkillWatch(p *Plan) *skillWatch {
	w := &skillWatch{paths: map[string]fileRef{}, dirs: map[string][]fileRef{}, pending: map[bodycam.Proc]map[fileRef]pendingOpen{}}
	for i, s := range p.Skills {
		use := SkillUse{Name: s.Name}
		front := make([]int64, len(s.Files))
		for j, f := range s.Files {
			use.Files = append(use.Files, FileUse{Path: f.Path, Script: isScript(f), Degree: Never, Row: -1})
			if path.Base(f.Path) == "SKILL.md" && !strings.Contains(f.Path, "/") {
				front[j] = frontMatter(s.Document)
			}
			for _, root := range s.Roots {
				w.alias(path.Join(root, f.Path), fileRef{i, j})
			}
		}
		w.use, w.front = append(w.use, use), append(w.front, front)
	}
	return w
}

// alias makes a path known as a copy of a skill's file.
func (w *skillWatch) alias(p string, ref fileRef) {
	if _, ok := w.paths[p]; ok {
		return
	}
	w.paths[p] = ref
	w.dirs[path.Dir(p)] = append(w.dirs[path.Dir(p)], ref)
}

// frontMatter is the length of a SKILL.md's head, in bytes.
func frontMatter(doc string) int64 {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(doc, "\xef\xbb\xbf"), "---")
	if !ok {
		return 0
	}
	i := strings.Index(rest, "\n---")
	if i < 0 {
		return 0
	}
	return int64(len(doc) - len(rest) + i + len("\n---") + 1)
}

var bytecode = regexp.MustCompile(`^(.*/)__pycache__/([^/]+?)\.[A-Za-z]+-[0-9]+(?:\.opt-[0-9])?\.pyc$`)

// find resolves a path to a skill's file; the compiled form of a Python module is the module.
func (w *skillWatch) find(p string) (fileRef, bool) {
	ref, ok := w.paths[p]
	if !ok && strings.Contains(p, "__pycache__") {
		if m := bytecode.FindStringSubmatch(p); m != nil {
			ref, ok = w.paths[m[1]+m[2]+".py"]
		}
	}
	return ref, ok
}

func (w *skillWatch) observe(e *bodycam.Event, x *Extractor) {
	if len(w.paths) == 0 {
		return
	}
	switch e.Type {
	case bodycam.TypeExec:
		w.exec(e, x)
	case bodycam.TypeOpen:
		w.open(e, x)
	case bodycam.TypeClose:
		w.close(e, x)
	}
}

func (w *skillWatch) event(e *bodycam.Event, x *Extractor) useEvent {
	o := x.origin
	if o == byHarness && x.cause.Row >= 0 {
		o = byRow // the shell around a row's command
	}
	return useEvent{seq: e.Seq, origin: o, cause: x.cause}
}

// raise notes a degree of use. What the harness did by itself counts for nothing.
func (w *skillWatch) raise(ref fileRef, d Degree, how string, ev useEvent) {
	f := &w.use[ref.skill].Files[ref.file]
	if ev.origin == byHarness || ev.origin == byStartup {
		f.ByHarness = f.ByHarness || d != InListing || strings.HasPrefix(how, "opened")
		return
	}
	if d.rank() <= f.Degree.rank() {
		return
	}
	f.Degree, f.How, f.Event, f.Row, f.Method, f.Confidence = d, how, ev.seq, -1, "", 0
	if ev.origin == byRow {
		f.Row, f.Method, f.Confidence = ev.cause.Row, ev.cause.Method, ev.cause.Confidence
	}
}

func (w *skillWatch) exec(e *bodycam.Event, x *Extractor) {
	if e.Failed() {
		return
	}
	ev := w.event(e, x)
	if ref, ok := w.find(e.Exe); ok {
		w.raise(ref, Run, "run as a program", ev)
	}
	if ref, ok := w.find(e.Script); ok && e.Script != "" {
		w.raise(ref, Run, "run by "+path.Base(e.Exe), ev)
	}
	bare := false
	if bodycam.IsShell(e.Exe) || interpreters[Program(e.Exe)] {
		op, isPath := operand(e.Exe, e.Argv)
		if isPath {
			if ref, ok := w.find(absolute(op, e.CWD)); ok {
				w.raise(ref, Run, "run by "+path.Base(e.Exe), ev)
			}
		}
		bare = op == "-"
	}
	// What the process opened while it was a shell is now the new program's standard input.
	for ref, p := range w.pending[e.Proc] {
		if bare && w.use[ref.skill].Files[ref.file].Script {
			w.raise(ref, Run, "fed to "+path.Base(e.Exe), ev)
		} else if searchers[Program(e.Exe)] {
			w.raise(ref, Scanned, "read by "+path.Base(e.Exe), *p.event)
		} else {
			w.raise(ref, FileRead, "read by "+path.Base(e.Exe), *p.event)
		}
	}
	delete(w.pending, e.Proc)
	if bare && len(w.bare) < mostPipes {
		w.bare = append(w.bare, pipeEnd{parent: e.Parent, proc: e.Proc, boot: e.Boot, exe: e.Exe, ev: ev})
	}
}

const mostPipes = 10_000

func (w *skillWatch) open(e *bodycam.Event, x *Extractor) {
	if e.Failed() {
		return
	}
	ev := w.event(e, x)
	if e.Access&bodycam.Dir != 0 {
		for _, ref := range w.dirs[e.Path] {
			w.raise(ref, InListing, "listed by "+path.Base(e.Exe), ev)
		}
		return
	}
	ref, ok := w.find(e.Path)
	if !ok || e.Access&bodycam.PathRef != 0 || e.Access&bodycam.Read == 0 {
		return
	}
	f := &w.use[ref.skill].Files[ref.file]
	prog := path.Base(e.Exe)
	switch {
	case searchers[Program(e.Exe)]:
		w.raise(ref, Scanned, "read by "+prog, ev)
	case f.Script && runs(e.Exe, f.Path) && bodycam.IsShell(e.Exe):
		script, _ := bodycam.ShellScript(e.Argv)
		if w.pending[e.Proc] == nil {
			if len(w.pending) >= mostPipes { // too many to tell a sourced script from one that is only read
				w.raise(ref, FileRead, "read by "+prog, ev)
				return
			}
			w.pending[e.Proc] = map[fileRef]pendingOpen{}
		}
		w.pending[e.Proc][ref] = pendingOpen{event: &ev, path: e.Path, text: script, how: prog}
	case f.Script && runs(e.Exe, f.Path):
		w.raise(ref, Run, "loaded by "+prog, ev)
	case bodycam.IsShell(e.Exe) && w.front[ref.skill][ref.file] == 0:
		// The shell opened it for a program that it is about to become, or reads it itself.
		w.raise(ref, FileRead, "read by "+prog, ev)
	case w.front[ref.skill][ref.file] > 0:
		// Its close tells whether more than the head was read.
		w.raise(ref, InListing, "opened by "+prog, ev)
	default:
		w.raise(ref, FileRead, "read by "+prog, ev)
	}
	if f.Script && len(w.readers) < mostPipes {
		w.readers = append(w.readers, pipeEnd{parent: e.Parent, proc: e.Proc, boot: e.Boot, ref: ref, exe: e.Exe, ev: ev})
	}
}

func (w *skillWatch) close(e *bodycam.Event, x *Extractor) {
	ref, ok := w.find(e.Path)
	if !ok {
		return
	}
	head := w.front[ref.skill][ref.file]
	if head > 0 && (e.BytesRead > uint64(head) || e.Mapped) && !searchers[Program(e.Exe)] {
		w.raise(ref, FileRead, "read by "+path.Base(e.Exe), w.event(e, x))
	}
}

// together is how far apart the members of a pipeline start, in nanoseconds.
const together = 2e9

func (w *skillWatch) finish(x *Extractor) []SkillUse {
	for _, opens := range w.pending {
		for ref, p := range opens {
			name := regexp.QuoteMeta(path.Base(p.path))
			fed, err := regexp.MatchString(`<\s*["']?[^\s<>|;&]*`+name, p.text)
			if err == nil && fed {
				w.raise(ref, FileRead, "read by "+p.how, *p.event)
			} else {
				w.raise(ref, Run, "sourced by "+p.how, *p.event)
			}
		}
	}
	siblings := map[bodycam.Proc][]pipeEnd{}
	for _, b := range w.bare {
		if len(siblings[b.parent]) < 64 {
			siblings[b.parent] = append(siblings[b.parent], b)
		}
	}
	for _, r := range w.readers {
		for _, b := range siblings[r.parent] {
			apart := max(r.boot, b.boot) - min(r.boot, b.boot)
			if b.proc != r.proc && apart < together && runs(b.exe, w.use[r.ref.skill].Files[r.ref.file].Path) {
				w.raise(r.ref, Run, "piped into "+path.Base(b.exe), b.ev)
			}
		}
	}
	w.named(x)
	return w.use
}

// named finds rows of a harness's own skill tool: the harness reads the file, and the row says for whom.
func (w *skillWatch) named(x *Extractor) {
	for i := range x.rows {
		r := &x.rows[i]
		if r.Kind != bodycam.RowTool || r.Command != "" || r.Failed || !strings.Contains(strings.ToLower(r.Tool), "skill") {
			continue
		}
		for s := range w.use {
			if !strings.Contains(r.Args, `"`+w.use[s].Name+`"`) {
				continue
			}
			for f := range w.use[s].Files {
				if file := &w.use[s].Files[f]; file.Path == "SKILL.md" && file.ByHarness {
					w.raise(fileRef{s, f}, FileRead, "given by the harness's tool "+r.Tool,
						useEvent{origin: byRow, cause: Cause{Row: r.Index, Method: bodycam.LinkTime, Confidence: 0.7}})
				}
			}
		}
	}
}

// IsScript tells whether a file of a skill is one that is run rather than read.
func IsScript(f PlanFile) bool { return isScript(f) }
