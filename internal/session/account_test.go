package session

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
)

type lineParser struct{ lines []string }

func (p *lineParser) Line(_ time.Time, b []byte) error {
	p.lines = append(p.lines, string(b))
	return nil
}
func (p *lineParser) Finish(time.Time) []bodycam.Row { return nil }
func (p *lineParser) Rows() []bodycam.Row            { return nil }

func TestAccountLines(t *testing.T) {
	p := &lineParser{}
	path := filepath.Join(t.TempDir(), "out")
	a, err := newAccount(path, 0, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"a", "b\nc\n\n", "last"} {
		a.Write([]byte(part))
	}
	if _, dropped, err := a.finish(); dropped != 0 || err != nil {
		t.Fatal(dropped, err)
	}
	if got := strings.Join(p.lines, "|"); got != "ab|c||last" {
		t.Errorf("lines are %q", got)
	}
	if b, _ := os.ReadFile(path); string(b) != "ab\nc\n\nlast" {
		t.Errorf("the file holds %q", b)
	}
}

func TestAccountLimit(t *testing.T) {
	p := &lineParser{}
	path := filepath.Join(t.TempDir(), "out")
	a, err := newAccount(path, 1000, p)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if n, err := a.Write(bytes.Repeat([]byte("x\n"), 50)); n != 100 || err != nil {
			t.Fatal("the agent noticed the limit", n, err)
		}
	}
	_, dropped, err := a.finish()
	if dropped != 9000 || err != nil {
		t.Errorf("dropped %d, %v", dropped, err)
	}
	if st, _ := os.Stat(path); st.Size() != 1000 {
		t.Errorf("kept %d bytes", st.Size())
	}
	if len(p.lines) != 500 {
		t.Errorf("%d lines", len(p.lines))
	}
}

// A line without end must not take all memory, and the line after it must be whole.
func TestAccountOverlongLine(t *testing.T) {
	p := &lineParser{}
	a, err := newAccount(filepath.Join(t.TempDir(), "out"), 0, p)
	if err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Repeat([]byte("y"), 1<<20)
	for range 40 {
		a.Write(chunk)
	}
	a.Write([]byte("\nnext\n"))
	if _, _, err := a.finish(); err != nil {
		t.Fatal(err)
	}
	if len(p.lines) != 2 || len(p.lines[0]) != maxLine || p.lines[1] != "next" {
		t.Errorf("%d lines, the first of %d bytes", len(p.lines), len(p.lines[0]))
	}
}

// A full disk of the recorder must not fail the agent's write.
func TestAccountDiskFull(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := &account{parser: &lineParser{}, file: f}
	if n, err := a.Write([]byte("hello\n")); n != 6 || err != nil {
		t.Errorf("Write returned %d, %v", n, err)
	}
	if _, dropped, err := a.finish(); dropped != 6 || err == nil {
		t.Errorf("dropped %d, %v", dropped, err)
	}
}
