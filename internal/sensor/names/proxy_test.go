package names

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

func TestHTTPIsNamedAndForwarded(t *testing.T) {
	b := newBench(t, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %d", r.Method, r.Host, r.URL, len(body))
	}))
	defer srv.Close()
	port := portOf(srv.Listener.Addr())
	tr := &http.Transport{DialContext: b.dialContext}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for i, path := range []string{"/one?x=1", "/two", "/three"} {
		body := io.Reader(strings.NewReader(strings.Repeat("b", 100_000*i)))
		if i == 2 {
			body = io.MultiReader(body) // of unknown length: chunked
		}
		resp, err := c.Post("http://web.test:"+port+path, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := readAll(t, resp.Body), fmt.Sprintf("POST web.test:%s %s %d", port, path, 100_000*i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	tr.CloseIdleConnections()
	flow := b.wait("flow", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeFlow })
	if flow.Host != "web.test" || flow.HostSource != bodycam.HostDNS || flow.BytesWritten < 300_000 || flow.BytesRead == 0 || flow.Errno != 0 {
		t.Error(show(&flow))
	}
	want(t, flow, "upstream=127.0.0.1:"+port, "outcome=ok", "proto=http")
	b.stop()
	var heads []string
	for _, e := range b.events {
		if e.Type == bodycam.TypeHTTP {
			heads = append(heads, e.Host+" "+e.HostSource.String()+" "+e.Detail)
		}
	}
	if got, want := strings.Join(heads, "|"), "web.test http POST /one?x=1 HTTP/1.1|web.test http POST /two HTTP/1.1|web.test http POST /three HTTP/1.1"; got != want {
		t.Errorf("requests on one connection: %s\nwant %s", got, want)
	}
}

func TestTLSIsNamedNotOpened(t *testing.T) {
	b := newBench(t, nil)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "secret") }))
	defer srv.Close()
	port := portOf(srv.Listener.Addr())
	cert := srv.Certificate()
	tr := &http.Transport{DialContext: b.dialContext, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if !cs.PeerCertificates[0].Equal(cert) {
				return errors.New("not the server's certificate: somebody is in between")
			}
			return nil
		}}}
	resp, err := (&http.Client{Transport: tr}).Get("https://web.test:" + port + "/path")
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp.Body); got != "secret" {
		t.Errorf("got %q", got)
	}
	tr.CloseIdleConnections()
	e := b.wait("tls", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeTLS })
	if e.Host != "web.test" || e.HostSource != bodycam.HostSNI || !e.Remote.IsValid() || !e.Local.IsValid() {
		t.Error(show(&e))
	}
	want(t, e, "tls=1.3", "alpn=h2,http/1.1")
	// An address as such: the ClientHello alone tells a name.
	c := b.mustDial("127.0.0.1:" + port)
	tc := tls.Client(c, &tls.Config{ServerName: "cover.test", InsecureSkipVerify: true})
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	tc.Close()
	if f := b.flow(c); f.Host != "cover.test" || f.HostSource != bodycam.HostSNI {
		t.Error(show(&f))
	}
	b.stop()
	h := b.p.Health()
	found := false
	for _, bl := range h.Blind {
		found = found || bl.What == "tls-content" && bl.Count == 2 && bl.Inherent
	}
	if !found {
		t.Errorf("the blind spot is not named: %+v", h.Blind)
	}
}

// A server that speaks first must not wait for the client.
func TestServerFirst(t *testing.T) {
	b := newBench(t, func(o *Options) { o.firstWait = time.Hour })
	for _, banner := range []string{"220 mail ESMTP\r\n", "SSH-2.0-OpenSSH_9.9\r\n"} {
		port := listen(t, func(c *net.TCPConn) {
			io.WriteString(c, banner)
			line, _ := bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "you said "+line)
		})
		c := b.mustDial("mail.test:" + port)
		c.SetReadDeadline(time.Now().Add(time.Minute)) // it comes at once, or after an hour
		r := bufio.NewReader(c)
		got, err := r.ReadString('\n')
		if err != nil || got != banner {
			t.Fatalf("got %q, %v: something waits for the client", got, err)
		}
		io.WriteString(c, "SSH-2.0-client x\r\n")
		if got, _ := r.ReadString('\n'); got != "you said SSH-2.0-client x\r\n" {
			t.Errorf("got %q", got)
		}
		c.Close()
		f := b.flow(c)
		want(t, f, "proto=ssh", "banner=SSH-2.0-client_x")
		if f.Host != "mail.test" || f.BytesRead != uint64(len(banner)+len("you said SSH-2.0-client x\r\n")) || f.BytesWritten != 18 {
			t.Error(show(&f))
		}
	}
}

func TestHalfClose(t *testing.T) {
	b := newBench(t, nil)
	port := listen(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c) // until the client's end
		fmt.Fprintf(c, "%d bytes", len(all))
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, ", late")
	})
	for _, n := range []int{0, 1, 5, 200_000} {
		c := b.mustDial("web.test:" + port)
		if _, err := c.Write(bytes.Repeat([]byte("\xff"), n)); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, want := readAll(t, c), fmt.Sprintf("%d bytes, late", n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if f := b.flow(c); f.BytesWritten != uint64(n) || f.Errno != 0 {
			t.Error(show(&f))
		}
	}
	// The other way: the server ends first and goes on reading.
	got := make(chan string, 1)
	port = listen(t, func(c *net.TCPConn) {
		io.WriteString(c, "bye")
		c.CloseWrite()
		all, _ := io.ReadAll(c)
		got <- string(all)
	})
	c := b.mustDial("web.test:" + port)
	if s := readAll(t, c); s != "bye" {
		t.Errorf("got %q", s)
	}
	io.WriteString(c, "after your end")
	c.CloseWrite()
	if s := <-got; s != "after your end" {
		t.Errorf("the server got %q", s)
	}
}

func TestFailuresShowAsResets(t *testing.T) {
	b := newBench(t, func(o *Options) { o.DialTimeout = 300 * time.Millisecond })
	closed := func() string { // a port that nothing listens on
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return portOf(l.Addr())
	}()
	full := fullListener(t)
	for _, c := range []struct {
		to, outcome string
		errno       unix.Errno
	}{
		{"web.test:" + closed, "outcome=refused", unix.ECONNREFUSED},
		{"web.test:" + full, "outcome=timed-out", unix.ETIMEDOUT},
		{"rebind.test:80", "outcome=refused-by-policy why=", unix.EACCES},
		{"169.254.169.254:80", "outcome=refused-by-policy why=a_private_network", unix.EACCES},
		{"198.18.99.99:80", "why=no_name_has_that_address", unix.EACCES},
		{"[::1]:80", "why=the_host_itself", unix.EACCES},
		{"[::ffff:10.0.0.1]:80", "why=a_private_network", unix.EACCES},
		{"[64:ff9b::a00:1]:80", "why=a_private_network", unix.EACCES},
	} {
		conn := b.mustDial(c.to)
		io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: named.test\r\n\r\n")
		if _, err := io.ReadAll(conn); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: got %v, want a reset", c.to, err)
		}
		f := b.flow(conn)
		want(t, f, c.outcome)
		if unix.Errno(f.Errno) != c.errno {
			t.Error(show(&f))
		}
		// What the attempt was for is recorded all the same.
		if e := b.of(bodycam.TypeHTTP, conn); e.Host != "named.test" {
			t.Error(show(&e))
		}
	}
}

// fullListener returns a port whose queue is full: attempts to connect are not answered.
func fullListener(t *testing.T) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port)
	for range 2 {
		if c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond); err == nil {
			t.Cleanup(func() { c.Close() })
		}
	}
	return addr[len("127.0.0.1:"):]
}

func TestResetsArePassedOn(t *testing.T) {
	b := newBench(t, nil)
	serverErr := make(chan error, 1)
	port := listen(t, func(c *net.TCPConn) {
		buf := make([]byte, 1)
		io.ReadFull(c, buf)
		if buf[0] == 'r' {
			c.SetLinger(0)
			return
		}
		io.WriteString(c, "ok")
		_, err := io.ReadAll(c)
		serverErr <- err
	})
	c := b.mustDial("web.test:" + port)
	io.WriteString(c, "r")
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server's reset came as %v", err)
	}
	f := b.flow(c)
	want(t, f, "outcome=reset-by-upstream")
	if f.Errno != int32(unix.ECONNRESET) {
		t.Error(show(&f))
	}

	c = b.mustDial("web.test:" + port)
	io.WriteString(c, "x")
	io.ReadFull(c, make([]byte, 2))
	c.SetLinger(0)
	c.Close()
	if err := <-serverErr; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client's reset came as %v", err)
	}
	want(t, b.flow(c), "outcome=reset-by-client")
}

func TestBigTransferIsExact(t *testing.T) {
	const size = 100 << 20
	b := newBench(t, nil)
	port := listen(t, func(c *net.TCPConn) {
		h := sha256.New()
		io.CopyN(h, c, size)
		r := rand.NewChaCha8([32]byte{2})
		io.CopyN(c, r, size)
		c.Write(h.Sum(nil))
	})
	c := b.mustDial("web.test:" + port)
	h := sha256.New()
	if _, err := io.CopyN(c, io.TeeReader(rand.NewChaCha8([32]byte{1}), h), size); err != nil {
		t.Fatal(err)
	}
	down, want2 := sha256.New(), sha256.New()
	if _, err := io.CopyN(down, c, size); err != nil {
		t.Fatal(err)
	}
	io.CopyN(want2, rand.NewChaCha8([32]byte{2}), size)
	if !bytes.Equal(down.Sum(nil), want2.Sum(nil)) {
		t.Error("what came down is not what was sent")
	}
	if got := readAll(t, c); got != string(h.Sum(nil)) {
		t.Error("what went up is not what arrived")
	}
	c.Close()
	if f := b.flow(c); f.BytesWritten != size || f.BytesRead != size+32 {
		t.Error(show(&f))
	}
}

func TestManyAtOnce(t *testing.T) {
	b := newBench(t, nil)
	port := listen(t, func(c *net.TCPConn) { io.Copy(c, c) })
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := b.dial("web.test:" + port)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(30 * time.Second))
			msg := strings.Repeat(fmt.Sprintf("\x00connection %d;", i), 2000)
			go func() {
				io.WriteString(c, msg)
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || string(got) != msg {
				t.Errorf("connection %d: %d of %d bytes, %v", i, len(got), len(msg), err)
			}
		}()
	}
	wg.Wait()
	b.stop()
	flows := 0
	for _, e := range b.events {
		if e.Type == bodycam.TypeFlow && e.Errno == 0 && e.BytesRead == e.BytesWritten && e.BytesRead > 20_000 {
			flows++
		}
	}
	if flows != n {
		t.Errorf("%d of %d flows", flows, n)
	}
}

func TestTooManyAndTooMuch(t *testing.T) {
	b := newBench(t, func(o *Options) { o.MaxConns = 2 })
	port := listen(t, func(c *net.TCPConn) { io.Copy(c, c) })
	for range 2 {
		c := b.mustDial("web.test:" + port)
		io.WriteString(c, "\x00")
		io.ReadFull(c, make([]byte, 1))
	}
	c := b.mustDial("web.test:" + port)
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the third connection got %v", err)
	}
	f := b.flow(c)
	want(t, f, "why=too_many_connections_at_once")
	if f.Errno != int32(unix.EMFILE) {
		t.Error(show(&f))
	}

	b = newBench(t, func(o *Options) { o.MaxBytes = 1 << 20 })
	c = b.mustDial("web.test:" + port)
	go io.Copy(c, io.LimitReader(zeros{}, 10<<20))
	if got, _ := io.ReadAll(c); len(got) > 1<<20 {
		t.Error("10 MiB passed a limit of 1")
	}
	f = b.flow(c)
	want(t, f, "why=the_run's_limit_of_network_bytes_is_reached")
	if got := f.BytesRead + f.BytesWritten; got > 1<<20+256<<10 {
		t.Errorf("%d bytes passed", got)
	}
	c = b.mustDial("web.test:" + port)
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a connection after the limit was made")
	}
	b.flow(c)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A client that sends its hello a byte at a time is named, and nobody else waits for it.
func TestSlowClient(t *testing.T) {
	b := newBench(t, nil)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer srv.Close()
	c := b.mustDial("web.test:" + portOf(srv.Listener.Addr()))
	tc := tls.Client(dribble{c}, &tls.Config{ServerName: "web.test", InsecureSkipVerify: true})
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if e := b.of(bodycam.TypeTLS, c); e.Host != "web.test" {
		t.Error(show(&e))
	}
}

type dribble struct{ *net.TCPConn }

func (d dribble) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := d.TCPConn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

func TestGarbagePassesUnharmed(t *testing.T) {
	b := newBench(t, nil)
	port := listen(t, func(c *net.TCPConn) { io.Copy(c, c) })
	r := rand.New(rand.NewPCG(1, 2))
	starts := []string{"\x16\x03\x01", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "\x05\x01\x00", "\x04\x01", "SSH-", "PRI * HTTP/2.0\r\n\r\n",
		"CONNECT a.test:443 HTTP/1.1\r\n\r\n\x16\x03\x01\xff\xff", "00ffgit-upload-pack ", "", "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"}
	for i, s := range starts {
		msg := []byte(s)
		for range 5000 {
			msg = append(msg, byte(r.Uint32()))
		}
		c := b.mustDial("web.test:" + port)
		c.Write(msg)
		c.CloseWrite()
		if got := readAll(t, c); got != string(msg) {
			t.Errorf("%d: %d bytes of %d came back", i, len(got), len(msg))
		}
	}
}

func TestConnectAndSOCKSNameTheirTargets(t *testing.T) {
	b := newBench(t, nil)
	tlsPort := listen(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	_ = tlsPort
	// A proxy that agrees to everything and then hangs on to the bytes.
	port := listen(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		first, _ := r.Peek(1)
		switch {
		case len(first) == 0:
		case first[0] == 5:
			r.Discard(3)
			c.Write([]byte{5, 0})
			r.Discard(4)
			n, _ := r.ReadByte()
			r.Discard(int(n) + 2)
			c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		case first[0] == 4:
			r.Discard(8)
			r.ReadString(0)
			r.ReadString(0)
			c.Write([]byte{0, 90, 0, 0, 0, 0, 0, 0})
		default:
			http.ReadRequest(r)
			io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		}
		io.Copy(io.Discard, r)
	})
	hello := func(c net.Conn, name string) {
		tls.Client(c, &tls.Config{ServerName: name}).HandshakeContext(shortContext(t))
	}
	for _, k := range []struct {
		open   func(c net.Conn)
		detail string
	}{
		{func(c net.Conn) {
			io.WriteString(c, "CONNECT hidden.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
			http.ReadResponse(bufio.NewReader(c), nil)
		}, "CONNECT hidden.test:443 HTTP/1.1"},
		{func(c net.Conn) {
			c.Write([]byte{5, 1, 0})
			io.ReadFull(c, make([]byte, 2))
			c.Write(append(append([]byte{5, 1, 0, 3, 11}, "hidden.test"...), 1, 187))
			io.ReadFull(c, make([]byte, 10))
		}, "SOCKS5 hidden.test:443"},
		{func(c net.Conn) {
			c.Write(append(append([]byte{4, 1, 1, 187, 0, 0, 0, 1}, "me\x00hidden.test"...), 0))
			io.ReadFull(c, make([]byte, 8))
		}, "SOCKS4 hidden.test:443"},
	} {
		c := b.mustDial("far.test:" + port)
		_ = c
		c.Close()
		c = b.mustDial("web.test:" + port)
		k.open(c)
		hello(c, "inner.test")
		c.Close()
		e := b.of(bodycam.TypeHTTP, c)
		if e.Host != "hidden.test" || e.HostSource != bodycam.HostConnect {
			t.Error(show(&e))
		}
		want(t, e, k.detail, "dns=web.test")
		if e := b.of(bodycam.TypeTLS, c); e.Host != "inner.test" {
			t.Error(show(&e))
		}
		want(t, b.flow(c), "+tls")
	}
}

func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestAllowMode(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Mode, o.Allow = Allow, []string{"web.test", "*.ok.test", "127.0.0.3/32"}
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	defer srv.Close()
	port := portOf(srv.Listener.Addr())
	get := func(to, host string) (string, net.Conn, error) {
		c := b.mustDial(to)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return "", c, err
		}
		return readAll(t, resp.Body), c, nil
	}
	if got, _, err := get("web.test:"+port, "web.test"); got != "ok" {
		t.Errorf("a listed host: %q, %v", got, err)
	}
	// A listed name with a request for another: the server would answer it.
	_, c, err := get("web.test:"+port, "other.test")
	if err == nil {
		t.Error("a request for a host that is not listed passed under a listed name")
	}
	want(t, b.flow(c), "refused-by-policy", "why=HTTP_host_other.test_is_not_on_the_allow_list")
	c2 := b.mustDial("web.test:" + port)
	if tls.Client(c2, &tls.Config{ServerName: "other.test"}).Handshake() == nil {
		t.Error("a TLS name that is not listed passed")
	}
	want(t, b.flow(c2), "why=TLS_name_other.test")

	// Names that are not listed don't leave, not even as a question.
	if _, err := b.lookup("other.test"); err == nil {
		t.Error("a name that is not listed was answered")
	}
	if b.upstream.asked("other.test.") {
		t.Error("a name that is not listed was asked for upstream")
	}
	e := b.wait("dns", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDNS && e.Host == "other.test" })
	if e.Errno != int32(unix.EACCES) {
		t.Error(show(&e))
	}
	// Addresses as such.
	_, c, err = get("127.0.0.1:"+port, "web.test")
	if err == nil {
		t.Error("an address that is not listed was reached")
	}
	want(t, b.flow(c), "why=not_on_the_allow_list")
	if e := b.of(bodycam.TypeHTTP, c); e.Host != "web.test" {
		t.Error(show(&e))
	}
}

func TestForwardTCP(t *testing.T) {
	port := listen(t, func(c *net.TCPConn) { io.WriteString(c, "model here") })
	for _, mode := range []Mode{Record, Allow, Sink} {
		b := newBench(t, func(o *Options) {
			o.Mode, o.Local = mode, nil
			o.Forwards = []Forward{{Host: "Model.Bodycam.Internal", Port: 8080, Target: "127.0.0.1:" + port}}
		})
		c := b.mustDial("model.bodycam.internal:8080")
		if got := readAll(t, c); got != "model here" {
			t.Errorf("%s: got %q", mode, got)
		}
		c = b.mustDial("model.bodycam.internal:9")
		if _, err := io.ReadAll(c); err == nil {
			t.Errorf("%s: another port was reached", mode)
		}
		want(t, b.flow(c), "why=no_forward_for_that_port")
		if b.upstream.asked("model") {
			t.Error("the forward's name was asked for upstream")
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	ok := Options{OriginalDst: func(*net.TCPConn) (netip.AddrPort, error) { return netip.AddrPort{}, nil }, Emit: func(*bodycam.Event) error { return nil }}
	for what, change := range map[string]func(*Options){
		"want record, allow or sink":        func(o *Options) { o.Mode = "none" },
		"want a port from 1 to 65535":       func(o *Options) { o.Allow = []string{"a.test:0"} },
		"a star stands only at the start":   func(o *Options) { o.Allow = []string{"a.*.test"} },
		"no closing bracket":                func(o *Options) { o.Allow = []string{"[::1"} },
		"want a host name":                  func(o *Options) { o.Allow = []string{"http://a.test"} },
		"local addresses: allow list entry": func(o *Options) { o.Local = []string{""} },
		"want address:port or an http":      func(o *Options) { o.Forwards = []Forward{{Host: "a", Port: 1, Target: "ftp://x"}} },
		"a host and a port are needed":      func(o *Options) { o.Forwards = []Forward{{Host: "a", Target: "x:1"}} },
		"given twice": func(o *Options) {
			o.Forwards = []Forward{{Host: "a", Port: 1, Target: "x:1"}, {Host: "A", Port: 1, Target: "x:2"}}
		},
		"want an IPv4 prefix of at most 30 bits": func(o *Options) { o.IPv4 = netip.MustParsePrefix("10.0.0.0/31") },
		"want an IPv6 prefix of at most 96 bits": func(o *Options) { o.IPv6 = netip.MustParsePrefix("fd00::/112") },
		"OriginalDst and Emit are needed":        func(o *Options) { o.Emit = nil },
		"must have no user, query or fragment":   func(o *Options) { o.Forwards = []Forward{{Host: "a", Port: 1, Target: "https://u:p@x/"}} },
		"header fields need a URL as target": func(o *Options) {
			o.Forwards = []Forward{{Host: "a", Port: 1, Target: "x:1", Header: func() (http.Header, error) { return nil, nil }}}
		},
		"want a name, not an address": func(o *Options) { o.Forwards = []Forward{{Host: "1.2.3.4", Port: 1, Target: "x:1", Header: nil}} },
	} {
		o := ok
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}

// A sink that fails ends the proxy, and it is told everywhere.
func TestSinkFailure(t *testing.T) {
	disk := errors.New("disk full")
	p, err := New(Options{OriginalDst: func(*net.TCPConn) (netip.AddrPort, error) { return netip.MustParseAddrPort("198.18.0.9:1"), nil },
		Emit: func(*bodycam.Event) error { return disk }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Serve(context.Background(), l, nil, nil) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case err := <-done:
		if !errors.Is(err, disk) {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the proxy went on without a record")
	}
	if h := p.Health(); h.Failed != "disk full" || h.Total.Lost != 1 || !h.Total.Balanced() {
		t.Errorf("%+v", h)
	}
}
