//go:build linux

package boxinit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Everything in this file runs in the box's init, inside its new mount namespace, before any command of the box.

// staging is where the box's disk is mounted, over a directory that every host has. It is out of reach after pivot_root.
const staging = "/tmp"

// buildRoot assembles the root file system and moves into it.
func buildRoot(s *Setup, mounts []*os.File) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	pieces, err := takePieces(s, mounts)
	if err != nil {
		return err
	}
	opts := fmt.Sprintf("mode=755,uid=0,gid=0,size=%d,nr_inodes=%d", s.DiskBytes, s.Inodes)
	if err := unix.Mount("tmpfs", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return fmt.Errorf("mount the box's disk: %w", err)
	}
	root := staging + "/root"
	if err := makeDir(root, 0o755, 0, 0); err != nil {
		return err
	}
	based := false
	for i, m := range s.Mounts {
		if m.Target == "/" {
			if err := attach(m, i, pieces[i], root, staging); err != nil {
				return err
			}
			based = true
		}
	}
	if !based {
		if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind the root: %w", err)
		}
		if err := remount(root, false); err != nil {
			return err
		}
	}
	old, err := os.Open("/")
	if err != nil {
		return err
	}
	defer old.Close()
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// The old root lies over the new one, and is the working directory, until finishRoot lets go of it.
	if err := old.Chdir(); err != nil {
		return err
	}
	return fillRoot(s, pieces)
}

// takePieces opens every mount that init has to clone itself, while the host's paths are still there.
func takePieces(s *Setup, mounts []*os.File) ([]*os.File, error) {
	pieces := make([]*os.File, len(s.Mounts))
	for i, m := range s.Mounts {
		if m.Source == "" {
			if len(mounts) == 0 {
				return nil, errors.New("setup message with too few mounts")
			}
			pieces[i], mounts = mounts[0], mounts[1:]
			continue
		}
		f, err := CloneMount(m.Source, m.ReadOnly || m.Overlay, nil)
		if err != nil {
			return nil, err
		}
		pieces[i] = f
	}
	return pieces, nil
}

// CloneMount makes a detached mount of one host path, without setuid bits and devices. With a user namespace the owners
// are shifted into it.
func CloneMount(host string, readOnly bool, userns *os.File) (*os.File, error) {
	below := 0
	fd, err := unix.OpenTree(unix.AT_FDCWD, host, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, unix.EINVAL) { // what is mounted below can't be left out by an ordinary user: it may cover something
		below = unix.AT_RECURSIVE
		fd, err = unix.OpenTree(unix.AT_FDCWD, host, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	}
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", host, err)
	}
	f := os.NewFile(uintptr(fd), host)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|uint(below), &attr); err != nil {
		f.Close()
		if errors.Is(err, unix.ENOSYS) {
			err = fmt.Errorf("%w: the sandbox needs Linux 5.14 or later", err)
		}
		return nil, fmt.Errorf("bind %s: set mount attributes: %w", host, err)
	}
	return f, nil
}

// attach puts a detached mount at target, under an overlay if asked.
// disk is where the box's disk is to be found: before pivot_root by its name, afterwards below the old root.
func attach(m Mount, n int, piece *os.File, target, disk string) error {
	where := target
	if m.Overlay {
		where = disk + "/lower" + strconv.Itoa(n)
		if err := makeDir(where, 0o755, 0, 0); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(int(piece.Fd()), "", unix.AT_FDCWD, where, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	piece.Close()
	if !m.Overlay {
		return nil
	}
	upper, work := disk+"/upper"+strconv.Itoa(n), disk+"/work"+strconv.Itoa(n)
	for _, d := range []string{upper, work} {
		if err := makeDir(d, 0o755, 0, 0); err != nil {
			return err
		}
	}
	opts := "lowerdir=" + where + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	if err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		if errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w (kernels before 5.19 have no overlay on id-mapped mounts, which root's boxes need for a base of one's own: take the host as base)", err)
		}
		return fmt.Errorf("mount overlay on %s: %w", m.Target, err)
	}
	return nil
}

// fillRoot runs with the new root as "/" and the old one as ".".
func fillRoot(s *Setup, pieces []*os.File) error {
	for _, d := range s.Dirs {
		if err := ensureDir(d); err != nil {
			return err
		}
	}
	for _, l := range s.Links {
		if err := os.Symlink(l.To, l.Path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, d := range []string{"/proc", "/dev", "/sys"} {
		if err := ensureDir(Dir{Path: d, Mode: 0o555}); err != nil {
			return err
		}
	}
	if err := mountProc(); err != nil {
		return err
	}
	if err := mountDev(s.Rootless); err != nil {
		return err
	}
	for i, m := range s.Mounts {
		if m.Target == "/" {
			continue
		}
		if err := makeTarget(m.Target, pieces[i]); err != nil {
			return err
		}
		if err := attach(m, i, pieces[i], m.Target, "."+staging); err != nil {
			return err
		}
	}
	for _, f := range s.Files {
		if err := placeFile(f); err != nil {
			return err
		}
	}
	return nil
}

// finishRoot lets go of the host's file system: from here on no path leads to it.
func finishRoot() error {
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's file system: %w", err)
	}
	return os.Chdir("/")
}

func makeDir(p string, mode uint32, uid, gid int) error {
	if err := os.Mkdir(p, 0o700); err != nil {
		return err
	}
	if err := os.Lchown(p, uid, gid); err != nil {
		return err
	}
	return unix.Chmod(p, mode)
}

// ensureDir makes d and its parents. A directory that exists keeps its owner and mode.
func ensureDir(d Dir) error {
	if st, err := os.Stat(d.Path); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("%s is not a directory in the base", d.Path)
		}
		return nil
	}
	if parent := path.Dir(d.Path); parent != "/" {
		if err := ensureDir(Dir{Path: parent, Mode: 0o755}); err != nil {
			return err
		}
	}
	return makeDir(d.Path, d.Mode, d.UID, d.GID)
}

// makeTarget makes an empty file or directory to mount piece on.
func makeTarget(target string, piece *os.File) error {
	st, err := piece.Stat()
	if err != nil {
		return err
	}
	if st.IsDir() {
		return ensureDir(Dir{Path: target, Mode: 0o755})
	}
	if have, err := os.Stat(target); err == nil {
		if have.IsDir() {
			return fmt.Errorf("bind to %s: a file can't go over a directory", target)
		}
		return nil
	}
	if err := ensureDir(Dir{Path: path.Dir(target), Mode: 0o755}); err != nil {
		return err
	}
	return placeFile(File{Path: target, Mode: 0o644})
}

// placeFile writes a file that belongs to root inside, in place of what the base has there. On a read-only mount it is
// laid over the existing file.
func placeFile(f File) error {
	if err := ensureDir(Dir{Path: path.Dir(f.Path), Mode: 0o755}); err != nil {
		return err
	}
	err := writeNew(f.Path, f)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	over := "." + staging + "/file-" + filepath.Base(f.Path)
	if err := writeNew(over, f); err != nil {
		return err
	}
	if err := unix.Mount(over, f.Path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("lay %s over the base's: %w", f.Path, err)
	}
	return remount(f.Path, true)
}

func writeNew(p string, f File) error {
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := w.Write(f.Data); err != nil {
		return err
	}
	if err := w.Chown(0, 0); err != nil {
		return err
	}
	return w.Chmod(fs.FileMode(f.Mode))
}

// remount sets nosuid and nodev, and read-only if asked, on the mount at p.
func remount(p string, readOnly bool) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, p, 0, &attr); err != nil {
		return fmt.Errorf("remount %s: %w", p, err)
	}
	return nil
}

// What in /proc says too much of the machine, or acts on it.
var (
	procReadOnly = []string{"sys", "tty", "driver", "asound"}
	procMasked   = []string{"kcore", "keys", "sysrq-trigger", "timer_list", "timer_stats", "sched_debug", "latency_stats",
		"kallsyms", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "mtrr", "iomem", "ioports"}
	procEmpty = []string{"acpi", "scsi", "fs", "bus", "irq"}
)

func mountProc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc (refused where the host's own /proc is partly covered): %w", err)
	}
	for _, n := range procReadOnly {
		p := "/proc/" + n
		if _, err := os.Lstat(p); err != nil {
			continue
		}
		if err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", p, err)
		}
		if err := remount(p, true); err != nil {
			return err
		}
	}
	for _, n := range procMasked {
		p := "/proc/" + n
		if _, err := os.Lstat(p); err != nil {
			continue
		}
		if err := unix.Mount("./dev/null", p, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mask %s: %w", p, err)
		}
	}
	for _, n := range procEmpty {
		p := "/proc/" + n
		if _, err := os.Lstat(p); err != nil {
			continue
		}
		if err := unix.Mount("tmpfs", p, "tmpfs", flags|unix.MS_RDONLY, "size=4k,nr_inodes=2,mode=555"); err != nil {
			return fmt.Errorf("mask %s: %w", p, err)
		}
	}
	return nil
}

func mountDev(rootless bool) error {
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,uid=0,gid=0,size=64k,nr_inodes=64"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p := "/dev/" + n
		if err := writeNew(p, File{Path: p, Mode: 0o666}); err != nil {
			return err
		}
		if err := unix.Mount("."+p, p, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", p, err)
		}
	}
	for _, l := range []Link{{"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"},
		{"/dev/stderr", "/proc/self/fd/2"}, {"/dev/ptmx", "pts/ptmx"}} {
		if err := os.Symlink(l.To, l.Path); err != nil {
			return err
		}
	}
	for _, d := range []Dir{{Path: "/dev/pts", Mode: 0o755}, {Path: "/dev/shm", Mode: 0o1777}} {
		if err := makeDir(d.Path, d.Mode, 0, 0); err != nil {
			return err
		}
	}
	opts := "newinstance,ptmxmode=0666,mode=620"
	if !rootless {
		opts += ",gid=5"
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, opts); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	shm := "." + staging + "/shm"
	if err := makeDir(shm, 0o1777, 0, 0); err != nil {
		return err
	}
	if err := unix.Mount(shm, "/dev/shm", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /dev/shm: %w", err)
	}
	if err := remount("/dev/shm", false); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(unix.AT_FDCWD, "/dev", 0, &attr)
}
