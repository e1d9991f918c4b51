package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/model"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/spf13/cobra"
)

type runFlags struct {
	agent, model, kind, out           string
	repeat                            int
	analyses, allow, forwards, params []string
	env, agentEnv, buildArgs, sensors []string
	network, seccomp, user, workdir   string
	modelURL, modelKeyEnv, script     string
	workspace                         string
	timeout                           time.Duration
	oracle, noTests, strictEnv        bool
	json, follow, quiet, requirePass  bool
	sealed                            bool
	alerts                            alertFlags
	taskEnv                           []string
	failOn                            string
	work                              delegateFlags
}

// oracle is the agent that plays the task's reference solution.
const oracle = "oracle"

func runCommand(s *streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run TASK [flags] | run [flags] -- COMMAND [ARG…]",
		Short: "Run an agent on a task and record what it does",
		Long: `Start an isolated environment for the task, run the agent in it, record from the kernel every command, file and host
that it and every process it starts touch, run the task's tests, collect artifacts, run the kind's analyses, and leave
a run directory.

TASK is a directory in Harbor's form (terminal-bench, SkillsBench) or one with a task.yaml, or such a file. With "--"
the command itself is the agent, in an empty workspace.

The agent's model is reached through the recorder: --model-url names the endpoint, --model-key-env the variable that
holds its credential. Neither the variable nor anything else of this environment gets into the sandbox. --model-script
plays a scripted model instead (see "bodycam model --help").

A reader of the output that goes away (run --follow … | head) doesn't end the recording, nor change the exit status.` +
			exits("0  the run was carried out, the record is complete, no finding reaches --fail-on",
				"1  a finding reaches --fail-on, or --require-pass and the tests did not pass",
				"2  usage, task or kind is wrong", "3  the environment failed, or the run was interrupted (what was recorded is kept)", "4  nothing found, but the record is incomplete"),
		Example: `  bodycam run ./task --agent codex --model gpt-5 --model-url https://api.openai.com/v1 --model-key-env OPENAI_API_KEY
  bodycam run ./task --repeat 3 --json
  bodycam run ./task --agent builtin --model-script turns.yaml
  bodycam run ./task --agent oracle --require-pass      check the task itself
  bodycam run --kind untrusted -- ./install.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.outlive()
			dash := cmd.ArgsLenAtDash()
			var command []string
			task := ""
			switch {
			case dash == 0 && len(args) > 0:
				command = args
			case dash < 0 && len(args) == 1:
				task = args[0]
			case dash == 1 && len(args) > 1:
				task, command = args[0], args[1:]
			default:
				return withHint(usage("want one TASK, or a command after --"), "bodycam run ./task, or bodycam run -- make test")
			}
			return f.run(cmd.Context(), s, task, command)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.agent, "agent", "", "harness: "+strings.Join(harness.Names(), ", ")+"; or oracle, the task's reference solution (default: the kind's, codex)")
	fl.StringVar(&f.model, "model", "", "model name")
	fl.StringVar(&f.kind, "kind", "", "execution kind: a built-in one or a file (default: the task's)")
	fl.StringVarP(&f.out, "out", "o", "runs", "folder for run directories")
	fl.IntVar(&f.repeat, "repeat", 1, "how many times to run")
	fl.StringArrayVar(&f.analyses, "analysis", nil, "run this analysis and none of the kind's others (repeatable)")
	fl.StringVar(&f.network, "network", "", "none, record, allow or sink (default: the kind's)")
	fl.StringArrayVar(&f.allow, "allow", nil, "host that the network may reach, beside the kind's (repeatable)")
	fl.StringArrayVar(&f.forwards, "forward", nil, "NAME:PORT=ADDRESS:PORT: a port of this machine that the sandbox reaches by a name (repeatable)")
	fl.StringArrayVar(&f.params, "param", nil, "KEY=VALUE: a parameter of the harness; VALUE is JSON or text (repeatable)")
	fl.StringArrayVar(&f.env, "env", nil, "KEY=VALUE: an environment variable of everything in the sandbox (repeatable)")
	fl.StringArrayVar(&f.agentEnv, "agent-env", nil, "KEY=VALUE: an environment variable of the agent alone (repeatable)")
	fl.StringArrayVar(&f.buildArgs, "build-arg", nil, "KEY=VALUE: an ARG of the task's Dockerfile (repeatable)")
	fl.StringSliceVar(&f.sensors, "sensor", nil, "auto, bpf, ptrace or cross-check")
	fl.StringVar(&f.seccomp, "seccomp", "", "strict or observe")
	fl.StringVar(&f.user, "user", "", "user in the sandbox")
	fl.StringVar(&f.workdir, "workdir", "", "working directory in the sandbox")
	fl.StringVar(&f.workspace, "workspace", "", "with --: directory whose content is copied to the working directory")
	fl.StringVar(&f.modelURL, "model-url", "", "model endpoint as this machine reaches it, with its version part: https://host/v1")
	fl.StringVar(&f.modelKeyEnv, "model-key-env", "", "variable of this environment that holds the endpoint's key; it never enters the sandbox")
	fl.StringVar(&f.script, "model-script", "", "play a scripted model from this file instead of an endpoint; it names the model too, where nothing else does")
	fl.DurationVar(&f.timeout, "timeout", 0, "the longest that the agent may run")
	fl.BoolVar(&f.oracle, "oracle", false, "the same as --agent oracle")
	fl.BoolVar(&f.noTests, "no-tests", false, "don't run the task's tests")
	fl.BoolVar(&f.strictEnv, "strict-env", false, "refuse a task whose environment can't be honoured as written")
	fl.BoolVar(&f.json, "json", false, "print one JSON object a run")
	fl.BoolVarP(&f.follow, "follow", "f", false, "print every event as it happens (JSON lines with --json)")
	fl.BoolVar(&f.alerts.show, "alerts", false, "print alerts of the security rules as calls happen, one JSON object a line (with --follow they come along)")
	fl.StringVar(&f.alerts.webhook, "alert-webhook", "", "URL that each alert is posted to as JSON")
	fl.StringVar(&f.alerts.stopOn, "stop-on", "", "stop the run at the first alert of this severity: info, low, medium, high, critical (rules of mode stop do so anyway)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	fl.BoolVar(&f.sealed, "sealed", false, "keep events, transcript and files in the encrypted ledger alone; run.json (plan, instruction, times, counts) stays in the clear")
	fl.StringArrayVar(&f.taskEnv, "task-env", nil, "variable of this environment that the task's own ${VAR} may use (repeatable)")
	fl.BoolVar(&f.requirePass, "require-pass", false, "exit with 1 unless the tests pass")
	complete(cmd, "network", "none", "record", "allow", "sink")
	complete(cmd, "agent", append(harness.Names(), oracle)...)
	complete(cmd, "seccomp", "strict", "observe")
	f.work.add(fl)
	fl.StringVar(&f.failOn, "fail-on", "high", "severity of findings from which the exit status is 1: info, low, medium, high, critical, never")
	complete(cmd, "fail-on", "info", "low", "medium", "high", "critical", "never")
	return cmd
}

// complete has a shell offer the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the command has no such flag, or it was completed already
	}
}

func (f *runFlags) run(ctx context.Context, s *streams, taskArg string, command []string) error {
	if f.repeat < 1 {
		return usage("--repeat %d: want at least 1", f.repeat)
	}
	if err := f.valid(); err != nil {
		return err
	}
	if f.agent == oracle {
		f.oracle = true
	} else if f.oracle {
		if f.agent != "" {
			return usage("--oracle and --agent %s exclude each other", f.agent)
		}
		f.agent = oracle
	}
	gate, err := parseGate(f.failOn)
	if err != nil {
		return err
	}
	plan, err := f.resolve(taskArg, command)
	if err != nil {
		return err
	}
	if strict := plan.Strict(); f.strictEnv && len(strict) > 0 {
		return strictError(strict)
	}
	if err := checkAnalyses(plan); err != nil {
		return err
	}
	var h harness.Harness
	if !f.oracle {
		if h, err = harness.Get(plan.Agent.Harness); err != nil {
			return usage("%w", err)
		}
	}
	endpoint, stop, err := f.endpoint(ctx, s)
	if err != nil {
		return err
	}
	defer stop()
	worst := ExitOK
	for i := range f.repeat {
		status, err := f.once(ctx, s, plan, h, endpoint, gate, i)
		if err != nil {
			return err
		}
		worst = worse(worst, status)
		if ctx.Err() != nil {
			return environment(errors.New("interrupted"))
		}
	}
	if worst != ExitOK {
		return &statusError{status: worst}
	}
	return nil
}

// worse orders exit statuses: a failed gate outranks a missing verdict, a failed environment both.
func worse(a, b int) int {
	rank := map[int]int{ExitOK: 0, ExitInconclusive: 1, ExitGate: 2, ExitEnvironment: 3, ExitUsage: 4}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// once carries out one run and says what came of it.
func (f *runFlags) once(ctx context.Context, s *streams, plan *kind.Plan, h harness.Harness, m session.Model, gate gate, i int) (int, error) {
	id := store.NewID(time.Now())
	ring, created, err := openRing()
	if err != nil {
		return ExitEnvironment, err
	}
	if created && !f.quiet {
		fmt.Fprintf(s.err, "bodycam: made keys for this machine in %s\n", ring.Dir)
	}
	host, err := (&ringFlags{}).hostLog()
	if err != nil {
		return ExitEnvironment, err
	}
	decoys := plantDecoys(plan)
	out := &lockedWriter{w: s.out}
	judge, err := newLive(&f.alerts, plan, id, decoys, out, f.follow && !f.json, f.alerts.show || f.follow)
	if err != nil {
		return ExitUsage, err
	}
	o := session.Options{
		HostLog:    host,
		Sealing:    &store.Sealing{Signers: ring.Signers, Recipients: ring.Recipients, Recorder: recorderName(), Only: f.sealed},
		Identities: ring.Identities,
		Plan:       plan, Harness: h, ID: id, Dir: filepath.Join(f.out, id), Model: m, Oracle: f.oracle,
		Tool: build(), Analyse: analyse, Decoys: decoys,
	}
	ended, err := f.work.apply(s, filepath.Join(filepath.Dir(host.Dir), "receipts"), &o)
	if err != nil {
		return ExitUsage, err
	}
	defer ended()
	bar := newProgress(s, f.quiet || f.json && !s.progress, i, f.repeat)
	o.Progress = bar.update
	if f.follow {
		o.Event = follower(out, f.json)
	}
	if judge != nil {
		judge.attach(&o)
	}
	if err := o.Prepare(ctx); err != nil {
		if errors.Is(err, session.ErrEnvironment) {
			return ExitEnvironment, environment(err)
		}
		return ExitUsage, usage("%w", err)
	}
	anchored, err := besideRun(ctx, s, plan, o.Dir, o.Sealing)
	if err != nil {
		return ExitUsage, err
	}
	r, err := session.Run(ctx, o)
	anchored()
	bar.done()
	if judge != nil {
		if jerr := judge.close(); jerr != nil {
			fmt.Fprintf(s.err, "bodycam: %v\n", jerr)
		}
	}
	if r == nil {
		return ExitEnvironment, withHint(environment(err), hint(err))
	}
	status := statusOf(r, err, gate, f.requirePass)
	sum, serr := summarise(r)
	if serr != nil {
		return ExitEnvironment, environment(errors.Join(err, serr))
	}
	if f.json {
		line, jerr := json.Marshal(sum)
		if jerr != nil {
			return ExitEnvironment, environment(jerr)
		}
		fmt.Fprintf(s.out, "%s\n", line)
	} else if !f.follow {
		if terr := sum.Text(s.out, s.colour, false); terr != nil {
			return ExitEnvironment, environment(terr)
		}
		fmt.Fprintf(s.out, "\nrun directory: %s\n", r.Dir)
		if at := output(r, plan); at != "" {
			fmt.Fprintf(s.out, "output:        %s\n", at)
		}
	}
	if err != nil {
		fmt.Fprintf(s.err, "bodycam: %v\n", err)
		if h := hint(err); h != "" {
			fmt.Fprintf(s.err, "  hint: %s\n", h)
		}
	}
	switch status {
	case ExitGate:
		f.sayWhy(s, r, gate)
	case ExitInconclusive:
		fmt.Fprintf(s.err, "bodycam: status %d: nothing found is no verdict, the record is incomplete: %s\n", status, bodycam.Printable(strings.Join(sum.Run.Complete.Reasons, "; ")))
	}
	return status, nil
}

// sayWhy says which gate a run failed at.
func (f *runFlags) sayWhy(s *streams, r *store.Run, g gate) {
	if findings, err := r.Findings(); err == nil && g.fails(findings) {
		fmt.Fprintf(s.err, "bodycam: status %d: there are findings of severity %s or above (--fail-on %s)\n", ExitGate, g.min, g.min)
		return
	}
	fmt.Fprintf(s.err, "bodycam: status %d: the tests did not pass (--require-pass)\n", ExitGate)
}

// output is where a command's standard output is kept, "" where it wrote none, or only the ledger has it.
func output(r *store.Run, plan *kind.Plan) string {
	name := filepath.Join(store.AgentDir, "stdout")
	st, err := os.Stat(r.Path(name))
	if plan.Agent.Harness != "command" || err != nil || st.Size() == 0 {
		return ""
	}
	return r.Path(name)
}

// hint says what to do about a failed run, "" where the error says it all.
func hint(err error) string {
	var h interface{ Hint() string }
	var p *fs.PathError
	switch {
	case errors.As(err, &h):
		return h.Hint()
	case errors.Is(err, syscall.ENOSPC) && errors.As(err, &p):
		return "make room on the disk of " + filepath.Dir(p.Path) + ", or choose another folder with --out; what was recorded until then is kept"
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return "choose a folder that you may write to with --out"
	}
	return ""
}

// statusOf is the exit status for a finished run.
func statusOf(r *store.Run, err error, g gate, requirePass bool) int {
	findings, ferr := r.Findings()
	switch {
	case g.fails(findings):
		return ExitGate // one call suffices, even over an incomplete record
	case err != nil || ferr != nil:
		return ExitEnvironment
	case requirePass && r.Info.Outcome.Status != bodycam.OutcomePass:
		return ExitGate
	case !r.Info.Complete.Complete || gaveUp(findings) != nil:
		return ExitInconclusive
	}
	return ExitOK
}

// gate is the severity from which findings fail a command.
type gate struct {
	min   bodycam.Severity
	never bool
}

func parseGate(s string) (gate, error) {
	if s == "never" {
		return gate{never: true}, nil
	}
	v, err := bodycam.ParseSeverity(s)
	if err != nil {
		return gate{}, usage("--fail-on: %w, or never", err)
	}
	return gate{min: v}, nil
}

func (g gate) fails(fs []bodycam.Finding) bool {
	for _, f := range fs {
		if !g.never && f.Severity >= g.min && f.Suppressed == "" && f.Verdict != "pass" {
			return true
		}
	}
	return false
}

func (f *runFlags) resolve(taskArg string, command []string) (*kind.Plan, error) {
	var task *kind.Task
	var err error
	if taskArg != "" {
		task, err = kind.LoadTask(taskArg)
	} else {
		task, err = kind.CommandTask(command, f.workspace)
	}
	if err != nil {
		return nil, usage("%w", err)
	}
	name := f.kind
	if name == "" {
		name = task.Kind
	}
	if name == "" && task.Form == kind.FormHarbor {
		name = "harbor"
	}
	if name == "" {
		name = "default"
	}
	k, err := kind.Load(name)
	if err != nil {
		return nil, usage("%w", err)
	}
	if err := checkNames(k); err != nil {
		return nil, usage("%w", err)
	}
	o, err := f.overrides(taskArg, command)
	if err != nil {
		return nil, err
	}
	if f.script != "" && cmp.Or(o.Model, k.Agent.Model) == "" {
		script, err := model.Load(f.script)
		if err != nil {
			return nil, usage("%w", err)
		}
		o.Model = script.Model
	}
	plan, err := kind.Resolve(k, task, o)
	if err != nil {
		return nil, usage("%w", err)
	}
	return plan, nil
}

// valid refuses values that no plan can have, before anything is made.
func (f *runFlags) valid() error {
	one := func(flag, value string, of ...string) error {
		if value == "" || slices.Contains(of, value) {
			return nil
		}
		return usage("%s %s: want %s", flag, value, strings.Join(of, ", "))
	}
	if err := one("--network", f.network, "none", "record", "allow", "sink"); err != nil {
		return err
	}
	if err := one("--seccomp", f.seccomp, "strict", "observe"); err != nil {
		return err
	}
	for _, name := range f.sensors {
		if err := one("--sensor", name, "auto", "bpf", "ptrace", "cross-check"); err != nil {
			return err
		}
	}
	if f.repeat > 1 && f.work.by != "" {
		return usage("--delegated-by and --repeat exclude each other: a receipt serves once")
	}
	if f.timeout < 0 {
		return usage("--timeout %s: want a positive time", f.timeout)
	}
	return nil
}

func (f *runFlags) overrides(taskArg string, command []string) (kind.Overrides, error) {
	o := kind.Overrides{
		Harness: f.agent, Model: f.model, Network: f.network, Allow: f.allow, Seccomp: f.seccomp, Sensors: f.sensors,
		Analyses: f.analyses, User: f.user, Workdir: f.workdir, NoTests: f.noTests, Oracle: f.oracle, LookupEnv: os.LookupEnv, TaskEnv: f.taskEnv,
	}
	if taskArg != "" {
		o.Command = command
	}
	o.Timeouts.Agent = kind.Duration(f.timeout)
	var err error
	if o.Env, err = pairs("--env", f.env); err != nil {
		return o, err
	}
	if o.AgentEnv, err = pairs("--agent-env", f.agentEnv); err != nil {
		return o, err
	}
	if o.BuildArgs, err = pairs("--build-arg", f.buildArgs); err != nil {
		return o, err
	}
	params, err := pairs("--param", f.params)
	if err != nil {
		return o, err
	}
	for key, v := range params {
		if o.Parameters == nil {
			o.Parameters = map[string]json.RawMessage{}
		}
		raw := json.RawMessage(v)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(v) // a string always has a JSON form
		}
		o.Parameters[key] = raw
	}
	for _, text := range f.forwards {
		fw, err := parseForward(text)
		if err != nil {
			return o, err
		}
		o.Forward = append(o.Forward, fw)
	}
	to, err := f.work.forwards()
	if err != nil {
		return o, err
	}
	o.Forward = append(o.Forward, to...)
	return o, nil
}

func parseForward(s string) (kind.Forward, error) {
	bad := usage("--forward %s: want NAME:PORT=ADDRESS:PORT, as api.example:80=127.0.0.1:8080", s)
	from, to, ok := strings.Cut(s, "=")
	if !ok {
		return kind.Forward{}, bad
	}
	host, port, err := net.SplitHostPort(from)
	if err != nil {
		return kind.Forward{}, bad
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return kind.Forward{}, bad
	}
	if _, _, err := net.SplitHostPort(to); err != nil {
		return kind.Forward{}, bad
	}
	return kind.Forward{Host: host, Port: int(n), To: to}, nil
}

func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, p := range list {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage("%s %s: want KEY=VALUE", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// endpoint finds the model: a scripted one that is started here, or a real one.
func (f *runFlags) endpoint(ctx context.Context, s *streams) (session.Model, func(), error) {
	none := func() {}
	if f.script != "" && f.modelURL != "" {
		return session.Model{}, none, usage("--model-script and --model-url exclude each other")
	}
	if f.script != "" {
		script, err := model.Load(f.script)
		if err != nil {
			return session.Model{}, none, usage("%w", err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return session.Model{}, none, environment(fmt.Errorf("starting the scripted model: %w", err))
		}
		ctx, cancel := context.WithCancel(ctx)
		server := model.New(script, model.Options{})
		done := make(chan error, 1)
		go func() { done <- server.Serve(ctx, l) }()
		return session.Model{URL: "http://" + l.Addr().String() + "/v1"}, func() {
			cancel()
			if err := <-done; err != nil {
				fmt.Fprintf(s.err, "bodycam: %v\n", err)
			}
			for _, m := range server.Misfits() {
				fmt.Fprintf(s.err, "bodycam: the model's script had no answer: %s\n", bodycam.Printable(m.Error))
			}
		}, nil
	}
	if f.modelKeyEnv != "" {
		if f.modelURL == "" {
			return session.Model{}, none, usage("--model-key-env needs --model-url")
		}
		if os.Getenv(f.modelKeyEnv) == "" {
			return session.Model{}, none, usage("--model-key-env %s: that variable is not set", f.modelKeyEnv)
		}
		return session.Model{URL: f.modelURL, Key: func() string { return os.Getenv(f.modelKeyEnv) }}, none, nil
	}
	return session.Model{URL: f.modelURL}, none, nil
}

func strictError(us []kind.Unhonoured) error {
	var b strings.Builder
	fmt.Fprintf(&b, "--strict-env: the task's environment can't be honoured as written:")
	for _, u := range us {
		fmt.Fprintf(&b, "\n  %s:%d: %s: %s", u.File, u.Line, u.Instruction, u.Why)
	}
	return usage("%s", b.String())
}

// follower prints events as they happen.
func follower(w io.Writer, asJSON bool) func(*bodycam.Event) {
	var procs bodycam.Processes
	var buf []byte
	return func(e *bodycam.Event) {
		shown := *e
		procs.Observe(&shown)
		if asJSON {
			buf = append(shown.AppendJSON(buf[:0]), '\n')
		} else {
			buf = append(eventLine(buf[:0], &shown), '\n')
		}
		_, _ = w.Write(buf) // no failure to print ends a recording
	}
}
