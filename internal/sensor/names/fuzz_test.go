package names

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// clientHello is what crypto/tls sends for a name.
func clientHello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	go func() {
		tls.Client(a, cfg).HandshakeContext(context.Background())
		a.Close()
	}()
	defer b.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// split cuts a ClientHello into records of n bytes.
func split(hello []byte, n int) []byte {
	var out []byte
	for body := hello[5:]; len(body) > 0; {
		k := min(n, len(body))
		out = append(append(out, 22, 3, 1, byte(k>>8), byte(k)), body[:k]...)
		body = body[k:]
	}
	return out
}

func TestClientHello(t *testing.T) {
	whole := clientHello(t, &tls.Config{ServerName: "Web.Test", NextProtos: []string{"h2", "http/1.1"}})
	for _, n := range []int{1, 3, 100, 16384} {
		b := split(whole, n)
		for cut := range b {
			if _, err := parseHello(b[:cut]); err != errIncomplete {
				t.Fatalf("records of %d, cut at %d: %v", n, cut, err)
			}
		}
		h, err := parseHello(append(b, "more"...))
		if err != nil || h.sni != "web.test" || strings.Join(h.alpn, ",") != "h2,http/1.1" || h.ech || h.version != 0x0304 {
			t.Errorf("records of %d: %+v, %v", n, h, err)
		}
	}
	h, err := parseHello(clientHello(t, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}))
	if err != nil || h.sni != "" || h.version != 0x0303 {
		t.Errorf("%+v, %v", h, err)
	}
	want := "tls=1.2 no-sni"
	if got := h.words(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// An encrypted ClientHello is told by its extension.
	grease := append([]byte(nil), whole...)
	grease = append(grease, 0xfe, 0x0d, 0, 1, 0)
	n := len(grease) - 5
	grease[3], grease[4] = byte(n>>8), byte(n)
	grease[7], grease[8] = byte((n-4)>>8), byte(n-4)
	ext := bytes.Index(grease, []byte{0, 0, 0, 13, 0, 11, 0, 0, 8}) // server_name of 8 bytes
	if ext < 0 {
		t.Fatal("no server_name in the hello")
	}
	// The length of all extensions stands before the first of them.
	off := 5 + 4 + 2 + 32
	off += 1 + int(grease[off])
	off += 2 + int(grease[off])<<8 + int(grease[off+1])
	off += 1 + int(grease[off])
	size := len(grease) - off - 2
	grease[off], grease[off+1] = byte(size>>8), byte(size)
	if h, err := parseHello(grease); err != nil || !h.ech || h.sni != "web.test" {
		t.Errorf("%+v, %v", h, err)
	}
}

// hellos are small ones: fuzzing takes its time to shrink what it keeps.
var hellos = []string{
	"\x16\x03\x01\x00\x54\x01\x00\x00\x50\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00" +
		"\x00\x25\x00\x00\x00\x0d\x00\x0b\x00\x00\x08web.test\x00\x10\x00\x05\x00\x03\x02h2\x00\x2b\x00\x03\x02\x03\x04\xfe\x0d\x00\x00",
	"\x16\x03\x00\x00\x2d\x01\x00\x00\x29\x03\x00" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00",
}

func TestSeedHellos(t *testing.T) {
	h, err := parseHello([]byte(hellos[0]))
	if err != nil || h.sni != "web.test" || !h.ech || h.version != 0x0304 || strings.Join(h.alpn, ",") != "h2" {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err = parseHello([]byte(hellos[1])); err != nil || h.sni != "" || h.version != 0x0300 {
		t.Errorf("%+v, %v", h, err)
	}
}

// A client that sends a large head or hello in single bytes must not cost more than its bytes.
func TestDribbleIsLinear(t *testing.T) {
	for name, stream := range map[string]func(n int) []byte{
		"head": func(n int) []byte { return []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x: y\n", n)) },
		"hello": func(n int) []byte {
			return split(append([]byte("\x16\x03\x01\x00\x00\x01\x00\xff\x00"), make([]byte, n)...), 1)
		},
	} {
		// Eight times as many bytes cost eight times as much, and 64 times if each is looked at again and again. What the
		// machine does beside it only adds: the least of several counts.
		least := [2]time.Duration{time.Hour, time.Hour}
		for range 5 {
			for i, n := range []int{1500, 12_000} {
				least[i] = min(least[i], feedBytes(stream(n)))
			}
		}
		if least[1] > 24*least[0] {
			t.Errorf("%s: an eighth of it costs %v, all of it %v", name, least[0], least[1])
		}
	}
}

// feedBytes feeds a stream in single bytes and returns the CPU time that this took.
func feedBytes(b []byte) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			panic(err)
		}
		return time.Duration(ts.Nano())
	}
	s := sniffer{found: func(*finding) {}}
	start := cpu()
	for i := range b {
		s.feed(b[i : i+1])
	}
	return cpu() - start
}

func FuzzClientHello(f *testing.F) {
	for _, b := range hellos {
		f.Add([]byte(b))
	}
	f.Add(split([]byte(hellos[0]), 7))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		_ = h.words()
		// What is complete stays as it is when more follows, and a prefix is never another answer.
		again, err := parseHello(append(b[:len(b):len(b)], 0xff))
		if err != nil || again.sni != h.sni {
			t.Errorf("%q then %q, %v", h.sni, again.sni, err)
		}
		for _, cut := range []int{0, 1, 5, len(b) / 2} {
			if p, err := parseHello(b[:min(cut, len(b))]); err == nil && p.sni != h.sni {
				t.Errorf("a prefix says %q, the whole %q", p.sni, h.sni)
			}
		}
	})
}

func FuzzHTTPHead(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: web.test\r\n\r\n"))
	f.Add([]byte("CONNECT [::1]:443 HTTP/1.1\n\n"))
	f.Add([]byte("POST http://u@other.test:80/x?y HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := parseHead(b)
		if err == nil && (n <= 0 || n > len(b) || h.method == "" || h.length < -1) {
			t.Errorf("%d of %d bytes: %+v", n, len(b), h)
		}
		splitHostPort(h.host)
		s := newBodySkipper(-1)
		rest, _ := s.skip(b)
		if len(rest) > len(b) {
			t.Error("a body that grows")
		}
	})
}

func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x08web.test\x01\xbb"))
	f.Add([]byte("\x05\x02\x00\x02\x01\x02me\x04pass\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x04\x01\x01\xbb\x00\x00\x00\x01me\x00web.test\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, n, err := parseSOCKS(b)
		if err == nil && (n > len(b) || n < 9 || q.version != 4 && q.version != 5) {
			t.Errorf("%+v, %d of %d", q, n, len(b))
		}
		q.target()
	})
}

// A stream's findings must not depend on how it is cut into pieces.
func FuzzSniffer(f *testing.F) {
	whole := hellos[0]
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /x HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.0\r\n\r\n"), uint8(3))
	f.Add(append([]byte("CONNECT a:443 HTTP/1.1\r\n\r\n"), whole...), uint8(100))
	f.Add(append([]byte("\x05\x01\x00\x05\x01\x00\x03\x08web.test\x01\xbb"), whole...), uint8(1))
	f.Add([]byte("SSH-2.0-x\r\n"), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		run := func(n int) string {
			var out strings.Builder
			s := sniffer{found: func(f *finding) {
				switch {
				case f.hello != nil:
					out.WriteString("tls " + f.hello.sni + "\n")
				case f.head != nil:
					out.WriteString("http " + f.head.method + " " + f.head.host + "\n")
				case f.socks != nil:
					out.WriteString("socks " + f.socks.target() + "\n")
				}
			}}
			for rest := b; len(rest) > 0; {
				k := min(n, len(rest))
				s.feed(rest[:k])
				rest = rest[k:]
			}
			if len(s.buf) > maxHello+len(b) {
				t.Errorf("%d bytes kept", len(s.buf))
			}
			return out.String()
		}
		if len(b) > 8192 { // limits on what is kept may be met at other places in other pieces
			return
		}
		one, many := run(len(b)+1), run(int(piece)+1)
		if one != many {
			t.Errorf("at once:\n%sin pieces of %d:\n%s", one, int(piece)+1, many)
		}
	})
}

func FuzzDNS(f *testing.F) {
	for _, name := range []string{"web.test.", "."} {
		f.Add(query(f, name, dnsmessage.TypeA, true))
	}
	u := &upstreamDNS{}
	f.Add(u.answer(query(f, "web.test.", dnsmessage.TypeTXT, false), true))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseQuery(b)
		if err == nil {
			r := reply(&q, 0, 1, []answer{{dnsPTR, wireName(q.name)}})
			var m dnsmessage.Message
			var p dnsmessage.Parser
			if _, err := p.Start(r); err != nil {
				t.Errorf("the reply is not DNS: %v", err)
			}
			// Where dnsmessage reads the query, it must read the same name.
			if m.Unpack(b) == nil && len(m.Questions) == 1 && strings.TrimSuffix(m.Questions[0].Name.String(), ".") != unescape(q.name) {
				t.Errorf("%q here, %q there", q.name, m.Questions[0].Name)
			}
			if _, _, err := relay(b, &q); err == nil {
				t.Error("a query was taken for a response")
			}
			arpaAddr(canonical(q.name))
			truncate(r, &q)
		}
		if out, _, err := relay(b, &question{id: 1}); err == nil && len(out) > len(b) {
			t.Error("a relayed message grew")
		} else if err != nil && !errors.Is(err, errDNS) {
			t.Error(err)
		}
	})
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
