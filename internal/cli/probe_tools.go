package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/mcp"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/bodycam-dev/bodycam/internal/trust/toolcheck"
)

// tools audits a tool server: what its tools declare against what calls of them do in the sandbox.
func (f *probeFlags) tools(ctx context.Context, s *streams, target string, command []string) error {
	switch {
	case target == "" && len(command) == 0:
		return withHint(usage("there is no tool server"), "bodycam probe --mcp URL, or bodycam probe --mcp [--port N] -- COMMAND")
	case target != "" && len(command) > 0:
		return withHint(usage("a TARGET and a command exclude each other"), "a server that listens in the sandbox is reached with --port and --mcp-path")
	}
	o := toolcheck.Options{Timeout: min(f.timeout, 30*time.Second), Seed: f.seed, Progress: func(done, total int, tool string) {
		if !f.quiet {
			fmt.Fprintf(s.err, "bodycam: tool %d of %d: %s\n", done, total, bodycam.Printable(tool))
		}
	}}
	if target != "" {
		return f.remoteTools(ctx, s, target, o)
	}
	id := store.NewID(time.Now())
	var rep *toolcheck.Report
	var used error
	sv := &session.Service{Port: f.service.port, Ready: f.service.ready, Wait: f.service.wait, Idle: f.service.idle, Use: func(ctx context.Context, in *session.Inside) error {
		t, redact, err := f.toolServer(s, in)
		if err != nil {
			used = err
			return used
		}
		o.Window = func(name string) { in.Window(name) }
		o.Settle = f.service.settle
		if rep, err = toolcheck.Run(ctx, t, o); err != nil {
			used = environment(errors.New(redact(err.Error())))
		}
		return used
	}}
	dir := filepath.Join(f.out, id)
	r, err := f.service.start(ctx, s, command, sv, dir, f.quiet)
	if used != nil {
		return used
	}
	if err != nil {
		return err
	}
	if rep == nil {
		return environment(fmt.Errorf("the tool server ended before it could be used; what it printed is in %s", filepath.Join(dir, "agent")))
	}
	effects, err := effectsIn(r, r.Info.Windows, toolEffect)
	if err != nil {
		return environment(err)
	}
	rep.Judge(effects)
	return f.showTools(s, rep, dir)
}

// toolEffect is effectOf with temporary files: they are shown, as those of the kind scratch, and convict nobody. The file
// that a tool is told of is none.
func toolEffect(e *bodycam.Event) (kind, name string) {
	path := e.Path
	switch e.Type {
	case bodycam.TypeRename, bodycam.TypeLink, bodycam.TypeSymlink:
		path = e.Path2
	}
	kind, name = effectOf(e)
	switch {
	case name != "" || kind != "file" && kind != "delete" || !scratch(path):
		return kind, name
	case path == toolcheck.ExampleFile:
		return kind, path
	}
	return toolcheck.Scratch, bodycam.Escape(unnumbered(features.CommonName(path, false)))
}

// toolServer is how a server in the sandbox is spoken to: on its standard streams, or with --port over streamable HTTP.
func (f *probeFlags) toolServer(s *streams, in *session.Inside) (t mcp.Target, redact func(string) string, err error) {
	if f.service.port == 0 {
		return mcp.Target{Pipe: in.Pipe()}, func(s string) string { return s }, nil
	}
	p := &probing{f: f, s: s, dial: in.Dial}
	creds, err := p.credentials()
	if err != nil {
		return t, nil, err
	}
	client, err := p.connect(creds)
	if err != nil {
		return t, nil, err
	}
	return mcp.Target{URL: fmt.Sprintf("http://127.0.0.1:%d/%s", f.service.port, strings.TrimPrefix(f.service.path, "/")), HTTP: client.Client}, client.Redact, nil
}

// remoteTools audits a server that runs elsewhere: only tools that say they are read-only are called without leave.
func (f *probeFlags) remoteTools(ctx context.Context, s *streams, target string, o toolcheck.Options) error {
	p := &probing{f: f, s: s, target: target}
	creds, err := p.credentials()
	if err != nil {
		return err
	}
	client, err := p.connect(creds)
	if err != nil {
		return err
	}
	o.ReadOnlyAlone = !f.sideEffects
	rep, err := toolcheck.Run(ctx, mcp.Target{URL: target, HTTP: client.Client}, o)
	if err != nil {
		return environment(errors.New(client.Redact(err.Error())))
	}
	rep.Judge(nil)
	return f.showTools(s, rep, "")
}

func (f *probeFlags) showTools(s *streams, r *toolcheck.Report, dir string) error {
	if f.json {
		e := json.NewEncoder(s.out)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return environment(err)
		}
	} else {
		safe := bodycam.Printable
		fmt.Fprintf(s.out, "%s %s: %s\n", safe(r.Server), safe(r.Version), strings.ToUpper(r.Gate))
		for _, why := range r.Reasons {
			fmt.Fprintf(s.out, "  %s\n", safe(why))
		}
		tw := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "\ntool\tdeclares\tverdict\tdid\twhy")
		for _, t := range r.Tools {
			var did []string
			for _, e := range t.Effects {
				did = append(did, e.Kind+" "+e.Name)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", safe(t.Name), t.Declares(), t.Verdict, safe(cutText(strings.Join(did, ", "), 80)), safe(cutText(t.Reason, 100)))
		}
		if err := tw.Flush(); err != nil {
			return environment(err)
		}
		if dir != "" {
			fmt.Fprintf(s.out, "\nrun directory: %s\n", dir)
		}
	}
	switch r.Gate {
	case score.Pass:
		return nil
	case score.Fail:
		return &statusError{status: ExitGate}
	}
	return &statusError{status: ExitInconclusive}
}

func cutText(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
