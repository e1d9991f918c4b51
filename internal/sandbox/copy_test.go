//go:build linux

package sandbox

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

func TestCopyIn(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	src := t.TempDir()
	odd := "odd \xff\n name"
	for name, mode := range map[string]fs.FileMode{"plain": 0o644, "sub/run": 0o4755, odd: 0o600} {
		p := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(p, uint32(mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(src, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.CopyIn(t.Context(), src, "/srv/in", CopyOpts{}); err != nil {
		t.Fatal(err)
	}
	m, err := b.Manifest(t.Context(), "/srv/in")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range m {
		got = append(got, fmt.Sprintf("%q %s %o %d:%d %s", f.Path, f.Type, f.Mode, f.UID, f.GID, f.Target))
		if f.Type == TypeFile {
			if sum := sha256.Sum256([]byte(f.Path)); f.SHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("%q: digest %s", f.Path, f.SHA256)
			}
		}
	}
	st, _ := os.Stat(src)
	want := []string{
		fmt.Sprintf(`"" dir %o 1000:1000 `, st.Mode().Perm()),
		`"link" symlink 777 1000:1000 /etc/shadow`,
		fmt.Sprintf(`%q file 600 1000:1000 `, odd),
		`"plain" file 644 1000:1000 `,
		`"sub" dir 755 1000:1000 `,
		`"sub/run" file 755 1000:1000 `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// One file, with an owner and a mode.
	if err := b.CopyIn(t.Context(), filepath.Join(src, "plain"), "/etc/cfg/file", CopyOpts{Owner: "root", Mode: 0o640}); err != nil {
		t.Fatal(err)
	}
	if r := sh(t, b, "stat -c '%a %u %g' /etc/cfg/file"); r.out != "640 0 0\n" {
		t.Errorf("single file: %+v", r)
	}
}

// What an agent left at the destination of a copy has no say in where it goes.
func TestCopyInOverTraps(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "test.sh"), []byte("real"), 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, b, "mkdir /home/agent/tests /home/agent/trap; mkfifo /home/agent/tests/test.sh; ln -s trap /home/agent/link; echo mine >/home/agent/trap/extra")
	if err := b.CopyIn(t.Context(), src, "/home/agent/tests", CopyOpts{}); err != nil {
		t.Fatal(err)
	}
	if err := b.CopyIn(t.Context(), src, "/home/agent/link", CopyOpts{Replace: true}); err != nil {
		t.Fatal(err)
	}
	r := sh(t, b, "cd /home/agent; cat tests/test.sh; ls trap; stat -c %F link; ls link")
	if r.out != "realextra\ndirectory\ntest.sh\n" {
		t.Errorf("got %+v", r)
	}
	// A link made in the middle of the tree doesn't lead the copy out of its directory.
	sh(t, b, "cd /home/agent; mkdir d; ln -s /tmp d/sub")
	if err := os.Mkdir(filepath.Join(src, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "sub", "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.CopyIn(t.Context(), src, "/home/agent/d", CopyOpts{}); err != nil {
		t.Fatal(err)
	}
	if r := sh(t, b, "ls /tmp; stat -c %F /home/agent/d/sub"); r.out != "directory\n" {
		t.Errorf("got %+v", r)
	}
}

func TestCopyInErrors(t *testing.T) {
	needRoot(t)
	b := testBox(t, func(c *Config) { c.Limits.DiskBytes = 4 << 20 })
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 16<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.CopyIn(t.Context(), big, "/tmp/big", CopyOpts{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("full disk: %v", err)
	}
	if err := b.CopyIn(t.Context(), big+"-missing", "/tmp/x", CopyOpts{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing source: %v", err)
	}
	if err := b.CopyIn(t.Context(), "/dev/zero", "/tmp/x", CopyOpts{}); !errors.Is(err, boxinit.ErrNotRegular) {
		t.Errorf("device: %v", err)
	}
	if err := b.Mkdir(t.Context(), "/usr/x", "root", 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("read-only place: %v", err)
	}
	if err := b.Mkdir(t.Context(), "/logs/agent", "", 0o750); err != nil {
		t.Error(err)
	}
	if r := sh(t, b, "stat -c '%a %U' /logs/agent"); r.out != "750 agent\n" {
		t.Errorf("%+v", r)
	}
}

// Everything a hostile agent can leave for collection: nothing outside is read or written, nothing hangs.
func TestCopyOutHostile(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("host secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `
mkdir -p /home/agent/a/sub; cd /home/agent/a
echo good >good; chmod 4777 good; ln good hard
ln -s ` + secret + ` abs; ln -s ../../../../../../../../../../..` + secret + ` rel; ln -s /proc/self/root/etc/shadow magic; ln -s / rootdir; ln -s loop loop
ln -s /proc/1/environ env
mkfifo fifo; chmod 000 fifo
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
truncate -s 1T sparse
head -c 3000 /dev/urandom >big
echo hidden >sub/locked; chmod 000 sub/locked sub
python3 - <<'P'
import os
os.makedirs(b"deep/" + b"/".join([b"d"] * 100)); os.mkdir(b"n\xff\n../x" .replace(b"/", b"_"))
for n in (b"..x", b"-rf", b"new\nline", b"\xff\xfe", b"C:\\x", b"x" * 255): open(n, "w").write("n")
P`
	if r := sh(t, b, script); r.status.Code != 0 || r.err != "" {
		t.Fatalf("%+v", r)
	}
	dst := filepath.Join(t.TempDir(), "out")
	m, skipped, err := b.CopyOut(t.Context(), "/home/agent/a", dst, CopyLimits{FileBytes: 2000, Depth: 20})
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]FileType{}
	for _, f := range m {
		types[f.Path] = f.Type
		if f.Path == "good" && (f.Mode != 0o4777 || f.Links != 2 || f.UID != 1000) {
			t.Errorf("good: %+v", f)
		}
		if f.Path == "magic" && f.Target != "/proc/self/root/etc/shadow" {
			t.Errorf("magic: %+v", f)
		}
	}
	for name, want := range map[string]FileType{"good": TypeFile, "hard": TypeFile, "abs": TypeSymlink, "rel": TypeSymlink, "magic": TypeSymlink,
		"rootdir": TypeSymlink, "loop": TypeSymlink, "env": TypeSymlink, "fifo": TypeFifo, "sock": TypeSocket, "sparse": TypeFile, "sub": TypeDir,
		"sub/locked": TypeFile, "..x": TypeFile, "-rf": TypeFile, "new\nline": TypeFile, "\xff\xfe": TypeFile, "C:\\x": TypeFile} {
		if types[name] != want {
			t.Errorf("%q is %q in the manifest, not %q", name, types[name], want)
		}
	}
	reasons := map[string]string{}
	for _, s := range skipped {
		reasons[s.Path] = s.Reason
	}
	for _, name := range []string{"sparse", "big", "deep" + strings.Repeat("/d", 19)} {
		if reasons[name] == "" {
			t.Errorf("%q was not skipped: %v", name, reasons)
		}
	}
	filepath.WalkDir(dst, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			t.Error(err)
			return nil
		}
		st, err := e.Info()
		if err != nil {
			t.Error(err)
			return nil
		}
		if !st.Mode().IsRegular() && !st.IsDir() || st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%q outside has mode %v", p, st.Mode())
		}
		if st.Mode().IsRegular() {
			if data, err := os.ReadFile(p); err != nil || bytes.Contains(data, []byte("host secret")) || bytes.Contains(data, []byte("root:")) {
				t.Errorf("%q: %v, or a secret got in", p, err)
			}
		}
		return nil
	})
	if data, err := os.ReadFile(filepath.Join(dst, "good")); err != nil || string(data) != "good\n" {
		t.Errorf("good: %q %v", data, err)
	}
	if _, _, err := b.CopyOut(t.Context(), "/home/agent/a", dst, CopyLimits{}); err == nil {
		t.Error("copied over an earlier copy")
	}
	if _, _, err := b.CopyOut(t.Context(), "/home/agent/nothing", filepath.Join(t.TempDir(), "o"), CopyLimits{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

// An agent can make directories and long names by the thousand: what isn't wanted costs no inode outside, and a manifest
// is bounded by its text too.
func TestCopyOutBounds(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	script := `cd /home/agent; mkdir many; cd many; seq 3000 | xargs mkdir; mkdir 7/sub; echo it >7/sub/wanted; cd ..
n=$(printf 'd%.0s' $(seq 200)); for i in $(seq 20); do mkdir $n; cd $n; done; seq 100 | xargs touch; cd /home/agent; mv $n long`
	if r := sh(t, b, script); r.status.Code != 0 || r.err != "" {
		t.Fatalf("%+v", r)
	}
	dst := filepath.Join(t.TempDir(), "out")
	m, skipped, err := b.CopyOut(t.Context(), "/home/agent/many", dst, CopyLimits{Want: func(p string) bool { return p == "7/sub/wanted" }})
	if err != nil || len(skipped) > 0 || len(m) != 3003 {
		t.Errorf("%d in the manifest, skipped %v, %v", len(m), skipped, err)
	}
	var made []string
	if err := filepath.WalkDir(dst, func(p string, _ fs.DirEntry, err error) error { made = append(made, p[len(dst):]); return err }); err != nil {
		t.Error(err)
	}
	if want := []string{"", "/7", "/7/sub", "/7/sub/wanted"}; !slices.Equal(made, want) {
		t.Errorf("outside are %d files, %q …, want %q", len(made), made[:min(len(made), 5)], want)
	}
	dst = filepath.Join(t.TempDir(), "out")
	const most = 100_000
	m, skipped, err = b.CopyOut(t.Context(), "/home/agent/long", dst, CopyLimits{NameBytes: most})
	n := 0
	for _, f := range m {
		n += len(f.Path)
	}
	if err != nil || n > most || n < most/2 || len(skipped) != 1 || !strings.Contains(skipped[0].Reason, "too long names") {
		t.Errorf("%d bytes of names in %d entries, skipped %d, %v", n, len(m), len(skipped), err)
	}
}

// Paths that lead through links of the agent's stay in the box.
func TestCopyOutThroughLinks(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	sh(t, b, "ln -s / /home/agent/r; ln -s /etc/hostname /home/agent/h; ln -s /proc/1/root /home/agent/p; ln -s ../../../../../../etc/hostname /home/agent/up")
	for path, want := range map[string]string{
		"/home/agent/h": "h", "/home/agent/up": "up", "/home/agent/r/etc/hostname": "hostname", "/../../etc/hostname": "hostname",
	} {
		dst := filepath.Join(t.TempDir(), "o")
		if _, _, err := b.CopyOut(t.Context(), path, dst, CopyLimits{}); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		data, err := os.ReadFile(filepath.Join(dst, want))
		if err != nil || strings.TrimSpace(string(data)) != b.cfg.Hostname {
			t.Errorf("%s gave %q, %v", path, data, err)
		}
	}
	for _, path := range []string{"/home/agent/p/etc/hostname", "/proc/1/environ", "/proc/self/status"} {
		dst := filepath.Join(t.TempDir(), "o")
		m, skipped, err := b.CopyOut(t.Context(), path, dst, CopyLimits{})
		if err == nil && (len(m) > 0 || len(skipped) != 1) {
			t.Errorf("%s gave %v", path, m)
		}
	}
}

func TestCopyOutLimits(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	sh(t, b, "mkdir /tmp/m; cd /tmp/m; for i in $(seq 200); do echo $i >f$i; mkdir d$i; done")
	m, skipped, err := b.CopyOut(t.Context(), "/tmp/m", filepath.Join(t.TempDir(), "o"), CopyLimits{Files: 50})
	if err != nil || len(m) != 50 || len(skipped) != 1 {
		t.Errorf("%d files, skipped %v, %v", len(m), skipped, err)
	}
	_, skipped, err = b.CopyOut(t.Context(), "/tmp/m", filepath.Join(t.TempDir(), "o"), CopyLimits{TotalBytes: 100})
	if err != nil || len(skipped) == 0 {
		t.Errorf("skipped %v, %v", skipped, err)
	}
}

// smallRoot makes a root file system with one static program and without a shell.
func smallRoot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const source = `#include <stdio.h>
#include <unistd.h>
#include <string.h>
#include <errno.h>
#include <sys/stat.h>
int main(int c, char **v) {
  char host[65] = ""; gethostname(host, sizeof host);
  FILE *f = fopen("/data/base.txt", "r"); char line[99] = ""; if (f) { fgets(line, sizeof line, f); fclose(f); }
  errno = 0; f = fopen("/data/base.txt", "w"); if (f) { fputs("changed\n", f); fclose(f); }
  struct stat st; stat("/data/base.txt", &st);
  printf("%s %d %d %s %s", host, (int)getuid(), (int)st.st_uid, strerror(errno), line); return 0; }`
	src := filepath.Join(t.TempDir(), "p.c")
	if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bin", "data", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cc", "-static", "-o", filepath.Join(dir, "bin/hello"), src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range map[string]string{"data/base.txt": "base\n", "etc/passwd": "root:x:0:0::/root:/bin/sh\nworker:x:77:78::/data:/bin/hello\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A base may be hostile too: what init writes must not follow its links out.
	for name, to := range map[string]string{"etc/hosts": "/data/base.txt", "etc/resolv.conf": "../../../../run/elsewhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDirBase(t *testing.T) {
	needRoot(t)
	dir := smallRoot(t)
	b := testBox(t, func(c *Config) { c.Base = Base{Kind: BaseDir, Path: dir}; c.Hostname = "small" })
	if _, err := b.Start(t.Context(), Cmd{Argv: []string{"/bin/sh", "-c", "true"}}); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("a base without a shell: %v", err)
	}
	if r := run(t, b, Cmd{Argv: []string{"hello"}}); r.out != "small 1000 0 Permission denied base\n" {
		t.Errorf("agent: %+v", r)
	}
	if r := run(t, b, Cmd{Argv: []string{"hello"}, User: "worker"}); !strings.HasPrefix(r.out, "small 77 ") {
		t.Errorf("a user of the base: %+v", r)
	}
	if r := run(t, b, Cmd{Argv: []string{"hello"}, User: "root"}); r.out != "small 0 0 Success base\n" {
		t.Errorf("root: %+v", r)
	}
	if r := run(t, b, Cmd{Argv: []string{"hello"}}); r.out != "small 1000 0 Permission denied changed\n" {
		t.Errorf("after the change: %+v", r)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "data/base.txt")); err != nil || string(data) != "base\n" {
		t.Errorf("the base was changed: %q, %v", data, err)
	}
	if _, err := os.Lstat("/run/elsewhere"); err == nil {
		t.Error("a link of the base led out")
	}
	d1, err := b.BaseDigest(t.Context())
	if err != nil || !strings.HasPrefix(d1, "dir:") {
		t.Errorf("digest %q, %v", d1, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data/base.txt"), []byte("bose\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b2 := testBox(t, func(c *Config) { c.ID += "2"; c.Base = Base{Kind: BaseDir, Path: dir} })
	if d2, err := b2.BaseDigest(t.Context()); err != nil || d2 == d1 {
		t.Errorf("digest of a changed base: %q, %v", d2, err)
	}
}

// A file system that can't shift owners serves read-only binds, and the box says what is missing; a base it can't be.
func TestWithoutIDMap(t *testing.T) {
	needRoot(t)
	mnt := t.TempDir()
	if err := unix.Mount("ramfs", mnt, "ramfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mnt, unix.MNT_DETACH)
	if out, err := exec.Command("cp", "-a", smallRoot(t)+"/.", mnt).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := testBox(t, func(c *Config) { c.Binds = []Bind{{Host: mnt, Box: "/opt/tool", ReadOnly: true}} })
	if w := b.Weaker(); len(w) != 1 || !strings.Contains(w[0], "owned by nobody") {
		t.Errorf("weaker: %q", w)
	}
	if r := sh(t, b, "/opt/tool/bin/hello >/dev/null && stat -c %u /opt/tool/bin/hello"); r.out != "65534\n" {
		t.Errorf("%+v", r)
	}
	_, err := Create(t.Context(), Config{ID: testID(t) + "x", StateDir: filepath.Join(t.TempDir(), "s"), Base: Base{Kind: BaseDir, Path: mnt}})
	if err == nil || !strings.Contains(err.Error(), "no id-mapped mounts") {
		t.Errorf("as a base: %v", err)
	}
}

func TestTarBase(t *testing.T) {
	needRoot(t)
	dir := smallRoot(t)
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeReg, Name: "../../escape", Mode: 0o644},
		{Typeflag: tar.TypeChar, Name: "dev/mem", Devmajor: 1, Devminor: 1, Mode: 0o666},
		{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "/tmp"},
		{Typeflag: tar.TypeReg, Name: "bin/owned", Mode: 0o4755, Uid: 12, Gid: 34},
		{Typeflag: tar.TypeLink, Name: "bin/again", Linkname: "bin/owned"},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "base.tar.gz")
	if err := os.WriteFile(file, buf.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	for i := range 2 {
		b := testBox(t, func(c *Config) {
			c.ID += fmt.Sprint(i)
			c.Base = Base{Kind: BaseTar, Path: file, Cache: cache}
			c.Hostname = "tarred"
		})
		if r := run(t, b, Cmd{Argv: []string{"hello"}, User: "root"}); r.out != "tarred 0 0 Success base\n" {
			t.Errorf("got %+v", r)
		}
		m, err := b.Manifest(t.Context(), "/bin/again")
		if err != nil || len(m) != 1 || m[0].UID != 12 || m[0].GID != 34 || m[0].Mode != 0o4755 || m[0].Links != 2 {
			t.Errorf("manifest %+v, %v", m, err)
		}
		sum := sha256.Sum256(buf.Bytes())
		if d, err := b.BaseDigest(t.Context()); err != nil || d != "tar:"+hex.EncodeToString(sum[:]) {
			t.Errorf("digest %q, %v", d, err)
		}
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 1 {
		t.Errorf("cache holds %v, %v", entries, err)
	}
	bad := filepath.Join(t.TempDir(), "bad.tar")
	if err := os.WriteFile(bad, buf.Bytes()[:buf.Len()/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), Config{ID: testID(t), StateDir: filepath.Join(t.TempDir(), "s"), Base: Base{Kind: BaseTar, Path: bad, Cache: cache}}); err == nil || !strings.Contains(err.Error(), "bad.tar") {
		t.Errorf("a cut archive: %v", err)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 1 {
		t.Errorf("after a cut archive the cache holds %v, %v", entries, err)
	}
}

func TestHostBaseDigest(t *testing.T) {
	b := testBox(t, nil)
	d, err := b.BaseDigest(t.Context())
	if err != nil || !strings.HasPrefix(d, "host:") || len(d) != 5+64 {
		t.Fatalf("%q, %v", d, err)
	}
	b2 := testBox(t, func(c *Config) { c.ID += "2" })
	if d2, err := b2.BaseDigest(t.Context()); err != nil || d2 != d {
		t.Errorf("two boxes of one host: %q, %q, %v", d, d2, err)
	}
}

func TestBindsAndCA(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(shared, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	b := testBox(t, func(c *Config) {
		c.Binds = []Bind{{Host: tool, Box: "/opt/x/bin/tool", ReadOnly: true}, {Host: dir, Box: "/opt/dir", ReadOnly: true}, {Host: shared, Box: "/shared"}}
		c.ExtraCA = []byte("-----BEGIN CERTIFICATE-----\nof the run\n-----END CERTIFICATE-----\n")
	})
	r := sh(t, b, "/opt/x/bin/tool; echo x >>/opt/x/bin/tool; echo x >/opt/dir/new; echo new >/shared/f; stat -c %U /shared/f; tail -2 "+caBundle+"; ls /etc/ssl")
	if want := "tool\nagent\nof the run\n-----END CERTIFICATE-----\ncerts\nopenssl.cnf\n"; r.out != want || strings.Count(r.err, "\n") != 2 {
		t.Errorf("got %q %q, want %q", r.out, r.err, want)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(shared, "f"), &st); err != nil || st.Uid != 4321 {
		t.Errorf("a file made in a writable bind: %+v, %v", st, err)
	}
	if r := run(t, b, Cmd{User: "root", Argv: []string{"sh", "-c", "cp /bin/true /shared/s && chmod 4755 /shared/s && chown 0 /shared/s"}}); r.status.Code == 0 {
		t.Errorf("root inside made a set-uid program of root's: %+v", r)
	}
	_, err := Create(t.Context(), Config{ID: testID(t) + "x", StateDir: filepath.Join(t.TempDir(), "s"), Binds: []Bind{{Host: dir, Box: "/w"}}})
	if err == nil || !strings.Contains(err.Error(), "belongs to root") {
		t.Errorf("a writable bind of root's: %v", err)
	}
	_, err = Create(t.Context(), Config{ID: testID(t) + "x", StateDir: filepath.Join(t.TempDir(), "s"), Binds: []Bind{{Host: dir + "/none", Box: "/w", ReadOnly: true}}})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bind of nothing: %v", err)
	}
}

func TestWritableHostBase(t *testing.T) {
	needRoot(t)
	b := testBox(t, func(c *Config) { c.Base.Writable = true })
	r := run(t, b, Cmd{User: "root", Group: GroupSetup, Argv: []string{"sh", "-c",
		"echo '#!/bin/sh\necho installed' >/usr/local/bin/mine && chmod 755 /usr/local/bin/mine && rm /usr/bin/env && /usr/local/bin/mine"}})
	if r.out != "installed\n" {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat("/usr/bin/env"); err != nil {
		t.Error(err)
	}
	if r := sh(t, b, "/usr/local/bin/mine; /usr/bin/env; rm /usr/local/bin/mine"); r.out != "installed\n" || !strings.Contains(r.err, "env: not found") || !strings.Contains(r.err, "Permission denied") {
		t.Errorf("%+v", r)
	}
}

// Init writes to no place that only /proc/self, its own there, leads to.
func TestCopyInThroughMagicLink(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	sh(t, b, "ln -s /proc/self/fd/3 /home/agent/m; ln -s /proc/self/cwd /home/agent/cwd")
	for _, p := range []string{"/home/agent/m", "/home/agent/cwd", "/home/agent/cwd/x"} {
		if err := b.WriteFile(t.Context(), p+"/f", []byte("x"), CopyOpts{}); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// An agent that swaps directories for links while it is collected gains nothing.
func TestCopyOutRaces(t *testing.T) {
	needRoot(t)
	b := testBox(t, nil)
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "f"), []byte("host secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	const swapper = `
import os
os.makedirs("/tmp/w/d"); open("/tmp/w/d/f", "w").write("mine"); os.symlink(%q, "/tmp/w/l"); os.symlink("/proc/1/root/etc", "/tmp/w/p")
os.mkfifo("/tmp/w/q")
print("ready", flush=True)
while True:
    for a, b in (("d", "l"), ("d", "p"), ("d/f", "q")):
        for _ in range(20):
            os.rename("/tmp/w/" + a, "/tmp/w/x"); os.rename("/tmp/w/" + b, "/tmp/w/" + a); os.rename("/tmp/w/x", "/tmp/w/" + b)
        for _ in range(20):
            os.rename("/tmp/w/" + a, "/tmp/w/x"); os.rename("/tmp/w/" + b, "/tmp/w/" + a); os.rename("/tmp/w/x", "/tmp/w/" + b)
`
	ready := make(chan struct{})
	p, err := b.Start(t.Context(), Cmd{Argv: []string{"python3", "-c", fmt.Sprintf(swapper, secret)}, Env: []string{"PATH=/usr/bin"}, Stdout: onWrite(func() { close(ready) })})
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	seen := map[FileType]int{}
	for range 200 {
		dst := t.TempDir()
		m, _, err := b.CopyOut(t.Context(), "/tmp/w", dst, CopyLimits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m {
			seen[f.Type]++
			if f.Type == TypeFile && f.Size > 0 {
				if data, err := os.ReadFile(filepath.Join(dst, f.Path)); err != nil || string(data) != "mine" {
					t.Fatalf("%q holds %q, %v", f.Path, data, err)
				}
			}
		}
		if _, _, err := b.CopyOut(t.Context(), "/tmp/w/d/f", t.TempDir(), CopyLimits{}); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
			t.Fatal(err)
		}
	}
	if seen[TypeFile] == 0 || seen[TypeSymlink] == 0 {
		t.Errorf("the race was never seen: %v", seen)
	}
	select {
	case <-p.Done():
		st, _ := p.Wait()
		t.Errorf("the swapper ended: %+v", st)
	default:
	}
}
