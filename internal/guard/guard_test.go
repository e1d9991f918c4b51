//go:build linux

package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/guard"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	if spec := os.Getenv(crashEnv); spec != "" {
		crashHelper(spec)
	}
	os.Exit(m.Run())
}

func needRoot(t testing.TB) {
	t.Helper()
	if err := guard.Available(); err != nil {
		t.Skip(err)
	}
}

// box is a sandbox with a guard.
type box struct {
	*sandbox.Box
	g *guard.Guard
}

// guarded makes a box in which setup has run, and guards it.
func guarded(t testing.TB, setup string, o guard.Options, change func(*sandbox.Config)) *box {
	t.Helper()
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	c := sandbox.Config{ID: fmt.Sprintf("guard-%d-%d", os.Getpid(), boxes.Add(1)), StateDir: filepath.Join(t.TempDir(), "state"),
		Keep: []*os.File{g.File()}, Agent: sandbox.User{Name: "root", Home: "/root"}, Base: sandbox.Base{Kind: sandbox.BaseHost, Writable: true}}
	if change != nil {
		change(&c)
	}
	b, err := sandbox.Create(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	x := &box{b, g}
	if out := x.sh(t, setup); setup != "" && strings.Contains(out, "status") {
		t.Fatalf("setup: %s", out)
	}
	return x
}

var boxes atomic.Uint64

func (b *box) watch(t testing.TB) {
	t.Helper()
	if err := b.g.Watch(b.InitPID()); err != nil {
		t.Fatal(err)
	}
}

// sh runs a script and returns all that it printed, with its status where that isn't 0.
func (b *box) sh(t testing.TB, script string) string { return b.run(t, "sh", "-c", script) }

func (b *box) run(t testing.TB, argv ...string) string {
	t.Helper()
	var out lockedBuffer
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	p, err := b.Start(ctx, sandbox.Cmd{Argv: argv, Env: []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}, Stdout: &out, Stderr: &out})
	if err != nil {
		return err.Error() + " status start"
	}
	defer time.AfterFunc(5*time.Minute, func() { p.Kill() }).Stop()
	st, _ := p.Wait()
	if st.Code != 0 || st.Signal != 0 || st.Err != nil {
		fmt.Fprintf(&out, "status %d %v %v", st.Code, st.Signal, st.Err)
	}
	return out.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// keys refuses reads of what lies below /root/.ssh, by the names that a survey has found too.
type keys struct {
	mu    sync.Mutex
	names map[[2]uint64]bool
	seen  []guard.Access
	e     bodycam.Event
}

func (k *keys) survey(t testing.TB, b *box) {
	t.Helper()
	k.names = map[[2]uint64]bool{}
	_, err := guard.Survey(t.Context(), b.InitPID(), b.HostUID(0), func(p string) guard.Want {
		if strings.HasPrefix(p, "/root/.ssh/") {
			return guard.Always
		}
		return guard.Nothing
	},
		func(f guard.Found) error { k.names[[2]uint64{f.Dev, f.Ino}] = true; return nil })
	if err != nil {
		t.Fatal(err)
	}
}

func (k *keys) allow(a *guard.Access) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.Contains(a.Path, "secret") || strings.HasPrefix(a.Path, "/root/.ssh/") || k.names[[2]uint64{a.Dev, a.Ino}] {
		k.seen = append(k.seen, *a)
		return !a.Any(&k.e, func(e *bodycam.Event) bool { return e.Access&(bodycam.Read|bodycam.Exec) != 0 })
	}
	return true
}

const makeKeys = "umask 077; mkdir -p /root/.ssh /tmp/d && echo KEYMATERIAL > /root/.ssh/id && echo fine > /tmp/fine && chmod 644 /tmp/fine"

// However the file is named and by whatever call it is opened, it is refused, and nothing else is.
func TestEveryWayToAFile(t *testing.T) {
	needRoot(t)
	k := &keys{}
	b := guarded(t, makeKeys, guard.Options{Allow: k.allow}, nil)
	k.survey(t, b)
	b.watch(t)
	python := func(code string) string {
		return "python3 - <<'EOF'\nimport os,sys,ctypes,threading,socket,mmap\n" + code + "\nEOF"
	}
	for name, script := range map[string]string{
		"plain":            "cat /root/.ssh/id",
		"symbolic link":    "ln -s /root/.ssh/id /tmp/l1; cat /tmp/l1",
		"folder link":      "ln -s /root/.ssh /tmp/l2; cat /tmp/l2/id",
		"hard link":        "ln /root/.ssh/id /tmp/l3 && cat /tmp/l3",
		"renamed":          "mv /root/.ssh/id /tmp/l4 && { cat /tmp/l4; mv /tmp/l4 /root/.ssh/id; }",
		"renamed folder":   "mv /root/.ssh /root/x && { cat /root/x/id; mv /root/x /root/.ssh; }",
		"proc root":        "cat /proc/self/root/root/.ssh/id",
		"relative":         "cd /root/.ssh && cat ./id",
		"dots":             "cat /tmp/../root/./.ssh/../.ssh/id",
		"copied":           "cp /root/.ssh/id /tmp/copy; cat /tmp/copy",
		"a child's child":  "sh -c 'sh -c \"cat /root/.ssh/id\"'",
		"by redirection":   "read x < /root/.ssh/id; echo $x",
		"folder fd":        python("d=os.open('/root/.ssh',os.O_RDONLY|os.O_DIRECTORY)\nprint(os.read(os.open('id',os.O_RDONLY,dir_fd=d),99))"),
		"reference":        python("p=os.open('/root/.ssh/id',os.O_PATH)\nprint(os.read(os.open('/proc/self/fd/%d'%p,os.O_RDONLY),99))"),
		"removed":          python("import shutil\nos.link('/root/.ssh/id','/root/.ssh/id2')\np=os.open('/root/.ssh/id2',os.O_PATH)\nos.unlink('/root/.ssh/id2')\nprint(os.read(os.open('/proc/self/fd/%d'%p,os.O_RDONLY),99))"),
		"read and write":   python("print(os.read(os.open('/root/.ssh/id',os.O_RDWR),99))"),
		"openat2":          python("L=ctypes.CDLL(None,use_errno=True)\nhow=(ctypes.c_uint64*3)(0,0,0)\nf=L.syscall(437,-100,b'/root/.ssh/id',how,24)\nprint(f,os.strerror(ctypes.get_errno()))\nprint(os.read(f,99)) if f>=0 else sys.exit(1)"),
		"mapped":           python("f=open('/root/.ssh/id','rb')\nprint(mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)[:])"),
		"a thread":         python("r=[]\ndef f():\n  try: r.append(open('/root/.ssh/id').read())\n  except OSError as e: r.append(str(e))\nt=threading.Thread(target=f)\nt.start();t.join()\nprint(r)\nsys.exit(0 if 'KEY' in r[0] else 1)"),
		"as another user":  python("os.chmod('/root',0o755);os.chmod('/root/.ssh',0o755);os.chmod('/root/.ssh/id',0o644);os.setuid(1234)\nprint(open('/root/.ssh/id').read())"),
		"executed":         "chmod 755 /root/.ssh/id; /root/.ssh/id",
		"another process'": "sleep 5 & cat /proc/$!/root/root/.ssh/id",
		"through its cwd":  "cd /root/.ssh; cat /proc/self/cwd/id",
	} {
		out := b.sh(t, script)
		if strings.Contains(out, "KEYMATERIAL") || !strings.Contains(out, "Operation not permitted") || strings.Contains(out, "Traceback") && !strings.Contains(out, "PermissionError") {
			t.Errorf("%s: %q", name, out)
		}
		if out := b.sh(t, "cat /tmp/fine; ls /root/.ssh; echo more >> /root/.ssh/id; wc -l < /etc/passwd > /dev/null"); out != "fine\nid\n" {
			t.Errorf("after %s: %q", name, out)
		}
	}
	st := b.g.Stats()
	if st.Refused < 20 || st.Asked < 10*st.Refused || st.Mounts < 5 || st.Slowest == 0 {
		t.Errorf("%+v", st)
	}
	if err := b.g.Err(); err != nil {
		t.Error(err)
	}
	t.Logf("%+v", st)
}

// What isn't an open isn't asked about: a descriptor that was there before, also one that is passed on.
func TestOpenedBefore(t *testing.T) {
	needRoot(t)
	k := &keys{}
	b := guarded(t, makeKeys, guard.Options{Allow: k.allow}, nil)
	k.survey(t, b)
	done := make(chan string)
	go func() {
		done <- b.sh(t, `python3 - <<'EOF'
import os,socket,time,array
a,c=socket.socketpair()
f=os.open('/root/.ssh/id',os.O_RDONLY)
open('/tmp/opened','w')
while not os.path.exists('/tmp/go'): time.sleep(.01)
if os.fork()==0:
  _,anc,_,_=c.recvmsg(1,socket.CMSG_SPACE(4))
  g=array.array('i',anc[0][2])[0]
  print('passed',os.read(g,99),flush=True); os._exit(0)
a.sendmsg([b'x'],[(socket.SOL_SOCKET,socket.SCM_RIGHTS,array.array('i',[f]))])
os.wait()
try: print(open('/proc/self/fd/%d'%f).read())
except OSError as e: print('opened again',e.strerror)
EOF`)
	}()
	waitFor(t, func() bool { _, err := b.Stat("/tmp/opened"); return err == nil })
	b.watch(t)
	b.sh(t, "touch /tmp/go")
	if out := <-done; !strings.Contains(out, "passed b'KEYMATERIAL") || !strings.Contains(out, "opened again Operation not permitted") {
		t.Error(out)
	}
}

func waitFor(t testing.TB, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it takes too long")
		}
	}
}

// Programs, scripts and their interpreters are asked about where they are executed, and not where something else loads
// them: that is an open.
func TestExecution(t *testing.T) {
	needRoot(t)
	var e bodycam.Event
	allow := func(a *guard.Access) bool {
		return !a.Any(&e, func(e *bodycam.Event) bool {
			return e.Type == bodycam.TypeExec && (strings.HasPrefix(e.Path, "/tmp/") || e.Path == "/usr/bin/perl")
		})
	}
	b := guarded(t, `cp /bin/true /tmp/prog; printf '#!/bin/sh\necho ran\n' > /tmp/script; printf '#!/tmp/prog\n' > /root/by; printf '#!/usr/bin/perl\n' > /root/pl; mkdir /root/bin; cp /bin/true /root/bin/ok; chmod 755 /tmp/* /root/*`,
		guard.Options{Allow: allow}, nil)
	b.watch(t)
	memfd := `python3 - <<'EOF'
import os
m=os.memfd_create('x',0); os.write(m,open('/tmp/prog','rb').read()); os.execv('/proc/self/fd/%d'%m,['x'])
EOF`
	for script, refused := range map[string]bool{
		"/tmp/prog": true, "/tmp/script": true, "/root/by": true, "/root/pl": true, "ln -s /tmp/prog /root/l && /root/l": true, "python3 -c 'import os; os.execve(os.open(\"/tmp/prog\",os.O_PATH),[\"x\"],{})'": true,
		"/root/bin/ok": false, "sh /tmp/script": false, "/lib64/ld-linux-x86-64.so.2 /tmp/prog": false, memfd: false, "cat /tmp/prog > /dev/null": false,
	} {
		out := b.sh(t, script)
		if refused != (strings.Contains(out, "Operation not permitted") || strings.Contains(out, "PermissionError")) || !refused && strings.Contains(out, "status") {
			t.Errorf("%s: %q", script, out)
		}
	}
	if out := b.run(t, "/tmp/prog"); !strings.Contains(out, "operation not permitted") {
		t.Errorf("the first program of all: %q", out)
	}
}

// What is asked about tells what can't be changed meanwhile.
func TestWhatIsKnown(t *testing.T) {
	needRoot(t)
	k := &keys{}
	b := guarded(t, makeKeys+"; mkdir /tmp/secret; cp /bin/cat '/tmp/secretcat (deleted)'; chmod 755 /tmp/secretcat*; ln -s id /root/.ssh/l", guard.Options{Allow: k.allow, Exe: true, User: true}, nil)
	b.watch(t)
	for _, c := range []struct {
		script string
		want   guard.Access
	}{
		{"cat /root/.ssh/l", guard.Access{Path: "/root/.ssh/id", Exe: "/usr/bin/cat", NR: 257, FlagsKnown: true}},
		{"ls /tmp/secret", guard.Access{Path: "/tmp/secret", Dir: true, Exe: "/usr/bin/ls", NR: 257, FlagsKnown: true, Flags: 0x90800}},
		{"echo x >> /tmp/secret2", guard.Access{Path: "/tmp/secret2", Exe: "/usr/bin/dash", NR: 257, FlagsKnown: true, Flags: 0x441}},
		{"'/tmp/secretcat (deleted)' /dev/null", guard.Access{Exec: true, Path: "/tmp/secretcat (deleted)", Exe: "/usr/bin/dash", NR: 59}},
		{"python3 -c 'import os; os.setresgid(7,8,9); os.setresuid(77,88,99); open(\"/tmp/secret2\")'", guard.Access{Path: "/tmp/secret2", NR: 257, FlagsKnown: true, Flags: 0x80000, UID: 77, GID: 7}},
	} {
		k.seen = nil
		b.sh(t, c.script)
		var got []string
		ok := false
		for _, a := range k.seen {
			if b.InsideUID(a.UID) != c.want.UID || b.InsideUID(a.GID) != c.want.GID || c.want.Exe == "" && !strings.HasPrefix(a.Exe, "/usr/bin/python3") {
				got = append(got, fmt.Sprintf("uid %d gid %d of %s", b.InsideUID(a.UID), b.InsideUID(a.GID), a.Exe))
				continue
			}
			ok = ok || a.Path == c.want.Path && a.NR == c.want.NR && a.Exec == c.want.Exec && a.FlagsKnown == c.want.FlagsKnown && a.Flags&^0x8000 == c.want.Flags && a.Dir == c.want.Dir &&
				(c.want.Exe == "" || a.Exe == c.want.Exe) && a.TID != 0 && a.Ino != 0
			got = append(got, fmt.Sprintf("%s exe %s nr %d flags %#x %t exec %t", a.Path, a.Exe, a.NR, a.Flags, a.FlagsKnown, a.Exec))
		}
		if !ok {
			t.Errorf("%s: %q", c.script, got)
		}
	}
}

// Where a decision can't be had the answer is no, from then on, and the recorder's own files still open.
func TestFailsClosed(t *testing.T) {
	needRoot(t)
	for name, allow := range map[string]func(*guard.Access) bool{
		"panic": func(a *guard.Access) bool {
			if strings.HasSuffix(a.Path, "/bad") {
				panic("no")
			}
			return true
		},
		"too slow": func(a *guard.Access) bool {
			if strings.HasSuffix(a.Path, "/bad") {
				time.Sleep(3 * time.Second)
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 2)
			b := guarded(t, "echo x > /tmp/bad; echo y > /tmp/good", guard.Options{Allow: allow, Failed: func(err error) { told <- err }, Patience: 200 * time.Millisecond}, nil)
			b.watch(t)
			out := b.sh(t, "read x < /tmp/good; echo $x; read x < /tmp/bad; read x < /tmp/good")
			if strings.Count(out, "Operation not permitted") != 2 || !strings.HasPrefix(out, "y\n") {
				t.Errorf("%q", out)
			}
			if out := b.sh(t, "true"); !strings.Contains(out, "operation not permitted") {
				t.Errorf("afterwards: %q", out)
			}
			if err := <-told; b.g.Err() == nil || len(told) > 0 {
				t.Error(err, b.g.Err())
			}
			if f, err := os.Open(fmt.Sprintf("/proc/%d/root/tmp/good", b.InitPID())); err != nil {
				t.Error(err)
			} else {
				f.Close()
			}
		})
	}
}

// Processes of the host that use the same files by the host's mounts, or look into the sandbox, aren't asked and don't wait.
func TestHostIsNotAsked(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("KEYMATERIAL"), 0o644); err != nil {
		t.Fatal(err)
	}
	blocked, release := make(chan bool, 1), make(chan bool)
	refuse := func(a *guard.Access) bool {
		if a.Path == "/data/secret" {
			select {
			case blocked <- true:
				<-release
			default:
			}
			return false
		}
		return true
	}
	b := guarded(t, "", guard.Options{Allow: refuse}, func(c *sandbox.Config) { c.Binds = []sandbox.Bind{{Host: dir, Box: "/data", ReadOnly: true}} })
	b.watch(t)
	out := make(chan string)
	go func() { out <- b.sh(t, "cat /data/secret") }()
	<-blocked // the guard is busy, and answers nobody
	for _, argv := range [][]string{{"cat", file}, {"sh", "-c", "cat " + file + " /usr/bin/true > /dev/null; /usr/bin/true; cat " + file}} {
		if got, err := hostRun(argv...); err != nil || got != "KEYMATERIAL" {
			t.Errorf("%q: %q, %v", argv, got, err)
		}
	}
	close(release)
	if got := <-out; !strings.Contains(got, "Operation not permitted") {
		t.Error(got)
	}
	// Into the sandbox itself: asked, since it is the sandbox's mount, and let.
	if got, err := hostRun("cat", fmt.Sprintf("/proc/%d/root/data/secret", b.InitPID())); err != nil || got != "KEYMATERIAL" {
		t.Errorf("%q, %v", got, err)
	}
}

// Guards of several sandboxes don't mix, and many threads get their answers.
func TestTwoAtOnce(t *testing.T) {
	needRoot(t)
	const loop = `python3 - <<'EOF'
import threading
n=[0,0]
def f():
  for i in range(400):
    try: open('/tmp/secret').close(); n[0]+=1
    except PermissionError: n[1]+=1
    open('/tmp/fine').close()
ts=[threading.Thread(target=f) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(n)
EOF`
	setup := "echo x > /tmp/secret; echo y > /tmp/fine"
	guessed := 0 // a thread that has asked may not sleep yet: what it does must be known all the same
	strict := guarded(t, setup, guard.Options{Allow: func(a *guard.Access) bool {
		if !a.Exec && !a.FlagsKnown {
			guessed++
		}
		return a.Path != "/tmp/secret"
	}}, nil)
	lax := guarded(t, setup, guard.Options{Allow: func(a *guard.Access) bool { return true }}, nil)
	strict.watch(t)
	lax.watch(t)
	var one, two string
	var wg sync.WaitGroup
	wg.Go(func() { one = strict.sh(t, loop) })
	wg.Go(func() { two = lax.sh(t, loop) })
	wg.Wait()
	if one != "[0, 3200]\n" || two != "[3200, 0]\n" {
		t.Errorf("%q and %q", one, two)
	}
	if guessed > 0 {
		t.Errorf("of %d opens it wasn't known how", guessed)
	}
	if n := strict.g.Stats(); n.Refused != 3200 || lax.g.Stats().Refused != 0 || n.Asked < 6400 {
		t.Errorf("%+v and %+v", n, lax.g.Stats())
	}
}

// Named pipes work as before, though the kernel opens each for the guard.
func TestNamedPipes(t *testing.T) {
	needRoot(t)
	b := guarded(t, "", guard.Options{Allow: func(*guard.Access) bool { return true }}, nil)
	b.watch(t)
	out := b.sh(t, `mkfifo /tmp/p; i=0; while [ $i -lt 100 ]; do
		if [ $((i % 2)) = 0 ]; then cat /tmp/p > /tmp/got & echo $i > /tmp/p || exit 9; wait; else echo $i > /tmp/p & cat /tmp/p > /tmp/got; wait; fi
		[ "$(cat /tmp/got)" = $i ] || { echo lost $i; exit 8; }
		i=$((i+1)); done`)
	if out != "" {
		t.Error(out)
	}
}

// A file of an image is known by what it becomes when it is renamed or linked.
func TestOverlay(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	out, err := hostRun("sh", "-c", "cd "+base+` && mkdir -p usr/bin root/.ssh tmp proc dev etc && ln -s usr/bin . &&
		for p in sh cat mv ln ls; do cp -L /usr/bin/$p usr/bin/; for l in $(ldd /usr/bin/$p | grep -o '/[^ ]*'); do mkdir -p .${l%/*}; cp -L $l .$l; done; done`)
	if err != nil {
		t.Fatal(out, err)
	}
	for _, n := range []string{"id", "id2", "id3"} {
		if err := os.WriteFile(filepath.Join(base, "root/.ssh", n), []byte("KEYMATERIAL\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k := &keys{}
	b := guarded(t, "", guard.Options{Allow: k.allow}, func(c *sandbox.Config) { c.Base = sandbox.Base{Kind: sandbox.BaseDir, Path: base} })
	k.survey(t, b)
	b.watch(t)
	for _, script := range []string{"cat /root/.ssh/id", "mv /root/.ssh/id /tmp/x; cat /tmp/x", "ln /root/.ssh/id2 /tmp/y; cat /tmp/y", "ln /tmp/y /tmp/z; mv /root/.ssh/id2 /tmp/w; cat /tmp/z /tmp/w", "mv /root/.ssh /root/s; cat /root/s/id3 /root/.ssh/id3"} {
		if out := b.sh(t, script); strings.Contains(out, "KEYMATERIAL") || !strings.Contains(out, "Operation not permitted") {
			t.Errorf("%s: %q", script, out)
		}
	}
}
