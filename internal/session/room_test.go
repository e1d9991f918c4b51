package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/store"
	"golang.org/x/sys/unix"
)

// endless makes files with long names, in folders with long names, until it is stopped.
const endless = `d=$(printf 'd%.0s' $(seq 250)); for i in $(seq 12); do mkdir $d; cd $d; done; i=0; while :; do i=$((i+1)); : > $i; done`

// small makes a disk of its own for a test: none here may fill that of the machine.
func small(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// An agent that makes events without end is stopped when the record is as long as the plan allows. What was recorded is whole.
func TestRecordLimit(t *testing.T) {
	needRoot(t)
	const most = 2 << 20
	o := options(t, []string{"bash", "-c", endless}, func(p *kind.Plan) {
		p.Limits.Record = most
		p.Judge.Workspace = nil
	})
	o.Dir = filepath.Join(small(t, "512m"), "run") // where the limit fails, no more than this is filled
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	n := recordSize(r.Dir)
	if n < most || n > 100<<20 {
		t.Errorf("the record is %d bytes long", n)
	}
	if !strings.Contains(strings.Join(r.Info.Notes, " "), "environment.limits.record") {
		t.Errorf("notes are %q", r.Info.Notes)
	}
	if _, err := os.Stat(r.Path(store.StoppedFile)); err != nil {
		t.Error(err)
	}
	if c := r.Info.Complete; c.Complete || !strings.Contains(strings.Join(c.Reasons, " "), "ended early: the record is") {
		t.Errorf("the record is called %+v", c)
	}
}

// A run that could not be carried out to its end has no whole record, whatever its sensors saw.
func TestFailedCollect(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"true"}, func(p *kind.Plan) { p.Timeouts.Collect = 1 })
	r, err := Run(t.Context(), o)
	if err == nil {
		t.Fatal("collecting in a nanosecond was no error")
	}
	if c := r.Info.Complete; c.Complete || !strings.Contains(strings.Join(c.Reasons, " "), "the run failed: collect: ") || len(r.Info.Sensors) == 0 {
		t.Errorf("the record is called %+v", c)
	}
}

// A run leaves some of its disk free, so that what else lives there goes on.
func TestDiskLow(t *testing.T) {
	needRoot(t)
	disk := small(t, "80m")
	if err := os.WriteFile(filepath.Join(disk, "others"), make([]byte, 70<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	// Slow enough for the guard on any machine, which must stop it before the disk itself does.
	o := options(t, []string{"bash", "-c", strings.Replace(endless, "> $i", "> $i; sleep 0.01", 1)}, func(p *kind.Plan) { p.Judge.Workspace = nil })
	o.Dir = filepath.Join(disk, "run")
	r, err := Run(t.Context(), o)
	var p *fs.PathError
	if !errors.Is(err, ErrEnvironment) || !errors.Is(err, unix.ENOSPC) || !errors.As(err, &p) || filepath.Dir(p.Path) != o.Dir {
		t.Errorf("the error is %v", err)
	}
	if c := strings.Join(r.Info.Complete.Reasons, " "); r.Info.Complete.Complete || !strings.Contains(c, "ended early: little of the disk") || !strings.Contains(strings.Join(r.Info.Notes, " "), "is left") {
		t.Fatalf("the run says %+v, %q", r.Info.Complete, r.Info.Notes)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil || st.Bavail == 0 {
		t.Errorf("%d blocks are free, %v", st.Bavail, err)
	}
	// Another doesn't even begin.
	if err := os.WriteFile(filepath.Join(disk, "more"), make([]byte, min(int64(st.Bavail)*st.Bsize-2<<20, 8<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	o = options(t, []string{"true"}, nil)
	o.Dir = filepath.Join(disk, "run2")
	if r, err = Run(t.Context(), o); !errors.Is(err, unix.ENOSPC) || r == nil || r.Info.Error == "" {
		t.Errorf("a run on a full disk: %v", err)
	}
}

// However many files an agent changes, a bounded number of them is kept.
func TestManyChanges(t *testing.T) {
	needRoot(t)
	o := options(t, []string{"bash", "-c", "mkdir a b; seq 4000 | sed 's#^#a/#' | xargs touch; seq 4000 | sed 's#^#b/#' | xargs touch; mkdir c; cd c; seq 2000 | xargs mkdir"}, nil)
	r := mustRun(t, o)
	files, folders := 0, 0
	err := filepath.WalkDir(r.Path(store.WorkspaceDir), func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			folders++
		} else {
			files++
		}
		return err
	})
	if err != nil || files != keepFiles || folders > 10 {
		t.Errorf("%d files and %d folders are kept, %v", files, folders, err)
	}
	told := false
	for _, s := range r.Info.Skipped {
		told = told || strings.Contains(s.Why, "3000 changed files beyond the first 5000")
	}
	if !told {
		t.Errorf("what isn't kept is told as %+v", r.Info.Skipped)
	}
}
