//go:build linux

package guard_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/guard"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
)

func hostRun(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	return string(out), err
}

// crashEnv makes the test binary a recorder whose guard never answers about one file, and which waits to be killed.
const crashEnv = "BODYCAM_TEST_GUARD_CRASH"

func crashHelper(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	asked := make(chan int32, 16)
	g, err := guard.New(guard.Options{Patience: time.Hour, Allow: func(a *guard.Access) bool {
		if a.Path == "/data/secret" {
			asked <- a.TID
			select {}
		}
		return true
	}})
	die(err)
	b, err := sandbox.Create(context.Background(), sandbox.Config{ID: filepath.Base(dir), StateDir: filepath.Join(dir, "state"), Keep: []*os.File{g.File()},
		Binds: []sandbox.Bind{{Host: filepath.Join(dir, "data"), Box: "/data"}}, Agent: sandbox.User{Name: "root", Home: "/root"}})
	die(err)
	die(g.Watch(b.InitPID()))
	for range 8 { // once one waits for its answer, so do the others, with whatever they open
		go func() {
			_, _ = b.Start(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "cat /data/secret > /data/leak.$$"}, Env: []string{"PATH=/usr/bin"}})
		}()
	}
	fmt.Println("pid", <-asked)
	time.Sleep(300 * time.Millisecond) // the others wait as well
	fmt.Println("pid", b.InitPID())
	fmt.Println("ready")
	select {}
}

// A recorder that is killed lets nothing through: what waited for an answer dies with the sandbox, without one.
func TestKilledRecorder(t *testing.T) {
	needRoot(t)
	for round := range 5 {
		dir := filepath.Join(t.TempDir(), fmt.Sprintf("guard-crash-%d-%d", os.Getpid(), round))
		data := filepath.Join(dir, "data")
		if err := os.MkdirAll(data, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(data, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		secret := filepath.Join(data, "secret")
		if err := os.WriteFile(secret, []byte("KEYMATERIAL"), 0o666); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), crashEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var fds []int
		ready := false
		for sc := bufio.NewScanner(out); !ready && sc.Scan(); {
			var pid int
			switch kind, rest, _ := strings.Cut(sc.Text(), " "); kind {
			case "pid":
				fmt.Sscan(rest, &pid)
				fd, err := unix.PidfdOpen(pid, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				fds = append(fds, fd)
			case "ready":
				ready = true
			default:
				t.Fatal(sc.Text())
			}
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			waitFor(t, func() bool { return unix.PidfdSendSignal(fd, 0, nil, 0) == unix.ESRCH })
		}
		_ = cmd.Wait()
		leaks, err := filepath.Glob(filepath.Join(data, "leak.*"))
		if err != nil || len(leaks) == 0 {
			t.Errorf("none of its processes came as far as the file: %v", err)
		}
		for _, l := range leaks {
			if b, err := os.ReadFile(l); err != nil || len(b) > 0 {
				t.Errorf("%s holds %q, %v", l, b, err)
			}
		}
		if got, err := hostRun("cat", secret); err != nil || got != "KEYMATERIAL" {
			t.Errorf("the host's own file: %q, %v", got, err)
		}
		waitFor(t, func() bool {
			stale, err := sandbox.Stale()
			return err == nil && !strings.Contains(strings.Join(stale, " "), filepath.Base(dir))
		})
	}
}
