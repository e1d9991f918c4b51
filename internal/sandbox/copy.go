//go:build linux

package sandbox

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// CopyOpts says how CopyIn leaves what it copied.
type CopyOpts struct {
	// Owner is a user as in Cmd.User; default: Config.Agent.
	Owner string
	// Mode replaces the permission bits of a single file, if not zero. Of a directory's content they are kept.
	Mode fs.FileMode
	// Replace removes what is at the destination first, so that nothing made there before, a link for example, has a
	// say in where the copy goes.
	Replace bool
}

// CopyIn copies a host file or directory tree to a path of the box. Links are copied as links, not followed; devices,
// fifos and sockets are left out, and set-id bits dropped. The path is resolved inside the box.
func (b *Box) CopyIn(ctx context.Context, hostPath, boxPath string, o CopyOpts) error {
	if err := b.copyIn(ctx, hostPath, boxPath, o); err != nil {
		return fmt.Errorf("sandbox %s: copy %s to %s in the box: %w", b.cfg.ID, hostPath, boxPath, err)
	}
	return nil
}

func (b *Box) copyIn(ctx context.Context, hostPath, boxPath string, o CopyOpts) error {
	st, err := os.Lstat(hostPath)
	if err != nil {
		return err
	}
	dst := path.Clean(boxPath)
	if st.IsDir() {
		return b.sendTar(ctx, dst, o, func(w *tar.Writer) error {
			root, err := os.OpenRoot(hostPath)
			if err != nil {
				return err
			}
			defer root.Close()
			return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if name == "." && dst == "/" {
					return nil // the root directory stays root's
				}
				return addEntry(w, root, name, name, 0)
			})
		})
	}
	if !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
		return boxinit.ErrNotRegular
	}
	if dst == "/" {
		return errors.New("a file can't replace the root directory")
	}
	o.Replace = false // the file itself is always replaced; its directory is not
	return b.sendTar(ctx, path.Dir(dst), o, func(w *tar.Writer) error {
		root, err := os.OpenRoot(filepath.Dir(hostPath))
		if err != nil {
			return err
		}
		defer root.Close()
		return addEntry(w, root, filepath.Base(hostPath), path.Base(dst), o.Mode)
	})
}

// Mkdir makes a directory of the box, and its parents, if it isn't there.
func (b *Box) Mkdir(ctx context.Context, boxPath, owner string, mode fs.FileMode) error {
	dst := path.Clean(boxPath)
	err := b.sendTar(ctx, dst, CopyOpts{Owner: owner}, func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: tarMode(mode), ModTime: time.Now(), Format: tar.FormatPAX})
	})
	if err != nil {
		return fmt.Errorf("sandbox %s: make directory %s: %w", b.cfg.ID, dst, err)
	}
	return nil
}

// WriteFile writes a file of the box, in place of what has its name.
func (b *Box) WriteFile(ctx context.Context, boxPath string, data []byte, o CopyOpts) error {
	dst, mode := path.Clean(boxPath), o.Mode
	if mode == 0 {
		mode = 0o644
	}
	o.Replace = false
	err := b.sendTar(ctx, path.Dir(dst), o, func(w *tar.Writer) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Base(dst), Mode: tarMode(mode), Size: int64(len(data)), ModTime: time.Now(), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("sandbox %s: write %s: %w", b.cfg.ID, dst, err)
	}
	return nil
}

// sendTar has init unpack what write produces, below a directory of the box.
func (b *Box) sendTar(ctx context.Context, dir string, o CopyOpts, write func(*tar.Writer) error) error {
	if !path.IsAbs(dir) {
		return fmt.Errorf("path %q is not absolute", dir)
	}
	if o.Replace && dir == "/" {
		return errors.New("the root directory can't be replaced")
	}
	u, err := b.lookup(o.Owner)
	if err != nil {
		return err
	}
	req := &boxinit.Unpack{Dir: dir, UID: int(u.UID), GID: int(u.GID), Replace: o.Replace}
	if b.rootless {
		req.UID, req.GID = 0, 0 // the only user there is
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		buf := bufio.NewWriterSize(w, 1<<16)
		t := tar.NewWriter(buf)
		err := write(t)
		if err == nil { // without the end marker init reports a cut stream
			err = t.Close()
		}
		if err == nil {
			err = buf.Flush()
		}
		w.Close()
		written <- err
	}()
	_, err = b.call(ctx, &boxinit.Request{Unpack: req}, r)
	r.Close()
	werr := <-written
	if errors.Is(werr, unix.EPIPE) && err != nil {
		return err // init gave up, and said why
	}
	return errors.Join(werr, err)
}

// addEntry writes one file of a host tree to w.
func addEntry(w *tar.Writer, root *os.Root, name, as string, mode fs.FileMode) error {
	st, err := root.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: as, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	if st.Mode()&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case st.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		return w.WriteHeader(h)
	case st.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
		return w.WriteHeader(h)
	case !st.Mode().IsRegular():
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if mode != 0 {
		h.Mode = tarMode(mode)
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(w, f, h.Size)
	return err
}

func tarMode(m fs.FileMode) int64 {
	out := int64(m.Perm())
	if m&fs.ModeSticky != 0 {
		out |= 0o1000
	}
	return out
}
