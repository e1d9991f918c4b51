package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"github.com/spf13/pflag"
)

// serviceFlags say how an agent is run in the sandbox.
type serviceFlags struct {
	mcp          bool
	port         uint16
	ready, path  string
	wait         time.Duration
	idle, settle time.Duration
	run          runFlags
	secrets      []string
	inside       *insideSecrets // read by start
}

func (f *serviceFlags) add(fl *pflag.FlagSet) {
	fl.BoolVar(&f.mcp, "mcp", false, "TARGET or the command is a tool server (Model Context Protocol)")
	fl.Uint16Var(&f.port, "port", 0, "with --: port on which the agent or tool server listens on its loopback")
	fl.StringVar(&f.path, "mcp-path", "/mcp", "with --mcp and --port: where the server's streamable HTTP is")
	fl.StringVar(&f.ready, "ready", "", "with --: path that answers once the agent is ready (default: it accepts connections)")
	fl.DurationVar(&f.wait, "ready-wait", time.Minute, "with --: the longest until it is ready")
	fl.DurationVar(&f.idle, "idle", 2*time.Second, "with --: how long the idle baseline is taken")
	fl.DurationVar(&f.settle, "settle", 300*time.Millisecond, "with --: how long what follows a reply still counts as its probe's")
	r := &f.run
	fl.StringVar(&r.agent, "agent", "", "with --skill: the agent program: "+strings.Join(harness.Names(), ", ")+" (default: codex)")
	fl.StringVar(&r.model, "model", "", "with --skill: its model")
	fl.StringArrayVar(&r.params, "param", nil, "with --skill: KEY=VALUE, a parameter of the agent program (repeatable)")
	fl.StringVar(&r.kind, "kind", "command", "with --: execution kind, a built-in one or a file")
	fl.StringVar(&r.network, "network", "", "with --: none, record, allow or sink")
	fl.StringArrayVar(&r.allow, "allow", nil, "with --: host that the network may reach (repeatable)")
	fl.StringArrayVar(&r.forwards, "forward", nil, "with --: NAME:PORT=ADDRESS:PORT (repeatable)")
	fl.StringArrayVar(&r.env, "env", nil, "with --: NAME=VALUE, an environment variable in the sandbox; NAME=env:VARIABLE or NAME=file:PATH hands a secret in, which --secret doesn't (repeatable)")
	fl.StringArrayVar(&f.secrets, "secret", nil, "with --: NAME=env:VARIABLE@HOST or NAME=file:PATH@HOST[=URL]: NAME is a placeholder in the sandbox, and HOST alone gets the secret, from the proxy (repeatable)")
	fl.StringVar(&r.user, "user", "", "with --: user in the sandbox")
	fl.StringVar(&r.workspace, "workspace", "", "with --: directory whose content is copied to the working directory")
	fl.StringVar(&r.modelURL, "model-url", "", "with --: model endpoint that the agent reaches as "+session.ModelHost)
	fl.StringVar(&r.modelKeyEnv, "model-key-env", "", "with --: variable that holds the endpoint's key")
	fl.StringVar(&r.script, "model-script", "", "with --: play a scripted model")
}

// misplaced refuses flags that would do nothing: those of the sandbox without a command, and of a skill without one.
func (f *serviceFlags) misplaced(fl *pflag.FlagSet, skill, command, mcp bool) error {
	var err error
	fl.Visit(func(g *pflag.Flag) {
		what, rest, _ := strings.Cut(g.Usage, ":")
		switch {
		case err != nil || rest == "":
		case what == "with --skill" && !skill:
			err = usage("--%s needs --skill", g.Name)
		case what == "with --" && !command && !skill:
			err = withHint(usage("--%s is of no use: nothing runs in the sandbox", g.Name), "the agent's command goes after --, as in: bodycam probe --port 8080 -- ./my-agent")
		case what == "with --mcp and --port" && (!mcp || !command):
			err = usage("--%s needs --mcp, --port and a command", g.Name)
		}
	})
	return err
}

// traceHost is the name under which a sandboxed agent reaches the receiver of traces.
const traceHost = "traces.bodycam.internal"

// inSandbox runs the agent as a service under observation, and the audit while it runs.
func (p *probing) inSandbox(ctx context.Context) error {
	f := &p.f.service
	if p.otlp != nil {
		if f.run.network == "" {
			f.run.network = "allow"
		}
		f.run.forwards = append(f.run.forwards, fmt.Sprintf("%s:4318=%s", traceHost, p.otlp.Addr()))
		f.run.env = append(f.run.env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+traceHost+":4318", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
	}
	if p.target == "" {
		p.target = fmt.Sprintf("http://127.0.0.1:%d", f.port)
	}
	p.around = func(t *trust.Probe) (func(), error) { return func() {}, nil } // known before it can be made: it needs the service
	var used error
	sv := &session.Service{Port: f.port, Ready: f.ready, Wait: f.wait, Idle: f.idle, Use: func(ctx context.Context, in *session.Inside) error {
		p.dial = in.Dial
		p.around = func(t *trust.Probe) (func(), error) {
			in.Window(t.ID)
			return func() { time.Sleep(f.settle) }, nil
		}
		if used = p.prepare(ctx); used == nil && p.audit != nil {
			used = p.send(ctx)
		}
		return used
	}}
	dirs, dir := p.earlier()
	before, err := p.before(ctx, dirs)
	if err != nil {
		return err
	}
	r, err := p.f.service.start(ctx, p.s, p.command, sv, dir, p.f.quiet)
	if used != nil {
		return used
	}
	if err != nil {
		return err
	}
	if p.audit == nil {
		return nil
	}
	effects, err := p.serviceEffects(ctx, r, r.Info.Windows)
	if err != nil {
		return environment(err)
	}
	p.notes = append(p.notes, "the agent's run is recorded in "+filepath.Base(r.Dir))
	return p.conclude(ctx, before.with(effects))
}

// earlier are the agent's runs of an audit that is taken up again, and the directory for a new one. They lie where the audit
// does.
func (p *probing) earlier() (dirs []string, next string) {
	base := filepath.Join(filepath.Dir(p.dir), p.id+"-service")
	next = base
	for n := 2; exists(next); n++ {
		dirs = append(dirs, next)
		next = fmt.Sprintf("%s-%d", base, n)
	}
	return dirs, next
}

// start runs a command as a service in the sandbox.
func (f *serviceFlags) start(ctx context.Context, s *streams, command []string, sv *session.Service, dir string, quiet bool) (*store.Run, error) {
	f.run.timeout = 24 * time.Hour // the audit has its own limits
	var err error
	if f.inside, err = f.readSecrets(); err != nil {
		return nil, err
	}
	plan, err := f.run.resolve("", command)
	if err != nil {
		return nil, err
	}
	plan.Timeouts.Total = kind.Duration(25 * time.Hour)
	h, err := harness.Get(plan.Agent.Harness)
	if err != nil {
		return nil, usage("%w", err)
	}
	m, stop, err := f.run.endpoint(ctx, s)
	if err != nil {
		return nil, err
	}
	defer stop()
	ring, created, err := openRing()
	if err != nil {
		return nil, environment(err)
	}
	if created && !quiet {
		fmt.Fprintf(s.err, "bodycam: made keys for this machine in %s\n", ring.Dir)
	}
	host, err := (&ringFlags{}).hostLog()
	if err != nil {
		return nil, environment(err)
	}
	r, err := runKept(ctx, session.Options{Plan: plan, Harness: h, ID: filepath.Base(dir), Dir: dir, Model: m, HostLog: host, Progress: func(session.Progress) {}, // what is recorded is then written several times a second, and outlives us
		Tool: build(), Service: sv, Secrets: f.inside.swaps,
		Identities: ring.Identities, Sealing: &store.Sealing{Signers: ring.Signers, Recipients: ring.Recipients, Recorder: recorderName()}})
	var not *session.NotStartedError
	if errors.As(err, &not) && f.run.workspace == "" {
		return r, withHint(environment(err), "--workspace DIR copies a folder to the agent's working directory; a kind can have environment.binds")
	}
	return r, environment(err)
}

// effectsIn reads from a service's record what it used in each probe's window, by what of says of an event. What it did
// between two probes belongs to the earlier; start and idle are the window "". Of a torn record what there is counts.
func effectsIn(r *store.Run, windows []bodycam.WindowSpan, of func(*bodycam.Event) (kind, name string)) ([]trust.Effects, error) {
	out := map[string]*trust.Effects{}
	order := []string{}
	get := func(name string) *trust.Effects {
		if out[name] == nil {
			out[name] = &trust.Effects{Probe: name, Complete: r.Info.Complete.Complete, Why: strings.Join(r.Info.Complete.Reasons, "; ")}
			order = append(order, name)
		}
		return out[name]
	}
	get("")
	for _, w := range windows {
		if w.Name != "" {
			get(w.Name) // a probe without effects has a window too
		}
	}
	index := map[string]map[string]int{}
	err := r.Events(func(e *bodycam.Event) error {
		name, ok := windowOf(windows, e.Boot)
		kind, what := of(e)
		if !ok || what == "" {
			return nil
		}
		x := get(name)
		if index[name] == nil {
			index[name] = map[string]int{}
		}
		i, ok := index[name][kind+"\x00"+what]
		if !ok {
			i = len(x.Effects)
			index[name][kind+"\x00"+what] = i
			x.Effects = append(x.Effects, trust.Effect{Kind: kind, Name: what})
		}
		x.Effects[i].Count += e.N()
		if len(x.Effects[i].Event) < 5 {
			x.Effects[i].Event = append(x.Effects[i].Event, e.Seq)
		}
		return nil
	})
	if err != nil && !torn(err) {
		return nil, fmt.Errorf("reading what the agent did: %w", err)
	}
	list := make([]trust.Effects, 0, len(order))
	for _, n := range order {
		list = append(list, *out[n])
	}
	return list, nil
}

// windowOf finds the probe whose window holds a moment; ok is false after the agent's end.
func windowOf(ws []bodycam.WindowSpan, boot uint64) (string, bool) {
	name := ""
	for _, w := range ws {
		if boot < w.From {
			break
		}
		switch w.Window {
		case bodycam.WindowProbe.String(), bodycam.WindowIdle.String(), bodycam.WindowAgent.String():
			name = w.Name
		default:
			return "", false
		}
	}
	return name, true
}

// effectOf says what an event uses or changes: a program, a host, a file.
func effectOf(e *bodycam.Event) (kind, name string) {
	if e.Failed() {
		return "", ""
	}
	switch e.Type {
	case bodycam.TypeExec:
		if e.Script != "" {
			return "command", bodycam.Escape(e.Script)
		}
		return "command", bodycam.Escape(e.Exe)
	case bodycam.TypeDNS, bodycam.TypeTLS, bodycam.TypeHTTP, bodycam.TypeConnect, bodycam.TypeSend:
		return "host", hostOf(e)
	case bodycam.TypeUnlink, bodycam.TypeRmdir:
		return "delete", fileOf(e.Path)
	case bodycam.TypeOpen:
		if e.Access&(bodycam.Write|bodycam.Trunc|bodycam.Append) == 0 {
			return "", ""
		}
		return "file", fileOf(e.Path)
	case bodycam.TypeCreate, bodycam.TypeTruncate, bodycam.TypeMkdir:
		return "file", fileOf(e.Path)
	case bodycam.TypeRename, bodycam.TypeLink, bodycam.TypeSymlink:
		return "file", fileOf(e.Path2)
	}
	return "", ""
}

func hostOf(e *bodycam.Event) string {
	host := strings.TrimSuffix(e.Host, ".")
	if host == "" && e.Type != bodycam.TypeDNS && e.Remote.IsValid() {
		host = e.Remote.Addr().String()
	}
	a, err := netip.ParseAddr(host)
	switch {
	case host == traceHost, host == session.ModelHost, host == "localhost":
		return "" // ours
	case err == nil && (a.IsLoopback() || a.IsUnspecified()):
		return ""
	case e.Proto == bodycam.ProtoUnix:
		return ""
	case e.Remote.Port() == 53 && e.Type != bodycam.TypeDNS:
		return "" // the names asked for are told of by themselves
	}
	return bodycam.Escape(host)
}

// fileOf is a file's name as it compares between runs; "" for what every program makes for itself.
func fileOf(path string) string {
	for _, p := range []string{"/dev/", "/proc/", "/sys/", "/run/"} {
		if strings.HasPrefix(path, p) {
			return ""
		}
	}
	if scratch(path) || path == "" || path[0] != '/' || strings.Contains(path, "/__pycache__") || strings.Contains(path, "/.cache/") || strings.Contains(path, "/.npm/") {
		return ""
	}
	return bodycam.Escape(unnumbered(features.CommonName(path, false)))
}

// scratch tells whether a file is a temporary one, by where it lies.
func scratch(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/")
}

// serials are the parts of names that differ each time: numbers, hexadecimal digits, and what CommonName has put there.
var serials = regexp.MustCompile(`(?:<[a-z]+>[-_.]?|[0-9a-fA-F]{6,}[-_]?|[0-9]+[-_]?)+`)

// unnumbered makes names alike that differ in such parts alone.
func unnumbered(name string) string {
	return serials.ReplaceAllStringFunc(name, func(m string) string {
		if !strings.ContainsAny(m, "0123456789<") {
			return m // a word of the letters a to f
		}
		return "*"
	})
}
