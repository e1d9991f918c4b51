//go:build linux

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/cgroup"
)

// record is what this machine keeps of a box, so that Sweep can tidy up after a recorder that was killed. Mounts and
// processes need no record: they end with the box's namespaces.
type record struct {
	ID       string
	Owner    int    // pid of the recorder
	Started  uint64 // its start time in clock ticks since boot
	StateDir string
	Cgroups  []string
}

// recordDir holds one file per box of this user.
func recordDir() (string, error) {
	dir := "/run/bodycam"
	if uid := os.Getuid(); uid != 0 {
		base := os.Getenv("XDG_RUNTIME_DIR")
		if base == "" {
			base = os.TempDir()
		}
		dir = filepath.Join(base, "bodycam-"+strconv.Itoa(uid))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", dir, err)
	}
	if int(st.Uid) != os.Getuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 {
		return "", fmt.Errorf("%s is not a directory of this user alone: remove it", dir)
	}
	return dir, nil
}

// startTime is when a process began, in clock ticks since boot; with the pid it names a process for good. One that has
// ended and waits to be reaped is gone.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("stat of process %d is malformed", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// save claims the box's ID on this machine.
func (r *record) save() (path string, err error) {
	dir, err := recordDir()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, r.ID+".json")
	tmp, err := os.CreateTemp(dir, fmt.Sprintf(".new-%d-%d-*", r.Owner, r.Started))
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	if err := os.Link(tmp.Name(), path); errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("box %q exists already: choose another ID, or end the process that has it", r.ID)
	} else if err != nil {
		return "", err
	}
	return path, nil
}

func (r *record) alive() bool {
	t, err := startTime(r.Owner)
	return err == nil && t == r.Started
}

// Sweep removes what is left of boxes whose recorder died: cgroups, state directories, records. It leaves boxes with a
// living recorder alone.
func Sweep() error {
	dir, err := recordDir()
	if err != nil {
		return err
	}
	dead, err := deadRecords(dir)
	errs := []error{sweepUnfinished(dir), err}
	for f, r := range dead {
		for _, c := range r.Cgroups {
			errs = append(errs, cgroup.Remove(c))
		}
		errs = append(errs, removeState(r.StateDir))
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) { // two may sweep at once
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Stale lists what Sweep would remove, by the boxes' ids.
func Stale() ([]string, error) {
	dir, err := recordDir()
	if err != nil {
		return nil, err
	}
	dead, err := deadRecords(dir)
	var ids []string
	for _, r := range dead {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	return ids, err
}

// deadRecords reads the records whose recorder is dead, by their files.
func deadRecords(dir string) (map[string]record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	dead := map[string]record{}
	var errs []error
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var r record
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err == nil && (!idPattern.MatchString(r.ID) || !filepath.IsAbs(r.StateDir)) {
			err = errors.New("not a record of a box")
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("record %s: %w", f, err))
		case !r.alive():
			dead[f] = r
		}
	}
	return dead, errors.Join(errs...)
}

// sweepUnfinished removes records that were never finished.
func sweepUnfinished(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		var r record
		if _, err := fmt.Sscanf(filepath.Base(f), ".new-%d-%d-", &r.Owner, &r.Started); err != nil {
			errs = append(errs, fmt.Errorf("record %s: not of ours", f))
			continue
		}
		if r.alive() {
			continue
		}
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stateMark is in every state directory: only one with this file, or an empty one, is removed.
const stateMark = "box.state"

func makeState(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("state directory %s is not empty", dir)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, stateMark), nil, 0o600)
}

// removeState removes a state directory, its mark last, so that it can be taken up again wherever it was interrupted.
func removeState(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mark := filepath.Join(dir, stateMark)
	if _, err := os.Lstat(mark); errors.Is(err, fs.ErrNotExist) && len(entries) > 0 {
		return nil // not ours
	}
	for _, e := range entries {
		if e.Name() != stateMark {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for _, p := range []string{mark, dir} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
