package bpf

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/bodycam-dev/bodycam"
)

// Paths are put together from their end, in words of eight bytes: names of every length, and paths about as long as the kernel side
// keeps them, have to come out to the byte.
func TestPathsOfEveryLength(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("/usr/bin/python3", "-c", `
import os, sys
letters = bytes(range(97, 123)) + bytes(range(65, 91))
def name(n, k):
    return bytes(letters[(i * 7 + k) % 52] for i in range(n))
def touch(n):
    os.close(os.open(n, os.O_WRONLY | os.O_CREAT))
os.chdir(sys.argv[1])
for n in range(1, 256):
    folder = name(n, n)
    os.mkdir(folder)
    os.chdir(folder)
    touch(name(256 - n, n + 1))
    os.chdir(b"..")
os.mkdir(b"deep")
os.chdir(b"deep")
length = len(os.getcwdb())
while length < 3900:
    os.mkdir(name(100, length))
    os.chdir(name(100, length))
    length += 101
for full in range(4080, 4104):
    touch(name(full - length - 1, full))
`, dir)
	letters := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	name := func(n, k int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[(i*7+k)%52]
		}
		return string(b)
	}
	got := map[string]bodycam.Mark{}
	h := observed(t, Options{}, cmd, func(e *bodycam.Event) error {
		if e.Type == bodycam.TypeOpen && e.Errno == 0 && e.Access&bodycam.Create != 0 {
			got[strings.Clone(e.Path)] = e.Marks
		}
		return nil
	})
	complete(t, h)
	if !cmd.ProcessState.Success() {
		t.Fatal(cmd.ProcessState)
	}
	for n := 1; n < 256; n++ {
		if m, ok := got[dir+"/"+name(n, n)+"/"+name(256-n, n+1)]; !ok || m != 0 {
			t.Errorf("a file in a folder whose name has %d bytes: recorded %v, marks %v", n, ok, m.Names())
		}
	}
	deep := dir + "/deep"
	for len(deep) < 3900 {
		deep += "/" + name(100, len(deep))
	}
	for full := 4080; full < 4104; full++ {
		want := deep + "/" + name(full-len(deep)-1, full)
		if m, ok := got[want]; ok && m == 0 {
			continue
		} else if full <= 4096 {
			t.Errorf("a path of %d bytes: recorded %v, marks %v", full, ok, m.Names())
		}
		cut := false
		for p, m := range got {
			cut = cut || m == bodycam.MarkTruncated && len(p) > 3900 && strings.HasSuffix(want, p)
		}
		if !cut {
			t.Errorf("a path of %d bytes is neither whole nor marked", full)
		}
	}
}
