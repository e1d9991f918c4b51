package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// linger is how long a record waits, after the agent's own process has ended, for what it left behind.
const linger = 500 * time.Millisecond

// agent runs the agent. That it fails or runs out of time is no error of the run; that it can't be started is.
func (s *run) agent(ctx context.Context) error {
	if err := s.hook(ctx, "before_agent"); err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	if err := s.judgeReady(); err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	s.refusing.Store(true)
	if err := s.beginGuard(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.obs.mu.Lock()
	s.obs.broken = stop
	s.obs.mu.Unlock()

	cmd, err := s.agentCommand(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	s.trace(&cmd)
	s.obs.enter(bodycam.WindowAgent)
	proc, err := s.box.Start(ctx, cmd)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, &NotStartedError{Program: cmd.Argv[0], HostBase: s.plan.Base == "host", Err: err})
	}
	s.agentPID, s.started = proc.HostPID(), true
	var used error
	if s.o.Service != nil {
		used = s.serve(ctx, proc)
		s.end(ctx, proc)
	}
	st, usage, err := s.wait(ctx, proc, sandbox.GroupAgent)
	s.obs.enter(bodycam.WindowPostAgent)
	if n := proc.OutputDropped(); n > 0 {
		s.note("%d bytes of the agent's output were over the limit and were dropped", n)
	}
	s.update(func(r *bodycam.Run) {
		p := &r.Phases[len(r.Phases)-1]
		p.Exit = &st.Code
		if st.Signal != 0 {
			p.Signal = st.Signal.String()
		}
		p.CPU = (usage.User + usage.System).Seconds()
	})
	if n, oerr := s.box.OOMKills(sandbox.GroupAgent); oerr == nil && n > 0 {
		s.note("%d process(es) of the agent were killed for want of memory (the limit is %d bytes)", n, s.plan.Limits.Memory)
	}
	if err == nil && s.o.Service == nil {
		s.linger(ctx)
	}
	if herr := s.hook(context.WithoutCancel(ctx), "after_agent"); herr != nil {
		s.note("%v", herr)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.Is(err, errStopped) {
		return errors.Join(err, used)
	}
	return used
}

// NotStartedError says that the agent's program could not be executed.
type NotStartedError struct {
	Program  string
	HostBase bool // the sandbox's root file system is an allow-list of this machine's
	Err      error
}

func (e *NotStartedError) Error() string { return "the agent was not started: " + e.Err.Error() }

func (e *NotStartedError) Unwrap() error { return e.Err }

// Hint says what to do next, "" where nothing is known.
func (e *NotStartedError) Hint() string {
	if !errors.Is(e.Err, fs.ErrNotExist) {
		return ""
	}
	if p, err := exec.LookPath(e.Program); err == nil && e.HostBase {
		return fmt.Sprintf("%s is on this machine, but the sandbox has only /usr, /bin, /sbin and /lib of it: bind it in a kind (environment.binds), or copy it in a setup step", p)
	}
	if !e.HostBase {
		return "the kind's base doesn't have it: put it there, or copy it in with a setup step"
	}
	return "see what the sandbox has, as with: bodycam run -q -- ls /usr/bin"
}

// linger gives processes that outlive the agent a moment to show themselves.
func (s *run) linger(ctx context.Context) {
	end := time.NewTimer(linger)
	defer end.Stop()
	for {
		left, err := s.box.Procs(sandbox.GroupAgent)
		if err != nil || len(left) == 0 {
			return
		}
		select {
		case <-end.C:
			s.note("%d process(es) outlived the agent", len(left))
			return
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *run) agentCommand(ctx context.Context) (sandbox.Cmd, error) {
	p := s.plan
	var limit int64 = 1 << 30
	if p.Limits.Output > 0 {
		limit = int64(p.Limits.Output)
	}
	dir := filepath.Join(s.w.Dir(), store.AgentDir)
	cmd := sandbox.Cmd{User: p.Agent.User, Group: sandbox.GroupAgent}
	var err error
	if s.o.Oracle {
		if err := s.copies(ctx, p.Solution.Copies, true); err != nil {
			return cmd, fmt.Errorf("copying the solution in: %w", err)
		}
		if s.account, err = newAccount(filepath.Join(dir, "stdout"), limit, nil); err != nil {
			return cmd, err
		}
		cmd.Argv, cmd.Env, cmd.Dir = p.Solution.Argv, environ(p.Solution.Env), p.Solution.Workdir
	} else {
		parser := s.inv.NewParser(s.transcriptOptions())
		if s.account, err = newAccount(filepath.Join(dir, "stdout"), limit, parser); err != nil {
			return cmd, err
		}
		cmd.Argv, cmd.Env, cmd.Dir = s.inv.Argv, s.agentEnv(), s.inv.Dir
		if s.inv.Stdin != nil {
			cmd.Stdin = bytes.NewReader(s.inv.Stdin)
		}
		if cmd.Dir == "" {
			cmd.Dir = p.Workdir
		}
	}
	cmd.Stdout = s.account
	if s.o.Service != nil && s.o.Service.Port == 0 {
		s.pipe = newPipe()
		cmd.Stdin, cmd.Stdout = s.pipe.inR, tee{s.account, s.pipe.outW}
	}
	if s.errs, err = newAccount(filepath.Join(dir, "stderr"), limit, nil); err != nil {
		return cmd, err
	}
	cmd.Stderr = s.errs
	return cmd, nil
}

// agentEnv is the plan's environment, then what the harness needs, then what the kind gives the agent alone.
func (s *run) agentEnv() []string {
	env := map[string]string{}
	add := func(list []kind.EnvVar) {
		for _, e := range list {
			env[e.Name] = e.Value
		}
	}
	add(s.plan.Env)
	maps.Copy(env, s.inv.Env)
	add(s.plan.Agent.Env)
	if s.proxy != nil && len(s.proxy.CA()) > 0 {
		const bundle = "/etc/ssl/certs/ca-certificates.crt"
		for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
			if _, ok := env[name]; !ok {
				env[name] = bundle
			}
		}
	}
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}
