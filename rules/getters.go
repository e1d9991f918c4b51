package rules

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
)

// Getters take a field's value from the machine. The second result is false where the event has no such value:
// then every comparison is false and `exists` is false.
type (
	strGetter  func(*machine) (string, bool)
	intGetter  func(*machine) (int64, bool)
	listGetter func(*machine, int) (string, bool) // element i; false past the end
	addrGetter func(*machine, int) (netip.AddrPort, bool)
)

func some(s string) (string, bool)     { return s, s != "" }
func yes(n int64) (int64, bool)        { return n, true }
func truth(b bool) (int64, bool)       { return b2i(b), true }
func is(v bool, ok bool) (int64, bool) { return b2i(v), ok }

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (m *machine) timeText(layout string) (string, bool) {
	start := len(m.arena)
	m.arena = time.Unix(0, m.ev.Time).UTC().AppendFormat(m.arena, layout)
	return some(m.keep(start))
}

// rawres is the call's result as far as it is known: the error, or "not negative", for which 0 stands.
func rawres(m *machine) (int64, bool) { return -int64(m.ev.Errno), true }

func failing(m *machine) (int64, bool) {
	if m.ev.Errno != 0 {
		return -1, true
	}
	return 0, true
}

func given(m *machine) (string, bool) {
	if m.ev.PathGiven != "" {
		return m.ev.PathGiven, true
	}
	return some(m.ev.Path)
}

func given2(m *machine) (string, bool) {
	if m.ev.Path2Given != "" {
		return m.ev.Path2Given, true
	}
	return some(m.ev.Path2)
}

func exeline(m *machine) (string, bool) {
	m.proc.make()
	start := len(m.arena)
	m.arena = append(m.arena, m.proc.argv0()...)
	if m.proc.args != "" {
		m.arena = append(m.arena, ' ')
		m.arena = append(m.arena, m.proc.args...)
	}
	return some(m.keep(start))
}

func first(list []string) (string, bool) {
	if len(list) == 0 {
		return "", false
	}
	return list[0], true
}

func canonical(m *machine) (string, bool) { return first(m.object()) }

func target(m *machine) *Process {
	if m.ev.Child == (bodycam.Proc{}) {
		return nil
	}
	return m.ctx.Process(m.ev.Child)
}

var strGetters = map[string]strGetter{
	"evt.time":         func(m *machine) (string, bool) { return m.timeText("15:04:05.000000000") },
	"evt.time.s":       func(m *machine) (string, bool) { return m.timeText("15:04:05") },
	"evt.time.iso8601": func(m *machine) (string, bool) { return m.timeText("2006-01-02T15:04:05.000000000-0700") },
	"evt.datetime":     func(m *machine) (string, bool) { return m.timeText("2006-01-02 15:04:05.000000000") },
	"evt.datetime.s":   func(m *machine) (string, bool) { return m.timeText("2006-01-02 15:04:05") },
	"evt.type":         func(m *machine) (string, bool) { return some(linux().calls[m.call].name) },
	"syscall.type":     func(m *machine) (string, bool) { return some(linux().calls[m.call].name) },
	"evt.dir":          func(*machine) (string, bool) { return "<", true },
	"evt.source":       func(*machine) (string, bool) { return "syscall", true },
	"evt.res": func(m *machine) (string, bool) {
		if m.ev.Errno == 0 {
			return "SUCCESS", true
		}
		if n, ok := linux().errno[m.ev.Errno]; ok {
			return n, true
		}
		return m.itoa(-int64(m.ev.Errno)), true
	},
	"evt.category": func(m *machine) (string, bool) {
		switch t := m.ev.Type; {
		case fileTypes.has(t):
			return "file", true
		case netTypes.has(t) || t == bodycam.TypeDNS || t == bodycam.TypeTLS || t == bodycam.TypeHTTP:
			return "net", true
		case t == bodycam.TypeFork || t == bodycam.TypeExec || t == bodycam.TypeExit || t == bodycam.TypeSignal || t == bodycam.TypePtrace:
			return "process", true
		}
		return "other", true
	},
	"evt.args":           (*machine).arguments,
	"evt.info":           (*machine).arguments,
	"evt.abspath":        func(m *machine) (string, bool) { g, _ := given(m); return some(m.absolute(g)) },
	"evt.rawarg.name":    given,
	"evt.rawarg.path":    given,
	"evt.rawarg.dev":     given2,
	"evt.rawarg.oldpath": given, "evt.rawarg.pathname": given, "evt.rawarg.filename": given,
	"evt.rawarg.newpath": given2, "evt.rawarg.linkpath": given2, "evt.rawarg.dir": given,
	"evt.arg.target": given, "evt.rawarg.target": given,
	"evt.arg.flags": flagsText, "evt.rawarg.flags": flagsText,
	"evt.arg.mode": modeText, "evt.rawarg.mode": modeText,
	"evt.arg.request": requestText, "evt.rawarg.request": requestText,
	"evt.arg.sig": signalText, "evt.rawarg.sig": signalText,
	"evt.arg.addr": addrText, "evt.rawarg.addr": addrText,
	"evt.arg.tuple":    func(m *machine) (string, bool) { return some(m.ends()) },
	"evt.rawarg.tuple": func(m *machine) (string, bool) { return some(m.ends()) },

	"proc.name":        func(m *machine) (string, bool) { return some(m.proc.Name) },
	"proc.exe":         func(m *machine) (string, bool) { return some(m.proc.argv0()) },
	"proc.exepath":     func(m *machine) (string, bool) { return some(m.proc.Exe) },
	"proc.script":      func(m *machine) (string, bool) { return some(m.proc.script()) },
	"proc.cmdline":     func(m *machine) (string, bool) { return some(m.proc.Cmdline()) },
	"proc.exeline":     exeline,
	"proc.args":        func(m *machine) (string, bool) { m.proc.make(); return m.proc.args, len(m.proc.Argv) > 0 },
	"proc.cwd":         func(m *machine) (string, bool) { return some(firstOf(m.ev.CWD, m.proc.CWD)) },
	"proc.sname":       func(m *machine) (string, bool) { return some(m.leader().Name) },
	"proc.sid.exe":     func(m *machine) (string, bool) { return some(m.leader().argv0()) },
	"proc.sid.exepath": func(m *machine) (string, bool) { return some(m.leader().Exe) },
	"proc.pname":       func(m *machine) (string, bool) { return procName(m.proc.Parent) },
	"proc.pexe":        func(m *machine) (string, bool) { return procArgv0(m.proc.Parent) },
	"proc.pexepath":    func(m *machine) (string, bool) { return procExe(m.proc.Parent) },
	"proc.pcmdline":    func(m *machine) (string, bool) { return procCmdline(m.proc.Parent) },

	"user.name":  func(m *machine) (string, bool) { return idName(m.ctx.Sandbox().Users, m.ev.UID) },
	"group.name": func(m *machine) (string, bool) { return idName(m.ctx.Sandbox().Groups, m.ev.GID) },

	"fd.type":       fdType,
	"fd.typechar":   func(m *machine) (string, bool) { t, ok := fdType(m); return typeChars[t], ok },
	"fd.nameraw":    given,
	"fd.l4proto":    l4proto,
	"fd.sip.name":   func(m *machine) (string, bool) { return some(m.namedHost()) },
	"fd.rip.name":   func(m *machine) (string, bool) { return some(m.namedHost()) },
	"fd.sockfamily": sockFamily,

	"fs.path.nameraw":   worked(given),
	"fs.path.sourceraw": worked(rawSource),
	"fs.path.targetraw": worked(rawTarget),

	"body.type":           func(m *machine) (string, bool) { return m.ev.Type.String(), true },
	"body.path_canonical": canonical,
	"body.path_given":     func(m *machine) (string, bool) { return some(m.ev.PathGiven) },
	"body.path2_given":    func(m *machine) (string, bool) { return some(m.ev.Path2Given) },
	"body.dev_ino":        devIno,
	"body.window":         func(m *machine) (string, bool) { return some(m.ev.Window.String()) },
	"body.sensor":         func(m *machine) (string, bool) { return some(m.ev.Sensor) },
	"body.abi":            func(m *machine) (string, bool) { return some(m.ev.ABI.String()) },
	"body.detail":         func(m *machine) (string, bool) { return some(m.ev.Detail) },
	"body.unix_addr":      func(m *machine) (string, bool) { return some(m.ev.UnixAddr) },
	"host.name":           func(m *machine) (string, bool) { return some(m.hostName()) },
	"host.source":         hostSource,
	"proc.exe_writer":     func(m *machine) (string, bool) { return some(m.proc.Writer) },
	"body.file_writer": func(m *machine) (string, bool) {
		if f := m.fileInfo(); f != nil {
			return some(f.Writer)
		}
		return "", false
	},
	"target.exepath": func(m *machine) (string, bool) { return procExe(target(m)) },

	"row.tool":    rowText(func(r *bodycam.Row) string { return r.Tool }),
	"row.kind":    rowText(func(r *bodycam.Row) string { return string(r.Kind) }),
	"row.command": rowText(func(r *bodycam.Row) string { return r.Command }),
	"row.args":    rowText(func(r *bodycam.Row) string { return r.Args }),
	"row.text":    rowText(func(r *bodycam.Row) string { return r.Text }),
}

var intGetters = map[string]intGetter{
	"evt.num":             func(m *machine) (int64, bool) { return yes(int64(m.ev.Seq)) },
	"body.seq":            func(m *machine) (int64, bool) { return yes(int64(m.ev.Seq)) },
	"evt.rawtime":         func(m *machine) (int64, bool) { return yes(m.ev.Time) },
	"evt.rawtime.s":       func(m *machine) (int64, bool) { return yes(m.ev.Time / 1e9) },
	"evt.rawtime.ns":      func(m *machine) (int64, bool) { return yes(m.ev.Time % 1e9) },
	"evt.is_async":        func(*machine) (int64, bool) { return 0, true },
	"evt.rawres":          rawres,
	"evt.arg.res":         rawres,
	"evt.rawarg.res":      rawres,
	"evt.arg.fd":          failing,
	"evt.rawarg.fd":       failing,
	"fd.num":              failing,
	"evt.failed":          func(m *machine) (int64, bool) { return truth(m.ev.Failed()) },
	"evt.count":           func(*machine) (int64, bool) { return 1, true },
	"evt.count.error":     func(m *machine) (int64, bool) { return truth(m.ev.Failed()) },
	"evt.count.exit":      func(*machine) (int64, bool) { return 1, true },
	"evt.is_open_read":    func(m *machine) (int64, bool) { return truth(m.ev.Access&bodycam.Read != 0) },
	"evt.is_open_write":   func(m *machine) (int64, bool) { return truth(m.ev.Access.Writes()) },
	"evt.is_open_create":  func(m *machine) (int64, bool) { return truth(m.ev.Access&bodycam.Create != 0) },
	"evt.is_io":           func(m *machine) (int64, bool) { return truth(m.ev.Bytes|m.ev.BytesRead|m.ev.BytesWritten != 0) },
	"evt.arg.pid":         func(m *machine) (int64, bool) { return int64(m.ev.Child.PID), true },
	"evt.rawarg.pid":      func(m *machine) (int64, bool) { return int64(m.ev.Child.PID), true },
	"proc.cmdnargs":       func(m *machine) (int64, bool) { n := len(m.proc.Argv); return int64(max(n-1, 0)), n > 0 },
	"proc.cmdlenargs":     argsLen,
	"proc.pid":            func(m *machine) (int64, bool) { return yes(int64(m.ev.Proc.PID)) },
	"thread.tgid":         func(m *machine) (int64, bool) { return yes(int64(m.ev.Proc.PID)) },
	"thread.tid":          func(m *machine) (int64, bool) { return int64(m.ev.TID), m.ev.TID != 0 },
	"thread.ismain":       func(m *machine) (int64, bool) { return is(m.ev.TID == m.ev.Proc.PID, m.ev.TID != 0) },
	"proc.ppid":           parentPID,
	"proc.sid":            func(m *machine) (int64, bool) { s := m.sid(); return int64(s), s != 0 },
	"proc.is_sid_leader":  func(m *machine) (int64, bool) { s := m.sid(); return is(s == m.ev.Proc.PID, s != 0) },
	"proc.loginshellid":   loginShell,
	"proc.duration":       func(m *machine) (int64, bool) { return age(m, m.proc) },
	"proc.ppid.duration":  func(m *machine) (int64, bool) { return age(m, m.proc.Parent) },
	"proc.pid.ts":         func(m *machine) (int64, bool) { return began(m, m.proc) },
	"proc.ppid.ts":        func(m *machine) (int64, bool) { return began(m, m.proc.Parent) },
	"proc.exe_ino":        func(m *machine) (int64, bool) { return int64(m.proc.Ino), m.proc.Ino != 0 },
	"proc.is_harness":     func(m *machine) (int64, bool) { return truth(m.proc.Harness) },
	"proc.exe_written":    func(m *machine) (int64, bool) { return truth(m.proc.Written) },
	"proc.script_written": func(m *machine) (int64, bool) { return truth(m.proc.ScriptWritten) },
	"proc.is_exe_from_memfd": func(m *machine) (int64, bool) {
		return truth(m.proc.Memfd)
	},
	"proc.tree_size":  func(m *machine) (int64, bool) { return yes(int64(m.proc.Root().alive)) },
	"user.uid":        func(m *machine) (int64, bool) { return yes(int64(m.ev.UID)) },
	"proc.uid_before": func(m *machine) (int64, bool) { return int64(m.proc.uidBefore), m.proc.events > 1 },
	"group.gid":       func(m *machine) (int64, bool) { return yes(int64(m.ev.GID)) },
	"fd.is_server":    func(m *machine) (int64, bool) { return truth(m.isServer()) },
	"fd.connected":    func(m *machine) (int64, bool) { return truth(connected(m.ev)) },
	"fd.name_changed": func(m *machine) (int64, bool) { return truth(nameChanged(m.ev)) },
	"fd.dev.major":    func(m *machine) (int64, bool) { return int64(m.ev.Dev >> 32), m.ev.Ino != 0 },
	"fd.dev.minor":    func(m *machine) (int64, bool) { return int64(uint32(m.ev.Dev)), m.ev.Ino != 0 },
	"fd.ino":          func(m *machine) (int64, bool) { return int64(m.ev.Ino), m.ev.Ino != 0 },
	"body.dev":        func(m *machine) (int64, bool) { return int64(m.ev.Dev), m.ev.Ino != 0 },
	"body.ino":        func(m *machine) (int64, bool) { return int64(m.ev.Ino), m.ev.Ino != 0 },
	"body.file_written": func(m *machine) (int64, bool) {
		if f := m.fileInfo(); f != nil && f.Written {
			return truth(f.first == 0 || f.first != m.ev.Seq) // before this call, that is
		}
		l := m.object()
		if len(l) == 0 && m.ev.UnixAddr != "" {
			return truth(m.ctx.Wrote(m.ev.UnixAddr))
		}
		return truth(len(l) > 0 && m.ctx.Wrote(l[0]))
	},
	"body.file_made": func(m *machine) (int64, bool) {
		if f := m.fileInfo(); f != nil && f.Made {
			return truth(f.firstMade == 0 || f.firstMade != m.ev.Seq)
		}
		l := m.object()
		if len(l) == 0 && m.ev.UnixAddr != "" {
			return truth(m.ctx.Made(m.ev.UnixAddr))
		}
		return truth(len(l) > 0 && m.ctx.Made(l[0]))
	},
	"body.errno":      func(m *machine) (int64, bool) { return yes(int64(m.ev.Errno)) },
	"body.count":      func(m *machine) (int64, bool) { return yes(int64(m.ev.N())) },
	"body.bytes":      func(m *machine) (int64, bool) { return yes(int64(m.ev.Bytes)) },
	"body.bytes_read": func(m *machine) (int64, bool) { return yes(int64(m.ev.BytesRead)) },
	"body.bytes_written": func(m *machine) (int64, bool) {
		return yes(int64(m.ev.BytesWritten))
	},
	"body.mapped":       func(m *machine) (int64, bool) { return truth(m.ev.Mapped || m.ev.Type == bodycam.TypeMmap) },
	"body.syscall_nr":   func(m *machine) (int64, bool) { return int64(m.ev.NR), m.ev.NR >= 0 && m.ev.ABI != 0 },
	"body.flags":        func(m *machine) (int64, bool) { return yes(int64(m.ev.Flags)) },
	"body.signal":       func(m *machine) (int64, bool) { return yes(int64(m.ev.Signal)) },
	"body.status":       func(m *machine) (int64, bool) { return yes(int64(m.ev.Status)) },
	"host.named":        func(m *machine) (int64, bool) { return truth(m.namedHost() != "") },
	"host.local":        hostLocal,
	"target.pid":        func(m *machine) (int64, bool) { return int64(m.ev.Child.PID), m.ev.Child.PID != 0 },
	"target.is_known":   func(m *machine) (int64, bool) { return truth(target(m) != nil) },
	"target.is_harness": func(m *machine) (int64, bool) { p := target(m); return truth(p != nil && p.Harness) },
	"row.index":         func(m *machine) (int64, bool) { return rowIndex(m) },
	"row.known":         func(m *machine) (int64, bool) { return truth(m.transcriptRow() != nil) },
	"explained.cleared": func(m *machine) (int64, bool) { return truth(m.explanation().Cleared()) },
}

var listGetters = map[string]listGetter{
	"proc.argv": func(m *machine, i int) (string, bool) { return element(m.proc.Argv, i) },
	"proc.tree_commands": func(m *machine, i int) (string, bool) {
		p := m.ancestor(i)
		if p == nil {
			return "", false
		}
		if p.Written || p.ScriptWritten {
			return "", true
		}
		return p.Cmdline(), true
	},
	"proc.tree":   func(m *machine, i int) (string, bool) { return procExe(m.ancestor(i)) },
	"body.names":  func(m *machine, i int) (string, bool) { return element(m.object(), i) },
	"body.access": func(m *machine, i int) (string, bool) { return bit(accessNames, uint64(m.ev.Access), i) },
	"body.marks":  func(m *machine, i int) (string, bool) { return bit(markNames, uint64(m.ev.Marks), i) },
	"explained.by": func(m *machine, i int) (string, bool) {
		return bit(explanationNames, uint64(m.explanation()), i)
	},
}

// ancestorGetters take a value of one process, for the fields whose argument counts ancestors.
var ancestorGetters = map[string]func(*Process) (string, bool){
	"proc.aname": procName, "proc.aexe": procArgv0, "proc.aexepath": procExe, "proc.acmdline": procCmdline,
	"proc.aargs": func(p *Process) (string, bool) {
		if p == nil {
			return "", false
		}
		p.make()
		return p.args, len(p.Argv) > 0
	},
}

// pathGetters give the names of a file: the canonical one first.
var pathGetters = map[string]func(*machine) []string{
	"evt.arg.name": (*machine).object, "evt.arg.path": (*machine).object, "evt.arg.pathname": (*machine).object,
	"evt.arg.filename": (*machine).object, "evt.arg.oldpath": (*machine).object, "evt.arg.dir": (*machine).object,
	"evt.arg.newpath": (*machine).object2, "evt.arg.linkpath": (*machine).object2, "evt.arg.dev": (*machine).object2,
	"fd.name": (*machine).object, "fd.directory": (*machine).object, "fd.filename": (*machine).object,
	"fs.path.name":   workedList((*machine).object),
	"fs.path.source": workedList(sourceNames),
	"fs.path.target": workedList(targetNames),
	"body.path":      (*machine).object, "body.path2": (*machine).object2,
}

// ends that the address and port fields look at.
var addrGetters = map[string]addrGetter{
	"": func(m *machine, i int) (netip.AddrPort, bool) {
		switch i {
		case 0:
			if m.ev.Local.IsValid() {
				return m.ev.Local, true
			}
			return m.ev.Remote, m.ev.Remote.IsValid()
		case 1:
			return m.ev.Remote, m.ev.Remote.IsValid() && m.ev.Local.IsValid()
		}
		return netip.AddrPort{}, false
	},
	"c": func(m *machine, i int) (netip.AddrPort, bool) { a := m.client(); return a, i == 0 && a.IsValid() },
	"s": func(m *machine, i int) (netip.AddrPort, bool) { a := m.server(); return a, i == 0 && a.IsValid() },
	"l": func(m *machine, i int) (netip.AddrPort, bool) { return m.ev.Local, i == 0 && m.ev.Local.IsValid() },
	"r": func(m *machine, i int) (netip.AddrPort, bool) { return m.ev.Remote, i == 0 && m.ev.Remote.IsValid() },
}

var (
	fileTypes = parseTypes("@file")
	netTypes  = parseTypes("@net")

	accessNames = strings.Split(bodycam.Access(1<<9-1).String(), ",")
	markNames   = bodycam.Mark(1<<32 - 1).Names()
)

func element(list []string, i int) (string, bool) {
	if i >= len(list) {
		return "", false
	}
	return list[i], true
}

// bit is the name of the i-th bit that is set.
func bit(names []string, bits uint64, i int) (string, bool) {
	for n, name := range names {
		if bits>>n&1 == 0 {
			continue
		}
		if i == 0 {
			return name, true
		}
		i--
	}
	return "", false
}

func procName(p *Process) (string, bool) {
	if p == nil {
		return "", false
	}
	return some(p.Name)
}

func procArgv0(p *Process) (string, bool) {
	if p == nil {
		return "", false
	}
	return some(p.argv0())
}

func procExe(p *Process) (string, bool) {
	if p == nil {
		return "", false
	}
	return some(p.Exe)
}

func procCmdline(p *Process) (string, bool) {
	if p == nil {
		return "", false
	}
	return some(p.Cmdline())
}

func (m *machine) sid() int32 {
	if m.ev.SID != 0 {
		return m.ev.SID
	}
	return m.proc.SID
}

func (m *machine) leader() *Process {
	if l := m.proc.leader(); l != nil {
		return l
	}
	return m.proc
}

func parentPID(m *machine) (int64, bool) {
	if p := m.proc.Parent; p != nil {
		return int64(p.ID.PID), true
	}
	return int64(m.ev.Parent.PID), m.ev.Parent.PID != 0
}

func argsLen(m *machine) (int64, bool) {
	n := 0
	for _, a := range m.proc.Argv[min(1, len(m.proc.Argv)):] {
		n += len(a)
	}
	return int64(n), len(m.proc.Argv) > 0
}

func loginShell(m *machine) (int64, bool) {
	var pid int64
	for p, n := m.proc, 0; p != nil && n < maxAncestors; p, n = p.Parent, n+1 {
		if interpreters[p.Name] && strings.HasSuffix(p.Name, "sh") {
			pid = int64(p.ID.PID)
		}
	}
	return pid, pid != 0
}

func began(m *machine, p *Process) (int64, bool) {
	if p == nil {
		return 0, false
	}
	// The start time is on the boot clock; the event has both clocks.
	if p.ID.Start != 0 && m.ev.Boot != 0 {
		return m.ev.Time - int64(m.ev.Boot) + int64(p.ID.Start), true
	}
	return p.Began, p.Began != 0
}

func age(m *machine, p *Process) (int64, bool) {
	t, ok := began(m, p)
	return m.ev.Time - t, ok
}

func idName(names map[uint32]string, id uint32) (string, bool) {
	if n, ok := names[id]; ok {
		return n, true
	}
	if id == 0 {
		return "root", true
	}
	return "", false
}

var typeChars = map[string]string{"file": "f", "directory": "d", "ipv4": "4", "ipv6": "6", "unix": "u", "pipe": "p", "memfd": "m",
	"netlink": "o", "packet": "o", "other": "o"}

func fdType(m *machine) (string, bool) {
	e := m.ev
	if netTypes.has(e.Type) {
		a := e.Remote.Addr()
		if !a.IsValid() {
			a = e.Local.Addr()
		}
		switch {
		case a.IsValid() && a.Is4():
			return "ipv4", true
		case a.IsValid():
			return "ipv6", true
		case e.UnixAddr != "" || e.Proto == bodycam.ProtoUnix:
			return "unix", true
		case e.Proto == bodycam.ProtoNetlink:
			return "netlink", true
		case e.Proto == bodycam.ProtoPacket || e.Proto == bodycam.ProtoRaw:
			return "packet", true
		}
		return "other", true
	}
	switch {
	case e.Access&bodycam.Dir != 0 || e.Type == bodycam.TypeMkdir || e.Type == bodycam.TypeRmdir || e.Type == bodycam.TypeChdir:
		return "directory", true
	case strings.HasPrefix(e.Path, "pipe:"):
		return "pipe", true
	case e.Marks&bodycam.MarkAnonymous != 0 && e.Access&bodycam.Temp != 0:
		return "memfd", true
	case strings.HasPrefix(e.Path, "socket:"):
		return "unix", true
	}
	return "file", true
}

func l4proto(m *machine) (string, bool) {
	switch m.ev.Proto {
	case bodycam.ProtoTCP, bodycam.ProtoUDP, bodycam.ProtoICMP, bodycam.ProtoRaw:
		return m.ev.Proto.String(), true
	}
	return "", false
}

func sockFamily(m *machine) (string, bool) {
	switch t, _ := fdType(m); t {
	case "ipv4", "ipv6":
		return "ip", true
	default:
		return t, true
	}
}

func connected(e *bodycam.Event) bool {
	switch e.Type {
	case bodycam.TypeConnect, bodycam.TypeAccept:
		return e.Errno == 0
	}
	return e.Type == bodycam.TypeFlow
}

func nameChanged(e *bodycam.Event) bool {
	return e.Type == bodycam.TypeConnect || e.Type == bodycam.TypeAccept || e.Type == bodycam.TypeSend
}

// namedHost is the remote's name, "" where it only has an address.
func (m *machine) namedHost() string {
	if m.ev.Host == "" || m.ev.HostSource == bodycam.HostLiteral {
		return ""
	}
	if isAddress(m.ev.Host) {
		return ""
	}
	return m.hostName()
}

// isAddress tells an address from a name: only addresses have colons or end in a digit part.
func isAddress(host string) bool {
	if strings.IndexByte(host, ':') >= 0 {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	for i := range len(last) {
		if !isDigit(last[i]) {
			return false
		}
	}
	return last != ""
}

func hostSource(m *machine) (string, bool) {
	if m.ev.HostSource != bodycam.HostUnknown {
		return m.ev.HostSource.String(), true
	}
	if m.ev.Type == bodycam.TypeDNS {
		return "dns", true
	}
	return bodycam.HostLiteral.String(), m.ev.Remote.IsValid()
}

func hostLocal(m *machine) (int64, bool) {
	e := m.ev
	if e.Host != "" && e.HostSource != bodycam.HostLiteral {
		h := m.hostName()
		if h == "localhost" || strings.HasSuffix(h, ".localhost") {
			return 1, true
		}
	}
	a := e.Remote.Addr()
	if !a.IsValid() {
		return truth(e.Host == "")
	}
	a = a.Unmap()
	own := e.Type != bodycam.TypeAccept && a == e.Local.Addr().Unmap() // the sandbox's own address
	return truth(a.IsLoopback() || a.IsUnspecified() || own)
}

func rowText(f func(*bodycam.Row) string) strGetter {
	return func(m *machine) (string, bool) {
		r := m.transcriptRow()
		if r == nil {
			return "", false
		}
		return some(f(r))
	}
}

func rowIndex(m *machine) (int64, bool) {
	if r := m.transcriptRow(); r != nil {
		return int64(r.Index), true
	}
	return 0, false
}

func worked(g strGetter) strGetter {
	return func(m *machine) (string, bool) {
		if m.ev.Errno != 0 {
			return "", false
		}
		return g(m)
	}
}

func workedList(g func(*machine) []string) func(*machine) []string {
	return func(m *machine) []string {
		if m.ev.Errno != 0 {
			return nil
		}
		return g(m)
	}
}

// Falco calls the new name of a link its source and the file that it leads to its target. Of a mount, our first path
// is the place.
func reversed(e *bodycam.Event) bool {
	return e.Type == bodycam.TypeLink || e.Type == bodycam.TypeSymlink || e.Type == bodycam.TypeMount
}

func sourceNames(m *machine) []string {
	if reversed(m.ev) {
		return m.object2()
	}
	return m.object()
}

func targetNames(m *machine) []string {
	if reversed(m.ev) {
		return m.object()
	}
	return m.object2()
}

func rawSource(m *machine) (string, bool) {
	if reversed(m.ev) {
		return given2(m)
	}
	return given(m)
}

func rawTarget(m *machine) (string, bool) {
	if reversed(m.ev) {
		return given(m)
	}
	return given2(m)
}

func devIno(m *machine) (string, bool) {
	if m.ev.Ino == 0 {
		return "", false
	}
	start := len(m.arena)
	m.arena = strconv.AppendUint(m.arena, m.ev.Dev>>32, 10)
	m.arena = append(m.arena, ':')
	m.arena = strconv.AppendUint(m.arena, uint64(uint32(m.ev.Dev)), 10)
	m.arena = append(m.arena, ':')
	m.arena = strconv.AppendUint(m.arena, m.ev.Ino, 10)
	return m.keep(start), true
}

func flagsText(m *machine) (string, bool) {
	switch m.ev.Type {
	case bodycam.TypeOpen:
		return some(m.flagNames("open", m.ev.Flags, "O_RDONLY"))
	case bodycam.TypeNamespace, bodycam.TypeFork:
		return some(m.flagNames("clone", m.ev.Flags, ""))
	}
	return "", false
}

func modeText(m *machine) (string, bool)    { return some(m.flagNames("mode", m.ev.Flags, "")) }
func signalText(m *machine) (string, bool)  { return some(linux().signals[m.ev.Signal]) }
func requestText(m *machine) (string, bool) { return some(linux().requests[m.ev.Signal]) }

func addrText(m *machine) (string, bool) {
	a := m.ev.Remote
	if m.ev.Type == bodycam.TypeBind {
		a = m.ev.Local
	}
	if !a.IsValid() {
		return some(m.ev.UnixAddr)
	}
	start := len(m.arena)
	m.arena = a.AppendTo(m.arena)
	return m.keep(start), true
}

// arguments is the call's arguments in words, for people.
func (m *machine) arguments() (string, bool) {
	e := m.ev
	start := len(m.arena)
	put := func(k, v string) {
		if v == "" {
			return
		}
		if len(m.arena) > start {
			m.arena = append(m.arena, ' ')
		}
		m.arena = append(m.arena, k...)
		m.arena = append(m.arena, '=')
		m.arena = append(m.arena, v...)
	}
	res := "0"
	if e.Errno != 0 {
		if res = linux().errno[e.Errno]; res == "" {
			res = strconv.Itoa(int(e.Errno))
		}
	}
	put("res", res)
	put("path", firstOf(e.Path, e.PathGiven))
	put("path2", firstOf(e.Path2, e.Path2Given))
	if netTypes.has(e.Type) {
		sub := len(m.arena)
		tuple := strings.Clone(m.ends()) // it may have been made in the arena just now, where the text is to go
		if m.have&haveConn != 0 && len(m.arena) > sub {
			m.arena = m.arena[:sub]
			m.have &^= haveConn
		}
		put("tuple", tuple)
	}
	put("host", e.Host)
	put("detail", e.Detail)
	return some(m.keep(start))
}

// dirOf and baseOf are the parts of a path that fd.directory and fd.filename mean.
func dirOf(p string) string {
	i := strings.LastIndexByte(p, '/')
	switch {
	case i < 0:
		return ""
	case i == 0:
		return "/"
	}
	return p[:i]
}

func baseOf(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }
