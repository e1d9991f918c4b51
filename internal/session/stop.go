package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// errStopped ends an agent that did what a rule forbids.
var errStopped = errors.New("the run was stopped")

// tell hands an event to the caller's listener and watcher.
func (s *run) tell(e *bodycam.Event) {
	if s.o.Event != nil {
		s.o.Event(e)
	}
	if s.o.Watch != nil {
		s.judge(e)
	}
}

// judge asks the watcher about an event, and ends the run where it says so: at once the agent's processes stand still, then
// what they are is written down, then they are killed. All phases that keep something still follow.
//
// It is asked on the thread that records. To ask costs less than to hand an event to another thread, whose waking would
// take time from the agent's processors; where judging takes long all the same, the sensor holds the agent until there is
// room, and nothing is lost.
func (s *run) judge(e *bodycam.Event) {
	s.judging = *e
	if reason := s.o.Watch(&s.judging); reason != "" {
		s.stop(reason)
	}
}

// stop ends the run for a reason, once. It doesn't wait: judging, and reading, go on while the group comes to a stop.
func (s *run) stop(reason string) {
	if s.stopped.CompareAndSwap(nil, &reason) {
		s.stopping.Go(func() { s.freeze(reason) })
	}
}

func (s *run) freeze(reason string) {
	ctx := context.Background()
	var errs []error
	if err := s.box.Freeze(ctx, sandbox.GroupAgent); err != nil {
		errs = append(errs, fmt.Errorf("freezing the agent's processes: %w", err))
	}
	pids, err := s.box.Procs(sandbox.GroupAgent)
	errs = append(errs, err)
	frozen := make([]Frozen, 0, len(pids))
	for _, pid := range pids {
		frozen = append(frozen, look(pid))
	}
	errs = append(errs, s.w.JSON(store.StoppedFile, Stopped{Reason: reason, Processes: frozen}))
	if err == nil && len(pids) == 0 {
		s.note("to be stopped, when nothing was left running: %s", reason)
	} else {
		s.note("stopped: %s", reason)
	}
	if err := errors.Join(errs...); err != nil {
		s.note("stopping: %v", err)
	}
	s.obs.mu.Lock()
	end := s.obs.broken
	s.obs.mu.Unlock()
	if end != nil {
		end(errStopped) // the phase kills the group
	}
}

// Stopped is what stopped.json says.
type Stopped struct {
	Reason    string   `json:"reason"`
	Processes []Frozen `json:"processes"`
}

// Frozen is a process as it stood when the run was stopped.
type Frozen struct {
	PID  int      `json:"pid"`
	PPID int      `json:"ppid,omitempty"`
	Exe  string   `json:"exe"`
	Argv []string `json:"argv"`
	CWD  string   `json:"cwd"`
	FDs  []string `json:"fds,omitempty"`
}

const mostFDs = 256

// look reads what /proc says of a process. What is gone stays empty.
func look(pid int) Frozen {
	dir := "/proc/" + strconv.Itoa(pid)
	f := Frozen{PID: pid}
	link := func(name string) string {
		s, err := os.Readlink(dir + "/" + name)
		if err != nil {
			return ""
		}
		return bodycam.Escape(s)
	}
	f.Exe, f.CWD = link("exe"), link("cwd")
	if b, err := os.ReadFile(dir + "/cmdline"); err == nil {
		for _, a := range strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00") {
			f.Argv = append(f.Argv, bodycam.Escape(a))
		}
	}
	if b, err := os.ReadFile(dir + "/stat"); err == nil {
		if i := strings.LastIndexByte(string(b), ')'); i >= 0 {
			if fields := strings.Fields(string(b[i+1:])); len(fields) > 1 {
				f.PPID, _ = strconv.Atoi(fields[1])
			}
		}
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return f
	}
	for _, d := range fds[:min(len(fds), mostFDs)] {
		f.FDs = append(f.FDs, d.Name()+" "+link("fd/"+d.Name()))
	}
	return f
}
