package sensortest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

func noUring(o *Outcome) string {
	if v := o.fact("setup"); v == "" || v == "0" {
		return ""
	}
	if len(o.suite.traits.Refused) > 0 {
		return "" // the sandbox's doing, which is checked
	}
	return "this machine has no io_uring for this user: errno " + o.fact("setup")
}

// devIno is the condition that an event is of the file whose numbers the trigger printed.
func devIno(t *testing.T, o *Outcome) cond {
	t.Helper()
	dev := uint64(o.num(t, "dev"))
	want := uint64(unix.Major(dev))<<32 | uint64(unix.Minor(dev))
	ino := uint64(o.num(t, "ino"))
	return cond{"dev:ino of " + strconv.FormatUint(ino, 10), func(e *bodycam.Event) bool { return e.Dev == want && e.Ino == ino }}
}

func fileCases() []Case {
	open := typ(bodycam.TypeOpen)
	read := access(bodycam.Read)
	return []Case{
		{Name: "01-uring/open", Argv: []string{"files", "uring"}, Need: noUring, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("in/key")), errno(0))
		}},
		{Name: "01-uring/connect", Argv: []string{"files", "uring-connect", "{tcp}"}, Need: noUring, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeConnect), remote("127.0.0.1", o.suite.host.tcp), o.outcome(t, "connect"))
		}},
		{Name: "01-uring/unlink", Argv: []string{"files", "uring-unlink"}, Need: noUring, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeUnlink), path(o.in("victim")), errno(0))
		}},
		{Name: "02-dirfd/openat", Argv: []string{"files", "dirfd"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("other/f")), given("f"), read, errno(0))
			o.count(t, 0, open, path(o.in("f")), read)
		}},
		{Name: "02-dirfd/up", Argv: []string{"files", "dirfd-up"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("a/f")), given("../f"), read, errno(0))
		}},
		{Name: "02-dirfd/moved", Argv: []string{"files", "dirfd-moved"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("after/f")), given("f"), read, errno(0))
		}},
		{Name: "02-dirfd/chdir", Argv: []string{"files", "chdir"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("in/f")), given("f"), read)
			o.one(t, open, path(o.in("in/f")), given("in/./f"), read)
			o.named(t, typ(bodycam.TypeChdir), path(o.in("in")), errno(0))
		}},
		{Name: "03-alias/proc-self-root", Argv: []string{"files", "selfroot"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("key")), given(o.fact("given")), read, errno(0))
		}},
		{Name: "03-alias/proc-self-cwd", Argv: []string{"files", "selfcwd"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("key")), given("/proc/self/cwd/key"), read, errno(0))
		}},
		{Name: "03-alias/dotdot-after-symlink", Argv: []string{"files", "dotdot"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("a/f")), given("l/../f"), read, errno(0))
		}},
		{Name: "03-alias/symlinks", Argv: []string{"files", "symlinks"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("target")), given("l2"), errno(0))
			o.named(t, open, given("l2"), path(o.in("l2")), errno(int32(unix.ELOOP)))
			o.text(t, open, given("loop"), errno(int32(unix.ELOOP)))
		}},
		{Name: "03-alias/proc-self-fd", Argv: []string{"files", "reopen"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("f")), given("f"), access(bodycam.PathRef))
			o.one(t, open, path(o.in("f")), givenPrefix("/proc/self/fd/"), access(bodycam.Read|bodycam.Write), errno(0))
		}},
		// As Claude Code writes files: every name begins at a folder's descriptor.
		{Name: "03-alias/proc-self-fd-folder", Argv: []string{"files", "viafd"}, Check: func(t *testing.T, o *Outcome) {
			given := givenPrefix("/proc/self/fd/")
			o.one(t, open, path(o.in("in/a")), given, has(bodycam.Write|bodycam.Create), errno(0))
			o.named(t, open, path(o.in("in/a")), given, errno(int32(unix.ENOENT)))
			o.named(t, typ(bodycam.TypeRename), path(o.in("in/a")), path2(o.in("in/b")), given, errno(0))
			o.named(t, typ(bodycam.TypeMkdir), path(o.in("in/sub")), given, errno(0))
			o.named(t, typ(bodycam.TypeUnlink), path(o.in("in/b")), given, errno(0))
		}},
	}
}

func oddFileCases() []Case {
	open := typ(bodycam.TypeOpen)
	read := access(bodycam.Read)
	return []Case{
		{Name: "05-nameless/deleted-file", Argv: []string{"files", "deleted"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("gone")), givenPrefix("/proc/self/fd/"), mark(bodycam.MarkDeleted))
			o.one(t, open, path(o.in("honest (deleted)")), read, unmarked(bodycam.MarkDeleted))
		}},
		{Name: "05-nameless/memfd", Argv: []string{"files", "memfd"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, typ(bodycam.TypeCreate), given("innocent"), path("memfd:innocent"), o.outcome(t, "create"))
		}},
		{Name: "20-kin/inode-flags", Argv: []string{"files", "inode-flags"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeXattr), path(o.in("f")), o.outcome(t, "setflags"), nr(unix.SYS_IOCTL), cond{"FS_IOC_SETFLAGS 0x80", func(e *bodycam.Event) bool {
				return e.Detail == "FS_IOC_SETFLAGS" && e.Flags == 0x80
			}})
			o.named(t, typ(bodycam.TypeTruncate), path(o.in("f")), o.outcome(t, "fallocate"), nr(unix.SYS_FALLOCATE), cond{"to 30", func(e *bodycam.Event) bool { return e.Bytes == 30 }})
			o.named(t, typ(bodycam.TypeXattr), path(o.in("f")), o.outcome(t, "file_setattr"), nr(469))
		}},
		{Name: "08-names/odd", Argv: []string{"files", "names"}, Check: func(t *testing.T, o *Outcome) {
			for _, n := range []string{"new\nline", "comma,name", "\xff\xfe", "quote\"'\\", "\x1b[31mred", "tab\tname", "  spaces  ", "=", "-rf",
				`\x41`, "\u202etxt.exe", strings.Repeat("n", 255)} {
				o.one(t, open, path(o.in(n)), given(n), has(bodycam.Write|bodycam.Create), errno(0))
			}
			o.text(t, open, given(strings.Repeat("m", 299)), errno(int32(unix.ENAMETOOLONG)))
		}},
		{Name: "08-names/deeper-than-a-path", Argv: []string{"files", "deep"}, Check: func(t *testing.T, o *Outcome) {
			full := o.Dir
			for i := range 30 {
				full += "/" + strings.Repeat(string(rune('a'+i%26)), 200)
			}
			full += "/deepest"
			e := o.only(t, inexact&^bodycam.MarkTruncated, open, given("deepest"), errno(0))
			if e.Marks&bodycam.MarkTruncated == 0 && e.Path != full {
				t.Errorf("path of %d bytes is not the true one of %d", len(e.Path), len(full))
			}
			// A session shows by ".../" that the beginning is missing.
			tail := strings.TrimPrefix(e.Path, "...")
			if e.Marks&bodycam.MarkTruncated != 0 && (len(tail) < 7 || !strings.HasSuffix(full, tail)) {
				t.Errorf("the cut path %q is not the tail of the true one", e.Path)
			}
			if e.Ino == 0 {
				t.Error("no inode number")
			}
			r := o.only(t, inexact&^(bodycam.MarkTruncated|bodycam.MarkUnverified), typ(bodycam.TypeRename), errno(0))
			for p, whole := range map[string]string{r.Path: full, r.Path2: strings.TrimSuffix(full, "deepest") + "moved"} {
				tail := strings.TrimPrefix(p, "...")
				if p != whole && (r.Marks&bodycam.MarkTruncated == 0 || len(tail) < 5 || !strings.HasSuffix(whole, tail)) {
					t.Errorf("renamed in a deep folder: path %.40q (%v) is neither true nor its tail", p, r.Marks.Names())
				}
			}
			if x := o.only(t, inexact, typ(bodycam.TypeExec), argv("true"), errno(0)); x.CWD == "" {
				t.Error("a program that began in a deep folder has none")
			}
		}},
	}
}

func outcomeCases() []Case {
	open := typ(bodycam.TypeOpen)
	return []Case{
		{Name: "16-outcomes/errno", Argv: []string{"files", "outcomes"}, Check: func(t *testing.T, o *Outcome) {
			for key, name := range map[string]string{"eacces": "locked", "enoent": "missing", "enoentdir": "missing/x", "enotdir": "plain/x",
				"eisdir": "adir", "ebadf": "relative"} {
				if o.num(t, key) == 0 {
					t.Errorf("the trigger's %s did not fail", key)
				}
				if key == "ebadf" {
					o.text(t, open, given(name), o.outcome(t, key))
				} else {
					o.named(t, open, given(name), path(o.in(name)), o.outcome(t, key))
				}
			}
			o.named(t, open, given("plain"), errno(int32(unix.EEXIST)))
			o.text(t, open, errno(int32(unix.EFAULT)))
		}},
		{Name: "16-outcomes/emfile", Argv: []string{"files", "emfile"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, open, given("f"), errno(int32(unix.EMFILE)))
		}},
		{Name: "16-outcomes/interrupted", Argv: []string{"files", "interrupted"}, Check: func(t *testing.T, o *Outcome) {
			if o.fact("restarted") != "0" || o.num(t, "eintr") != int(unix.EINTR) {
				t.Errorf("signals interrupt otherwise under observation: %s, %s", o.fact("restarted"), o.fact("eintr"))
			}
			o.one(t, open, path(o.in("fifo")), access(bodycam.Read), errno(0))
			o.count(t, 1, open, given("fifo"), access(bodycam.Read))
			o.named(t, open, given("fifo2"), errno(int32(unix.EINTR)))
			o.count(t, 1, open, given("fifo2"))
			o.one(t, open, path(o.in("after")), errno(0))
		}},
	}
}

func openKinCases() []Case {
	open := typ(bodycam.TypeOpen)
	read := access(bodycam.Read)
	return []Case{
		{Name: "20-kin/openat2", Argv: []string{"files", "openat2"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("in/f")), given("/../f"), o.outcome(t, "inroot"))
			o.text(t, open, given("../in/f"), errno(int32(unix.EXDEV)))
		}},
		{Name: "20-kin/tmpfile", Argv: []string{"files", "tmpfile"}, Check: func(t *testing.T, o *Outcome) {
			e := o.one(t, open, has(bodycam.Temp), o.outcome(t, "open"))
			if e.Errno == 0 && (e.Ino == 0 || filepath.Dir(e.Path) != o.Dir) {
				t.Errorf("O_TMPFILE: path %q, inode %d", e.Path, e.Ino)
			}
			o.text(t, typ(bodycam.TypeLink), path2(o.in("named")), o.outcome(t, "link"))
		}},
		{Name: "20-kin/again-later", Argv: []string{"files", "later"}, Check: func(t *testing.T, o *Outcome) {
			o.count(t, 4, open, path(o.in("f")), read)
			o.count(t, 0, path(o.in("f")), cond{"spans more than a second", func(e *bodycam.Event) bool { return e.Count > 1 && e.LastBoot-e.Boot > uint64(time.Second) }})
			if !o.suite.traits.Bytes {
				return
			}
			for _, n := range []uint64{3, 7} {
				o.some(t, typ(bodycam.TypeClose), path(o.in("f")), cond{fmt.Sprintf("%d bytes read", n), func(e *bodycam.Event) bool { return e.BytesRead == n }})
			}
		}},
		{Name: "20-kin/opath", Argv: []string{"files", "opath"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("f")), access(bodycam.PathRef), errno(0))
		}},
		{Name: "20-kin/open-by-handle", Argv: []string{"files", "handle"}, Check: func(t *testing.T, o *Outcome) {
			nr := cond{"open_by_handle_at", func(e *bodycam.Event) bool { return e.NR == unix.SYS_OPEN_BY_HANDLE_AT }}
			e := o.named(t, open, nr, o.outcome(t, "open"))
			if e.Errno == 0 && e.Path != o.in("f") {
				t.Errorf("open_by_handle_at of %q", e.Path)
			}
		}},
		{Name: "20-kin/int80", Argv: []string{"files", "int80"}, Need: func(o *Outcome) string {
			if o.fact("open") == strconv.Itoa(int(unix.ENOSYS)) || o.Status == -1 {
				return "this kernel has no int 0x80"
			}
			return ""
		}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("f32")), given("f32"), read, abi(bodycam.ABII386), errno(0))
			o.named(t, typ(bodycam.TypeRename), path(o.in("f32")), path2(o.in("f32new")), abi(bodycam.ABII386), errno(0))
		}},
		{Name: "20-kin/x32", Argv: []string{"files", "x32"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, open, given("fx32"), abi(bodycam.ABIX32), o.outcome(t, "open"))
		}},
	}
}

func writeCases() []Case {
	open := typ(bodycam.TypeOpen)
	closed := func(o *Outcome, t *testing.T, name string, r, w uint64) {
		if !o.suite.traits.Bytes {
			o.inherent(t, "bytes")
			return
		}
		o.count(t, 1, typ(bodycam.TypeClose), path(o.in(name)), cond{"bytes " + strconv.FormatUint(r, 10) + " read, " + strconv.FormatUint(w, 10) + " written",
			func(e *bodycam.Event) bool { return e.BytesRead == r && e.BytesWritten == w }})
	}
	// shown is how a writable mapping may be recorded.
	shown := func(o *Outcome, name string) cond {
		return both(path(o.in(name)), either(both(typ(bodycam.TypeMmap), has(bodycam.Write)),
			both(typ(bodycam.TypeClose), cond{"mapped", func(e *bodycam.Event) bool { return e.Mapped }})))
	}
	return []Case{
		{Name: "12-writes/rename-over-bashrc", Argv: []string{"writes", "rename"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeRename), path(o.in("evil")), path2(o.in(".bashrc")), errno(0))
		}},
		{Name: "12-writes/exchange", Argv: []string{"writes", "exchange"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeRename), path(o.in("a")), path2(o.in("b")), flags(2), o.outcome(t, "rename"))
		}},
		{Name: "12-writes/renameat", Argv: []string{"writes", "renameat"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeRename), path(o.in("x/f")), path2(o.in("y/g")), given("f"), errno(0))
			o.named(t, typ(bodycam.TypeRename), given("none"), errno(int32(unix.ENOENT)))
		}},
		{Name: "12-writes/copy-file-range", Argv: []string{"writes", "copyrange"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("dst")), has(bodycam.Write|bodycam.Create), errno(0))
			if o.fact("copy") == "0" {
				closed(o, t, "src", 10, 0)
				closed(o, t, "dst", 0, 10)
			}
		}},
		{Name: "12-writes/truncate", Argv: []string{"writes", "truncate"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeTruncate), path(o.in("f")), amount(4), errno(0))
			o.named(t, typ(bodycam.TypeTruncate), path(o.in("f")), amount(2), errno(0))
			o.one(t, open, path(o.in("f")), has(bodycam.Write|bodycam.Trunc), errno(0))
		}},
		{Name: "12-writes/cut-by-open", Argv: []string{"writes", "cut"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("f")), access(bodycam.Read|bodycam.Trunc), errno(0))
			o.one(t, open, path(o.in("g")), access(bodycam.Trunc), errno(0))
			fresh := func(want string) cond {
				return cond{"detail " + want, func(e *bodycam.Event) bool { return e.Detail == want }}
			}
			o.one(t, open, path(o.in("h")), access(bodycam.Read|bodycam.Create), fresh("new"), errno(0))
			o.one(t, open, path(o.in("i")), access(bodycam.Write|bodycam.Create|bodycam.Append), fresh(""), errno(0))
		}},
		{Name: "12-writes/truncate-after-open", Argv: []string{"writes", "otherwise"}, Check: func(t *testing.T, o *Outcome) {
			f, w := path(o.in("f")), bodycam.Write
			o.count(t, 5, open, f, access(w), flags(unix.O_WRONLY))
			o.count(t, 2, open, f, access(w), nr(unix.SYS_OPEN))
			o.count(t, 2, open, f, access(w|bodycam.Trunc), flags(unix.O_WRONLY|unix.O_TRUNC))
			o.count(t, 1, open, f, access(w|bodycam.Create), flags(unix.O_WRONLY|unix.O_CREAT), cond{"no new file", func(e *bodycam.Event) bool { return e.Detail != "new" }})
		}},
		{Name: "12-writes/map-shared-store", Argv: []string{"writes", "mapstore"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("f")), access(bodycam.Read|bodycam.Write), errno(0))
			o.some(t, shown(o, "f"))
		}},
		{Name: "12-writes/map-then-mprotect", Argv: []string{"writes", "maplate"}, Check: func(t *testing.T, o *Outcome) {
			o.some(t, shown(o, "f"))
		}},
		{Name: "12-writes/hard-link", Argv: []string{"writes", "hardwrite"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("alias")), access(bodycam.Write|bodycam.Append), devIno(t, o), errno(0))
		}},
		{Name: "12-writes/bytes", Argv: []string{"writes", "readwrite"}, Check: func(t *testing.T, o *Outcome) {
			closed(o, t, "f", 0, 1200)
			closed(o, t, "f", 700, 0)
		}},
		{Name: "20-kin/sendfile-splice", Argv: []string{"writes", "sendfile"}, Check: func(t *testing.T, o *Outcome) {
			o.one(t, open, path(o.in("dst")), has(bodycam.Write), errno(0))
			o.one(t, open, path(o.in("dst2")), has(bodycam.Write), errno(0))
			closed(o, t, "dst", 0, 10)
			closed(o, t, "dst2", 0, 10)
		}},
	}
}

func nameCases() []Case {
	return []Case{
		{Name: "20-kin/links", Argv: []string{"writes", "links"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeLink), path(o.in("f")), path2(o.in("hard")), errno(0))
			o.named(t, typ(bodycam.TypeLink), path(o.in("f")), path2(o.in("hardat")), errno(0))
			o.named(t, typ(bodycam.TypeSymlink), path("f"), path2(o.in("soft")), errno(0))
			o.named(t, typ(bodycam.TypeSymlink), path("/etc/shadow"), path2(o.in("softat")), errno(0))
			o.named(t, typ(bodycam.TypeUnlink), path(o.in("hard")), errno(0))
			o.named(t, typ(bodycam.TypeUnlink), path(o.in("softat")), errno(0))
			o.named(t, typ(bodycam.TypeUnlink), given("nothing"), errno(int32(unix.ENOENT)))
			o.named(t, typ(bodycam.TypeMkdir), path(o.in("d")), errno(0))
			o.named(t, typ(bodycam.TypeMkdir), path(o.in("e")), errno(0))
			o.named(t, typ(bodycam.TypeRmdir), path(o.in("d")), errno(0))
			o.named(t, typ(bodycam.TypeRmdir), path(o.in("e")), errno(0))
			o.named(t, typ(bodycam.TypeCreate), path(o.in("fifo")), errno(0))
		}},
		{Name: "20-kin/attributes", Argv: []string{"writes", "modes"}, Check: func(t *testing.T, o *Outcome) {
			f := path(o.in("f"))
			o.named(t, typ(bodycam.TypeChmod), f, flags(0o711), errno(0))
			o.named(t, typ(bodycam.TypeChmod), f, flags(0o722), errno(0))
			o.named(t, typ(bodycam.TypeChmod), o.leads("f", "l"), flags(0o733), errno(0))
			o.named(t, typ(bodycam.TypeChmod), f, flags(0o744), o.outcome(t, "fchmodat2"))
			o.count(t, 2, typ(bodycam.TypeChown), f, errno(0))
			o.named(t, typ(bodycam.TypeChown), path(o.in("l")), errno(0))
			o.count(t, 3, typ(bodycam.TypeXattr), f)
			o.count(t, 2, typ(bodycam.TypeUtime), f, errno(0))
		}},
	}
}

// wayCases name what they act on by ways that are not the canonical ones.
func wayCases() []Case {
	open, rename, unlink := typ(bodycam.TypeOpen), typ(bodycam.TypeRename), typ(bodycam.TypeUnlink)
	mkdir, enoent := typ(bodycam.TypeMkdir), errno(int32(unix.ENOENT))
	return []Case{
		{Name: "03-alias/names-through-links", Argv: []string{"ways", "links"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, typ(bodycam.TypeChmod), o.leads("a/f", "a/to-f"), given("a/to-f"), errno(0))
			o.named(t, rename, o.leads("a/f", "f"), o.leads2("a/g", "g"), given("l/../f"), errno(0))
			o.named(t, mkdir, o.leads("a/b/new", "l/new"), given("l/new"), errno(0))
			o.named(t, typ(bodycam.TypeRmdir), o.leads("a/b/new", "l/new"), given("l//new/"), errno(0))
			o.named(t, typ(bodycam.TypeSymlink), path("anything"), o.leads2("a/b/s", "l/s"), errno(0))
			o.named(t, typ(bodycam.TypeLink), o.leads("a/b/s", "l/s"), path2(o.in("a/hard")), errno(0))
			o.named(t, unlink, path(o.in("a/g")), given("../g"), errno(0))
			o.named(t, typ(bodycam.TypeChown), path(o.in("a/b")), given(""), errno(0))
			o.named(t, open, o.leads("a/b/missing", "l/missing"), given("l/missing"), enoent)
			o.named(t, open, path(o.in("gone/x/y")), given("gone/x/y"), enoent)
			o.named(t, open, o.leads("a/b/anything", "l/s"), given("l/s"), enoent)
			o.named(t, open, o.leads("a/b/s", "l/s"), given("l/s"), errno(int32(unix.EEXIST)))
			o.text(t, typ(bodycam.TypeTruncate), given("loop/x"), errno(int32(unix.ELOOP)))
			o.named(t, unlink, o.leads("a/b/s", "b/s"), givenPrefix("//"), errno(0))
		}},
		{Name: "11-race/names-in-memory", Argv: []string{"ways", "memory"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, mkdir, path(o.in("edge")), errno(0))
			o.text(t, mkdir, path(o.in("shared")), mark(bodycam.MarkUnverified), errno(0))
			o.text(t, mkdir, path(o.in("from-file")), mark(bodycam.MarkUnverified), errno(0))
		}},
		{Name: "19-mounts/names", Argv: []string{"spaces", "names"}, Check: func(t *testing.T, o *Outcome) {
			o.named(t, mkdir, path(o.in("m/d")), given("m/d"), errno(0))
			o.named(t, mkdir, path(o.in("m/e")), given("m/d/../e"), errno(0))
			o.named(t, unlink, path(o.in("outside")), given("../../outside"), errno(0))
			o.named(t, mkdir, path(o.in("m/second")), errno(0))
			o.named(t, mkdir, path(o.in("jail/up")), given("/../../up"), errno(0))
			o.named(t, mkdir, o.leads("jail/from-here", "from-here"), given("../from-here"), errno(0))
		}},
	}
}
