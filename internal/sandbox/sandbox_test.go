//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Init()
	if spec := os.Getenv(crashEnv); spec != "" {
		crashHelper(spec)
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups and id-mapped mounts")
	}
}

// testBox makes a box that ends with the test.
func testBox(t *testing.T, change func(*Config)) *Box {
	t.Helper()
	c := Config{ID: testID(t), StateDir: filepath.Join(t.TempDir(), "state")}
	if change != nil {
		change(&c)
	}
	b, err := Create(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func testID(t *testing.T) string {
	return "test-" + strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == '#' {
			return '-'
		}
		return r
	}, t.Name()) + "-" + filepath.Base(filepath.Dir(t.TempDir()))
}

type result struct {
	out, err string
	status   ExitStatus
}

// run runs a command to its end.
func run(t *testing.T, b *Box, c Cmd) result {
	t.Helper()
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr = &out, &errb
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p, err := b.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(60*time.Second, func() { p.Kill() }).Stop()
	st, _ := p.Wait()
	return result{out.String(), errb.String(), st}
}

func sh(t *testing.T, b *Box, script string) result {
	t.Helper()
	return run(t, b, Cmd{Argv: []string{"sh", "-c", script}})
}

func TestHostBase(t *testing.T) {
	b := testBox(t, nil)
	r := sh(t, b, "id; pwd; ls -la / /proc/self/fd /dev /home; cat /proc/self/status /proc/self/cgroup /proc/mounts; ls /etc; exit 3")
	t.Log(r.out, r.err)
	t.Log(b.Weaker())
	if r.status.Code != 3 || r.status.Err != nil {
		t.Errorf("status %+v", r.status)
	}
}
