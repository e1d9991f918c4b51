package deliver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam/internal/a2a"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What went wrong with an exchange.
const (
	isTimeout  = "timeout"
	isDropped  = "dropped"
	isRefused  = "refused"
	isLimited  = "rate-limited"
	isAuth     = "auth"
	isServer   = "server"
	isProtocol = "protocol"
	isStopped  = "stopped"
)

// Options say how probes are sent.
type Options struct {
	Concurrency int           // at once; default 4
	Rate        float64       // probes a second at most; 0: no limit
	Timeout     time.Duration // for one turn; default 2 minutes
	Retries     int           // after a dropped connection, a rate limit or a server's error
	Keep        int           // bytes kept of a reply; default 256 KiB
	// Traced sends a traceparent along, but with every eighth probe: an agent that behaves only when it is traced shows.
	Traced bool
	// AsksBack tells whether a reply is a clarifying question; nil: [Clarifies].
	AsksBack func(ctx context.Context, p *trust.Probe, reply string) bool
	// Around is called before a probe, and what it returns after it. It needs Concurrency 1.
	Around func(p *trust.Probe) (func(), error)
	Redact func(string) string // removes secrets from errors and replies
}

// ErrAuth tells that the agent refuses the credentials: every further probe would be refused.
var ErrAuth = errors.New("the agent refuses the credentials")

// Run sends the probes and calls done with each exchange, from one goroutine at a time. It ends early when ctx does, when
// done or Around fails, or where the agent refuses the credentials; exchanges that were cut off are not handed over.
func Run(ctx context.Context, a Agent, probes []trust.Probe, o Options, done func(*trust.Exchange) error) error {
	o = o.defaults()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	limit := rate.NewLimiter(rate.Inf, 1)
	if o.Rate > 0 {
		limit = rate.NewLimiter(rate.Limit(o.Rate), 1)
	}
	work := make(chan *trust.Probe)
	var mu sync.Mutex
	var refused []*trust.Exchange // as long as nobody has answered
	answered := false
	hand := func(x *trust.Exchange) error {
		if !answered && x.ErrorIs == isRefused {
			if refused = append(refused, x); len(refused) >= nobodyAfter {
				return fmt.Errorf("%w: %s", ErrNobody, x.Error)
			}
			return nil
		}
		answered = true
		late := append(refused, x)
		refused = nil
		for _, x := range late {
			if err := done(x); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for range min(o.Concurrency, max(1, len(probes))) {
		wg.Go(func() {
			for p := range work {
				x, err := o.one(ctx, a, p, limit)
				if ctx.Err() != nil {
					continue // cut off: it is sent again when the audit is resumed
				}
				mu.Lock()
				if err == nil {
					err = hand(x)
				}
				mu.Unlock()
				if err == nil && x.ErrorIs == isAuth {
					err = fmt.Errorf("%w: %s", ErrAuth, x.Error)
				}
				if err != nil {
					stop(err)
				}
			}
		})
	}
feed:
	for i := range probes {
		select {
		case work <- &probes[i]:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	wg.Wait()
	if err := context.Cause(ctx); err != nil || len(refused) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", ErrNobody, refused[0].Error)
}

// ErrNobody tells that nobody listens where the agent should be: the first connections were refused. No exchange of them is handed over.
var ErrNobody = errors.New("nobody answers where the agent should be")

// nobodyAfter is how many probes are refused before it is said that nobody is there.
const nobodyAfter = 3

func (o Options) defaults() Options {
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.Around != nil {
		o.Concurrency = 1
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Keep <= 0 {
		o.Keep = 256 << 10
	}
	if o.AsksBack == nil {
		o.AsksBack = func(_ context.Context, _ *trust.Probe, reply string) bool { return Clarifies(reply) }
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	return o
}

// callers are the names under which probes are sent: those of common clients, so that an auditor isn't told from others.
var callers = []string{"python-httpx/0.28.1", "a2a-sdk-python/0.3.22", "Go-http-client/2.0", "node"}

// one sends one probe, with retries.
func (o Options) one(ctx context.Context, a Agent, p *trust.Probe, limit *rate.Limiter) (*trust.Exchange, error) {
	if o.Around != nil {
		end, err := o.Around(p)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	h := fnv.New32a()
	h.Write([]byte(p.ID))
	n := h.Sum32()
	x := &trust.Exchange{Probe: p.ID}
	for try := 0; ; try++ {
		if err := limit.Wait(ctx); err != nil {
			return nil, err
		}
		x.Turns, x.InBand, x.Session = nil, nil, newSession()
		x.Trace, x.Span = "", ""
		header := http.Header{"User-Agent": {callers[n%uint32(len(callers))]}}
		if o.Traced && n/4%8 != 0 {
			x.Trace, x.Span = randomHex(16), randomHex(8)
			header.Set("Traceparent", "00-"+x.Trace+"-"+x.Span+"-01")
		}
		x.Started = time.Now().UTC()
		err := o.converse(ctx, a, p, x, header, n/32%2 == 1)
		x.Ended = time.Now().UTC()
		if err == nil {
			x.Error, x.ErrorIs = "", ""
			return x, nil
		}
		x.Error, x.ErrorIs = o.Redact(err.Error()), kindOf(err)
		wait, again := o.again(err, x.ErrorIs, try)
		if !again || ctx.Err() != nil {
			return x, nil
		}
		x.Attempts = append(x.Attempts, trust.Attempt{Error: x.Error, Is: x.ErrorIs, At: x.Ended})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// converse sends the probe and answers clarifying questions from its script.
func (o Options) converse(ctx context.Context, a Agent, p *trust.Probe, x *trust.Exchange, header http.Header, stream bool) error {
	m := Message{Text: p.Text, Header: header, Stream: stream, Session: x.Session}
	for turn := 0; ; turn++ {
		began := time.Now()
		tctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, &failure{is: isTimeout, err: fmt.Errorf("no answer within %s", o.Timeout)})
		r, err := a.Say(tctx, m)
		if err != nil && tctx.Err() != nil && ctx.Err() == nil {
			err = context.Cause(tctx)
		}
		cancel()
		if err != nil {
			return err
		}
		t := trust.Turn{Prompt: m.Text, Reply: o.Redact(r.Text), State: r.State, Bytes: len(r.Text), Took: time.Since(began)}
		if len(t.Reply) > o.Keep {
			t.Reply, t.Cut = cut(t.Reply, o.Keep), true
		}
		x.Turns = append(x.Turns, t)
		if r.Session != "" {
			x.Session = r.Session
		}
		if len(r.Calls) > 0 {
			if x.InBand == nil {
				x.InBand = &trust.Calls{Probe: p.ID, Source: "reply", Found: true, Method: trust.ByReply, Confidence: trust.Confidence[trust.ByReply]}
			}
			for _, c := range r.Calls {
				c.Args = o.Redact(c.Args)
				x.InBand.Calls = append(x.InBand.Calls, c)
			}
		}
		if turn >= len(p.Turns) || p.Scope != trust.In || !o.AsksBack(ctx, p, r.Text) {
			return nil
		}
		m.Text, m.Session, m.Task, m.Before = p.Turns[turn], x.Session, r.Task, x.Turns
	}
}

// again tells whether and when a probe is tried again.
func (o Options) again(err error, is string, try int) (time.Duration, bool) {
	if try >= o.Retries {
		return 0, false
	}
	wait := min(30*time.Second, time.Second<<try)
	switch is {
	case isLimited:
		var h *a2a.HTTPError
		if errors.As(err, &h) {
			if s, err := strconv.Atoi(h.RetryAfter); err == nil && s >= 0 && s <= 600 {
				wait = time.Duration(s) * time.Second
			}
		}
		return wait, true
	case isDropped, isServer, isRefused:
		return wait / 2, true
	}
	return 0, false
}

// failure is an error whose kind is known where it happens.
type failure struct {
	is  string
	err error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func kindOf(err error) string {
	var f *failure
	var h *a2a.HTTPError
	var rpc *a2a.RPCError
	var netErr net.Error
	switch {
	case errors.As(err, &f):
		return f.is
	case errors.As(err, &h):
		switch {
		case h.Status == http.StatusUnauthorized || h.Status == http.StatusForbidden:
			return isAuth
		case h.Status == http.StatusTooManyRequests:
			return isLimited
		case h.Status >= 500:
			return isServer
		}
		return isProtocol
	case errors.As(err, &rpc):
		if rpc.Code == -32603 || rpc.Code >= 500 && rpc.Code < 600 {
			return isServer
		}
		return isProtocol
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return isTimeout
	case errors.Is(err, context.Canceled):
		return isStopped
	case errors.Is(err, syscall.ECONNREFUSED):
		return isRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return isDropped
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return isAuth
	case codes.ResourceExhausted:
		return isLimited
	case codes.Unavailable:
		return isDropped
	case codes.Internal:
		return isServer
	}
	return isProtocol
}

// Requests are phrases with which a reply asks for something before it can go on.
var requests = regexp.MustCompile(`(?i)\b(which|what|where|when|who|how many|could you|can you|would you|do you|did you|are you|shall i|should i|may i)\b[^.!?\n]{0,160}\?|\b(please|kindly) (specify|clarify|provide|tell|confirm|choose|share|enter|give|let me know)\b|\b(i need|i'd need|i will need|to help you)\b[^.\n]{0,60}\b(know|more (details|information)|the (city|location|date|name|number))\b`)

// Clarifies tells from its text whether a reply asks back instead of answering: a short reply that ends in a question or
// asks for something, and says little else.
func Clarifies(reply string) bool {
	text := strings.TrimSpace(reply)
	if text == "" || utf8.RuneCountInString(text) > 600 || !requests.MatchString(text) {
		return false
	}
	tail := text[max(0, len(text)-220):]
	if !strings.Contains(tail, "?") && !requests.MatchString(tail) {
		return false
	}
	// "Sunny, 21 °C. Would you like the forecast too?" answers: what comes before the question holds figures or is long.
	head := text[:requests.FindStringIndex(text)[0]]
	return utf8.RuneCountInString(strings.TrimSpace(head)) < 90 && !strings.ContainsAny(head, "0123456789")
}

// cut keeps head and tail of a text.
func cut(s string, n int) string {
	head, tail := s[:n*3/4], s[len(s)-n/4:]
	return strings.ToValidUTF8(head, "") + "\n[… " + strconv.Itoa(len(s)-n) + " bytes left out …]\n" + strings.ToValidUTF8(tail, "")
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func newSession() string { return "s-" + randomHex(12) }
