// Package names is the recorder's way out of a sandbox: a proxy that every connection of the sandbox is led to,
// and that says which host each of them is for.
//
// It answers DNS itself. Each name gets an address of its own out of 198.18.0.0/15, so that a connection's address
// tells its name exactly, whatever the protocol. The real address is looked up on the host when a connection is
// forwarded. On the way the proxy reads along: the TLS ClientHello, HTTP/1 request heads, CONNECT and SOCKS
// requests. Contents of TLS are read only on request, with a certificate authority made for the run.
//
// The proxy sees connections, not processes. A [Joiner] brings its events together with the kernel's: it gives
// them the process that made the connection, and gives the kernel's events the name.
//
// docs/NETWORK.md says what the modes do, what is seen and what is not.
package names

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/sensor"
	"golang.org/x/sys/unix"
)

// SensorName is the Sensor field of the proxy's events.
const SensorName = "names"

// Options configure a Proxy. The zero value of each field but OriginalDst and Emit is usable.
type Options struct {
	// Mode says what becomes of connections; "" is Record.
	Mode Mode
	// Allow lists what is forwarded in modes Allow and Sink: "host", "*.domain" (names below it), ".domain" (and
	// it), addresses, CIDRs, "*", each with ":port" if need be.
	Allow []string
	// Local lists addresses and CIDRs, with ":port" if need be, of the host and its networks that may be reached.
	// Without an entry, loopback, link-local and private addresses, the host's own and those of the networks it
	// is connected to are refused in every mode.
	Local []string
	// Forwards lead names inside the sandbox to services of the host's side.
	Forwards []Forward
	// Hosts are the entries of the sandbox's hosts file. They are answered in DNS too.
	Hosts map[string][]netip.Addr
	// IPv4 is the range of synthetic addresses, 198.18.0.0/15 if it is not valid.
	IPv4 netip.Prefix
	// IPv6 is the range of synthetic IPv6 addresses, /96 or wider; if it is not valid names have no AAAA records.
	IPv6 netip.Prefix
	// MaxNames bounds how many names get addresses, 65536 if 0. Queries beyond get SERVFAIL, and a Blind entry.
	MaxNames int

	// Intercept opens TLS with certificates of a CA made for the run, so that HTTP within is recorded.
	Intercept bool
	// Roots verify upstream servers where the proxy is a TLS client; nil: the host's.
	Roots *x509.CertPool
	// Content takes what was said in HTTP that passed through the proxy in the clear: TLS that was opened, HTTP
	// forwards, and everything that reached the stand-in. It is called from many goroutines; may be nil.
	Content func(*Content)
	// Refuse is asked before a name is looked up (an event of type dns), a connection is passed on (connect) and a name
	// that was found inside one is let through (tls, http). It returns why not, or "". It is called from many
	// goroutines; may be nil. Forwards are not asked about: naming them is the permission.
	Refuse func(*bodycam.Event) string
	// MaxBody bounds the bytes of each body that Content gets, 1 MiB if 0. Digests are of the whole.
	MaxBody int

	// DialTimeout bounds each attempt to reach an upstream address, 10 s if 0.
	DialTimeout time.Duration
	// MaxConns bounds concurrent connections, 1024 if 0. Those beyond are reset, and recorded.
	MaxConns int
	// MaxBytes bounds the sum of bytes of all connections in both directions; 0: no bound. When it is reached,
	// open connections are reset, and those to come refused.
	MaxBytes uint64

	// OriginalDst tells where a connection was going before it was led to the proxy.
	OriginalDst func(*net.TCPConn) (netip.AddrPort, error)
	// Dropped tells how many UDP datagrams other than DNS the sandbox's packet filter dropped; may be nil.
	Dropped func() uint64
	// Emit takes the events. It is called from one goroutine at a time; the event is valid only during the call.
	// An error ends the proxy.
	Emit sensor.Sink

	// Resolver is the host's resolver, net.DefaultResolver if nil.
	Resolver *net.Resolver
	// Nameservers are asked for DNS records other than addresses, as "address:port"; nil: those of the host's
	// resolv.conf.
	Nameservers []string

	firstWait time.Duration // see the constant, which it is if 0; tests wait for longer than they last
}

// Forward leads a name and port inside the sandbox to a service on the host's side. It is reached whatever the
// mode and whatever address it has: naming it is the permission.
type Forward struct {
	Host string // name inside, for example model.bodycam.internal
	Port uint16
	// Target is "address:port" for a plain TCP connection, or a URL (http or https, with a base path if need be)
	// for HTTP requests that are rewritten to it.
	Target string
	// Header gives header fields that are set on each request to a URL target, such as Authorization. They are
	// made here, on the host's side, and are never recorded, so that no key enters the sandbox. May be nil.
	Header func() (http.Header, error)
	// Wrap stands between the proxy and a URL target: each request and its answer pass through what it returns. May be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
	// OwnTLS has the run's authority made, so that the forward can be spoken to in TLS whatever Intercept says.
	OwnTLS bool
}

// Proxy is the recording proxy of one sandbox.
type Proxy struct {
	o        Options
	allow    []rule
	guard    guard
	table    *table
	resolver *resolver
	forwards map[forwardKey]*forward
	static   map[string]bool // names of forwards
	hosts    map[string][]netip.Addr
	ca       *authority
	web      *web

	emitMu  sync.Mutex
	emitErr error
	stats   stats

	slots chan struct{}
	bytes atomic.Uint64

	mu      sync.Mutex
	closers map[*closer]struct{}
	closed  bool
	done    chan struct{}
	ctx     context.Context // ends with done
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

type forwardKey struct {
	host string
	port uint16
}

// closer is something that Close ends.
type closer struct{ close func() }

// New checks the options and makes a proxy. Nothing listens yet.
func New(o Options) (*Proxy, error) {
	if o.OriginalDst == nil || o.Emit == nil {
		return nil, errors.New("names: OriginalDst and Emit are needed")
	}
	o.defaults()
	switch o.Mode {
	case Record, Allow, Sink:
	default:
		return nil, fmt.Errorf("network mode %q: want record, allow or sink", o.Mode)
	}
	if !o.IPv4.Addr().Is4() || o.IPv4.Bits() > 30 {
		return nil, fmt.Errorf("range of synthetic addresses %s: want an IPv4 prefix of at most 30 bits", o.IPv4)
	}
	if o.IPv6.IsValid() && (!o.IPv6.Addr().Is6() || o.IPv6.Bits() > 96) {
		return nil, fmt.Errorf("range of synthetic addresses %s: want an IPv6 prefix of at most 96 bits", o.IPv6)
	}
	p := &Proxy{o: o, table: newTable(o.IPv4, o.IPv6, o.MaxNames), resolver: newResolver(o.Resolver),
		slots: make(chan struct{}, o.MaxConns), closers: map[*closer]struct{}{}, done: make(chan struct{}),
		hosts: map[string][]netip.Addr{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	var err error
	if p.allow, err = parseRules(o.Allow); err != nil {
		return nil, err
	}
	local, err := parseRules(o.Local)
	if err != nil {
		return nil, fmt.Errorf("local addresses: %w", err)
	}
	p.guard = guard{listed: local, own: net.InterfaceAddrs}
	if o.Mode != Record {
		p.guard.listed = append(p.guard.listed, p.allow...)
	}
	if err := p.setForwards(o.Forwards); err != nil {
		return nil, err
	}
	for name, addrs := range o.Hosts {
		p.hosts[canonical(name)] = addrs
	}
	if o.Intercept || o.Mode == Sink || slices.ContainsFunc(o.Forwards, func(f Forward) bool { return f.OwnTLS }) {
		if p.ca, err = newAuthority(); err != nil {
			return nil, err
		}
	}
	if o.Nameservers == nil {
		// Without servers, other record types get SERVFAIL, each of them recorded: no reason to refuse a run.
		p.o.Nameservers, _ = nameservers("/etc/resolv.conf")
	}
	p.web = newWeb(p)
	return p, nil
}

func (o *Options) defaults() {
	if o.Mode == "" {
		o.Mode = Record
	}
	if !o.IPv4.IsValid() {
		o.IPv4 = netip.MustParsePrefix("198.18.0.0/15")
	}
	if o.MaxNames <= 0 {
		o.MaxNames = 1 << 16
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 20
	}
	if o.firstWait == 0 {
		o.firstWait = firstWait
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.MaxConns <= 0 {
		o.MaxConns = 1024
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
}

// Serve answers on the given sockets, each of which may be nil, until ctx ends or Close is called. It returns
// when every connection has ended and every event was emitted. The UDP socket must be bound to one address, not
// to the wildcard, or answers may leave with another source than the query's destination.
func (p *Proxy) Serve(ctx context.Context, tcp net.Listener, dnsUDP net.PacketConn, dnsTCP net.Listener) error {
	stop := context.AfterFunc(ctx, func() { p.Close() })
	defer stop()
	errs := make(chan error, 3)
	n := 0
	run := func(present bool, close func() error, serve func() error) {
		if !present {
			return
		}
		n++
		p.onClose(func() { close() })
		go func() { errs <- serve() }()
	}
	run(tcp != nil, func() error { return tcp.Close() }, func() error { return p.accept(tcp, p.serveConn) })
	run(dnsUDP != nil, func() error { return dnsUDP.Close() }, func() error { return p.serveUDP(dnsUDP) })
	run(dnsTCP != nil, func() error { return dnsTCP.Close() }, func() error { return p.accept(dnsTCP, p.serveDNSConn) })
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
		p.Close() // one socket's failure ends all
	}
	p.wg.Wait()
	p.emitMu.Lock()
	defer p.emitMu.Unlock()
	return errors.Join(first, p.emitErr)
}

// accept runs serve for each connection. It returns nil once the proxy is closed.
func (p *Proxy) accept(l net.Listener, serve func(net.Conn)) error {
	for delay := time.Millisecond; ; {
		c, err := l.Accept()
		if err != nil {
			if p.isClosed() {
				return nil
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) ||
				errors.Is(err, unix.ECONNABORTED) {
				p.stats.acceptErrors.Add(1)
				select { // pending connections stay in the queue meanwhile
				case <-p.done:
				case <-time.After(delay):
				}
				delay = min(2*delay, time.Second)
				continue
			}
			return fmt.Errorf("accepting the sandbox's connections: %w", err)
		}
		delay = time.Millisecond
		cl := p.onClose(func() { c.Close() })
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			defer p.forget(cl)
			defer c.Close()
			serve(c)
		}()
	}
}

// onClose has f called by Close, or at once if that was called before.
func (p *Proxy) onClose(f func()) *closer {
	cl := &closer{f}
	p.mu.Lock()
	if !p.closed {
		p.closers[cl] = struct{}{}
		p.mu.Unlock()
		return cl
	}
	p.mu.Unlock()
	f()
	return cl
}

func (p *Proxy) forget(c *closer) {
	p.mu.Lock()
	delete(p.closers, c)
	p.mu.Unlock()
}

func (p *Proxy) isClosed() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Close ends listeners and connections. Serve returns when what was under way is recorded.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	p.cancel()
	list := p.closers
	p.closers = map[*closer]struct{}{}
	p.mu.Unlock()
	for c := range list {
		c.close()
	}
	p.web.close()
	return nil
}

// CA is the certificate of the run's authority in PEM, for the sandbox's trust store; nil if the proxy has none
// (neither Intercept nor mode Sink).
func (p *Proxy) CA() []byte {
	if p.ca == nil {
		return nil
	}
	return p.ca.pem
}

// emit delivers one event. Whoever saw the thing that it tells of has counted it as seen before.
func (p *Proxy) emit(src *source, e *bodycam.Event) {
	e.NR, e.Sensor, e.Count = -1, SensorName, 1
	if e.Boot == 0 {
		e.Time, e.Boot = now()
	}
	p.emitMu.Lock()
	err := p.emitErr
	if err == nil {
		err = p.o.Emit(e)
		p.emitErr = err
	}
	p.emitMu.Unlock()
	if err != nil {
		src.lost.Add(1)
		go p.Close() // the caller may hold what Close waits for
		return
	}
	src.emitted.Add(1)
}

// now returns the wall clock and the time since boot, suspend included, as the kernel's bpf_ktime_get_boot_ns.
func now() (wall int64, boot uint64) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Now().UnixNano(), 0
	}
	return time.Now().UnixNano(), uint64(ts.Nano())
}
