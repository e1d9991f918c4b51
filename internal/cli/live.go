package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/security"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/rules"
)

// alertFlags say what becomes of alerts while a run goes on.
type alertFlags struct {
	show    bool
	webhook string
	stopOn  string
}

// live judges a run's events as they come.
type live struct {
	run  string
	plan *kind.Plan
	opts security.Options
	a    *security.Analyser // nil until the sandbox is ready
	// denies and guards tell that some rule of mode deny is about hosts, and that some is about files or programs.
	denies, guards bool
	stops          bool // an alert may end the run
	exe, user      bool // what the latter ask of the process
	denial         denial
	procs          bodycam.Processes
	stopOn         gate
	outlets        []*outlet
}

// alertLine is an alert as it is printed and posted.
type alertLine struct {
	Type    string          `json:"type"` // "alert"
	Run     string          `json:"run"`
	Time    time.Time       `json:"time"`
	Mode    string          `json:"mode"`              // of the rule: alert, stop, deny
	Stopped bool            `json:"stopped,omitempty"` // it stops the run
	Finding bodycam.Finding `json:"finding"`
}

// newLive makes the judge of a run, nil where nobody asks for one: neither a flag nor a rule's mode.
func newLive(f *alertFlags, p *kind.Plan, id string, decoys []session.Decoy, to io.Writer, text, show bool) (*live, error) {
	stopOn := gate{never: true}
	if f.stopOn != "" {
		var err error
		if stopOn, err = parseGate(f.stopOn); err != nil {
			return nil, usage("--stop-on: want info, low, medium, high, critical or never")
		}
	}
	if f.webhook != "" {
		if u, err := url.Parse(f.webhook); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usage("--alert-webhook %s: want an http or https URL", f.webhook)
		}
	}
	asked := show || f.webhook != "" || !stopOn.never
	own := len(p.Judge.Rules) > 0 // the built-in rules only tell
	if !asked && !own {
		return nil, nil
	}
	o := security.Options{Policy: securityPolicy(&bodycam.Run{}, p), Now: time.Now()}
	for _, d := range decoys {
		o.Policy.Decoys = append(o.Policy.Decoys, security.Decoy(d.Decoy))
	}
	var err error
	if o.Suppressions, err = suppressions(p); err != nil {
		return nil, usage("%w", err)
	}
	l := &live{run: id, plan: p, opts: o, stopOn: stopOn, stops: !stopOn.never}
	if own {
		set, _, err := liveRules(o.Policy, p)
		if err != nil {
			return nil, err
		}
		if !asked && !hasMode(set, rules.ModeStop) && !hasMode(set, rules.ModeDeny) {
			return nil, nil
		}
		l.stops = l.stops || hasMode(set, rules.ModeStop)
		l.denies, l.guards = denies(set)
		l.exe, l.user = needs(set)
	}
	const patience = 5 * time.Second
	if show {
		l.outlets = append(l.outlets, printing(to, text, 3*patience).start(mostAlerts))
	}
	if f.webhook != "" {
		l.outlets = append(l.outlets, posting(f.webhook, patience).start(mostAlerts))
	}
	return l, nil
}

// ready makes the judge for the sandbox and the agent as they are, before the agent starts.
func (l *live) ready(info *bodycam.Run) error {
	decoys := l.opts.Policy.Decoys
	l.opts.Policy = securityPolicy(info, l.plan)
	l.opts.Policy.Decoys = decoys
	set, further, err := liveRules(l.opts.Policy, l.plan)
	if err != nil {
		return err
	}
	l.opts.Rules = set
	if l.a, err = security.New(l.opts); err != nil {
		return err
	}
	if l.denies || l.guards {
		return l.denial.begin(l.opts, further)
	}
	return nil
}

// attach has a run judged.
func (l *live) attach(o *session.Options) {
	o.Ready, o.Watch, o.Stops = l.ready, l.watch, l.stops
	if l.denies {
		o.Refuse = l.denial.refuse
	}
	if l.guards {
		o.Guard = &session.Guard{Wants: l.denial.wants, Named: l.denial.named, Refuse: l.denial.refuseFile, Exe: l.exe, User: l.user}
	}
}

// runKept carries out a run whose alerts nobody wants to hear of. Rules of mode stop and deny are kept.
func runKept(ctx context.Context, o session.Options) (*store.Run, error) {
	judge, err := newLive(&alertFlags{}, o.Plan, o.ID, o.Decoys, io.Discard, false, false)
	if err != nil {
		return nil, err
	}
	if judge != nil {
		judge.attach(&o)
		defer func() { _ = judge.close() }() // nothing is handed on
	}
	return session.Run(ctx, o)
}

// watch judges an event, which it may change, and returns why the run must be stopped, "" where it goes on. It never waits.
func (l *live) watch(e *bodycam.Event) (stop string) {
	if l.a == nil {
		return "" // nothing is observed before the agent starts
	}
	l.procs.Observe(e)
	for _, a := range l.a.Event(e) {
		f := &a.Finding
		stops := f.Suppressed == "" && (a.Mode == rules.ModeStop || l.stopOn.fails([]bodycam.Finding{*f}))
		if stops && stop == "" {
			stop = fmt.Sprintf("rule %q (%s): %s", f.Rule, f.Severity, f.Title)
		}
		if !a.First && !powerOfTen(f.Count) && !stops {
			continue // ten thousand alike calls are five lines
		}
		line := &alertLine{Type: "alert", Run: l.run, Time: time.Unix(0, e.Time).UTC(), Mode: a.Mode.String(), Stopped: stops, Finding: *f}
		for _, o := range l.outlets {
			o.put(line)
		}
	}
	return stop
}

func powerOfTen(n uint64) bool {
	for n >= 10 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}

func alertText(a *alertLine) []byte {
	f := &a.Finding
	b := fmt.Appendf(nil, "ALERT %s %s: %s", f.Severity, bodycam.Printable(f.Rule), bodycam.Printable(f.Title))
	if f.Count > 1 {
		b = fmt.Appendf(b, " ×%d", f.Count)
	}
	if a.Stopped {
		b = append(b, " — the run is stopped"...)
	}
	return append(b, '\n')
}

// post hands an alert to a webhook. It tries twice. A redirect isn't followed: it would become a question without the alert, and
// lead this host to wherever the webhook says.
func post(client *http.Client, hook string, body []byte) (err error) {
	here := *client
	here.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), client.Timeout)
		var req *http.Request
		if req, err = http.NewRequestWithContext(ctx, http.MethodPost, hook, bytes.NewReader(body)); err != nil {
			cancel()
			return fmt.Errorf("alert webhook: %w", err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("User-Agent", "bodycam")
		var res *http.Response
		if res, err = here.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
			res.Body.Close()
			switch to, _ := res.Location(); {
			case res.StatusCode/100 == 2:
			case to != nil:
				err = fmt.Errorf("it answered %s and sends to %s://%s, which is not followed: name that address if it is meant", res.Status, to.Scheme, to.Host)
			default:
				err = fmt.Errorf("it answered %s", res.Status)
			}
		}
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("alert webhook: %w", err)
}

// close hands on what is left, and says what could not be.
func (l *live) close() error {
	var errs []error
	for _, o := range l.outlets {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}

// lockedWriter lets several goroutines write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
