package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
)

// Service makes a run that of a server: its program doesn't end by itself. Once it is ready an idle window shows what it
// does unasked; then Use talks to it, and what it does is told apart by windows; then it is ended.
type Service struct {
	Port  uint16        // on which the program listens, on the sandbox's loopback; 0: it is spoken to on its standard streams
	Ready string        // path whose HTTP status must be below 500; "": a connection suffices
	Wait  time.Duration // the longest until it is ready; default 1 minute
	Idle  time.Duration // length of the idle window; default 2 seconds
	// Published: Use lets others use it ([Inside.Publish]).
	Published bool
	// Use uses the service. When it returns, the service is ended.
	Use func(ctx context.Context, in *Inside) error
}

// Inside is how a service is reached.
type Inside struct {
	s    *run
	port uint16
}

// Dial connects to the service, whatever address is named: it serves as DialContext of an HTTP transport.
func (i *Inside) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return i.s.box.Dial(ctx, i.port)
}

// Pipe is the service's standard streams, where it has no port.
func (i *Inside) Pipe() io.ReadWriteCloser { return i.s.pipe }

// pipe joins the two ends of a service's standard streams that are ours.
type pipe struct {
	in   *io.PipeWriter // its standard input
	out  *io.PipeReader // its standard output
	inR  *io.PipeReader
	outW *io.PipeWriter
}

func newPipe() *pipe {
	p := &pipe{}
	p.inR, p.in = io.Pipe()
	p.out, p.outW = io.Pipe()
	return p
}

func (p *pipe) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends the service's standard input; what it still prints is dropped.
func (p *pipe) Close() error { return errors.Join(p.in.Close(), p.out.Close()) }

// tee gives what the service prints to us and, as to any agent, to the account. It never fails: a service must not
// notice that nobody reads any more.
type tee struct {
	account io.Writer
	to      *io.PipeWriter
}

func (t tee) Write(b []byte) (int, error) {
	_, _ = t.to.Write(b)
	return t.account.Write(b)
}

// Window begins a window of that name (a probe's id): what happens from now on, until the next begins, belongs to it.
func (i *Inside) Window(name string) { i.s.obs.enterNamed(bodycam.WindowProbe, name) }

// serve waits until the service is ready, leaves it alone for a while and has it used. It returns when that is done, or
// the service has ended.
func (s *run) serve(ctx context.Context, p *sandbox.Process) error {
	sv := s.o.Service
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(errServiceEnded)
		case <-ctx.Done():
		}
	}()
	in := &Inside{s: s, port: sv.Port}
	began := time.Now()
	if sv.Port != 0 {
		if err := s.ready(ctx, in); err != nil {
			return fmt.Errorf("%w: %w", ErrEnvironment, err)
		}
	}
	s.note("the service was ready after %s", time.Since(began).Round(time.Millisecond))
	s.obs.enter(bodycam.WindowIdle)
	idle := sv.Idle
	if idle <= 0 {
		idle = 2 * time.Second
	}
	select {
	case <-time.After(idle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := sv.Use(ctx, in); err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errServiceEnded) {
			return errors.Join(cause, err)
		}
		return err
	}
	return nil
}

var errServiceEnded = errors.New("the service ended while it was in use")

// ready asks until the service answers.
func (s *run) ready(ctx context.Context, in *Inside) error {
	sv := s.o.Service
	wait := sv.Wait
	if wait <= 0 {
		wait = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the service was not ready within %s", wait))
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: in.Dial, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	var last error
	for {
		last = tryReady(ctx, client, in, sv.Ready)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w (its output is in the run directory's agent folder)", context.Cause(ctx), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func tryReady(ctx context.Context, client *http.Client, in *Inside, path string) error {
	if path == "" {
		c, err := in.Dial(ctx, "tcp", "")
		if err != nil {
			return err
		}
		return c.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(int(in.port)))+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode >= 500 {
		return fmt.Errorf("%s answers with status %d", path, resp.StatusCode)
	}
	return nil
}

// end asks the service to end, and ends its whole group if it doesn't.
func (s *run) end(ctx context.Context, p *sandbox.Process) {
	if s.pipe != nil {
		_ = s.pipe.Close() // nothing of it can fail
	}
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.Done():
		return
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	if err := s.box.Kill(context.WithoutCancel(ctx), sandbox.GroupAgent); err != nil {
		_ = p.Kill()
	}
}
