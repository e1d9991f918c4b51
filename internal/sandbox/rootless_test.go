//go:build linux

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAsOrdinaryUser runs the tests that need no root, and those of TestRootless, as a user without any rights.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("is an ordinary user already: the others run as they are")
	}
	tmp, out := asOrdinaryUser(t, "^(TestHostBase|TestHostBaseDigest|TestRootless.*|TestKilled.*|TestContextEndsCreate|TestAvailable|TestNothingLeaks|TestAttach)$")
	for _, name := range []string{"TestHostBase", "TestRootlessBox", "TestRootlessNetwork", "TestRootlessEscapes", "TestRootlessDirBase", "TestAttach", "TestKilledRecorder"} {
		if !bytes.Contains(out, []byte("--- PASS: "+name+" ")) {
			t.Errorf("%s did not run and pass as an ordinary user", name)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(tmp, "bodycam-65534")); err == nil && len(entries) > 0 {
		t.Errorf("records are left: %v", entries)
	}
}

// asOrdinaryUser runs tests of this binary as a user without any rights, who has a folder for temporary files.
func asOrdinaryUser(t *testing.T, tests string) (tmp string, out []byte) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandbox-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "sandbox.test")
	if err := copyFile("/proc/self/exe", exe); err != nil {
		t.Fatal(err)
	}
	tmp = filepath.Join(dir, "tmp")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(tmp, 0o700), os.Chown(tmp, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.v", "-test.timeout=600s", "-test.run="+tests)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + tmp, "HOME=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err = cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return tmp, out
}

// Something is mounted below what a box of an ordinary user takes of the host: a part of /usr on a disk of its own, or the
// drivers' folder of WSL.
func TestMountBelowBase(t *testing.T) {
	needRoot(t)
	var out []byte
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its mounts
		err := errors.Join(syscall.Unshare(syscall.CLONE_NEWNS), syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
			syscall.Mount("below", "/usr/local", "tmpfs", 0, "mode=755"))
		if err == nil {
			_, out = asOrdinaryUser(t, "^(TestRootlessBox|TestHostBase)$")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestRootlessBox ")) {
		t.Errorf("did not run:\n%s", out)
	}
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Chmod(0o755), w.Close())
}

func needOrdinary(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("is root: TestAsOrdinaryUser runs this as an ordinary user")
	}
}

func TestRootlessBox(t *testing.T) {
	needOrdinary(t)
	b := testBox(t, func(c *Config) { c.Limits = Limits{Pids: 10, DiskBytes: 4 << 20} })
	if w := strings.Join(b.Weaker(), "\n"); !strings.Contains(w, "no cgroups") || !strings.Contains(w, "one user") {
		t.Errorf("weaker: %s", w)
	}
	if r := sh(t, b, "id -un; pwd; id -u; touch x && stat -c %U x; cat /proc/sys/kernel/hostname"); r.out != "agent\n/home/agent\n1000\nagent\n"+b.cfg.Hostname+"\n" {
		t.Errorf("%+v", r)
	}
	if r := run(t, b, Cmd{User: "root", Argv: []string{"sh", "-c", "id -u; touch /etc/y && stat -c %U /etc/y; grep Cap.*:.*[1-9a-f] /proc/self/status"}}); !strings.HasPrefix(r.out, "0\nroot\n") {
		t.Errorf("%+v", r)
	}
	if r := sh(t, b, "head -c 20000000 /dev/zero >/tmp/big"); !strings.Contains(r.err, "No space left") {
		t.Errorf("disk: %+v", r)
	}
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "f"), []byte("in"), 0o644); err != nil {
		t.Fatal(err)
	}
	sh(t, b, "rm /tmp/big")
	if err := b.CopyIn(t.Context(), src, "/srv/in", CopyOpts{}); err != nil {
		t.Fatal(err)
	}
	m, skipped, err := b.CopyOut(t.Context(), "/srv/in", filepath.Join(t.TempDir(), "o"), CopyLimits{})
	if err != nil || len(m) != 2 || len(skipped) != 0 || m[1].UID != 1000 {
		t.Errorf("copy out: %+v %v %v", m, skipped, err)
	}
	if b.Cgroup(GroupAgent) != "" {
		t.Error("a box without cgroups names one")
	}
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"sh", "-c", "sleep 100 & sleep 100"}, Env: []string{"PATH=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.HostPID(), 0); err != nil {
		t.Errorf("host pid: %v", err)
	}
	if err := b.Kill(t.Context(), GroupAgent); err != nil {
		t.Fatal(err)
	}
	if st, _ := p.Wait(); st.Signal != syscall.SIGKILL {
		t.Errorf("killed group: %+v", st)
	}
}

func TestRootlessDirBase(t *testing.T) {
	needOrdinary(t)
	dir := smallRoot(t)
	b := testBox(t, func(c *Config) { c.Base = Base{Kind: BaseDir, Path: dir}; c.Hostname = "small" })
	if r := run(t, b, Cmd{Argv: []string{"hello"}, User: "root"}); r.out != "small 0 0 Success base\n" {
		t.Errorf("%+v", r)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "data/base.txt")); err != nil || string(data) != "base\n" {
		t.Errorf("the base was changed: %q, %v", data, err)
	}
}

func TestRootlessNetwork(t *testing.T) {
	needOrdinary(t)
	b := testBox(t, func(c *Config) { c.Network.Mode = NetProxied })
	tcp, _, _, err := b.NetListeners()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := tcp.AcceptTCP()
		if err != nil {
			return
		}
		defer c.Close()
		to, err := OriginalDst(c)
		fmt.Fprint(c, to, err)
	}()
	r := run(t, b, Cmd{Argv: []string{"python3", "-c", `import socket; print(socket.create_connection(("192.0.2.7", 443), 5).recv(99).decode())`}})
	if r.out != "192.0.2.7:443<nil>\n" && r.out != "192.0.2.7:443 <nil>\n" {
		t.Errorf("%+v", r)
	}
}

func TestRootlessEscapes(t *testing.T) {
	needOrdinary(t)
	l, err := net.Listen("unix", "@"+testID(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, user := range []string{"agent", "root"} {
		b := testBox(t, func(c *Config) { c.ID += user; c.Network.Mode = NetProxied })
		for _, c := range []escapeCase{
			{try: "signal_recorder", args: []string{fmt.Sprint(os.Getpid())}, want: "ESRCH"},
			{try: "ptrace_init", want: "EPERM"},
			{try: "read_init_memory", want: "EPERM"},
			{try: "proc_of_init", want: "EACCES EPERM"},
			{try: "links_of_init", want: "EACCES"},
			{try: "programs_seen", want: "box-init python3"},
			{try: "mount_tmpfs", want: "EPERM"},
			{try: "remount_usr", want: "EPERM"},
			{try: "new_userns", want: "EPERM"},
			{try: "make_device", want: "EPERM"},
			{try: "device_nodes", want: "ENOENT"},
			{try: "abstract_socket", args: []string{testID(t)}, want: "ECONNREFUSED"},
			{try: "kernel_settings", want: "EROFS"},
			{try: "change_network", want: "EPERM"},
			{try: "flush_nft", want: "EPERM"},
			{try: "by_handle", want: "EPERM"},
		} {
			r := run(t, b, Cmd{User: user, Argv: append([]string{"python3", "-c", escapes, c.try}, c.args...)})
			if got, want := strings.TrimSpace(r.out), c.expect(SeccompStrict, user == "root"); got != want {
				t.Errorf("%s as %s: got %q, want %q\n%s", c.try, user, got, want, r.err)
			}
		}
		// Init has the agent's user here, but hears no signal that can be ignored.
		for _, sig := range []string{"TERM", "KILL", "STOP", "HUP", "QUIT", "USR1", "ABRT", "PIPE"} {
			sh(t, b, "kill -"+sig+" 1")
		}
		time.Sleep(20 * time.Millisecond)
		if r := sh(t, b, "echo alive"); r.out != "alive\n" {
			t.Errorf("%+v", r)
		}
	}
}
