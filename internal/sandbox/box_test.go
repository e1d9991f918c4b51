//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestUsersAndEnvironment(t *testing.T) {
	needRoot(t)
	t.Setenv("SECRET_OF_THE_HOST", "1")
	b := testBox(t, func(c *Config) { c.Hostname = "workbench" })
	r := run(t, b, Cmd{Argv: []string{"/usr/bin/env"}, Env: []string{"ONLY=this", "PATH=/usr/bin"}})
	if r.out != "ONLY=this\nPATH=/usr/bin\n" {
		t.Errorf("environment is %q", r.out)
	}
	for _, c := range []struct{ user, want string }{
		{"", "1000:1000 /home/agent workbench\n"},
		{"root", "0:0 /root workbench\n"},
		{"nobody", "65534:65534 / workbench\n"},
		{"4242:17", "4242:17 / workbench\n"},
	} {
		r := run(t, b, Cmd{Argv: []string{"sh", "-c", "echo $(id -u):$(id -g) $(pwd) $(hostname)"}, User: c.user})
		if r.out != c.want {
			t.Errorf("user %q: got %q %q, want %q", c.user, r.out, r.err, c.want)
		}
	}
	if _, err := b.Start(t.Context(), Cmd{Argv: []string{"id"}, User: "mallory"}); err == nil || !strings.Contains(err.Error(), "mallory") {
		t.Errorf("unknown user: %v", err)
	}
}

func TestRootInsideIsNobodyOutside(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	r := run(t, b, Cmd{User: "root", Argv: []string{"sh", "-c", "touch /etc/x /root/y && chown 5:6 /etc/x && stat -c %u:%g /etc/x && touch /usr/x"}})
	if !strings.HasPrefix(r.out, "5:6\n") || !strings.Contains(r.err, "Read-only") {
		t.Errorf("got %q %q", r.out, r.err)
	}
	p, err := b.Start(t.Context(), Cmd{User: "root", Argv: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.HostPID()))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Uid:\t%d\t", b.HostUID(0)); !strings.Contains(string(status), want) || b.HostUID(0) < 1<<16 {
		t.Errorf("want %q in %s", want, status)
	}
	if pids, err := b.Procs(GroupAgent); err != nil || len(pids) != 1 || pids[0] != p.HostPID() {
		t.Errorf("processes of the agent's cgroup are %v, %v; want %d", pids, err, p.HostPID())
	}
	if err := b.Kill(t.Context(), GroupAgent); err != nil {
		t.Fatal(err)
	}
	if st, _ := p.Wait(); st.Signal != syscall.SIGKILL || st.Code != -1 {
		t.Errorf("status %+v", st)
	}
}

func TestStartErrors(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	if err := b.WriteFile(t.Context(), "/home/agent/script", []byte("#!/no/such/sh\n"), CopyOpts{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if err := b.WriteFile(t.Context(), "/home/agent/plain", []byte("x"), CopyOpts{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cmd   Cmd
		text  string
		errno error
	}{
		{Cmd{Argv: []string{"no-such-agent"}}, `start "no-such-agent": there is no such program in the box`, unix.ENOENT},
		{Cmd{Argv: []string{"/home/agent/script"}}, `its interpreter "/no/such/sh" isn't`, unix.ENOENT},
		{Cmd{Argv: []string{"/home/agent/plain"}}, "permission denied", unix.EACCES},
		{Cmd{Argv: []string{"/usr"}}, "is a directory", unix.EACCES},
		{Cmd{Argv: []string{"id"}, Dir: "/nowhere"}, `directory "/nowhere" in the box`, unix.ENOENT},
		{Cmd{Argv: []string{"id", "a\x00b"}}, "NUL", nil},
		{Cmd{Argv: []string{"id", strings.Repeat("x", 200_000)}}, "argument list too long", unix.E2BIG},
	} {
		_, err := b.Start(t.Context(), c.cmd)
		if err == nil || !strings.Contains(err.Error(), c.text) || c.errno != nil && !errors.Is(err, c.errno) {
			t.Errorf("%.40q: got error %v, want %q", c.cmd.Argv, err, c.text)
		}
	}
	if r := sh(t, b, "echo still here"); r.out != "still here\n" {
		t.Errorf("after failed starts: %+v", r)
	}
}

func TestBytesSurvive(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	odd := "\xff\xfe\n\"'"
	r := run(t, b, Cmd{Argv: []string{"/usr/bin/printf", "%s|%s", odd, ""}, Stdin: strings.NewReader("x")})
	if r.out != odd+"|" {
		t.Errorf("got %q", r.out)
	}
	r = run(t, b, Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("0123456789", 100_000))})
	if len(r.out) != 1_000_000 {
		t.Errorf("cat gave %d bytes", len(r.out))
	}
}

// An agent that prints without end is cut off cleanly, and doesn't notice.
func TestOutputLimit(t *testing.T) {
	needRoot(t)
	b := testBox(t, func(c *Config) { c.Limits.OutputBytes = 1000 })
	var out strings.Builder
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"head", "-c", "50000000", "/dev/zero"}, Env: []string{"PATH=/usr/bin"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	st, _ := p.Wait()
	if st.Code != 0 || st.Err != nil || out.Len() != 1000 || p.OutputDropped() != 50_000_000-1000 {
		t.Errorf("status %+v, %d bytes kept, %d dropped", st, out.Len(), p.OutputDropped())
	}
}

// Wait doesn't wait for a daemon that keeps the output open, and the daemon isn't hurt by that.
func TestDaemonKeepsOutput(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	r := sh(t, b, "(while echo tick; do sleep 0.05; done; touch /tmp/hurt) & echo started")
	if !strings.Contains(r.out, "started\n") {
		t.Fatalf("got %+v", r)
	}
	time.Sleep(300 * time.Millisecond)
	if _, err := b.stat("/tmp/hurt"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the daemon's output was closed: %v", err)
	}
	pids, err := b.Procs(GroupAgent)
	if err != nil || len(pids) == 0 {
		t.Errorf("daemon is gone: %v %v", pids, err)
	}
}

func TestGroupsAreSeparate(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	agent, err := b.Start(t.Context(), Cmd{Argv: []string{"sh", "-c", "while :; do echo x >>/tmp/n; sleep 0.01; done"}, Env: []string{"PATH=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		st, err := b.stat("/tmp/n")
		if err != nil {
			return 0
		}
		return st.Size
	}
	for size() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := b.Freeze(t.Context(), GroupAgent); err != nil {
		t.Fatal(err)
	}
	before := size()
	if r := run(t, b, Cmd{Argv: []string{"sleep", "0.2"}, Group: GroupVerify}); r.status.Code != 0 {
		t.Errorf("verify while the agent is frozen: %+v", r)
	}
	if after := size(); after != before {
		t.Errorf("a frozen agent wrote %d bytes", after-before)
	}
	if err := b.Thaw(t.Context(), GroupAgent); err != nil {
		t.Fatal(err)
	}
	for size() == before {
		time.Sleep(time.Millisecond)
	}
	if err := b.Kill(t.Context(), GroupAgent); err != nil {
		t.Fatal(err)
	}
	agent.Wait()
	if pids, err := b.Procs(GroupAgent); err != nil || len(pids) != 0 {
		t.Errorf("after Kill: %v %v", pids, err)
	}
}

func TestLimits(t *testing.T) {
	needRoot(t)
	b := testBox(t, func(c *Config) {
		c.Limits = Limits{MemoryBytes: 64 << 20, Pids: 20, CPUs: 0.5, DiskBytes: 8 << 20, Inodes: 600}
	})
	if w := b.Weaker(); len(w) != 0 {
		t.Fatalf("weaker: %q", w)
	}
	if r := sh(t, b, "head -c 20000000 /dev/zero >/tmp/big"); !strings.Contains(r.err, "No space left") {
		t.Errorf("disk: %+v", r)
	}
	if r := sh(t, b, "rm /tmp/big; i=0; while : >/tmp/f$i; do i=$((i+1)); done; rm /tmp/f*"); !strings.Contains(r.err, "No space left") {
		t.Errorf("inodes: %+v", r)
	}
	if r := sh(t, b, "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i+1)); done; wait"); !strings.Contains(r.err, "annot fork") {
		t.Errorf("pids: %+v", r)
	}
	r := run(t, b, Cmd{Argv: []string{"python3", "-c", "x = bytearray(200 << 20); print(len(x))"}})
	if r.status.Signal != syscall.SIGKILL {
		t.Errorf("memory: %+v", r)
	}
	if n, err := b.OOMKills(GroupAgent); err != nil || n != 1 {
		t.Errorf("%d processes ended for want of memory, %v", n, err)
	}
	if n, err := b.OOMKills(GroupVerify); err != nil || n != 0 {
		t.Errorf("in another group: %d, %v", n, err)
	}
	start := time.Now()
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"sh", "-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done"}, Env: []string{"PATH=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	_, u := p.Wait()
	if wall, cpu := time.Since(start), u.User+u.System; cpu > 300*time.Millisecond && float64(cpu) > 0.75*float64(wall) {
		t.Errorf("cpu: used %v in %v with a limit of half a CPU", cpu, wall)
	}
	if r := sh(t, b, "echo fine"); r.out != "fine\n" {
		t.Errorf("after all limits were hit: %+v", r)
	}
}

func TestNoNetwork(t *testing.T) {
	needRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := testBox(t, nil)
	port := l.Addr().(*net.TCPAddr).Port
	r := run(t, b, Cmd{Argv: []string{"python3", "-c", fmt.Sprintf(`
import socket
for a in [("127.0.0.1", %d), ("192.0.2.1", 80)]:
    try: socket.create_connection(a, 2); print("open")
    except OSError as e: print(e.errno)
`, port)}})
	if r.out != fmt.Sprintf("%d\n%d\n", unix.ECONNREFUSED, unix.ENETUNREACH) {
		t.Errorf("got %q %q", r.out, r.err)
	}
}

func TestForwardPort(t *testing.T) {
	needRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); b, _ := io.ReadAll(c); c.Write([]byte("heard " + string(b))) }()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	b := testBox(t, func(c *Config) { c.Network.ForwardPorts = []uint16{uint16(port)} })
	r := run(t, b, Cmd{Argv: []string{"python3", "-c", fmt.Sprintf(`
import socket
s = socket.create_connection(("localhost", %d), 5); s.sendall(b"hello"); s.shutdown(1); print(s.recv(99).decode())
`, port)}})
	if r.out != "heard hello\n" {
		t.Errorf("got %+v", r)
	}
}

const netClient = `
import socket, struct, sys
def tcp(family, addr, text):
    s = socket.socket(family); s.settimeout(5); s.connect(addr); s.sendall(text); s.shutdown(1)
    print(s.recv(200).decode()); s.close()
tcp(socket.AF_INET, ("192.0.2.7", 443), b"one")
tcp(socket.AF_INET6, ("2001:db8::7", 80), b"two")
tcp(socket.AF_INET, ("named", 8080), b"three")
for family, addr in [(socket.AF_INET, "9.9.9.9"), (socket.AF_INET6, "2001:db8::53"), (socket.AF_INET, "10.203.0.1")]:
    u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(5); u.connect((addr, 53)); u.send(b"ask"); print(u.recv(99).decode())
tcp(socket.AF_INET, ("9.9.9.9", 53), b"dns over tcp")
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for a in [("192.0.2.7", 443), ("192.0.2.7", 123)]:
    try: print(u.sendto(b"quic", a))
    except OSError as e: print(e.errno)
l = socket.socket(); l.bind(("127.0.0.1", 7777)); l.listen(1)
c = socket.create_connection(("127.0.0.1", 7777), 5); print("own loopback")
l = socket.socket(); l.bind(("0.0.0.0", 7778)); l.listen(1)
c = socket.create_connection((socket.gethostname(), 7778), 5); print("own address")
for a in "127.0.0.1", socket.gethostname(): tcp(socket.AF_INET, (a, int(sys.argv[1])), b"x")
tcp(socket.AF_INET6, ("::1", int(sys.argv[1])), b"x")
`

func TestProxiedNetwork(t *testing.T) {
	needRoot(t)
	b := testBox(t, func(c *Config) {
		c.Network.Mode = NetProxied
		c.Hosts = map[string]netip.Addr{"named": netip.MustParseAddr("198.51.100.9")}
	})
	tcp, dns, dnsTCP, err := b.NetListeners()
	if err != nil {
		t.Fatal(err)
	}
	answer := func(c net.Conn, what string) {
		defer c.Close()
		text, _ := io.ReadAll(c)
		to, err := OriginalDst(c.(*net.TCPConn))
		if errors.Is(err, ErrDirect) {
			fmt.Fprint(c, "direct")
			return
		}
		if err != nil {
			t.Errorf("original destination: %v", err)
		}
		fmt.Fprintf(c, "%s %s to %s", what, text, to)
	}
	go func() {
		for {
			c, err := tcp.AcceptTCP()
			if err != nil {
				return
			}
			answer(c, "tcp")
		}
	}()
	go func() {
		for {
			c, err := dnsTCP.Accept()
			if err != nil {
				return
			}
			answer(c, "dns")
		}
	}()
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := dns.ReadFrom(buf)
			if err != nil {
				return
			}
			dns.WriteTo([]byte("answer to "+string(buf[:n])), from)
		}
	}()
	r := run(t, b, Cmd{Argv: []string{"python3", "-c", netClient, fmt.Sprint(tcp.Addr().(*net.TCPAddr).Port)}})
	want := `tcp one to 192.0.2.7:443
tcp two to [2001:db8::7]:80
tcp three to 198.51.100.9:8080
answer to ask
answer to ask
answer to ask
dns dns over tcp to 9.9.9.9:53
1
1
own loopback
own address
direct
direct
direct
`
	if r.out != want {
		t.Errorf("got\n%s\n%s\nwant\n%s", r.out, r.err, want)
	}
	if n, err := b.DroppedPackets(t.Context()); err != nil || n != 2 {
		t.Errorf("dropped packets: %d, %v; want 2", n, err)
	}
}

func TestCloseTwiceAndReuse(t *testing.T) {
	needRoot(t)
	id, dir := testID(t), filepath.Join(t.TempDir(), "s")
	for range 2 {
		b, err := Create(t.Context(), Config{ID: id, StateDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Create(t.Context(), Config{ID: id, StateDir: dir + "2"}); err == nil || !strings.Contains(err.Error(), "exists already") {
			t.Errorf("second box of one ID: %v", err)
		}
		cg := b.Cgroup(GroupAgent)
		p, err := b.Start(t.Context(), Cmd{Argv: []string{"sleep", "60"}, Env: []string{"PATH=/usr/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		if st, _ := p.Wait(); !errors.Is(st.Err, ErrClosed) && st.Signal != syscall.SIGKILL {
			t.Errorf("process of a closed box: %+v", st)
		}
		if _, err := b.Start(t.Context(), Cmd{Argv: []string{"id"}}); err == nil {
			t.Error("a closed box started a command")
		}
		for _, p := range []string{dir, cg, filepath.Dir(cg)} {
			if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", p, err)
			}
		}
	}
}

func TestContextEndsCreate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, err := Create(ctx, Config{ID: testID(t), StateDir: filepath.Join(t.TempDir(), "s")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", b, err)
	}
}

// Root inside does what package managers do: unpack with owners and set-id bits, give up its user, run scripts.
func TestRootInstallsPackages(t *testing.T) {
	needRoot(t)
	b := testBox(t, func(c *Config) { c.Base.Writable = true })
	const script = `set -e
mkdir -p /tmp/p/DEBIAN /tmp/p/usr/local/bin /tmp/p/var/games /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers
touch /var/lib/dpkg/status /var/lib/dpkg/available
printf 'Package: probe\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' >/tmp/p/DEBIAN/control
printf '#!/bin/sh\nid -u >/var/games/postinst\n' >/tmp/p/DEBIAN/postinst
printf '#!/bin/sh\necho probe\n' >/tmp/p/usr/local/bin/probe
chmod 755 /tmp/p/DEBIAN/postinst; chown 0:50 /tmp/p/usr/local/bin/probe; chmod 2755 /tmp/p/usr/local/bin/probe; chown 5:60 /tmp/p/var/games
dpkg-deb -b /tmp/p /tmp/p.deb >/dev/null
dpkg -i --force-all --force-not-root /tmp/p.deb >/dev/null
stat -c '%a %u:%g' /usr/local/bin/probe /var/games; cat /var/games/postinst; probe
python3 -c 'import os; os.setgroups([65534]); os.setresgid(65534,65534,65534); os.setresuid(42,42,42); print(os.getuid(), os.getgroups())'
`
	r := run(t, b, Cmd{User: "root", Group: GroupSetup, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})
	if want := "2755 0:50\n755 5:60\n0\nprobe\n42 [65534]\n"; r.out != want {
		t.Errorf("got %q %q, want %q", r.out, r.err, want)
	}
}

func TestManyAtOnce(t *testing.T) {
	needRoot(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			b, err := Create(t.Context(), Config{ID: fmt.Sprintf("%s-%d", testID(t), i), StateDir: filepath.Join(t.TempDir(), "s"), Limits: Limits{Pids: 200}})
			if err != nil {
				t.Error(err)
				return
			}
			var cmds sync.WaitGroup
			for k := range 20 {
				cmds.Go(func() {
					var out strings.Builder
					p, err := b.Start(t.Context(), Cmd{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", k, k)}, Group: groups[k%3], Stdout: &out})
					if err != nil {
						t.Error(err)
						return
					}
					if st, _ := p.Wait(); st.Code != k || out.String() != fmt.Sprintf("%d\n", k) {
						t.Errorf("command %d: %+v %q", k, st, out.String())
					}
				})
			}
			cmds.Wait()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A start whose caller gave up leaves no process behind.
func TestAbandonedStart(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond)
		p, err := b.Start(ctx, Cmd{Argv: []string{"/bin/sleep", "1000"}})
		if err == nil {
			p.Kill()
			p.Wait()
		}
		cancel()
	}
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		pids, err := b.Procs(GroupAgent)
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", pids)
		}
	}
}

// Programs that agents use run under the strict filter.
func TestStrictRunsRealPrograms(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	for _, c := range []struct{ program, script, want string }{
		{"git", "git init -q r && cd r && git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m m && git log --format=%s", "m\n"},
		{"node", `node -e 'require("child_process").exec("echo child", (e, o) => process.stdout.write(o))'`, "child\n"},
		{"node", `node -e 'new (require("worker_threads").Worker)("console.log(1)", {eval: true})'`, "1\n"},
		{"python3", `python3 -c 'import subprocess, threading, multiprocessing as m; t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); print(m.Pool(2).map(abs, [-1, -2]), subprocess.run(["echo", "x"], capture_output=True).stdout)'`, "1\n[1, 2] b'x\\n'\n"},
		{"cc", `printf '#include <stdio.h>\nint main() { puts("compiled"); }' >a.c && cc a.c && ./a.out`, "compiled\n"},
		{"perl", `perl -e 'print join ",", map { $_ * 2 } 1..3'`, "2,4,6"},
		{"bash", `bash -c 'diff <(echo a) <(echo a) && echo same'`, "same\n"},
		{"java", `java -version 2>&1 | grep -c Runtime`, "1\n"},
	} {
		if r := sh(t, b, "command -v "+c.program); r.out == "" {
			t.Logf("%s is not installed", c.program)
			continue
		}
		if r := sh(t, b, c.script); r.out != c.want {
			t.Errorf("%s: got %q %q, want %q", c.program, r.out, r.err, c.want)
		}
	}
}

// Boxes come and go without files or goroutines staying behind in the recorder.
func TestNothingLeaks(t *testing.T) {
	count := func() (files, goroutines int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries), runtime.NumGoroutine()
	}
	once := func(i int) {
		b, err := Create(t.Context(), Config{ID: fmt.Sprintf("%s-%d", testID(t), i), StateDir: filepath.Join(t.TempDir(), "s"),
			Network: Network{Mode: NetProxied, ForwardPorts: []uint16{4242}}})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, argv := range [][]string{{"/bin/true"}, {"/no/such"}, {"/bin/echo", "x"}} {
			if p, err := b.Start(t.Context(), Cmd{Argv: argv, Stdin: strings.NewReader("x"), Stdout: &out, Stderr: &out}); err == nil {
				p.Wait()
			}
		}
		if _, _, err := b.CopyOut(t.Context(), "/etc", filepath.Join(t.TempDir(), "o"), CopyLimits{}); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	once(0)
	files, goroutines := count()
	for i := range 5 {
		once(i + 1)
	}
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f, g := count()
		if f <= files && g <= goroutines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d files and %d goroutines, before %d and %d", f, g, files, goroutines)
		}
	}
}

// One writer for both streams gets what the command wrote, in its order.
func TestOneWriterForBoth(t *testing.T) {
	b := testBox(t, nil)
	var out strings.Builder
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"/bin/sh", "-c", "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if p.Wait(); out.String() != "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestVeryManyArguments(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	argv := []string{"/usr/bin/printf", "%.0s"}
	for range 100_000 {
		argv = append(argv, "abcdef")
	}
	var out strings.Builder
	p, err := b.Start(t.Context(), Cmd{Argv: append([]string{"/bin/sh", "-c", `echo $# "$1"`, "name", ""}, argv...), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if p.Wait(); out.String() != "100003 \n" {
		t.Errorf("got %q", out.String())
	}
}

// A tracer can take hold before the program runs, and its filter is in force from the first instruction.
func TestAttach(t *testing.T) {
	attached := 0
	b := testBox(t, nil)
	// getcwd is refused with EDOM, everything else allowed.
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETCWD, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EDOM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	var out strings.Builder
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"python3", "-c", "import os\ntry: os.getcwd()\nexcept OSError as e: print(e.errno)"},
		Env: []string{"PATH=/usr/bin"}, Stdout: &out, Filter: filter, Attach: func(pid int) error {
			attached = pid
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || !strings.Contains(string(stat), ") T ") {
				t.Errorf("the process is not stopped: %s, %v", stat, err)
			}
			// As a tracer does; it also shows that the caller may trace the process, whatever its user.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if _, _, e := syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0); e != 0 {
				return e
			}
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				return err
			}
			var ws unix.WaitStatus
			for { // each stop, of the group and of the signal, is let go
				if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
					return err
				}
				if ws.StopSignal() == unix.SIGCONT {
					return unix.PtraceDetach(pid)
				}
				if err := unix.PtraceCont(pid, 0); err != nil {
					return err
				}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if st, _ := p.Wait(); st.Code != 0 || out.String() != fmt.Sprintf("%d\n", unix.EDOM) || attached != p.HostPID() && p.HostPID() != 0 {
		t.Errorf("%+v %q, attached to %d of %d", st, out.String(), attached, p.HostPID())
	}
	// What the tracer was to refuse is refused by nobody, and fails all the same.
	out.Reset()
	script := "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(165, 0, 0, 0, 0, 0), ctypes.get_errno())"
	goOn := func(pid int) error { return unix.Kill(pid, unix.SIGCONT) }
	p, err = b.Start(t.Context(), Cmd{Argv: []string{"python3", "-c", script}, Env: []string{"PATH=/usr/bin"}, Stdout: &out, Attach: goOn, Refuses: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.Wait(); out.String() != fmt.Sprintf("-1 %d\n", unix.ENOSYS) {
		t.Errorf("a mount that its tracer was to refuse, without a tracer: %q", out.String())
	}
	if _, err := b.Start(t.Context(), Cmd{Argv: []string{"true"}, Refuses: true}); err == nil {
		t.Error("nobody refuses what the box's filter does, and a command starts")
	}
	refused := errors.New("no tracer today")
	_, err = b.Start(t.Context(), Cmd{Argv: []string{"sleep", "100"}, Env: []string{"PATH=/usr/bin"}, Attach: func(pid int) error { attached = pid; return refused }})
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	for deadline := time.Now().Add(3 * time.Second); unix.Kill(attached, 0) != unix.ESRCH; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a command without its tracer lives on")
		}
	}
	_, err = b.Start(t.Context(), Cmd{Argv: []string{"/no/such"}, Attach: func(pid int) error { return unix.Kill(pid, unix.SIGCONT) }})
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("missing program: %v", err)
	}
}
