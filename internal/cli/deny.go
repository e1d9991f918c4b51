package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/guard"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/rules"
)

// Two refuse. The recorder's proxy, to which the kernel leads every connection of a sandbox, so that what it refuses goes
// nowhere; it sees connections and names, not the processes behind them. And the kernel, which asks the recorder before
// it opens a file or executes a program, while the thread waits in its call; of that call is known what nobody can change
// meanwhile.

// callFields are of any call.
var callFields = []string{"body.type", "evt.type", "syscall.type", "evt.category", "evt.source", "evt.dir", "evt.is_async", "evt.failed", "evt.res", "evt.rawres", "evt.arg.res",
	"evt.rawarg.res", "evt.count", "evt.count.error", "evt.count.exit", "body.errno", "body.count", "explained.cleared", "explained.by"}

var (
	hostTypes  = []string{"connect", "send", "dns", "tls", "http", "flow"}
	hostFields = append([]string{"host.name", "host.source", "host.named", "host.local", "fd.sip", "fd.sip.name", "fd.rip", "fd.rport", "fd.rnet",
		"fd.sport", "fd.snet", "fd.sproto", "fd.rproto", "fd.l4proto", "fd.typechar", "fd.type", "fd.connected"}, callFields...)

	fileTypes  = []string{"open", "exec"}
	fileFields = append([]string{"body.path", "body.path_canonical", "body.names", "body.access", "body.marks", "evt.is_open_read", "evt.is_open_write", "evt.is_open_create",
		"fd.name", "fd.directory", "fd.filename", "fd.type", "fd.typechar", "fs.path.name", "evt.arg.name", "evt.arg.filename", "proc.exepath",
		"user.uid", "user.name", "group.gid", "group.name"}, callFields...)
)

// whyNot says of families of fields why they aren't known while a call waits.
var whyNot = []struct {
	why    string
	fields []string // with a * at the end: all that begin so
}{
	{"a process can change its own name, arguments and environment; proc.exepath is known", []string{"proc.name", "proc.cmd*", "proc.args", "proc.argv", "proc.exe", "proc.exeline", "proc.env", "proc.cwd"}},
	{"it comes from what the run did before, which the recorder may not have read yet", []string{"proc.*", "target.*", "body.file_made", "body.file_written", "body.file_writer", "body.window"}},
	{"the agent's account of a call comes apart from the call", []string{"row.*", "sequence.*"}},
	{"the name as given lies in the process's own memory, where it can be changed meanwhile; body.path is known", []string{"*_given", "*nameraw", "evt.rawarg.*", "evt.abspath", "evt.args", "evt.info"}},
	{"all flags aren't known of every call; body.access and evt.is_open_read, _write and _create are", []string{"body.flags", "evt.arg.flags"}},
}

// keeper tells which rules of mode deny can be kept in a run.
type keeper struct {
	files func() error // why files and programs can't be refused, nil where they can; asked only where a rule would
}

// keeps says what can be kept under a sandbox's filter, "" for the default.
func keeps(filter string) keeper {
	return keeper{func() error {
		if err := guard.Available(); err != nil {
			return err
		}
		if filter != "" && filter != string(sandbox.SeccompStrict) {
			return fmt.Errorf("under the filter %q the agent may make mounts, by which files are opened unasked; \"strict\" doesn't let it", filter)
		}
		return nil
	}}
}

// can tells whether a rule can be kept by refusing: one about hosts by what the proxy knows of a connection before it is
// passed on, one about files or programs by what is known of the call that waits in the kernel.
func (k keeper) can(r rules.Rule) error {
	if len(typesOf(r)) == 0 {
		return errors.New("the sandbox refuses such calls itself")
	}
	hosts, files := true, true
	for _, t := range typesOf(r) {
		hosts = hosts && slices.Contains(hostTypes, t)
		files = files && slices.Contains(fileTypes, t)
	}
	switch {
	case hosts:
		return known(r, hostFields, func(f string) error {
			return fmt.Errorf("of a contact the recorder's proxy doesn't know %s", f)
		})
	case !files:
		return fmt.Errorf("what can be refused are contacts of hosts, and opens of files and executions, each by a rule of its own (body.type = open, body.type = exec), and this one is about %s: the kernel asks nobody before the others", r.Events)
	}
	if err := k.files(); err != nil {
		return fmt.Errorf("opens and executions can't be refused here: %w", err)
	}
	if slices.Contains(typesOf(r), "exec") && slices.ContainsFunc(r.Fields, func(f string) bool { return strings.HasPrefix(f, "explained.") }) {
		return errors.New("what explains an execution depends on its arguments, and a process can change those while it waits (explained.cleared is known of body.type = open)")
	}
	return known(r, fileFields, func(f string) error {
		return fmt.Errorf("%s isn't known for sure while the call waits: %s", f, reason(f))
	})
}

// typesOf are the event types that a rule is about. What the sandbox refuses anyway (denied) needs no further refusal.
func typesOf(r rules.Rule) []string {
	types := strings.Split(r.Events, ", ")
	return slices.DeleteFunc(types, func(t string) bool { return t == bodycam.TypeDenied.String() })
}

func known(r rules.Rule, fields []string, no func(string) error) error {
	for _, f := range r.Fields {
		if !slices.Contains(fields, f) && !constant(f) {
			return no(f)
		}
	}
	return nil
}

// constant tells whether a field is the same for a whole run.
func constant(name string) bool {
	for _, f := range rules.Fields() {
		if f.Name == name {
			return f.Const
		}
	}
	return false
}

func reason(field string) string {
	for _, w := range whyNot {
		for _, f := range w.fields {
			if bodycam.Glob(f, field) {
				return w.why
			}
		}
	}
	return "it isn't among what the kernel tells of the call"
}

// denial refuses what rules of mode deny find, from when the agent starts: what is set up before is not its doing.
type denial struct {
	mu    sync.Mutex
	hosts *security.Analyser // nil: nothing is refused yet

	exe, user bool // rules about files ask for the process's program, for its user
	asking    sync.Mutex
	files     *security.Analyser
	known     map[file]string // names that files had when they were looked for, with a NUL between them
}

// begin takes the rules that refuse. Others have no part in it: calls wait.
func (d *denial) begin(o security.Options, further []rules.Source) error {
	var off strings.Builder
	for _, r := range o.Rules.List() {
		if r.Mode == rules.ModeDeny {
			continue
		}
		name, err := json.Marshal(r.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&off, "- rule: %s\n  enabled: false\n  override: {enabled: replace}\n", name)
	}
	d.exe, d.user = needs(o.Rules)
	set, err := security.Load(o.Policy, offline, append(slices.Clone(further), rules.Source{Name: "rules of other modes", Data: []byte(off.String())})...)
	if err != nil {
		return err
	}
	o.Rules = set
	if d.files, err = security.New(o); err != nil {
		return err
	}
	hosts, err := security.New(o)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = hosts
	return nil
}

// refuse is asked by the proxy, before anything is passed on.
func (d *denial) refuse(e *bodycam.Event) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hosts == nil {
		return ""
	}
	if r := d.hosts.Denies(e); r != "" {
		return "refused by rule " + r
	}
	return ""
}

// file is a file as stat tells it.
type file struct{ dev, ino uint64 }

// mostKnown bounds the files whose names are kept.
const mostKnown = 4 << 20

// named takes in which file a name is of.
func (d *denial) named(dev, ino uint64, path string) error {
	d.asking.Lock()
	defer d.asking.Unlock()
	if d.known == nil {
		d.known = map[file]string{}
	}
	if len(d.known) >= mostKnown {
		return errors.New("rules of mode deny are about more files than can be told apart by what they are: let the sandbox write to fewer, or the rules not ask for programs and users")
	}
	f := file{dev, ino}
	if names, ok := d.known[f]; ok {
		if slices.Contains(strings.Split(names, "\x00"), path) {
			return nil
		}
		path = names + "\x00" + path
	}
	d.known[f] = path
	return nil
}

// refuseFile is asked by the guard, while the call waits.
func (d *denial) refuseFile(e *bodycam.Event) string {
	d.asking.Lock()
	defer d.asking.Unlock()
	f := file{e.Dev, e.Ino}
	if names, ok := d.known[f]; ok && names != e.Path { // it has other names, or had: the rules must hear of them
		for n := range strings.SplitSeq(names, "\x00") {
			d.files.Name(f.dev, f.ino, n)
		}
		delete(d.known, f)
		if d.files.Dropped() > 0 {
			return "of mode deny: more renamed files than can be told apart"
		}
	}
	return d.files.Denies(e)
}

// wants tells whether a file must be known by what it is. Where the rules go by its name and the call alone that is
// worked out, else it is so of any. An image's file is worth copying where a program that no rule speaks of is refused.
func (d *denial) wants(path string) (known, copied bool) {
	d.asking.Lock()
	defer d.asking.Unlock()
	copied = d.about(path, "") != ""
	return copied || d.exe || d.user, copied
}

// about is a rule of mode deny that refuses some way of opening or executing a file, "" where none does.
func (d *denial) about(path, exe string) string {
	e := bodycam.Event{Proc: bodycam.Proc{PID: 1}, NR: -1, Path: path, Exe: exe}
	for _, how := range []bodycam.Access{0, bodycam.Read, bodycam.Read | bodycam.Create, bodycam.Read | bodycam.Trunc, bodycam.Trunc, bodycam.Write, bodycam.Read | bodycam.Write, bodycam.Write | bodycam.Create, bodycam.Write | bodycam.Create | bodycam.Trunc,
		bodycam.Write | bodycam.Append, bodycam.Write | bodycam.Create | bodycam.Append, bodycam.Write | bodycam.Trunc, bodycam.Read | bodycam.Dir} {
		e.Type, e.Access = bodycam.TypeOpen, how
		if r := d.files.Denies(&e); r != "" {
			return r
		}
	}
	e.Type, e.Access, e.Exe = bodycam.TypeExec, bodycam.Exec, path
	return d.files.Denies(&e)
}

// unasked are files that nobody is asked about before they are opened.
var unasked = []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/cmdline", "/proc/12/task/12/environ", "/proc/self/environ", "/proc/self/mem", "/proc/sys/kernel/core_pattern",
	"/proc/cpuinfo", "/proc/net/tcp", "/dev/null", "/dev/tty", "/dev/urandom", "/dev/pts/0"}

// reach refuses rules that are about files which nobody is asked about.
func (d *denial) reach() error {
	for _, p := range unasked {
		for _, exe := range []string{"", "/usr/bin/cat"} {
			if r := d.about(p, exe); r != "" {
				return fmt.Errorf("rule %q: mode deny can't be kept: it is about %s too, and before such a file is opened the kernel asks nobody (nor about anything in /proc, devices, terminals and memory files): add \"and not body.path pmatch (/proc, /dev)\", or mode: stop would kill the run instead", r, p)
			}
		}
	}
	return nil
}

// denies tells whether rules of mode deny are about hosts, and whether they are about files or programs.
func denies(set *rules.Set) (hosts, files bool) {
	for _, r := range set.List() {
		if r.Enabled && r.Mode == rules.ModeDeny {
			about := slices.Contains(hostTypes, typesOf(r)[0])
			hosts, files = hosts || about, files || !about
		}
	}
	return hosts, files
}

// needs tells what rules of mode deny ask of the process.
func needs(set *rules.Set) (exe, user bool) {
	for _, r := range set.List() {
		if r.Enabled && r.Mode == rules.ModeDeny {
			exe = exe || slices.Contains(r.Fields, "proc.exepath")
			user = user || slices.ContainsFunc(r.Fields, func(f string) bool { return strings.HasPrefix(f, "user.") || strings.HasPrefix(f, "group.") })
		}
	}
	return exe, user
}

func hasMode(set *rules.Set, m rules.Mode) bool {
	return slices.ContainsFunc(set.List(), func(r rules.Rule) bool { return r.Enabled && r.Mode == m })
}

// liveRules loads a plan's rules as a run needs them: a rule that can't be kept here is an error.
func liveRules(y security.Policy, p *kind.Plan) (*rules.Set, []rules.Source, error) {
	further, err := kindRules(p)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	set, err := security.Load(y, rules.Options{CanDeny: keeps(p.Seccomp).can}, further...)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	return set, further, reachable(set, y, further)
}

// reachable is an error where a rule of mode deny is about files that can't be refused.
func reachable(set *rules.Set, y security.Policy, further []rules.Source) error {
	if _, files := denies(set); !files {
		return nil
	}
	var d denial
	if err := d.begin(security.Options{Policy: y, Rules: set}, further); err != nil {
		return err
	}
	if err := d.reach(); err != nil {
		return usage("%w", err)
	}
	return nil
}

// guardCheckup tries whether files and programs can be refused.
func guardCheckup() checkup {
	c := checkup{Group: "rules of mode deny", Name: "files and programs", OK: true, Why: "fanotify permission events: the kernel asks before it opens or executes"}
	if err := guard.Available(); err != nil {
		c.OK, c.Why = false, err.Error()+"; hosts can be refused all the same, and mode stop works"
	}
	if os.Geteuid() != 0 {
		c.Why = "needs root; hosts can be refused all the same"
	}
	return c
}
