package rules

import (
	"errors"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

func id(pid int32) bodycam.Proc { return bodycam.Proc{PID: pid, Start: uint64(pid) * 1e6} }

func load(t testing.TB, yaml string) *Set {
	t.Helper()
	s, err := LoadSources(Options{}, Source{Name: "test.yaml", Data: []byte(yaml)})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return s
}

// ruleOf makes a rule file of one condition.
func ruleOf(cond string) string {
	return "- rule: r\n  desc: d\n  output: o\n  priority: NOTICE\n  warn_evttypes: false\n  condition: >\n    " + strings.ReplaceAll(cond, "\n", "\n    ") + "\n"
}

// family is a harness (10) that started a shell (11) that started curl (12).
func family() *Table {
	t := NewTable()
	start := []*bodycam.Event{
		{Type: bodycam.TypeExec, Proc: id(10), Exe: "/usr/bin/node", Argv: []string{"codex"}, CWD: "/workspace", Time: 1e18},
		{Type: bodycam.TypeFork, Proc: id(10), Child: id(11), Time: 1e18 + 1},
		{Type: bodycam.TypeExec, Proc: id(11), Exe: "/usr/bin/bash", Argv: []string{"bash", "-c", "curl x"}, PathGiven: "/bin/bash", Time: 1e18 + 2, SID: 11},
		{Type: bodycam.TypeFork, Proc: id(11), Child: id(12), Time: 1e18 + 3},
		{Type: bodycam.TypeExec, Proc: id(12), Exe: "/usr/bin/curl", Argv: []string{"curl", "-sX", "POST", "--data-binary", "@key"}, Time: 1e18 + 4, SID: 11, Ino: 77, Dev: 1},
	}
	for _, e := range start {
		t.Fold(e)
	}
	return t
}

func openEvent() *bodycam.Event {
	return &bodycam.Event{Seq: 9, Type: bodycam.TypeOpen, Proc: id(12), TID: 12, NR: 257, ABI: bodycam.ABIAMD64, Time: 1e18 + 5e9,
		Path: "/root/.ssh/id_rsa", PathGiven: "/proc/self/root/root/.ssh/id_rsa", Dev: 8<<32 | 1, Ino: 42, Access: bodycam.Read,
		Flags: 0o2000000, Window: bodycam.WindowAgent, Sensor: "bpf"}
}

func connectEvent() *bodycam.Event {
	return &bodycam.Event{Seq: 10, Type: bodycam.TypeConnect, Proc: id(12), TID: 12, NR: 42, ABI: bodycam.ABIAMD64, Time: 1e18 + 6e9, Proto: bodycam.ProtoTCP,
		Local: netip.MustParseAddrPort("10.0.0.2:4000"), Remote: netip.MustParseAddrPort("93.184.216.34:443"), Host: "Evil.Example.",
		HostSource: bodycam.HostDNS, Errno: 115}
}

func renameEvent() *bodycam.Event {
	return &bodycam.Event{Seq: 11, Type: bodycam.TypeRename, Proc: id(11), NR: 82, ABI: bodycam.ABIAMD64, Path: "/workspace/a", Path2: "/root/.bashrc", PathGiven: "a", Path2Given: "../root/.bashrc", Dev: 1, Ino: 5}
}

func execEvent() *bodycam.Event {
	return &bodycam.Event{Seq: 12, Type: bodycam.TypeExec, Proc: id(12), NR: 59, ABI: bodycam.ABIAMD64, Exe: "/usr/bin/python3.11", PathGiven: "python3",
		Argv: []string{"python3", "-B", "x.py", "YWJj", "Zm9v-_8"}, CWD: "/workspace", Path: "/usr/bin/python3.11", Dev: 1, Ino: 9, Access: bodycam.Exec}
}

func TestConditions(t *testing.T) {
	events := map[string]func() *bodycam.Event{"open": openEvent, "connect": connectEvent, "rename": renameEvent, "exec": execEvent,
		"exit": func() *bodycam.Event { return &bodycam.Event{Type: bodycam.TypeExit, Proc: id(12), Status: 256} },
		"denied": func() *bodycam.Event {
			return &bodycam.Event{Type: bodycam.TypeDenied, Proc: id(12), NR: 101, ABI: bodycam.ABIAMD64, Errno: 1}
		},
		"send": func() *bodycam.Event {
			return &bodycam.Event{Type: bodycam.TypeSend, Proc: id(12), Proto: bodycam.ProtoUDP, Remote: netip.MustParseAddrPort("[2001:db8::1]:53"), Bytes: 30}
		},
		"i386": func() *bodycam.Event {
			return &bodycam.Event{Type: bodycam.TypeOpen, Proc: id(12), NR: 5, ABI: bodycam.ABII386, Path: "/x", Access: bodycam.Write | bodycam.Create, Flags: 0o1101}
		},
		"failed": func() *bodycam.Event {
			return &bodycam.Event{Type: bodycam.TypeOpen, Proc: id(12), PathGiven: "../etc/./shadow", CWD: "/workspace", Errno: 13, Access: bodycam.Read, Marks: bodycam.MarkUnverified}
		},
		"chmod": func() *bodycam.Event {
			return &bodycam.Event{Type: bodycam.TypeChmod, Proc: id(12), NR: 90, ABI: bodycam.ABIAMD64, Path: "/tmp/x", Flags: 0o4755}
		},
	}
	tests := []struct {
		on, cond string
		want     bool
	}{
		// Falco's own idioms.
		{"open", "evt.type in (open,openat,openat2) and evt.is_open_read=true and fd.typechar='f' and fd.num>=0", true},
		{"open", "evt.type in (open,openat,openat2) and evt.is_open_write=true and fd.typechar='f' and fd.num>=0", false},
		{"failed", "evt.type=openat and fd.num=-1 and evt.res startswith E and evt.rawres = -13", true},
		{"failed", "evt.res = EACCES and not evt.rawres >= 0 and evt.failed=true", true},
		{"connect", "evt.type=connect and (fd.typechar=4 or fd.typechar=6) and fd.ip != \"0.0.0.0\" and fd.net != \"127.0.0.0/8\" and not fd.snet in (\"192.168.0.0/16\", 172.16.0.0/12) and (evt.rawres >= 0 or evt.res = EINPROGRESS)", true},
		{"connect", "fd.net = \"10.0.0.0/8\" and fd.snet != \"10.0.0.0/8\" and fd.cnet = 10.0.0.0/8", true},
		{"connect", "fd.ip != 10.0.0.2", false},
		{"send", "evt.type in (sendto,sendmsg) and fd.l4proto != tcp and fd.connected=false and fd.name_changed=true and fd.typechar=6 and fd.sport=53", true},
		{"exec", "evt.type in (execve, execveat) and proc.name = python3 and proc.pname=bash and proc.aname[2]=node", true},
		{"open", "proc.aname in (node, sshd) and proc.aname=bash and not proc.aname=curl", true},
		{"open", "proc.aname[9] exists or proc.aname[1]=node", false},
		{"open", "proc.apid[1]=11 and proc.apid = 10 and proc.ppid=11 and proc.pid in (12)", true},
		{"open", "evt.num=0", false},
		{"open", "evt.dir=< and evt.dir != >", true},
		{"exit", "evt.type=procexit", true},
		{"denied", "evt.type=ptrace and evt.res=EPERM", true},
		{"i386", "evt.type=open and evt.arg.flags contains O_CREAT and evt.arg.flags contains \"O_TRUNC\" and evt.arg.flags contains O_WRONLY", true},
		{"open", "evt.arg.flags contains O_RDONLY and evt.arg.flags contains O_CLOEXEC and not evt.arg.flags contains O_WRONLY", true},
		{"chmod", "evt.arg.mode contains S_ISUID and evt.arg.mode contains \"S_IXOTH\" and evt.arg.filename = /tmp/x", true},
		// Absent fields.
		{"open", "fd.sip != 1.2.3.4", false},
		{"open", "not fd.sip = 1.2.3.4", true},
		{"open", "fd.sip exists or host.name exists", false},
		{"exec", "fd.name != /x", false},
		{"open", "container.image.repository != x or container.image.tag = x", false},
		{"open", "container.id != host and container.privileged=false", true},
		// Names of files: as given and canonical to raise, canonical to excuse.
		{"open", "fd.name = /proc/self/root/root/.ssh/id_rsa and fd.name = /root/.ssh/id_rsa", true},
		{"open", "not fd.name startswith /proc", true},
		{"open", "fd.name != /proc/self/root/root/.ssh/id_rsa", true},
		{"open", "fd.directory = /root/.ssh and fd.filename = id_rsa and fd.nameraw contains self/root", true},
		{"failed", "fd.name = /etc/shadow and fd.nameraw = ../etc/./shadow and evt.abspath=/etc/shadow", true},
		{"failed", "fs.path.name exists", false},
		{"open", "fs.path.name pmatch (/root/.ssh)", true},
		{"rename", "fs.path.source = /workspace/a and fs.path.target=/root/.bashrc and evt.arg.oldpath=/workspace/a and evt.arg.newpath endswith bashrc", true},
		{"rename", "fs.path.targetraw = ../root/.bashrc and evt.type = rename", true},
		// Operators.
		{"open", "fd.name contains ssh and fd.name icontains SSH and fd.name startswith /root and fd.name endswith _rsa", true},
		{"open", "fd.name bcontains 2E737368 and fd.name bstartswith 2f726f6f74", true},
		{"open", "fd.name glob '/root/.ssh/id_*' and fd.name glob \"/*/id_?sa\" and not fd.name glob '/root/*.pub'", true},
		{"open", "fd.name iglob '/ROOT/.SSH/ID_[a-r]SA' and fd.name glob '/root/.ssh/id_[!a-q]sa'", true},
		{"open", "fd.name glob '/root/.ssh/id_@(rsa|dsa)' and not fd.name glob '/root/.ssh/id_+(dsa)'", true},
		{"open", "fd.name regex '/root/\\\\.ssh/id_(rsa|dsa)' and not fd.name regex 'root'", true},
		{"open", "fd.name pmatch (/etc, /root/*/id_rsa) and not fd.name pmatch (/roo, /root/.ssh/id)", true},
		{"open", "fd.name pmatch (/root/**/id_rsa) and fd.name pmatch (/**/.ssh) and not fd.name pmatch (/**/.aws, /etc/**)", true},
		{"open", "fd.name in (/a, /b, /c, /d, /root/.ssh/id_rsa) and not fd.name in ()", true},
		{"open", "proc.duration > 1 and proc.duration <= 5000000000 and user.uid < 0x10 and body.ino >= 42", true},
		{"open", "fd.name startswith oneof (/root, /etc) and fd.name contains allof (root, ssh) and fd.name = anyof (/a, /root/.ssh/id_rsa)", true},
		{"open", "fd.filename contains oneof (id, rsa)", false},
		{"open", "fd.name endswith anyof (.pub, _dsa, _rsa) and not fd.name endswith anyof (.a, _a)", true},
		{"open", "fd.filename != allof (a, b) and fd.filename glob anyof (x*, id*)", true},
		{"open", "proc.name == oneof", false},
		{"connect", "fd.sport in (80, 443) and fd.port = 4000 and fd.cport=4000 and fd.rport != 80", true},
		{"connect", "fd.port != 443", false},
		// Transformers and fields on the right.
		{"connect", "toupper(host.name) = EVIL.EXAMPLE and host.name = evil.example and fd.sip.name=evil.example", true},
		{"open", "basename(fd.name) = id_rsa and len(fd.filename) = 6 and toupper(basename(fd.name)) startswith ID", true},
		{"exec", "proc.name = val(proc.exe) and proc.name != val(proc.pname) and tolower(proc.name) = tolower(proc.exe)", true},
		{"exec", "b64(proc.argv) = abc and b64(proc.argv) bcontains fbff", true},
		{"exec", "len(proc.argv) = 5 and proc.cmdnargs=4", true},
		{"exec", "join(\":\", proc.argv) = \"python3:-B:x.py:YWJj:Zm9v-_8\" and concat(proc.name, \"@\", proc.cwd) = python3@/workspace", true},
		{"exec", "join(\"-\", (proc.name, proc.pname)) = python3-bash", true},
		{"open", "getopt(proc.argv, \"sX:\") exists", false}, // argv[0] is no option
		{"exec", "proc.args = \"-B x.py YWJj Zm9v-_8\" and proc.cmdline startswith \"python3 -B\"", true},
		// Grammar.
		{"open", "not(not evt.type=openat)and(evt.num=9)", true},
		{"open", "not not evt.type = openat", true},
		{"open", "evt.type=open or\n  evt.type=openat", true},
		{"open", "evt.type != openat", false},
		{"open", "(((evt.num = 9)))", true},
		{"open", "evt.arg[name] = /root/.ssh/id_rsa and evt.arg['flags'] exists", true},
		{"open", `proc.name = "cu\x72l" and proc.name = 'curl'`, true},
		// Ours.
		{"open", "body.path = /root/.ssh/id_rsa and body.path_given contains proc and body.dev_ino = 8:1:42 and body.window=agent and body.access intersects (read)", true},
		{"open", "body.access in (read, write) and not body.access in (write)", true},
		{"failed", "body.marks intersects (unverified, raced) and body.errno = 13", true},
		{"connect", "host.source = dns and host.named=true and host.local=false and host.name glob *.example", true},
		{"open", "body.type in (open, exec) and body.type != exec and proc.uid_before = 0", true},
		{"open", "proc.tree intersects (/usr/bin/node) and proc.is_harness=false and proc.exepath=/usr/bin/curl", true},
		{"exec", "proc.script = /workspace/x.py", true},
		{"open", "row.known = true or row.index exists or explained.cleared = true", false},
	}
	for _, tc := range tests {
		s, err := LoadSources(Options{}, Source{Name: "t.yaml", Data: []byte(ruleOf(tc.cond))})
		if err != nil {
			t.Errorf("%s\n\t%v", tc.cond, err)
			continue
		}
		if u := s.Unsupported(); len(u) > 0 {
			t.Errorf("%s\n\tunsupported: %v", tc.cond, u[0].Unsupported)
			continue
		}
		e := events[tc.on]()
		if got := len(s.NewEngine(family()).Event(e)) > 0; got != tc.want {
			t.Errorf("%s on %s: %v, want %v", tc.cond, tc.on, got, tc.want)
		}
	}
}

func alerts(t *testing.T, s *Set, name, file string) bool {
	t.Helper()
	ctx := NewTable()
	e := &bodycam.Event{Type: bodycam.TypeOpen, Seq: 1, Proc: id(5), Exe: "/usr/bin/" + name, Argv: []string{name}, Path: file, Access: bodycam.Read}
	return len(s.NewEngine(ctx).Event(e)) > 0
}

func TestListsMacrosExceptionsOverrides(t *testing.T) {
	tests := []struct {
		name, more, proc, file string
		want                   bool
	}{
		{"item of a list in a list", "", "vi", "/a", true},
		{"quoted item", "", "(ed)", "/a", true},
		{"not in the list", "", "cat", "/a", false},
		{"exception", "", "make", "/ok/x", false},
		{"exception needs both", "", "vi", "/ok/x", true},
		{"list in an exception", "", "vi", "/listed/x", false},
		{"list append", "- list: editors\n  items: [cat]\n  override: {items: append}\n", "cat", "/a", true},
		{"list append, old form", "- list: editors\n  append: true\n  items: [cat]\n", "cat", "/a", true},
		{"list replace", "- list: editors\n  items: [cat]\n  override: {items: replace}\n", "vi", "/a", false},
		{"list redefined", "- list: editors\n  items: [cat]\n", "vi", "/a", false},
		{"macro append", "- macro: never_true\n  condition: or evt.num=1\n  override: {condition: append}\n", "vi", "/a", false},
		{"macro redefined", "- macro: opens\n  condition: evt.type=close\n", "vi", "/a", false},
		{"rule append", "- rule: R\n  condition: and fd.name=/b\n  override: {condition: append}\n", "vi", "/a", false},
		{"rule append, old form", "- rule: R\n  append: true\n  condition: or proc.name=cat\n", "cat", "/a", true},
		{"rule replace", "- rule: R\n  condition: proc.name=cat\n  override: {condition: replace}\n", "cat", "/a", true},
		{"exception values appended", "- rule: R\n  exceptions:\n  - name: names\n    values: [a]\n  override: {exceptions: append}\n", "vi", "/a", false},
		{"exception values appended, old form", "- rule: R\n  append: true\n  exceptions:\n  - name: proc_file\n    values: [[vi, /a]]\n", "vi", "/a", false},
		{"exceptions replaced", "- rule: R\n  exceptions:\n  - name: n\n    fields: [fd.name]\n    values: [[/zzz]]\n  override: {exceptions: replace}\n", "make", "/ok/x", true},
		{"exception with modifier", "- rule: R\n  exceptions:\n  - name: mod\n    values: [/a, /q]\n  override: {exceptions: append}\n", "vi", "/a", false},
		{"disabled", "- rule: R\n  enabled: false\n", "vi", "/a", false},
		{"disabled and enabled", "- rule: R\n  enabled: false\n- rule: R\n  enabled: true\n  override: {enabled: replace}\n", "vi", "/a", true},
		{"rule redefined", "- rule: R\n  desc: d\n  condition: evt.type=close\n  output: o\n  priority: debug\n", "vi", "/a", false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := alerts(t, load(t, base+tc.more), tc.proc, tc.file); got != tc.want {
				t.Errorf("%s opens %s: %v, want %v", tc.proc, tc.file, got, tc.want)
			}
		})
	}
	s := load(t, base+"- rule: R\n  output: and more\n  tags: [b]\n  desc: e\n  override: {output: append, tags: append, desc: append}\n- rule: R\n  priority: CRITICAL\n  override: {priority: replace}\n")
	r := s.List()[0]
	if r.Output != "file %fd.name by %proc.name and more" || !slices.Equal(r.Tags, []string{"a", "b"}) || r.Desc != "d e" || r.Priority != Critical {
		t.Errorf("overrides: %+v", r)
	}
	lists := Source{Name: "policy", Lists: map[string][]string{"editors": {"cat", "tools"}}}
	s, err := LoadSources(Options{}, Source{Name: "b", Data: []byte(base)}, lists)
	if err != nil || !alerts(t, s, "cat", "/a") || alerts(t, s, "vi", "/a") || !alerts(t, s, "tools", "/a") {
		t.Errorf("lists given as values: %v", err)
	}
}

func TestUnsupported(t *testing.T) {
	tests := []struct{ cond, want string }{
		{"evt.type=execve and proc.env contains X", "proc.env"},
		{"evt.type=open and not proc.tty=0", "proc.tty"},
		{"evt.type=open and k8s.ns.name=x and thread.cap_effective contains y", "k8s.ns.name thread.cap_effective"},
		{"evt.type in (dup, dup2)", "evt.type dup evt.type dup2"},
		{"evt.type=socket and evt.arg.domain = AF_PACKET", "evt.arg.domain"},
		{"evt.rawres = 3", "evt.rawres"},
		{"fd.num > 2 and fd.num in (1, 2)", "fd.num"},
		{"evt.type=open and (proc.name=a or user.loginuid != -1)", "user.loginuid"},
		{"evt.type in (open, dup)", ""},
	}
	for _, tc := range tests {
		s := load(t, ruleOf(tc.cond))
		var got []string
		for _, r := range s.Unsupported() {
			for _, g := range r.Unsupported {
				got = append(got, g.Need)
				if g.Reason == "" || g.Pos.Line != 7 {
					t.Errorf("%s: gap without reason or place: %v", tc.cond, g)
				}
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q", tc.cond, got, tc.want)
		}
		if tc.want != "" && len(s.byType[bodycam.TypeOpen].asked) > 0 {
			t.Errorf("%s: an unsupported rule is asked", tc.cond)
		}
	}
	s := load(t, ruleOf("evt.type in (open, dup)"))
	if len(s.Warnings()) != 1 || !strings.Contains(s.Warnings()[0].Msg, "dup") {
		t.Errorf("a call that isn't recorded: %v", s.Warnings())
	}
	s = load(t, ruleOf("made.up = 1")+"  skip-if-unknown-filter: true\n")
	if u := s.Unsupported(); len(u) != 1 || u[0].Unsupported[0].Need != "made.up" {
		t.Errorf("skip-if-unknown-filter: %v", u)
	}
	s = load(t, strings.Replace(ruleOf("ct.name = x"), "desc: d", "desc: d\n  source: aws_cloudtrail", 1))
	if u := s.Unsupported(); len(u) != 1 || !strings.Contains(u[0].Unsupported[0].Need, "aws_cloudtrail") {
		t.Errorf("other source: %v", u)
	}
}

func TestOutput(t *testing.T) {
	ctx := family()
	tests := []struct{ out, want string }{
		{"file=%fd.name by %proc.name.", "file=/root/.ssh/id_rsa by curl."},
		{"%proc.aname[2] %proc.aname[7] %toupper(proc.name) %evt.type", "node <NA> CURL openat"},
		{"%proc.env %proc.tty %container.image.repository %container.info", "<NA> <NA> <NA> <NA>"},
		{"%8proc.name|%2proc.name|", "curl    |cu|"},
		{"*%evt.num %evt.is_open_read %body.access %proc.aname", "9 true read (bash,node)"},
		{"%body.dev_ino %user.name %evt.time.iso8601", "8:1:42 root 2001-09-09T01:46:45.000000000+0000"},
		{"100% sure", ""},
	}
	for _, tc := range tests {
		y := strings.Replace(ruleOf("evt.type=openat"), "output: o", "output: \""+tc.out+"\"", 1)
		s, err := LoadSources(Options{}, Source{Name: "t", Data: []byte(y)})
		if tc.want == "" {
			if err == nil {
				t.Errorf("%s: no error", tc.out)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.out, err)
			continue
		}
		e := s.NewEngine(ctx)
		m := e.Event(openEvent())
		if len(m) != 1 {
			t.Fatalf("%s: %d matches", tc.out, len(m))
		}
		if got := e.Output(m[0]); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.out, got, tc.want)
		}
	}
}

// A sentence leaves out what isn't known, with the words that introduce it.
func TestSentence(t *testing.T) {
	for _, tc := range []struct{ out, want string }{
		{"%proc.name read %fd.name (given as %proc.env)", "curl read /root/.ssh/id_rsa"},
		{"%proc.name (written by %proc.env) read %fd.name", "curl read /root/.ssh/id_rsa"},
		{"%proc.name: %evt.type %fd.name %proc.env", "curl: openat /root/.ssh/id_rsa"},
		{"%proc.name: %proc.env %fd.name", "curl /root/.ssh/id_rsa"},
		{"%proc.name read %fd.name: %proc.env", "curl read /root/.ssh/id_rsa"},
		{"%proc.env read %fd.name", "something unnamed read /root/.ssh/id_rsa"},
		{"%proc.name contacted %proc.env (known by %proc.env)", "curl contacted something unnamed"},
		{"%proc.name (known by %evt.type) read", "curl (known by openat) read"},
		{"%proc.env%proc.env", "something unnamed"},
	} {
		e := load(t, strings.Replace(ruleOf("evt.type=openat"), "output: o", "output: \""+tc.out+"\"", 1)).NewEngine(family())
		m := e.Event(openEvent())
		if len(m) != 1 {
			t.Fatalf("%s: %d matches", tc.out, len(m))
		}
		if got := e.Sentence(m[0]); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.out, got, tc.want)
		}
	}
}

// A full event of every type must not get a value from a field outside the types that the table gives, since the
// engine doesn't ask rules about other types.
func TestFieldTypes(t *testing.T) {
	full := *openEvent()
	full.Local, full.Remote, full.Host = connectEvent().Local, connectEvent().Remote, "h"
	full.Path2, full.Path2Given, full.Child, full.Signal, full.Proto = "/b", "b", id(11), 9, bodycam.ProtoTCP
	full.Marks, full.Detail, full.Flags = bodycam.MarkRaced, "x", full.Flags|0o755
	set := &Set{}
	for _, f := range fieldTable().list {
		if !f.Supplied || f.Name == "evt.arg" || f.Name == "evt.rawarg" {
			continue
		}
		tm := &term{kind: fieldTerm, name: f.Name}
		if strings.HasPrefix(f.Arg, "index") {
			tm.arg, tm.hasArg = "1", true
		}
		seen := f.Const || valueless[f.Name]
		for _, positive := range []bool{true, false} {
			g := makeGetter(f, f.Name, tm, positive, set)
			has := g.exists()
			for i := range bodycam.Types() {
				ev := full
				ev.Type = bodycam.Type(i)
				m := &machine{ctx: family()}
				m.reset(&ev)
				if has(m) {
					seen = true
				}
				if has(m) && !f.types.has(ev.Type) {
					t.Errorf("%s has a value on %s, which the table doesn't list", f.Name, ev.Type)
				}
				g.print(nil, m)
			}
		}
		if !seen {
			t.Errorf("%s never has a value", f.Name)
		}
	}
}

// valueless fields need what the event of TestFieldTypes and its context don't have.
var valueless = map[string]bool{"row.index": true, "row.tool": true, "row.kind": true, "row.command": true, "row.args": true,
	"row.text": true, "explained.by": true, "sequence.resource": true, "sequence.event": true, "proc.script": true, "proc.exe_writer": true, "body.file_writer": true, "proc.uid_before": true, "body.unix_addr": true}

func TestTable(t *testing.T) {
	tb := family()
	curl := tb.Process(id(12))
	if curl.Name != "curl" || curl.Parent.Name != "bash" || curl.Root().ID != id(11) || !curl.Ancestor(2).Harness || curl.Harness {
		t.Errorf("tree: %+v", curl)
	}
	if tb.Process(id(10)).Root().ID != id(10) {
		t.Error("the harness is its own root")
	}
	tb.Fold(&bodycam.Event{Type: bodycam.TypeExec, Proc: id(12), Exe: "/bin/false", Argv: []string{"false"}, Errno: 2})
	if curl.Exe != "/usr/bin/curl" {
		t.Error("a failed exec changed the process")
	}
	// A program that the run wrote, then moved, then executed.
	tb.Fold(&bodycam.Event{Type: bodycam.TypeOpen, Proc: id(12), Path: "/tmp/a", Dev: 1, Ino: 500, Access: bodycam.Write | bodycam.Create})
	tb.Fold(&bodycam.Event{Type: bodycam.TypeRename, Proc: id(12), Path: "/tmp/a", Path2: "/tmp/b", Dev: 1, Ino: 500})
	tb.Fold(&bodycam.Event{Type: bodycam.TypeExec, Proc: id(12), Exe: "/tmp/b", Argv: []string{"ls"}, Dev: 1, Ino: 500})
	if !curl.Written || curl.Name != "b" {
		t.Errorf("written program: %+v", curl)
	}
	// The same inode, used again for another file, is not written.
	tb.Fold(&bodycam.Event{Type: bodycam.TypeUnlink, Proc: id(12), Path: "/tmp/b", Dev: 1, Ino: 500})
	tb.Fold(&bodycam.Event{Type: bodycam.TypeExec, Proc: id(12), Exe: "/usr/bin/ls", Argv: []string{"ls"}, Dev: 1, Ino: 500})
	if curl.Written {
		t.Error("an inode used again counts as written")
	}
}

func TestNamesOfFiles(t *testing.T) {
	s := load(t, ruleOf("evt.type=openat and fd.name = /root/.ssh/id_rsa"))
	open := func(path string, ino uint64) *bodycam.Event {
		return &bodycam.Event{Type: bodycam.TypeOpen, Proc: id(12), Path: path, Dev: 1, Ino: ino, Access: bodycam.Read}
	}
	tests := []struct {
		name   string
		before []*bodycam.Event
		open   *bodycam.Event
		want   bool
	}{
		{"itself", nil, open("/root/.ssh/id_rsa", 7), true},
		{"another file", nil, open("/tmp/x", 8), false},
		{"hard link", []*bodycam.Event{{Type: bodycam.TypeLink, Proc: id(12), Path: "/root/.ssh/id_rsa", Path2: "/tmp/x", Dev: 1, Ino: 7}}, open("/tmp/x", 7), true},
		{"hard link that failed", []*bodycam.Event{{Type: bodycam.TypeLink, Proc: id(12), Path: "/root/.ssh/id_rsa", Path2: "/tmp/x", Dev: 1, Ino: 7, Errno: 1}}, open("/tmp/x", 7), false},
		{"renamed first", []*bodycam.Event{{Type: bodycam.TypeRename, Proc: id(12), Path: "/root/.ssh/id_rsa", Path2: "/tmp/x", Dev: 1, Ino: 7}}, open("/tmp/x", 7), true},
		{"bind mount of the file", []*bodycam.Event{{Type: bodycam.TypeMount, Proc: id(12), Path: "/tmp/m", Path2: "/root/.ssh/id_rsa", Flags: msBind}}, open("/tmp/m", 0), true},
		{"bind mount of the directory", []*bodycam.Event{{Type: bodycam.TypeMount, Proc: id(12), Path: "/tmp/m", Path2Given: "../root", CWD: "/srv", Flags: msBind}}, open("/tmp/m/.ssh/id_rsa", 0), true},
	}
	for _, tc := range tests {
		e := s.NewEngine(family())
		for _, b := range tc.before {
			e.Event(b)
		}
		if got := len(e.Event(tc.open)) > 0; got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	tb := family()
	tb.Name(1, 7, "/root/.ssh/id_rsa") // a link made before the run
	if len(s.NewEngine(tb).Event(open("/srv/old-link", 7))) == 0 {
		t.Error("a link from before the run hides the file")
	}
}

func TestScripts(t *testing.T) {
	for _, tc := range []struct {
		argv []string
		want string
	}{
		{[]string{"python3", "a.py", "b.py"}, "/w/a.py"},
		{[]string{"python3", "-W", "/usr/bin/pip", "evil.py"}, "/w/evil.py"},
		{[]string{"python3", "-B", "-u", "/x/a.py"}, "/x/a.py"},
		{[]string{"python3", "-c", "x", "a.py"}, ""},
		{[]string{"python3", "-m", "pip"}, ""},
		{[]string{"python3"}, ""},
	} {
		p := &Process{Exe: "/usr/bin/python3.11", Argv: tc.argv, CWD: "/w"}
		if got := p.script(); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.argv, got, tc.want)
		}
	}
}

// A program that is started without arguments has none, whatever the process ran before.
func TestArgumentsOfBefore(t *testing.T) {
	tb := family()
	exec := func(argv ...string) string {
		tb.Fold(&bodycam.Event{Type: bodycam.TypeExec, Proc: id(12), Exe: "/usr/bin/bash", Argv: argv})
		return tb.Process(id(12)).Cmdline()
	}
	if a, b := exec("bash", "-c", "x"), exec("bash"); a != "bash -c x" || b != "bash" {
		t.Errorf("%q, then %q", a, b)
	}
}

func TestLongArguments(t *testing.T) {
	p := &Process{Name: "x", Argv: append([]string{"x", "first"}, slices.Repeat([]string{strings.Repeat("a", 1000)}, 2000)...)}
	p.Argv = append(p.Argv, "last")
	c := p.Cmdline()
	if len(c) > maxArgs+100 || !strings.HasPrefix(c, "x first aaa") || !strings.HasSuffix(c, "aaa last") {
		t.Errorf("%d bytes: %.20q … %q", len(c), c, c[len(c)-10:])
	}
	p = &Process{Name: "x", Argv: []string{"x", strings.Repeat("b", 1<<20)}}
	if c := p.Cmdline(); len(c) > maxArgs+100 || len(c) < maxArgs-100 {
		t.Errorf("%d bytes of one argument", len(c))
	}
}

func TestWrittenPaths(t *testing.T) {
	tb := family()
	do := func(typ bodycam.Type, p, p2 string) {
		tb.Fold(&bodycam.Event{Type: typ, Proc: id(12), Path: p, Path2: p2})
	}
	do(bodycam.TypeMkdir, "/w/new", "")
	do(bodycam.TypeRename, "/w/data", "/w/new/data")
	do(bodycam.TypeRename, "/w/new", "/w/newer")
	do(bodycam.TypeMkdir, "/w/other", "")
	tb.Fold(&bodycam.Event{Type: bodycam.TypeOpen, Proc: id(12), Path: "/w/a", Access: bodycam.Write})
	do(bodycam.TypeRename, "/w/a", "/w/b")
	do(bodycam.TypeRmdir, "/w/other", "")
	for p, want := range map[string]bool{"/w/newer/x": true, "/w/new/x": false, "/w/b": true, "/w/a": false, "/w/other/x": true, "/w/c": false, "": false} {
		if got := tb.Wrote(p); got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
	}
	do(bodycam.TypeOpen, "/w/c", "")
	if tb.Wrote("/w/other/x") {
		t.Error("a directory that is gone")
	}
	// What was only written to isn't the run's own, whatever it is called later; a new file is.
	open := func(p, detail string, how bodycam.Access, flags uint64) {
		tb.Fold(&bodycam.Event{Type: bodycam.TypeOpen, Proc: id(12), Path: p, Access: how, Detail: detail, Flags: flags})
	}
	const add = bodycam.Write | bodycam.Create | bodycam.Append
	open("/w/m/new", "new", add, 0)
	open("/w/m/excl", "", bodycam.Write|bodycam.Create, 0x80)
	open("/w/m/added", "", add, 0)
	open("/w/m/cut", "", bodycam.Read|bodycam.Trunc, 0)
	open("/w/m/empty", "new", bodycam.Read|bodycam.Create, 0)
	open("/w/m/later", "", add, 0)
	do(bodycam.TypeRename, "/w/m/added", "/w/m/added2")
	do(bodycam.TypeRename, "/w/m/new", "/w/m/new2")
	open("/w/m/over", "new", add, 0)
	do(bodycam.TypeRename, "/w/m/cut", "/w/m/over")
	open("/w/m/swap", "new", add, 0)
	tb.Fold(&bodycam.Event{Type: bodycam.TypeRename, Proc: id(12), Path: "/w/m/swap", Path2: "/w/m/aged", Flags: 2})
	do(bodycam.TypeMkdir, "/w/m/d", "")
	tb.Fold(&bodycam.Event{Type: bodycam.TypeRename, Proc: id(12), Path: "/w/m/d/x", Path2: "/w/m/aged2", Flags: 2})
	for p, want := range map[string][2]bool{"/w/m/new2": {true, true}, "/w/m/excl": {true, true}, "/w/m/added2": {true, false}, "/w/m/over": {true, false}, "/w/m/empty": {true, true},
		"/w/m/later": {true, false}, "/w/m/swap": {false, false}, "/w/m/aged": {true, true}, "/w/m/d/x": {false, false}, "/w/m/d/y": {true, true}, "/w/m/new": {false, false}} {
		if got := [2]bool{tb.Wrote(p), tb.Made(p)}; got != want {
			t.Errorf("%s: written and made %v, want %v", p, got, want)
		}
	}
	// Old things in a new directory stay old.
	do(bodycam.TypeMkdir, "/w/trap", "")
	do(bodycam.TypeRename, "/w/old", "/w/trap/old")
	if tb.Wrote("/w/trap/old/file") || !tb.Wrote("/w/trap/file") {
		t.Error("a new directory makes old files new")
	}
	do(bodycam.TypeRename, "/w/trap", "/w/trap2")
	if tb.Wrote("/w/trap2/old/file") || !tb.Wrote("/w/trap2/file") {
		t.Error("a new directory that is renamed makes old files new")
	}
}

func TestGetopt(t *testing.T) {
	for _, tc := range []struct {
		argv []string
		cond string
		want bool
	}{
		{[]string{"nc", "-e", "/bin/sh", "host"}, `getopt(proc.argv, "e:l") intersects (e)`, false}, // argv[0] ends the options
		{[]string{"-lne", "/bin/sh", "host"}, `getopt(proc.argv, "e:ln")[e] = /bin/sh`, true},
		{[]string{"-e/bin/sh"}, `getopt(proc.argv, "e:")[e] = /bin/sh`, true},
		{[]string{"-l", "--", "-e"}, `getopt(proc.argv, "el")[e] exists`, false},
		{[]string{"--long", "-v"}, `getopt(proc.argv, "v") intersects (v)`, true},
		{[]string{"-z"}, `getopt(proc.argv, "v") intersects ("?")`, true},
		{[]string{"-a", "x", "-a", "y"}, `getopt(proc.argv, "a:")[a] = y`, true},
		{[]string{"-a", "x", "-b"}, `len(getopt(proc.argv, "a:b")) = 3`, true},
	} {
		s := load(t, ruleOf("evt.type=execve and "+tc.cond))
		e := &bodycam.Event{Type: bodycam.TypeExec, Proc: id(3), Exe: "/bin/nc", Argv: tc.argv}
		if got := len(s.NewEngine(NewTable()).Event(e)) > 0; got != tc.want {
			t.Errorf("%q %s: %v", tc.argv, tc.cond, got)
		}
	}
}

func TestModes(t *testing.T) {
	y := ruleOf("evt.type=connect") + "  mode: deny\n"
	_, err := LoadSources(Options{}, Source{Name: "t", Data: []byte(y)})
	if err == nil || !strings.Contains(err.Error(), "mode: stop") {
		t.Errorf("deny without a way to deny: %v", err)
	}
	asked := ""
	s, err := LoadSources(Options{CanDeny: func(r Rule) error { asked = r.Events; return nil }}, Source{Name: "t", Data: []byte(y)})
	if err != nil || asked != "connect, denied" || s.List()[0].Mode != ModeDeny {
		t.Errorf("deny: %v %q", err, asked)
	}
	_, err = LoadSources(Options{CanDeny: func(Rule) error { return errors.New("no LSM here") }}, Source{Name: "t", Data: []byte(y)})
	if err == nil || !strings.Contains(err.Error(), "no LSM here") {
		t.Errorf("refused deny: %v", err)
	}
	e := s.NewEngine(family())
	if len(e.Would(connectEvent())) != 1 {
		t.Error("Would doesn't see the call")
	}
}

func TestCompare(t *testing.T) {
	a := load(t, ruleOf("evt.type=openat"))
	b := load(t, ruleOf("evt.type=connect"))
	events := []*bodycam.Event{openEvent(), connectEvent(), renameEvent()}
	var stream iter.Seq2[*bodycam.Event, error] = func(yield func(*bodycam.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
	c, err := Compare(a, b, func() Context { return family() }, stream)
	if err != nil || c.Old != 1 || c.New != 1 || len(c.Changes) != 2 || c.Changes[0].Appeared || !c.Changes[1].Appeared || c.Changes[1].Event != 10 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	os.WriteFile(one, []byte(base), 0o600)
	os.WriteFile(two, []byte("- list: editors\n  items: [cat]\n  override: {items: append}\n- rule: R\n  condition: and nope\n  override: {condition: append}\n"), 0o600)
	_, err := Load(one, two)
	if err == nil || !strings.HasPrefix(err.Error(), two+":5:18: R: there is no macro \"nope\"") {
		t.Errorf("an error in appended text: %v", err)
	}
	if _, err = Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestNoAllocation(t *testing.T) {
	s := load(t, `
- list: l
  items: [a, b, c, d, e]
- macro: m
  condition: (evt.type in (open, openat, connect) and not fd.name pmatch (/workspace, /tmp/*/x))
`+ruleOf(`m and (fd.name glob "/etc/*.conf" or tolower(fd.filename) in (l) or proc.aname in (l) or proc.cmdline contains zzz or
proc.args icontains yyy or fd.sip.name iglob anyof ("*.x.org", y.org) or host.name endswith .evil or evt.arg.flags contains O_TRUNC or body.names pmatch (/q))`))
	e := s.NewEngine(family())
	events := []*bodycam.Event{openEvent(), connectEvent()}
	events[0].PathGiven = "../root/.ssh/id_rsa"
	for _, ev := range events {
		e.Event(ev)
	}
	n := testing.AllocsPerRun(2000, func() {
		for _, ev := range events {
			if e.Event(ev) != nil {
				t.Fatal("a match")
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a pair of events", n)
	}
}

func TestHostileProcessTree(t *testing.T) {
	tb := NewTable()
	s := load(t, ruleOf("evt.type=openat and proc.aname = zzz"))
	e := s.NewEngine(tb)
	for i := int32(1); i < 50000; i++ {
		e.Event(&bodycam.Event{Type: bodycam.TypeFork, Proc: id(i), Child: id(i + 1)})
	}
	for range 1000 {
		if e.Event(&bodycam.Event{Type: bodycam.TypeOpen, Proc: id(50000), Path: "/x"}) != nil {
			t.Fatal("match")
		}
	}
	for i := int32(0); i < maxProcesses+10; i++ {
		tb.Fold(&bodycam.Event{Type: bodycam.TypeExit, Proc: id(i + 1)})
	}
	if len(tb.procs) > maxProcesses {
		t.Errorf("%d processes are kept", len(tb.procs))
	}
}

// isClean says of every path what clean would make of it.
func TestIsClean(t *testing.T) {
	parts := []string{"", ".", "..", "a", ".a", "..a", "a.", "..."}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				for _, p := range []string{"/" + a, "/" + a + "/" + b, "/" + a + "/" + b + "/" + c} {
					buf := []byte(p)
					if is, want := isClean(p), string(buf[:clean(buf)]) == p; is != want {
						t.Errorf("%q is clean: %v, want %v", p, is, want)
					}
				}
			}
		}
	}
}
