//go:build linux && amd64

package ptrace

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/sensortest"
	"golang.org/x/sys/unix"
)

type harness struct{}

func (harness) Traits() sensortest.Traits {
	return sensortest.Traits{
		DNSAnswers: true,
		StartGrain: 10 * time.Millisecond,
		Blind: map[string]string{
			"01-uring/open":    "io_uring",
			"01-uring/connect": "io_uring",
			"01-uring/unlink":  "io_uring",
		},
	}
}

func (harness) Start(t testing.TB, w sensortest.Workload) sensortest.Record {
	t.Helper()
	s := New(Options{})
	var c sensortest.Collector
	if err := s.Start(t.Context(), sensor.Target{}, c.Sink); err != nil {
		t.Fatal(err)
	}
	out := scratch(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := s.StartProcess(w.Argv, w.Env, w.Dir, []*os.File{null, out, os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	status := p.Wait()
	s.Wait()
	h, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	code := -1
	if status.Exited() {
		code = status.ExitStatus()
	}
	return sensortest.Record{Events: c.Events(), Health: h, Stdout: b, PID: p.PID, Status: code}
}

// scratch is an open file without a name.
func scratch(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.TempDir(), unix.O_TMPFILE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSuite(t *testing.T) { sensortest.Run(t, harness{}) }

// TestAsNobody runs all tests again as a user without any power.
func TestAsNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the whole test runs as an ordinary user already")
	}
	self := copyOfSelf(t)
	cmd := exec.Command(self, "-test.v", "-test.timeout", "5m")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "BODYCAM_TEST_FLOOD=" + os.Getenv("BODYCAM_TEST_FLOOD")}
	if os.Getenv("BODYCAM_TEST_FLOOD") == "" {
		cmd.Env = cmd.Env[:2]
	}
	if udp, tcp, err := sensortest.DNSFiles(); err == nil {
		defer udp.Close()
		defer tcp.Close()
		cmd.ExtraFiles = []*os.File{udp, tcp}
		cmd.Env = append(cmd.Env, "BODYCAM_TEST_DNS_FD=3")
	}
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	failed := regexp.MustCompile(`(?m)^ *--- (FAIL|SKIP): .*(\n {8,}.*)*`).FindAllString(string(out), -1)
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, strings.Join(failed, "\n"))
	} else {
		t.Logf("as nobody: %d tests and cases passed; %s", strings.Count(string(out), "--- PASS: "), strings.Join(failed, "\n"))
	}
	if os.Getenv("BODYCAM_TEST_DUMP") != "" {
		t.Logf("%s", out)
	}
}

// copyOfSelf puts the test's binary where every user can run it.
func copyOfSelf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ptrace-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "suite")
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}
