package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

func newRun(t *testing.T, events int) (*Writer, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "runs", "r1")
	w, err := Create(dir, bodycam.Run{ID: "r1", Started: time.Now()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		e := bodycam.Event{NR: -1, Type: bodycam.TypeOpen, Proc: bodycam.Proc{PID: 5, Start: 9}, Path: fmt.Sprintf("/w/\xff%d", i), Boot: uint64(i + 1)}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	return w, dir
}

func count(t *testing.T, dir string) (int, error) {
	t.Helper()
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = r.Events(func(e *bodycam.Event) error {
		n++
		if e.Seq != uint64(n) || e.Path != fmt.Sprintf("/w/\xff%d", n-1) {
			t.Fatalf("event %d reads back as seq %d, path %q", n, e.Seq, e.Path)
		}
		return nil
	})
	return n, err
}

func TestRoundTrip(t *testing.T) {
	w, dir := newRun(t, 10_000)
	rows := []bodycam.Row{{Index: 0, Kind: bodycam.RowTool, Command: "cat \xff"}}
	if err := w.Rows(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := count(t, dir); n != 10_000 || err != nil {
		t.Fatalf("read %d events, %v", n, err)
	}
	r, _ := Open(dir)
	got, err := r.Rows()
	if err != nil || len(got) != 1 || got[0].Command != rows[0].Command {
		t.Errorf("rows read back as %+v, %v", got, err)
	}
	if r.Info.Counts.Events != 10_000 || r.Info.Counts.ByType["open"] != 10_000 {
		t.Errorf("counts are %+v", r.Info.Counts)
	}
	if _, err := Create(dir, bodycam.Run{}, nil); err == nil {
		t.Error("a run directory was made twice")
	}
}

// A writer that was killed leaves a torn block: every whole block before it must be read, and the tear be told.
func TestTorn(t *testing.T) {
	w, dir := newRun(t, 10_000)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, EventsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, 3, headLen, headLen + 1, 100} {
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := count(t, dir)
		if !errors.Is(err, ErrTorn) || n == 0 || n >= 10_000 {
			t.Errorf("cut by %d bytes: read %d events, %v", cut, n, err)
		}
	}
	flip := append([]byte(nil), whole...)
	flip[len(flip)-1] ^= 1
	os.WriteFile(path, flip, 0o600)
	if _, err := count(t, dir); !errors.Is(err, ErrTorn) {
		t.Errorf("a flipped bit: %v", err)
	}
}

func TestFollow(t *testing.T) {
	w, dir := newRun(t, 100)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	seen := make(chan uint64, 300)
	done := make(chan error, 1)
	go func() {
		done <- r.Follow(ctx, func(e *bodycam.Event) error { seen <- e.Seq; return nil })
	}()
	for i := range 100 {
		if got := <-seen; got != uint64(i+1) {
			t.Fatalf("event %d is seq %d", i, got)
		}
	}
	e := bodycam.Event{NR: -1, Path: "/late"}
	if err := w.Event(&e); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(func(r *bodycam.Run) { r.Ended = time.Now() }); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != 101 {
		t.Errorf("the last event is seq %d", got)
	}
}

// A full disk must leave a readable run: whole events, and a run.json that can still be completed.
func TestDiskFull(t *testing.T) {
	w, dir := newRun(t, 1)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	real := w.seg.f
	w.seg.f = full
	e := bodycam.Event{NR: -1, Path: "/lost"}
	if err := w.Event(&e); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err == nil {
		t.Fatal("a write to a full disk reported no error")
	}
	if err := w.Event(&e); err == nil {
		t.Fatal("the record went on behind a hole")
	}
	w.seg.f = real
	w.seg.buf = w.seg.buf[:headLen]
	if err := w.Update(func(r *bodycam.Run) { r.Error = "disk full" }); err != nil {
		t.Fatal(err)
	}
	if n, err := count(t, dir); n != 1 || err != nil {
		t.Errorf("read %d events, %v", n, err)
	}
}

func FuzzSegment(f *testing.F) {
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x05\x00\x00\x00\x00\x00\x00\x00hello"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "e")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openSegment(path)
		if err != nil {
			return
		}
		defer s.close()
		var e bodycam.Event
		for s.next(&e) == nil {
		}
	})
}
