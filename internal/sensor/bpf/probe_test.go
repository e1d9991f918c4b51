package bpf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An ordinary user is told of permission, in one line, and not what each try after it says instead.
func TestProbeAsNobody(t *testing.T) {
	if os.Getenv("BODYCAM_PROBE") != "" {
		for _, f := range Probe() {
			t.Logf("%v %s: %s", f.OK, f.Name, f.Why)
		}
		return
	}
	needRoot(t)
	dir, err := os.MkdirTemp("", "bodycam-nobody-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^TestProbeAsNobody$", "-test.v")
	cmd.Dir, cmd.Env = "/", []string{"BODYCAM_PROBE=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s := string(out); strings.Count(s, "false ") != 1 || !strings.Contains(s, "not permitted") || strings.Contains(s, "kernel of") || strings.Contains(s, "MEMLOCK") {
		t.Errorf("as nobody: %s", s)
	}
}
