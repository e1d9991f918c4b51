package names

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// web serves the HTTP that the proxy takes part in: TLS that it opens, forwards to URLs, and the stand-in. One
// http.Server does it for all connections, which are handed to it one by one.
type web struct {
	p      *Proxy
	server *http.Server
	conns  chan net.Conn
	start  sync.Once
	done   chan struct{}
}

// webConn is a connection handed to web, with what is to become of its requests.
type webConn struct {
	net.Conn
	work *work
}

// work says what becomes of the requests of a connection.
type work struct {
	c         *conn
	scheme    string
	sni       string
	forward   *forward
	standIn   bool
	transport *http.Transport // to the connection's host; nil for forwards and the stand-in
}

type workKey struct{}

func newWeb(p *Proxy) *web {
	w := &web{p: p, conns: make(chan net.Conn), done: make(chan struct{})}
	var protos http.Protocols
	protos.SetHTTP1(true)
	protos.SetHTTP2(true)
	protos.SetUnencryptedHTTP2(true) // gRPC without TLS, to forwards and the stand-in
	w.server = &http.Server{Handler: w, Protocols: &protos, DisableGeneralOptionsHandler: true,
		ErrorLog: log.New(io.Discard, "", 0), // what matters of it is in the flow's event
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, workKey{}, workOf(c))
		}}
	return w
}

func workOf(c net.Conn) *work {
	switch c := c.(type) {
	case *webConn:
		return c.work
	case *tls.Conn:
		return workOf(c.NetConn())
	}
	return nil
}

// Accept, Close and Addr make web the listener of its own server.
func (w *web) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *web) Close() error   { return nil }
func (w *web) Addr() net.Addr { return &net.TCPAddr{} }

func (w *web) close() {
	close(w.done)
	_ = w.server.Close()
}

// serve hands a connection to the server and waits for its end.
func (w *web) serve(c net.Conn, s *stream) {
	w.start.Do(func() { go func() { _ = w.server.Serve(w) }() }) // ends with close, and with nothing else
	select {
	case w.conns <- c:
	case <-w.done:
		c.Close()
	}
	<-s.done
}

// ServeHTTP records one request and what was answered.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	k, _ := r.Context().Value(workKey{}).(*work)
	if k == nil {
		panic(http.ErrAbortHandler) // a connection that serve did not hand over: there is none
	}
	x := w.begin(k, r)
	defer x.end()
	if k.standIn {
		standInHTTP(rw, r, x)
		return
	}
	if why := k.c.screen(r.Host, false, "HTTP host"); why != "" {
		x.c.Err, x.errno = why, unix.EACCES
		x.answered(http.StatusForbidden, nil)
		http.Error(rw, "bodycam: "+why, http.StatusForbidden)
		return
	}
	w.relay(rw, r, x)
}

// exchange is a request under way.
type exchange struct {
	w        *web
	k        *work
	c        Content
	request  *capture
	response *capture
	errno    unix.Errno // why it failed, with c.Err
	once     sync.Once
}

func (w *web) begin(k *work, r *http.Request) *exchange {
	w.p.stats.http.seen.Add(1)
	wall, boot := now()
	x := &exchange{w: w, k: k, request: newCapture(w.p.o.MaxBody), response: newCapture(w.p.o.MaxBody)}
	host, _ := k.c.host()
	if host == "" {
		host = k.sni
	}
	u := url.URL{Scheme: k.scheme, Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	target := "upstream"
	if k.forward != nil {
		target = "forward"
	} else if k.standIn {
		target = "stand-in"
	}
	x.c = Content{Time: wall, Boot: boot, Proto: r.Proto, Client: k.c.client, Remote: k.c.dst, Host: host, Target: target,
		Method: r.Method, URL: u.String(), RequestHeader: headerNames(r.Header)}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &captured{r.Body, x.request}
	}
	return x
}

// answered emits the event once the status is known; 0 if there was no answer.
func (x *exchange) answered(status int, h http.Header) {
	x.once.Do(func() {
		x.c.Status, x.c.ResponseHeader = status, headerNames(h)
		e := x.k.c.event(bodycam.TypeHTTP)
		u, err := url.Parse(x.c.URL)
		if err == nil {
			e.Host, _ = splitHostPort(u.Host)
		}
		e.HostSource = bodycam.HostHTTP
		e.Detail = x.c.Method + " " + word(x.c.URL) + " " + x.c.Proto + " status=" + strconv.Itoa(status)
		if x.c.Err != "" {
			e.Errno = int32(x.errno)
			e.Detail += " error=" + word(x.c.Err)
		}
		if len(x.c.URL) > 1024 {
			e.Marks |= bodycam.MarkTruncated
		}
		x.k.c.emitNamed(&x.w.p.stats.http, &e)
	})
}

// end hands the contents over when the exchange is finished.
func (x *exchange) end() {
	x.answered(0, nil)
	if x.w.p.o.Content == nil {
		return
	}
	x.c.Request, x.c.Response = x.request.result(), x.response.result()
	x.w.p.o.Content(&x.c)
}

// relay passes a request on to where the connection leads, and the answer back as it comes.
func (w *web) relay(rw http.ResponseWriter, r *http.Request, x *exchange) {
	k := x.k
	var injected http.Header
	if k.forward != nil && k.forward.Header != nil {
		var err error
		if injected, err = k.forward.Header(); err != nil {
			x.failed(rw, err)
			return
		}
	}
	var transport http.RoundTripper = k.transport
	if k.forward != nil {
		transport = k.forward.transport
	}
	rp := httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := pr.In.Header[name]; ok { // ReverseProxy takes them off; the request is to stay as it was
					pr.Out.Header[name] = v
				}
			}
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			if k.forward != nil {
				pr.SetURL(k.forward.url)
				for name, v := range injected {
					pr.Out.Header[http.CanonicalHeaderKey(name)] = v
				}
				return
			}
			pr.Out.URL.Scheme, pr.Out.URL.Host = k.scheme, net.JoinHostPort("upstream.invalid", strconv.Itoa(int(k.c.dst.Port())))
			pr.Out.Host = pr.In.Host // the connection's own transport knows where to go
		},
		Transport: transport, FlushInterval: -1, ErrorLog: w.server.ErrorLog,
		ModifyResponse: func(resp *http.Response) error {
			x.answered(resp.StatusCode, resp.Header)
			if d, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
				resp.Body = &capturedDuplex{d, x.response, x.request}
			} else {
				resp.Body = &captured{resp.Body, x.response}
			}
			return nil
		},
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, err error) { x.failed(rw, err) },
	}
	if err := PassOn(&rp, rw, r); err != nil {
		x.failed(rw, err)
	}
}

// PassOn has a reverse proxy answer a request. The answer may come before the request was read to its end: the server would
// then close the body under the transport's hands, which would cut the answer off, were it not told that both go on at a time.
func PassOn(rp *httputil.ReverseProxy, rw http.ResponseWriter, r *http.Request) error {
	if err := http.NewResponseController(rw).EnableFullDuplex(); err != nil {
		return err
	}
	rp.ServeHTTP(rw, r)
	return nil
}

// failed answers for a request that could not be passed on.
func (x *exchange) failed(rw http.ResponseWriter, err error) {
	x.c.Err, x.errno = err.Error(), errnoOf(err)
	var refused *refusal
	if errors.As(err, &refused) {
		x.errno = unix.EACCES
	}
	x.answered(http.StatusBadGateway, nil)
	http.Error(rw, "bodycam: the request could not be passed on", http.StatusBadGateway)
}

// serveForward serves a connection to a forward with a URL as target, in TLS too if there is a CA for it.
func (c *conn) serveForward(f *forward) {
	k := &work{c: c, scheme: "http", forward: f}
	c.upstream = f.url.Host
	if c.p.ca != nil {
		c.peek(helloWait, true)
		if len(c.pre) > 0 && c.pre[0] == 22 {
			c.open(k)
			return
		}
	}
	c.sniff.name("http")
	s := c.stream()
	c.p.web.serve(&webConn{s, k}, s)
}

// intercept takes part in a connection that speaks TLS or HTTP, and passes others on as they are. A client may
// take its time: what it is decided by is who speaks first, not when.
func (c *conn) intercept() {
	c.peek(c.p.o.firstWait, true)
	var up net.Conn
	var greeting []byte
	if len(c.pre) == 0 {
		var err error
		if up, err = c.dialOut(c.p.ctx); err != nil {
			c.unreached(err)
			return
		}
		defer up.Close()
		cl := c.p.onClose(func() { up.Close() })
		defer c.p.forget(cl)
		if c.pre, greeting, err = whoSpeaksFirst(c.raw, up); err != nil {
			c.broken(err, up)
			c.reset()
			return
		}
		if len(c.pre) > 0 && len(greeting) == 0 {
			c.peek(helloWait, true)
		}
	}
	if len(greeting) > 0 || !c.speaksWeb() {
		if up == nil {
			c.carry(c.dialOut)
			return
		}
		c.pass(up, greeting)
		return
	}
	if up != nil {
		up.Close()
	}
	k := &work{c: c, scheme: "http", transport: c.transport()}
	defer k.transport.CloseIdleConnections()
	if c.pre[0] == 22 {
		c.open(k)
		return
	}
	c.sniff.name("http")
	s := c.stream()
	c.p.web.serve(&webConn{s, k}, s)
}

// speaksWeb tells whether what the client has said so far begins TLS or an HTTP request.
func (c *conn) speaksWeb() bool {
	if len(c.pre) == 0 {
		return false
	}
	plain, _ := looksHTTP(c.pre)
	return c.pre[0] == 22 || plain && !hasPrefixPartly(c.pre, "CONNECT ") && !hasPrefixPartly(c.pre, "PRI * HTTP/2.0")
}

// whoSpeaksFirst waits until one of two sides says something or ends, and returns what they said.
func whoSpeaksFirst(a, b net.Conn) (fromA, fromB []byte, err error) {
	bufA, bufB := make([]byte, 4096), make([]byte, 4096)
	past := time.Unix(1, 0)
	n, m := 0, 0
	var errA, errB error
	done := make(chan bool)
	go func() {
		m, errB = b.Read(bufB)
		_ = a.SetReadDeadline(past) // wakes the other read; fails only on a connection that is gone, where it has woken
		close(done)
	}()
	n, errA = a.Read(bufA)
	_ = b.SetReadDeadline(past)
	<-done
	_, _ = a.SetReadDeadline(time.Time{}), b.SetReadDeadline(time.Time{})
	for _, e := range []error{errA, errB} {
		if e != nil && e != io.EOF && !isTimeout(e) {
			err = e
		}
	}
	return bufA[:n], bufB[:m], err
}

// transport makes requests to the connection's own host.
func (c *conn) transport() *http.Transport {
	return &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		up, err := c.dialOut(ctx)
		if err == nil {
			c.reached(up)
		}
		return up, err
	}}
}

// open ends the client's TLS here and carries what is inside.
func (c *conn) open(k *work) {
	h, err := parseHello(c.pre)
	if err != nil {
		c.sniff.feed(c.pre)
		c.fail("failed", err)
		c.reset()
		return
	}
	c.opened = true
	c.sniff.name("tls")
	c.tlsFound(&h)
	if c.blocked != "" && !k.standIn {
		c.fail("", &refusal{c.blocked})
		c.reset()
		return
	}
	k.scheme, k.sni = "https", h.sni
	name := h.sni
	if name == "" {
		if name, _ = c.host(); name == "" {
			name = c.dst.Addr().String()
		}
	}
	cert, err := c.p.ca.leaf(name)
	if err != nil {
		c.fail("failed", err)
		c.reset()
		return
	}
	s := c.stream()
	defer s.Close()
	wc := &webConn{s, k}
	tc := tls.Server(wc, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: offered(h.alpn)})
	ctx, cancel := context.WithTimeout(c.p.ctx, helloWait)
	err = tc.HandshakeContext(ctx)
	cancel()
	if err != nil {
		c.outcome, c.why, c.errno = "client-refused-tls", err.Error(), errnoOf(err)
		return
	}
	c.serveOpened(tc, s, k, name)
}

// offered picks the protocols that the proxy speaks out of what the client offers, in the client's order; with
// none of them in the offer the first of the client's is taken, and bytes are passed on as they are.
func offered(alpn []string) []string {
	var out []string
	for _, a := range alpn {
		if a == "h2" || a == "http/1.1" {
			out = append(out, a)
		}
	}
	if len(out) == 0 && len(alpn) > 0 {
		return alpn[:1]
	}
	return out
}

// serveOpened carries what is inside the client's TLS.
func (c *conn) serveOpened(tc *tls.Conn, s *stream, k *work, name string) {
	proto := tc.ConnectionState().NegotiatedProtocol
	if k.transport != nil {
		var protos http.Protocols
		protos.SetHTTP1(proto != "h2")
		protos.SetHTTP2(proto == "h2")
		k.transport.Protocols = &protos
		k.transport.TLSClientConfig = &tls.Config{RootCAs: c.p.o.Roots, ServerName: name}
	}
	if proto == "h2" || proto == "http/1.1" {
		c.p.web.serve(tc, s)
		return
	}
	first := c.firstInside(tc, k)
	var up *tls.Conn
	var greeting []byte
	if len(first) == 0 && k.transport != nil {
		var err error
		if up, err = c.dialInside(name, proto); err != nil {
			return
		}
		defer up.Close()
		cl := c.p.onClose(func() { up.Close() })
		defer c.p.forget(cl)
		if first, greeting, err = whoSpeaksFirst(tc, up); err != nil {
			c.broken(err, up.NetConn())
			return
		}
	}
	if ok, _ := looksHTTP(first); len(first) > 0 && len(greeting) == 0 && ok {
		if up != nil {
			up.Close()
		}
		c.p.web.serve(&webConn{&replay{Conn: tc, pre: first}, k}, s)
		return
	}
	if k.standIn {
		c.standInRaw(&replay{Conn: tc, pre: first}, "tls")
		return
	}
	if k.transport == nil {
		return // a forward to a URL takes HTTP alone
	}
	if up == nil {
		var err error
		if up, err = c.dialInside(name, proto); err != nil {
			return
		}
		defer up.Close()
	}
	c.passInside(tc, up, first, greeting)
}

// firstInside is what the client says inside its TLS; nothing if it waits for the server.
func (c *conn) firstInside(tc *tls.Conn, k *work) []byte {
	first := make([]byte, 4096)
	if k.transport != nil || speaksFirst(c.dst.Port()) || isMailPort(c.dst.Port()) {
		_ = tc.SetReadDeadline(time.Now().Add(c.p.o.firstWait)) // fails only on a connection that is gone
	}
	n, _ := tc.Read(first) // an end or error comes again with the next read
	_ = tc.SetReadDeadline(time.Time{})
	return first[:n]
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// replay reads bytes again that were read from a connection.
type replay struct {
	net.Conn
	pre []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.pre) > 0 {
		n := copy(b, r.pre)
		r.pre = r.pre[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

func (r *replay) CloseWrite() error { return closeWrite(r.Conn) }
