// Package sensor states what every source of kernel observation offers, so that a run can use any of them and
// one test suite can hold them all to the same record.
package sensor

import (
	"context"

	"github.com/bodycam-dev/bodycam"
)

// Target says what to observe: a cgroup v2 subtree (bpf), or processes that the sensor is asked to start (ptrace).
type Target struct {
	// Cgroup is the absolute path of the cgroup v2 directory whose subtree is observed.
	Cgroup string
	// Root is the path, as the recorder sees it, of the sandbox's root directory ("" for the host's own).
	// Canonical paths are reported as the sandbox sees them, without it.
	Root string
}

// Sink takes events in the order in which the sensor can establish them. It is never called twice at once.
// The event is valid only during the call. A Sink that returns an error ends the sensor: the error is reported by
// Stop and in Health.Failed, never swallowed.
type Sink func(*bodycam.Event) error

// Sensor is a source of observation.
//
// Start MUST have every hook in place when it returns, so that a process started afterwards in the target is
// seen from its first instruction. Stop MUST deliver everything that was seen before it was called, then the
// final counters, and MUST leave nothing attached. Health may be called at any time.
type Sensor interface {
	Name() string
	Start(ctx context.Context, t Target, sink Sink) error
	Stop() (bodycam.Health, error)
	Health() bodycam.Health
}
