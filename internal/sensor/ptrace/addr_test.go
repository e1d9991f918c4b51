package ptrace

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestParseSockaddr(t *testing.T) {
	for _, c := range []struct {
		b    string
		ip   string
		unix string
	}{
		{"\x02\x00\x00\x35\x7f\x00\x00\x01", "127.0.0.1:53", ""},
		{"\x02\x00\x00\x35\x7f\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", "127.0.0.1:53", ""},
		{"\x02\x00\x00\x35\x7f\x00\x00", "", ""},
		{"\x0a\x00\x01\xbb\x00\x00\x00\x00" + strings.Repeat("\x00", 15) + "\x01\x00\x00\x00\x00", "[::1]:443", ""},
		{"\x0a\x00\x01\xbb\x00\x00\x00\x00" + strings.Repeat("\x00", 10) + "\xff\xff\x0a\x00\x00\x01\x00\x00\x00\x00", "10.0.0.1:443", ""},
		{"\x01\x00/run/x\x00rest", "", "/run/x"},
		{"\x01\x00\x00a\x00b", "", "@a\x00b"},
		{"\x01\x00", "", ""},
		{"\x01", "", ""},
		{"", "", ""},
		{"\x63\x00abc", "", ""},
	} {
		a := parseSockaddr([]byte(c.b))
		if got := a.ip.IsValid(); got != (c.ip != "") || got && a.ip.String() != c.ip || a.unix != c.unix {
			t.Errorf("parseSockaddr(%q) = %v %q, want %s %q", c.b, a.ip, a.unix, c.ip, c.unix)
		}
	}
}

// TestParseDNS holds the parser against messages that another implementation packed.
func TestParseDNS(t *testing.T) {
	q := new(dns.Msg)
	q.SetQuestion("www.example.test.", dns.TypeAAAA)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := parseDNS(b); !ok || m.response || m.name != "www.example.test" || m.qtype != 28 {
		t.Errorf("question: %+v %v", m, ok)
	}
	r := new(dns.Msg)
	r.SetReply(q)
	r.Compress = true
	for _, s := range []string{"www.example.test. 1 IN CNAME web.example.test.", "web.example.test. 1 IN A 192.0.2.7", "web.example.test. 1 IN AAAA 2001:db8::7"} {
		rr, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Answer = append(r.Answer, rr)
	}
	if b, err = r.Pack(); err != nil {
		t.Fatal(err)
	}
	m, ok := parseDNS(b)
	want := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	if !ok || !m.response || len(m.answers) != 2 || m.answers[0] != want[0] || m.answers[1] != want[1] {
		t.Errorf("answer: %+v %v", m, ok)
	}
	var s dnsStream
	framed := append([]byte{byte(len(b) >> 8), byte(len(b))}, b...)
	framed = append(framed, framed...)
	var got int
	for i := range framed {
		for _, whole := range s.feed(framed[i : i+1]) {
			if string(whole) != string(b) {
				t.Errorf("message %d differs", got)
			}
			got++
		}
	}
	if got != 2 || len(s.buf) != 0 {
		t.Errorf("%d messages of the stream, %d bytes left", got, len(s.buf))
	}
}

func FuzzParseSockaddr(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x35\x7f\x00\x00\x01"))
	f.Add([]byte("\x0a\x00\x01\xbb\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01"))
	f.Add([]byte("\x01\x00\x00a\x00b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := parseSockaddr(b)
		if len(a.unix) > 109 || a.ip.IsValid() && a.unix != "" {
			t.Errorf("%q: %v %q", b, a.ip, a.unix)
		}
	})
}

func FuzzParseDNS(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04\x7f\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parseDNS(b)
		if ok && len(m.name) > 254 {
			t.Errorf("a name of %d bytes", len(m.name))
		}
		var s dnsStream
		n := 0
		for _, w := range s.feed(b) {
			n += 2 + len(w)
		}
		if n+len(s.buf) != len(b) {
			t.Errorf("%d bytes of %d accounted for", n+len(s.buf), len(b))
		}
	})
}
