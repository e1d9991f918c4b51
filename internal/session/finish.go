package session

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/link"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// verify runs the task's tests, in a group beside the agent's: they are not the agent's behaviour. What the agent
// left behind is still recorded, in a window of its own, while the tests lie where it could read them.
func (s *run) verify(ctx context.Context) error {
	t := s.plan.Tests
	if t == nil {
		s.update(func(r *bodycam.Run) { r.Outcome = bodycam.Outcome{Status: bodycam.OutcomeNone} })
		return nil
	}
	out, err := s.tests(ctx, t)
	if err != nil {
		out = bodycam.Outcome{Status: bodycam.OutcomeError, Error: err.Error()}
	}
	s.update(func(r *bodycam.Run) { r.Outcome = out })
	if herr := s.hook(ctx, "after_verify"); herr != nil {
		s.note("%v", herr)
	}
	return nil // a test that can't be run is an outcome, and the run goes on
}

func (s *run) tests(ctx context.Context, t *kind.PlanTests) (bodycam.Outcome, error) {
	if err := s.hook(ctx, "before_verify"); err != nil {
		return bodycam.Outcome{}, err
	}
	s.obs.enter(bodycam.WindowVerify)
	// What an agent left in the verifier's folder must not count as a verdict.
	err := s.box.Unpack(ctx, "/logs/verifier", sandbox.CopyOpts{Owner: t.User, Replace: true}, func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755, Format: tar.FormatPAX})
	})
	if err != nil {
		return bodycam.Outcome{}, fmt.Errorf("clearing /logs/verifier: %w", err)
	}
	if err := s.copyTests(ctx, t.Copies); err != nil {
		return bodycam.Outcome{}, fmt.Errorf("copying the tests in: %w", err)
	}
	dir := filepath.Join(s.w.Dir(), store.VerifierDir)
	f, err := os.OpenFile(filepath.Join(dir, "output"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return bodycam.Outcome{}, fmt.Errorf("keeping the tests' output: %w", err)
	}
	defer f.Close()
	out := &capped{w: f, left: 16 << 20}
	ctx, cancel := bounded(ctx, t.Timeout)
	defer cancel()
	proc, err := s.box.Start(ctx, sandbox.Cmd{Argv: t.Argv, Env: environ(t.Env), Dir: t.Workdir, User: t.User, Group: sandbox.GroupVerify, Stdout: out, Stderr: out})
	if err != nil {
		return bodycam.Outcome{}, fmt.Errorf("starting the tests: %w", err)
	}
	st, _, err := s.wait(ctx, proc, sandbox.GroupVerify)
	if err != nil {
		return bodycam.Outcome{}, fmt.Errorf("the tests did not end: %w", err)
	}
	s.update(func(r *bodycam.Run) { r.Phases[len(r.Phases)-1].Exit = &st.Code })
	if err := s.collectFrom(ctx, "/logs/verifier/**", store.VerifierDir, true); err != nil {
		return bodycam.Outcome{}, err
	}
	return verdict(t, st, dir)
}

// verdict reads the tests' verdict as the task's form says.
func verdict(t *kind.PlanTests, st sandbox.ExitStatus, dir string) (bodycam.Outcome, error) {
	if t.Reward.From == "exit" {
		if st.Code == 0 {
			return bodycam.Outcome{Status: bodycam.OutcomePass}, nil
		}
		return bodycam.Outcome{Status: bodycam.OutcomeFail}, nil
	}
	read := func(box string) []byte {
		if box == "" {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(dir, filepath.Base(box)))
		if err != nil {
			return nil // it wasn't left, or couldn't be collected, which Skipped tells
		}
		return b
	}
	reward, err := kind.ParseReward(read(t.Reward.Text), read(t.Reward.JSON))
	if err != nil {
		return bodycam.Outcome{}, fmt.Errorf("the tests ended with %s: %w", statusText(st), err)
	}
	o := bodycam.Outcome{Status: bodycam.OutcomeFail, Rewards: reward.Values}
	if v, ok := reward.Value(); ok {
		o.Reward = &v
	}
	if reward.Passed() {
		o.Status = bodycam.OutcomePass
	}
	return o, nil
}

// settle ends what still lives in the agent's group, detaches the sensors and takes stock of what they say.
func (s *run) settle(ctx context.Context) error {
	var errs []error
	if s.unguard != nil {
		s.unguard()
	}
	if s.full != "" {
		s.lacks = append(s.lacks, "it was ended early: "+s.full)
	}
	s.stopping.Wait()
	if err := s.box.Kill(ctx, sandbox.GroupAgent); err != nil {
		errs = append(errs, fmt.Errorf("ending the agent's processes: %w", err))
	}
	// The proxy first: its last flows must reach the joiner while the kernel's record can still name their process.
	if s.proxy != nil {
		errs = append(errs, s.stopProxy())
	}
	errs = append(errs, s.obs.stop())
	if j := s.joiner.Load(); j != nil {
		errs = append(errs, j.Close())
		if n := j.Stats().Orphan; n > 0 {
			s.note("%d event(s) of the egress proxy have no process", n)
		}
	}
	errs = append(errs, s.obs.unfold())
	s.obs.enter(bodycam.WindowNone)
	health := s.obs.health
	if s.proxy != nil {
		note, err := s.exchanges.save()
		errs = append(errs, err)
		if note != "" {
			s.lacks = append(s.lacks, note)
		}
		health = append(health, s.proxy.Health())
	}
	guarded, h := s.guards.account()
	health = append(health, h...)
	if s.guards != nil && s.guards.unclear > 0 {
		s.note("%d opens and executions were refused because their paths are longer than the kernel tells (4,095 bytes): a rule of mode deny may be about them", s.guards.unclear)
	}
	errs = append(errs, s.w.Sync(ctx), s.rows())
	s.blind(health)
	if n := s.obs.before; n > 0 {
		s.note("%d event(s) of the sandbox's own start, before the agent's program ran, were seen and are not in the record", n)
	}
	for _, h := range health {
		errs = append(errs, s.w.Coverage(h))
	}
	s.update(func(r *bodycam.Run) {
		r.Sensors, r.Complete, r.Windows = health, bodycam.Assess(health).Lacking(s.lacks...), s.obs.spans()
		r.Guard = guarded
	})
	return distinct(errs)
}

// rows ends the transcript, joins it with the record and writes both.
func (s *run) rows() error {
	if s.account == nil {
		return nil
	}
	rows, dropped, err := s.account.finish()
	if !s.started {
		rows = nil // nobody said anything
	}
	_, dropped2, err2 := s.errs.finish()
	if n := dropped + dropped2; n > 0 {
		s.note("%d bytes of the agent's output were over the limit and were dropped", n)
	}
	if err := errors.Join(err, err2, s.w.Rows(rows)); err != nil {
		return err
	}
	r, err := store.Open(s.w.Dir())
	if err != nil {
		return err
	}
	r.Identities = s.o.Identities
	join := link.New(rows) // it keeps what it needs of an event, however many there are
	agent, procs := bodycam.Proc{PID: int32(s.agentPID)}, 0
	err = r.Raw(func(e *bodycam.Event) error {
		if link.Needs(e) {
			if agent.Start == 0 && e.Proc.PID == agent.PID {
				agent = e.Proc
			}
			join.Observe(e)
		}
		if e.Type == bodycam.TypeFork && e.Child != e.Proc {
			procs++
		}
		return nil
	})
	if err != nil {
		return err
	}
	res := join.Result(agent)
	tools, linked := 0, map[int]bool{}
	for _, row := range rows {
		if row.Kind == bodycam.RowTool {
			tools++
		}
	}
	for _, l := range res.Links {
		if l.Row >= 0 {
			linked[l.Row] = true
		}
	}
	s.update(func(r *bodycam.Run) {
		r.Counts.Rows, r.Counts.ToolRows, r.Counts.Linked, r.Counts.Processes = len(rows), tools, len(linked), uint64(procs+1)
		for _, u := range res.Unlinked {
			r.Unlinked = append(r.Unlinked, bodycam.UnlinkedRef{Proc: u.Root, Exe: bodycam.Escape(u.Exe), Argv: bodycam.EscapeAll(u.Argv), Startup: u.Startup})
		}
		r.Copies = append(r.Copies, store.EventsFile, store.RowsFile, store.LinksFile)
	})
	if err := s.w.JSON(store.LinksFile, res.Links); err != nil {
		return err
	}
	return s.actions(r, rows, res)
}

// collect takes the artifacts, the harness's session files and what changed in the workspace out of the box.
func (s *run) collect(ctx context.Context) error {
	if err := s.hook(ctx, "before_collect"); err != nil {
		s.note("%v", err)
	}
	var errs []error
	after, err := s.manifest(ctx, "after")
	if err == nil {
		err = s.changes(ctx, s.manifestBefore, after)
	}
	errs = append(errs, err)
	for _, p := range s.plan.Artifacts {
		errs = append(errs, s.collectFrom(ctx, p, store.ArtifactsDir, false))
	}
	if s.inv != nil {
		for _, p := range s.inv.SessionGlobs {
			errs = append(errs, s.collectFrom(ctx, p, store.AgentDir, false))
		}
	}
	return errors.Join(errs...)
}

// collectFrom copies the files that match a pattern out of the box into a folder of the run: under their whole path
// inside, or (flat) under their path below the pattern's fixed part. What may not or can't be taken is noted.
func (s *run) collectFrom(ctx context.Context, pattern, into string, flat bool) error {
	prefix, rest := splitPattern(pattern)
	tmp, err := os.MkdirTemp(s.w.Dir(), ".collect-")
	if err != nil {
		return fmt.Errorf("collecting %s: %w", pattern, err)
	}
	defer os.RemoveAll(tmp)
	left, err := room(s.w.Dir())
	if err != nil {
		return fmt.Errorf("collecting %s: %w", pattern, err)
	}
	l := sandbox.CopyLimits{TotalBytes: max(1, min(1<<30, left)), FileBytes: 256 << 20, Files: 20_000}
	if rest != "" && rest != "**" {
		l.Want = func(p string) bool { return bodycam.Glob(rest, p) }
	}
	files, skipped, err := s.box.CopyOut(ctx, prefix, tmp, l)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing matches
	}
	if err != nil {
		return fmt.Errorf("collecting %s: %w", pattern, err)
	}
	var kept []bodycam.Artifact
	for _, f := range files {
		if f.Type != sandbox.TypeFile || f.SHA256 == "" {
			continue
		}
		box := path.Join(prefix, f.Path)
		from, to := f.Path, box
		if f.Path == "" {
			from = path.Base(prefix)
		}
		if flat {
			to = from
		}
		dest := filepath.Join(s.w.Dir(), into, to)
		if err := moveNew(filepath.Join(tmp, from), dest); err != nil {
			skipped = append(skipped, sandbox.Skip{Path: f.Path, Reason: err.Error()})
			continue
		}
		kept = append(kept, bodycam.Artifact{Path: bodycam.Escape(path.Join(into, to)), Box: bodycam.Escape(box), Size: f.Size, SHA256: f.SHA256})
	}
	s.update(func(r *bodycam.Run) { r.Artifacts = append(r.Artifacts, kept...) })
	s.skipped(prefix, skipped)
	return nil
}

// skipped notes files that were not taken, and why. An agent can make as many as it likes: the first hundred are named.
func (s *run) skipped(root string, list []sandbox.Skip) {
	if len(list) == 0 {
		return
	}
	const most = 100
	s.update(func(r *bodycam.Run) {
		for i, k := range list {
			if i == most {
				r.Skipped = append(r.Skipped, bodycam.Skipped{Box: bodycam.Escape(root), Why: fmt.Sprintf("and %d more", len(list)-most)})
				break
			}
			r.Skipped = append(r.Skipped, bodycam.Skipped{Box: bodycam.Escape(path.Join(root, k.Path)), Why: k.Reason})
		}
	})
}

// splitPattern divides a glob into its fixed beginning and the rest: /a/b/*.txt is /a/b and *.txt.
func splitPattern(p string) (prefix, rest string) {
	parts := strings.Split(path.Clean(p), "/")
	for i, part := range parts {
		if strings.ContainsAny(part, "*?[") {
			return "/" + strings.Join(parts[1:i], "/"), strings.Join(parts[i:], "/")
		}
	}
	return path.Clean(p), ""
}

// moveNew moves a file to a name that isn't taken. Both lie in the run directory.
func moveNew(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// manifest writes the digests of the workspace and the skills, and returns them.
func (s *run) manifest(ctx context.Context, when string) (map[string][]sandbox.FileInfo, error) {
	paths := append([]string(nil), s.plan.Judge.Workspace...)
	for _, k := range s.plan.Skills {
		paths = append(paths, k.Roots...)
	}
	m := map[string][]sandbox.FileInfo{}
	for _, p := range paths {
		files, skipped, err := s.box.Survey(ctx, p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("taking the manifest of %s: %w", p, err)
		}
		s.skipped(p, skipped)
		m[p] = files
	}
	name := "manifest-" + when + ".json"
	if err := s.w.JSON(name, m); err != nil {
		return nil, err
	}
	s.update(func(r *bodycam.Run) { r.Manifests = append(r.Manifests, name) })
	return m, nil
}

// analyse runs the analyses over the record.
func (s *run) analyse(ctx context.Context) error {
	findings := s.cross.findings()
	if s.o.Analyse == nil {
		return s.w.Findings(findings)
	}
	if err := s.w.Sync(ctx); err != nil {
		return err
	}
	r, err := store.Open(s.w.Dir())
	if err != nil {
		return err
	}
	r.Identities = s.o.Identities
	found, err := s.o.Analyse(ctx, r, s.plan)
	findings = append(findings, found...)
	if werr := s.w.Findings(findings); werr != nil {
		return errors.Join(err, werr)
	}
	s.update(func(r *bodycam.Run) { r.Copies = append(r.Copies, store.FindingsFile) })
	return err
}
