package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor/names"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
)

// Delegation joins a run with those of other recorded agents. What is handed over is recorded and signed by the recorder on
// each side; the agents see none of it.
type Delegation struct {
	// To are agents that the sandbox reaches by a name, through the recorder.
	To []Delegate
	// By is the receipt of the request that the run carries out; nil: nobody's that is known.
	By *delegation.Receipt
	// Accepted is told of the acceptance of By, once it is durable; may be nil.
	Accepted func(*delegation.Receipt) error
}

// Delegate is an agent that work may be handed to.
type Delegate struct {
	Host  string // name inside
	Port  uint16
	URL   string // where it is, for this machine: http or https
	Scope string // what it may do; "": the request's method and path
}

const (
	// mostBound is how much of a request is read ahead so that the receipt names its digest, in bytes. A longer one is
	// handed over without.
	mostBound = 1 << 20
	// mostAsserted bounds how many requests with a receipt that isn't one are recorded.
	mostAsserted = 1000
	// freshness is how old a receipt may be that comes with a request.
	freshness = 10 * time.Minute
)

// beginWork makes the run a party to delegations and accepts what it was asked for.
func (s *run) beginWork(ctx context.Context) error {
	d := &s.o.Delegation
	if len(d.To) == 0 && d.By == nil && (s.o.Service == nil || !s.o.Service.Published) {
		return nil
	}
	if s.o.Sealing == nil {
		return errors.New("work that is handed on needs a ledger to be recorded in")
	}
	s.party = s.w.Party(s.o.Sealing.Signers)
	s.undo = append(s.undo, s.party.Close)
	if d.By == nil {
		return nil
	}
	accepted, err := s.party.Accept(ctx, d.By, 0, nil)
	if err != nil {
		return fmt.Errorf("accepting what this run was asked for: %w", err)
	}
	if d.Accepted != nil {
		return d.Accepted(accepted)
	}
	return nil
}

// asked is the request that an action of this run goes back to.
func (s *run) asked() *bodycam.Delegation {
	r := s.o.Delegation.By
	if r == nil {
		return nil
	}
	t, err := r.Terms()
	if err != nil {
		return nil // it was accepted, so it has terms
	}
	log := r.Log()
	return &bodycam.Delegation{Requester: r.Genesis.Recorder, Parent: hex.EncodeToString(r.Record[:]), Scope: t.Scope,
		Log: hex.EncodeToString(log[:]), Signature: r.Signatures[0]}
}

// delegates lets receipts go with what is forwarded to other agents.
func (s *run) delegates(o *names.Options) {
	for _, d := range s.o.Delegation.To {
		i := slices.IndexFunc(o.Forwards, func(f names.Forward) bool { return f.Host == d.Host && f.Port == d.Port })
		if i < 0 {
			i = len(o.Forwards)
			o.Forwards = append(o.Forwards, names.Forward{Host: d.Host, Port: d.Port})
		}
		o.Forwards[i].Target = d.URL
		o.Forwards[i].Wrap = func(next http.RoundTripper) http.RoundTripper { return &handOver{s, d, next} }
	}
}

// handOver adds a receipt to every request that hands something over, and takes the answer's.
type handOver struct {
	s    *run
	d    Delegate
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper]. A request that couldn't be recorded isn't sent.
func (h *handOver) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	out := req.Clone(ctx)
	out.Header.Del(delegation.Header) // the agent's own counts for nothing
	if req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions {
		return h.next.RoundTrip(out)
	}
	t := delegation.Terms{To: fmt.Sprintf("%s:%d", h.d.Host, h.d.Port), Scope: h.d.Scope}
	if t.Scope == "" {
		t.Scope = clip(req.Method + " " + req.URL.Path)
	}
	var err error
	if out.Body, t.Subject, err = bound(out); err != nil {
		return nil, fmt.Errorf("reading what is handed over: %w", err)
	}
	asked, err := h.s.party.Request(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("recording what is handed over: %w", err)
	}
	out.Header.Set(delegation.Header, asked.HeaderValue())
	resp, err := h.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if v := resp.Header.Get(delegation.Header); v != "" {
		resp.Header.Del(delegation.Header)
		h.answered(context.WithoutCancel(ctx), asked, v)
	} else {
		h.s.noteOnce("%s answered without a receipt: whether it recorded the request isn't known", t.To)
	}
	return resp, nil
}

// answered records an answer's receipt. One that doesn't hold is noted; what was answered goes through all the same.
func (h *handOver) answered(ctx context.Context, asked *delegation.Receipt, value string) {
	accepted, err := delegation.ParseHeaderValue(value)
	if err == nil {
		err = h.s.party.Acknowledge(ctx, asked, accepted)
	}
	if err != nil {
		h.s.noteOnce("%s:%d answered with a receipt that doesn't hold: %v", h.d.Host, h.d.Port, err)
	}
}

// clip shortens a text to what a receipt may hold of it.
func clip(s string) string {
	return bodycam.Printable(s[:min(len(s), 200)])
}

// bound reads a request's body, if it isn't too long, and returns it again with its digest. What gRPC sends may go on while
// it is answered, and isn't waited for.
func bound(req *http.Request) (io.ReadCloser, *ledger.Hash, error) {
	body := req.Body
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc") {
		return body, nil, nil
	}
	if body == nil || body == http.NoBody {
		sum := ledger.Hash(sha256.Sum256(nil))
		return body, &sum, nil
	}
	head, err := io.ReadAll(io.LimitReader(body, mostBound+1))
	if err != nil {
		return nil, nil, err
	}
	if len(head) <= mostBound {
		sum := ledger.Hash(sha256.Sum256(head))
		return &rest{bytes.NewReader(head), body}, &sum, nil
	}
	return &rest{io.MultiReader(bytes.NewReader(head), body), body}, nil, nil
}

// rest reads from one and closes the other.
type rest struct {
	io.Reader
	io.Closer
}

// noteOnce adds a note to the run, once. Many goroutines call it.
func (s *run) noteOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.update(func(r *bodycam.Run) {
		if !slices.Contains(r.Notes, text) && len(r.Notes) < 1000 {
			r.Notes = append(r.Notes, text)
		}
	})
}

// Publish lets others use the service at a listener, through the recorder: a request's receipt is checked, accepted and
// answered. It returns when the context ends, or after so many requests that handed something over (0: any number).
func (i *Inside) Publish(ctx context.Context, l net.Listener, most int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	rp := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&url.URL{Scheme: "http", Host: "service.invalid"}) // Dial knows where
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport: &http.Transport{DialContext: i.Dial, DisableCompression: true}, FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(delegation.Header) // the agent's own counts for nothing
			return nil
		},
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		handed, err := i.take(rw, r)
		if err != nil {
			http.Error(rw, "bodycam: "+err.Error(), http.StatusForbidden)
			return
		}
		if err := names.PassOn(rp, rw, r); err != nil {
			http.Error(rw, "bodycam: "+err.Error(), http.StatusInternalServerError)
			return
		}
		if handed && done.Add(1) == most {
			go stop() // after this answer was written
		}
	})}
	ended := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(end) // what isn't finished by then is cut off
	})
	defer ended()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("publishing the service: %w", err)
	}
	return nil
}

// take looks for a receipt in a request and answers it. A request without one, or with one that isn't signed, is recorded as
// asserted; one that is replayed, or came with another body, is refused.
func (i *Inside) take(rw http.ResponseWriter, r *http.Request) (handed bool, err error) {
	p, value := i.s.party, r.Header.Get(delegation.Header)
	r.Header.Del(delegation.Header)
	if p == nil || value == "" {
		return false, nil
	}
	asked, err := delegation.ParseHeaderValue(value)
	if err == nil {
		err = asked.Verify()
	}
	if err != nil {
		// Anybody can send such, and as much as he likes: those beyond are counted by a note alone.
		if i.s.asserted.Add(1) > mostAsserted {
			i.s.noteOnce("more than %d requests came with what is no receipt: the others aren't recorded as asserted", mostAsserted)
			return true, nil
		}
		return true, p.Asserted(r.Context(), []byte(value))
	}
	body, subject, err := bound(r)
	if err != nil {
		return false, fmt.Errorf("reading the request: %w", err)
	}
	r.Body = body
	if t, terr := asked.Terms(); subject == nil && (terr != nil || t.Subject != nil) {
		return false, fmt.Errorf("%w: the body is too long to tell", delegation.ErrSubject)
	}
	accepted, err := p.Accept(r.Context(), asked, freshness, subject)
	if err != nil {
		i.s.noteOnce("a request was refused: %v", err)
		return false, err
	}
	rw.Header().Set(delegation.Header, accepted.HeaderValue())
	return true, nil
}
