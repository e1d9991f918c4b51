//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// Groups are the cgroups of a box, siblings of one another. GroupAgent is what a sensor observes.
const (
	GroupSetup  = "setup"
	GroupAgent  = "agent"
	GroupVerify = "verify"

	groupInit = "init"
)

var groups = []string{GroupSetup, GroupAgent, GroupVerify}

// hierarchies says where this machine keeps its cgroups.
type hierarchies struct {
	unified string            // mount point of version 2, "" if none
	v2      []string          // controllers of version 2
	v1      map[string]string // controller → mount point of version 1
}

func findHierarchies() (hierarchies, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return hierarchies{}, err
	}
	defer f.Close()
	h := hierarchies{v1: map[string]string{}}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 || l[3] != "/" {
			continue
		}
		point := unescapeMount(l[4])
		switch r[0] {
		case "cgroup2":
			if h.unified == "" {
				h.unified = point
			}
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				if o == "memory" || o == "pids" || o == "cpu" {
					h.v1[o] = point
				}
			}
		}
	}
	if err := sc.Err(); err != nil {
		return h, err
	}
	if h.unified != "" {
		b, err := os.ReadFile(filepath.Join(h.unified, "cgroup.controllers"))
		if err == nil {
			h.v2 = strings.Fields(string(b))
		}
	}
	return h, nil
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// cgroups are the directories of one box.
type cgroups struct {
	root string   // <unified>/bodycam/<ID>
	v1   []string // <controller>/bodycam/<ID>
}

// makeCgroups makes the directories of a box and sets its limits, each for every group by itself, so that what an agent
// hoards is not missing when its work is tested. Owner is the host's user of init. It returns what could not be limited.
func makeCgroups(h hierarchies, id string, l Limits, owner int) (*cgroups, []string, error) {
	if h.unified == "" {
		return nil, nil, errors.New("no cgroup version 2 hierarchy is mounted")
	}
	c := &cgroups{root: filepath.Join(h.unified, "bodycam", id)}
	var weaker []string
	for _, g := range append([]string{groupInit}, groups...) {
		if err := os.MkdirAll(filepath.Join(c.root, g), 0o755); err != nil {
			c.remove()
			return nil, nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	// A fork into a cgroup is checked against init's own rights. Nothing else in the box has init's user, or this file
	// system.
	for _, g := range append([]string{""}, groups...) {
		if err := os.Chown(filepath.Join(c.root, g, "cgroup.procs"), owner, -1); err != nil {
			c.remove()
			return nil, nil, fmt.Errorf("hand cgroup to init: %w", err)
		}
	}
	for _, ctl := range []string{"memory", "pids", "cpu"} {
		var err error
		switch {
		case !l.wants(ctl):
		case slices.Contains(h.v2, ctl):
			err = c.limitV2(h, ctl, l)
		case h.v1[ctl] != "":
			err = c.limitV1(h.v1[ctl], id, ctl, l)
		default:
			err = errors.New("no hierarchy has this controller")
		}
		if err != nil {
			weaker = append(weaker, fmt.Sprintf("%s is not limited: %v", ctl, err))
		}
	}
	return c, weaker, nil
}

func (l Limits) wants(ctl string) bool {
	return ctl == "memory" && l.MemoryBytes > 0 || ctl == "pids" && l.Pids > 0 || ctl == "cpu" && l.CPUs > 0
}

const cpuPeriod = 100000 // µs

func (c *cgroups) limitV2(h hierarchies, ctl string, l Limits) error {
	for _, dir := range []string{h.unified, filepath.Dir(c.root), c.root} {
		if err := writeCgroup(dir, "cgroup.subtree_control", "+"+ctl); err != nil {
			return err
		}
	}
	for _, g := range groups {
		dir := filepath.Join(c.root, g)
		var err error
		switch ctl {
		case "memory":
			err = writeCgroup(dir, "memory.max", strconv.FormatUint(l.MemoryBytes, 10))
			if err == nil {
				// Absent without swap accounting.
				if e := writeCgroup(dir, "memory.swap.max", "0"); e != nil && !errors.Is(e, fs.ErrNotExist) {
					err = e
				}
			}
		case "pids":
			err = writeCgroup(dir, "pids.max", strconv.FormatUint(l.Pids, 10))
		case "cpu":
			err = writeCgroup(dir, "cpu.max", fmt.Sprintf("%d %d", int64(l.CPUs*cpuPeriod), cpuPeriod))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cgroups) limitV1(mount, id, ctl string, l Limits) error {
	base := filepath.Join(mount, "bodycam", id)
	if !slices.Contains(c.v1, base) {
		c.v1 = append(c.v1, base)
	}
	for _, g := range groups {
		dir := filepath.Join(base, g)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		var err error
		switch ctl {
		case "memory":
			err = writeCgroup(dir, "memory.limit_in_bytes", strconv.FormatUint(l.MemoryBytes, 10))
		case "pids":
			err = writeCgroup(dir, "pids.max", strconv.FormatUint(l.Pids+1, 10)) // one is init's forker
		case "cpu":
			if err = writeCgroup(dir, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)); err == nil {
				err = writeCgroup(dir, "cpu.cfs_quota_us", strconv.FormatInt(int64(l.CPUs*cpuPeriod), 10))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0) // never O_CREAT
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// tasks opens, for each group, the files by which a thread joins its cgroups of version 1.
func (c *cgroups) tasks() ([]*os.File, error) {
	var files []*os.File
	for _, g := range groups {
		for _, base := range c.v1 {
			f, err := os.OpenFile(filepath.Join(base, g, "tasks"), os.O_WRONLY, 0)
			if err != nil {
				boxinit.CloseAll(files)
				return nil, err
			}
			files = append(files, f)
		}
	}
	return files, nil
}

func readProcs(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, s := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// remove kills what is left in the box and removes its directories.
func (c *cgroups) remove() error {
	err := removeCgroup(c.root)
	for _, base := range c.v1 {
		err = errors.Join(err, removeCgroup(base))
	}
	return err
}

// removeCgroup kills and removes one cgroup and those below it. A killed process leaves its cgroup a moment later, so
// it tries for up to five seconds.
func removeCgroup(root string) error {
	if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_ = writeCgroup(root, "cgroup.kill", "1") // version 1 has no such file; its processes are in version 2 as well
	deadline := time.Now().Add(5 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := removeTree(root)
		if err == nil || time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			return nil
		}
		time.Sleep(wait)
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = os.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// setFrozen asks for a state of a group and waits until the kernel reports it.
func (b *Box) setFrozen(ctx context.Context, group string, frozen bool) error {
	if b.cgroups == nil {
		return errNoCgroup
	}
	want := "0"
	if frozen {
		want = "1"
	}
	if err := writeCgroup(b.Cgroup(group), "cgroup.freeze", want); err != nil {
		return err
	}
	return awaitEvent(ctx, b.Cgroup(group), "frozen "+want)
}

// awaitEvent waits until a cgroup's events say what is wanted.
func awaitEvent(ctx context.Context, dir, want string) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			return err
		}
		if slices.Contains(strings.Split(string(events), "\n"), want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %q of cgroup %s: %w", want, dir, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// OOMKills counts the processes of a group that the kernel has ended because the group had reached its memory limit.
func (b *Box) OOMKills(group string) (uint64, error) {
	if b.cgroups == nil {
		return 0, errNoCgroup
	}
	files := []string{filepath.Join(b.Cgroup(group), "memory.events")}
	for _, base := range b.cgroups.v1 {
		files = append(files, filepath.Join(base, group, "memory.oom_control"))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not the memory controller's hierarchy
		}
		if err != nil {
			return 0, err
		}
		for _, line := range strings.Split(string(text), "\n") {
			if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
				return strconv.ParseUint(v, 10, 64)
			}
		}
	}
	return 0, errors.New("memory is not limited in this box")
}
