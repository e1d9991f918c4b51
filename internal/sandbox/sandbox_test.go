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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p, err := b.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(5*time.Minute, func() { p.Kill() }).Stop()
	st, _ := p.Wait()
	return result{out.String(), errb.String(), st}
}

func sh(t *testing.T, b *Box, script string) result {
	t.Helper()
	return run(t, b, Cmd{Argv: []string{"sh", "-c", script}})
}

func TestHostBase(t *testing.T) {
	b := testBox(t, nil)
	r := sh(t, b, "cd /; echo *; echo etc/*; echo dev/*; echo sys/*; grep -E '^(Cap|NoNew|Seccomp:)' proc/self/status; echo proc/self/fd/*; exit 3")
	if r.status.Code != 3 || r.status.Err != nil || r.err != "" {
		t.Errorf("%+v", r)
	}
	allowed := map[string]bool{"proc/self/fd/3": true} // the shell reading that very directory; TestEscapes looks closer
	for _, d := range hostDirs {
		allowed[d[1:]] = true
	}
	for _, f := range append(append([]string{}, hostEtcFiles...), hostEtcDirs...) {
		f, _, _ = strings.Cut(f, "/")
		allowed["etc/"+f] = true
	}
	for _, f := range strings.Fields(`dev etc home mnt opt proc root run sys tmp var etc/passwd etc/group etc/hosts etc/hostname
		etc/resolv.conf etc/nsswitch.conf dev/fd dev/full dev/null dev/ptmx dev/pts dev/random dev/shm dev/stderr dev/stdin
		dev/stdout dev/tty dev/urandom dev/zero sys/devices proc/self/fd/0 proc/self/fd/1 proc/self/fd/2`) {
		allowed[f] = true
	}
	lines := strings.Split(r.out, "\n")
	for _, f := range strings.Fields(lines[0] + " " + lines[1] + " " + lines[2] + " " + lines[3] + " " + lines[len(lines)-2]) {
		if !allowed[f] {
			t.Errorf("%s is in the box", f)
		}
	}
	const zero = ":\t0000000000000000\n"
	want := "CapInh" + zero + "CapPrm" + zero + "CapEff" + zero + "CapBnd" + zero + "CapAmb" + zero + "NoNewPrivs:\t1\nSeccomp:\t2\n"
	if !strings.Contains(r.out, want) {
		t.Errorf("want %q in %s", want, r.out)
	}
	if w := b.Weaker(); os.Geteuid() == 0 && len(w) > 0 {
		t.Errorf("weaker: %q", w)
	}
}

func TestAvailable(t *testing.T) {
	caps := Available(t.Context())
	for _, c := range caps {
		t.Logf("%-18s %-5v %s", c.Name, c.OK, c.Why)
		if c.Why == "" {
			t.Errorf("%s: no reason", c.Name)
		}
	}
	for _, c := range caps[:3] {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Why)
		}
	}
}
