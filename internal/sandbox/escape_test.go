//go:build linux

package sandbox

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/cgroup"
)

//go:embed testdata/escape.py
var escapes string

// escapeCase is one attempt to get out. want is what must stop the ordinary user in a strict box; the others are given
// where they differ. "-" leaves the attempt out, where it is allowed inside and proves nothing.
type escapeCase struct {
	try         string
	args        []string
	want        string
	root        string // root inside, strict
	observe     string // ordinary user, observe
	rootObserve string
}

func (c *escapeCase) expect(mode Seccomp, root bool) string {
	pick := []string{c.want}
	switch {
	case mode == SeccompStrict && root:
		pick = []string{c.root, c.want}
	case mode == SeccompObserve && !root:
		pick = []string{c.observe, c.want}
	case mode == SeccompObserve && root:
		pick = []string{c.rootObserve, c.observe, c.root, c.want}
	}
	for _, p := range pick {
		if p != "" {
			return p
		}
	}
	return ""
}

func escapeCases(t *testing.T) []escapeCase {
	marker := filepath.Join(t.TempDir(), "marker")
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	socket := "bodycam-test-" + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", "@"+socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	key := 0x62630000 | os.Getpid()&0xffff
	shm, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(shm, unix.IPC_RMID, nil) })
	v1 := "EACCES" // it is mounted, and nothing in it can be written to
	if h, err := cgroup.Find(); err != nil {
		t.Fatal(err)
	} else if h.V1["memory"] == "" { // the controller is version 2's: there is nothing to mount
		v1 = "EPERM"
	}
	return []escapeCase{
		{try: "signal_recorder", args: []string{strconv.Itoa(os.Getpid())}, want: "ESRCH"},
		{try: "signal_init", want: "EPERM"},
		{try: "signal_init_thread", want: "EPERM"},
		{try: "ptrace_init", want: "EPERM"},
		{try: "ptrace_self_child", want: "EPERM", observe: "ok"},
		{try: "read_init_memory", want: "EPERM"},
		{try: "proc_of_init", want: "EACCES", root: "EACCES EPERM"},
		{try: "links_of_init", want: "EACCES"},
		{try: "programs_seen", want: "box-init python3"},
		{try: "mount_tmpfs", want: "EPERM", rootObserve: "ok"},
		{try: "mount_bind", want: "EPERM", rootObserve: "ok"},
		{try: "mount_new_api", want: "EPERM", observe: "-", rootObserve: "-"},
		{try: "mount_cgroup", want: "EPERM", rootObserve: "ok"},
		{try: "cgroup_write", want: "not mounted", rootObserve: "EACCES"},
		{try: "release_agent", want: "EPERM", rootObserve: v1},
		{try: "umount_masks", want: "EPERM", rootObserve: "EINVAL"},
		{try: "remount_usr", want: "EPERM"},
		{try: "fresh_proc", want: "EPERM", observe: "refused"},
		{try: "new_userns", want: "EPERM", observe: "ok"},
		{try: "clone_userns", want: "EPERM", observe: "-", rootObserve: "-"},
		{try: "clone3", want: "ENOSYS", observe: "-", rootObserve: "-"},
		{try: "make_device", want: "EPERM"},
		{try: "device_nodes", want: "ENOENT"},
		{try: "docker_socket", want: "ENOENT"},
		{try: "host_files", args: []string{marker, "/work", "/boot", "/etc/shadow", "/var/lib/dpkg", "/run/bodycam", "/sys/kernel", "/sys/fs/cgroup", "/root/.ssh"}, want: "EACCES ENOENT", root: "ENOENT"},
		{try: "abstract_socket", args: []string{socket}, want: "ECONNREFUSED"},
		{try: "sysv", args: []string{strconv.Itoa(key)}, want: "ENOENT"},
		{try: "kernel_settings", want: "EROFS"},
		{try: "sysrq", want: "masked"},
		{try: "kernel_secrets", want: "''"},
		{try: "open_files", want: "0 1 2"},
		{try: "tty_injection", want: "EPERM"},
		{try: "keyrings", want: "EPERM"},
		{try: "by_handle", want: "EPERM"},
		{try: "kernel_calls", want: "EPERM"},
		{try: "io_uring", want: "ENOSYS", observe: "-", rootObserve: "-"},
		{try: "x32", want: "ENOSYS"},
		{try: "raw_sockets", want: "EPERM"},
		{try: "odd_sockets", want: "EAFNOSUPPORT", observe: "EAFNOSUPPORT EPERM"},
		{try: "netlink_socket", want: "None"},
		{try: "change_network", want: "EPERM"},
		{try: "flush_nft", want: "EPERM"},
		{try: "chroot_out", args: []string{marker}, want: "-", root: "ENOENT box", rootObserve: "ENOENT box"},
		{try: "hostname", want: "EPERM"},
	}
}

func TestEscapes(t *testing.T) {
	needRoot(t)
	cases := escapeCases(t)
	for _, mode := range []Seccomp{SeccompStrict, SeccompObserve} {
		for _, user := range []string{"agent", "root"} {
			t.Run(fmt.Sprintf("%s-%s", mode, user), func(t *testing.T) {
				b := testBox(t, func(c *Config) { c.Seccomp = mode; c.Network.Mode = NetProxied })
				for _, c := range cases {
					want := c.expect(mode, user == "root")
					if want == "-" {
						continue
					}
					r := run(t, b, Cmd{User: user, Argv: append([]string{"python3", "-c", escapes, c.try}, c.args...)})
					if got := strings.TrimSpace(r.out); got != want {
						t.Errorf("%s: got %q, want %q\n%s", c.try, got, want, r.err)
					}
				}
				// Everything the user may signal dies; init and the box don't.
				run(t, b, Cmd{User: user, Argv: []string{"sh", "-c", "kill -9 -1"}})
				if r := sh(t, b, "echo alive"); r.out != "alive\n" {
					t.Errorf("after kill -9 -1: %+v", r)
				}
			})
		}
	}
}

// A program that belongs to root inside and has the set-uid bit gives nobody anything; nor do the host's.
func TestSetuidDoesNothing(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	const source = `#include <stdio.h>
#include <unistd.h>
int main() { printf("%d %d\n", (int)getuid(), (int)geteuid()); return 0; }`
	if err := b.WriteFile(t.Context(), "/opt/who.c", []byte(source), CopyOpts{Owner: "root"}); err != nil {
		t.Fatal(err)
	}
	if r := run(t, b, Cmd{User: "root", Argv: []string{"sh", "-c", "cd /opt && cc -o who who.c && chmod 4755 who && stat -c %a who"}}); r.out != "4755\n" {
		t.Fatalf("build: %+v", r)
	}
	if r := run(t, b, Cmd{Argv: []string{"/opt/who"}}); r.out != "1000 1000\n" {
		t.Errorf("a set-uid program ran as %q", r.out)
	}
	if r := sh(t, b, "mount 2>/dev/null; su -c id; true"); strings.Contains(r.out, "uid=0") {
		t.Errorf("su gave %q", r.out)
	}
}

// The 32-bit system call gate is shut in a strict box and open, but for what is always denied, in one that observes.
func TestOtherABI(t *testing.T) {
	needRoot(t)
	const source = `#include <stdio.h>
static long call(long nr, long a, long b) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "0"(nr), "b"(a), "c"(b), "d"(0) : "memory", "r8", "r9", "r10", "r11"); return r; }
int main() { /* getuid32, bpf, socketcall, socket: vsock, unix; ioctl TIOCSTI */
  printf("%ld %ld %ld %ld %d %ld\n", call(199, 0, 0), call(357, 0, 0), call(102, 1, 0), call(359, 40, 1), call(359, 1, 1) >= 0, call(54, 0, 0x5412)); return 0; }`
	for mode, want := range map[Seccomp]string{SeccompStrict: "-38 -38 -38 -38 0 -38\n", SeccompObserve: "1000 -1 -38 -97 1 -1\n"} {
		b := testBox(t, func(c *Config) { c.ID += string(mode); c.Seccomp = mode })
		if err := b.WriteFile(t.Context(), "/tmp/t.c", []byte(source), CopyOpts{}); err != nil {
			t.Fatal(err)
		}
		if r := sh(t, b, "cd /tmp && cc -o t t.c && ./t"); r.out != want {
			t.Errorf("%s: got %+v, want %q", mode, r, want)
		}
	}
}

func TestBoxesDontSeeEachOther(t *testing.T) {
	needRoot(t)
	proxied := func(n string) func(*Config) {
		return func(c *Config) { c.ID += n; c.Network.Mode = NetProxied }
	}
	a, b := testBox(t, proxied("a")), testBox(t, proxied("b"))
	if a.HostUID(0) == b.HostUID(0) {
		t.Error("two boxes share user ids")
	}
	const server = `
import os, socket, time
open("/tmp/of-a", "w").write("x")
s = socket.socket(); s.bind(("0.0.0.0", 7000)); s.listen()
u = socket.socket(socket.AF_UNIX); u.bind("\0of-a"); u.listen()
print("ready", flush=True)
time.sleep(60)`
	ready := make(chan struct{})
	p, err := a.Start(t.Context(), Cmd{Argv: []string{"python3", "-c", server}, Env: []string{"PATH=/usr/bin"}, Stdout: onWrite(func() { close(ready) })})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ready:
	case <-p.Done():
		t.Fatal("the first box's server ended")
	}
	r := run(t, b, Cmd{User: "root", Argv: []string{"python3", "-c", `
import os, socket
print(os.path.exists("/tmp/of-a"), [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())])
def tried(f):
    try: f(); return "open"
    except OSError as e: return e.errno
u = socket.socket(socket.AF_UNIX)
print(tried(lambda: socket.create_connection(("127.0.0.1", 7000), 2)), tried(lambda: socket.create_connection((socket.gethostname(), 7000), 2)), tried(lambda: u.connect("\0of-a")))
print(open("/proc/self/mountinfo").read().count("overlay"))`}})
	if want := fmt.Sprintf("False []\n%[1]d %[1]d %[1]d\n0\n", unix.ECONNREFUSED); r.out != want {
		t.Errorf("got %q %q, want %q", r.out, r.err, want)
	}
	select {
	case <-p.Done():
		t.Error("the first box's server ended")
	default:
	}
}

type onWrite func()

func (f onWrite) Write(b []byte) (int, error) { f(); return len(b), nil }
