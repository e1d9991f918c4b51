//go:build linux

package sandbox

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// hostDirs is the allow-list of a host base: what the host's programs are made of, and nothing else.
var hostDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// prepareBase checks the base and unpacks it if it is a tar file.
func (b *Box) prepareBase(ctx context.Context) error {
	switch b.cfg.Base.Kind {
	case BaseDir:
		st, err := os.Stat(b.cfg.Base.Path)
		if err != nil {
			return fmt.Errorf("base: %w", err)
		}
		if !st.IsDir() {
			return fmt.Errorf("base %s is not a directory", b.cfg.Base.Path)
		}
		if strings.ContainsAny(b.cfg.Base.Path, ",:\\") && b.rootless {
			return fmt.Errorf("base %s: a name with ',', ':' or '\\' can't be an overlay's layer", b.cfg.Base.Path)
		}
		b.lower = b.cfg.Base.Path
	case BaseTar:
		dir, err := b.unpackBase(ctx)
		if err != nil {
			return fmt.Errorf("base %s: %w", b.cfg.Base.Path, err)
		}
		b.lower = dir
	}
	return b.adopt()
}

// unpackBase unpacks the tar file once per digest, into a directory that appears complete or not at all.
func (b *Box) unpackBase(ctx context.Context) (string, error) {
	sum, err := fileDigest(ctx, b.cfg.Base.Path)
	if err != nil {
		return "", err
	}
	cache := b.cfg.Base.Cache
	if cache == "" {
		cache = b.cfg.StateDir
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	// The directory in between keeps users of the host away from set-uid programs of the base.
	final := filepath.Join(cache, hex.EncodeToString(sum))
	if _, err := os.Stat(final); err == nil {
		return filepath.Join(final, "root"), nil
	}
	tmp, err := os.MkdirTemp(cache, ".unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	root := filepath.Join(tmp, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	if err := unpackFile(b.cfg.Base.Path, root, b.rootless); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return "", err
	}
	return filepath.Join(final, "root"), nil
}

func unpackFile(file, dir string, rootless bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	var stream io.Reader = r
	if head, _ := r.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		defer z.Close()
		stream = z
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	owner := func(h *tar.Header) (int, int) { return h.Uid, h.Gid }
	if rootless {
		owner = nil
	}
	return boxinit.Extract(root, tar.NewReader(stream), owner)
}

func fileDigest(ctx context.Context, file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, &ctxReader{ctx, f}); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// plan says what init has to build, and what files go with it. As root the mounts are made here, with their owners
// shifted into the box's user namespace; without, init makes them itself.
func (b *Box) plan() (*boxinit.Setup, []*os.File, error) {
	l := b.cfg.Limits
	s := &boxinit.Setup{Hostname: b.cfg.Hostname, DiskBytes: l.DiskBytes, Inodes: l.Inodes, Rootless: b.rootless,
		Proxied: b.cfg.Network.Mode == NetProxied, Forward: b.cfg.Network.ForwardPorts, Groups: groups}
	p := &planner{box: b, setup: s}
	if !b.rootless {
		userns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", b.init.Process.Pid))
		if err != nil {
			return nil, nil, err
		}
		defer userns.Close()
		p.userns = userns
	}
	err := p.base()
	if err == nil {
		err = p.binds()
	}
	if err == nil {
		err = p.etc()
	}
	if err == nil && b.cgroups != nil {
		var tasks []*os.File
		tasks, err = b.cgroups.Tasks()
		p.mounts = append(p.mounts, tasks...)
		s.V1 = len(b.cgroups.V1)
	}
	return s, p.mounts, err
}

type planner struct {
	box    *Box
	setup  *boxinit.Setup
	userns *os.File
	mounts []*os.File
}

// mount adds one piece of the host.
func (p *planner) mount(m boxinit.Mount, host string) error {
	if p.box.rootless {
		m.Source = host
		p.setup.Mounts = append(p.setup.Mounts, m)
		return nil
	}
	userns := p.userns
	if !m.ReadOnly && !m.Overlay {
		var err error
		if userns, err = p.box.ownerMap(host); err != nil {
			return err
		}
		defer userns.Close()
	}
	f, err := boxinit.CloneMount(host, m.ReadOnly || m.Overlay, userns)
	if errors.Is(err, unix.EINVAL) { // this file system can't shift owners
		if m.Target == "/" || !m.ReadOnly && !m.Overlay {
			return fmt.Errorf("%w: its file system has no id-mapped mounts, so root inside would own nothing there; move it to ext4, xfs, btrfs or (from Linux 6.3 on) tmpfs", err)
		}
		if f, err = boxinit.CloneMount(host, true, nil); err == nil {
			p.box.weaker = append(p.box.weaker, host+" shows as owned by nobody: its file system has no id-mapped mounts")
		}
	}
	if err != nil {
		return err
	}
	p.mounts = append(p.mounts, f)
	p.setup.Mounts = append(p.setup.Mounts, m)
	return nil
}

// overlaysShift tells whether the kernel has overlays on id-mapped mounts. Trying takes a box, so its version is asked: a distribution's
// older kernel that has them all the same is taken for one that hasn't, and the box says what is weaker.
func overlaysShift() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return true
	}
	return notBefore(unix.ByteSliceToString(u.Release[:]), 5, 19)
}

// notBefore tells whether a kernel's release is at least major.minor, or can't be read.
func notBefore(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return true
	}
	return a > major || a == major && b >= minor
}

func (p *planner) base() error {
	if p.box.lower != "" {
		return p.mount(boxinit.Mount{Target: "/", Overlay: true}, p.box.lower)
	}
	for _, d := range hostDirs {
		st, err := os.Lstat(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(d)
			if err != nil {
				return err
			}
			p.setup.Links = append(p.setup.Links, boxinit.Link{Path: d, To: to})
			continue
		}
		over := p.box.cfg.Base.Writable && !p.box.rootless && overlaysShift()
		if err := p.mount(boxinit.Mount{Target: d, ReadOnly: !over, Overlay: over}, d); err != nil {
			return err
		}
	}
	if p.box.cfg.Base.Writable && !p.box.rootless && !overlaysShift() {
		p.box.weaker = append(p.box.weaker, "root inside can't write to its copy of /usr: kernels before 5.19 have no overlay on id-mapped mounts")
	}
	if p.box.cfg.Base.Writable && p.box.rootless {
		p.box.weaker = append(p.box.weaker, "not root: /usr of a host base is read-only")
	}
	p.cpus()
	return nil
}

// cpus shows how many processors there are where C libraries look for it; a box has no sysfs.
func (p *planner) cpus() {
	for _, n := range []string{"online", "possible", "present"} {
		f := "/sys/devices/system/cpu/" + n
		if b, err := os.ReadFile(f); err == nil {
			p.setup.Files = append(p.setup.Files, boxinit.File{Path: f, Mode: 0o444, Data: b})
		}
	}
}

func (p *planner) binds() error {
	for _, m := range p.box.cfg.Binds {
		if err := p.mount(boxinit.Mount{Target: m.Box, ReadOnly: m.ReadOnly}, m.Host); err != nil {
			return err
		}
	}
	return nil
}
