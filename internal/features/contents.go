package features

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// FileChange is a file that differs between the manifests before and after the agent.
type FileChange struct {
	Path   string `json:"path"`
	What   string `json:"what"` // created, changed, deleted
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// Content is a file whose content is that of grading material or of a skill's file, wherever it lies.
type Content struct {
	Path string `json:"path"`           // in the box; of an archive ARCHIVE!MEMBER
	Of   string `json:"of"`             // which file: "tests/test.sh", "skill NAME/scripts/x.sh"
	Role string `json:"role,omitempty"` // of grading material
	// Given tells that the file was there before the agent began: the environment itself holds a copy.
	Given bool `json:"given,omitempty"`
}

// manifestEntry is a file as the manifests list it.
type manifestEntry struct {
	Path, Type, SHA256 string
	Size               int64
}

// leastContent is the least size from which a file's content identifies it: shorter files are alike by chance.
const leastContent = 24

type contentID struct {
	size int64
	sum  string
}

// contents compares the manifests, and looks for copies of grading material and skills' files.
func (x *Extractor) contents(r *store.Run) error {
	before, err := manifest(r, "manifest-before.json")
	if err != nil {
		return err
	}
	after, err := manifest(r, "manifest-after.json")
	if err != nil {
		return err
	}
	known := x.known()
	compared := before != nil && after != nil // a run whose recorder was killed has no second manifest: nothing is known to have changed
	x.f.OneManifest = (before == nil) != (after == nil)
	if compared {
		x.changes(before, after)
	}
	x.existed = make(map[string]bool, len(before))
	for p, e := range before {
		x.existed[p] = true
		x.match(p, contentID{e.Size, e.SHA256}, known, true)
	}
	for p, e := range after {
		if b, ok := before[p]; !compared || ok && b.SHA256 == e.SHA256 {
			continue
		}
		x.match(p, contentID{e.Size, e.SHA256}, known, false)
	}
	for _, a := range r.Info.Artifacts {
		box := bodycam.Unescape(a.Box)
		if !strings.HasPrefix(a.Path, store.ArtifactsDir+"/") {
			continue // the harness's session files, the tests' own output
		}
		if _, ok := after[box]; !ok && before[box].SHA256 != a.SHA256 {
			x.match(box, contentID{a.Size, a.SHA256}, known, false)
		}
		if !r.Sealed() {
			if err := x.archive(r.Path(bodycam.Unescape(a.Path)), box, known); err != nil {
				return fmt.Errorf("looking into %s: %w", a.Path, err)
			}
		}
	}
	slices.SortFunc(x.f.Contents, func(a, b Content) int { return strings.Compare(a.Path+"\x00"+a.Of, b.Path+"\x00"+b.Of) })
	return nil
}

// manifest reads a manifest by whole paths inside the box. It is nil where the run has none.
func manifest(r *store.Run, name string) (map[string]manifestEntry, error) {
	var m map[string][]manifestEntry
	if err := r.JSON(name, &m); err != nil || m == nil {
		return nil, err
	}
	out := map[string]manifestEntry{}
	for root, files := range m {
		for _, f := range files {
			if f.Type == "file" && f.SHA256 != "" {
				out[path.Join(bodycam.Unescape(root), bodycam.Unescape(f.Path))] = f
			}
		}
	}
	return out, nil
}

func (x *Extractor) changes(before, after map[string]manifestEntry) {
	for p, a := range after {
		b, ok := before[p]
		switch {
		case !ok:
			x.f.Files = append(x.f.Files, FileChange{Path: p, What: "created", Size: a.Size, SHA256: a.SHA256})
		case a.SHA256 != b.SHA256:
			x.f.Files = append(x.f.Files, FileChange{Path: p, What: "changed", Size: a.Size, SHA256: a.SHA256})
		}
	}
	for p := range before {
		if _, ok := after[p]; !ok {
			x.f.Files = append(x.f.Files, FileChange{Path: p, What: "deleted"})
		}
	}
	slices.SortFunc(x.f.Files, func(a, b FileChange) int { return strings.Compare(a.Path, b.Path) })
}

type knownContent struct {
	of, role string
	ref      *fileRef // of a skill's file
}

// known lists contents worth finding elsewhere.
func (x *Extractor) known() map[contentID]knownContent {
	out := map[contentID]knownContent{}
	for i, s := range x.plan.Skills {
		for j, f := range s.Files {
			if f.Size >= leastContent && f.SHA256 != "" {
				out[contentID{f.Size, f.SHA256}] = knownContent{of: "skill " + s.Name + "/" + f.Path, ref: &fileRef{i, j}}
			}
		}
	}
	for _, g := range x.plan.Grading {
		for _, f := range g.Files {
			if f.Size >= leastContent && f.SHA256 != "" {
				out[contentID{f.Size, f.SHA256}] = knownContent{of: g.Role + "/" + f.Path, role: g.Role}
			}
		}
	}
	return out
}

func (x *Extractor) match(p string, id contentID, known map[contentID]knownContent, given bool) {
	k, ok := known[id]
	if !ok || id.sum == "" {
		return
	}
	if k.ref != nil {
		if !given {
			x.skills.alias(p, *k.ref) // a copy that the agent made is the skill's file too
		}
		return
	}
	if given {
		for _, s := range x.plan.SkillRoots() {
			if under(p, []string{s}) {
				return // a skill may bring the same file as the tests
			}
		}
	}
	x.f.Contents = append(x.f.Contents, Content{Path: p, Of: k.of, Role: k.role, Given: given})
}

// The bounds of looking into an archive.
const (
	mostMembers = 10_000
	mostArchive = 256 << 20 // bytes
)

// archive looks into a tar file, plain or compressed with gzip, for known contents. What is no archive, or is a
// broken one, is left: it is the agent's file and may be anything.
func (x *Extractor) archive(file, box string, known map[contentID]knownContent) error {
	name := strings.ToLower(box)
	if !strings.HasSuffix(name, ".tar") && !strings.HasSuffix(name, ".tar.gz") && !strings.HasSuffix(name, ".tgz") {
		return nil
	}
	f, err := store.OpenCopy(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	x.members(bufio.NewReader(f), box, known)
	return nil
}

func (x *Extractor) members(in *bufio.Reader, box string, known map[contentID]knownContent) {
	var src io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return
		}
		src = z
	}
	sizes := map[int64]bool{}
	for id := range known {
		sizes[id.size] = true
	}
	t := tar.NewReader(io.LimitReader(src, mostArchive))
	left := int64(mostArchive) // of contents: a sparse member holds more than it has
	for range mostMembers {
		h, err := t.Next()
		if err != nil {
			return
		}
		if h.Typeflag != tar.TypeReg || !sizes[h.Size] {
			continue
		}
		if left -= h.Size; left < 0 {
			return
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, t); err != nil {
			return
		}
		x.match(box+"!"+h.Name, contentID{h.Size, hex.EncodeToString(sum.Sum(nil))}, known, false)
	}
}
