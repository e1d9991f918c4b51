//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bodycam-dev/bodycam/internal/sandbox/boxinit"
)

// ownerMap makes a user namespace for a writable bind: the owner of the host directory is the agent inside, and nobody
// else is anybody.
func (b *Box) ownerMap(host string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(host, &st); err != nil {
		return nil, fmt.Errorf("bind %s: %w", host, err)
	}
	if st.Uid == 0 || st.Gid == 0 {
		return nil, fmt.Errorf("bind %s writable: it belongs to root, so a setuid program made inside would be root's outside; give it to another user and group, or copy in and out", host)
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{boxinit.HoldName}, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(st.Uid), HostID: int(b.HostUID(b.cfg.Agent.UID)), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(st.Gid), HostID: int(b.HostUID(b.cfg.Agent.GID)), Size: 1}},
	}}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	in.Close()
	_ = cmd.Wait()
	return f, err
}
