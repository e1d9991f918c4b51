package names

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// ask sends a raw query by UDP and reads the reply with dnsmessage.
func (b *bench) ask(query []byte) (dnsmessage.Message, []byte) {
	b.t.Helper()
	c, err := net.Dial("udp", b.udp.LocalAddr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(query); err != nil {
		b.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		b.t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(buf[:n]); err != nil {
		b.t.Fatalf("dnsmessage can't read the reply %x: %v", buf[:n], err)
	}
	return m, buf[:n]
}

func query(t testing.TB, name string, kind dnsmessage.Type, edns bool) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	if edns {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(4096, dnsmessage.RCodeSuccess, false); err != nil {
			t.Fatal(err)
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEachNameHasItsOwnAddress(t *testing.T) {
	b := newBench(t, nil)
	one, err := b.lookup("web.test")
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.lookup("other.test") // the same real address
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.lookup("WEB.Test")
	if err != nil {
		t.Fatal(err)
	}
	if one == two || one != again || !b.p.table.synthetic(one) {
		t.Errorf("web.test %s and %s, other.test %s", one, again, two)
	}
	if n, _ := b.resolver("").LookupAddr(context.Background(), one.String()); len(n) != 1 || n[0] != "web.test." {
		t.Errorf("reverse look-up: %q", n)
	}
	e := b.wait("dns", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDNS && e.Host == "web.test" })
	if len(e.Answers) != 1 || e.Answers[0] != one || e.Proto != bodycam.ProtoUDP || e.Local.Port() == 0 || e.Boot == 0 || e.Time == 0 || e.Errno != 0 {
		t.Error(show(&e))
	}
	want(t, b.wait("as given", func(e *bodycam.Event) bool { return strings.Contains(e.Detail, "given=") }), "A given=WEB.Test")
	if a, err := b.resolver("tcp").LookupNetIP(context.Background(), "ip4", "web.test."); err != nil || a[0] != one {
		t.Errorf("by TCP: %v, %v", a, err)
	}
	if e := b.wait("by TCP", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDNS && e.Proto == bodycam.ProtoTCP }); e.Host != "web.test" {
		t.Error(show(&e))
	}
}

func TestDNSOutcomes(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Hosts = map[string][]netip.Addr{"db.internal": {netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd00::9")}}
	})
	for _, c := range []struct {
		name    string
		kind    dnsmessage.Type
		rcode   dnsmessage.RCode
		answers int
		errno   unix.Errno
		detail  string
	}{
		{"web.test.", dnsmessage.TypeA, 0, 1, 0, "A"},
		{"web.test.", dnsmessage.TypeAAAA, 0, 0, 0, "AAAA empty"},
		{"web.test.", 65, 0, 0, 0, "HTTPS empty"},
		{"web.test.", 64, 0, 0, 0, "SVCB empty"},
		{"web.test.", dnsmessage.TypeTXT, 0, 1, 0, "TXT forwarded answers=1"},
		{"nowhere.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0, unix.ENOENT, "A nxdomain"},
		{"nowhere.test.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, 0, unix.ENOENT, "TXT nxdomain"},
		{"db.internal.", dnsmessage.TypeA, 0, 1, 0, "A hosts-file"},
		{"db.internal.", dnsmessage.TypeAAAA, 0, 1, 0, "AAAA hosts-file"},
		{"use-application-dns.net.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0, unix.ENOENT, "A nxdomain"},
		{"1.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0, unix.ENOENT, "PTR nxdomain"},
	} {
		for _, edns := range []bool{false, true} {
			m, raw := b.ask(query(t, c.name, c.kind, edns))
			if m.RCode != c.rcode || len(m.Answers) != c.answers || m.ID != 7 || !m.Response {
				t.Errorf("%s %s: %+v", c.name, c.kind, m)
			}
			if len(m.Additionals) != map[bool]int{true: 1}[edns] {
				t.Errorf("%s %s: additional records %v", c.name, c.kind, m.Additionals)
			}
			if bytes.Contains(raw, []byte{203, 0, 113, 9}) {
				t.Errorf("%s %s: a real address came through", c.name, c.kind)
			}
			e := b.wait("dns", func(e *bodycam.Event) bool { return e.Host+"." == c.name && e.Detail == c.detail })
			if e.Errno != int32(c.errno) {
				t.Error(show(&e))
			}
		}
	}
}

// Names that no library would accept are recorded as they came.
func TestHostileNames(t *testing.T) {
	b := newBench(t, nil)
	raw := func(labels ...string) []byte {
		q := []byte{0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for _, l := range labels {
			q = append(append(q, byte(len(l))), l...)
		}
		return append(q, 0, 0, 1, 0, 1)
	}
	long := strings.Repeat("q", 63)
	for _, c := range []struct {
		query []byte
		host  string
	}{
		{raw("a.b\\c", "\xff\x00 \n", "test"), "a\\.b\\\\c.\xff\x00 \n.test"},
		{raw(long, long, long, strings.Repeat("z", 61)), long + "." + long + "." + long + "." + strings.Repeat("z", 61)},
		{raw(), ""},
	} {
		c1, err := net.Dial("udp", b.udp.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		c1.Write(c.query)
		e := b.wait(c.host, func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDNS && e.Local == addrPort(c1.LocalAddr()) })
		if e.Host != c.host || e.Errno != int32(unix.ENOENT) && e.Errno != int32(unix.EAGAIN) {
			t.Error(show(&e))
		}
		c1.Close()
	}
	for _, bad := range [][]byte{{}, {1}, []byte("GET / HTTP/1.1\r\n\r\n"), raw(strings.Repeat("x", 63))[:40], append(raw("a")[:12], 0xc0, 12, 0, 1, 0, 1),
		raw(long, long, long, strings.Repeat("z", 62))} {
		c1, err := net.Dial("udp", b.udp.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		c1.Write(bad)
		e := b.wait("malformed", func(e *bodycam.Event) bool { return e.Type == bodycam.TypeDNS && e.Local == addrPort(c1.LocalAddr()) })
		if e.Errno != int32(unix.EBADMSG) || e.Bytes != uint64(len(bad)) {
			t.Error(show(&e))
		}
		want(t, e, "malformed")
		c1.Close()
	}
}

func TestExfiltrationByNamesIsRecordedExactly(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Mode = Sink })
	const n = 500
	for i := range n {
		label := strings.Repeat(string(rune('a'+i%26)), 50) + "-x" + strings.Repeat("x", i%10)
		if _, err := b.lookup(label + ".evil.test"); err != nil {
			t.Fatal(err)
		}
	}
	b.stop()
	seen := 0
	for _, e := range b.events {
		if e.Type == bodycam.TypeDNS && strings.HasSuffix(e.Host, ".evil.test") && e.Detail == "A stand-in" {
			seen++
		}
	}
	if seen != n {
		t.Errorf("%d of %d names", seen, n)
	}
	if b.upstream.asked("") {
		t.Error("something was asked for upstream")
	}
}

func TestAddressesRunOut(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Mode, o.IPv4 = Sink, netip.MustParsePrefix("198.18.0.0/30") })
	for _, name := range []string{"a.test", "b.test"} {
		if _, err := b.lookup(name); err != nil {
			t.Fatal(err)
		}
	}
	m, _ := b.ask(query(t, "c.test.", dnsmessage.TypeA, false))
	if m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("%+v", m)
	}
	if _, err := b.lookup("a.test"); err != nil {
		t.Errorf("a name that had an address lost it: %v", err)
	}
	found := false
	for _, bl := range b.p.Health().Blind {
		found = found || bl.What == "dns-names"
	}
	if !found {
		t.Error("it is not told")
	}
}

func TestIPv6Addresses(t *testing.T) {
	b := newBench(t, func(o *Options) { o.IPv6 = netip.MustParsePrefix("fd62:6f64:7963::/64") })
	srv := listen(t, func(c *net.TCPConn) { c.Write([]byte("six")) })
	a, err := b.resolver("").LookupNetIP(context.Background(), "ip6", "web.test.")
	if err != nil || len(a) != 1 {
		t.Fatal(a, err)
	}
	if n, ok := b.p.table.name(a[0]); n != "web.test" || !ok {
		t.Errorf("%s is %q", a[0], n)
	}
	if got := readAll(t, b.mustDial("["+a[0].String()+"]:"+srv)); got != "six" {
		t.Errorf("got %q", got)
	}
	if n, _ := b.resolver("").LookupAddr(context.Background(), a[0].String()); len(n) != 1 || n[0] != "web.test." {
		t.Errorf("reverse look-up: %q", n)
	}
	stranger := a[0].As16()
	stranger[9] = 1
	if n, ok := b.p.table.name(netip.AddrFrom16(stranger)); ok {
		t.Errorf("an address that was not given out is %q", n)
	}
}

// The host's resolver being away is not "there is no such name".
func TestUpstreamAway(t *testing.T) {
	gone := errors.New("no route")
	b := newBench(t, func(o *Options) {
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, gone }}
		o.Nameservers = []string{}
	})
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeTXT} {
		m, _ := b.ask(query(t, "web.test.", kind, false))
		if m.RCode != dnsmessage.RCodeServerFailure {
			t.Errorf("%s: %+v", kind, m)
		}
	}
	if e := b.wait("failed", func(e *bodycam.Event) bool { return strings.HasPrefix(e.Detail, "A failed") }); e.Errno != int32(unix.EAGAIN) {
		t.Error(show(&e))
	}
}

func TestResolverCacheIsBounded(t *testing.T) {
	r := newResolver(nil)
	r.lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}, nil
	}
	for i := range 3 * resolveCache {
		a, err := r.addrs(strings.Repeat("x", i%50) + string(rune(i)))
		if err != nil || !a[0].Is4() {
			t.Fatal(a, err)
		}
	}
	if len(r.entries) > resolveCache {
		t.Errorf("%d entries", len(r.entries))
	}
}

func TestTableIsExact(t *testing.T) {
	tab := newTable(netip.MustParsePrefix("198.18.0.0/15"), netip.Prefix{}, 1<<17)
	seen := map[netip.Addr]bool{}
	for i := range 131070 {
		a, _, ok := tab.assign(string(rune(i)) + "x" + strings.Repeat("y", i%3))
		if !ok {
			t.Fatalf("full after %d", i)
		}
		if i < 0xd800 && seen[a] { // above, surrogates make equal strings
			t.Fatalf("%s was given out twice", a)
		}
		seen[a] = true
	}
}

func TestCodecAgreesWithDnsmessage(t *testing.T) {
	for _, name := range []string{".", "a.", "web.test.", strings.Repeat("l", 63) + ".test."} {
		for _, edns := range []bool{false, true} {
			b := query(t, name, dnsmessage.TypeMX, edns)
			q, err := parseQuery(b)
			if err != nil {
				t.Fatal(err)
			}
			if q.name+"." != name && name != "." || q.qtype != dnsMX || q.id != 7 || !q.recursion || (q.edns == 4096) != edns {
				t.Errorf("%q: %+v", name, q)
			}
		}
	}
	q, _ := parseQuery(query(t, "web.test.", dnsmessage.TypeA, true))
	var m dnsmessage.Message
	a4, a6 := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("fd00::1")
	if err := m.Unpack(reply(&q, 0, 60, []answer{addrAnswer(a4), addrAnswer(a6), {dnsPTR, wireName(`a\.b.test`)}})); err == nil || m.ID != 0 {
		// dnsmessage refuses a dot in a label, which is why the codec is ours
		t.Logf("dnsmessage: %v", err)
	}
	if err := m.Unpack(reply(&q, 0, 60, []answer{addrAnswer(a4), addrAnswer(a6), {dnsPTR, wireName("b.test")}})); err != nil {
		t.Fatal(err)
	}
	if got := m.Answers[0].Body.(*dnsmessage.AResource).A; got != a4.As4() {
		t.Error(got)
	}
	if got := m.Answers[1].Body.(*dnsmessage.AAAAResource).AAAA; got != a6.As16() {
		t.Error(got)
	}
	if got := m.Answers[2].Body.(*dnsmessage.PTRResource).PTR.String(); got != "b.test." {
		t.Error(got)
	}
	if m.Answers[0].Header.Name.String() != "web.test." || m.Answers[0].Header.TTL != 60 {
		t.Errorf("%+v", m.Answers[0].Header)
	}
}
