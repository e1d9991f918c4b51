package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// errNotCompared tells that a run has one of the two manifests alone: what changed in the workspace is not known.
var errNotCompared = errors.New("what changed in the workspace is not known, since its state before or after the run was not recorded")

// workspaceChanges lists what differs in the workspace before and after a run, and reads what was kept of it. A run
// that ended before its first manifest changed nothing; of one with a single manifest (the recorder was killed, one was
// erased) nothing is said, and the error is errNotCompared.
func workspaceChanges(r *store.Run) ([]security.Changed, security.Contents, error) {
	before, err := readManifest(r, "manifest-before.json")
	if err != nil {
		return nil, nil, err
	}
	after, err := readManifest(r, "manifest-after.json")
	if err != nil {
		return nil, nil, err
	}
	if (before == nil) != (after == nil) {
		return nil, nil, errNotCompared
	}
	var out []security.Changed
	for name, f := range after {
		was, existed := before[name]
		if f.Type == sandbox.TypeFile && (!existed || f.SHA256 != was.SHA256 || f.Mode != was.Mode) {
			out = append(out, security.Changed{Path: name, New: !existed, Digest: f.SHA256, Mode: f.Mode & 0o7777})
		}
	}
	for name, f := range before {
		if _, ok := after[name]; !ok && f.Type == sandbox.TypeFile {
			out = append(out, security.Changed{Path: name, Removed: true, Digest: f.SHA256})
		}
	}
	slices.SortFunc(out, func(a, b security.Changed) int { return strings.Compare(a.Path, b.Path) })
	p, err := planOf(r)
	if err != nil {
		return nil, nil, err
	}
	was := 0
	for name, f := range before {
		if f.Type == sandbox.TypeFile && slices.ContainsFunc(p.Judge.Workspace, func(w string) bool { return strings.HasPrefix(name, strings.TrimSuffix(w, "/")+"/") }) {
			was++
		}
	}
	return out, kept{r, was}, nil
}

// readManifest reads a manifest by whole paths inside the sandbox. It is nil where there is none.
func readManifest(r *store.Run, name string) (map[string]sandbox.FileInfo, error) {
	b, err := r.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	var m map[string][]sandbox.FileInfo
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Path(name), err)
	}
	out := map[string]sandbox.FileInfo{}
	for root, files := range m {
		for _, f := range files {
			out[path.Join(root, f.Path)] = f
		}
	}
	return out, nil
}

// kept reads the changed files that a run kept.
type kept struct {
	r   *store.Run
	was int // files before the run
}

// Count is how many files there were before the run.
func (k kept) Count() int { return k.was }

func (k kept) Before(p string) ([]byte, error) { return k.read("before", p) }
func (k kept) After(p string) ([]byte, error)  { return k.read("after", p) }

func (k kept) read(when, p string) ([]byte, error) {
	name := filepath.Join(store.WorkspaceDir, when, p)
	if !filepath.IsLocal(name) {
		return nil, security.ErrNoContent
	}
	b, err := k.r.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrInvalid) {
		return nil, security.ErrNoContent
	}
	return b, err
}
