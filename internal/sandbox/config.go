//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
	"github.com/bodycam-dev/bodycam/internal/sandbox/cgroup"
	"github.com/bodycam-dev/bodycam/internal/sandbox/seccomp"
)

// Config says what a box is.
type Config struct {
	// ID names the box: its cgroup, its record on this machine, its default host name. Letters, digits, "-", "_", ".".
	ID string
	// StateDir is a host directory that Create makes (0700) and Close removes. It holds an unpacked tar base without
	// a Cache, and nothing an agent writes: that lives on the box's own disk, in memory.
	StateDir string
	Base     Base
	Binds    []Bind
	Hostname string                // default: ID
	Hosts    map[string]netip.Addr // further lines of /etc/hosts
	Limits   Limits
	Seccomp  Seccomp // default: SeccompStrict
	Unsafe   bool    // allows SeccompNone
	Network  Network
	// Agent is the user of commands that name none. The zero value is agent, 1000:1000, /home/agent. Where the base has an
	// account of that name its ids count; else the account is made with these. Ids 0, for any name but root, say that the
	// base must have it: [NoUserError] tells that it hasn't.
	Agent User
	// ExtraCA is PEM, appended to the box's own copy of /etc/ssl/certs/ca-certificates.crt.
	ExtraCA []byte
	// Keep are files that stay open until every process of the box is dead, also where the recorder is killed: the
	// process that tidies up then holds them.
	Keep []*os.File
}

// The kinds of Base.
const (
	BaseHost = "host" // an allow-list of the host's own files
	BaseDir  = "dir"  // a root file system in a directory
	BaseTar  = "tar"  // a root file system in a tar file, plain or gzip
)

// Base is the file system a box starts from. It is never written to.
type Base struct {
	Kind string // default: BaseHost
	Path string // of BaseDir and BaseTar
	// Cache keeps unpacked tar files between runs, by digest. Without it a tar is unpacked into StateDir each time.
	Cache string
	// Writable lets root inside write to its own copy of /usr of a host base. The others always have one.
	Writable bool
}

// Bind shows one path of the host in the box. A read-only bind shows owners as on the host. A writable one shows the
// directory's owner as the box's agent, and must not belong to root. Sockets below either can be connected to: bind none.
type Bind struct {
	Host, Box string // absolute
	ReadOnly  bool
}

// Limits bound what a box may use. Zero means no limit, unless a default is named. Memory, CPU and process limits hold
// for each group by itself.
type Limits struct {
	MemoryBytes uint64  // includes what the group wrote to the box's disk
	CPUs        float64 // of CPU time per second
	Pids        uint64  // default 8192: a fork bomb would stop the host
	DiskBytes   uint64  // of everything written in the box, which is kept in memory; default 10 GiB, at most half of the machine's
	Inodes      uint64  // default one million
	OutputBytes uint64  // of each of a command's output streams; what comes after is counted and dropped; default 1 GiB
}

// Seccomp names the filter of a box's commands: see package seccomp.
type Seccomp = seccomp.Mode

// The modes of Seccomp.
const (
	SeccompStrict  = seccomp.Strict
	SeccompObserve = seccomp.Observe
	SeccompNone    = seccomp.None
)

// The modes of Network.
const (
	NetNone    = "none"    // loopback only
	NetProxied = "proxied" // everything that leaves goes to NetListeners
)

// Network is how a box reaches the outside.
type Network struct {
	Mode string // default: NetNone
	// ForwardPorts are ports of the host's loopback that the box's loopback shows, each under its own number.
	ForwardPorts []uint16
}

// User is an account of the box.
type User struct {
	Name     string
	UID, GID uint32
	Home     string
}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	namePattern = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$`)
)

// fill checks c and sets the defaults.
func (c *Config) fill() error {
	if !idPattern.MatchString(c.ID) {
		return fmt.Errorf("box ID %q: want letters, digits, '-', '_', '.', at most 128", c.ID)
	}
	if !filepath.IsAbs(c.StateDir) {
		return fmt.Errorf("state directory %q is not absolute", c.StateDir)
	}
	c.StateDir = filepath.Clean(c.StateDir)
	if c.Base.Kind == "" {
		c.Base.Kind = BaseHost
	}
	switch c.Base.Kind {
	case BaseHost:
	case BaseDir, BaseTar:
		if !filepath.IsAbs(c.Base.Path) {
			return fmt.Errorf("base %q is not an absolute path", c.Base.Path)
		}
	default:
		return fmt.Errorf("base kind %q (host, dir, tar)", c.Base.Kind)
	}
	for i, b := range c.Binds {
		if !filepath.IsAbs(b.Host) || !path.IsAbs(b.Box) || path.Clean(b.Box) == "/" {
			return fmt.Errorf("bind %q to %q: both must be absolute, and not the root of the box", b.Host, b.Box)
		}
		c.Binds[i].Box = path.Clean(b.Box)
	}
	if c.Hostname == "" {
		c.Hostname = strings.ReplaceAll(c.ID, "_", "-")
		c.Hostname = c.Hostname[:min(len(c.Hostname), 63)]
	}
	if !hostPattern.MatchString(c.Hostname) || len(c.Hostname) > 64 {
		return fmt.Errorf("host name %q", c.Hostname)
	}
	for n, a := range c.Hosts {
		if !hostPattern.MatchString(n) || !a.IsValid() {
			return fmt.Errorf("hosts entry %q %v", n, a)
		}
	}
	return errors.Join(c.fillLimits(), c.fillModes())
}

func (l *Limits) cgroup() cgroup.Limits {
	return cgroup.Limits{MemoryBytes: l.MemoryBytes, Pids: l.Pids, CPUs: l.CPUs}
}

func (c *Config) fillLimits() error {
	l := &c.Limits
	if l.DiskBytes == 0 {
		l.DiskBytes = 10 << 30
		var si unix.Sysinfo_t
		if err := unix.Sysinfo(&si); err != nil {
			return err
		}
		l.DiskBytes = min(l.DiskBytes, uint64(si.Totalram)*uint64(si.Unit)/2)
	}
	if l.Inodes == 0 {
		l.Inodes = 1 << 20
	}
	if l.Pids == 0 {
		l.Pids = 8192
	}
	if l.OutputBytes == 0 {
		l.OutputBytes = 1 << 30
	}
	if l.CPUs < 0 || l.CPUs > 0 && l.CPUs < 0.01 {
		return fmt.Errorf("cpu limit %v: want at least 0.01", l.CPUs)
	}
	if l.MemoryBytes > 0 && l.MemoryBytes < 4<<20 {
		return fmt.Errorf("memory limit of %d bytes: want at least 4 MiB", l.MemoryBytes)
	}
	return nil
}

func (c *Config) fillModes() error {
	if c.Seccomp == "" {
		c.Seccomp = SeccompStrict
	}
	if c.Seccomp == SeccompNone && !c.Unsafe {
		return errors.New(`seccomp "none" leaves the sensor holes: it needs Unsafe`)
	}
	if _, err := seccomp.Program(c.Seccomp); err != nil {
		return err
	}
	switch c.Network.Mode {
	case "":
		c.Network.Mode = NetNone
	case NetNone, NetProxied:
	default:
		return fmt.Errorf("network mode %q (none, proxied)", c.Network.Mode)
	}
	for _, p := range c.Network.ForwardPorts {
		if p == 0 {
			return errors.New("forwarded port 0")
		}
	}
	if c.Agent == (User{}) {
		c.Agent = User{Name: "agent", UID: 1000, GID: 1000, Home: "/home/agent"}
	}
	if c.Agent.Name == "" || c.Agent.Name == "root" {
		c.Agent = User{Name: "root", Home: "/root"}
	}
	if !namePattern.MatchString(c.Agent.Name) || !path.IsAbs(c.Agent.Home) || strings.ContainsAny(c.Agent.Home, ":\n\x00") ||
		c.Agent.UID >= boxinit.IDs || c.Agent.GID >= boxinit.IDs {
		return fmt.Errorf("agent user %+v: want a plain name, an absolute home and ids below %d", c.Agent, boxinit.IDs)
	}
	return nil
}
