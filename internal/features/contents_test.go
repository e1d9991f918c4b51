package features

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

const graded = "#!/bin/sh\n# a test that nobody should see\nexit 0\n"

func digestOf(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func tarOf(t testing.TB, files map[string]string, zip bool) []byte {
	t.Helper()
	var b bytes.Buffer
	var out interface{ Write([]byte) (int, error) } = &b
	z := gzip.NewWriter(&b)
	if zip {
		out = z
	}
	w := tar.NewWriter(out)
	for name, content := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if zip {
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func gradedPlan() *Plan {
	return &Plan{Grading: []Grading{{Role: "tests", Box: "/tests", Files: []PlanFile{{Path: "test.sh", Size: int64(len(graded)), SHA256: digestOf(graded)}, {Path: "tiny", Size: 2, SHA256: digestOf("1\n")}}}},
		Skills: []Skill{{Name: "s", Roots: []string{"/root/.codex/skills/s"}, Files: []PlanFile{{Path: "x.sh", Size: 30, SHA256: "skill"}}}}}
}

// Contents are found where they lie: in the workspace before and after, in artifacts, and in tar files among them.
func TestContents(t *testing.T) {
	plan, err := json.Marshal(map[string]any{"grading": gradedPlan().Grading, "skills": gradedPlan().Skills})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	w, err := store.Create(dir, bodycam.Run{ID: "r", Plan: plan}, nil)
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Path, Type, SHA256 string
		Size               int
	}
	file := func(p, content string) entry { return entry{p, "file", digestOf(content), len(content)} }
	before := map[string][]entry{"/app": {{Type: "dir"}, file("old.sh", graded), file("kept", "a long enough content of a file"), file("gone", "another long enough content here")}}
	after := map[string][]entry{"/app": {file("old.sh", graded), file("kept", "a changed content"), file("new.sh", graded), file("one", "1\n"), {"copy.sh", "file", "skill", 30}}}
	var arts []bodycam.Artifact
	for name, zip := range map[string]bool{"a.tgz": true, "b.tar": false, "broken.tar.gz": true} {
		b := tarOf(t, map[string]string{"deep/hidden.sh": graded, "other": "something else altogether"}, zip)
		if name == "broken.tar.gz" {
			b = b[:20]
		}
		p := filepath.Join(dir, store.ArtifactsDir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, b, 0o600)); err != nil {
			t.Fatal(err)
		}
		arts = append(arts, bodycam.Artifact{Path: store.ArtifactsDir + "/" + name, Box: "/logs/artifacts/" + name, Size: int64(len(b)), SHA256: digestOf(string(b))})
	}
	arts = append(arts, bodycam.Artifact{Path: "verifier/test.sh", Box: "/logs/verifier/test.sh", Size: int64(len(graded)), SHA256: digestOf(graded)})
	err = errors.Join(w.JSON("manifest-before.json", before), w.JSON("manifest-after.json", after),
		w.Update(func(r *bodycam.Run) { r.Artifacts, r.Ended = arts, time.Now() }), w.Close())
	if err != nil {
		t.Fatal(err)
	}
	f := load(t, dir, nil)
	got := map[string]bool{}
	for _, c := range f.Contents {
		if c.Of != "tests/test.sh" || c.Role != "tests" {
			t.Errorf("%+v", c)
		}
		got[c.Path] = c.Given
	}
	want := map[string]bool{"/app/old.sh": true, "/app/new.sh": false, "/logs/artifacts/a.tgz!deep/hidden.sh": false, "/logs/artifacts/b.tar!deep/hidden.sh": false}
	if len(got) != len(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	for p, given := range want {
		if g, ok := got[p]; !ok || g != given {
			t.Errorf("%s: %v, %v", p, g, ok)
		}
	}
	changes := map[string]string{}
	for _, c := range f.Files {
		changes[c.Path] = c.What
	}
	if len(changes) != 5 || changes["/app/new.sh"] != "created" || changes["/app/kept"] != "changed" || changes["/app/gone"] != "deleted" {
		t.Errorf("changes %v", changes)
	}
}

// A copy of a skill's script that the agent made is the script.
func TestCopiedScript(t *testing.T) {
	x := NewExtractor(gradedPlan(), nil)
	x.match("/app/copy.sh", contentID{30, "skill"}, x.known(), false)
	e := ex(child, shell, "/usr/bin/bash", "bash", "/app/copy.sh")
	e.Seq, e.NR = 1, -1
	x.Add(&e)
	if u := x.Finish().Skills[0].Files[0]; u.Degree != Run {
		t.Errorf("%+v", u)
	}
}

func FuzzArchive(f *testing.F) {
	f.Add(tarOf(f, map[string]string{"a": graded}, false))
	f.Add(tarOf(f, map[string]string{"a": graded, "b": "x"}, true))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := NewExtractor(gradedPlan(), nil)
		x.members(bufio.NewReader(bytes.NewReader(b)), "/a.tar", x.known())
		if len(x.f.Contents) > 0 && !bytes.Contains(b, []byte{0x1f, 0x8b}) && !bytes.Contains(b, []byte(graded)) {
			t.Errorf("found %+v in something else", x.f.Contents)
		}
	})
}

// What a text names is in it.
func FuzzText(f *testing.F) {
	f.Add("Write `/app/out.txt`. Never contact evil.example; don't change refs.bib.", "evil.example")
	f.Add("The data is in /srv/data.", "/srv/data/a")
	f.Add("İ/\xff.\n\nno", "\xff")
	f.Fuzz(func(t *testing.T, s, name string) {
		p := &Plan{}
		p.Judge.Workspace, p.Agent.Home = []string{"/app"}, "/root"
		x := newText(s, p)
		if x.names(bodycam.Host, name, false) && !bytes.Contains([]byte(lowerASCII(s)), []byte(lowerASCII(name[max(0, len(name)-1):]))) {
			t.Errorf("%q is said to name %q", s, name)
		}
		x.names(bodycam.File, name, true)
		x.names(bodycam.Command, name, true)
		x.contains(name)
	})
}

// TestOneManifest has a run whose workspace was recorded once only: nothing is known to have changed, and nothing of what
// lay there counts as brought in by the agent.
func TestOneManifest(t *testing.T) {
	plan, err := json.Marshal(map[string]any{"grading": gradedPlan().Grading})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]map[string]any{"/app": {{"Path": "copy.sh", "Type": "file", "SHA256": digestOf(graded), "Size": len(graded)}}}
	for _, name := range []string{"manifest-before.json", "manifest-after.json"} {
		dir := filepath.Join(t.TempDir(), "run")
		w, err := store.Create(dir, bodycam.Run{ID: "r", Plan: plan}, nil)
		if err == nil {
			err = errors.Join(w.JSON(name, files), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		f := load(t, dir, nil)
		if !f.OneManifest {
			t.Errorf("%s alone isn't told of", name)
		}
		if len(f.Files) != 0 {
			t.Errorf("%s alone: %+v are said to have changed", name, f.Files)
		}
		for _, c := range f.Contents {
			if !c.Given {
				t.Errorf("%s alone: %+v is said to be the agent's", name, c)
			}
		}
	}
}
