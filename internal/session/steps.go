package session

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
)

// setup carries out the Dockerfile's, the task's and the kind's steps. None of it is observed.
func (s *run) setup(ctx context.Context) error {
	s.makeReady()
	for _, dir := range []string{s.plan.Workdir, "/logs/agent", "/logs/verifier", "/logs/artifacts"} {
		if err := s.box.Mkdir(ctx, dir, s.plan.User, 0o755); err == nil {
			continue
		}
		// The user may be one that the setup steps are about to make.
		if err := s.box.Mkdir(ctx, dir, "root", 0o777); err != nil {
			return err
		}
	}
	if err := s.hook(ctx, "before_setup"); err != nil {
		return err
	}
	if err := s.steps(ctx, s.plan.Setup); err != nil {
		return err
	}
	if s.inv != nil {
		for _, f := range s.inv.Files {
			o := sandbox.CopyOpts{Owner: s.plan.Agent.User, Mode: f.Mode}
			if err := s.box.WriteFile(ctx, f.Path, f.Content, o); err != nil {
				return fmt.Errorf("writing the harness's settings: %w", err)
			}
		}
	}
	return nil
}

// validate checks that setup did what it should.
func (s *run) validate(ctx context.Context) error {
	if err := s.steps(ctx, s.plan.Validate); err != nil {
		return err
	}
	if err := s.hook(ctx, "after_setup"); err != nil {
		return err
	}
	if err := s.plant(ctx); err != nil {
		return err
	}
	var err error
	if s.manifestBefore, err = s.manifest(ctx, "before"); err != nil {
		return err
	}
	return s.snapshot(ctx)
}

func (s *run) hook(ctx context.Context, name string) error {
	list := s.plan.Hooks[name]
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx, s.plan.Timeouts.Hook)
	defer cancel()
	if err := s.steps(ctx, list); err != nil {
		return fmt.Errorf("hook %s: %w", name, err)
	}
	return nil
}

func (s *run) steps(ctx context.Context, list []kind.PlanStep) error {
	for i := range list {
		if err := s.step(ctx, &list[i]); err != nil {
			return fmt.Errorf("step %q (%s): %w", list[i].Name, list[i].Source, err)
		}
	}
	return nil
}

func (s *run) step(ctx context.Context, p *kind.PlanStep) error {
	switch {
	case p.Mkdir != "":
		return s.box.Mkdir(ctx, p.Mkdir, p.User, 0o755)
	case len(p.Copies) > 0:
		return s.copies(ctx, p.Copies, false)
	}
	ctx, cancel := bounded(ctx, p.Timeout)
	defer cancel()
	var tail tailBuffer
	proc, err := s.box.Start(ctx, sandbox.Cmd{Argv: p.Argv, Env: environ(p.Env), Dir: p.Workdir, User: p.User, Group: sandbox.GroupSetup, Stdout: &tail, Stderr: &tail})
	if err != nil {
		return err
	}
	st, _, err := s.wait(ctx, proc, sandbox.GroupSetup)
	if err != nil {
		return fmt.Errorf("%w%s", err, tail.quote())
	}
	if !p.Exit.Has(st.Code) || st.Signal != 0 {
		return fmt.Errorf("it ended with %s%s", statusText(st), tail.quote())
	}
	return nil
}

// wait waits for a process, and kills its whole group when the context ends first.
func (s *run) wait(ctx context.Context, p *sandbox.Process, group string) (sandbox.ExitStatus, sandbox.Usage, error) {
	var cause error
	select {
	case <-p.Done():
	case <-ctx.Done():
		cause = context.Cause(ctx)
		if err := s.box.Kill(context.WithoutCancel(ctx), group); err != nil {
			cause = errors.Join(cause, p.Kill())
		}
	}
	st, usage := p.Wait()
	return st, usage, errors.Join(cause, st.Err)
}

func statusText(st sandbox.ExitStatus) string {
	if st.Signal != 0 {
		return "signal " + st.Signal.String()
	}
	return fmt.Sprintf("exit status %d", st.Code)
}

// copies puts a plan's files into the box. fresh removes what lies at a directory's place first: after the agent ran,
// nothing that it left there, a link for example, may have a say.
func (s *run) copies(ctx context.Context, list []kind.Copy, fresh bool) error {
	for i := range list {
		if err := s.copy(ctx, &list[i], fresh); err != nil {
			return err
		}
	}
	return nil
}

func (s *run) copy(ctx context.Context, c *kind.Copy, fresh bool) error {
	dir, name := c.To, "."
	single := c.From == "" // Content is one file
	if !single {
		st, err := os.Stat(c.From)
		if err != nil {
			return fmt.Errorf("copying to %s: %w", c.To, err)
		}
		single = !st.IsDir()
	}
	if single {
		into, err := s.box.Stat(c.To)
		if c.Name != "" && err == nil && into.Type == sandbox.TypeDir {
			name = c.Name
		} else {
			dir, name = path.Dir(c.To), path.Base(c.To)
		}
	}
	owner := c.Owner
	if owner == "" {
		owner = "root"
	}
	return s.box.Unpack(ctx, dir, sandbox.CopyOpts{Owner: owner, Replace: fresh && !single}, func(w *tar.Writer) error {
		return c.Walk(func(e kind.Entry) error { return addEntry(ctx, w, e, path.Join(name, e.Rel)) })
	})
}

// addEntry writes one file of a plan to the stream that the box unpacks.
func addEntry(ctx context.Context, w *tar.Writer, e kind.Entry, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(e.Mode.Perm()), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	switch {
	case e.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return w.WriteHeader(h)
	case e.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		return w.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, e.Size
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.CopyN(w, r, e.Size); err != nil {
		return fmt.Errorf("%s: %w", e.To, err)
	}
	return nil
}

func environ(list []kind.EnvVar) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Name + "=" + e.Value
	}
	return out
}

// tailBuffer keeps the last bytes of an output, for error messages.
type tailBuffer struct{ b []byte }

func (t *tailBuffer) Write(b []byte) (int, error) {
	const most = 2048
	t.b = append(t.b, b...)
	if len(t.b) > 2*most {
		t.b = slices.Clone(t.b[len(t.b)-most:])
	}
	return len(b), nil
}

// quote is the output's last lines, made safe for a terminal.
func (t *tailBuffer) quote() string {
	lines := bytes.Split(bytes.TrimSpace(t.b), []byte("\n"))
	if len(t.b) == 0 {
		return " (it printed nothing)"
	}
	var b strings.Builder
	b.WriteString("; the last it printed:")
	for _, l := range lines[max(0, len(lines)-6):] {
		b.WriteString("\n    | ")
		b.WriteString(bodycam.Printable(string(l)))
	}
	return b.String()
}
