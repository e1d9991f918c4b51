package kind

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every file in testdata/broken has its errors, to the letter, in a file beside it.
func TestBrokenKinds(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			_, err := Load(f)
			if err == nil {
				t.Fatal("no error")
			}
			golden(t, f+".want", withoutDir(t, err.Error())+"\n")
		})
	}
}

func TestBrokenTasks(t *testing.T) {
	files, err := filepath.Glob("testdata/broken-tasks/*.want")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d tasks, %v", len(files), err)
	}
	k, err := Load("harbor")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		d := strings.TrimSuffix(f, ".want")
		t.Run(filepath.Base(d), func(t *testing.T) {
			task, err := LoadTask(d)
			if err == nil {
				_, err = Resolve(k, task, Overrides{})
			}
			if err == nil {
				t.Fatal("no error")
			}
			golden(t, f, withoutDir(t, err.Error())+"\n")
		})
	}
}

func TestMissingKinds(t *testing.T) {
	for ref, want := range map[string]string{
		"harbour":           `no kind "harbour": did you mean harbor?`,
		"xyzzy":             `no kind "xyzzy": built-in kinds are command, default, harbor, offline, untrusted; a file is written with its path, as ./xyzzy.yaml`,
		"./nowhere.yaml":    "reading kind file ./nowhere.yaml: no such file or directory",
		"testdata/broken/":  "reading kind file testdata/broken/: not a regular file",
		"/dev/null":         "reading kind file /dev/null: not a regular file",
		"testdata/huge.yml": "reading kind file testdata/huge.yml: no such file or directory",
	} {
		if _, err := Load(ref); err == nil || err.Error() != want {
			t.Errorf("Load(%q): %v, want %s", ref, err, want)
		}
	}
}

// withoutDir removes the directory of this checkout from a message.
func withoutDir(t *testing.T, s string) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(s, wd+"/", "")
}
