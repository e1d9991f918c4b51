//go:build linux

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// What a box holds was made by hostile hands. Everything here looks a name up below an open directory, without
// following a link, opens it in a way that does nothing (O_PATH), checks what it is, and only then reads that very file.

// FileType says what a file is, in a manifest.
type FileType string

// The file types.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
	TypeFifo    FileType = "fifo"
	TypeSocket  FileType = "socket"
	TypeDevice  FileType = "device"
)

// FileInfo describes one file of a box.
type FileInfo struct {
	Path   string // below the path asked for; "" is that itself. Any byte but NUL.
	Type   FileType
	Mode   uint32 // permission and set-id bits, as inside
	UID    uint32 // inside
	GID    uint32
	Size   int64  // of a regular file: bytes
	Links  uint64 // names that lead to it
	Target string // of a symbolic link: its text
	SHA256 string // of a regular file that was read: hex
}

// Skip says which file was left out, and why.
type Skip struct{ Path, Reason string }

// CopyLimits bound what CopyOut and Manifest read. Zero means the default.
type CopyLimits struct {
	TotalBytes int64 // default 1 GiB
	FileBytes  int64 // default 256 MiB
	Files      int   // entries of every type; default 100,000
	Depth      int   // directories below one another; default 64
	NameBytes  int64 // of the paths of all entries together, which may be far longer than what they name; default 16 MiB
	// Want picks regular files and links by their path below the one asked for; nil wants all. What isn't wanted is
	// neither read nor told of, and no directory is made for it.
	Want func(path string) bool
}

func (l *CopyLimits) fill() {
	set := func(n *int64, def int64) {
		if *n == 0 {
			*n = def
		}
	}
	set(&l.TotalBytes, 1<<30)
	set(&l.FileBytes, 256<<20)
	set(&l.NameBytes, 16<<20)
	if l.Files == 0 {
		l.Files = 100_000
	}
	if l.Depth == 0 {
		l.Depth = 64
	}
}

// CopyOut copies a file or tree of the box to hostDir, which must not exist or be empty. Regular files and directories
// are copied, without set-id bits and readable by their owner. Links are never followed, nor made outside, where they
// would lead a reader astray: of them and of all else only the manifest tells. A single file keeps its last name. A name
// outside the box can't be reached, whatever the box does meanwhile. What the limits left out is in skipped. If boxPath
// itself is missing the error is fs.ErrNotExist.
func (b *Box) CopyOut(ctx context.Context, boxPath, hostDir string, l CopyLimits) (manifest []FileInfo, skipped []Skip, err error) {
	if err := os.MkdirAll(hostDir, 0o755); err != nil {
		return nil, nil, err
	}
	if entries, err := os.ReadDir(hostDir); err != nil || len(entries) > 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("sandbox: copy out to %s: not an empty directory", hostDir))
	}
	dst, err := os.OpenRoot(hostDir)
	if err != nil {
		return nil, nil, err
	}
	defer dst.Close()
	return b.collect(ctx, boxPath, &copyDir{root: dst}, l)
}

// Survey is Manifest that tells what its limits, or a file that resists, left out instead of failing for it: one odd file
// must not cost the knowledge of all others.
func (b *Box) Survey(ctx context.Context, boxPath string) ([]FileInfo, []Skip, error) {
	return b.collect(ctx, boxPath, nil, manifestLimits())
}

func manifestLimits() CopyLimits {
	return CopyLimits{TotalBytes: 10 << 30, FileBytes: 10 << 30, Files: 1_000_000, Depth: 256, NameBytes: 64 << 20}
}

// Manifest describes a file or tree of the box, with digests. Its limits are ten times those of CopyOut; an error says
// if they were reached.
func (b *Box) Manifest(ctx context.Context, boxPath string) ([]FileInfo, error) {
	m, skipped, err := b.collect(ctx, boxPath, nil, manifestLimits())
	if err == nil && len(skipped) > 0 {
		err = fmt.Errorf("sandbox %s: manifest of %s is incomplete: %d left out, first %q: %s", b.cfg.ID, boxPath,
			len(skipped), skipped[0].Path, skipped[0].Reason)
	}
	return m, err
}

func (b *Box) collect(ctx context.Context, boxPath string, dst *copyDir, l CopyLimits) ([]FileInfo, []Skip, error) {
	l.fill()
	c := &collector{ctx: ctx, box: b, left: l}
	top, err := boxinit.OpenPath(b.root, strings.TrimPrefix(boxPath, "/"), 0)
	if err == nil {
		defer top.Close()
		err = c.entry(top, "", path.Base(path.Clean("/"+boxPath)), dst, 0)
	}
	if err != nil {
		return c.out, c.skipped, fmt.Errorf("sandbox %s: collect %s: %w", b.cfg.ID, boxPath, err)
	}
	return c.out, c.skipped, nil
}

type collector struct {
	ctx     context.Context
	box     *Box
	left    CopyLimits // what may still be read
	out     []FileInfo
	skipped []Skip
	full    bool // Files or NameBytes was reached
}

// copyDir is a directory of the copy; nil: nothing is copied.
type copyDir struct {
	in   *copyDir
	base string   // its name there
	root *os.Root // nil: not made yet
}

// open makes the directory where it isn't there yet.
func (d *copyDir) open() (*os.Root, error) {
	if d.root != nil {
		return d.root, nil
	}
	in, err := d.in.open()
	if err != nil {
		return nil, err
	}
	if err := in.Mkdir(d.base, 0o755); err != nil {
		return nil, err
	}
	d.root, err = in.OpenRoot(d.base)
	return d.root, err
}

func (c *collector) skip(name, reason string) { c.skipped = append(c.skipped, Skip{name, reason}) }

// entry records f, an O_PATH file, and copies it to the name base of dst. For the top directory dst itself is its copy.
func (c *collector) entry(f *os.File, name, base string, dst *copyDir, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.left.Files <= 0 || c.left.NameBytes < int64(len(name)) {
		if !c.full {
			c.skip(name, "too many files, or too long names: this and all that follow")
			c.full = true
		}
		return nil
	}
	c.left.Files--
	c.left.NameBytes -= int64(len(name))
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if c.left.Want != nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && !c.left.Want(name) {
		return nil
	}
	var fst unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fst); err != nil {
		return err
	}
	if fst.Type == unix.PROC_SUPER_MAGIC || fst.Type == unix.SYSFS_MAGIC {
		c.skip(name, "a view of the kernel, not a file")
		return nil
	}
	info := FileInfo{Path: name, Mode: st.Mode & 0o7777, Links: uint64(st.Nlink), UID: c.box.InsideUID(st.Uid), GID: c.box.InsideUID(st.Gid)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type, info.Size = TypeFile, st.Size
		if err := c.file(f, &info, base, dst); err != nil {
			return err
		}
	case unix.S_IFDIR:
		info.Type = TypeDir
		c.out = append(c.out, info)
		return c.dir(f, name, base, dst, depth)
	case unix.S_IFLNK:
		info.Type = TypeSymlink
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(f.Fd()), "", buf)
		if err != nil {
			return err
		}
		info.Target = string(buf[:n])
	case unix.S_IFIFO:
		info.Type = TypeFifo
	case unix.S_IFSOCK:
		info.Type = TypeSocket
	default:
		info.Type = TypeDevice
	}
	c.out = append(c.out, info)
	return nil
}

func (c *collector) dir(f *os.File, name, base string, dst *copyDir, depth int) error {
	if depth >= c.left.Depth {
		c.skip(name, "too deep")
		return nil
	}
	if dst != nil && depth > 0 {
		dst = &copyDir{in: dst, base: base}
		defer func() {
			if dst.root != nil {
				dst.root.Close()
			}
		}()
		if c.left.Want == nil {
			if _, err := dst.open(); err != nil {
				return err
			}
		}
	}
	d, err := boxinit.Reopen(f, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		c.skip(name, err.Error())
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(c.left.Files + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		c.skip(name, err.Error())
		return nil
	}
	slices.Sort(names)
	for _, n := range names {
		if c.full {
			return nil
		}
		full := n
		if name != "" {
			full = name + "/" + n
		}
		child, err := boxinit.OpenPath(d, n, unix.O_NOFOLLOW)
		if err != nil {
			c.skip(full, err.Error()) // it vanished, for example
			continue
		}
		err = c.entry(child, full, n, dst, depth+1)
		child.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// file reads a regular file into its digest and its copy. A file that grows meanwhile is cut at the size it had.
func (c *collector) file(p *os.File, info *FileInfo, base string, dst *copyDir) error {
	if info.Size > c.left.FileBytes || info.Size > c.left.TotalBytes {
		c.skip(info.Path, fmt.Sprintf("%d bytes are more than the limit", info.Size))
		return nil
	}
	c.left.TotalBytes -= info.Size
	f, err := boxinit.Reopen(p, unix.O_RDONLY)
	if err != nil {
		c.skip(info.Path, err.Error())
		return nil
	}
	defer f.Close()
	var sum hash.Hash = sha256.New()
	var w io.Writer = sum
	if dst != nil {
		in, err := dst.open()
		if err != nil {
			return err
		}
		out, err := in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer out.Close()
		w = io.MultiWriter(sum, out)
		if err := out.Chmod(os.FileMode(info.Mode&0o777 | 0o400)); err != nil {
			return err
		}
	}
	n, err := io.Copy(w, &ctxReader{c.ctx, io.LimitReader(f, info.Size)})
	if err != nil {
		return fmt.Errorf("%s: %w", info.Path, err)
	}
	if n < info.Size {
		c.skip(info.Path, fmt.Sprintf("shrank from %d to %d bytes while it was read", info.Size, n))
		info.Size = n
	}
	info.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}
