//go:build linux

package sandbox

import (
	"archive/tar"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// Resolver is the address of the DNS server in a proxied box's resolv.conf.
func Resolver() netip.Addr { return boxinit.Gateway4 }

// Unpack has the box unpack what write produces below boxDir, which is made where it is missing. Names in the archive
// are relative to boxDir; they, and links on the way, are resolved inside the box.
func (b *Box) Unpack(ctx context.Context, boxDir string, o CopyOpts, write func(*tar.Writer) error) error {
	dst := path.Clean(boxDir)
	if err := b.sendTar(ctx, dst, o, write); err != nil {
		return fmt.Errorf("sandbox %s: write below %s: %w", b.cfg.ID, dst, err)
	}
	return nil
}

// Stat describes a file of the box without reading it; links are followed inside the box. A missing one is
// fs.ErrNotExist.
func (b *Box) Stat(boxPath string) (FileInfo, error) {
	f, err := boxinit.OpenPath(b.root, strings.TrimPrefix(path.Clean("/"+boxPath), "/"), 0)
	if err != nil {
		return FileInfo{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return FileInfo{}, err
	}
	info := FileInfo{Mode: st.Mode & 0o7777, Links: uint64(st.Nlink), UID: b.InsideUID(st.Uid), GID: b.InsideUID(st.Gid), Type: TypeDevice}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type, info.Size = TypeFile, st.Size
	case unix.S_IFDIR:
		info.Type = TypeDir
	case unix.S_IFIFO:
		info.Type = TypeFifo
	case unix.S_IFSOCK:
		info.Type = TypeSocket
	}
	return info, nil
}

func (b *Box) openFile(name string) (*os.File, error) {
	return boxinit.OpenRegular(b.root, strings.TrimPrefix(name, "/"))
}

func (b *Box) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	p, err := boxinit.OpenPath(b.root, strings.TrimPrefix(name, "/"), 0)
	if err != nil {
		return st, err
	}
	defer p.Close()
	return st, unix.Fstat(int(p.Fd()), &st)
}
