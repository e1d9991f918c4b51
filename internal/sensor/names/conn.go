package names

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const (
	// firstWait is how long a client is waited for where what it says decides what is done with it. A client that
	// says nothing for so long waits for the server to speak.
	firstWait = 300 * time.Millisecond
	// refusedWait is how long a connection that is about to be reset is read, for the name it is for.
	refusedWait = 150 * time.Millisecond
	helloWait   = 10 * time.Second
	bufferSize  = 32 << 10
)

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// conn is one connection of the sandbox.
type conn struct {
	p           *Proxy
	raw         net.Conn
	client, dst netip.AddrPort
	name        string // by its synthetic address; "" for an address as such
	pre         []byte // read from the client and not yet passed on
	sniff       sniffer
	seen        struct{ sni, connect, http string } // the first of each
	blocked     string                              // a name that was found must not be reached; set by whoever reads the client

	up, down atomic.Uint64
	mu       sync.Mutex // guards upstream, which transports set from goroutines of their own
	upstream string
	outcome  string
	why      string
	errno    unix.Errno
	opened   bool // TLS that is opened here: names inside come from the web handler
}

// serveConn carries one connection and records it.
func (p *Proxy) serveConn(raw net.Conn) {
	p.stats.flow.seen.Add(1)
	c := &conn{p: p, raw: raw, client: addrPort(raw.RemoteAddr()), outcome: "ok"}
	c.sniff.found = c.found
	defer c.record()
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		c.fail("failed", fmt.Errorf("a %T has no original destination", raw))
		c.reset()
		return
	}
	dst, err := p.o.OriginalDst(tcp)
	if err != nil {
		c.fail("failed", fmt.Errorf("original destination unknown: %w", err))
		c.reset()
		return
	}
	c.dst = unmap(dst)
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		c.refuse(unix.EMFILE, "too many connections at once")
		return
	}
	if p.o.MaxBytes > 0 && p.bytes.Load() >= p.o.MaxBytes {
		c.refuse(unix.EDQUOT, errByteLimit.Error())
		return
	}
	r := p.route(c.dst)
	c.name = r.name
	switch {
	case r.refused != "":
		c.peek(refusedWait, false)
		c.refuse(unix.EACCES, r.refused)
	case r.standIn:
		c.standIn()
	case r.forward != nil && r.forward.url != nil:
		c.serveForward(r.forward)
	case r.forward != nil:
		c.carry(func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, r.forward.Target) })
	default:
		if p.o.Intercept {
			c.intercept()
			return
		}
		c.carry(c.dialOut)
	}
}

// route is where a connection goes.
type route struct {
	name    string
	refused string
	standIn bool
	forward *forward
}

func (p *Proxy) route(dst netip.AddrPort) route {
	name, known := p.table.name(dst.Addr())
	r := route{name: name}
	allowed := p.o.Mode == Record
	switch {
	case known:
		r.forward = p.forwards[forwardKey{name, dst.Port()}]
		if r.forward != nil {
			return r
		}
		if p.static[name] {
			r.refused = "no forward for that port"
			return r
		}
		allowed = allowed || allowsName(p.allow, name, dst.Port())
	case p.table.synthetic(dst.Addr()):
		r.refused = "no name has that address"
		return r
	default:
		allowed = allowed || allowsAddr(p.allow, dst, true)
	}
	source := bodycam.HostDNS
	if name == "" {
		source = bodycam.HostLiteral
	}
	if r.refused = p.refuses(&bodycam.Event{Type: bodycam.TypeConnect, Proto: bodycam.ProtoTCP, Remote: dst, Host: name, HostSource: source}); r.refused != "" {
		return r
	}
	if !allowed {
		r.standIn = p.o.Mode == Sink
		if !r.standIn {
			r.refused = "not on the allow list"
		}
	}
	return r
}

// refuses asks whoever set Refuse.
func (p *Proxy) refuses(e *bodycam.Event) string {
	if p.o.Refuse == nil {
		return ""
	}
	return p.o.Refuse(e)
}

// dialOut reaches the connection's host from the host's side.
func (c *conn) dialOut(ctx context.Context) (net.Conn, error) {
	addrs := []netip.Addr{c.dst.Addr()}
	if c.name != "" {
		var err error
		if addrs, err = c.p.resolver.addrs(c.name); err != nil {
			return nil, err
		}
	}
	var last error = &net.DNSError{Err: "no addresses", Name: c.name, IsNotFound: true}
	for _, a := range addrs {
		to := netip.AddrPortFrom(a, c.dst.Port())
		if err := c.p.guard.check(to); err != nil {
			last = err
			continue
		}
		up, err := c.p.dial(ctx, to.String())
		if err == nil {
			return up, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (p *Proxy) dial(ctx context.Context, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: p.o.DialTimeout}
	return d.DialContext(ctx, "tcp", to)
}

// carry connects upstream and passes bytes both ways.
func (c *conn) carry(dial func(context.Context) (net.Conn, error)) {
	up, err := dial(c.p.ctx)
	if err != nil {
		c.unreached(err)
		return
	}
	c.pass(up, nil)
}

// unreached ends a connection whose host could not be reached. What it was for is recorded all the same.
func (c *conn) unreached(err error) {
	c.fail("", err)
	c.sniff.feed(c.pre)
	c.peek(refusedWait, false)
	c.reset()
}

// pass passes bytes both ways, first what the server has said already.
func (c *conn) pass(up net.Conn, greeting []byte) {
	defer up.Close()
	cl := c.p.onClose(func() { up.Close() })
	defer c.p.forget(cl)
	c.reached(up)
	errs := make(chan error, 2)
	go func() { errs <- c.pumpUp(up) }()
	go func() { errs <- c.pumpDown(up, greeting) }()
	for range 2 {
		if err := <-errs; err != nil && c.outcome == "ok" {
			c.broken(err, up)
			// A reset is passed on as a reset: a clean end would tell the other side that nothing is missing.
			reset(up)
			c.reset()
		}
	}
}

// pumpUp passes the client's bytes on and reads along until there is nothing more to learn.
func (c *conn) pumpUp(up net.Conn) error {
	p := buffers.Get().(*[]byte)
	defer buffers.Put(p)
	b := append((*p)[:0], c.pre...)
	c.pre = nil
	for {
		if len(b) > 0 {
			if err := c.inspect(b); err != nil {
				return err
			}
			n, err := up.Write(b)
			c.up.Add(uint64(n))
			if err == nil {
				err = c.p.spend(n)
			}
			if err != nil {
				return err
			}
		}
		if c.sniff.done() {
			break
		}
		n, err := c.raw.Read((*p)[:bufferSize])
		b = (*p)[:n]
		if err == io.EOF && n == 0 {
			return closeWrite(up)
		}
		if err != nil && n == 0 {
			return err
		}
	}
	if err := c.p.copy(up, c.raw, &c.up); err != nil {
		return err
	}
	return closeWrite(up)
}

func (c *conn) pumpDown(up net.Conn, greeting []byte) error {
	if len(greeting) > 0 {
		n, err := c.raw.Write(greeting)
		c.down.Add(uint64(n))
		if err == nil {
			err = c.p.spend(n)
		}
		if err != nil {
			return err
		}
	}
	if err := c.p.copy(c.raw, up, &c.down); err != nil {
		return err
	}
	return closeWrite(c.raw)
}

var errByteLimit = errors.New("the run's limit of network bytes is reached")

// spend counts bytes against the run's limit.
func (p *Proxy) spend(n int) error {
	if p.o.MaxBytes == 0 {
		return nil
	}
	if p.bytes.Add(uint64(n)) > p.o.MaxBytes {
		return errByteLimit
	}
	return nil
}

// copy moves bytes until the end of src. Between TCP sockets the kernel splices them.
func (p *Proxy) copy(dst, src net.Conn, count *atomic.Uint64) error {
	if p.o.MaxBytes == 0 {
		n, err := io.Copy(dst, src)
		count.Add(uint64(n))
		return err
	}
	for {
		n, err := io.CopyN(dst, src, 64<<10)
		count.Add(uint64(n))
		if spent := p.spend(int(n)); spent != nil {
			return spent
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		if err := h.CloseWrite(); err != nil && !errors.Is(err, unix.ENOTCONN) {
			return err
		}
	}
	return nil
}

// inspect reads along. An error says that the connection must not go on.
func (c *conn) inspect(b []byte) error {
	if !c.sniff.done() {
		c.sniff.feed(b)
	}
	if c.blocked != "" {
		return &refusal{c.blocked}
	}
	return nil
}

// peek reads what the client says within a time (0: however long it takes), and what follows while a ClientHello
// is incomplete if whole is set. The bytes stay in pre, and have been read along unless whole is set.
func (c *conn) peek(wait time.Duration, whole bool) {
	buf := make([]byte, 4096)
	var deadline time.Time
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	for !c.sniff.done() && len(c.pre) < maxHello {
		if whole && len(c.pre) > 0 {
			if c.pre[0] != 22 {
				break
			}
			if _, err := parseHello(c.pre); err != errIncomplete {
				break
			}
			deadline = time.Now().Add(helloWait)
		}
		if c.raw.SetReadDeadline(deadline) != nil {
			break
		}
		n, err := c.raw.Read(buf)
		c.pre = append(c.pre, buf[:n]...)
		if n > 0 && !whole {
			c.sniff.feed(buf[:n])
		}
		if err != nil {
			break
		}
	}
	_ = c.raw.SetReadDeadline(time.Time{}) // fails only on a connection that is gone, which the next read tells
}

// refuse ends a connection by policy.
func (c *conn) refuse(errno unix.Errno, why string) {
	c.outcome, c.errno, c.why = "refused-by-policy", errno, why
	c.reset()
}

func (c *conn) reset() { reset(c.raw) }

// reset closes a connection with RST, so that the peer sees a failure and not an end.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only on a connection that is gone
	}
	_ = c.Close()
}

// fail records why a connection could not be made.
func (c *conn) fail(outcome string, err error) {
	var r *refusal
	switch {
	case errors.As(err, &r):
		c.outcome, c.errno, c.why = "refused-by-policy", unix.EACCES, r.why
		return
	case isNotFound(err):
		c.outcome, c.errno = "name-not-found", unix.ENOENT
	case c.p.isClosed():
		c.outcome, c.errno = "stopped", unix.ECANCELED
	default:
		c.errno = errnoOf(err)
		c.outcome = outcome
		if outcome == "" {
			c.outcome = outcomeOf(c.errno)
		}
	}
	if c.outcome == "failed" {
		c.why = err.Error()
	}
}

// broken records why a connection that was made did not end well.
func (c *conn) broken(err error, up net.Conn) {
	var r *refusal
	switch {
	case errors.As(err, &r):
		c.outcome, c.errno, c.why = "refused-by-policy", unix.EACCES, r.why
	case errors.Is(err, errByteLimit):
		c.outcome, c.errno, c.why = "refused-by-policy", unix.EDQUOT, err.Error()
	case c.p.isClosed():
		c.outcome = "stopped" // the run ended before the connection did
	default:
		c.errno = errnoOf(err)
		c.outcome = outcomeOf(c.errno)
		switch {
		case tcpClosed(c.raw):
			c.outcome += "-by-client"
		case tcpClosed(up):
			c.outcome += "-by-upstream"
		}
	}
}

// tcpClosed tells whether the kernel has given a connection up: it was reset or timed out.
func tcpClosed(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	sc, err := t.SyscallConn()
	if err != nil {
		return false
	}
	closed := false
	_ = sc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && info.State == 7 // TCP_CLOSE
	})
	return closed
}

// errnoOf finds the system's error number in an error, EIO if there is none.
func errnoOf(err error) unix.Errno {
	var e unix.Errno
	var t interface{ Timeout() bool }
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &t) && t.Timeout():
		return unix.ETIMEDOUT
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return unix.ECONNRESET
	}
	return unix.EIO
}

func outcomeOf(e unix.Errno) string {
	switch e {
	case unix.ECONNREFUSED:
		return "refused"
	case unix.ETIMEDOUT:
		return "timed-out"
	case unix.ECONNRESET, unix.EPIPE:
		return "reset"
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EADDRNOTAVAIL:
		return "unreachable"
	}
	return "failed"
}

// event begins an event of this connection.
func (c *conn) event(t bodycam.Type) bodycam.Event {
	return bodycam.Event{Type: t, Proto: bodycam.ProtoTCP, Local: c.client, Remote: c.dst}
}

// found turns what the sniffer found into an event.
func (c *conn) found(f *finding) {
	switch {
	case f.hello != nil:
		c.tlsFound(f.hello)
	case f.head != nil:
		c.p.stats.http.seen.Add(1)
		e := c.event(bodycam.TypeHTTP)
		e.Host, _ = splitHostPort(f.head.host)
		e.HostSource = bodycam.HostHTTP
		if f.head.viaProxy {
			e.HostSource = bodycam.HostConnect
			setOnce(&c.seen.connect, e.Host)
		} else if _, err := netip.ParseAddr(e.Host); err != nil { // an address is no name
			setOnce(&c.seen.http, e.Host)
		}
		e.Detail = f.head.method + " " + word(f.head.target) + " " + f.head.proto
		if len(f.head.target) > 1024 {
			e.Marks |= bodycam.MarkTruncated
		}
		c.emitNamed(&c.p.stats.http, &e)
		c.block(c.screen(f.head.host, f.head.viaProxy, "HTTP host"))
	case f.socks != nil:
		c.p.stats.http.seen.Add(1)
		e := c.event(bodycam.TypeHTTP)
		e.Host, e.HostSource = f.socks.host, bodycam.HostConnect
		setOnce(&c.seen.connect, e.Host)
		e.Detail = fmt.Sprintf("SOCKS%d %s", f.socks.version, word(f.socks.target()))
		c.emitNamed(&c.p.stats.http, &e)
		c.block(c.screen(f.socks.target(), true, "SOCKS target"))
	}
}

func (c *conn) tlsFound(h *hello) {
	c.p.stats.tls.seen.Add(1)
	e := c.event(bodycam.TypeTLS)
	e.Host, e.HostSource = h.sni, bodycam.HostSNI
	setOnce(&c.seen.sni, h.sni)
	e.Detail = h.words()
	if h.ech {
		c.p.stats.ech.Add(1)
	}
	if !c.opened {
		c.p.stats.tlsFlows.Add(1)
	}
	c.emitNamed(&c.p.stats.tls, &e)
	c.block(c.screen(h.sni, false, "TLS name"))
}

// emitNamed emits an event that a name was found for; where DNS says another one, both are told.
func (c *conn) emitNamed(s *source, e *bodycam.Event) {
	switch {
	case e.Host == "":
		e.Host, e.HostSource = c.host()
	case c.name != "" && c.name != e.Host:
		e.Detail += " dns=" + word(c.name)
	}
	c.p.emit(s, e)
}

// screen holds a name from inside a connection against the allow list: a connection to a listed name must not
// carry requests for another one that the same server, or a proxy, would answer. It returns why not, or "".
func (c *conn) screen(host string, viaProxy bool, what string) string {
	if host == "" || c.p.static[c.name] {
		return ""
	}
	e := bodycam.Event{Type: bodycam.TypeHTTP, Proto: bodycam.ProtoTCP, Remote: c.dst, HostSource: bodycam.HostHTTP}
	if e.Host, _ = splitHostPort(host); !viaProxy && strings.HasPrefix(what, "TLS") {
		e.Type, e.HostSource = bodycam.TypeTLS, bodycam.HostSNI
	}
	if why := c.p.refuses(&e); why != "" {
		return why
	}
	if c.p.o.Mode == Record || !viaProxy && c.name == "" {
		return ""
	}
	h, port := splitHostPort(host)
	n, _ := strconv.ParseUint(port, 10, 16)
	if !viaProxy {
		n = uint64(c.dst.Port())
	}
	if a, err := netip.ParseAddr(h); err == nil {
		if allowsAddr(c.p.allow, netip.AddrPortFrom(a.Unmap(), uint16(n)), true) {
			return ""
		}
	} else if allowsName(c.p.allow, h, uint16(n)) {
		return ""
	}
	return what + " " + h + " is not on the allow list"
}

func (c *conn) block(why string) { setOnce(&c.blocked, why) }

func setOnce(s *string, v string) {
	if *s == "" {
		*s = v
	}
}

// host is the best name of the connection's host.
func (c *conn) host() (string, bodycam.HostSource) {
	switch {
	case c.name != "":
		return c.name, bodycam.HostDNS
	case c.seen.sni != "":
		return c.seen.sni, bodycam.HostSNI
	case c.seen.connect != "":
		return c.seen.connect, bodycam.HostConnect
	case c.seen.http != "":
		return c.seen.http, bodycam.HostHTTP
	}
	return "", bodycam.HostLiteral
}

// record emits the flow event at the end of a connection.
func (c *conn) record() {
	e := c.event(bodycam.TypeFlow)
	e.Host, e.HostSource = c.host()
	e.BytesWritten, e.BytesRead = c.up.Load(), c.down.Load()
	e.Errno = int32(c.errno)
	var w []string
	add := func(key, value string) {
		if value != "" {
			w = append(w, key+"="+word(value))
		}
	}
	c.mu.Lock()
	add("upstream", c.upstream)
	c.mu.Unlock()
	add("outcome", c.outcome)
	add("why", c.why)
	add("proto", c.sniff.proto)
	for _, n := range c.sniff.notes {
		w = append(w, n)
		if n == "unread-requests" {
			c.p.stats.unread.Add(1)
		}
	}
	e.Detail = strings.Join(w, " ")
	c.p.emit(&c.p.stats.flow, &e)
}

// stream is the client's side as a net.Conn for what wants one: first what was already read, all of it counted.
type stream struct {
	net.Conn
	c    *conn
	pre  bytes.Reader
	once sync.Once
	done chan struct{} // closed with the connection
}

func (c *conn) stream() *stream {
	s := &stream{Conn: c.raw, c: c, done: make(chan struct{})}
	s.pre.Reset(c.pre)
	c.pre = nil
	return s
}

func (s *stream) Read(b []byte) (int, error) {
	if s.pre.Len() > 0 {
		n, _ := s.pre.Read(b)
		s.c.up.Add(uint64(n))
		return n, s.c.p.spend(n)
	}
	n, err := s.Conn.Read(b)
	s.c.up.Add(uint64(n))
	if spent := s.c.p.spend(n); spent != nil {
		return n, spent
	}
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.c.down.Add(uint64(n))
	if spent := s.c.p.spend(n); spent != nil {
		return n, spent
	}
	return n, err
}

func (s *stream) CloseWrite() error { return closeWrite(s.Conn) }

func (s *stream) Close() error {
	err := s.Conn.Close()
	s.once.Do(func() { close(s.done) })
	return err
}
