//go:build linux

package boxinit

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Extract unpacks a tar stream below root and never outside it. Devices and fifos are left out: a box has its own /dev.
// owner maps an entry to its owner; nil leaves everything to the caller's user.
func Extract(root *os.Root, r *tar.Reader, owner func(*tar.Header) (uid, gid int)) error {
	type dirTime struct {
		name string
		mode fs.FileMode
		at   time.Time
	}
	var dirs []dirTime
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" {
			name = "."
		}
		if err := extractEntry(root, name, h, r); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
		if !kept(h.Typeflag) {
			continue
		}
		if owner != nil && h.Typeflag != tar.TypeLink {
			uid, gid := owner(h)
			if err := root.Lchown(name, uid, gid); err != nil {
				return fmt.Errorf("unpack %q: %w", h.Name, err)
			}
		}
		mode := fs.FileMode(h.Mode & 0o777)
		for bit, m := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
			if h.Mode&bit != 0 {
				mode |= m
			}
		}
		switch h.Typeflag {
		case tar.TypeReg:
			if err := root.Chmod(name, mode); err != nil {
				return err
			}
			if err := root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
				return err
			}
		case tar.TypeDir: // later entries change its time, and a mode without w would stop them
			dirs = append(dirs, dirTime{name, mode, h.ModTime})
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		d := dirs[i]
		if err := root.Chmod(d.name, d.mode); err != nil {
			return err
		}
		if err := root.Chtimes(d.name, d.at, d.at); err != nil {
			return err
		}
	}
	return nil
}

func kept(typ byte) bool {
	return typ == tar.TypeReg || typ == tar.TypeDir || typ == tar.TypeSymlink || typ == tar.TypeLink
}

func extractEntry(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	if !kept(h.Typeflag) {
		return nil
	}
	if h.Typeflag == tar.TypeDir {
		if st, err := root.Lstat(name); err == nil && st.IsDir() {
			return nil
		}
	}
	if name == "." {
		return errors.New("the archive's root is not a directory")
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.Mkdir(name, 0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
