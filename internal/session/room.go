package session

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam/internal/store"
	"golang.org/x/sys/unix"
)

// An agent can make events as fast as the machine allows, each with a long name: some hundred megabytes a second. So that it
// can't fill the disk of the machine that records it, the run is stopped, with everything recorded until then, when its record
// has grown to what the plan allows or little of the disk is left.

// keepFree is what a run leaves free on its disk, in bytes, or a twentieth of the disk where that is less.
const keepFree = 256 << 20

// smallDisk is a disk of which nothing is left free: what is made so small is made for one run.
const smallDisk = 64 << 20

// guardEvery is how often a run looks at its record and its disk.
const guardEvery = 200 * time.Millisecond

// room is what a run may still write to the disk of its directory, in bytes.
func room(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("looking how much of the disk of %s is free: %w", dir, err)
	}
	size, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	if size < smallDisk {
		return free, nil
	}
	return max(0, free-min(keepFree, size/20)), nil
}

// recordSize is the size of the record of what the agent does: the events, and the ledger that seals them.
func recordSize(dir string) (n int64) {
	size := func(path string) {
		if st, err := os.Lstat(path); err == nil { // what isn't there takes no room
			n += st.Size()
		}
	}
	size(filepath.Join(dir, store.EventsFile))
	for _, sub := range []string{"ledger", "payload"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			continue // a run without a ledger
		}
		for _, e := range entries {
			size(filepath.Join(dir, sub, e.Name()))
		}
	}
	return n
}

// diskLow says that too little of the disk is left for the run to go on.
func diskLow(dir string) error {
	return &fs.PathError{Op: "recording: leaving some of the disk free: write", Path: filepath.Join(dir, store.EventsFile), Err: unix.ENOSPC}
}

// guard stops the run when its record or its disk is full. It looks once before it returns, and then until stop is called.
func (s *run) guard() (stop func(), err error) {
	dir := s.w.Dir()
	var low error
	full := ""
	look := func() (reason string) {
		if left, rerr := room(dir); rerr != nil {
			return rerr.Error()
		} else if left == 0 {
			low = diskLow(dir)
			return "little of the disk of " + dir + " is left"
		}
		if most := int64(s.plan.Limits.Record); most > 0 {
			if n := recordSize(dir); n >= most {
				return fmt.Sprintf("the record is %d bytes long, and may be %d (environment.limits.record)", n, most)
			}
		}
		return ""
	}
	if look(); low != nil {
		return nil, low
	}
	end := regularly(guardEvery, func() bool {
		if full = look(); full != "" {
			s.stop(full)
		}
		return full == ""
	})
	return sync.OnceFunc(func() {
		end()
		s.full, s.diskLow = full, low
	}), nil
}
