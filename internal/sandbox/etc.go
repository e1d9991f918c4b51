//go:build linux

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// hostEtcFiles of a host base are copied: facts about how the host's programs find things, nothing about its people.
var hostEtcFiles = []string{"ld.so.cache", "ld.so.conf", "localtime", "timezone", "os-release", "debian_version",
	"protocols", "services", "rpc", "ethertypes", "mime.types", "bash.bashrc", "inputrc", "ssl/openssl.cnf",
	"pki/tls/openssl.cnf"}

// hostEtcDirs of a host base are bound read-only.
var hostEtcDirs = []string{"alternatives", "ld.so.conf.d", "ssl/certs", "pki/ca-trust/extracted", "pki/tls/certs"}

const (
	caBundle  = "/etc/ssl/certs/ca-certificates.crt"
	nsswitch  = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"
	maxEtc    = 4 << 20
	agentMode = 0o700
)

// etc plans the directories that every box has and the files that say who and where it is.
func (p *planner) etc() error {
	c := &p.box.cfg
	agent := boxinit.Dir{Path: c.Agent.Home, Mode: agentMode, UID: int(c.Agent.UID), GID: int(c.Agent.GID)}
	if p.box.rootless {
		agent.UID, agent.GID = 0, 0
	}
	p.setup.Dirs = append(p.setup.Dirs,
		boxinit.Dir{Path: "/tmp", Mode: 0o1777}, boxinit.Dir{Path: "/var", Mode: 0o755}, boxinit.Dir{Path: "/var/tmp", Mode: 0o1777},
		boxinit.Dir{Path: "/run", Mode: 0o755}, boxinit.Dir{Path: "/root", Mode: 0o700}, boxinit.Dir{Path: "/etc", Mode: 0o755},
		boxinit.Dir{Path: "/home", Mode: 0o755}, boxinit.Dir{Path: "/mnt", Mode: 0o755}, boxinit.Dir{Path: "/opt", Mode: 0o755}, agent)
	files := map[string][]byte{
		"/etc/hostname": []byte(c.Hostname + "\n"),
		"/etc/hosts":    p.hosts(),
	}
	if c.Network.Mode == NetProxied {
		files["/etc/resolv.conf"] = []byte("nameserver " + boxinit.Gateway4.String() + "\noptions timeout:5 attempts:2\n")
	} else {
		files["/etc/resolv.conf"] = []byte("# this box has no network\n")
	}
	var err error
	if p.box.lower == "" {
		err = p.hostEtc(files)
	} else {
		err = p.baseEtc(files)
	}
	if err != nil {
		return err
	}
	if len(c.ExtraCA) > 0 {
		bundle, err := p.read(caBundle)
		if err != nil {
			return err
		}
		if len(bundle) > 0 && bundle[len(bundle)-1] != '\n' {
			bundle = append(bundle, '\n')
		}
		files[caBundle] = append(bundle, c.ExtraCA...)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p.setup.Files = append(p.setup.Files, boxinit.File{Path: name, Mode: 0o644, Data: files[name]})
	}
	return nil
}

func (p *planner) hosts() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	if p.box.cfg.Network.Mode == NetProxied {
		fmt.Fprintf(&b, "%s\t%s\n", boxinit.Addr4, p.box.cfg.Hostname)
	} else {
		fmt.Fprintf(&b, "127.0.0.1\t%s\n", p.box.cfg.Hostname)
	}
	for _, n := range slices.Sorted(maps.Keys(p.box.cfg.Hosts)) {
		fmt.Fprintf(&b, "%s\t%s\n", p.box.cfg.Hosts[n], n)
	}
	return b.Bytes()
}

// hostEtc is the whole /etc of a host base.
func (p *planner) hostEtc(files map[string][]byte) error {
	a := p.box.cfg.Agent
	files["/etc/passwd"] = addUser([]byte(hostPasswd), a)
	files["/etc/group"] = addGroup([]byte("root:x:0:\ndaemon:x:1:\ntty:x:5:\nstaff:x:50:\nusers:x:100:\nnogroup:x:65534:\n"), a)
	files["/etc/nsswitch.conf"] = []byte(nsswitch)
	for _, name := range hostEtcFiles {
		b, err := p.read("/etc/" + name)
		if err != nil {
			return err
		}
		if b != nil {
			files["/etc/"+name] = b
		}
	}
	for _, name := range hostEtcDirs {
		dir := "/etc/" + name
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		if err := p.mount(boxinit.Mount{Target: dir, ReadOnly: true}, dir); err != nil {
			return err
		}
	}
	return nil
}

// baseEtc adds the agent's account to the base's own.
func (p *planner) baseEtc(files map[string][]byte) error {
	for name, add := range map[string]func([]byte, User) []byte{"/etc/passwd": addUser, "/etc/group": addGroup} {
		b, err := p.read(name)
		if err != nil {
			return err
		}
		if b == nil {
			b = []byte("root:x:0:0:root:/root:/bin/sh\n")
			if name == "/etc/group" {
				b = []byte("root:x:0:\n")
			}
		}
		files[name] = add(b, p.box.cfg.Agent)
	}
	return nil
}

// read returns a file of the base, nil if it has none. Links are followed inside the base only.
func (p *planner) read(name string) ([]byte, error) {
	root := p.box.lower
	if root == "" {
		root = "/"
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := boxinit.OpenRegular(dir, strings.TrimPrefix(name, "/"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, boxinit.ErrNotRegular) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the base: %w", name, err)
	}
	defer f.Close()
	return readLimited(f, maxEtc)
}

// addUser appends u's line unless its name is taken.
func addUser(passwd []byte, u User) []byte {
	line := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", u.Name, u.UID, u.GID, path.Clean(u.Home))
	return addLine(passwd, u.Name, line)
}

func addGroup(group []byte, u User) []byte {
	return addLine(group, u.Name, fmt.Sprintf("%s:x:%d:\n", u.Name, u.GID))
}

func addLine(file []byte, name, line string) []byte {
	for _, l := range bytes.Split(file, []byte("\n")) {
		if bytes.HasPrefix(l, []byte(name+":")) {
			return file
		}
	}
	if len(file) > 0 && file[len(file)-1] != '\n' {
		file = append(file, '\n')
	}
	return append(file, line...)
}

func readLimited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	if b == nil {
		b = []byte{}
	}
	return b, err
}
