package names

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/net/dns/dnsmessage"
)

// bench is a proxy on loopback with the parts of a sandbox around it that it needs: a way to connect to any
// address, a DNS client, and an upstream DNS server that knows a few names.
type bench struct {
	t     testing.TB
	p     *Proxy
	tcp   net.Listener
	udp   net.PacketConn
	dns   net.Listener
	serve chan error

	mu       sync.Mutex
	cond     *sync.Cond
	dsts     map[netip.AddrPort]netip.AddrPort
	events   []bodycam.Event
	contents []Content
	stopped  bool
	upstream *upstreamDNS
}

func newBench(t testing.TB, change func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, dsts: map[netip.AddrPort]netip.AddrPort{}, serve: make(chan error, 1), upstream: newUpstreamDNS(t)}
	b.cond = sync.NewCond(&b.mu)
	o := Options{
		Local: []string{"127.0.0.0/8"}, OriginalDst: b.originalDst, Resolver: b.upstream.resolver(), Nameservers: []string{b.upstream.addr},
		Emit: func(e *bodycam.Event) error {
			c := *e
			c.Answers = slices.Clone(e.Answers)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, c)
			b.cond.Broadcast()
			return nil
		},
		Content: func(c *Content) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.contents = append(b.contents, *c)
			b.cond.Broadcast()
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if b.p, err = New(o); err != nil {
		t.Fatal(err)
	}
	if b.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if b.dns, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if b.udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go func() { b.serve <- b.p.Serve(context.Background(), b.tcp, b.udp, b.dns) }()
	t.Cleanup(b.stop)
	return b
}

// stop ends the proxy and checks what must hold of every one that has ended.
func (b *bench) stop() {
	if b.stopped {
		return
	}
	b.stopped = true
	b.p.Close()
	select {
	case err := <-b.serve:
		if err != nil {
			b.t.Errorf("Serve: %v", err)
		}
	case <-time.After(time.Minute):
		b.t.Fatal("Serve did not return after Close")
	}
	h := b.p.Health()
	if !h.Total.Balanced() || h.Total.Lost != 0 || h.Total.Emitted != uint64(len(b.events)) {
		b.t.Errorf("counters %+v do not account for %d events", h.Sources, len(b.events))
	}
	for name, c := range h.Sources {
		if !c.Balanced() {
			b.t.Errorf("counters of %s do not balance: %+v", name, c)
		}
	}
}

func (b *bench) originalDst(c *net.TCPConn) (netip.AddrPort, error) {
	from := addrPort(c.RemoteAddr())
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		b.mu.Lock()
		dst, ok := b.dsts[from]
		delete(b.dsts, from)
		b.mu.Unlock()
		if ok {
			return dst, nil
		}
		time.Sleep(50 * time.Microsecond)
	}
	return netip.AddrPort{}, fmt.Errorf("%s was not announced", from)
}

// connect makes a connection as from the sandbox to an address.
func (b *bench) connect(dst netip.AddrPort) (*net.TCPConn, error) {
	c, err := net.Dial("tcp", b.tcp.Addr().String())
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.dsts[addrPort(c.LocalAddr())] = dst
	b.mu.Unlock()
	return c.(*net.TCPConn), nil
}

// resolver asks the proxy as a program in the sandbox would.
func (b *bench) resolver(network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, n, _ string) (net.Conn, error) {
		if network != "" {
			n = network
		}
		to := b.udp.LocalAddr().String()
		if strings.HasPrefix(n, "tcp") {
			to = b.dns.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, n, to)
	}}
}

func (b *bench) lookup(name string) (netip.Addr, error) {
	addrs, err := b.resolver("").LookupNetIP(context.Background(), "ip4", name+".")
	if err != nil {
		return netip.Addr{}, err
	}
	return addrs[0].Unmap(), nil
}

// dial connects to "host:port" with a look-up where host is a name.
func (b *bench) dial(to string) (*net.TCPConn, error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		if a, err = b.lookup(host); err != nil {
			return nil, err
		}
	}
	return b.connect(netip.MustParseAddrPort(net.JoinHostPort(a.String(), port)))
}

func (b *bench) mustDial(to string) *net.TCPConn {
	b.t.Helper()
	c, err := b.dial(to)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// dialContext is for http.Transport.
func (b *bench) dialContext(_ context.Context, _, addr string) (net.Conn, error) { return b.dial(addr) }

// wait returns the first event that fits, of those there are and those to come.
func (b *bench) wait(what string, fits func(*bodycam.Event) bool) bodycam.Event {
	b.t.Helper()
	timeout := time.AfterFunc(time.Minute, b.cond.Broadcast)
	defer timeout.Stop()
	start := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for i := range b.events {
			if fits(&b.events[i]) {
				return b.events[i]
			}
		}
		if time.Since(start) > 50*time.Second {
			var all strings.Builder
			for i := range b.events {
				fmt.Fprintf(&all, "\n%s", show(&b.events[i]))
			}
			b.t.Fatalf("no event: %s. There are:%s", what, all.String())
		}
		b.cond.Wait()
	}
}

func show(e *bodycam.Event) string {
	return fmt.Sprintf("%s host=%q (%s) local=%s remote=%s r=%d w=%d errno=%d marks=%v %q", e.Type, e.Host, e.HostSource, e.Local, e.Remote,
		e.BytesRead, e.BytesWritten, e.Errno, e.Marks.Names(), e.Detail)
}

// flow waits for the end of a connection.
func (b *bench) flow(c net.Conn) bodycam.Event {
	b.t.Helper()
	local := addrPort(c.LocalAddr())
	return b.wait("flow of "+local.String(), func(e *bodycam.Event) bool { return e.Type == bodycam.TypeFlow && e.Local == local })
}

func (b *bench) of(t bodycam.Type, c net.Conn) bodycam.Event {
	b.t.Helper()
	local := addrPort(c.LocalAddr())
	return b.wait(t.String()+" of "+local.String(), func(e *bodycam.Event) bool { return e.Type == t && e.Local == local })
}

// content waits for the first exchange that fits.
func (b *bench) content(fits func(*Content) bool) Content {
	b.t.Helper()
	timeout := time.AfterFunc(time.Minute, b.cond.Broadcast)
	defer timeout.Stop()
	start := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for i := range b.contents {
			if fits(&b.contents[i]) {
				return b.contents[i]
			}
		}
		if time.Since(start) > 50*time.Second {
			b.t.Fatalf("no such content among %d: %+v", len(b.contents), b.contents)
		}
		b.cond.Wait()
	}
}

func want(t testing.TB, e bodycam.Event, detail ...string) {
	t.Helper()
	for _, d := range detail {
		if !strings.Contains(e.Detail, d) {
			t.Errorf("want %q in %s", d, show(&e))
		}
	}
}

// upstreamDNS is a DNS server written with dnsmessage: it and the proxy's own codec check one another.
type upstreamDNS struct {
	addr string

	mu      sync.Mutex
	names   map[string][]netip.Addr
	queries []string
}

func newUpstreamDNS(t testing.TB) *upstreamDNS {
	var c net.PacketConn
	var l net.Listener
	for l == nil { // until a port is free for both
		var err error
		if c, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp", c.LocalAddr().String()); err != nil {
			c.Close()
		}
	}
	t.Cleanup(func() { c.Close() })
	t.Cleanup(func() { l.Close() })
	lo := netip.MustParseAddr("127.0.0.1")
	u := &upstreamDNS{addr: c.LocalAddr().String(), names: map[string][]netip.Addr{
		"web.test.": {lo}, "other.test.": {lo}, "mail.test.": {lo}, "git.test.": {lo}, "far.test.": {netip.MustParseAddr("127.0.0.2")},
		"rebind.test.": {netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::1")},
	}}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if r := u.answer(buf[:n], false); r != nil {
				c.WriteTo(r, from)
			}
		}
	}()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					q, err := readTCPMessage(conn)
					if err != nil {
						return
					}
					writeTCPMessage(conn, u.answer(q, true))
				}
			}()
		}
	}()
	return u
}

func (u *upstreamDNS) asked(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.queries, func(q string) bool { return strings.HasPrefix(q, name) })
}

func (u *upstreamDNS) answer(q []byte, tcp bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil || len(m.Questions) != 1 {
		return nil
	}
	name, kind := m.Questions[0].Name, m.Questions[0].Type
	u.mu.Lock()
	u.queries = append(u.queries, name.String()+" "+kind.String())
	addrs, known := u.names[strings.ToLower(name.String())]
	u.mu.Unlock()
	r := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 5}
	if !known {
		r.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		switch {
		case kind == dnsmessage.TypeA && a.Is4():
			r.Answers = append(r.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case kind == dnsmessage.TypeAAAA && a.Is6():
			r.Answers = append(r.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	switch {
	case known && kind == dnsmessage.TypeTXT && !tcp:
		r.Truncated = true // so that TCP is tried
	case known && kind == dnsmessage.TypeTXT:
		r.Answers = append(r.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.TXTResource{TXT: []string{strings.Repeat("t", 250)}}})
		extra := h
		extra.Name = dnsmessage.MustNewName("leak.test.")
		r.Additionals = append(r.Additionals, dnsmessage.Resource{Header: extra, Body: &dnsmessage.AResource{A: [4]byte{203, 0, 113, 9}}})
	}
	b, err := r.Pack()
	if err != nil {
		return nil
	}
	return b
}

func (u *upstreamDNS) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, u.addr)
	}}
}

// listen serves each connection with f and returns the port.
func listen(t testing.TB, f func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			}()
		}
	}()
	return portOf(l.Addr())
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
