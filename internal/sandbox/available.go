//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/cgroup"
)

// Capability is one thing that boxes on this machine, for this user, can or can't have.
type Capability struct {
	Name string
	OK   bool
	Why  string // how it is provided, or what is missing
}

var probes atomic.Uint64

// Available tries what boxes need, by making some, and says what works.
func Available(ctx context.Context) []Capability {
	out := []Capability{
		tryBox(ctx, "sandbox", "user, mount, pid, network, ipc, uts and cgroup namespaces, seccomp filter", nil),
		tryBox(ctx, "recorded network", "network namespace, nftables redirection", func(c *Config) { c.Network.Mode = NetProxied }),
		tryOverlay(ctx),
		{Name: "id-mapped mounts", OK: os.Geteuid() == 0, Why: "needs root; without, one user per box and a host base owned by nobody"},
	}
	if os.Geteuid() == 0 {
		out[len(out)-1] = tryIDMap(ctx)
	}
	out = append(out, cgroupCapabilities()...)
	return append(out, trySeccomp(), tryDevice("KVM", "/dev/kvm"))
}

// tryBox makes a box and runs a program in it.
func tryBox(ctx context.Context, name, how string, change func(*Config)) Capability {
	b, err := probeBox(ctx, change)
	if err != nil {
		return Capability{name, false, err.Error()}
	}
	defer b.Close()
	argv := []string{"/bin/true"}
	p, err := b.Start(ctx, Cmd{Argv: argv})
	if err != nil {
		return Capability{name, false, err.Error()}
	}
	if st, _ := p.Wait(); st.Code != 0 || st.Err != nil {
		return Capability{name, false, fmt.Sprintf("%s in a box ended with %+v", argv[0], st)}
	}
	return Capability{name, true, how}
}

func probeBox(ctx context.Context, change func(*Config)) (*Box, error) {
	dir, err := os.MkdirTemp("", "bodycam-probe-")
	if err != nil {
		return nil, err
	}
	c := Config{ID: fmt.Sprintf("probe-%d-%d", os.Getpid(), probes.Add(1)), StateDir: dir}
	if change != nil {
		change(&c)
	}
	b, err := Create(ctx, c)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}

// tryOverlay makes a box over a directory; there is nothing to run in it.
func tryOverlay(ctx context.Context) Capability {
	const name = "overlay"
	dir, err := os.MkdirTemp("", "bodycam-base-")
	if err != nil {
		return Capability{name, false, err.Error()}
	}
	defer os.RemoveAll(dir)
	b, err := probeBox(ctx, func(c *Config) { c.Base = Base{Kind: BaseDir, Path: dir} })
	if err != nil {
		return Capability{name, false, err.Error()}
	}
	defer b.Close()
	if err := b.WriteFile(ctx, "/etc/probe", []byte("x"), CopyOpts{Owner: "root"}); err != nil {
		return Capability{name, false, err.Error()}
	}
	return Capability{name, true, "directory and tar bases, on a memory disk with user extended attributes"}
}

func tryIDMap(ctx context.Context) Capability {
	const name = "id-mapped mounts"
	b, err := probeBox(ctx, nil)
	if err != nil {
		return Capability{name, false, err.Error()}
	}
	defer b.Close()
	for _, w := range b.Weaker() {
		if strings.Contains(w, "id-mapped") {
			return Capability{name, false, w}
		}
	}
	return Capability{name, true, "files of the base keep their owners, and root inside is nobody outside"}
}

func cgroupCapabilities() []Capability {
	h, err := cgroup.Find()
	if err != nil {
		return []Capability{{"cgroups", false, err.Error()}}
	}
	root := os.Geteuid() == 0
	v2 := Capability{Name: "cgroup v2", OK: h.Unified != "" && root, Why: "not mounted: no identity, freeze and kill of groups"}
	switch {
	case h.Unified != "" && root:
		v2.Why = "identity, freeze and kill of groups at " + h.Unified
	case h.Unified != "":
		v2.Why = "needs root: no limits, freezing and killing of groups"
	}
	out := []Capability{v2}
	for _, ctl := range []string{"memory", "pids", "cpu"} {
		c := Capability{Name: ctl + " limit", Why: "no hierarchy has the controller"}
		switch {
		case slices.Contains(h.V2, ctl):
			c.OK, c.Why = root, "cgroup v2 at "+h.Unified
		case h.V1[ctl] != "":
			c.OK, c.Why = root, "cgroup v1 at "+h.V1[ctl]
		}
		if !root {
			c.Why += "; needs root"
		}
		out = append(out, c)
	}
	return out
}

func trySeccomp() Capability {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return Capability{"seccomp", false, err.Error()}
	}
	has := strings.Fields(string(actions))
	return Capability{"seccomp", slices.Contains(has, "errno"), "actions " + strings.Join(has, ", ")}
}

func tryDevice(name, path string) Capability {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return Capability{name, false, filepath.Clean(path) + ": " + err.Error()}
	}
	defer unix.Close(fd)
	version, err := unix.IoctlRetInt(fd, 0xae00) // KVM_GET_API_VERSION
	if err != nil {
		return Capability{name, false, path + ": " + err.Error()}
	}
	return Capability{name, true, path + " opens, API version " + strconv.Itoa(version) + "; whether a guest boots in it is another matter"}
}
