//go:build linux

package boxinit

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A frame from init is parsed with bounds, though init is ours.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x08{\"ID\":1}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := socketPair(t)
		defer a.Close()
		defer b.Close()
		go func() {
			_, _ = a.Write(data)
			a.Close()
		}()
		b.SetDeadline(time.Now().Add(10 * time.Second))
		for {
			var r Reply
			files, err := Recv(b, &r)
			CloseAll(files)
			if err != nil {
				return
			}
		}
	})
}

// A tar base may be made by anyone: nothing outside of its directory may change, and no set of entries may panic.
func FuzzExtract(f *testing.F) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../outside"},
		{Typeflag: tar.TypeReg, Name: "a/f", Mode: 0o644},
		{Typeflag: tar.TypeLink, Name: "b", Linkname: "../outside/keep"},
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0},
	} {
		if err := w.WriteHeader(h); err != nil {
			f.Fatal(err)
		}
	}
	w.Close()
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		outside, inside := filepath.Join(top, "outside"), filepath.Join(top, "inside")
		for _, d := range []string{outside, inside} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(outside, "keep"), []byte("kept"), 0o644); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(inside)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_ = Extract(root, tar.NewReader(bytes.NewReader(data)), nil)
		var seen []string
		for _, d := range []string{top, outside} {
			entries, err := os.ReadDir(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				seen = append(seen, e.Name())
			}
		}
		st, err := os.Lstat(filepath.Join(outside, "keep"))
		if err != nil || st.Size() != 4 || st.Mode() != 0o644 || strings.Join(seen, " ") != "inside outside keep" {
			t.Errorf("outside: %v %v, entries %v", st, err, seen)
		}
		filepath.WalkDir(inside, func(p string, e fs.DirEntry, err error) error { // so that TempDir can be removed
			if err == nil && e.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
	})
}

func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		out[i] = c.(*net.UnixConn)
	}
	return out[0], out[1]
}

func TestFramesCarryFiles(t *testing.T) {
	a, b := socketPair(t)
	defer a.Close()
	defer b.Close()
	want := Request{ID: 7, Start: &Start{Argv: [][]byte{[]byte("\xff"), bytes.Repeat([]byte("x"), 3<<20)}}}
	go func() {
		_ = Send(a, &want, int(os.Stdin.Fd()), int(os.Stdout.Fd()))
		_ = Send(a, &Request{ID: 8})
	}()
	var got Request
	files, err := Recv(b, &got)
	if err != nil || len(files) != 2 || got.ID != 7 || !bytes.Equal(got.Start.Argv[0], want.Start.Argv[0]) || len(got.Start.Argv[1]) != 3<<20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a received file stays open over exec: %v", err)
		}
	}
	CloseAll(files)
	if files, err := Recv(b, &got); err != nil || len(files) != 0 || got.ID != 8 {
		t.Errorf("second frame: %v %v", files, err)
	}
}
