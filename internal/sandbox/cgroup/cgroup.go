//go:build linux

// Package cgroup makes the control groups of a box, in whichever version has the controllers: version 2 for identity,
// freezing and killing, either for limits.
package cgroup

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
)

// Hierarchies says where this machine keeps its cgroups.
type Hierarchies struct {
	Unified string            // mount point of version 2, "" if none
	V2      []string          // controllers of version 2
	V1      map[string]string // controller → mount point of version 1, of memory, pids and cpu
}

// Limits bounds a group. Zero is no limit.
type Limits struct {
	MemoryBytes, Pids uint64
	CPUs              float64
}

// Find reads what is mounted.
func Find() (Hierarchies, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Hierarchies{}, err
	}
	defer f.Close()
	h := Hierarchies{V1: map[string]string{}}
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
			if h.Unified == "" {
				h.Unified = point
			}
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				if o == "memory" || o == "pids" || o == "cpu" {
					h.V1[o] = point
				}
			}
		}
	}
	if err := sc.Err(); err != nil {
		return h, err
	}
	if h.Unified != "" {
		b, err := os.ReadFile(filepath.Join(h.Unified, "cgroup.controllers"))
		if err == nil {
			h.V2 = strings.Fields(string(b))
		}
	}
	return h, nil
}

// Dirs are where the groups of a box lie, or would, in every hierarchy.
func (h Hierarchies) Dirs(id string) []string {
	var out []string
	for _, m := range []string{h.Unified, h.V1["memory"], h.V1["pids"], h.V1["cpu"]} {
		if m != "" {
			out = append(out, filepath.Join(m, parent, id))
		}
	}
	return out
}

// parent is the directory that holds every box's groups.
const parent = "bodycam"

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

// Set holds the groups of one box, siblings of one another.
type Set struct {
	Root   string   // <unified>/bodycam/<ID>
	V1     []string // <controller>/bodycam/<ID>
	groups []string
}

// Make makes the directories of a box and sets its limits, each for every group by itself, so that what an agent hoards is
// not missing when its work is tested. The group without is made but has no limits, nor is it one that init may fork into.
// Owner is the host's user of init. It returns what could not be limited.
func Make(h Hierarchies, id string, groups []string, without string, l Limits, owner int) (*Set, []string, error) {
	if h.Unified == "" {
		return nil, nil, errors.New("no cgroup version 2 hierarchy is mounted")
	}
	c := &Set{groups: groups, Root: filepath.Join(h.Unified, parent, id)}
	var weaker []string
	for _, g := range append([]string{without}, groups...) {
		if err := os.MkdirAll(filepath.Join(c.Root, g), 0o755); err != nil {
			c.Remove()
			return nil, nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	// A fork into a cgroup is checked against init's own rights. Nothing else in the box has init's user, or this file
	// system.
	for _, g := range append([]string{""}, groups...) {
		if err := os.Chown(filepath.Join(c.Root, g, "cgroup.procs"), owner, -1); err != nil {
			c.Remove()
			return nil, nil, fmt.Errorf("hand cgroup to init: %w", err)
		}
	}
	for _, ctl := range []string{"memory", "pids", "cpu"} {
		var err error
		switch {
		case !l.wants(ctl):
		case slices.Contains(h.V2, ctl):
			err = c.limitV2(h, ctl, l)
		case h.V1[ctl] != "":
			err = c.limitV1(h.V1[ctl], id, ctl, l)
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

func (c *Set) limitV2(h Hierarchies, ctl string, l Limits) error {
	for _, dir := range []string{h.Unified, filepath.Dir(c.Root), c.Root} {
		if err := write(dir, "cgroup.subtree_control", "+"+ctl); err != nil {
			return err
		}
	}
	for _, g := range c.groups {
		dir := filepath.Join(c.Root, g)
		var err error
		switch ctl {
		case "memory":
			err = write(dir, "memory.max", strconv.FormatUint(l.MemoryBytes, 10))
			if err == nil {
				// Absent without swap accounting.
				if e := write(dir, "memory.swap.max", "0"); e != nil && !errors.Is(e, fs.ErrNotExist) {
					err = e
				}
			}
		case "pids":
			err = write(dir, "pids.max", strconv.FormatUint(l.Pids, 10))
		case "cpu":
			err = write(dir, "cpu.max", fmt.Sprintf("%d %d", int64(l.CPUs*cpuPeriod), cpuPeriod))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Set) limitV1(mount, id, ctl string, l Limits) error {
	base := filepath.Join(mount, parent, id)
	if !slices.Contains(c.V1, base) {
		c.V1 = append(c.V1, base)
	}
	for _, g := range c.groups {
		dir := filepath.Join(base, g)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		var err error
		switch ctl {
		case "memory":
			err = write(dir, "memory.limit_in_bytes", strconv.FormatUint(l.MemoryBytes, 10))
		case "pids":
			err = write(dir, "pids.max", strconv.FormatUint(l.Pids+1, 10)) // one is init's forker
		case "cpu":
			if err = write(dir, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)); err == nil {
				err = write(dir, "cpu.cfs_quota_us", strconv.FormatInt(int64(l.CPUs*cpuPeriod), 10))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func write(dir, file, value string) error {
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

// Tasks opens, for each group, the files by which a thread joins its cgroups of version 1.
func (c *Set) Tasks() ([]*os.File, error) {
	var files []*os.File
	for _, g := range c.groups {
		for _, base := range c.V1 {
			f, err := os.OpenFile(filepath.Join(base, g, "tasks"), os.O_WRONLY, 0)
			if err != nil {
				closeAll(files)
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

// Remove kills what is left in the box and removes its directories.
func (c *Set) Remove() error {
	err := Remove(c.Root)
	for _, base := range c.V1 {
		err = errors.Join(err, Remove(base))
	}
	return err
}

// Remove kills and removes one cgroup and those below it. A killed process leaves its cgroup a moment later, so
// it tries for up to five seconds.
func Remove(root string) error {
	if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_ = write(root, "cgroup.kill", "1") // version 1 has no such file; its processes are in version 2 as well
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

// Dir is a group's directory of version 2.
func (c *Set) Dir(group string) string { return filepath.Join(c.Root, group) }

// Procs lists the processes of a group.
func (c *Set) Procs(group string) ([]int, error) { return readProcs(c.Dir(group)) }

// Freeze stops every process of a group, or lets it go on, and waits until the kernel reports it.
func (c *Set) Freeze(ctx context.Context, group string, frozen bool) error {
	want := "0"
	if frozen {
		want = "1"
	}
	if err := write(c.Dir(group), "cgroup.freeze", want); err != nil {
		return err
	}
	return awaitEvent(ctx, c.Dir(group), "frozen "+want)
}

// Kill ends every process of a group, and waits until they are gone.
func (c *Set) Kill(ctx context.Context, group string) error {
	if err := write(c.Dir(group), "cgroup.kill", "1"); err != nil {
		return err
	}
	return awaitEvent(ctx, c.Dir(group), "populated 0")
}

// KillAll ends every process of all groups, and doesn't wait.
func (c *Set) KillAll() error { return write(c.Root, "cgroup.kill", "1") }

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// OOMKills counts the processes of a group that the kernel has ended because the group had reached its memory limit.
func (c *Set) OOMKills(group string) (uint64, error) {
	files := []string{filepath.Join(c.Dir(group), "memory.events")}
	for _, base := range c.V1 {
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
