package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// What of the workspace is kept so that a changed file can be looked into. Digests of everything are in the manifests.
const (
	keepFile  = 1 << 20  // bytes of one file
	keepTotal = 64 << 20 // bytes of all
	keepFiles = 5000     // of each root, before and after
)

// snapshot copies the workspace as it is before the agent starts to a private folder outside: what it looks like
// afterwards can't tell what was changed in it.
func (s *run) snapshot(ctx context.Context) error {
	s.before = filepath.Join(s.o.State, "before") // goes with the box, also after a kill
	if err := os.Mkdir(s.before, 0o700); err != nil {
		return fmt.Errorf("keeping the workspace as it was: %w", err)
	}
	for i, root := range s.plan.Judge.Workspace {
		_, _, err := s.box.CopyOut(ctx, root, filepath.Join(s.before, fmt.Sprint(i)), keepLimits())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keeping the workspace as it was: %w", err)
		}
	}
	return nil
}

func keepLimits() sandbox.CopyLimits {
	return sandbox.CopyLimits{FileBytes: keepFile, TotalBytes: keepTotal, Files: keepFiles}
}

// changes puts the files of the workspace that differ before and after into the run: workspace/before and
// workspace/after, under their whole path inside.
func (s *run) changes(ctx context.Context, before, after map[string][]sandbox.FileInfo) error {
	for i, root := range s.plan.Judge.Workspace {
		was := map[string]sandbox.FileInfo{}
		for _, f := range before[root] {
			was[f.Path] = f
		}
		changed := map[string]bool{}
		for _, f := range after[root] {
			if f.Type == sandbox.TypeFile && f.SHA256 != was[f.Path].SHA256 {
				changed[f.Path] = true
			}
			delete(was, f.Path)
		}
		if len(changed) == 0 && len(was) == 0 {
			continue
		}
		if err := s.keepAfter(ctx, root, changed); err != nil {
			return err
		}
		for p := range was { // gone
			changed[p] = true
		}
		s.keepBefore(filepath.Join(s.before, fmt.Sprint(i)), root, changed)
	}
	return nil
}

func (s *run) keepAfter(ctx context.Context, root string, changed map[string]bool) error {
	tmp, err := os.MkdirTemp(s.w.Dir(), ".collect-")
	if err != nil {
		return fmt.Errorf("keeping changed files: %w", err)
	}
	defer os.RemoveAll(tmp)
	l := keepLimits()
	l.Files = 1_000_000 // directories and unwanted files are walked too
	wanted := 0
	l.Want = func(p string) bool {
		if !changed[p] {
			return false
		}
		wanted++
		return wanted <= keepFiles
	}
	files, skipped, err := s.box.CopyOut(ctx, root, tmp, l)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the agent removed all of it: there is no after
	}
	if err != nil {
		return fmt.Errorf("keeping changed files of %s: %w", root, err)
	}
	if n := wanted - keepFiles; n > 0 {
		skipped = append(skipped, sandbox.Skip{Reason: fmt.Sprintf("%d changed files beyond the first %d: their digests alone are kept", n, keepFiles)})
	}
	for _, f := range files {
		if f.Type != sandbox.TypeFile || f.SHA256 == "" {
			continue
		}
		from := f.Path
		if from == "" {
			from = path.Base(root)
		}
		if err := moveNew(filepath.Join(tmp, from), filepath.Join(s.w.Dir(), store.WorkspaceDir, "after", root, f.Path)); err != nil {
			skipped = append(skipped, sandbox.Skip{Path: f.Path, Reason: err.Error()})
		}
	}
	s.skipped(root, skipped)
	return nil
}

func (s *run) keepBefore(snapshot, root string, changed map[string]bool) {
	for p := range changed {
		from := filepath.Join(snapshot, p)
		if p == "" {
			from = filepath.Join(snapshot, path.Base(root))
		}
		b, err := os.ReadFile(from)
		if err != nil {
			continue // it is new, or was over the limits: then "before" has no file, which readers are told of
		}
		to := filepath.Join(s.w.Dir(), store.WorkspaceDir, "before", root, p)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			s.skipped(root, []sandbox.Skip{{Path: p, Reason: "as it was: " + err.Error()}})
			continue
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			s.skipped(root, []sandbox.Skip{{Path: p, Reason: "as it was: " + err.Error()}})
		}
	}
}
