//go:build linux

package sandbox

import (
	"context"
	"errors"
)

// Groups are the cgroups of a box, siblings of one another. GroupAgent is what a sensor observes.
const (
	GroupSetup  = "setup"
	GroupAgent  = "agent"
	GroupVerify = "verify"

	groupInit = "init"
)

var groups = []string{GroupSetup, GroupAgent, GroupVerify}

var errNoCgroup = errors.New("this box has no cgroups: run as root")

// Cgroup is the cgroup version 2 directory of a group, <unified>/bodycam/<ID>/<group>, or "" if the box has none.
func (b *Box) Cgroup(group string) string {
	if b.cgroups == nil {
		return ""
	}
	return b.cgroups.Dir(group)
}

// Procs lists the processes of a group, by their ids in the recorder's pid namespace.
func (b *Box) Procs(group string) ([]int, error) {
	if b.cgroups == nil {
		return nil, errNoCgroup
	}
	return b.cgroups.Procs(group)
}

// Freeze stops every process of a group until Thaw, and waits until they stand still.
func (b *Box) Freeze(ctx context.Context, group string) error { return b.setFrozen(ctx, group, true) }

// Thaw undoes Freeze.
func (b *Box) Thaw(ctx context.Context, group string) error { return b.setFrozen(ctx, group, false) }

func (b *Box) setFrozen(ctx context.Context, group string, frozen bool) error {
	if b.cgroups == nil {
		return errNoCgroup
	}
	return b.cgroups.Freeze(ctx, group, frozen)
}

// OOMKills counts the processes of a group that the kernel has ended because the group had reached its memory limit.
func (b *Box) OOMKills(group string) (uint64, error) {
	if b.cgroups == nil {
		return 0, errNoCgroup
	}
	return b.cgroups.OOMKills(group)
}
