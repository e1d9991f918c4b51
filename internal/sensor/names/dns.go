package names

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/sys/unix"
)

const (
	dnsTTL        = 60  // seconds: addresses never change, but clients must come back to be recorded
	dnsConcurrent = 256 // queries being answered at once, per socket
	dnsIdle       = 2 * time.Minute
)

// serveUDP answers queries that come as datagrams.
func (p *Proxy) serveUDP(c net.PacketConn) error {
	if u, ok := c.(*net.UDPConn); ok {
		_ = u.SetReadBuffer(4 << 20) // as large as the kernel allows; a smaller one works too
	}
	slots := make(chan struct{}, dnsConcurrent)
	buf := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			if p.isClosed() {
				return nil
			}
			if isTransient(err) {
				continue
			}
			return fmt.Errorf("reading the sandbox's DNS queries: %w", err)
		}
		slots <- struct{}{}
		query := append([]byte(nil), buf[:n]...)
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			defer func() { <-slots }()
			q, r := p.answerDNS(query, addrPort(from), bodycam.ProtoUDP)
			if r != nil {
				// An answer that can't be delivered is the client's loss: it asks again, and that is recorded.
				_, _ = c.WriteTo(truncate(r, &q), from)
			}
		}()
	}
}

// isTransient tells errors of a datagram socket that concern one peer, not the socket.
func isTransient(err error) bool {
	for _, e := range []unix.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EMSGSIZE, unix.ENOBUFS, unix.EINTR} {
		if errnoOf(err) == e {
			return true
		}
	}
	return false
}

// serveDNSConn answers queries on a TCP connection, in order.
func (p *Proxy) serveDNSConn(c net.Conn) {
	for {
		if err := c.SetDeadline(time.Now().Add(dnsIdle)); err != nil {
			return
		}
		query, err := readTCPMessage(c)
		if err != nil {
			return
		}
		_, r := p.answerDNS(query, addrPort(c.RemoteAddr()), bodycam.ProtoTCP)
		if r == nil || writeTCPMessage(c, r) != nil {
			return
		}
	}
}

// outcome is how a query was answered.
type outcome struct {
	rcode   int
	answers []answer
	addrs   []netip.Addr // those among the answers
	raw     []byte       // a whole reply in place of answers
	errno   unix.Errno
	words   string
}

// answerDNS records a query, then returns the reply: the event of an answer comes before the connections that
// rest on it. The reply is nil where none is due.
func (p *Proxy) answerDNS(query []byte, client netip.AddrPort, proto bodycam.Proto) (question, []byte) {
	p.stats.dns.seen.Add(1)
	e := bodycam.Event{Type: bodycam.TypeDNS, Proto: proto, Local: client, Bytes: uint64(len(query))}
	q, err := parseQuery(query)
	if err != nil {
		e.Errno = int32(unix.EBADMSG)
		e.Detail = "malformed " + hex.EncodeToString(query[:min(len(query), 256)])
		p.emit(&p.stats.dns, &e)
		if len(query) < dnsHeaderLen || query[2]&0x80 != 0 {
			return q, nil
		}
		q = question{id: uint16(query[0])<<8 | uint16(query[1])}
		return q, reply(&q, rcodeFormat, 0, nil)
	}
	name := canonical(q.name)
	var out outcome
	switch {
	case q.opcode != 0 || q.class != dnsClassIN:
		out = outcome{rcode: rcodeNotImpl, errno: unix.EOPNOTSUPP, words: "not-implemented"}
	default:
		out = p.resolveQuery(&q, name, query)
	}
	e.Host, e.HostSource, e.Answers, e.Errno = name, bodycam.HostDNS, out.addrs, int32(out.errno)
	e.Detail = typeName(q.qtype)
	if out.words != "" {
		e.Detail += " " + out.words
	}
	if q.name != name {
		e.Detail += " given=" + word(q.name)
	}
	p.emit(&p.stats.dns, &e)
	if out.raw != nil {
		return q, out.raw
	}
	return q, reply(&q, out.rcode, dnsTTL, out.answers)
}

func typeName(t uint16) string {
	if n, ok := dnsTypeNames[t]; ok {
		return n
	}
	return "TYPE" + strconv.Itoa(int(t))
}

var (
	outEmpty    = outcome{words: "empty"}
	outRefused  = outcome{rcode: rcodeNXDomain, errno: unix.EACCES, words: "refused: not on the allow list"}
	outNotFound = outcome{rcode: rcodeNXDomain, errno: unix.ENOENT, words: "nxdomain"}
)

// resolveQuery decides what a well-formed query gets.
func (p *Proxy) resolveQuery(q *question, name string, query []byte) outcome {
	if addrs, ok := p.hosts[name]; ok {
		return addrOutcome(q.qtype, addrs, "hosts-file")
	}
	if q.qtype == dnsPTR {
		if a, ok := arpaAddr(name); ok {
			if n, ok := p.table.name(a); ok {
				return outcome{answers: []answer{{dnsPTR, wireName(n)}}, words: "is=" + word(n)}
			}
			if p.table.synthetic(a) || p.guard.inner(a) != "" {
				return outNotFound // what the host's network calls its machines is not the sandbox's business
			}
		}
	}
	if p.static[name] {
		return p.synthesise(q.qtype, name, "forward")
	}
	if name == "use-application-dns.net" {
		return outNotFound // the agreed sign for browsers not to bypass the network's DNS
	}
	if why := p.refuses(&bodycam.Event{Type: bodycam.TypeDNS, Proto: bodycam.ProtoUDP, Host: name, HostSource: bodycam.HostDNS}); why != "" {
		return outcome{rcode: rcodeNXDomain, errno: unix.EACCES, words: "refused: " + why}
	}
	if p.o.Mode != Record && !allowsName(p.allow, name, 0) {
		if p.o.Mode == Allow {
			return outRefused
		}
		return p.synthesise(q.qtype, name, "stand-in")
	}
	switch q.qtype {
	case dnsA, dnsAAAA, dnsANY:
		addrs, err := p.resolver.addrs(name)
		switch {
		case err == nil && len(addrs) > 0:
			return p.synthesise(q.qtype, name, "")
		case err == nil || isNotFound(err):
			return outNotFound
		}
		return outcome{rcode: rcodeServFail, errno: unix.EAGAIN, words: "failed: " + err.Error()}
	case dnsHTTPS, dnsSVCB:
		return outEmpty // they would bring real addresses and keys for an encrypted ClientHello
	}
	b, err := askServers(p.o.Nameservers, query)
	if err == nil {
		var n int
		if b, n, err = relay(b, q); err == nil {
			out := outcome{raw: b, words: "forwarded answers=" + strconv.Itoa(n)}
			switch rcode := b[3] & 15; rcode {
			case rcodeOK:
			case rcodeNXDomain:
				out.errno, out.words = unix.ENOENT, "nxdomain"
			default:
				out.errno, out.words = unix.EAGAIN, "forwarded rcode="+strconv.Itoa(int(rcode))
			}
			return out
		}
	}
	return outcome{rcode: rcodeServFail, errno: unix.EAGAIN, words: "failed: " + err.Error()}
}

// synthesise answers with the name's own address.
func (p *Proxy) synthesise(qtype uint16, name, words string) outcome {
	switch qtype {
	case dnsA, dnsAAAA, dnsANY:
	default:
		return outEmpty
	}
	v4, v6, ok := p.table.assign(name)
	if !ok {
		p.stats.tableFull.Add(1)
		return outcome{rcode: rcodeServFail, errno: unix.ENOSPC, words: "failed: no synthetic address left"}
	}
	addrs := []netip.Addr{v4}
	if v6.IsValid() {
		addrs = append(addrs, v6)
	}
	return addrOutcome(qtype, addrs, words)
}

// addrOutcome picks the addresses that a query asks for.
func addrOutcome(qtype uint16, addrs []netip.Addr, words string) outcome {
	out := outcome{words: words}
	for _, a := range addrs {
		a = a.Unmap()
		if a.Is4() && (qtype == dnsA || qtype == dnsANY) || a.Is6() && (qtype == dnsAAAA || qtype == dnsANY) {
			out.addrs = append(out.addrs, a)
			out.answers = append(out.answers, addrAnswer(a))
		}
	}
	if len(out.addrs) == 0 {
		out.words = "empty"
	}
	return out
}

// addrPort is the address of a peer, IPv4 as such.
func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return unmap(a.AddrPort())
	case *net.UDPAddr:
		return unmap(a.AddrPort())
	}
	return netip.AddrPort{}
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
