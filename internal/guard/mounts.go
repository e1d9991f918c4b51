//go:build linux

package guard

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// place is a mount of the sandbox.
type place struct {
	id       int
	point    string // where it is mounted, as the sandbox sees it
	fstype   string
	writable bool

	at   *os.File // O_PATH, its root
	asks bool     // the kernel can ask about files there
}

// parseMounts reads /proc/PID/mountinfo.
func parseMounts(b []byte) ([]place, error) {
	var out []place
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		dash := slices.Index(f, "-")
		if len(f) < 7 || dash < 6 || len(f) < dash+4 {
			return nil, fmt.Errorf("a line of mountinfo that can't be read: %q", line)
		}
		id, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, fmt.Errorf("a line of mountinfo that can't be read: %q", line)
		}
		rw := func(opts string) bool { return slices.Contains(strings.Split(opts, ","), "rw") }
		out = append(out, place{id: id, point: unescape(f[4]), fstype: f[dash+1], writable: rw(f[5]) && rw(f[len(f)-1])})
	}
	return out, nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// placesOf opens every mount of a process's namespace that a path leads to. What is covered by another mount is reached
// by nobody, and left out.
func placesOf(pid int) (out []place, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	all, err := parseMounts(b)
	if err != nil {
		return nil, err
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	for _, p := range all {
		ok, err := p.open(root)
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("mount at %s: %w", p.point, err)
		}
		if ok {
			out = append(out, p)
		}
	}
	if !slices.ContainsFunc(out, func(p place) bool { return p.point == "/" }) {
		closeAll(out)
		return nil, errors.New("its root is no mount")
	}
	return out, nil
}

// open opens the root of the mount, below a directory that is the sandbox's root. No link is followed: it could lead to
// a mount of the host. It returns false where another mount lies over it.
func (p *place) open(root int) (bool, error) {
	name := strings.TrimLeft(p.point, "/")
	if name == "" {
		name = "."
	}
	fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.at = os.NewFile(uintptr(fd), p.point)
	id, err := mountID(fd)
	if err != nil || id != p.id {
		p.at.Close()
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		p.at.Close()
		return false, err
	}
	kind := st.Mode & unix.S_IFMT
	// The kernel asks nobody about files of /proc. To be handed a terminal or a device would open it.
	p.asks = (kind == unix.S_IFDIR || kind == unix.S_IFREG) && p.fstype != "proc" && p.fstype != "devpts"
	return true, nil
}

// mountID is the number of the mount by which a descriptor was opened.
func mountID(fd int) (int, error) {
	f, err := os.Open("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(rest))
		}
	}
	return 0, errors.New("this kernel doesn't tell the mount of a descriptor")
}

func closeAll(list []place) {
	for _, p := range list {
		p.at.Close()
	}
}
