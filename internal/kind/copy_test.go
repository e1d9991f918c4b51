package kind

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listing writes what a copy comes to, one line an entry.
func listing(t *testing.T, c Copy) []string {
	t.Helper()
	var out []string
	err := c.Walk(func(e Entry) error {
		line := fmt.Sprintf("%s %s", e.Mode, e.To)
		if e.Link != "" {
			line += " -> " + e.Link
		}
		if e.Mode.IsRegular() {
			r, err := e.Open()
			if err != nil {
				return err
			}
			defer r.Close()
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			if int64(len(b)) != e.Size {
				return fmt.Errorf("%s: %d bytes, size says %d", e.To, len(b), e.Size)
			}
			line += " = " + string(b)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWalkOfADirectory(t *testing.T) {
	dir := writeTree(t, map[string]string{"d/b": "B", "d/sub/c": "C", "d/sub/x.tmp": "no", "d/a": "-> sub/c", "d/out": "-> /etc/passwd", "d/keep/only.me": "1", "d/keep/not.me": "2", "e": "E"})
	if err := os.Chmod(filepath.Join(dir, "d/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d/empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := listing(t, Copy{From: dir + "/d", Root: dir, To: "/to", Exclude: []string{"**/*.tmp", "d/keep", "!d/keep/only.me"}})
	for i := range got {
		got[i] = strings.Replace(got[i], "Lrwxrwxrwx", "L", 1)
	}
	want := []string{
		"drwxr-xr-x /to", "L /to/a -> sub/c", "-rwxr-xr-x /to/b = B", "drwx------ /to/empty", "-rw-r--r-- /to/keep/only.me = 1",
		"L /to/out -> /etc/passwd", "drwxr-xr-x /to/sub", "-rw-r--r-- /to/sub/c = C",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got = listing(t, Copy{From: dir + "/d/sub", Root: dir, To: "/to", Mode: "4711", Exclude: []string{"d/sub/*.tmp"}})
	want = []string{"durwx--x--x /to", "urwx--x--x /to/c = C"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWalkOfFilesAndLinks(t *testing.T) {
	dir := writeTree(t, map[string]string{"f": "F", "link": "-> f", "d/g": "G", "dlink": "-> d", "deep/up": "-> ../dlink/g", "out": "-> ../x", "abs": "-> /etc/hostname", "loop": "-> loop"})
	for from, want := range map[string]string{
		"f": "-rw-r--r-- /t = F", "link": "-rw-r--r-- /t = F", "deep/up": "-rw-r--r-- /t = G", "dlink/g": "-rw-r--r-- /t = G", "dlink": "drwxr-xr-x /t,-rw-r--r-- /t/g = G",
	} {
		if got := strings.Join(listing(t, Copy{From: filepath.Join(dir, from), Root: dir, To: "/t"}), ","); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
	for _, from := range []string{"out", "abs", "loop", "missing", "../" + filepath.Base(dir)} {
		c := Copy{From: filepath.Join(dir, from), Root: filepath.Join(dir, "d", ".."), To: "/t"}
		if from == "../"+filepath.Base(dir) {
			c.Root = filepath.Join(dir, "d")
		}
		if err := c.Walk(func(e Entry) error { return fmt.Errorf("an entry: %s", e.To) }); err == nil || strings.Contains(err.Error(), "an entry") {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestSpecialFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Copy{From: dir, Root: dir, To: "/t"}
	if err := c.Walk(func(Entry) error { return nil }); err == nil || !strings.Contains(err.Error(), "pipe is neither file, directory nor symbolic link") {
		t.Errorf("a pipe in a directory: %v", err)
	}
	c.From = filepath.Join(dir, "pipe")
	if err := c.Walk(func(Entry) error { return nil }); err == nil {
		t.Error("a pipe is copied")
	}
	m, err := ReadManifest(dir)
	if err != nil || len(m.Files) != 1 || m.Files[0].SHA256 != "" {
		t.Errorf("a manifest lists a pipe and doesn't open it: %+v, %v", m, err)
	}
}

func TestManifest(t *testing.T) {
	files := map[string]string{"b": "B", "a/c": "C", "a-b": "D", "l": "-> b", "new\nline": "N", "bad\xffbyte": "X", "empty/.x": "", "a/run": "#!"}
	one, two := writeTree(t, files), writeTree(t, files)
	for _, d := range []string{one, two} {
		if err := os.Chmod(filepath.Join(d, "a/run"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m, err := ReadManifest(one)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range m.Files {
		got = append(got, f.Path)
	}
	if d := cmp.Diff([]string{"a-b", "a/c", "a/run", "b", `bad\xffbyte`, "empty/.x", "l", "new\nline"}, got); d != "" {
		t.Errorf("order is that of the paths' bytes:\n%s", d)
	}
	check := func(what string, wantSame bool, change func(dir string) error) {
		t.Helper()
		if err := change(two); err != nil {
			t.Fatal(err)
		}
		n, err := ReadManifest(two)
		if err != nil {
			t.Fatal(err)
		}
		if (n.SHA256 == m.SHA256) != wantSame {
			t.Errorf("%s: same = %v, want %v", what, n.SHA256 == m.SHA256, wantSame)
		}
	}
	check("the same files", true, func(string) error { return nil })
	check("another umask", true, func(d string) error { return os.Chmod(d+"/b", 0o600) })
	check("executable", false, func(d string) error { return os.Chmod(d+"/b", 0o700) })
	check("and back", true, func(d string) error { return os.Chmod(d+"/b", 0o644) })
	check("set-user", false, func(d string) error { return os.Chmod(d+"/b", fs.ModeSetuid|0o644) })
	check("and back", true, func(d string) error { return os.Chmod(d+"/b", 0o644) })
	check("an empty directory", false, func(d string) error { return os.Mkdir(d+"/dir", 0o755) })
	check("and back", true, func(d string) error { return os.Remove(d + "/dir") })
	check("another link", false, func(d string) error { return errors.Join(os.Remove(d+"/l"), os.Symlink("a/c", d+"/l")) })
}

// The digest is that of the lines which the documentation describes: here they are written out.
func TestManifestDigestAsDocumented(t *testing.T) {
	dir := writeTree(t, map[string]string{"a": "", "run": "", "l": "-> \x01"})
	if err := os.Chmod(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	lines := "- 0 " + empty + ` "a"` + "\n" + `L 0 - "l" -> "\x01"` + "\n" + "-x 0 " + empty + ` "run"` + "\n"
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(lines))); m.SHA256 != want {
		t.Errorf("digest %s, want %s", m.SHA256, want)
	}
}
