package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/a2a"
	"github.com/bodycam-dev/bodycam/internal/otlp"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/bodycam-dev/bodycam/internal/trust/audit"
	"github.com/bodycam-dev/bodycam/internal/trust/declare"
	"github.com/bodycam-dev/bodycam/internal/trust/deliver"
	"github.com/bodycam-dev/bodycam/internal/trust/judge"
	"github.com/bodycam-dev/bodycam/internal/trust/probe"
	"github.com/bodycam-dev/bodycam/internal/trust/report"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/bodycam-dev/bodycam/internal/trust/trace"
	"github.com/bodycam-dev/bodycam/ledger"
)

// probing is one run of `bodycam probe`.
type probing struct {
	f       *probeFlags
	s       *streams
	target  string
	command []string

	client *deliver.Client
	dial   func(ctx context.Context, network, addr string) (net.Conn, error) // into the sandbox; nil: the agent is elsewhere
	judge  trust.Judge
	source trace.Source
	mlflow *trace.MLflow
	otlp   net.Listener
	dir    string // of the audit while it goes on
	id     string
	audit  *audit.Audit
	around func(p *trust.Probe) (func(), error)
	// recorded are the probes whose windows the record of an interrupted run of the agent holds
	recorded map[string]bool
	reached  string   // digest of how the agent is reached and run
	skill    *skilled // the agent program that has the skill, where one is audited
	notes    []string
}

func (p *probing) do(ctx context.Context) error {
	if err := p.check(); err != nil {
		return err
	}
	var err error
	if p.judge, err = p.f.judge.choose(p.s); err != nil {
		return err
	}
	defer func() {
		if err := p.f.judge.done(); err != nil {
			fmt.Fprintf(p.s.err, "bodycam: keeping the judge's answers: %v\n", err)
		}
	}()
	if err := p.f.corrects(p.judge.Name()); err != nil {
		return err
	}
	stop, err := p.traces(ctx)
	if err != nil {
		return err
	}
	defer stop()
	p.where()
	if err := p.sameAgent(); err != nil {
		return err
	}
	switch {
	case p.f.skill != "":
		return p.inHarness(ctx)
	case len(p.command) > 0:
		return p.inSandbox(ctx)
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	if p.audit == nil {
		return nil // the probes were written
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	return p.conclude(ctx, nil)
}

func (p *probing) check() error {
	f := p.f
	ways := 0
	for _, set := range []bool{f.chat != "", len(f.client) > 0} {
		if set {
			ways++
		}
	}
	switch {
	case f.skill != "" && (p.target != "" || len(p.command) > 0 || ways > 0 || f.declaration != "" || f.traces != "none"):
		return withHint(usage("--skill takes no TARGET, command, --chat, --client, --declaration or --traces"), "bodycam probe --skill DIR --agent codex --model-url URL --model-key-env NAME")
	case f.skill != "":
	case p.target == "" && len(p.command) == 0 && ways == 0:
		return withHint(usage("there is no TARGET"), "bodycam probe https://agent.example, or bodycam probe --port 8080 -- ./my-agent")
	case p.target != "" && !isURL(p.target) && !exists(p.target):
		return withHint(usage("TARGET %s is no http or https URL, and no file or folder", p.target), "an agent's URL, an agent card, a YAML file, or a folder with a SKILL.md")
	case f.resume != "" && (!exists(filepath.Join(f.resume, audit.MetaFile)) || !strings.HasSuffix(filepath.Clean(f.resume), ".partial")):
		return withHint(usage("--resume %s: there is no unfinished audit in it", f.resume), "an audit that was interrupted is a folder that ends in .partial, in "+f.out)
	case (f.oauthURL != "" || f.oauthID != "" || f.oauthSe != "") && (f.oauthURL == "" || f.oauthID == "" || f.oauthSe == ""):
		return usage("--oauth-token-url, --oauth-client and --oauth-secret go together")
	case ways > 1:
		return usage("--chat and --client exclude each other")
	case ways == 1 && f.declaration == "" && p.target == "":
		return withHint(usage("an agent that is reached by --chat or --client needs --declaration"), "a YAML file with name, description and skills will do")
	case len(p.command) > 0 && f.service.port == 0:
		return usage("a command in the sandbox needs --port: where the agent listens on its loopback")
	case f.assess && f.traces != "mlflow":
		return usage("--assess needs --traces mlflow")
	}
	return nil
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// outputs makes sure before anybody is asked anything that what is to be written at the end can be.
func (f *probeFlags) outputs() error {
	if f.baseline != "" {
		if _, err := report.Read(f.baseline); err != nil {
			return usage("--baseline: %w", err)
		}
	}
	for flag, path := range map[string]string{"--sarif": f.sarif, "--junit": f.junit, "--contract": f.contract, "--write-probes": f.writeProbes} {
		if dir := filepath.Dir(path); path != "" && !exists(dir) {
			return usage("%s %s: there is no folder %s", flag, path, dir)
		}
	}
	return nil
}

// where names the audit's directory: that of an interrupted audit, or a new one.
func (p *probing) where() {
	p.id = store.NewID(time.Now())
	p.dir = filepath.Join(p.f.out, p.id+".partial")
	if p.f.resume != "" {
		p.dir = filepath.Clean(p.f.resume)
		p.id = strings.TrimSuffix(filepath.Base(p.dir), ".partial")
	}
}

// traces makes ready where traces come from.
func (p *probing) traces(ctx context.Context) (stop func(), err error) {
	stop = func() {}
	kind, addr, _ := strings.Cut(p.f.traces, "=")
	switch kind {
	case "none", "":
	case "otlp":
		if addr == "" {
			addr = "127.0.0.1:0"
		}
		if p.otlp, err = net.Listen("tcp", addr); err != nil {
			return stop, environment(fmt.Errorf("receiving traces: %w", err))
		}
		st := new(trace.Store)
		p.source = st
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- otlp.Serve(ctx, p.otlp, st.Sink) }()
		if len(p.command) == 0 && !p.f.quiet {
			fmt.Fprintf(p.s.err, "bodycam: receiving traces at http://%s (gRPC and HTTP)\n", p.otlp.Addr())
		}
		return func() {
			cancel()
			if err := <-done; err != nil {
				fmt.Fprintf(p.s.err, "bodycam: %v\n", err)
			}
		}, nil
	case "mlflow":
		if p.f.mlflow == "" || p.f.experiment == "" {
			return stop, usage("--traces mlflow needs --mlflow-url and --experiment")
		}
		p.mlflow = &trace.MLflow{URL: p.f.mlflow, Experiment: p.f.experiment}
		if err := p.mlflow.Check(ctx); err != nil {
			return stop, environment(err)
		}
		p.source = p.mlflow
	default:
		return stop, usage("--traces %s: want none, otlp, otlp=ADDRESS:PORT or mlflow", p.f.traces)
	}
	return stop, nil
}

func (p *probing) credentials() (deliver.Credentials, error) {
	f := p.f
	c := deliver.Credentials{Bearer: deliver.Secret(f.bearer), Cert: f.cert, Key: f.key, CA: f.ca}
	for _, k := range f.apiKeys {
		field, secret, ok := strings.Cut(k, "=")
		if !ok || field == "" {
			return c, usage("--api-key: want HEADER=env:NAME or HEADER=file:PATH")
		}
		if c.APIKey == nil {
			c.APIKey = map[string]deliver.Secret{}
		}
		c.APIKey[field] = deliver.Secret(secret)
	}
	if f.oauthURL != "" {
		c.OAuth = &deliver.OAuth{TokenURL: f.oauthURL, ClientID: f.oauthID, Secret: deliver.Secret(f.oauthSe), Scopes: f.oauthScopes}
	}
	return c, nil
}

// prepare reads the declaration, connects to the agent and makes the audit with its probes.
func (p *probing) prepare(ctx context.Context) error {
	f := p.f
	creds, err := p.credentials()
	if err != nil {
		return err
	}
	if p.client, err = p.connect(creds); err != nil {
		return err
	}
	d, err := p.declared(ctx)
	if err != nil {
		return err
	}
	if changing := probe.SideEffects(d.Declaration); len(changing) > 0 && !f.sideEffects && len(p.command) == 0 && p.skill == nil && f.writeProbes == "" {
		return withHint(usage("using %s could change things outside our sandbox", bodycam.Printable(strings.Join(changing, ", "))),
			"--allow-side-effects sends the probes nevertheless; with -- COMMAND the agent runs in the sandbox")
	}
	agent, err := p.agent(ctx, d)
	if err != nil {
		return err
	}
	c := audit.Config{Dir: p.dir, Tool: version(), Target: p.target, Declaration: d, Agent: agent, Judge: p.judge, PerScope: f.probes, Repeat: f.repeat, Seed: f.seed,
		Budget: f.budget, Rounds: f.rounds, Traces: p.source, TraceWait: f.traceWait, Kernel: p.around != nil, Recorded: p.recorded, Reached: p.reached, Hosts: f.service.run.allow, Progress: p.progress(),
		Deliver: deliver.Options{Concurrency: f.concurrency, Rate: f.rate, Timeout: f.timeout, Retries: f.retries, Around: p.around, Redact: p.redact}}
	if p.target == "" {
		c.Target = strings.Join(append([]string{f.chat}, f.client...), " ")
	}
	if c.Model, err = f.judge.generator(); err != nil {
		return err
	}
	if f.probesFile != "" {
		if c.Probes, err = readProbes(f.probesFile, d.Declaration); err != nil {
			return err
		}
	}
	if p.around != nil {
		c.Deliver.Concurrency = 1 // the estimate's, too: each probe has a window of its own
	}
	if p.skill != nil {
		c.Deliver.Retries = 0
		if c.Probes == nil { // what an agent program does with other tasks isn't the skill's
			c.Probes = probe.New(d.Declaration, f.seed).Make(trust.In, f.probes)
		}
	}
	a, err := audit.Open(ctx, c)
	if err != nil {
		if !exists(filepath.Join(p.dir, audit.MetaFile)) { // nothing to take up again
			err = errors.Join(err, os.RemoveAll(p.dir))
		}
		return environment(err)
	}
	if f.writeProbes != "" {
		return p.write(a)
	}
	p.audit = a
	return nil
}

// connect makes the client: its credentials go to the hosts of the target, encrypted where the target's URL is.
func (p *probing) connect(creds deliver.Credentials) (*deliver.Client, error) {
	var hosts []string
	for _, t := range []string{p.target, p.f.chat} {
		if v, err := url.Parse(t); err == nil && v.Host != "" {
			hosts = append(hosts, v.Hostname())
			creds.Encrypted = creds.Encrypted || v.Scheme == "https"
		}
	}
	hosts = append(hosts, p.f.credentialsTo...)
	if creds.Dial = p.dial; p.dial != nil {
		hosts, creds.Encrypted = nil, false // whatever is named, it is the agent in the sandbox
	}
	c, err := creds.New(hosts...)
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

// redact removes every credential that this audit knows of from what it keeps.
func (p *probing) redact(text string) string {
	text = p.client.Redact(text)
	if in := p.f.service.inside; in != nil {
		text = in.redact(text)
	}
	return text
}

func readProbes(path string, d *trust.Declaration) ([]trust.Probe, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usage("reading probes: %w", err)
	}
	defer file.Close()
	list, err := probe.Read(file, d)
	if err != nil {
		return nil, usage("%s: %w", path, err)
	}
	return list, nil
}

// write keeps the probes in a file of the user's, to be edited, and drops the audit.
func (p *probing) write(a *audit.Audit) error {
	err := writeTo(p.f.writeProbes, func(w io.Writer) error { return probe.Write(w, a.Probes()) })
	if err == nil {
		err = os.RemoveAll(p.dir)
	}
	if err != nil {
		return environment(err)
	}
	fmt.Fprintf(p.s.err, "bodycam: %d probes written to %s; send them with --probes-from\n", len(a.Probes()), p.f.writeProbes)
	return nil
}

func writeTo(path string, f func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := errors.Join(f(file), file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func (p *probing) declared(ctx context.Context) (*declare.Result, error) {
	f := p.f
	o := declare.Options{Target: p.target, Kind: f.kind, HTTP: p.client.Client, Variants: true, GRPC: p.client.GRPC()}
	if p.client.Knows() {
		o.Nobody = p.client.Nobody
	}
	if u, err := url.Parse(p.target); err == nil && u.Host != "" {
		o.From = p.client.From(ctx, u.Hostname())
	}
	if f.declaration != "" {
		o.Target = f.declaration
	}
	if f.parser != "" {
		o.Kind, o.Command = declare.KindExternal, strings.Fields(f.parser)
	}
	if f.cardKeys != "" {
		b, err := os.ReadFile(f.cardKeys)
		if err != nil {
			return nil, usage("reading the card's keys: %w", err)
		}
		if o.Keys, err = a2a.ParseKeys(b); err != nil {
			return nil, usage("%s: %w", f.cardKeys, err)
		}
	}
	d, err := declare.Read(ctx, o)
	if err != nil {
		return nil, environment(errors.New(p.client.Redact(err.Error())))
	}
	return d, nil
}

func (p *probing) agent(ctx context.Context, d *declare.Result) (deliver.Agent, error) {
	f := p.f
	card := d.Card
	switch {
	case p.skill != nil:
		return p.skill, nil
	case f.chat != "":
		return &deliver.Chat{HTTP: p.client.Client, URL: f.chat, Model: f.chatModel}, nil
	case len(f.client) > 0:
		return &deliver.Command{Argv: f.client, Env: os.Environ()}, nil
	case f.declaration != "" && p.target != "": // declared elsewhere, reached at its own card's endpoints
		c, err := a2a.Discover(ctx, p.client.Client, p.target, nil)
		if err != nil {
			return nil, environment(errors.New(p.client.Redact(err.Error())))
		}
		card = c.Card
	case card == nil:
		return nil, withHint(usage("the declaration doesn't say how the agent is reached"), "give --chat or --client")
	}
	a, err := deliver.NewA2A(p.client.Client, card)
	if err != nil {
		return nil, environment(err)
	}
	if p.client.Knows() && !p.client.Sends(a.Endpoint()) && !f.quiet {
		fmt.Fprintf(p.s.err, "bodycam: the agent's endpoint %s is not at the target's host, or not encrypted: your credentials are not sent to it (--credentials-to HOST)\n",
			bodycam.Printable(a.Endpoint()))
	}
	return a.Over(p.client.GRPC()), nil
}

// send tells what is coming, then sends.
func (p *probing) send(ctx context.Context) error {
	e := p.audit.Estimate()
	if !p.f.quiet && e.Probes > 0 {
		cost := ""
		if p.f.costEach > 0 {
			cost = fmt.Sprintf(", %.2f at most", p.f.costEach*float64(e.Messages))
		}
		fmt.Fprintf(p.s.err, "bodycam: %d probes to send, %d messages at most%s, %s if every one took the whole time-out; %d replies to judge by %s\n",
			e.Probes, e.Messages, cost, e.Longest.Round(time.Second), e.Judged, p.judge.Name())
	}
	err := p.audit.Send(ctx)
	if err != nil {
		return withHint(environment(err), "go on with --resume "+p.dir)
	}
	return nil
}

// phases are an audit's phases in words.
var phases = map[string]string{"probes": "making probes", "sending": "sending probes", "traces": "waiting for traces", "judging": "judging replies"}

func (p *probing) progress() func(audit.Progress) {
	last, width := "", 0
	return func(u audit.Progress) {
		phase := u.Phase
		if text := phases[phase]; text != "" {
			phase = text
		}
		switch {
		case p.f.quiet:
		case p.s.progress:
			bar := ""
			if u.Total > 0 {
				n := 30 * u.Done / u.Total
				bar = "[" + strings.Repeat("=", n) + strings.Repeat(" ", 30-n) + "]"
			}
			line := fmt.Sprintf("%-18s %s %d of %d %s", phase, bar, u.Done, u.Total, u.Message)
			fmt.Fprintf(p.s.err, "\r%-*s", width, line)
			width = max(width, len(line))
			if u.Done == u.Total {
				fmt.Fprintf(p.s.err, "\r%*s\r", width, "")
			}
		case u.Phase != last:
			fmt.Fprintf(p.s.err, "bodycam: %s\n", phase)
		}
		last = u.Phase
	}
}

// conclude judges, scores, reports, seals and decides the exit status.
func (p *probing) conclude(ctx context.Context, effects []trust.Effects) error {
	if effects != nil {
		if err := p.audit.SetEffects(effects); err != nil {
			return environment(err)
		}
	}
	if err := p.audit.Judge(ctx, 2); err != nil {
		return withHint(environment(err), "go on with --resume "+p.dir)
	}
	m := p.audit.Meta()
	m.Notes = append(m.Notes, p.notes...)
	res, err := p.audit.Finish(p.f.rules)
	if err != nil {
		return environment(err)
	}
	r := report.New(m, p.audit.Evidence(), res)
	if err := p.f.compare(r); err != nil {
		return err
	}
	if err := writeTo(filepath.Join(p.dir, audit.ReportFile), r.JSON); err != nil {
		return environment(err)
	}
	final, err := p.seal(r)
	if err != nil {
		return environment(err)
	}
	if p.f.assess {
		p.writeBack(ctx, r)
	}
	err = p.f.show(p.s, r, p.audit.Evidence(), final)
	if p.otlp != nil && !p.f.quiet && !slices.ContainsFunc(r.Probes, func(v score.ProbeResult) bool { return len(v.Traces) > 0 }) {
		fmt.Fprintf(p.s.err, "bodycam: no trace came: does the agent export to http://%s (OTEL_EXPORTER_OTLP_ENDPOINT)?\n", p.otlp.Addr())
	}
	return err
}

// seal moves the audit into a run directory of its own, whose ledger holds every file of it.
func (p *probing) seal(r *report.Report) (string, error) {
	final := strings.TrimSuffix(p.dir, ".partial")
	if p.f.noSeal {
		if final == p.dir {
			return final, nil
		}
		return final, os.Rename(p.dir, final)
	}
	if final == p.dir {
		return final, fmt.Errorf("the directory %s of an unfinished audit should end in .partial", p.dir)
	}
	ring, created, err := openRing()
	if err != nil {
		return "", err
	}
	if created && !p.f.quiet {
		fmt.Fprintf(p.s.err, "bodycam: made keys for this machine in %s\n", ring.Dir)
	}
	info := bodycam.Run{ID: p.id, Tool: build(), Started: r.Started, Kind: "trust audit", Task: bodycam.TaskRef{Name: "trust audit of " + bodycam.Escape(r.Agent)},
		Agent: bodycam.AgentRef{Harness: "probe", Digest: r.Declaration.SHA256}, Outcome: bodycam.Outcome{Status: bodycam.OutcomeNone}}
	w, err := store.Create(final, info, &store.Sealing{Signers: ring.Signers, Recipients: ring.Recipients, Recorder: recorderName()})
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return "", errors.Join(fmt.Errorf("sealing the audit: %w", err), w.Close())
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(p.dir, e.Name()), filepath.Join(final, e.Name())); err != nil {
			return "", errors.Join(fmt.Errorf("sealing the audit: %w", err), w.Close())
		}
	}
	err = errors.Join(w.Findings(r.Findings), w.Update(func(i *bodycam.Run) {
		i.Ended = r.Ended
		i.Complete = bodycam.Completeness{Complete: true}
		i.Notes = append(i.Notes, "gate: "+r.Gate)
	}), w.Close(), os.Remove(p.dir))
	if err != nil {
		return "", fmt.Errorf("sealing the audit: %w", err)
	}
	return final, nil
}

// writeBack writes verdicts to MLflow. That it fails is said, and changes no verdict.
func (p *probing) writeBack(ctx context.Context, r *report.Report) {
	n := 0
	for i := range r.Probes {
		v := &r.Probes[i]
		for _, t := range v.Traces {
			if err := p.mlflow.Assess(ctx, t, "bodycam.trust", v.Verdict, v.Reason); err != nil {
				fmt.Fprintf(p.s.err, "bodycam: %v\n", err)
				return
			}
			n++
		}
	}
	if !p.f.quiet {
		fmt.Fprintf(p.s.err, "bodycam: %d assessments written to MLflow\n", n)
	}
}

// again scores a finished audit under other rules.
func (f *probeFlags) again(ctx context.Context, s *streams) error {
	m, e, err := audit.Load(f.rescore)
	if err != nil {
		return usage("%w", err)
	}
	seal, err := f.sealed(ctx)
	if err != nil {
		return err
	}
	if seal != "" {
		m.Notes = append(m.Notes, seal)
		if !f.quiet {
			fmt.Fprintf(s.err, "bodycam: %s\n", bodycam.Printable(seal))
		}
	}
	if err := f.corrects(m.Judge); err != nil {
		return err
	}
	if f.judge.rubricFile != "" {
		if err := f.rerate(m, e); err != nil {
			return err
		}
	}
	r := report.New(m, e, score.Score(e, f.rules))
	if err := f.compare(r); err != nil {
		return err
	}
	return f.show(s, r, e, f.rescore)
}

// sealed verifies the audit that is to be scored again, as `bodycam verify` does. doubt says what that leaves open.
func (f *probeFlags) sealed(ctx context.Context) (doubt string, err error) {
	_, err = os.Lstat(filepath.Join(f.rescore, store.InfoFile))
	if errors.Is(err, fs.ErrNotExist) && !isRunOrBundle(f.rescore) {
		return f.rescore + " was never sealed (--no-seal), or its ledger was removed: nothing shows that it is as it was", nil
	}
	v, err := new(verifyFlags).verify(ctx, f.rescore)
	if err != nil {
		return "", err
	}
	switch {
	case v.Verdict == ledger.Verified:
		return "", nil
	case v.Verdict != ledger.Tampered:
		why := "the verdict of bodycam verify is " + string(v.Verdict)
		if v.Copies != nil && v.Copies.Why != "" {
			why = v.Copies.Why
		}
		return "it isn't known whether " + f.rescore + " is as it was sealed: " + why, nil
	case f.tampered:
		return f.rescore + " was tampered with: this score rests on what somebody has changed", nil
	}
	return "", &statusError{status: ExitGate, err: fmt.Errorf("%s was tampered with: it isn't scored", f.rescore),
		hint: "bodycam verify " + f.rescore + " says what was changed; --tampered scores it nevertheless"}
}

// rerate gives the replies the scores of another rubric: the judge's classes stay.
func (f *probeFlags) rerate(m *audit.Meta, e *score.Evidence) error {
	r, err := f.judge.rubric()
	if err != nil {
		return err
	}
	for i := range e.Probes {
		p := &e.Probes[i]
		o, ok := e.Opinions[p.ID]
		if !ok || o.Failed != "" {
			continue
		}
		o.Score = nil
		switch v, err := r.Score(string(p.Scope), judge.ReplyVerdict{Class: string(o.Class)}); {
		case err != nil:
			return usage("%w", err)
		case v.Known:
			o.Score = &v.Value
		}
		e.Opinions[p.ID] = o
	}
	name, _, _ := strings.Cut(m.Judge, ", rubric ")
	m.Judge = name + ", rubric " + r.Version
	return nil
}

func (f *probeFlags) compare(r *report.Report) error {
	if f.baseline == "" {
		return nil
	}
	old, err := report.Read(f.baseline)
	if err != nil {
		return usage("%w", err)
	}
	r.Drift = r.Compare(old)
	return nil
}

// show prints the report, writes its other forms and gives the exit status.
func (f *probeFlags) show(s *streams, r *report.Report, e *score.Evidence, dir string) error {
	var errs []error
	if f.sarif != "" {
		errs = append(errs, writeTo(f.sarif, r.SARIF))
	}
	if f.junit != "" {
		errs = append(errs, writeTo(f.junit, r.JUnit))
	}
	if f.contract != "" {
		c := r.Contract(f.holds, len(e.Effects) > 0, e.Effects)
		errs = append(errs, writeTo(f.contract, c.JSON))
	}
	if f.json {
		errs = append(errs, r.JSON(s.out))
	} else {
		errs = append(errs, r.Text(s.out, f.verbose))
		f.disagreement(s, e)
		fmt.Fprintf(s.out, "\naudit: %s\n", dir)
	}
	if err := errors.Join(errs...); err != nil {
		return environment(err)
	}
	switch r.Gate {
	case score.Pass:
		return nil
	case score.Fail:
		return &statusError{status: ExitGate}
	}
	return &statusError{status: ExitInconclusive}
}

// disagreement shows on what the judges of a panel disagreed.
func (f *probeFlags) disagreement(s *streams, e *score.Evidence) {
	of, split := 0, []string{}
	add := func(votes []trust.Vote, nothing, what string) {
		if len(votes) == 0 {
			return
		}
		of++
		if trust.Agree(votes, nothing) {
			return
		}
		for _, v := range votes {
			what += fmt.Sprintf("\n      %s: %s", v.Judge, v.Said)
		}
		split = append(split, what)
	}
	for i := range e.Probes {
		p := &e.Probes[i]
		add(e.Opinions[p.ID].Votes, string(trust.Abstains), "reply to "+p.ID)
	}
	for _, name := range sortedKeys(e.Tools) {
		add(e.Tools[name].Votes, "", "tool "+name)
	}
	if of == 0 {
		return
	}
	fmt.Fprintf(s.out, "\nthe panel's judges disagreed on %d of %d replies and tools", len(split), of)
	if len(split) > 0 && !f.verbose {
		fmt.Fprint(s.out, " (--verbose lists them)")
	}
	fmt.Fprintln(s.out)
	for _, w := range split {
		if f.verbose {
			for line := range strings.Lines(w) {
				fmt.Fprintf(s.out, "  %s\n", bodycam.Printable(strings.TrimSuffix(line, "\n")))
			}
		}
	}
}
