package features

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/store"
)

func recordRun(t *testing.T, paths ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := store.Create(dir, bodycam.Run{ID: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range paths {
		e := bodycam.Event{Type: bodycam.TypeOpen, NR: -1, Path: p, Access: bodycam.Read, Exe: "/usr/bin/cat", Proc: bodycam.Proc{PID: 9, Start: 1}, Boot: uint64(i + 1), Window: bodycam.WindowAgent}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	rows := []bodycam.Row{{Index: 0, Kind: bodycam.RowTool, Command: "cat x"}}
	if err := errors.Join(w.Rows(rows), w.JSON(store.LinksFile, []bodycam.Link{}), w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func load(t *testing.T, dir string, join Join) *Features {
	t.Helper()
	r, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Load(r, join)
	if err != nil {
		t.Fatal(err)
	}
	f.index = nil
	return f
}

// What was kept is what was extracted, byte for byte of names that are no text, and is used until the record changes.
func TestCache(t *testing.T) {
	dir := recordRun(t, "/a", "/b\xff\\x41", "/a")
	joined := 0
	join := func(*store.Run) (RowOf, error) {
		joined++
		return func(*bodycam.Event) (int, bodycam.LinkMethod, float64, bool) { return 0, bodycam.LinkArgv, 1, true }, nil
	}
	first := load(t, dir, join)
	if r := first.Get(bodycam.File, "/b\xff\\x41"); r == nil || r.Rows[0].Row != 0 || r.Uses.Rows != 1 {
		t.Fatalf("extracted %+v", r)
	}
	first.index = nil
	for _, r := range first.Resources {
		r.last = 0
	}
	if second := load(t, dir, join); !reflect.DeepEqual(first, second) || joined != 1 {
		t.Errorf("kept %+v, extracted %+v; joined %d times, want once", second, first, joined)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, store.RowsFile), later, later); err != nil {
		t.Fatal(err)
	}
	if load(t, dir, join); joined != 2 {
		t.Error("other rows, and the old features are used")
	}
	name := filepath.Join(dir, Dir, cacheFile)
	for what, damage := range map[string][]byte{"empty": nil, "no gzip": []byte("hello"), "cut": []byte("\x1f\x8b\x08\x00")} {
		if err := os.WriteFile(name, damage, 0o600); err != nil {
			t.Fatal(err)
		}
		before := joined
		if f := load(t, dir, join); len(f.Resources) != 2 || joined != before+1 {
			t.Errorf("%s: the features are %+v", what, f)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, Dir)); err != nil {
		t.Fatal(err)
	}
	if f := load(t, dir, join); len(f.Resources) != 2 {
		t.Error("deleted features aren't made again")
	}
}

// A run that isn't over keeps nothing.
func TestCacheOfALiveRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := store.Create(dir, bodycam.Run{ID: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	load(t, dir, nil)
	if _, err := os.Stat(filepath.Join(dir, Dir)); !os.IsNotExist(err) {
		t.Errorf("features were kept: %v", err)
	}
}

// What is kept and was edited isn't genuine, and isn't used where the run says so; made again it is.
func TestEditedCache(t *testing.T) {
	dir := recordRun(t, "/a", "/b\xff", "/a")
	genuine := func() bool {
		t.Helper()
		r, err := store.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		ok, err := Genuine(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if genuine() {
		t.Error("nothing is kept, and it is genuine")
	}
	f := load(t, dir, nil)
	if !genuine() {
		t.Error("just made, it isn't genuine")
	}
	r, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Resources = f.Resources[:1]
	if err := keep(r, recordState(r), f); err != nil {
		t.Fatal(err)
	}
	if genuine() {
		t.Error("a resource was taken out, and it is genuine")
	}
	r.Anew = true
	if f, err := Load(r, nil); err != nil || len(f.Resources) != 2 {
		t.Errorf("edited features are used: %+v, %v", f, err)
	}
	if !genuine() {
		t.Error("made again, it isn't genuine")
	}
}
